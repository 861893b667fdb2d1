package providers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// plainEvents is the obvious parser: everything in memory, line by line. Bare JSON is marked by a leading "!".
func plainEvents(stream string) (events []string) {
	stream = strings.TrimPrefix(stream, "\uFEFF")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	var data []string
	dispatch := func() {
		if data != nil {
			events = append(events, strings.Join(data, "\n"))
		}
		data = nil
	}
	lines := strings.SplitSeq(stream, "\n")
	for line := range lines {
		name, value, _ := strings.Cut(line, ":")
		switch {
		case strings.HasPrefix(line, "{"), strings.HasPrefix(line, "["):
			dispatch()
			return append(events, "!") // what follows is compared by its own test
		case name == "data":
			data = append(data, strings.TrimPrefix(value, " "))
		case line == "":
			dispatch()
		}
	}
	dispatch()
	return events
}

// readEvents reads the same with the reader.
func readEvents(t *testing.T, src io.Reader) (events []string) {
	t.Helper()
	r := newEventReader(src, maxEventBytes, nil)
	for {
		data, raw, err := r.next()
		if errors.Is(err, io.EOF) {
			return events
		}
		require.NoError(t, err)
		if raw {
			events = append(events, "!")
			continue
		}
		events = append(events, string(data))
	}
}

var sseSamples = []string{
	"data: a\n\ndata: b\n\n",
	"data: a\r\n\r\ndata: b\r\n\r\n",
	"data: a\r\rdata: b\r\r",
	"data: a\r\ndata: b\r\n\r\n",
	"data: 0\r\n\r\nevent: a\r\ndata: b\r\n\r\ndata: c\r\n\ndata: d\n\r\ndata: e\r\r\n\r\ndata: \r\n\r\nevent: g\r\ndata: f\r\n",
	"data: a\rdata: b\r\r",
	"data: a\n\ndata: b\rdata: c\n\n",
	"data:a\n\ndata:  two spaces\n\n",
	"\uFEFFdata: a\n\n",
	"\xEF\xBBdata: a\n\ndata: b\n\n",
	": comment\n\n: ping\ndata: a\nevent: message\nid: 1\nretry: 100\n\n",
	"data: 0\n\nevent: message\ndata: a\n\nevent: ping\ndata: b\n\nevent: \n\ndata: c\n\n",
	"data: 0\n\nevent: a\rdata: b\n\nevent: z\rdata: z\ndata: y\n\nevent: c\ndata: d\r\n\r\nevent: e\ndata: f\ndata: g\n\n",
	"data: 0\n\nevent: a\nevent: b\ndata: c\n\nevent: d",
	"data: a\ndata: b\ndata\ndata:\n\n",
	"data\n\n",
	"data:\n\n",
	"dat\ndatabase: x\n\ndata : no\n\n",
	"data: xin chào 👋🏽 日本語\n\n",
	"data: no blank line",
	"data: no blank line\n",
	"data",
	"data:",
	"\n\n\r\r\n\n",
	"data: a\n{\"error\":1}",
	"data: a\n\n[{\"error\":{\"code\":503}}]\n",
	" {\"x\":1}\n\ndata: a\n\n",
	"",
}

func TestSSEReader(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"a\nb\n\n"}, readEvents(t, strings.NewReader("data: a\ndata: b\ndata\ndata:\n\n")))
	require.Equal(t, []string{" two spaces", "x"}, readEvents(t, strings.NewReader("data:  two spaces\n\ndata:x")))
	for _, sample := range sseSamples {
		want := plainEvents(sample)
		require.Equal(t, want, readEvents(t, strings.NewReader(sample)), "%q", sample)
		require.Equal(t, want, readEvents(t, iotest.OneByteReader(strings.NewReader(sample))), "%q byte by byte", sample)
		require.Equal(t, want, readEvents(t, iotest.DataErrReader(strings.NewReader(sample))), "%q with an early EOF", sample)
		for cut := range len(sample) {
			src := io.MultiReader(strings.NewReader(sample[:cut]), strings.NewReader(sample[cut:]))
			require.Equal(t, want, readEvents(t, src), "%q cut at %d", sample, cut)
		}
	}
}

func TestSSEReaderReturnsBareJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ stream, want string }{
		{`{"error":{"code":503}}`, `{"error":{"code":503}}`},
		{"data: a\n\n{\"a\":\"}\\\"]\"}\n\ndata: later\n\n", `{"a":"}\"]"}`},
		{"data: a\n[{\n  \"error\": {}\n}]\n", "[{\n  \"error\": {}\n}]"},
		{`{"cut`, `{"cut`},
	} {
		for cut := range len(test.stream) {
			// The end of the stream is not needed to know that the JSON is complete.
			tail := io.Reader(strings.NewReader(""))
			if test.want[len(test.want)-1] == '}' || test.want[len(test.want)-1] == ']' {
				tail = iotest.ErrReader(errors.New("read beyond the JSON"))
			}
			r := newEventReader(io.MultiReader(strings.NewReader(test.stream[:cut]), strings.NewReader(test.stream[cut:]), tail), maxEventBytes, nil)
			data, raw, err := r.next()
			if !raw {
				require.NoError(t, err)
				require.Equal(t, "a", string(data))
				data, raw, err = r.next()
			}
			require.NoError(t, err)
			require.True(t, raw)
			require.Equal(t, test.want, string(data), "cut at %d", cut)
		}
	}
}

