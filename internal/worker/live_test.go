package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/providers"
)

// reader is the sink of a visitor that watches an answer.
type reader struct {
	text  strings.Builder
	begun int
	gone  bool
}

func (r *reader) Begin(gateway.Head) error { r.begun++; return r.there() }
func (r *reader) Flush() error             { return r.there() }

func (r *reader) Text(piece string) error {
	r.text.WriteString(piece)
	return r.there()
}

func (r *reader) there() error {
	if r.gone {
		return errors.New("gone")
	}
	return nil
}

// widgetOf makes a widget channel of the fixture.
func (h *fixture) widget(t *testing.T, id string) {
	t.Helper()
	require.NoError(t, h.db.Channels.Create(t.Context(), "test", store.Channel{
		ID: id, OrgID: acme, Type: string(messaging.Widget), Name: id, AgentID: helper, State: store.ChannelActive,
	}, 0))
}

// visit stores a visitor's text for a live answer.
func (h *fixture) visit(t *testing.T, channel, visitor, id, text string) {
	t.Helper()
	route := store.Route{ChannelID: channel, OrgID: acme, Type: string(messaging.Widget), DebounceMS: 60_000, DebounceMaxMS: 60_000}
	require.NoError(t, h.queue.Enqueue(t.Context(), []inbox.Arrival{{Route: route, Items: []inbox.Item{{
		Kind: platforms.Text, CustomerRef: visitor, Address: visitor, MessageID: id, Text: text,
	}}}}))
}

func TestAnswerNow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.widget(t, "chn_w")
		observer := observe()
		w := h.worker(func(c *Config) { c.Observer = observer })
		h.visit(t, "chn_w", "v1", "1", "hello")
		require.Zero(t, h.drain(t, w), "it waits for whoever brought it")
		var seen reader
		reply, err := w.AnswerNow(t.Context(), acme, "chn_w", "1", &seen)
		require.NoError(t, err)
		require.Equal(t, "You said: hello", reply.Text)
		require.Equal(t, reply.Text, seen.text.String())
		require.Equal(t, map[string]int{"leased": 1, "turn answered": 1, "widget sent": 1}, observer.all())
		require.Empty(t, h.platform.Sent(), "no platform is asked")
		h.leaseless(t)
		require.EqualValues(t, answerCost, h.spent(t, acme))

		reply, err = w.AnswerNow(t.Context(), acme, "chn_w", "1", &seen)
		require.NoError(t, err)
		require.Equal(t, "You said: hello", reply.Text)
		require.Equal(t, 1, seen.begun, "it is told, not shown")
		_, err = w.AnswerNow(t.Context(), acme, "chn_w", "none", &seen)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.Len(t, h.vendor.calls(), 1)
	})
}

// TestAnswerNowOfSeveral: a text that waits already is answered together with the one that is watched; one whose turn was
// begun before gets its own answer, which isn't shown to the visitor that waits for the next.
func TestAnswerNowOfSeveral(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.widget(t, "chn_w")
	h.visit(t, "chn_w", "v1", "1", "one")
	h.visit(t, "chn_w", "v1", "2", "two")
	var seen reader
	reply, err := h.worker().AnswerNow(t.Context(), acme, "chn_w", "2", &seen)
	require.NoError(t, err)
	require.Equal(t, "You said: one and two", reply.Text)
	require.Equal(t, reply.Text, seen.text.String())

	h.visit(t, "chn_w", "v1", "3", "three")
	reply, err = h.queue.Reply(t.Context(), acme, "chn_w", "3")
	require.NoError(t, err)
	lease, err := h.queue.Claim(t.Context(), acme, reply.ConversationID, time.Minute)
	require.NoError(t, err)
	p := &pass{Worker: h.worker(func(c *Config) { c.Gateway = &beginner{h.gateway} }), lease: lease}
	require.NoError(t, p.open(t.Context()))
	_, err = p.tryTurn(t.Context())
	require.NoError(t, err)
	h.bury(t)
	h.visit(t, "chn_w", "v1", "4", "four")
	seen = reader{}
	reply, err = h.worker().AnswerNow(t.Context(), acme, "chn_w", "4", &seen)
	require.NoError(t, err)
	require.Equal(t, "You said: four", reply.Text)
	require.Equal(t, reply.Text, seen.text.String())
	require.Equal(t, "assistant: You said: three (sent)", h.lines(t, acme, "v1")[5])
	require.EqualValues(t, 3*answerCost, h.spent(t, acme))
}

// beginner is a gateway that begins turns, and fails before it calls a vendor.
type beginner struct{ Gateway }

func (*beginner) Call(ctx context.Context, req *gateway.Request, _ gateway.Sink) (*gateway.Result, error) {
	return nil, errors.Join(errDead, req.Turn.Begin(ctx, store.NewID("call"), nil))
}

