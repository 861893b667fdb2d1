package providers

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

const (
	// maxEventBytes limits the data of one event. The largest event seen from a vendor has 8 MiB.
	maxEventBytes = 16 << 20
	// sseReadBytes is the size of a read. A slow stream keeps only this buffer and one event in memory.
	sseReadBytes = 4 << 10
)

var (
	// errEventTooLarge means that one event has more data than the reader's limit.
	errEventTooLarge = errors.New("an event of the stream is too large")
	// errNoEvent means that a stream of JSON objects has something else between or in them.
	errNoEvent = errors.New("the stream holds bytes that are no event")
)

// readClock times the waits of a reader, so that a timer runs only during waits for the vendor and not while a slow client
// reads.
type readClock interface {
	// arm is called before a read that may block, if bytes of an answer have arrived since the last call.
	arm()
	// disarm is called when the wait ends.
	disarm()
}

// eventReader splits a byte stream into the data of server-sent events (WHATWG HTML §9.2.6). It drops comments and all fields but
// data. Lines end in LF, CRLF or CR; several data lines of one event are joined by LF; a byte order mark at the start is skipped.
// UTF-8 isn't checked, so a character may be spread over several reads. An event without its blank line at the end of the stream
// is valid, because vendors forget the line after the last event.
//
// A line that begins with { or [ is not an event: some vendors report an error in the middle of a stream as bare JSON. It is
// returned as raw when its outermost bracket closes, or when the stream ends.
//
// A reader that starts between two objects reads JSON objects in place of events (see [JSONLines]). Other bytes than white space and
// the punctuation of an array around them are errNoEvent. An object that the end of the stream cuts off is dropped.
//
// Comments, heartbeats and blank lines don't re-arm the clock. They show that a proxy is alive, not that the model answers: relays
// send them for minutes while a model hangs.
type eventReader struct {
	src   io.Reader
	limit int
	clock readClock // may be nil
	// hold is called with the size of an event above smallAnswerBytes, whenever the event grows, and with 0 when it is dropped.
	// Its error ends the reading. It may be nil.
	hold func(size int) error

	buf      *[sseReadBytes]byte
	pos, end int
	lf       int   // position of the first LF at or after pos; end if there is none
	err      error // of the last read

	event   []byte // data of the event so far
	held    int    // the last argument of hold
	hasData bool   // a data line began in this event
	partial bool   // an event has begun and hasn't been returned
	heard   bool   // answer bytes have come since the clock was armed
	armed   bool

	line   lineState
	match  int  // bytes of "data:" or of the byte order mark matched in this line
	skipLF bool // the last line ended in CR: a following LF belongs to it
	raw    rawJSON
}

type lineState uint8

const (
	atStart  lineState = iota // at the very beginning: a byte order mark may follow
	inField                   // matching "data:"
	afterTag                  // after "data:": one space may follow
	inValue                   // inside a data line's value
	ignored                   // inside any other line
	inRaw                     // inside bare JSON
	over                      // bare JSON was returned and ends the stream
	between                   // between two JSON objects
	inObject                  // inside a JSON object
)

// rawJSON finds the end of a bare JSON value by its brackets.
type rawJSON struct {
	depth             int
	quoted, backslash bool
	broken            bool // a string contains a line end or another control character
}

// readBuffers are the buffers of ended streams.
var readBuffers = sync.Pool{New: func() any { return new([sseReadBytes]byte) }}

func newEventReader(src io.Reader, limit int, clock readClock) *eventReader {
	buf := readBuffers.Get().(*[sseReadBytes]byte) //nolint:forcetypeassert,errcheck // the pool holds nothing else
	return &eventReader{src: src, limit: limit, clock: clock, buf: buf}
}

// free returns the buffer to the pool. Nothing can be read after it, and returned data is no longer valid. It may be called more
// than once.
func (r *eventReader) free() {
	if r.buf != nil {
		readBuffers.Put(r.buf)
		r.buf, r.pos, r.end = nil, 0, 0
	}
}

