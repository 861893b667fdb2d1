package providers

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// fullWriter takes room bytes and fails then. It notes whether the memory of the body could be taken back during a write.
type fullWriter struct {
	bytes.Buffer

	body *requestBody
	room int
	free bool
}

var errFull = errors.New("full")

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.body.mu.TryLock() {
		w.free = true
		w.body.mu.Unlock()
	}
	n := min(w.room, len(p))
	w.room -= n
	w.Buffer.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// A connection that takes slices gets those that weren't read, once, and holds them until they are written.
func TestBodyInSlices(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ read, room int }{{0, 100}, {1, 100}, {3, 100}, {4, 100}, {9, 100}, {0, 0}, {2, 3}, {2, 7}} {
		sent := false
		body := &requestBody{parts: [][]byte{[]byte("abc"), []byte("defgh"), []byte("i")}, sent: func() { sent = true }}
		whole := body.parts
		w := &fullWriter{body: body, room: test.room}
		require.EqualValues(t, 9, body.Left())
		_, err := io.CopyN(&w.Buffer, struct{ io.Reader }{body}, int64(test.read))
		require.NoError(t, err)
		require.EqualValues(t, 9-test.read, body.Left())
		n, err := body.WriteTo(w)
		require.Equal(t, "abcdefghi"[:test.read+int(n)], w.String())
		require.EqualValues(t, 9-test.read-int(n), body.Left())
		require.EqualValues(t, min(test.room, 9-test.read), n)
		require.Equal(t, body.Left() == 0, err == nil)
		require.Equal(t, body.Left() == 0, sent)
		require.False(t, w.free)
		require.Nil(t, body.again(), "it may have been sent")
		require.Equal(t, [][]byte{[]byte("abc"), []byte("defgh"), []byte("i")}, whole, "a second try has them all")
		body.takeBack()
		_, err = body.WriteTo(w)
		require.ErrorIs(t, err, errTakenBack)
	}
}