// TestAnswerNowIsNotThrownAway: an agent that begins anew for newer messages doesn't once its answer was shown.
func TestAnswerNowIsNotThrownAway(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.widget(t, "chn_w")
	h.changeAgent(t, func(a *store.Agent) { a.Supersede = true })
	h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
		if n == 1 {
			h.visit(t, "chn_w", "v1", "2", "newer")
		}
		return echo(asked), nil
	}
	h.visit(t, "chn_w", "v1", "1", "hello")
	reply, err := h.worker().AnswerNow(t.Context(), acme, "chn_w", "1", &reader{})
	require.NoError(t, err)
	require.Equal(t, "You said: hello", reply.Text)
}

// TestAnswerNowForNobody: the reader's end is not the answer's.
func TestAnswerNowForNobody(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.widget(t, "chn_w")
	h.visit(t, "chn_w", "v1", "1", "hello")
	ctx, leave := context.WithCancel(t.Context())
	h.vendor.reply = func(_ context.Context, _ int, asked []string) (string, error) {
		leave()
		return echo(asked), nil
	}
	reply, err := h.worker().AnswerNow(ctx, acme, "chn_w", "1", &reader{gone: true})
	require.NoError(t, err)
	require.Equal(t, "You said: hello", reply.Text)
	require.Equal(t, []string{"customer: hello", "assistant: You said: hello (sent)"}, h.lines(t, acme, "v1"))
	require.EqualValues(t, answerCost, h.spent(t, acme))

	h.visit(t, "chn_w", "v1", "2", "again")
	reply, err = h.worker().AnswerNow(ctx, acme, "chn_w", "2", &reader{})
	require.NoError(t, err)
	require.Equal(t, "You said: again", reply.Text, "also of one who has left before the first try")
	h.hurry(t)
	require.Zero(t, h.drain(t, h.worker()))
}

// TestTurnOfAWatcherIsAskedAgainWithout: an answer that was watched and not stored costs nothing, and the next worker asks again.
func TestTurnOfAWatcherIsAskedAgainWithout(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.widget(t, "chn_w")
	h.visit(t, "chn_w", "v1", "1", "hello")
	ctx, leave := context.WithCancel(t.Context())
	_, err := h.worker(func(c *Config) { c.Queue = forgetful{c.Queue, leave} }).AnswerNow(ctx, acme, "chn_w", "1", &reader{})
	require.NoError(t, err)
	require.Len(t, h.vendor.calls(), 1)
	h.bury(t)
	h.hurry(t)
	require.Equal(t, 1, h.drain(t, h.worker()))
	require.Equal(t, []string{"customer: hello", "assistant: You said: hello (sent)"}, h.lines(t, acme, "v1"))
	require.Len(t, h.vendor.calls(), 2)
	require.EqualValues(t, answerCost, h.spent(t, acme))
}

// TestAnswerNowShowsAnAnswerOnce: a pass that lost its lease is followed by another, which asks again; its reader has an answer already.
func TestAnswerNowShowsAnAnswerOnce(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.widget(t, "chn_w")
	h.visit(t, "chn_w", "v1", "1", "hello")
	var seen reader
	queue := &onceForgetful{Queue: later{h.queue}, lost: func() { h.bury(t) }}
	reply, err := h.worker(func(c *Config) { c.Queue = queue }).AnswerNow(t.Context(), acme, "chn_w", "1", &seen)
	require.NoError(t, err)
	require.True(t, queue.forgot)
	require.Equal(t, "You said: hello", reply.Text)
	require.Equal(t, reply.Text, seen.text.String())
	require.Len(t, h.vendor.calls(), 2)
	require.EqualValues(t, answerCost, h.spent(t, acme))
}

// onceForgetful loses its first lease before the answer is stored, and no other.
type onceForgetful struct {
	Queue

	lost   func()
	forgot bool
}

func (f *onceForgetful) Answer(
	ctx context.Context, lease inbox.Lease, turnID string, parts []string, sendFirst bool,
) ([]inbox.Outbound, error) {
	if !f.forgot {
		f.forgot = true
		f.lost()
		return nil, inbox.ErrLeaseLost
	}
	return f.Queue.Answer(ctx, lease, turnID, parts, sendFirst)
}

// forgetful loses its lease before the answer is stored.
type forgetful struct {
	Queue

	lost func()
}

func (f forgetful) Answer(context.Context, inbox.Lease, string, []string, bool) ([]inbox.Outbound, error) {
	f.lost()
	return nil, inbox.ErrLeaseLost
}

// TestAnswerNowClaimsWhatIsFree: while another pass makes the answer, a waiting request only reads.
func TestAnswerNowClaimsWhatIsFree(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.widget(t, "chn_w")
	h.visit(t, "chn_w", "v1", "1", "hello")
	reply, err := h.queue.Reply(t.Context(), acme, "chn_w", "1")
	require.NoError(t, err)
	lease, err := h.queue.Claim(t.Context(), acme, reply.ConversationID, time.Minute)
	require.NoError(t, err)
	queue := &watched{Queue: h.queue, third: func() error { return h.queue.Release(t.Context(), lease) }}
	reply, err = h.worker(func(c *Config) { c.Queue = queue }).AnswerNow(t.Context(), acme, "chn_w", "1", &reader{})
	require.NoError(t, err)
	require.Equal(t, "You said: hello", reply.Text)
	require.Equal(t, 1, queue.claims)
}

