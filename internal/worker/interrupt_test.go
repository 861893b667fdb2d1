package worker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// turns replaces single methods of a queue.
type turns struct {
	Queue

	answer  func(next func() ([]inbox.Outbound, error)) ([]inbox.Outbound, error)
	sending func(next func() error) error
	sent    func(next func() error) error
}

func (q *turns) Answer(ctx context.Context, lease inbox.Lease, id string, parts []string, first bool) ([]inbox.Outbound, error) {
	next := func() ([]inbox.Outbound, error) { return q.Queue.Answer(ctx, lease, id, parts, first) }
	if q.answer == nil {
		return next()
	}
	return q.answer(next)
}

func (q *turns) Sending(ctx context.Context, lease inbox.Lease, id string) error {
	next := func() error { return q.Queue.Sending(ctx, lease, id) }
	if q.sending == nil {
		return next()
	}
	return q.sending(next)
}

func (q *turns) Sent(ctx context.Context, lease inbox.Lease, id, platformID, nextID string) error {
	next := func() error { return q.Queue.Sent(ctx, lease, id, platformID, nextID) }
	if q.sent == nil {
		return next()
	}
	return q.sent(next)
}

var errDoubt = errors.New("the commit's answer is lost")

// longAnswer has several parts on every platform.
var longAnswer = strings.Repeat("word ", 1500)

// TestDoubtBeforeThePlatformIsCalled: when it is unknown whether a part was marked as sending, the platform is not called for it, so
// that it is sent later, and once.
func TestDoubtBeforeThePlatformIsCalled(t *testing.T) {
	t.Parallel()
	long := func(context.Context, int, []string) (string, error) { return longAnswer, nil }
	for name, happened := range map[string]bool{"committed": true, "not committed": false} {
		doubt := func(next func() error) error {
			if happened {
				return errors.Join(next(), errDoubt)
			}
			return errDoubt
		}
		for step, spoil := range map[string]func(h *fixture, q *turns, cut context.CancelFunc){
			"at Answer": func(_ *fixture, q *turns, cut context.CancelFunc) {
				q.answer = func(next func() ([]inbox.Outbound, error)) ([]inbox.Outbound, error) {
					cut() // it is tried three times then
					return nil, doubt(func() error { _, err := next(); return err })
				}
			},
			"at Sending": func(h *fixture, q *turns, _ context.CancelFunc) {
				id := h.conversation(t, acme, "lan").ID
				_, err := h.queue.SendAsHuman(t.Context(), "test", acme, id, []string{longAnswer})
				require.NoError(t, err)
				q.sending = doubt
			},
			"at Sent": func(_ *fixture, q *turns, cut context.CancelFunc) {
				did := false
				q.sent = func(next func() error) error {
					cut()
					if did {
						return errDoubt
					}
					did = true
					return errors.Join(next(), errDoubt)
				}
			},
		} {
			t.Run(step+", "+name, func(t *testing.T) {
				t.Parallel()
				onEach(t, func(t *testing.T, h *fixture) {
					h.vendor.reply = long
					h.say(t, bot, "lan", "hello")
					ctx, cut := context.WithCancel(t.Context())
					defer cut()
					q := &turns{Queue: later{h.queue}}
					spoil(h, q, cut)
					w := h.worker(func(c *Config) { c.Queue = q })
					leases, err := w.Queue.Lease(ctx, inbox.Places{Free: 1}, time.Minute)
					require.NoError(t, err)
					w.converse(ctx, leases[0], nil)
					before := len(h.texts())
					require.LessOrEqual(t, before, 1)
					h.hurry(t)
					h.drain(t, h.worker())
					for _, line := range h.lines(t, acme, "lan")[1:] {
						require.Regexp(t, `\(sent\)$`, line)
					}
					require.Len(t, h.texts(), len(h.lines(t, acme, "lan"))-1, "each part once")
					require.Empty(t, h.conversation(t, acme, "lan").Attention)
					require.EqualValues(t, answerCost, h.spent(t, acme))
				})
			})
		}
	}
}