// next returns the data of the next event, valid until the next call, and whether it was bare JSON. At the end of the stream it
// returns io.EOF. Other errors are errEventTooLarge, errNoEvent or the source's.
func (r *eventReader) next() (data []byte, raw bool, err error) {
	r.heard = true
	defer r.disarm()
	for {
		if data, raw, ok, err := r.ahead(); ok || err != nil {
			return data, raw, err
		}
		if r.err != nil {
			r.partial = false
			return r.last()
		}
		r.fill()
	}
}

// ahead returns the next event without reading from the source. ok is false if the buffer contains no complete event.
func (r *eventReader) ahead() (data []byte, raw, ok bool, err error) {
	if !r.partial {
		if data := r.atOnce(); data != nil {
			return data, false, true, nil
		}
		if r.held > 0 { // the previous event was large; its memory is released
			r.event, r.held = nil, 0
			_ = r.hold(0) // a smaller size never fails
		}
		r.event, r.hasData, r.partial = r.event[:0], false, true
	}
	for r.pos < r.end {
		done, raw, err := r.step()
		if err == nil {
			err = r.bound()
		}
		if done || err != nil {
			r.partial = false
			return r.event, raw, done, err
		}
	}
	return nil, false, false, nil
}

// atOnce returns the data of the next event if the buffer contains all of it in a usual form: one line "data: …", perhaps after a line
// "event: …", ended by LF or CRLF, and a blank line. Otherwise it returns nil and consumes nothing.
func (r *eventReader) atOnce() []byte {
	const name, tag = "event: ", "data: "
	if r.line != inField || r.match > 0 || r.skipLF || r.held > 0 {
		return nil
	}
	rest := r.buf[r.pos:r.end]
	if bytes.HasPrefix(rest, []byte(name)) {
		size := bytes.IndexByte(rest, '\n')
		if size < 0 || bytes.IndexByte(rest[:size-1], '\r') >= 0 {
			return nil
		}
		rest = rest[size+1:]
	}
	rest, ok := bytes.CutPrefix(rest, []byte(tag))
	if !ok {
		return nil
	}
	size, end := bytes.IndexByte(rest, '\n'), "\n\n"
	if size > 0 && rest[size-1] == '\r' {
		size, end = size-1, "\r\n\r\n"
	}
	if size <= 0 || !bytes.HasPrefix(rest[size:], []byte(end)) || bytes.IndexByte(rest[:size], '\r') >= 0 {
		return nil
	}
	r.pos = r.end - len(rest) + size + len(end)
	r.heard = true
	return rest[:size:size]
}

// bound returns an error if the event is too large, by itself or together with others.
func (r *eventReader) bound() error {
	size := cap(r.event)
	if len(r.event) > r.limit {
		return errEventTooLarge
	}
	if r.hold == nil || size <= max(r.held, smallAnswerBytes) {
		return nil
	}
	r.held = size
	return r.hold(size)
}

// last returns the rest of an event when the source has ended.
func (r *eventReader) last() ([]byte, bool, error) {
	if !errors.Is(r.err, io.EOF) {
		return nil, false, r.err
	}
	if r.line == inRaw {
		r.line = over
		return r.event, true, nil
	}
	if r.line == inField && r.match == len("data") {
		r.beginValue()
	}
	r.line, r.match = ignored, 0
	if r.hasData {
		return r.event, false, nil
	}
	return nil, false, io.EOF
}

func (r *eventReader) fill() {
	if r.clock != nil && r.heard {
		r.clock.arm()
		r.heard, r.armed = false, true
	}
	n, err := r.src.Read(r.buf[:])
	r.pos, r.end, r.err = 0, n, err
	r.lf = -1
}

func (r *eventReader) disarm() {
	if r.armed {
		r.clock.disarm()
		r.armed = false
	}
}

// step consumes one or more bytes from the buffer. done means that r.event is complete.
func (r *eventReader) step() (done, raw bool, err error) {
	b := r.buf[r.pos]
	if r.skipLF {
		r.skipLF = false
		if b == '\n' {
			r.pos++
			return false, false, nil
		}
	}
	switch r.line {
	case atStart:
		r.stepStart(b)
		return false, false, nil
	case inRaw:
		if done = r.stepJSON(); done {
			r.line = over
		}
		if len(r.event) > min(r.limit, maxErrorBytes) {
			return false, true, errEventTooLarge
		}
		return done, true, nil
	case over:
		r.pos = r.end
		return false, false, nil
	case between:
		return false, false, r.stepBetween(b)
	case inObject:
		if done = r.stepJSON(); done {
			r.line = between
		}
		if r.raw.broken {
			return false, false, errNoEvent
		}
		return done, false, nil
	case inField:
		if b != '\n' && b != '\r' {
			return r.stepField(b), false, nil
		}
	case afterTag:
		r.line = inValue
		if b == ' ' {
			r.pos++
			return false, false, nil
		}
	case inValue, ignored:
	}
	return r.stepLine(), false, nil
}

