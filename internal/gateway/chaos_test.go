package gateway_test

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// mood is how a moody endpoint behaves.
type mood int

const (
	works mood = iota
	dies
	hangs
	throttles
	lies  // its stream is empty, or has usage and then an error
	cuts  // its stream breaks off after its first text
	moods // their number
)

const (
	hangTime     = 5 * time.Second
	throttleTime = 7 * time.Second
	phaseTime    = 10 * time.Second
	chaosTime    = 5 * time.Minute
)

// moody is an endpoint whose mood changes. It keeps who asked it, and judges whether it was left alone after a fault.
type moody struct {
	name  string
	chaos *chaos

	mood  mood
	rest  time.Time // until then nobody may ask
	since time.Time // of the last fault that counts
	early int       // how often it was asked before
}

// chaos is the world of some moody endpoints.
type chaos struct {
	mu        sync.Mutex
	endpoints []*moody
	// attempts are the endpoints that were asked for each prompt, and texts those that sent text.
	attempts, texts map[string][]string
}

// fault records a fault of an attempt that began at a time, and the least time to be left alone.
func (m *moody) fault(began time.Time, least time.Duration) {
	m.chaos.mu.Lock()
	defer m.chaos.mu.Unlock()
	now := time.Now()
	if least < throttleTime && (began.Before(m.since) || now.Before(m.rest)) {
		return // nothing new
	}
	if until := now.Add(least); until.After(m.rest) {
		m.since, m.rest = now, until
	}
}

func (m *moody) Open(ctx context.Context, req *providers.Request) (providers.Events, error) {
	began, prompt := time.Now(), req.Messages[0].Content.Text()
	m.chaos.mu.Lock()
	if began.Before(m.rest) && began.After(m.since) {
		m.early++
	}
	m.chaos.attempts[prompt] = append(m.chaos.attempts[prompt], m.name)
	feels := m.mood
	m.chaos.mu.Unlock()
	const soonest = 3 * time.Second / 4 // a second, with its jitter
	switch feels {
	case dies:
		m.fault(began, soonest)
		return nil, fault(providers.FailureUnreachable)
	case hangs:
		select {
		case <-time.After(hangTime):
		case <-ctx.Done():
			return nil, &providers.Error{Failure: providers.FailureCanceled, Cause: context.Cause(ctx)}
		}
		m.fault(began, soonest)
		return nil, fault(providers.FailureTimeout)
	case throttles:
		m.fault(began, throttleTime)
		return nil, &providers.Error{Failure: providers.FailureOverloaded, RetryAfter: throttleTime, Cool: throttleTime, Elsewhere: true}
	case lies:
		m.fault(began, soonest)
		if rand.IntN(2) == 0 { //nolint:gosec // a test's
			return &moodyAnswer{steps: []step{{}}}, nil
		}
		return &moodyAnswer{steps: []step{usage(10, 1, 0), {err: fault(providers.FailureOverloaded)}}}, nil
	case works, cuts, moods:
	}
	m.chaos.mu.Lock()
	m.chaos.texts[prompt] = append(m.chaos.texts[prompt], m.name)
	m.chaos.mu.Unlock()
	if feels == cuts {
		m.fault(began, soonest)
		return &moodyAnswer{steps: []step{text(m.name), {err: fault(providers.FailureUnreachable)}}}, nil
	}
	return &moodyAnswer{steps: []step{text(m.name), text(" "), text(prompt), finish("stop"), usage(10, 20, 0)}, pause: 100 * time.Millisecond}, nil
}

// moodyAnswer plays steps with pauses.
type moodyAnswer struct {
	steps []step
	pause time.Duration
}

func (a *moodyAnswer) Next() (providers.Event, error) {
	if len(a.steps) == 0 {
		return providers.Event{}, io.EOF
	}
	next := a.steps[0]
	a.steps = a.steps[1:]
	time.Sleep(a.pause) //nolint:forbidigo // on the fake clock
	return next.event, next.err
}

func (a *moodyAnswer) Buffered() bool { return false }
func (a *moodyAnswer) Close()         {}

