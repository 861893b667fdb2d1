package providers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newLineReader(src io.Reader, limit int, clock readClock) *eventReader {
	r := newEventReader(src, limit, clock)
	r.line = between
	return r
}

// readObjects returns the objects of a stream and the error that ended it, which is nil at its end.
func readObjects(src io.Reader) (objects []string, err error) {
	r := newLineReader(src, maxEventBytes, nil)
	for {
		data, _, err := r.next()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return objects, err
		}
		objects = append(objects, string(data))
	}
}

var lineSamples = map[string]struct {
	want []string
	err  error
}{
	"":                             {},
	"{\"a\":1}\n{\"b\":[{}]}\n":    {want: []string{`{"a":1}`, `{"b":[{}]}`}},
	"\r\n\r\n{\"a\":1}\r\n\n \t{}": {want: []string{`{"a":1}`, `{}`}},
	`{"a":"}\"]{"}{"b":"\\"}`:      {want: []string{`{"a":"}\"]{"}`, `{"b":"\\"}`}},
	"[{\n  \"a\": 1\n}\n,\r\n{\"b\": {}\n}\n]\n": {want: []string{"{\n  \"a\": 1\n}", "{\"b\": {}\n}"}},
	"{\"a\":\"日本語 👋\"}\n{\"cut":                  {want: []string{`{"a":"日本語 👋"}`}},
	"{}\n{\"cut\":{}":                            {want: []string{`{}`}},
	"{\"a\":\"no end\n{}\n":                      {err: errNoEvent},
	"{}\ndata: {}\n\n":                           {want: []string{`{}`}, err: errNoEvent},
	"<html>":                                     {err: errNoEvent},
	"null\n":                                     {err: errNoEvent},
	"\uFEFF{}":                                   {err: errNoEvent},
}

func TestLines(t *testing.T) {
	t.Parallel()
	for sample, test := range lineSamples {
		check := func(src io.Reader) {
			got, err := readObjects(src)
			require.Equal(t, test.want, got, "%q", sample)
			require.ErrorIs(t, err, test.err, "%q", sample)
		}
		check(iotest.OneByteReader(strings.NewReader(sample)))
		check(iotest.DataErrReader(strings.NewReader(sample)))
		for cut := range len(sample) {
			check(io.MultiReader(strings.NewReader(sample[:cut]), strings.NewReader(sample[cut:])))
		}
	}
	broken := errors.New("reset")
	got, err := readObjects(io.MultiReader(strings.NewReader("{}\n{\"a\""), iotest.ErrReader(broken)))
	require.Equal(t, []string{"{}"}, got)
	require.ErrorIs(t, err, broken)
}

func TestLinesBound(t *testing.T) {
	t.Parallel()
	const limit = 1000
	long := `{"a":"` + strings.Repeat("A", limit-8) + `"}`
	r := newLineReader(strings.NewReader(strings.Repeat("\n", 2*limit)+long+"\n"+long+" "), limit, nil)
	for range 2 {
		data, _, err := r.next()
		require.NoError(t, err)
		require.Equal(t, long, string(data))
	}
	for _, stream := range []string{long[:limit-1] + ` }`, `{"a":"` + strings.Repeat("A", limit), strings.Repeat(`{"a":`, limit)} {
		_, _, err := newLineReader(strings.NewReader(stream), limit, nil).next()
		require.ErrorIs(t, err, errEventTooLarge)
	}
	var sizes []int
	r = newLineReader(strings.NewReader(`{"a":"`+strings.Repeat("A", 2*smallAnswerBytes)+`"}{}`), maxEventBytes, nil)
	r.hold = func(size int) error {
		sizes = append(sizes, size)
		return nil
	}
	for range 2 {
		_, _, err := r.next()
		require.NoError(t, err)
	}
	require.Greater(t, len(sizes), 1)
	require.Zero(t, sizes[len(sizes)-1], "the memory of a large object is given back")
}

// Blank lines keep the connection alive, not the answer.
func TestLinesClock(t *testing.T) {
	t.Parallel()
	log := &clockLog{}
	r := newLineReader(io.MultiReader(
		strings.NewReader("\n"), strings.NewReader(" \r\n"), strings.NewReader(`{"a"`), strings.NewReader(`:1}`+"\n{}\n")), maxEventBytes, log)
	for range 2 {
		_, _, err := r.next()
		require.NoError(t, err)
	}
	require.Equal(t, []string{"arm", "arm", "disarm"}, log.calls)
}

