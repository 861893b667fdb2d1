package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

const (
	// liveWait bounds how long a visitor waits for an answer by another process.
	liveWait = 2 * time.Minute
	// livePause is about how often the reply is read while a caller waits. The read costs some microseconds.
	livePause = 100 * time.Millisecond
	// livePasses bounds a request's own passes: more than one is needed only when other workers left work behind.
	livePasses = 8
)

var errLiveSlow = errors.New("the answer took longer than 2 min")

// AnswerNow runs the turn of a customer's text in the queue while its writer waits, with the same lease, turn and charge as a worker's, and
// streams the answer to sink: the text that will be stored, without surrounding white space, piece by piece. When another worker has the
// conversation, AnswerNow waits for its result, and sink gets nothing.
//
// The reply says how it ended: its text is stored; or it still waits, because the try failed and will be repeated; or it isn't answered
// now. sink may then have got the beginning of an answer that was not stored. It gets only one answer, however many tries there are. When
// ctx ends, AnswerNow stops waiting; but it makes the first try, and finishes one that has begun, because the text was accepted and counts
// among the running turns until AnswerNow returns. When Config.Exit is closed it begins nothing and waits for nothing: begun work is given
// back for other workers. An error comes from the store.
//
// A worker that only does this needs no [Worker.Run].
func (w *Worker) AnswerNow(ctx context.Context, orgID, channelID, messageID string, sink gateway.Sink) (inbox.Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, liveWait, errLiveSlow)
	defer cancel()
	shown := &liveSink{to: sink} // one for all passes, because a reader keeps what it was shown
	for passes := 0; ; {
		reply, err := w.reply(ctx, orgID, channelID, messageID)
		if err != nil || !reply.Waits() || passes == livePasses || closed(w.Exit) {
			return reply, err
		}
		if passes > 0 && ctx.Err() != nil {
			return reply, nil // a worker will take it
		}
		var lease inbox.Lease
		if err = reply.Claimable(); err == nil { // a claim is a write, so the last read decides whether to try it
			bounded, done := storing(ctx)
			lease, err = w.Queue.Claim(bounded, orgID, reply.ConversationID, w.Lease)
			done()
		}
		switch {
		case err == nil:
			passes++
			w.Observer.Leased(1)
			p := &pass{
				Worker: w, lease: lease, stop: w.Exit,
				live: &live{messageID: reply.MessageID, turnID: reply.TurnID, sink: shown},
			}
			// An answer that its reader has seen can't be discarded for newer messages.
			p.superseded = true
			p.converse(context.WithoutCancel(ctx))
			if p.postponed { // another call would find no place either
				return w.reply(ctx, orgID, channelID, messageID)
			}
		case errors.Is(err, inbox.ErrLeased):
			if !w.livePause(ctx) {
				return reply, nil
			}
		case errors.Is(err, inbox.ErrNotDue): // or it ended between the two reads
			return w.reply(ctx, orgID, channelID, messageID)
		default:
			return reply, err
		}
	}
}

func (w *Worker) reply(ctx context.Context, orgID, channelID, messageID string) (inbox.Reply, error) {
	ctx, cancel := storing(ctx)
	defer cancel()
	return w.Queue.Reply(ctx, orgID, channelID, messageID)
}

// livePause waits for the next read, and returns false when there must be none.
func (w *Worker) livePause(ctx context.Context) bool {
	timer := time.NewTimer(repeat.Around(livePause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-w.Exit:
	}
	return false
}

// live connects a pass with the visitor that waits for its answer.
type live struct {
	messageID string
	// turnID is the turn of the message. It is empty before the turn has begun.
	turnID string
	sink   *liveSink
}

// joins records the turn of some messages, if the visitor's is among them.
func (l *live) joins(turnID string, messages []inbox.Message) {
	if l != nil && slices.ContainsFunc(messages, func(m inbox.Message) bool { return m.ID == l.messageID }) {
		l.turnID = turnID
	}
}

// liveSink passes an answer on to a visitor without surrounding white space and without the mark that hands the conversation over, and
// keeps all of it: the answer is stored even if the visitor leaves.
type liveSink struct {
	to gateway.Sink
	// marked: the answer may contain the mark, which is removed.
	marked bool
	mark   markFilter
	// whole is the vendor's answer; space is white space that no text has followed yet.
	whole strings.Builder
	space string
	// shown: the visitor has received a part of it. cut: nothing more is passed on, because the visitor is gone or has received a
	// part of an answer that broke off.
	shown, cut bool
}

var _ gateway.Sink = (*liveSink)(nil)

// Begin discards an answer that broke off; a visitor that has received a part of it gets no other.
func (s *liveSink) Begin(head gateway.Head) error {
	s.whole.Reset()
	s.space, s.mark = "", markFilter{}
	s.cut = s.cut || s.shown
	s.pass(func() error { return s.to.Begin(head) })
	return nil
}

// Text passes a piece on.
func (s *liveSink) Text(piece string) error {
	s.whole.WriteString(piece)
	if s.marked {
		piece = s.mark.filter(piece, false)
	}
	s.show(piece)
	return nil
}

// end passes on the rest of a complete answer.
func (s *liveSink) end() {
	s.show(s.mark.filter("", true))
	_ = s.Flush()
}

func (s *liveSink) show(piece string) {
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
}

// Flush passes on.
func (s *liveSink) Flush() error {
	s.pass(s.to.Flush)
	return nil
}

func (s *liveSink) pass(write func() error) {
	if !s.cut {
		s.cut = write() != nil
	}
}