func TestSSEReaderLongLines(t *testing.T) {
	t.Parallel()
	for _, size := range []int{64 << 10, 1 << 20, 8 << 20} {
		long := strings.Repeat("A", size)
		got := readEvents(t, strings.NewReader("data: "+long+"\n\ndata: next\n\n"))
		require.Len(t, got, 2)
		require.Equal(t, got[0], long)
		require.Equal(t, "next", got[1])
	}
	r := newEventReader(strings.NewReader(": "+strings.Repeat("c", 1<<20)+"\ndata: x\n\n"), 10, nil)
	data, _, err := r.next()
	require.NoError(t, err, "a comment has no limit, it isn't kept")
	require.Equal(t, "x", string(data))
}

func TestSSEReaderLimit(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for name, stream := range map[string]string{
		"one line":   "data: " + strings.Repeat("A", limit+1) + "\n\n",
		"many lines": strings.Repeat("data: AAAA\n", limit) + "\n",
		"empty":      strings.Repeat("data\n", limit+2) + "\n",
		"bare":       `{"` + strings.Repeat("A", limit) + `"}`,
		"unending":   "data: " + strings.Repeat("A", limit+1),
	} {
		_, _, err := newEventReader(strings.NewReader(stream), limit, nil).next()
		require.ErrorIs(t, err, errEventTooLarge, name)
	}
	data, _, err := newEventReader(strings.NewReader("data: "+strings.Repeat("A", limit)+"\n\n"), limit, nil).next()
	require.NoError(t, err)
	require.Len(t, data, limit)
}

func TestSSEReaderDropsAnUnfinishedEventOfABrokenStream(t *testing.T) {
	t.Parallel()
	broken := errors.New("reset")
	r := newEventReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), maxEventBytes, nil)
	data, _, err := r.next()
	require.NoError(t, err)
	require.Equal(t, "a", string(data))
	_, _, err = r.next()
	require.ErrorIs(t, err, broken)
}

func TestSSEReaderAhead(t *testing.T) {
	t.Parallel()
	src, w := io.Pipe()
	r := newEventReader(src, maxEventBytes, nil)
	go func() { _, _ = io.WriteString(w, "data: a\n\ndata: b\n\ndata: c") }()
	data, _, err := r.next()
	require.NoError(t, err)
	require.Equal(t, "a", string(data))
	data, _, ok, err := r.ahead()
	require.True(t, ok)
	require.NoError(t, err)
	require.Equal(t, "b", string(data))
	_, _, ok, err = r.ahead()
	require.False(t, ok)
	require.NoError(t, err)
	go func() { _, _ = io.WriteString(w, "d\n\n"); w.Close() }()
	data, _, err = r.next()
	require.NoError(t, err)
	require.Equal(t, "cd", string(data), "what was looked at is not lost")
	_, _, err = r.next()
	require.ErrorIs(t, err, io.EOF)
}

// clockLog writes down when a reader waits.
type clockLog struct{ calls []string }

func (c *clockLog) arm()    { c.calls = append(c.calls, "arm") }
func (c *clockLog) disarm() { c.calls = append(c.calls, "disarm") }

func TestSSEReaderClock(t *testing.T) {
	t.Parallel()
	log := &clockLog{}
	src := io.MultiReader(
		strings.NewReader(": ping\n\n"), strings.NewReader(": ping\n\n"), // two reads that are no answer
		strings.NewReader("da"), strings.NewReader("ta: a"), strings.NewReader("b\n\ndata: c\n\n"))
	r := newEventReader(src, maxEventBytes, log)
	_, _, err := r.next()
	require.NoError(t, err)
	require.Equal(t, []string{"arm", "arm", "disarm"}, log.calls, "once for all comments, once more after bytes of the event")
	_, _, err = r.next()
	require.NoError(t, err)
	require.Len(t, log.calls, 3, "no wait for what is at hand")
}

func FuzzSSEReader(f *testing.F) {
	for _, sample := range sseSamples {
		f.Add([]byte(sample), uint16(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		want := plainEvents(string(stream))
		require.Equal(t, want, readEvents(t, bytes.NewReader(stream)))
		var parts []io.Reader
		for part := range slices.Chunk(stream, int(cut%64)+1) {
			parts = append(parts, bytes.NewReader(part))
		}
		require.Equal(t, want, readEvents(t, io.MultiReader(parts...)), fmt.Sprint(cut))
	})
}
