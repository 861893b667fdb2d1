package worker

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// fakeQueue is a queue in memory for what no database is needed for: places, leases and their renewal. Conversations
// are open for as long as a test wants.
type fakeQueue struct {
	Queue // methods that no test expects panic

	mu       sync.Mutex
	due      []inbox.Lease
	ended    []string        // conversations whose lease was given back
	put      []time.Duration // for how long, where not at once
	renewals int
	// looks counts the reads of interruptions; interrupted is the turn that people have ended.
	looks       int
	interrupted string
	// renew answers a renewal, nil always well.
	renew func(n int) error
	work  chan struct{}
}

func newFakeQueue(due ...inbox.Lease) *fakeQueue {
	return &fakeQueue{due: due, work: make(chan struct{}, 1)}
}

// Lease leases in the order in which they became due.
func (q *fakeQueue) Lease(_ context.Context, free inbox.Places, _ time.Duration) ([]inbox.Lease, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var got, rest []inbox.Lease
	taken := maps.Clone(free.Taken)
	for _, lease := range q.due {
		if len(got) < free.Free && taken[lease.OrgID] < free.Most {
			taken[lease.OrgID]++
			got = append(got, lease)
			continue
		}
		rest = append(rest, lease)
	}
	q.due = rest
	return got, nil
}

func (q *fakeQueue) Renew(_ context.Context, lease inbox.Lease, _ time.Duration) (inbox.Lease, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.renewals++
	if q.renew != nil {
		return lease, q.renew(q.renewals)
	}
	return lease, nil
}

func (q *fakeQueue) Release(_ context.Context, lease inbox.Lease) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = append(q.ended, lease.ConversationID)
	return nil
}

func (q *fakeQueue) Backoff(_ context.Context, lease inbox.Lease, wait time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = append(q.ended, lease.ConversationID)
	q.put = append(q.put, wait)
	return nil
}

// OpenLeased finds a turn that is to be asked.
func (q *fakeQueue) OpenLeased(_ context.Context, lease inbox.Lease, _ int) (inbox.Work, error) {
	request, err := json.Marshal(storedRequest{Model: lease.OrgID, Messages: []message{{"user", "hi"}}})
	return inbox.Work{
		Conversation: inbox.Conversation{State: inbox.StateAssistant}, Channel: store.Channel{State: store.ChannelActive},
		Agent: &store.Agent{}, Turn: &inbox.Turn{ID: lease.ConversationID, Request: request, State: inbox.TurnAwaiting},
	}, err
}

func (q *fakeQueue) BeginCall(context.Context, inbox.Lease, inbox.Turn, []string) error { return nil }

// fakeGateway runs what the test says for as long as it takes, and gives no answer.
type fakeGateway struct {
	Gateway
	run func(ctx context.Context, org string)
}

func (g *fakeGateway) Call(ctx context.Context, req *gateway.Request, _ gateway.Sink) (*gateway.Result, error) {
	if err := req.Turn.Begin(ctx, "call_1", nil); err != nil {
		return nil, err
	}
	g.run(ctx, req.OrgID)
	if ctx.Err() != nil {
		return nil, &gateway.Failure{Outcome: gateway.OutcomeExiting}
	}
	return nil, &gateway.Failure{Outcome: gateway.OutcomeProviderError}
}

func (g *fakeGateway) Model(string) (*gateway.Model, bool) { return &gateway.Model{}, true }

func (q *fakeQueue) SkipUnknown(context.Context, func(string) bool) ([]string, error) {
	return nil, nil
}

func (*fakeQueue) Committed() <-chan struct{} { return nil }

func (q *fakeQueue) Wait(ctx context.Context, idle time.Duration) error {
	q.mu.Lock()
	due := len(q.due)
	q.mu.Unlock()
	if due > 0 {
		return nil
	}
	select {
	case <-q.work:
	case <-time.After(idle):
	case <-ctx.Done():
	}
	return nil
}

func (q *fakeQueue) StandingTurns(context.Context, time.Time, int) ([]inbox.StandingTurn, error) {
	return nil, nil
}

func (q *fakeQueue) Reconnected(context.Context, int) (int, error) { return 0, nil }

func (q *fakeQueue) add(leases ...inbox.Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due = append(q.due, leases...)
	signal(q.work)
}

func (q *fakeQueue) seen() (ended []string, put []time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ended, q.put
}

// Interruptions finds those of the turns that are interrupted, and counts the looks.
func (q *fakeQueue) Interruptions(_ context.Context, turns []inbox.RunningTurn) (map[string]inbox.Interruption, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looks++
	seen := map[string]inbox.Interruption{}
	for _, turn := range turns {
		if q.interrupted == turn.TurnID {
			seen[turn.TurnID] = inbox.Interruption{Ended: true}
		}
	}
	return seen, nil
}

var errStore = errors.New("the store is down")
