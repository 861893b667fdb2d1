package limit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// subject is a limiter that must keep the contract.
type subject struct {
	Limiter
	// turn makes the next window of these organizations begin.
	turn func(organizations ...string)
	// fresh waits for the next minute if the present one is nearly over and the clock can't be stopped.
	fresh func()
}

func (s subject) take(t require.TestingT, org string, limit int64) Decision {
	d, err := s.Take(context.Background(), org, limit)
	require.NoError(t, err)
	return clientPart(d)
}

// clientPart returns the part of a decision that is sent to the client.
func clientPart(d Decision) Decision {
	d.window = 0
	return d
}

// admits is take for goroutines of a test's.
func admits(t *testing.T, l Limiter, org string, limit int64) bool {
	t.Helper()
	d, err := l.Take(context.Background(), org, limit)
	if err != nil {
		t.Error(err)
	}
	return d.Allowed
}

// eachLimiter runs a test of the contract on all limiters.
func eachLimiter(t *testing.T, run func(t *testing.T, s subject)) {
	t.Helper()
	for name, open := range map[string]func(*testing.T) subject{
		"memory":   memorySubject,
		"postgres": postgresSubject,
		"redis":    redisSubject,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			s.fresh()
			run(t, s)
		})
	}
}

func memorySubject(*testing.T) subject {
	clock := newWall(20)
	return subject{clock.memory(), func(...string) { clock.set(clock.read().Add(time.Minute)) }, func() {}}
}

// ahead is the process's clock, which tests put forward.
type ahead struct{ by atomic.Int64 }

func (a *ahead) read() time.Time      { return time.Now().Add(time.Duration(a.by.Load())) }
func (a *ahead) put(by time.Duration) { a.by.Add(int64(by)) }

func postgresSubject(t *testing.T) subject {
	db := storetest.Open(t, store.Postgres)
	clock := new(ahead)
	w := newWindows(db.Windows(), clock.read)
	now := func() (now time.Time) {
		require.NoError(t, db.Exec(context.Background(), func(_ context.Context, tx store.Tx) error {
			now = time.UnixMilli(tx.Now())
			return nil
		}))
		return now
	}
	turn := func(organizations ...string) {
		clock.put(window)
		require.NoError(t, db.Exec(context.Background(), func(ctx context.Context, tx store.Tx) error {
			for _, org := range organizations {
				tx.Queue(store.AnyRows, `DELETE FROM rate_windows WHERE org_id = $1 AND window_start < $2`, org, tx.Now()-window.Milliseconds())
				tx.Queue(store.AnyRows, `UPDATE rate_windows SET window_start = window_start - $2 WHERE org_id = $1`, org, window.Milliseconds())
			}
			return tx.Flush(ctx)
		}))
	}
	return subject{w, turn, func() { freshMinute(t, now) }}
}

func redisSubject(t *testing.T) subject {
	server := testServer(t)
	client := plainClient(t, server)
	clock := new(ahead)
	// Patient, so that a loaded machine doesn't make it count here.
	r := newRedis(RedisOptions{Client: NewRedisClient(server), Observer: neverLocal{t}}, tempo{soon, window, clock.read})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	turn := func(organizations ...string) {
		clock.put(window)
		for _, org := range organizations {
			turnKey(t, client, org)
		}
	}
	return subject{r, turn, func() { freshMinute(t, redisNow(t, client)) }}
}

// turnKey makes an organization's window in Redis one of the minute before.
func turnKey(t testing.TB, client *redis.Client, org string) {
	t.Helper()
	exists, err := client.Exists(context.Background(), windowKey(org)).Result()
	require.NoError(t, err)
	if exists == 1 {
		require.NoError(t, client.HIncrBy(context.Background(), windowKey(org), "w", -1).Err())
	}
}

// neverLocal is the observer of a test in which everything is counted in Redis.
type neverLocal struct{ t *testing.T }

func (neverLocal) Pipelined(int, time.Duration, bool) {}
func (n neverLocal) Local(reason LocalReason)         { n.t.Errorf("counted locally: %s", reason) }

var organizations atomic.Int64

// newOrg returns an id that no earlier run of the tests on the same Redis has used.
func newOrg() string { return fmt.Sprintf("org_%d_%d", time.Now().UnixNano(), organizations.Add(1)) }

func TestContractAdmitsTheLimitAndTellsTheRest(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *testing.T, s subject) {
		org := newOrg()
		for _, want := range []Decision{
			{Allowed: true, Limit: 3, Remaining: 2},
			{Allowed: true, Limit: 3, Remaining: 1},
			{Allowed: true, Limit: 3, Remaining: 0},
			{Allowed: false, Limit: 3, Remaining: 0},
			{Allowed: false, Limit: 3, Remaining: 0},
		} {
			d := s.take(t, org, 3)
			require.Positive(t, d.ResetIn)
			require.LessOrEqual(t, d.ResetIn, time.Minute)
			d.ResetIn = 0
			require.Equal(t, want, d)
		}
		require.True(t, s.take(t, newOrg(), 3).Allowed, "organizations don't share a window")
	})
}