// If the stream is JSON, its objects are those that encoding/json reads, however the bytes come.
func FuzzLines(f *testing.F) {
	for sample := range lineSamples {
		f.Add([]byte(sample), uint16(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		objects, err := readObjects(bytes.NewReader(stream))
		var parts []io.Reader
		for part := range slices.Chunk(stream, int(cut%64)+1) {
			parts = append(parts, bytes.NewReader(part))
		}
		again, errAgain := readObjects(io.MultiReader(parts...))
		require.Equal(t, objects, again)
		require.Equal(t, err, errAgain)

		var want []string
		for lines := json.NewDecoder(bytes.NewReader(stream)); ; {
			var one map[string]json.RawMessage
			var raw json.RawMessage
			if err := lines.Decode(&raw); errors.Is(err, io.EOF) {
				require.Equal(t, want, objects)
				return
			} else if err != nil || json.Unmarshal(raw, &one) != nil || one == nil {
				return // another test's matter: it isn't lines of JSON
			}
			want = append(want, string(raw))
		}
	})
}

// linesDialect sends the model's name and reads {"text":…}, {"end":"stop"} and {"fault":…}.
type linesDialect struct{ JSONLines }

func (linesDialect) Endpoint(*Request) *url.URL          { return &url.URL{Scheme: "http", Host: "vendor"} }
func (linesDialect) Header(http.Header, *Request)        {}
func (linesDialect) Body(req *Request) ([][]byte, error) { return [][]byte{Quote(req.Model)}, nil }
func (linesDialect) Answer([]byte) (Event, error)        { return Event{}, NotAnAnswer("it streams only") }
func (d linesDialect) Stream() StreamReader              { return d }
func (linesDialect) Fault(status int, header http.Header, _ []byte) *Error {
	return StatusError(status, header)
}

func (linesDialect) Event(data []byte) (Piece, error) {
	var line struct {
		Text  json.RawMessage
		End   string
		Fault int
	}
	if err := json.Unmarshal(data, &line); err != nil {
		return Piece{}, NotAnAnswer("no line")
	}
	if line.Fault != 0 {
		return Piece{}, StatusError(line.Fault, nil)
	}
	return Piece{Text: JSONString(line.Text), FinishReason: line.End}, nil
}

// timedBody is a body of parts, each of which comes a time after the part before was read.
type timedBody struct {
	ctx   context.Context //nolint:containedctx // of the request
	pause time.Duration
	parts []string
	open  bool // stays open after the last part
}

func (b *timedBody) Read(p []byte) (int, error) {
	if len(b.parts) == 0 && !b.open {
		return 0, io.EOF
	}
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(b.pause):
	}
	if len(b.parts) == 0 {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	n := copy(p, b.parts[0])
	b.parts = b.parts[1:]
	return n, nil
}

func (b *timedBody) Close() error { return nil }

type bodyOnly struct{ body *timedBody }

func (b bodyOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	b.body.ctx = r.Context()
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: b.body, ContentLength: -1}, nil
}

// A stream of lines has the ends and the timers of every stream.
func TestStreamsOfLines(t *testing.T) {
	t.Parallel()
	const hi, half, end = `{"text":"hi"}` + "\n", `{"text":"h`, `{"end":"length"}` + "\n"
	for name, test := range map[string]struct {
		body   timedBody
		text   string
		finish string
		fails  Failure
		after  time.Duration
	}{
		"whole":                    {body: timedBody{parts: []string{hi + half, `o"}` + "\n" + end}}, text: "hiho", finish: "length"},
		"an array":                 {body: timedBody{parts: []string{"[" + hi, "," + hi + ",", end, "]"}}, text: "hihi", finish: "length"},
		"text after the end":       {body: timedBody{parts: []string{hi, end, hi}}, text: "hihi", finish: "length"},
		"open after the end":       {body: timedBody{parts: []string{hi, end}, open: true}, text: "hi", finish: "length", after: 2 * time.Second},
		"cut":                      {body: timedBody{parts: []string{hi}}, text: "hi", fails: FailureUnreachable},
		"cut in an object":         {body: timedBody{parts: []string{hi + half}}, text: "hi", fails: FailureUnreachable},
		"nothing":                  {fails: FailureRefused},
		"an event":                 {body: timedBody{parts: []string{"data: " + hi + "\n"}}, fails: FailureRefused},
		"a page in the middle":     {body: timedBody{parts: []string{hi + "<html>"}}, text: "hi", fails: FailureRefused},
		"an overload":              {body: timedBody{parts: []string{hi, `{"fault":503}`}}, text: "hi", fails: FailureOverloaded},
		"an overload in an array":  {body: timedBody{parts: []string{`[{"fault":529}]`}}, fails: FailureOverloaded},
		"silent from the start":    {body: timedBody{open: true}, fails: FailureTimeout, after: 60 * time.Second},
		"only blank lines":         {body: timedBody{parts: slices.Repeat([]string{"\n"}, 99), pause: 7 * time.Second}, fails: FailureTimeout, after: 60 * time.Second},
		"a line, then blank lines": {body: timedBody{parts: append([]string{hi}, slices.Repeat([]string{"\n"}, 99)...), pause: 7 * time.Second}, text: "hi", fails: FailureTimeout, after: 67 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				started := time.Now()
				events, err := NewHTTP(linesDialect{}, &Config{Transport: bodyOnly{&test.body}}).Open(t.Context(), &Request{Model: "m", Stream: true})
				var text, finish string
				for err == nil {
					var event Event
					event, err = events.Next()
					text += event.Answer()
					finish += event.FinishReason
				}
				if events != nil {
					events.Close()
				}
				require.Equal(t, test.text, text)
				require.Equal(t, test.finish, finish)
				require.Equal(t, test.after, time.Since(started))
				if test.fails == "" {
					require.ErrorIs(t, err, io.EOF)
					return
				}
				var failure *Error
				require.ErrorAs(t, err, &failure)
				require.Equal(t, test.fails, failure.Failure)
			})
		})
	}
}

// Buffered is true only if the next object is there as a whole.
func TestLinesBuffered(t *testing.T) {
	t.Parallel()
	body := &timedBody{parts: []string{`{"text":"a"}` + "\n" + `{"text":"b"}` + "\n{}\n" + `{"te`, `xt":"c"}` + "\n", `{"end":"stop"}`}}
	events, err := NewHTTP(linesDialect{}, &Config{Transport: bodyOnly{body}}).Open(t.Context(), &Request{Model: "m", Stream: true})
	require.NoError(t, err)
	defer events.Close()
	for _, want := range []struct {
		text string
		more bool
	}{{"a", true}, {"b", false}, {"c", false}} {
		event, err := events.Next()
		require.NoError(t, err)
		require.Equal(t, want.text, event.Answer())
		require.Equal(t, want.more, events.Buffered(), want.text)
	}
	event, err := events.Next()
	require.NoError(t, err)
	require.Equal(t, Event{FinishReason: "stop"}, event)
}