// stepStart skips a byte order mark.
func (r *eventReader) stepStart(b byte) {
	const mark = "\xEF\xBB\xBF"
	switch {
	case b == mark[r.match]:
		r.pos++
		r.match++
		if r.match == len(mark) {
			r.line, r.match = inField, 0
		}
	case r.match > 0:
		r.line, r.match = ignored, 0 // half a mark belongs to the first line, which is therefore no data line
	default:
		r.line = inField
	}
}

// stepField matches "data:" at the start of a line. done means that bare JSON begins and ends the previous event.
func (r *eventReader) stepField(b byte) (done bool) {
	const tag = "data:"
	if r.match == 0 && (b == '{' || b == '[') {
		if r.hasData {
			return true
		}
		r.line, r.raw = inRaw, rawJSON{}
		return false
	}
	r.pos++
	if b != tag[r.match] {
		r.line, r.match = ignored, 0
		return false
	}
	r.match++
	if r.match == len(tag) {
		r.beginValue()
		r.line, r.match = afterTag, 0
	}
	return false
}

func (r *eventReader) beginValue() {
	if r.hasData {
		r.event = append(r.event, '\n')
	}
	r.hasData = true
}

// stepLine consumes the rest of a line as far as it is in the buffer. done means that it was the blank line after an event.
func (r *eventReader) stepLine() (done bool) {
	stop, found := r.lineEnd()
	if run := r.buf[r.pos:stop]; r.line == inValue && len(run) > 0 {
		r.event = append(r.event, run...)
		r.heard = true
	}
	r.pos = stop
	if !found {
		return false
	}
	r.skipLF = r.buf[stop] == '\r'
	r.pos++
	blank := r.line == inField && r.match == 0
	if r.line == inField && r.match == len("data") {
		r.beginValue()
	}
	r.line, r.match = inField, 0
	return blank && r.hasData
}

// lineEnd returns the position of the first line end in the buffer. It remembers the position of the LF; otherwise it would
// search a stream of only CR again for every line.
func (r *eventReader) lineEnd() (int, bool) {
	if r.lf < r.pos {
		r.lf = r.end
		if i := bytes.IndexByte(r.buf[r.pos:r.end], '\n'); i >= 0 {
			r.lf = r.pos + i
		}
	}
	if i := bytes.IndexByte(r.buf[r.pos:r.lf], '\r'); i >= 0 {
		return r.pos + i, true
	}
	return r.lf, r.lf < r.end
}

// stepJSON consumes a JSON value until its outermost bracket closes.
func (r *eventReader) stepJSON() (done bool) {
	r.heard = true
	start := r.pos
	for r.pos < r.end && !done {
		done = r.raw.closes(r.buf[r.pos])
		r.pos++
	}
	r.event = append(r.event, r.buf[start:r.pos]...)
	return done
}

// stepBetween skips the bytes between two objects, which are white space and the punctuation of an array.
func (r *eventReader) stepBetween(b byte) error {
	switch b {
	case '{':
		r.line, r.raw = inObject, rawJSON{}
		return nil
	case ' ', '\t', '\r', '\n', ',', '[', ']':
		r.pos++
		return nil
	}
	return errNoEvent
}

// closes consumes the next byte and reports whether it closes the outermost bracket.
func (j *rawJSON) closes(b byte) bool {
	switch {
	case j.backslash:
		j.backslash = false
	case j.quoted:
		j.broken = j.broken || b < ' '
		j.backslash = b == '\\'
		j.quoted = b != '"'
	case b == '"':
		j.quoted = true
	case b == '{' || b == '[':
		j.depth++
	case b == '}' || b == ']':
		j.depth--
		return j.depth == 0
	}
	return false
}