// watched counts claims, and does something before the third look at a reply.
type watched struct {
	*inbox.Queue

	third         func() error
	looks, claims int
}

func (q *watched) Reply(ctx context.Context, orgID, channelID, messageID string) (inbox.Reply, error) {
	if q.looks++; q.looks == 3 {
		if err := q.third(); err != nil {
			return inbox.Reply{}, err
		}
	}
	return q.Queue.Reply(ctx, orgID, channelID, messageID)
}

func (q *watched) Claim(ctx context.Context, orgID, conversationID string, life time.Duration) (inbox.Lease, error) {
	q.claims++
	return q.Queue.Claim(ctx, orgID, conversationID, life)
}

// TestAnswerNowAtExit: nothing is begun or waited for any more, and a call that was cut costs no attempt.
func TestAnswerNowAtExit(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.widget(t, "chn_w")
	h.visit(t, "chn_w", "v1", "1", "hello")
	exit := make(chan struct{})
	w := h.worker(func(c *Config) { c.Exit, c.Gateway = exit, &cut{Gateway: h.gateway, exit: exit} })
	reply, err := w.AnswerNow(t.Context(), acme, "chn_w", "1", &reader{})
	require.NoError(t, err)
	require.True(t, reply.Waits())
	h.leaseless(t)
	require.Empty(t, h.vendor.calls())

	h.visit(t, "chn_w", "v2", "2", "good morning")
	reply, err = w.AnswerNow(t.Context(), acme, "chn_w", "2", &reader{})
	require.NoError(t, err)
	require.True(t, reply.Waits())
	require.Empty(t, reply.TurnID, "not begun")

	lease, err := h.queue.Claim(t.Context(), acme, reply.ConversationID, time.Minute)
	require.NoError(t, err)
	waits := make(chan struct{})
	queue := &watched{Queue: h.queue, third: func() error { close(waits); return nil }}
	again := h.worker(func(c *Config) { c.Exit, c.Queue = waits, queue })
	reply, err = again.AnswerNow(t.Context(), acme, "chn_w", "2", &reader{})
	require.NoError(t, err)
	require.True(t, reply.Waits(), "whom another answers nobody waits for at the exit")
	require.NoError(t, h.queue.Release(t.Context(), lease))

	leases, err := h.queue.Lease(t.Context(), inbox.Places{Free: 8}, time.Minute)
	require.NoError(t, err)
	require.Len(t, leases, 2, "another goes on at once")
	for _, lease := range leases {
		require.Zero(t, lease.Attempts)
	}
}

// cut is a gateway whose calls the exit cuts.
type cut struct {
	Gateway

	exit chan struct{}
}

func (g *cut) Call(context.Context, *gateway.Request, gateway.Sink) (*gateway.Result, error) {
	close(g.exit)
	return nil, &gateway.Failure{Outcome: gateway.OutcomeExiting}
}

// TestFailedAnswerNow: a failed try is for a worker to repeat, after the usual pause.
func TestFailedAnswerNow(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.widget(t, "chn_w")
	h.visit(t, "chn_w", "v1", "1", "hello")
	h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
		if n == 1 {
			return "", broken(providers.FailureOverloaded)
		}
		return echo(asked), nil
	}
	var seen reader
	reply, err := h.worker().AnswerNow(t.Context(), acme, "chn_w", "1", &seen)
	require.NoError(t, err)
	require.True(t, reply.Waits())
	require.Len(t, h.vendor.calls(), 1)
	h.leaseless(t)
	h.hurry(t)
	require.Equal(t, 1, h.drain(t, h.worker()))
	require.EqualValues(t, answerCost, h.spent(t, acme))
}

// TestLiveSink: what is shown is what will be stored, however the pieces are cut.
func TestLiveSink(t *testing.T) {
	t.Parallel()
	for _, pieces := range [][]string{
		{" \n one", " ", "two\n", "\n three \n"}, {"", " ", "\n", "one two\n\n three"}, {"one", " two", "\n\n", " ", "three", "\t", "\u00a0"},
	} {
		var seen reader
		s := liveSink{to: &seen}
		require.NoError(t, s.Begin(gateway.Head{}))
		for _, piece := range pieces {
			require.NoError(t, s.Text(piece))
			require.NoError(t, s.Flush())
		}
		require.Equal(t, "one two\n\n three", seen.text.String())
		require.Equal(t, seen.text.String(), strings.TrimSpace(s.whole.String()))
	}
	var seen reader
	s := liveSink{to: &seen}
	require.NoError(t, errors.Join(s.Begin(gateway.Head{}), s.Text(" "), s.Begin(gateway.Head{}), s.Text("one"), s.Begin(gateway.Head{}), s.Text("two")))
	require.Equal(t, "one", seen.text.String(), "no second answer is hung on a broken one")
	require.Equal(t, "two", s.whole.String())
}
