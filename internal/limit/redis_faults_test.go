package limit

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// stop makes a server hang: it takes connections, and nothing comes back.
func stop(t testing.TB, p *privateRedis) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
}

// goesLocal waits until requests are counted in this process, asking as clients do.
func goesLocal(t *testing.T, r *Redis) {
	t.Helper()
	eventually(t, "Redis is given up", func() bool {
		redisTake(t, r, newOrg(), 1)
		return !r.Answers()
	})
}

// comesBack waits until requests are counted in the Redis behind client.
func comesBack(t *testing.T, r *Redis, client redis.UniversalClient) {
	t.Helper()
	eventually(t, "requests are counted in Redis again", func() bool {
		org := newOrg()
		redisTake(t, r, org, 1)
		n, _ := client.HGet(context.Background(), windowKey(org), "n").Int64()
		return r.Answers() && n == 1
	})
}

// A Redis that hangs: requests are answered by the local window, the breaker opens, and closes when Redis goes on. Each
// of the two is logged once.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	private := startRedis(t)
	client := plainClient(t, private.server())
	r, b := withPatience(t, private.server(), 3, patience)
	comesBack(t, r, client)
	freshMinute(t, redisNow(t, client))

	before := b.logged(givenUp)
	stop(t, private)
	org := newOrg()
	for _, allowed := range []bool{true, true, false, false, false, false} {
		d := redisTake(t, r, org, 6)
		require.Equal(t, allowed, d.Allowed, "a share of 6 ÷ 3")
		require.EqualValues(t, 2, d.Limit)
	}
	require.True(t, redisTake(t, r, newOrg(), 1).Allowed, "a share is at least 1")
	goesLocal(t, r)
	require.Positive(t, b.locals(LocalLate)+b.locals(LocalFailed))
	b.awaitLogged(t, before+1, givenUp)
	late := b.locals(LocalLate)
	for range 100 {
		redisTake(t, r, newOrg(), 1)
	}
	require.Equal(t, late, b.locals(LocalLate), "nobody waits for Redis any more")
	require.GreaterOrEqual(t, b.locals(LocalOpen), 100)
	b.awaitLogged(t, before+1, givenUp)

	private.signal(t, syscall.SIGCONT)
	comesBack(t, r, client)
	eventually(t, "it is logged", func() bool { return b.logged(isBack) > 0 })
}

func TestRedisRestarts(t *testing.T) {
	t.Parallel()
	private := startRedis(t)
	r, b := patiently(t, private.server(), 1)
	require.True(t, redisTake(t, r, newOrg(), 1).Allowed)
	require.Empty(t, b.local)
	private.kill()
	goesLocal(t, r)
	b.awaitLogged(t, 1, givenUp)
	private = private.restart(t)
	client := plainClient(t, private.server())
	comesBack(t, r, client)
	b.awaitLogged(t, 1, isBack)
}

// A start without Redis is a start: it is logged, and requests are counted in this process until Redis is there.
func TestRedisIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	private := startRedis(t)
	private.kill()
	r, b := patiently(t, private.server(), 1)
	eventually(t, "it is logged before a request comes", func() bool { return b.logged(givenUp) == 1 })
	require.True(t, redisTake(t, r, "org", 1).Allowed)
	private = private.restart(t)
	comesBack(t, r, plainClient(t, private.server()))
	b.awaitLogged(t, 1, givenUp)
	b.awaitLogged(t, 1, isBack)
}

// Deleting the keys in Redis costs at most one more limit in that window, and no request.
func TestRedisIsEmptied(t *testing.T) {
	t.Parallel()
	private := startRedis(t)
	client := plainClient(t, private.server())
	freshMinute(t, redisNow(t, client))
	r, b := patiently(t, private.server(), 1)
	for range 2 {
		require.True(t, redisTake(t, r, "org", 3).Allowed)
	}
	require.NoError(t, client.FlushAll(t.Context()).Err())
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	for range 3 {
		require.True(t, redisTake(t, r, "org", 3).Allowed)
	}
	require.False(t, redisTake(t, r, "org", 3).Allowed)
	require.Empty(t, b.local, "Redis is told the script again")
	require.Zero(t, b.failed)
}

// A key that holds something else is left alone; its organization is counted locally, the others in Redis.
func TestRedisKeyOfAnotherKind(t *testing.T) {
	t.Parallel()
	server := testServer(t)
	client := plainClient(t, server)
	for name, spoil := range map[string]func(key string) error{
		"a string":        func(key string) error { return client.Set(t.Context(), key, "mine", 0).Err() },
		"another hash":    func(key string) error { return client.HSet(t.Context(), key, "w", "mine").Err() },
		"no whole number": func(key string) error { return client.HSet(t.Context(), key, "w", 1e9, "n", "lots").Err() },
	} {
		freshMinute(t, redisNow(t, client))
		r, b := patiently(t, server, 1)
		org := newOrg()
		t.Cleanup(func() { require.NoError(t, client.Del(context.Background(), windowKey(org)).Err()) })
		require.NoError(t, spoil(windowKey(org)), name)
		dump := client.Dump(t.Context(), windowKey(org)).Val()
		for _, allowed := range []bool{true, false, false, false, false, false, false, false, false, false, false, false} {
			require.Equal(t, allowed, redisTake(t, r, org, 1).Allowed, name)
		}
		require.Equal(t, 12, b.locals(LocalKey), name)
		require.Equal(t, 1, b.logged("holds no rate-limit window"), name)
		require.Equal(t, 1, b.logged(org), "%s: the line names the key", name)
		require.True(t, r.Answers(), name)
		other := newOrg()
		require.True(t, redisTake(t, r, other, 1).Allowed)
		require.EqualValues(t, 1, countedIn(t, client, other), name)
		require.Equal(t, dump, client.Dump(context.Background(), windowKey(org)).Val(), name)
	}
}