// TestChaosOfEndpoints: endpoints die, hang, throttle, lie and break off in turn under 64 clients for five minutes. No client sees an error
// that another endpoint could have answered, no endpoint is asked twice for a call, or after a text, or while it cools, and the books agree.
func TestChaosOfEndpoints(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		world := &chaos{attempts: map[string][]string{}, texts: map[string][]string{}}
		for i := range 3 {
			world.endpoints = append(world.endpoints, &moody{name: endpointNames[i], chaos: world})
		}
		f := served(t, db, make([]*script, len(world.endpoints)), func(endpoints []gateway.Endpoint, entries []gateway.ProviderEntry) {
			for i := range entries {
				endpoints[i].Order, entries[i].Provider = 0, world.endpoints[i]
			}
		})
		ctx, stop := context.WithTimeout(t.Context(), chaosTime)
		defer stop()
		var clients sync.WaitGroup
		var mu sync.Mutex
		answeredCalls, broken := 0, 0
		for n := range 64 {
			clients.Go(func() {
				for turn := 0; ctx.Err() == nil; turn++ {
					answer, err := world.ask(t, f, n, turn)
					mu.Lock()
					if err == nil {
						answeredCalls++
					} else if broken++; answer == "" {
						t.Errorf("client %d, call %d: %v", n, turn, err)
					}
					mu.Unlock()
					time.Sleep(rand.N(40 * time.Second)) //nolint:forbidigo,gosec // on the fake clock
				}
			})
		}
		for phase := 0; ctx.Err() == nil; phase++ {
			world.mu.Lock()
			for i, m := range world.endpoints {
				if m.mood = works; i == phase%len(world.endpoints) {
					m.mood = 1 + mood(phase/2)%(moods-1)
				}
			}
			world.mu.Unlock()
			time.Sleep(phaseTime) //nolint:forbidigo // on the fake clock
		}
		clients.Wait()
		t.Log(answeredCalls, "answered,", broken, "broken off")

		moved := 0
		for prompt, names := range world.attempts {
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(names))), len(names), "no endpoint twice for one call")
			if sent := world.texts[prompt]; len(sent) > 0 {
				require.Equal(t, names[len(names)-1:], sent, "no attempt after a text")
			}
			moved += len(names) - 1
		}
		require.Greater(t, moved, 20)
		for _, m := range world.endpoints {
			require.Zero(t, m.early, "%s was asked while it cooled", m.name)
		}
		require.EqualValues(t, 50*answeredCalls, f.spent(t))
		require.Equal(t, f.observed.settled().ChargedMicros, f.spent(t))
	})
}

// ask runs a call with a prompt of its own and returns the client's text.
func (world *chaos) ask(t *testing.T, f *fixture, client, turn int) (answer string, err error) {
	t.Helper()
	prompt := strconv.Itoa(client) + "." + strconv.Itoa(turn)
	req := request(func(r *gateway.Request) {
		r.Messages = []providers.Message{{Role: "user", Content: providers.Quote(prompt)}}
		r.Stream = turn%3 > 0
		if turn%3 == 2 {
			r.IdempotencyKey = prompt
		}
	})
	var sink gateway.Sink
	reader := newClient()
	if req.Stream {
		sink = reader
	}
	result, err := f.Call(t.Context(), req, sink)
	for _, piece := range reader.text {
		answer += piece
	}
	if err == nil && !req.Stream {
		answer = result.Text
	}
	world.mu.Lock()
	defer world.mu.Unlock()
	if sent := world.texts[prompt]; err == nil {
		require.Equal(t, sent[0]+" "+prompt, answer)
	} else if !req.Stream && len(sent) > 0 {
		answer = sent[0] // it would have been the client's
	}
	return answer, err
}

// TestAttemptsAreKept: the failed attempts of a call are the operator's cost, with the usage that was reported.
func TestAttemptsAreKept(t *testing.T) {
	t.Parallel()
	onFakeClock(t, func(t *testing.T, db *store.DB) {
		f := served(t, db, []*script{
			{steps: []step{usage(10, 3, 0), {err: fault(providers.FailureOverloaded)}}}, {open: fault(providers.FailureTimeout)}, {steps: answered()},
		})
		_, err := f.Call(t.Context(), request(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 50, f.spent(t))
		var kept string
		require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT group_concat(provider || ' ' || upstream_model || ' ' || failure || ' ' ||
			prompt_tokens || ' ' || completion_tokens, ', ' ORDER BY number) FROM attempts`).Scan(&kept))
		require.Equal(t, "one up-one overloaded 10 3, two up-two timeout 0 0", kept)
	})
}
