package providers

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

const (
	// maxEventBytes bounds the data of one event. The largest seen from a vendor is 8 MiB.
	maxEventBytes = 16 << 20
	// sseReadBytes is how much is read at once; a slow stream holds on to no more than this and one event.
	sseReadBytes = 4 << 10
)

// errEventTooLarge: one event has more data than the reader's limit.
var errEventTooLarge = errors.New("an event of the stream is too large")

// readClock times the waits of a reader, so that a timer runs only while the vendor is waited for and not
// while a slow client takes its time.
type readClock interface {
	// arm is called before a read that may block, when bytes of an answer came since the last time, or none yet.
	arm()
	// disarm is called when the wait is over.
	disarm()
}

// sseReader splits a byte stream into the data of server-sent events (WHATWG HTML §9.2.6) and forgets all the rest:
// comments, event, id, retry and unknown fields. Lines end in LF, CRLF or CR; several data lines of one event are
// joined by LF; a byte order mark at the start is skipped. Bytes are taken as they are, UTF-8 is not looked at, so a
// character may be spread over any reads. An event that the end of the stream cuts short of its blank line still
// counts: vendors forget it after the last one.
//
// A line that begins with { or [ is no event: it is how some vendors report an error in the middle of a stream (as
// bare JSON). It is returned as raw as soon as its outermost bracket closes, or the stream ends.
//
// Comments and heartbeats don't re-arm the clock: they show that a proxy is alive, not that the model answers
// (relays send them for minutes while a model hangs).
type sseReader struct {
	src   io.Reader
	limit int
	clock readClock // nil: none
	// hold is called with the memory of an event beyond smallAnswerBytes, whenever that grows, and with 0 when the event is
	// forgotten; its error ends the reading. nil: none.
	hold func(size int) error

	buf      *[sseReadBytes]byte
	pos, end int
	lf       int   // position of the first LF at or after pos; end if there is none
	err      error // what the last read returned, nil so far

	event   []byte // data of the event so far
	held    int    // what hold was called with
	hasData bool   // a data line began in this event
	partial bool   // event is begun, not handed out
	heard   bool   // answer bytes came since the clock was armed
	armed   bool

	line   lineState
	match  int  // bytes of "data:" or of the byte order mark matched in this line
	skipLF bool // the last line ended in CR: an LF that follows belongs to it
	raw    rawJSON
}

type lineState uint8

const (
	atStart  lineState = iota // at the very beginning: a byte order mark may follow
	inField                   // matching "data:"
	afterTag                  // behind "data:": one space may follow
	inValue                   // inside a data line's value
	ignored                   // inside any other line
	inRaw                     // inside bare JSON
	over                      // bare JSON was returned: nothing follows it
)

// rawJSON finds the end of a bare JSON value by its brackets.
type rawJSON struct {
	depth             int
	quoted, backslash bool
}

// readBuffers are the buffers of streams that have ended.
var readBuffers = sync.Pool{New: func() any { return new([sseReadBytes]byte) }}

func newSSEReader(src io.Reader, limit int, clock readClock) *sseReader {
	buf := readBuffers.Get().(*[sseReadBytes]byte) //nolint:forcetypeassert,errcheck // the pool holds nothing else
	return &sseReader{src: src, limit: limit, clock: clock, buf: buf}
}

// free gives the buffer to another stream. Nothing is read after it, and what was returned is not valid any more. It may be
// called more than once.
func (r *sseReader) free() {
	if r.buf != nil {
		readBuffers.Put(r.buf)
		r.buf, r.pos, r.end = nil, 0, 0
	}
}