// TestAnUnconfirmedAnswerIsStoredAgain: with its charge. The model is asked once, whether or not the first commit has arrived.
func TestAnUnconfirmedAnswerIsStoredAgain(t *testing.T) {
	t.Parallel()
	for name, happened := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, h *fixture) {
				h.vendor.reply = func(context.Context, int, []string) (string, error) { return longAnswer, nil }
				tries := 0
				w := h.worker(func(c *Config) {
					c.Queue = &turns{Queue: later{h.queue}, answer: func(next func() ([]inbox.Outbound, error)) ([]inbox.Outbound, error) {
						if tries++; tries > 1 {
							return next()
						}
						if happened {
							_, err := next()
							require.NoError(t, err)
						}
						return nil, errDoubt
					}}
				})
				h.say(t, bot, "lan", "hello")
				h.drain(t, w)
				require.Equal(t, 2, tries)
				require.Len(t, h.vendor.calls(), 1)
				require.Equal(t, []string{"answered"}, h.turns(t, acme))
				require.Equal(t, longAnswer, strings.Join(h.texts(), " ")+" ")
				require.Empty(t, h.conversation(t, acme, "lan").Attention)
				require.EqualValues(t, answerCost, h.spent(t, acme))
				h.leaseless(t)
			})
		})
	}
}

// TestWhatHappenedOutsideIsInsistedOn: three times at least, for a minute while the lease lasts, and no longer.
func TestWhatHappenedOutsideIsInsistedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		require.NoError(t, insist(t.Context(), func(context.Context) error {
			if tries++; tries < 10 {
				return errDoubt
			}
			return nil
		}))
		require.Equal(t, 10, tries)

		began := time.Now()
		require.ErrorIs(t, insist(t.Context(), func(context.Context) error { return errDoubt }), errDoubt)
		require.InDelta(t, recordTime, time.Since(began), float64(2*recordPause))

		tries = 0
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, insist(over, func(ctx context.Context) error {
			tries++
			require.NoError(t, ctx.Err())
			return errDoubt
		}), errDoubt)
		require.Equal(t, recordTries, tries)

		tries = 0
		require.ErrorIs(t, insist(t.Context(), func(context.Context) error {
			tries++
			return inbox.ErrLeaseLost
		}), inbox.ErrLeaseLost)
		require.Equal(t, 1, tries)
	})
}

// TestAPersonWritesDuringTheCall: the call ends at once, the person's message goes first, and the assistant answers with knowledge of
// it. Only the second call is paid.
func TestAPersonWritesDuringTheCall(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.vendor.reply = func(ctx context.Context, n int, asked []string) (string, error) {
			if n > 1 {
				return echo(asked), nil
			}
			h.write(t, "lan", "by hand")
			<-ctx.Done()
			return "", ctx.Err()
		}
		h.say(t, bot, "lan", "first")
		h.drain(t, h.worker())
		require.Equal(t, []string{"by hand", "You said: first"}, h.texts())
		require.Equal(t, []string{"superseded", "answered"}, h.turns(t, acme))
		require.Contains(t, h.vendor.calls()[1], "assistant: by hand")
		require.EqualValues(t, answerCost, h.spent(t, acme))
		h.leaseless(t)
	})
}

// TestAPersonIsFasterThanTheAnswer: what a person does between the model's answer and its storing counts, too.
func TestAPersonIsFasterThanTheAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		act   func(t *testing.T, h *fixture)
		texts []string
	}{
		"writes": {
			act:   func(t *testing.T, h *fixture) { h.write(t, "lan", "by hand") },
			texts: []string{"by hand", "You said: first"},
		},
		"takes over": {
			act: func(t *testing.T, h *fixture) {
				require.NoError(t, h.queue.HandOver(t.Context(), "test", acme, h.conversation(t, acme, "lan").ID))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, h *fixture) {
				h.say(t, bot, "lan", "first")
				h.drain(t, h.worker(func(c *Config) {
					c.Queue = &turns{Queue: later{h.queue}, answer: func(next func() ([]inbox.Outbound, error)) ([]inbox.Outbound, error) {
						test.act(t, h)
						return next()
					}}
				}))
				require.Equal(t, test.texts, h.texts())
				require.EqualValues(t, answerCost, h.spent(t, acme))
				h.leaseless(t)
			})
		})
	}
}

// write sends a person's message to a customer.
func (h *fixture) write(t *testing.T, customer, text string) {
	t.Helper()
	_, err := h.queue.SendAsHuman(t.Context(), "test", acme, h.conversation(t, acme, customer).ID, []string{text})
	require.NoError(t, err)
}