// A server that answers but takes no writes, as the old master after a failover, is as good as none: looking for its
// return writes, too.
func TestRedisIsReadOnly(t *testing.T) {
	t.Parallel()
	private, other := startRedis(t), startRedis(t)
	client := plainClient(t, private.server())
	r, b := patiently(t, private.server(), 1)
	require.True(t, redisTake(t, r, newOrg(), 1).Allowed)
	require.NoError(t, client.ReplicaOf(t.Context(), "127.0.0.1", portOf(other)).Err())
	goesLocal(t, r)
	require.NoError(t, client.ReplicaOf(t.Context(), "NO", "ONE").Err())
	comesBack(t, r, client)
	b.awaitLogged(t, 1, givenUp)
	b.awaitLogged(t, 1, isBack)
}

// A Redis whose memory is full refuses the writes of the windows: it is as good as none, and is used again when it has room.
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	private := startRedis(t)
	client := plainClient(t, private.server())
	r, b := patiently(t, private.server(), 1)
	require.True(t, redisTake(t, r, newOrg(), 1).Allowed)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	goesLocal(t, r)
	freshMinute(t, redisNow(t, client))
	org := newOrg()
	for _, allowed := range []bool{true, true, false} {
		require.Equal(t, allowed, redisTake(t, r, org, 2).Allowed, "the local window counts")
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	comesBack(t, r, client)
	b.awaitLogged(t, 1, givenUp)
	b.awaitLogged(t, 1, isBack)
}

func TestRedisRefusesThePassword(t *testing.T) {
	t.Parallel()
	private := startRedis(t, "--requirepass", "right")
	server := private.server()
	server.Password = "hunter2"
	r, b := patiently(t, server, 1)
	b.awaitLogged(t, 1, givenUp)
	require.True(t, redisTake(t, r, "org", 1).Allowed)
	require.NotContains(t, b.text(), "hunter2")
	require.Contains(t, b.text(), "WRONGPASS")
}

// heldPipelines holds each pipeline of requests back before it is sent, until the test lets it go. All pipelines run
// without the deadline they came with, so that they succeed whenever that is.
type heldPipelines struct {
	redis.Hook // nothing but pipelines passes

	came, goOn chan struct{}
}

func (h *heldPipelines) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *heldPipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *heldPipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" && !strings.Contains(cmds[0].String(), windowKey(probeOrg)) {
			h.came <- struct{}{}
			<-h.goOn
		}
		return next(context.WithoutCancel(ctx), cmds)
	}
}

// TestClientThatLeavesIsNoFaultOfRedis: requests whose clients leave while Redis is asked say nothing about Redis; those
// that our own timer ended count as late, though the answer came.
func TestClientThatLeavesIsNoFaultOfRedis(t *testing.T) {
	t.Parallel()
	server := testServer(t)
	for _, tc := range []struct {
		name     string
		patience time.Duration
		leaves   bool
		answers  bool
	}{
		{name: "clients leave", patience: soon, leaves: true, answers: true},
		{name: "our timer ends", patience: time.Millisecond, leaves: false, answers: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			held := &heldPipelines{came: make(chan struct{}), goOn: make(chan struct{})}
			client := NewRedisClient(server)
			client.AddHook(held)
			b := newBook()
			r := newRedis(RedisOptions{Client: client, Observer: b, Logger: b.logger()}, tempo{soon, window, time.Now})
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			waiting := &Redis{tempo: tempo{patience: tc.patience}, ctx: t.Context()}
			pipelines := 0
			for ; pipelines < remembered && r.Answers(); pipelines++ {
				a := &ask{orgID: newOrg(), limit: 1, done: make(chan struct{})}
				r.asks <- a
				<-held.came
				ctx, leave := context.WithCancel(t.Context())
				if tc.leaves {
					leave()
				}
				// The wait begins when the pipeline is on its way: one that ended before would keep the request out of it.
				_, reason, err := waiting.await(ctx, a)
				leave()
				if tc.leaves {
					require.ErrorIs(t, err, context.Canceled)
				} else {
					require.Equal(t, LocalLate, reason)
				}
				held.goOn <- struct{}{}
				eventually(t, "the pipeline is judged", func() bool {
					b.mu.Lock()
					defer b.mu.Unlock()
					return b.pipelines == pipelines+1
				})
			}
			require.Equal(t, tc.answers, r.Answers())
			require.Equal(t, tc.answers, b.failed == 0)
		})
	}
}
