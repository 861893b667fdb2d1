package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// errDead is what the dead hear: something that they don't insist on.
var errDead = fmt.Errorf("this worker is dead: %w", inbox.ErrLeaseLost)

// mortal wraps everything that a worker calls. From one step on it fails every call without passing it on, as if the worker's process
// had been killed.
type mortal struct {
	*inbox.Queue
	gateway   Gateway
	platforms Platforms

	// at is the step, from 1, at which it dies; afterwards: the step still reaches the world, but not the worker.
	at         int
	afterwards bool

	mu    sync.Mutex
	steps int
	dead  bool
}

// step runs one step of a life.
func (m *mortal) step(do func() error) error {
	m.mu.Lock()
	if m.dead {
		m.mu.Unlock()
		return errDead
	}
	m.steps++
	last := m.steps == m.at
	m.dead = last && !m.afterwards
	m.mu.Unlock()
	if last && !m.afterwards {
		return errDead
	}
	err := do()
	if last {
		m.mu.Lock()
		m.dead = true
		m.mu.Unlock()
		return errDead
	}
	return err
}

func step[T any](m *mortal, do func() (T, error)) (result T, err error) {
	err = m.step(func() (err error) {
		result, err = do()
		return err
	})
	if errors.Is(err, errDead) {
		var nothing T
		return nothing, err
	}
	return result, err
}

func (m *mortal) Open(ctx context.Context, lease inbox.Lease, history int) (inbox.Work, error) {
	return step(m, func() (inbox.Work, error) { return m.Queue.Open(ctx, lease, history) })
}

func (m *mortal) OpenLeased(ctx context.Context, lease inbox.Lease, history int) (inbox.Work, error) {
	return step(m, func() (inbox.Work, error) { return m.Queue.OpenLeased(ctx, lease, history) })
}

func (m *mortal) BeginCall(ctx context.Context, lease inbox.Lease, turn inbox.Turn, ids []string) error {
	return m.step(func() error { return m.Queue.BeginCall(ctx, lease, turn, ids) })
}

func (m *mortal) Answer(
	ctx context.Context, lease inbox.Lease, turnID string, parts []string, sendFirst bool,
) ([]inbox.Outbound, error) {
	return step(m, func() ([]inbox.Outbound, error) { return m.Queue.Answer(ctx, lease, turnID, parts, sendFirst) })
}

func (m *mortal) AnswerAndHandOver(
	ctx context.Context, lease inbox.Lease, turnID, reason string, parts []string, sendFirst bool,
) ([]inbox.Outbound, error) {
	return step(m, func() ([]inbox.Outbound, error) {
		return m.Queue.AnswerAndHandOver(ctx, lease, turnID, reason, parts, sendFirst)
	})
}

func (m *mortal) Sending(ctx context.Context, lease inbox.Lease, id string) error {
	return m.step(func() error { return m.Queue.Sending(ctx, lease, id) })
}

func (m *mortal) Sent(ctx context.Context, lease inbox.Lease, id, platformID, next string) error {
	return m.step(func() error { return m.Queue.Sent(ctx, lease, id, platformID, next) })
}

func (m *mortal) SentAndRelease(ctx context.Context, lease inbox.Lease, id, platformID string) error {
	return m.step(func() error { return m.Queue.SentAndRelease(ctx, lease, id, platformID) })
}

func (m *mortal) SendFailed(
	ctx context.Context, lease inbox.Lease, id, state, code string, o inbox.SendFailure,
) error {
	return m.step(func() error { return m.Queue.SendFailed(ctx, lease, id, state, code, o) })
}

func (m *mortal) Release(ctx context.Context, lease inbox.Lease) error {
	return m.step(func() error { return m.Queue.Release(ctx, lease) })
}

func (m *mortal) Postpone(ctx context.Context, lease inbox.Lease, wait time.Duration) error {
	return m.step(func() error { return m.Queue.Postpone(ctx, lease, wait) })
}

func (m *mortal) Backoff(ctx context.Context, lease inbox.Lease, wait time.Duration) error {
	return m.step(func() error { return m.Queue.Backoff(ctx, lease, wait) })
}

func (m *mortal) Call(ctx context.Context, req *gateway.Request, sink gateway.Sink) (*gateway.Result, error) {
	return step(m, func() (*gateway.Result, error) { return m.gateway.Call(ctx, req, sink) })
}

func (m *mortal) Send(ctx context.Context, out platforms.Outgoing) (string, error) {
	id, err := step(m, func() (string, error) { return m.platforms.Send(ctx, out) })
	if errors.Is(err, errDead) {
		return "", &platforms.Error{Class: platforms.Unknown, Cause: errDead}
	}
	return id, err
}

