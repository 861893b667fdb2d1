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
	// drainWait and drainBytes bound the wait for the end of a stream behind its terminator. Only a connection
	// whose answer was read to the end can be used again.
	drainWait  = 50 * time.Millisecond
	drainBytes = 8 << 10
)

// stream is a running answer in pieces. The finish reason is held back until the stream is over, so that nothing
// can follow it (see [Event]).
type stream struct {
	*call
	sse      *sseReader
	dialect  Dialect
	reader   StreamReader
	status   int
	apiKey   string
	idle     time.Duration
	patience time.Duration // the whole wait for usage after the finish reason
	onIdle   error
	onFirst  error

	firstBy time.Time     // until then the first bytes of an event must come
	waited  bool          // the wait for the first bytes began
	begun   bool          // a document came
	half    rune          // the high surrogate in which the text so far ends, 0 for none
	finish  string        // the vendor's finish reason so far
	model   string        // the vendor's name of the model that answers
	grace   time.Duration // the rest of the wait for usage after the finish reason
	since   time.Time     // when the current wait for usage began; zero while there is none
	ready   Event         // read ahead, empty if nothing was
	err     error         // what Next returns once ready is handed out

	// drains: the terminator came and drain ends the call; it is set before complete.
	drains bool
	// complete: the finish event was made and nothing is read any more, but by drain.
	complete atomic.Bool
}

// openStream waits for the first document of the stream.
func (p *HTTP) openStream(c *call, resp *http.Response, body io.Reader, apiKey string) (Events, *Error) {
	s := &stream{
		call:     c,
		dialect:  p.dialect,
		reader:   p.dialect.Stream(),
		status:   resp.StatusCode,
		apiKey:   apiKey,
		idle:     p.timeouts.Idle,
		patience: p.grace,
		onIdle:   p.idleTimeout,
		onFirst:  p.firstByteTimeout,
		firstBy:  c.armedUntil(),
	}
	s.sse = newSSEReader(&cappedReader{body, maxStreamBytes}, maxEventBytes, (*streamClock)(s))
	s.sse.hold = c.hold
	data, bare, err := s.sse.next()
	event, failure := s.take(data, bare, err)
	for failure == nil && !s.begun && !s.complete.Load() {
		data, bare, err = s.sse.next()
		event, failure = s.take(data, bare, err)
	}
	if failure != nil {
		return nil, failure
	}
	s.ready = event
	if s.complete.Load() {
		s.err = io.EOF
	}
	return s, nil
}

// streamClock times the waits of a stream.
type streamClock stream

func (s *streamClock) arm() {
	s.spend()
	switch {
	case s.finish != "":
		s.since = time.Now()
		s.call.arm(s.grace, errFinished)
	case s.waited:
		s.call.arm(s.idle, s.onIdle)
	default:
		s.waited = true
		s.call.arm(time.Until(s.firstBy), s.onFirst)
	}
}

func (s *streamClock) disarm() {
	s.call.disarm()
	s.spend()
}

// spend takes the wait that is over, if it was one for usage, off the grace: however many events without text the vendor
// sends after its finish reason, all waits together are bounded. The time of a slow client doesn't count.
func (s *streamClock) spend() {
	if !s.since.IsZero() {
		s.grace -= time.Since(s.since)
		s.since = time.Time{}
	}
}

// Next implements [Events].
func (s *stream) Next() (Event, error) {
	for s.ready.empty() && s.err == nil {
		s.put(s.sse.next())
	}
	event := s.ready
	s.ready = Event{}
	if event.empty() {
		s.sse.free()
		return Event{}, s.err
	}
	event.Model = s.model
	return event, nil
}

// Buffered implements [Events].
func (s *stream) Buffered() bool {
	for s.ready.empty() && s.err == nil {
		data, bare, ok, err := s.sse.ahead()
		if !ok && err == nil {
			return false
		}
		s.put(data, bare, err)
	}
	return true
}

// put makes what the reader returned the next event or the end.
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

// Close implements [Events]. Bytes behind the terminator are left to drain, so it waits for nothing.
func (s *stream) Close() {
	if s.complete.Load() && s.drains {
		s.takeBack()
		return
	}
	s.end()
}

// take turns what the reader returned into an event, which is empty if nothing in it counts.
func (s *stream) take(data []byte, bare bool, err error) (Event, *Error) {
	if err != nil {
		return s.ended(err)
	}
	data = bytes.TrimSpace(data)
	switch {
	case bare && !json.Valid(data):
		return Event{}, s.noAnswer("the stream holds bytes that are no event")
	case bare:
		return Event{}, tidy(s.dialect.Fault(http.StatusOK, nil, data), s.status, s.apiKey)
	case len(data) == 0:
		return Event{}, nil
	}
	piece, err := s.reader.Event(data)
	if err != nil {
		return Event{}, tidy(asError(err), s.status, s.apiKey)
	}
	return s.event(piece), nil
}

// noAnswer is [NotAnAnswer] with the status.
func (s *stream) noAnswer(detail string) *Error {
	return tidy(NotAnAnswer(detail), s.status, "")
}

// event makes an event of a piece. The finish reason is kept for the last event.
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
		s.grace = s.patience
	}
	if piece.Model != "" && s.model == "" {
		s.model = plainModel(piece.Model)
	}
	if piece.FinishReason != "" {
		s.finish = plainReason(piece.FinishReason)
	}
	if piece.End {
		s.drains = s.sse.err == nil
		last := s.finished()
		event.FinishReason = last.FinishReason
		event.Text += last.Text
		if s.drains {
			go s.drain()
		}
	}
	return event
}

// finished makes the last event. Half a pair that got no other half is U+FFFD.
func (s *stream) finished() Event {
	s.complete.Store(true)
	event := Event{FinishReason: cmp.Or(s.finish, "stop")}
	if s.half != 0 {
		event.Text = string(utf8.RuneError)
	}
	return event
}

// ended decides what the end of the bytes means.
func (s *stream) ended(err error) (Event, *Error) {
	cause := context.Cause(s.ctx)
	var ours *timeoutError
	switch {
	case errors.Is(err, errManyLarge):
		return Event{}, &Error{Failure: FailureOverloaded, Status: s.status, Cause: err}
	case errors.Is(err, errEventTooLarge), errors.Is(err, errAnswerTooLarge):
		return Event{}, &Error{Failure: FailureRefused, Status: s.status, Cause: err}
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

// drain reads the little that may follow the terminator, so that the connection can be used again, and ends the call. It
// runs beside the settlement: neither the client nor the books wait for the end of the vendor's connection.
func (s *stream) drain() {
	s.arm(drainWait, errFinished)
	_, _ = io.CopyN(io.Discard, s.sse.src, drainBytes)
	s.end()
}
