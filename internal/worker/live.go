package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
)

const (
	// liveWait bounds how long somebody waits for an answer that another one makes.
	liveWait = 2 * time.Minute
	// livePause is about how often he looks whether it is there. The read costs some microseconds.
	livePause = 100 * time.Millisecond
	// livePasses bounds how often he works himself: more are needed only when others left work behind.
	livePasses = 8
)

var errLiveSlow = errors.New("the answer took longer than 2 min")

// AnswerNow answers a customer's text that is in the queue while its writer waits for it, by the same lease, turn and
// charge as a worker would, and shows the answer in sink as it is made: sink gets the text that will be stored, without
// the white space around it, piece by piece. When somebody else is at the conversation it waits for what comes of that,
// and sink gets nothing.
//
// The reply says how it ended: its text is stored; or it still waits, because the try failed and is to be repeated; or
// nobody answers now. sink may have got a beginning then that was not stored. It gets one answer at most, however many
// tries there are. When ctx ends AnswerNow waits no longer; but it makes the first try, and goes on with one that has begun
// to its end, because the text was taken from its writer: who counts the running answers by it has counted this one then.
// When Config.Exit is closed it begins nothing and waits for nothing more: what it has begun is given back for others to go
// on with. An error is one of the store.
//
// A worker that only does this needs no [Worker.Run].
func (w *Worker) AnswerNow(ctx context.Context, orgID, channelID, messageID string, sink gateway.Sink) (inbox.Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, liveWait, errLiveSlow)
	defer cancel()
	shown := &liveSink{to: sink} // one for all passes: what the reader has he keeps
	for passes := 0; ; {
		reply, err := w.reply(ctx, orgID, channelID, messageID)
		if err != nil || !reply.Waits() || passes == livePasses || closed(w.Exit) {
			return reply, err
		}
		if passes > 0 && ctx.Err() != nil {
			return reply, nil // a worker will come
		}
		lease, err := w.claim(ctx, orgID, &reply)
		switch {
		case err == nil:
			passes++
			w.Observer.Leased(1)
			p := &pass{
				Worker: w, lease: lease, stop: w.Exit,
				live: &live{messageID: reply.MessageID, turnID: reply.TurnID, sink: shown},
			}
			// What a reader has seen can't be thrown away for newer messages.
			p.superseded = true
			p.converse(context.WithoutCancel(ctx))
			if p.postponed { // asking again at once would find no place either
				return w.reply(ctx, orgID, channelID, messageID)
			}
		case errors.Is(err, inbox.ErrLeased):
			if !w.livePause(ctx) {
				return reply, nil
			}
		case errors.Is(err, inbox.ErrNotDue): // or it ended between the two looks
			return w.reply(ctx, orgID, channelID, messageID)
		default:
			return reply, err
		}
	}
}

func (w *Worker) reply(ctx context.Context, orgID, channelID, messageID string) (inbox.Reply, error) {
	ctx, cancel := storing(ctx)
	defer cancel()
	return w.Turns.Reply(ctx, orgID, channelID, messageID)
}

// livePause waits for the next look, and reports false when there shall be none.
func (w *Worker) livePause(ctx context.Context) bool {
	timer := time.NewTimer(livePause/2 + rand.N(livePause)) //nolint:gosec // jitter is no secret
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-w.Exit:
	}
	return false
}

// claim asks for the lease only when the look before has shown that it may be had: asking is a write.
func (w *Worker) claim(ctx context.Context, orgID string, reply *inbox.Reply) (inbox.Lease, error) {
	if err := reply.Claimable(); err != nil {
		return inbox.Lease{}, err
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	return w.Leases.Claim(ctx, orgID, reply.ConversationID, w.Lease)
}

// live is who waits for the answer of a pass.
type live struct {
	messageID string
	// turnID is the turn that answers the message, "" before it has begun.
	turnID string
	sink   *liveSink
}

// begun notes the turn of some messages, if the one that is waited for is among them.
func (l *live) begun(turnID string, messages []inbox.Message) {
	if l == nil {
		return
	}
	for i := range messages {
		if messages[i].ID == l.messageID {
			l.turnID = turnID
		}
	}
}

// waitsFor reports whether somebody waits for the answer of a turn.
func (l *live) waitsFor(turnID string) bool { return l != nil && l.turnID == turnID }

// liveSink passes an answer on without the white space around it, and keeps all of it: the one who reads may leave, and the
// answer is stored all the same.
type liveSink struct {
	to gateway.Sink
	// whole is the answer, in the vendor's words; space is its white space so far that nothing followed yet.
	whole strings.Builder
	space string
	// shown: the reader has a part of it. deaf: he is gone, or has a part of an answer that broke.
	shown, deaf bool
}

var _ gateway.Sink = (*liveSink)(nil)

// Begin forgets an answer that broke; nobody who has a part of it gets another.
func (s *liveSink) Begin(head gateway.Head) error {
	s.whole.Reset()
	s.space = ""
	s.deaf = s.deaf || s.shown
	s.pass(func() error { return s.to.Begin(head) })
	return nil
}

// Text passes a piece on.
func (s *liveSink) Text(piece string) error {
	s.whole.WriteString(piece)
	if !s.shown {
		piece = strings.TrimLeftFunc(piece, unicode.IsSpace)
	}
	piece = s.space + piece
	end := len(strings.TrimRightFunc(piece, unicode.IsSpace))
	s.space = piece[end:]
	if end > 0 {
		s.shown = true
		s.pass(func() error { return s.to.Text(piece[:end]) })
	}
	return nil
}

// Flush passes on.
func (s *liveSink) Flush() error {
	s.pass(s.to.Flush)
	return nil
}

func (s *liveSink) pass(write func() error) {
	if !s.deaf {
		s.deaf = write() != nil
	}
}
