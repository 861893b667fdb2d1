package limit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// book records the log and the observer's calls.
type book struct {
	mu        sync.Mutex
	log       bytes.Buffer
	local     map[LocalReason]int
	requests  int
	pipelines int
	failed    int
}

func newBook() *book { return &book{local: make(map[LocalReason]int)} }

func (b *book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(line)
}

func (b *book) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// logged returns how often the words stand in the log.
func (b *book) logged(words string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.log.String(), words)
}

// awaitLogged waits until the log has the words so many times: a line is written a moment after its event.
func (b *book) awaitLogged(t *testing.T, times int, words string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q is logged %d times", words, times), func() bool { return b.logged(words) == times })
}

func (b *book) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

func (b *book) Pipelined(requests int, _ time.Duration, failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests += requests
	b.pipelines++
	if failed {
		b.failed++
	}
}

func (b *book) Local(reason LocalReason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.local[reason]++
}

func (b *book) locals(reason LocalReason) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.local[reason]
}

const (
	givenUp = "Redis doesn't answer"
	isBack  = "Redis answers again"
)

// patiently is a limiter on a server that waits as long as a loaded machine needs, closed after the test.
func patiently(t *testing.T, s RedisServer, nodes int64) (*Redis, *book) {
	t.Helper()
	return withPatience(t, s, nodes, soon)
}

func withPatience(t *testing.T, s RedisServer, nodes int64, patience time.Duration) (*Redis, *book) {
	t.Helper()
	return atTempo(t, s, nodes, tempo{patience, window, time.Now})
}

func atTempo(t *testing.T, s RedisServer, nodes int64, at tempo) (*Redis, *book) {
	t.Helper()
	b := newBook()
	r := newRedis(RedisOptions{Client: NewRedisClient(s), Nodes: nodes, Observer: b, Logger: b.logger()}, at)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r, b
}

func redisTake(t testing.TB, r *Redis, org string, limit int64) Decision {
	t.Helper()
	d, err := r.Take(context.Background(), org, limit)
	require.NoError(t, err)
	return d
}

// countedIn is how many requests a key has admitted.
func countedIn(t testing.TB, client redis.UniversalClient, org string) int64 {
	t.Helper()
	n, err := client.HGet(context.Background(), windowKey(org), "n").Int64()
	if err != nil {
		require.ErrorIs(t, err, redis.Nil)
	}
	return n
}

func TestRedisKeysExpireAndShowTheOrganization(t *testing.T) {
	t.Parallel()
	server := testServer(t)
	client := plainClient(t, server)
	r, _ := patiently(t, server, 1)
	org := newOrg()
	redisTake(t, r, org, 5)
	key := "rl:{" + org + "}:window"
	for range 2 {
		left, err := client.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Positive(t, left)
		require.LessOrEqual(t, left, 2*time.Minute)
		redisTake(t, r, org, 5)
	}
	require.EqualValues(t, 3, countedIn(t, client, org))
}

// The window of a clock that stepped back a little goes on; one from a clock that was far ahead is dropped.
func TestRedisClockThatStepsBack(t *testing.T) {
	t.Parallel()
	server := testServer(t)
	client := plainClient(t, server)
	freshMinute(t, redisNow(t, client))
	for ahead, want := range map[int64]bool{0: false, 1: false, 2: true, 60: true, -1: true} {
		r, _ := patiently(t, server, 1)
		org := newOrg()
		require.True(t, redisTake(t, r, org, 1).Allowed)
		require.NoError(t, client.HIncrBy(t.Context(), windowKey(org), "w", ahead).Err())
		d := redisTake(t, r, org, 1)
		require.Equal(t, want, d.Allowed, "%d windows ahead", ahead)
		require.LessOrEqual(t, d.ResetIn, time.Minute)
	}
}

// A request is admitted after the time that its refusal gave; windows of half a second stand in for minutes.
func TestRedisWaitingResetInIsEnough(t *testing.T) {
	t.Parallel()
	r, b := atTempo(t, testServer(t), 1, tempo{soon, 500 * time.Millisecond, time.Now})
	org := newOrg()
	for range 3 {
		d := redisTake(t, r, org, 1)
		for d.Allowed { // a turn of the window may lie between two requests
			d = redisTake(t, r, org, 1)
		}
		<-time.After(d.ResetIn)
		require.True(t, redisTake(t, r, org, 1).Allowed)
	}
	require.Empty(t, b.local)
}

