package v1

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// deadlineWriter records the write deadlines of a connection.
type deadlineWriter struct {
	*httptest.ResponseRecorder

	deadlines []time.Time
}

func (w *deadlineWriter) SetWriteDeadline(deadline time.Time) error {
	w.deadlines = append(w.deadlines, deadline)
	return nil
}

// A client has at least 25 s to read each write, a long stream gets a new deadline from time to time, and the next answer on the
// same connection has none of its deadlines.
func TestStreamHasWriteDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		stream := NewChunkWriter(w, new(http.Request))
		began := time.Now()
		require.NoError(t, stream.Begin(gateway.Head{ID: "chatcmpl-1", Model: "m"}))
		require.Empty(t, w.deadlines)
		for range 12 {
			require.NoError(t, stream.Text("x"))
			require.NoError(t, stream.Flush())
			time.Sleep(time.Second) //nolint:forbidigo // the fake clock
		}
		stream.Free()
		require.Equal(t, []time.Time{
			began.Add(writeTimeout), began.Add(deadlineEvery + writeTimeout), began.Add(2*deadlineEvery + writeTimeout), {},
		}, w.deadlines)
	})
}

// A stream that never wrote leaves the connection as it was.
func TestUnwrittenStreamSetsNoDeadline(t *testing.T) {
	t.Parallel()
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	NewChunkWriter(w, new(http.Request)).Free()
	require.Empty(t, w.deadlines)
}

// A large piece that comes quoted is written without a copy: a client that reads slowly holds nothing of it here.
func TestLargePieceIsNotCopied(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, largePiece - 3, largePiece, 10 * largePiece} {
		text := strings.Repeat("x", size)
		copied, passed := httptest.NewRecorder(), httptest.NewRecorder()
		for w, write := range map[*httptest.ResponseRecorder]func(*ChunkWriter) error{
			copied: func(c *ChunkWriter) error { return c.Text(text) },
			passed: func(c *ChunkWriter) error { return c.Quoted(providers.Quote(text)) },
		} {
			stream := NewChunkWriter(w, new(http.Request))
			stream.pending = new([]byte)
			require.NoError(t, stream.Begin(gateway.Head{ID: "chatcmpl-1", Model: "m"}))
			require.NoError(t, write(stream))
			require.NoError(t, stream.Text("end"))
			require.NoError(t, stream.Flush())
			if w == passed {
				require.Less(t, cap(*stream.pending), 2*largePiece)
			}
			stream.Free()
		}
		require.Equal(t, copied.Body.String(), passed.Body.String())
		require.Equal(t, copied.Header(), passed.Header())
	}
}