// mortalGateway and mortalPlatforms are the mortal's other faces.
type mortalGateway struct {
	Gateway
	mortal *mortal
}

func (g *mortalGateway) Call(ctx context.Context, req *gateway.Request, sink gateway.Sink) (*gateway.Result, error) {
	return g.mortal.Call(ctx, req, sink)
}

type mortalPlatforms struct {
	Platforms
	mortal *mortal
}

func (p *mortalPlatforms) Send(ctx context.Context, out platforms.Outgoing) (string, error) {
	return p.mortal.Send(ctx, out)
}

// mortal is a worker that dies.
func (h *fixture) mortal(at int, afterwards bool) (*Worker, *mortal) {
	m := &mortal{Queue: h.queue, gateway: h.gateway, platforms: h.client, at: at, afterwards: afterwards}
	return h.worker(func(c *Config) {
		c.Queue = m
		c.Gateway = &mortalGateway{h.gateway, m}
		c.Platforms = &mortalPlatforms{unpaced{h.client}, m}
	}), m
}

// TestDeathAtEveryStep kills a worker before and after each thing it does for an answer of three parts, and lets another
// one take over: the customer pays once, gets no part twice, and parts whose delivery can't be known are flagged.
func TestDeathAtEveryStep(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.vendor.reply = func(_ context.Context, _ int, asked []string) (string, error) {
			name := strings.TrimPrefix(asked[len(asked)-1], "user: ")
			return strings.Repeat(name+" ", 1200), nil
		}
		healthy, life := h.mortal(0, false)
		h.say(t, bot, "healthy", "healthy")
		h.drain(t, healthy)
		require.GreaterOrEqual(t, life.steps, 9, "a whole life")
		perAnswer := len(h.platform.SentTo("to-healthy"))
		require.Equal(t, 3, perAnswer)

		answers := int64(1)
		for at := 1; at <= life.steps; at++ {
			for _, afterwards := range []bool{false, true} {
				name := fmt.Sprintf("d%03d%t", at, afterwards)
				h.say(t, bot, name, name)
				w, m := h.mortal(at, afterwards)
				h.drain(t, w)
				require.True(t, m.dead)
				h.bury(t)
				h.drain(t, h.worker())
				answers++

				require.Equal(t, answers*answerCost, h.spent(t, acme), "%s: charged once", name)
				sent := h.platform.SentTo("to-" + name)
				unclear, arrived := 0, 0
				for _, line := range h.lines(t, acme, name)[1:] {
					switch {
					case strings.HasSuffix(line, "(sent)"):
						arrived++
					case strings.HasSuffix(line, "(delivery_unknown delivery_unknown)"):
						unclear++
					default:
						require.Fail(t, "neither sent nor flagged", "%s: %s", name, line)
					}
				}
				require.Equal(t, perAnswer, arrived+unclear, name)
				require.LessOrEqual(t, unclear, 1, name)
				require.GreaterOrEqual(t, len(sent), arrived, name)
				require.LessOrEqual(t, len(sent), perAnswer, "%s: a part came twice", name)
				if unclear > 0 {
					require.Equal(t, "delivery_unknown", h.conversation(t, acme, name).Attention, name)
				}
				h.leaseless(t)
			}
		}
	})
}

// TestAFrozenWorkerIsFencedOff: a worker stops in the middle of its model call for longer than its lease lasts, and comes
// back when another one has answered. It is charged nothing and sends nothing.
func TestAFrozenWorkerIsFencedOff(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		frozen, thaw := make(chan struct{}), make(chan struct{})
		h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
			if n == 1 {
				close(frozen)
				<-thaw
			}
			return echo(asked), nil
		}
		heard := observe()
		first := h.worker(func(c *Config) { c.Observer = heard })
		h.say(t, bot, "lan", "hello")
		leases, err := h.queue.Lease(t.Context(), inbox.Places{Free: 1}, time.Minute)
		require.NoError(t, err)
		var running sync.WaitGroup
		running.Go(func() { first.converse(t.Context(), leases[0], nil) })
		<-frozen
		h.bury(t)
		h.drain(t, h.worker())
		require.Equal(t, []string{"You said: hello"}, h.texts())
		close(thaw)
		running.Wait()
		require.Equal(t, []string{"You said: hello"}, h.texts())
		require.EqualValues(t, answerCost, h.spent(t, acme))
		require.Equal(t, 1, heard.all()["lost"])
		h.leaseless(t)
	})
}
