package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
)

var errAway = errors.New("the store is away")

// lateTest is a queue of late calls on a store that may be away, in a bubble's time.
type lateTest struct {
	lateCalls

	away    bool
	trying  int
	most    int // calls that were tried at a time
	tries   int
	poison  map[string]bool // calls that fail though the store works
	settled []string
	voids   int
	calls   *InFlight
}

func newLateTest() *lateTest {
	q := &lateTest{poison: map[string]bool{}, calls: NewInFlight()}
	q.logger = slog.New(slog.DiscardHandler)
	q.settle = func(_ context.Context, l *lateCall) error {
		id := l.settlement.Call.ID
		q.mu.Lock()
		q.trying++
		q.most = max(q.most, q.trying)
		q.tries++
		fails := q.away || q.poison[id]
		q.mu.Unlock()
		<-time.After(time.Millisecond)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.trying--
		if fails {
			return errAway
		}
		q.settled = append(q.settled, id)
		if l.settlement.Void {
			q.voids++
		}
		return nil
	}
	return q
}

// end ends n calls late, which expire after life.
func (q *lateTest) end(t *testing.T, n int, life time.Duration) {
	t.Helper()
	for i := range n {
		cut, leave, err := q.calls.Enter()
		require.NoError(t, err)
		settlement := billing.Settlement{Call: billing.Call{ID: fmt.Sprint("call_", i)}}
		q.add(cut, &lateCall{settlement: settlement, until: time.Now().Add(life), leave: leave})
	}
}

// TestLateCallsEndWhenTheStoreIsBack: however long the store was away, within 10 s of its return every call is settled
// once and nothing runs any more; a call that fails by itself keeps no other from its end.
func TestLateCallsEndWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newLateTest()
		q.away = true
		q.poison["call_3"] = true
		q.end(t, 1000, time.Hour)
		<-time.After(10 * time.Minute)
		require.Equal(t, 1000, q.calls.Running())
		q.mu.Lock()
		require.Empty(t, q.settled)
		require.Equal(t, lateAtOnce, q.most)
		require.Less(t, q.tries, 10*60*lateAtOnce, "more than a round a second while the store is away")
		q.away = false
		q.mu.Unlock()
		<-time.After(10 * time.Second)
		synctest.Wait()
		require.Len(t, q.settled, 999)
		require.Equal(t, 1, q.calls.Running(), "the call that fails by itself")
		<-time.After(time.Hour)
		synctest.Wait()
		require.Len(t, q.settled, 999)
		require.Zero(t, q.calls.Running(), "the call that fails by itself has expired")
		require.False(t, q.running)

		q.end(t, 1, time.Hour)
		<-time.After(time.Second)
		synctest.Wait()
		require.Len(t, q.settled, 1000, "the queue works again after it was empty")
		require.Zero(t, q.calls.Running())
	})
}

// TestLateCallsAreCut: a process that can't wait leaves its calls to the sweeper.
func TestLateCallsAreCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newLateTest()
		q.away = true
		q.end(t, 100, time.Hour)
		<-time.After(time.Minute)
		q.calls.Cut()
		synctest.Wait()
		<-time.After(time.Millisecond) // a try that is under way
		synctest.Wait()
		require.Zero(t, q.calls.Running())
		require.False(t, q.running)
		require.Empty(t, q.settled)
	})
}

// TestLateCallsAreBounded: a call that finds the queue full is left to the sweeper at once.
func TestLateCallsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newLateTest()
		q.away = true
		q.end(t, maxLate+2*lateAtOnce, time.Minute)
		require.LessOrEqual(t, q.calls.Running(), maxLate+lateAtOnce, "the queue and the round that is under way")
		require.GreaterOrEqual(t, q.calls.Running(), maxLate)
		<-time.After(2 * time.Minute)
		synctest.Wait()
		require.Zero(t, q.calls.Running())
		require.False(t, q.running)
	})
}

// TestLateAnswersAreBounded: a call whose kept answer finds no room among those that wait is voided: none is lost, and none
// is charged whose answer a repeated request could not have.
func TestLateAnswersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newLateTest()
		answer := make([]byte, maxTranscript)
		const room = maxLateBytes / maxTranscript
		for range 2 { // the room is given back
			q.mu.Lock()
			q.away, q.settled, q.voids = true, nil, 0
			q.mu.Unlock()
			for i := range 2 * room {
				cut, leave, err := q.calls.Enter()
				require.NoError(t, err)
				q.add(cut, &lateCall{
					settlement: billing.Settlement{
						Call: billing.Call{ID: fmt.Sprint("call_", i)}, ReservedMicros: 7, Keep: true, Response: answer, Claim: &billing.Claim{},
					},
					until: time.Now().Add(time.Hour), leave: leave,
				})
			}
			<-time.After(time.Minute)
			q.mu.Lock()
			require.Equal(t, maxLateBytes, q.answers)
			q.away = false
			q.mu.Unlock()
			<-time.After(10 * time.Second)
			synctest.Wait()
			require.Len(t, q.settled, 2*room, "none is lost")
			require.Equal(t, room, q.voids)
			require.Zero(t, q.calls.Running())
			require.Zero(t, q.answers)
		}
		// Calls that expire give their room back, too.
		q.away = true
		cut, leave, err := q.calls.Enter()
		require.NoError(t, err)
		q.add(cut, &lateCall{settlement: billing.Settlement{Response: answer}, until: time.Now().Add(time.Minute), leave: leave})
		<-time.After(2 * time.Minute)
		synctest.Wait()
		require.Zero(t, q.answers)
		require.False(t, q.running)
	})
}
