package providers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// drainWait and drainBytes limit the wait for the end of a stream after its terminator. A connection is reused only if the
	// answer was read to the end.
	drainWait  = 50 * time.Millisecond
	drainBytes = 8 << 10
)

// stream is an answer that arrives in pieces. The finish reason is withheld until the stream is over, so that nothing can follow
// it (see [Event]).
type stream struct {
	*call
	provider *HTTP
	events   *eventReader
	reader   StreamReader
	status   int
	apiKey   string

	firstBy time.Time     // end of the wait for the first bytes of an event
	waited  bool          // the wait for the first bytes has begun
	begun   bool          // a document has come
	half    rune          // high surrogate at the end of the text so far, or 0
	finish  string        // the vendor's finish reason so far
	model   string        // the vendor's name of the answering model
	grace   time.Duration // rest of the provider's grace
	since   time.Time     // start of the current wait for usage, or zero
	ready   Event         // read ahead, may be empty
	err     error         // result of Next after ready

	// drains means that the terminator came and that drain ends the call. It is set before complete.
	drains bool
	// complete means that the finish event was made. Only drain reads after it.
	complete atomic.Bool
}

// openStream waits for the first document of the stream.
func (p *HTTP) openStream(c *call, resp *http.Response, body io.Reader, apiKey string) (Events, *Error) {
	s := &stream{call: c, provider: p, reader: p.dialect.Stream(), status: resp.StatusCode, apiKey: apiKey, firstBy: c.armedUntil()}
	s.events = newEventReader(&cappedReader{body, maxStreamBytes}, maxEventBytes, (*streamClock)(s))
	s.events.hold = c.hold
	if _, objects := s.reader.(interface{ jsonLines() }); objects {
		s.events.line = between
	}
	for !s.begun && !s.complete.Load() {
		event, failure := s.take(s.events.next())
		if failure != nil {
			return nil, failure
		}
		s.ready = event
	}
	if s.complete.Load() {
		s.err = io.EOF
	}
	return s, nil
}

type streamClock stream

func (s *streamClock) arm() {
	s.spend()
	switch {
	case s.finish != "":
		s.since = time.Now()
		s.call.arm(s.grace, errFinished)
	case s.waited:
		s.call.arm(s.provider.timeouts.Idle, s.provider.idleTimeout)
	default:
		s.waited = true
		s.call.arm(time.Until(s.firstBy), s.provider.firstByteTimeout)
	}
}

func (s *streamClock) disarm() {
	s.call.disarm()
	s.spend()
}

// spend subtracts the wait that has ended, if it was a wait for usage, from the grace. So all waits together are bounded, however
// many events without text the vendor sends after its finish reason. The time of a slow client doesn't count.
func (s *streamClock) spend() {
	if !s.since.IsZero() {
		s.grace -= time.Since(s.since)
		s.since = time.Time{}
	}
}

// Next implements [Events].
func (s *stream) Next() (Event, error) {
	for s.ready.empty() && s.err == nil {
		s.put(s.events.next())
	}
	event := s.ready
	s.ready = Event{}
	if event.empty() {
		s.events.free()
		return Event{}, s.err
	}
	event.Model = s.model
	return event, nil
}

// Buffered implements [Events].
func (s *stream) Buffered() bool {
	for s.ready.empty() && s.err == nil {
		data, bare, ok, err := s.events.ahead()
		if !ok && err == nil {
			return false
		}
		s.put(data, bare, err)
	}
	return true
}

// put stores the reader's result as the next event or the end.
func (s *stream) put(data []byte, bare bool, err error) {
	event, failure := s.take(data, bare, err)
	s.ready = event
	if failure != nil {
		s.err = failure
		s.end()
	} else if s.complete.Load() {
		s.err = io.EOF
	}
}

// Close implements [Events]. It doesn't wait, because drain reads the bytes after the terminator.
func (s *stream) Close() {
	if s.complete.Load() && s.drains {
		s.takeBack()
		return
	}
	s.end()
}

// take returns the reader's result as an event, which may be empty.
func (s *stream) take(data []byte, bare bool, err error) (Event, *Error) {
	if err != nil {
		return s.ended(err)
	}
	data = bytes.TrimSpace(data)
	switch {
	case bare && !json.Valid(data):
		return Event{}, s.noAnswer(errNoEvent.Error())
	case bare:
		return Event{}, tidy(s.provider.dialect.Fault(http.StatusOK, nil, data), s.status, s.apiKey)
	case len(data) == 0:
		return Event{}, nil
	}
	piece, err := s.reader.Event(data)
	if err != nil {
		return Event{}, asError(err, s.status, s.apiKey)
	}
	return s.event(piece), nil
}

// noAnswer returns a [NotAnAnswer] with the status.
func (s *stream) noAnswer(detail string) *Error { return tidy(NotAnAnswer(detail), s.status, "") }

// event returns the event of a piece, without the finish reason, which is kept for the last event.
func (s *stream) event(piece Piece) Event {
	s.begun = true
	event := Event{Usage: piece.Usage}
	switch {
	case piece.Text == nil:
	case !piece.End && s.half == 0 && len(piece.Text) > len(`""`) && piece.Text.canonical():
		event.Quoted = piece.Text
	default:
		event.Text, s.half = piece.Text.textAfter(s.half)
	}
	if s.finish == "" || event.Text != "" || event.Quoted != nil { // text shows that the vendor repeats its finish reason in every event
		s.grace = s.provider.grace
	}
	if piece.Model != "" && s.model == "" {
		s.model = plainModel(piece.Model)
	}
	if piece.FinishReason != "" {
		s.finish = plainReason(piece.FinishReason)
	}
	if piece.End {
		s.drains = s.events.err == nil
		last := s.finished()
		event.FinishReason = last.FinishReason
		event.Text += last.Text
		if s.drains {
			go s.drain()
		}
	}
	return event
}

// finished returns the last event. An unfinished surrogate pair becomes U+FFFD.
func (s *stream) finished() Event {
	s.complete.Store(true)
	event := Event{FinishReason: cmp.Or(s.finish, "stop")}
	if s.half != 0 {
		event.Text = string(utf8.RuneError)
	}
	return event
}

// ended returns the last event or the error that follows from the end of the bytes.
func (s *stream) ended(err error) (Event, *Error) {
	cause := context.Cause(s.ctx)
	var ours *timeoutError
	switch {
	case errors.Is(err, errNoEvent):
		return Event{}, s.noAnswer(errNoEvent.Error())
	case errors.Is(err, errManyLarge), isTooLarge(err):
	case s.finish != "" && (errors.Is(err, io.EOF) || cause == nil || errors.Is(cause, errFinished) || errors.As(cause, &ours)):
		return s.finished(), nil
	case errors.Is(err, io.EOF) && !s.begun && cause == nil:
		return Event{}, s.noAnswer("the answer holds no event")
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	failure := s.failure(err)
	failure.Status = s.status
	return Event{}, failure
}

// drain reads the few bytes after the terminator, so that the connection can be reused, and ends the call. It runs concurrently
// with the settlement, so neither the client nor the ledger waits for the end of the vendor's connection.
func (s *stream) drain() {
	s.arm(drainWait, errFinished)
	_, _ = io.CopyN(io.Discard, s.events.src, drainBytes)
	s.end()
}