// TestUnreadableMessagesAreSkipped: what can't be decrypted is shown as such, and everything else in its conversation goes on.
func TestUnreadableMessagesAreSkipped(t *testing.T) {
	t.Parallel()
	damage := func(t *testing.T, h *fixture, table, column string) {
		h.exec(t, `UPDATE `+table+` SET `+column+` = $1 WHERE `+column+` IS NOT NULL`, []byte("sealed with a key that is gone"))
	}
	for name, test := range map[string]struct {
		before func(t *testing.T, h *fixture, w *Worker)
		lines  []string
		asked  []string
	}{
		"a waiting text": {
			before: func(t *testing.T, h *fixture, _ *Worker) {
				h.say(t, bot, "lan", "lost")
				damage(t, h, "messages", "body")
			},
			lines: []string{"customer: " + inbox.UnreadableText, "customer: hello", "assistant: You said: hello (sent)"},
			asked: []string{"system: Be kind.", "user: hello"},
		},
		"all that waits": {
			before: func(t *testing.T, h *fixture, w *Worker) {
				h.say(t, bot, "lan", "lost")
				damage(t, h, "messages", "body")
				h.drain(t, w)
				require.Equal(t, []string{"needs_attention unreadable_message"}, h.turns(t, acme))
				require.Equal(t, "unreadable_message", h.conversation(t, acme, "lan").Attention)
			},
			lines: []string{"customer: " + inbox.UnreadableText, "customer: hello", "assistant: You said: hello (sent)"},
			asked: []string{"system: Be kind.", "user: hello"},
		},
		"the history": {
			before: func(t *testing.T, h *fixture, w *Worker) {
				h.say(t, bot, "lan", "lost")
				h.drain(t, w)
				damage(t, h, "messages", "body")
				damage(t, h, "outbound_messages", "body")
			},
			lines: []string{
				"customer: " + inbox.UnreadableText, "assistant: " + inbox.UnreadableText + " (sent)",
				"customer: hello", "assistant: You said: hello (sent)",
			},
			asked: []string{"system: Be kind.", "user: hello"},
		},
		"an unsent part": {
			before: func(t *testing.T, h *fixture, w *Worker) {
				h.say(t, bot, "lan", "lost")
				h.drain(t, w)
				h.write(t, "lan", "by hand")
				damage(t, h, "outbound_messages", "body")
			},
			lines: []string{
				"customer: lost", "assistant: " + inbox.UnreadableText + " (sent)",
				"human: " + inbox.UnreadableText + " (failed unreadable_message)",
				"customer: hello", "assistant: You said: lost and hello (sent)",
			},
			asked: []string{"system: Be kind.", "user: lost", "user: hello"},
		},
		"a turn's request": {
			before: func(t *testing.T, h *fixture, w *Worker) {
				h.say(t, bot, "lan", "lost")
				leases, err := h.queue.Lease(t.Context(), inbox.Places{Free: 1}, time.Minute)
				require.NoError(t, err)
				work, err := h.queue.Open(t.Context(), leases[0], 10)
				require.NoError(t, err)
				err = h.queue.BeginCall(t.Context(), leases[0], inbox.Turn{ID: store.NewID("trn"), AgentID: helper, Request: []byte(`{}`)}, []string{work.Waiting[0].ID})
				require.NoError(t, err)
				damage(t, h, "turns", "request")
				h.bury(t)
				h.drain(t, w)
				require.Equal(t, []string{"dead unreadable_message"}, h.turns(t, acme))
			},
			lines: []string{"customer: lost", "customer: hello", "assistant: You said: lost and hello (sent)"},
			asked: []string{"system: Be kind.", "user: lost", "user: hello"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, h *fixture) {
				w := h.worker()
				test.before(t, h, w)
				h.say(t, bot, "lan", "hello")
				h.drain(t, w)
				require.Equal(t, test.lines, h.lines(t, acme, "lan"))
				calls := h.vendor.calls()
				require.Equal(t, test.asked, calls[len(calls)-1])
				h.leaseless(t)
				h.spent(t, acme)
			})
		})
	}
}

// TestOneLookServesAllCalls: however many calls of a model run, a worker looks for people with one read about every 250 ms, and ends only
// the calls that are interrupted.
func TestOneLookServesAllCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(append(leases("a", 20), leases("b", 20)...)...)
		var ended []string
		var mu sync.Mutex
		stop := running(t.Context(), q, 32, 0, func(ctx context.Context, org string) {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), gateway.ErrInterrupted) {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, org)
			}
		})
		_ = repeat.Pause(t.Context(), 10*time.Second)
		q.mu.Lock()
		require.InDelta(t, 40, q.looks, 12)
		q.interrupted = "a-3"
		q.mu.Unlock()
		_ = repeat.Pause(t.Context(), 2*watchPause)
		mu.Lock()
		require.Equal(t, []string{"a"}, ended)
		mu.Unlock()
		stop()
		q.mu.Lock()
		defer q.mu.Unlock()
		looks := q.looks
		synctest.Wait()
		require.Equal(t, looks, q.looks)
	})
}