// A refusal must not cost a round trip: clients that ignore Retry-After come again and again.
func TestRedisRefusesWithoutRedis(t *testing.T) {
	t.Parallel()
	private := startRedis(t)
	freshMinute(t, redisNow(t, plainClient(t, private.server())))
	r, b := patiently(t, private.server(), 1)
	require.True(t, redisTake(t, r, "org", 1).Allowed)
	require.False(t, redisTake(t, r, "org", 1).Allowed)
	private.kill()
	for range 100 {
		require.False(t, redisTake(t, r, "org", 1).Allowed)
	}
	require.Empty(t, b.local)
}

func TestRedisOfSeveralProcessesAdmitsExactlyTheLimit(t *testing.T) {
	t.Parallel()
	server := testServer(t)
	freshMinute(t, redisNow(t, plainClient(t, server)))
	org := newOrg()
	var admitted atomic.Int64
	var wait sync.WaitGroup
	for range 3 {
		r, _ := patiently(t, server, 3)
		for range 200 {
			wait.Go(func() {
				if admits(t, r, org, 60) {
					admitted.Add(1)
				}
			})
		}
	}
	wait.Wait()
	require.EqualValues(t, 60, admitted.Load())
}

// Requests that wait while a pipeline is under way share the next one, and those of one organization one call in it.
func TestRedisBatches(t *testing.T) {
	t.Parallel()
	r := &Redis{asks: make(chan *ask, queued)}
	for i := range 300 {
		r.asks <- &ask{orgID: fmt.Sprint("org", i%3), limit: int64(1 + i%2)}
	}
	batch := r.gather([]*ask{<-r.asks})
	require.Len(t, batch, pipelined)
	require.Len(t, r.asks, 300-pipelined)
	batch[7].waiting.Store(endedLate)
	calls := grouping(batch)
	require.Len(t, calls, 6)
	asks := 0
	for _, c := range calls {
		for _, a := range c.asks {
			require.Equal(t, c.key, windowKey(a.orgID))
			require.Equal(t, c.limit, a.limit)
			require.NotSame(t, batch[7], a, "nobody waits for it")
			asks++
		}
	}
	require.Equal(t, pipelined-1, asks)
	for _, a := range batch {
		a.waiting.Store(left)
	}
	require.Empty(t, grouping(batch))
}

// More requests than Redis answers in time aren't queued without end.
func TestRedisQueueIsBounded(t *testing.T) {
	t.Parallel()
	b := newBook()
	r := &Redis{
		asks: make(chan *ask, 1), observer: b, nodes: 1, local: newWall(0).memory(), refused: newRefusals(),
		ctx: t.Context(), tempo: tempo{soon, window, time.Now},
	}
	r.asks <- &ask{}
	require.True(t, redisTake(t, r, "org", 1).Allowed)
	require.False(t, redisTake(t, r, "org", 1).Allowed)
	require.Equal(t, 2, b.locals(LocalBusy))
}

func TestRedisEndsWithTheCaller(t *testing.T) {
	t.Parallel()
	private := startRedis(t)
	r, b := patiently(t, private.server(), 1)
	require.True(t, redisTake(t, r, "org", 100).Allowed)
	stop(t, private)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := r.Take(ctx, "org", 100)
		ended <- err
	}()
	cancel(context.DeadlineExceeded)
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	require.Empty(t, b.local)
}

// Close doesn't wait for a Redis that hangs, and later requests don't wait either; it may be repeated.
func TestRedisClose(t *testing.T) {
	t.Parallel()
	private := startRedis(t)
	freshMinute(t, redisNow(t, plainClient(t, private.server())))
	r, b := patiently(t, private.server(), 2)
	require.True(t, redisTake(t, r, "org", 4).Allowed)
	stop(t, private)
	answered := make(chan bool)
	go func() { answered <- admits(t, r, "org", 4) }()
	require.NoError(t, r.Close())
	require.True(t, <-answered)
	require.NoError(t, r.Close())
	require.True(t, redisTake(t, r, "org", 4).Allowed)
	require.False(t, redisTake(t, r, "org", 4).Allowed, "the share of this process is used up")
	require.Zero(t, b.logged(givenUp), "closing is no fault of Redis'")
}