// next returns the data of the next event, valid until the next call, and whether it was bare JSON. The end of the
// stream is io.EOF; other errors are errEventTooLarge or the source's.
func (r *sseReader) next() (data []byte, raw bool, err error) {
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

// ahead is next without a read: ok is false if the bytes at hand hold no complete event.
func (r *sseReader) ahead() (data []byte, raw, ok bool, err error) {
	if !r.partial {
		if data := r.atOnce(); data != nil {
			return data, false, true, nil
		}
		r.begin()
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

// atOnce returns the data of the next event if all of it is in the buffer, in the form in which vendors write it: one line
// "data: …", ended by LF, and a blank line. Otherwise it returns nil and takes nothing.
func (r *sseReader) atOnce() []byte {
	const tag, end = "data: ", "\n\n"
	if r.line != inField || r.match > 0 || r.skipLF || r.held > 0 {
		return nil
	}
	rest, ok := bytes.CutPrefix(r.buf[r.pos:r.end], []byte(tag))
	if !ok {
		return nil
	}
	size := bytes.IndexByte(rest, '\n')
	if size <= 0 || !bytes.HasPrefix(rest[size:], []byte(end)) || bytes.IndexByte(rest[:size], '\r') >= 0 {
		return nil
	}
	r.pos += len(tag) + size + len(end)
	r.heard = true
	return rest[:size:size]
}

// begin forgets the event before. The memory of a large one is not kept for the rest of the stream.
func (r *sseReader) begin() {
	if r.held > 0 {
		r.event, r.held = nil, 0
		_ = r.hold(0) // giving back doesn't fail
	}
	r.event, r.hasData, r.partial = r.event[:0], false, true
}

// bound ends the reading of an event that is too large, by itself or together with others.
func (r *sseReader) bound() error {
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

// last hands out what is left when the source has ended.
func (r *sseReader) last() ([]byte, bool, error) {
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

func (r *sseReader) fill() {
	if r.clock != nil && r.heard {
		r.clock.arm()
		r.heard, r.armed = false, true
	}
	n, err := r.src.Read(r.buf[:])
	r.pos, r.end, r.err = 0, n, err
	r.lf = -1
}

func (r *sseReader) disarm() {
	if r.armed {
		r.clock.disarm()
		r.armed = false
	}
}

// step takes at least one byte from the buffer. done: r.event is complete.
func (r *sseReader) step() (done, raw bool, err error) {
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
		done, err = r.stepRaw()
		return done, true, err
	case over:
		r.pos = r.end
		return false, false, nil
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
func (r *sseReader) stepStart(b byte) {
	const mark = "\xEF\xBB\xBF"
	switch {
	case b == mark[r.match]:
		r.pos++
		r.match++
		if r.match == len(mark) {
			r.line, r.match = inField, 0
		}
	case r.match > 0:
		r.line, r.match = ignored, 0 // half a mark belongs to the first line, which then is no data line
	default:
		r.line = inField
	}
}

// stepField looks for "data:" at the start of a line. done: bare JSON begins, the event before it ends here.
func (r *sseReader) stepField(b byte) (done bool) {
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

func (r *sseReader) beginValue() {
	if r.hasData {
		r.event = append(r.event, '\n')
	}
	r.hasData = true
}

// stepLine takes the rest of a line as far as it is in the buffer. done: it was the blank line behind an event.
func (r *sseReader) stepLine() (done bool) {
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

// lineEnd returns the position of the first line end in the buffer. The LF found is remembered, or a stream of
// nothing but CR would be searched anew for every line.
func (r *sseReader) lineEnd() (int, bool) {
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

// stepRaw takes bare JSON until its outermost bracket closes.
func (r *sseReader) stepRaw() (done bool, err error) {
	r.heard = true
	for i, b := range r.buf[r.pos:r.end] {
		if r.raw.closes(b) {
			done = true
			r.event = append(r.event, r.buf[r.pos:r.pos+i+1]...)
			break
		}
	}
	if !done {
		r.event = append(r.event, r.buf[r.pos:r.end]...)
	}
	r.pos = r.end
	if len(r.event) > min(r.limit, maxErrorBytes) {
		return false, errEventTooLarge
	}
	if done {
		r.line = over
	}
	return done, nil
}

// closes takes the next byte and reports whether it closes the outermost bracket.
func (j *rawJSON) closes(b byte) bool {
	switch {
	case j.backslash:
		j.backslash = false
	case j.quoted:
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
