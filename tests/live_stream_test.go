package tests

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// liveStream is a stream that the test reads while it runs.
type liveStream struct {
	response *http.Response
	reader   *bufio.Reader
	// seen is what next has read.
	seen strings.Builder
	// abort cuts the connection, as a client that goes away does.
	abort context.CancelFunc
}

// openStream sends a call and returns once the head of the answer is there, which must be a stream.
func openStream(t testing.TB, c *client, body string, headers ...string) *liveStream {
	t.Helper()
	live, err := c.stream(body, headers...)
	require.NoError(t, err)
	t.Cleanup(live.abort)
	require.Equal(t, http.StatusOK, live.response.StatusCode)
	return live
}

// stream is openStream for any goroutine; the caller calls abort.
func (c *client) stream(body string, headers ...string) (*liveStream, error) {
	ctx, abort := context.WithTimeout(context.Background(), 2*time.Minute)
	r, err := c.request(ctx, http.MethodPost, chatPath, strings.NewReader(body), headers...)
	if err != nil {
		abort()
		return nil, err
	}
	response, err := c.http.Do(r)
	if err != nil {
		abort()
		return nil, err
	}
	return &liveStream{response: response, reader: bufio.NewReader(response.Body), abort: func() {
		abort()
		_ = response.Body.Close()
	}}, nil
}

// next is the next event's data, without waiting for more than that.
func (s *liveStream) next() (string, error) {
	for {
		line, err := s.reader.ReadString('\n')
		if err != nil {
			return "", err
		}
		s.seen.WriteString(line)
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return strings.TrimSuffix(data, "\n"), nil
		}
	}
}

// readUntil reads events up to one with a text.
func (s *liveStream) readUntil(t testing.TB, text string) {
	t.Helper()
	for {
		event, err := s.next()
		require.NoError(t, err, "while waiting for %s", text)
		if strings.Contains(event, text) {
			return
		}
	}
}

// whole reads the stream to its end and returns it from its first event, as an answer. Events were read before.
func (s *liveStream) whole() answer {
	a := s.rest()
	a.Body = []byte(s.seen.String() + "\n" + string(a.Body))
	return a
}

// rest reads the stream from the next event to its end, as an answer.
func (s *liveStream) rest() answer {
	var text strings.Builder
	_, err := s.reader.WriteTo(&text)
	return answer{Status: s.response.StatusCode, Header: s.response.Header, Body: []byte(strings.TrimPrefix(text.String(), "\n")), Broken: err}
}