func TestContractWithoutALimit(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *testing.T, s subject) {
		org := newOrg()
		for range 20 {
			require.Equal(t, Decision{Allowed: true}, s.take(t, org, 0))
			require.Equal(t, Decision{Allowed: true}, s.take(t, org, -1))
		}
		require.EqualValues(t, 1, s.take(t, org, 2).Remaining, "requests without a limit are not counted")
	})
}

func TestContractNextWindow(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *testing.T, s subject) {
		org := newOrg()
		for range 3 {
			require.True(t, s.take(t, org, 2).Allowed)
			require.True(t, s.take(t, org, 2).Allowed)
			require.False(t, s.take(t, org, 2).Allowed)
			s.turn(org)
		}
		require.True(t, s.take(t, org, 2).Allowed)
		s.turn(org)
		s.turn(org)
		require.EqualValues(t, 1, s.take(t, org, 2).Remaining, "what a window has left isn't carried over")
	})
}

func TestContractRepeatingARefusedRequestChangesNothing(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *testing.T, s subject) {
		org := newOrg()
		require.True(t, s.take(t, org, 1).Allowed)
		for range 50 {
			require.False(t, s.take(t, org, 1).Allowed)
		}
		require.Zero(t, s.take(t, org, 2).Remaining, "refused requests don't count against a limit that is raised")
		s.turn(org)
		require.True(t, s.take(t, org, 1).Allowed, "nor against the next window")
	})
}

func TestContractLimitChangesAtOnce(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *testing.T, s subject) {
		org := newOrg()
		for range 3 {
			require.True(t, s.take(t, org, 3).Allowed)
		}
		require.False(t, s.take(t, org, 3).Allowed)
		raised := s.take(t, org, 5)
		require.True(t, raised.Allowed)
		require.EqualValues(t, 1, raised.Remaining)
		lowered := s.take(t, org, 2)
		require.False(t, lowered.Allowed)
		require.Zero(t, lowered.Remaining, "a lowered limit never leaves a negative rest")
		require.EqualValues(t, 2, lowered.Limit)
		require.True(t, s.take(t, org, 5).Allowed)
		require.False(t, s.take(t, org, 5).Allowed)
	})
}

func TestContractExactlyTheLimitOfManyAtOnce(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *testing.T, s subject) {
		org, other := newOrg(), newOrg()
		for range 2 {
			var admitted, others atomic.Int64
			var wait sync.WaitGroup
			for range 200 {
				wait.Go(func() {
					if admits(t, s, org, 60) {
						admitted.Add(1)
					}
				})
				wait.Go(func() {
					if admits(t, s, other, 199) {
						others.Add(1)
					}
				})
			}
			wait.Wait()
			require.EqualValues(t, 60, admitted.Load())
			require.EqualValues(t, 199, others.Load())
			s.turn(org, other)
		}
	})
}

// TestContractReturn guarantees that a permit which is returned is there again for the next request, in its own window only.
func TestContractReturn(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *testing.T, s subject) {
		returner, ok := s.Limiter.(Returner)
		if !ok {
			require.IsType(t, (*Redis)(nil), s.Limiter)
			return
		}
		org, other := newOrg(), newOrg()
		first, err := s.Take(t.Context(), org, 2)
		require.NoError(t, err)
		require.True(t, s.take(t, org, 2).Allowed)
		require.True(t, s.take(t, other, 1).Allowed)
		refused, err := s.Take(t.Context(), org, 2)
		require.NoError(t, err)
		require.False(t, refused.Allowed)
		returner.Return(org, refused)
		require.False(t, s.take(t, org, 2).Allowed, "a refusal is no permit")

		returner.Return(org, first)
		require.True(t, s.take(t, org, 2).Allowed)
		require.False(t, s.take(t, org, 2).Allowed, "it is returned once")
		require.False(t, s.take(t, other, 1).Allowed)
	})
}

// TestLateReturn guarantees that a permit of a window that is over gives the next one no more.
func TestLateReturn(t *testing.T) {
	t.Parallel()
	s := memorySubject(t)
	first, err := s.Take(t.Context(), "org", 1)
	require.NoError(t, err)
	s.turn("org")
	require.True(t, s.take(t, "org", 1).Allowed)
	s.Limiter.(Returner).Return("org", first)
	require.False(t, s.take(t, "org", 1).Allowed)
}

// For any requests, limits and turns of the minute: a window admits as long as it has admitted fewer than the limit of
// the request.
func TestContractProperties(t *testing.T) {
	t.Parallel()
	eachLimiter(t, func(t *testing.T, s subject) {
		rapid.Check(t, func(t *rapid.T) {
			s.fresh()
			orgs := []string{newOrg(), newOrg()}
			admitted := make(map[string]int64)
			for range rapid.IntRange(1, 15).Draw(t, "requests") {
				if rapid.IntRange(0, 9).Draw(t, "turn") == 0 {
					s.turn(orgs...)
					clear(admitted)
				}
				org := rapid.SampledFrom(orgs).Draw(t, "org")
				limit := rapid.Int64Range(1, 5).Draw(t, "limit")
				d := s.take(t, org, limit)
				require.Equal(t, admitted[org] < limit, d.Allowed)
				if d.Allowed {
					admitted[org]++
				}
				require.Equal(t, max(0, limit-admitted[org]), d.Remaining)
				require.Equal(t, limit, d.Limit)
			}
		})
	})
}
