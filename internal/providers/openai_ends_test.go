package providers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A text that ends in half a pair has U+FFFD there, and a stream of nothing but its terminator is an empty answer.
func TestOpenAIOddEnds(t *testing.T) {
	t.Parallel()
	eachVersion(t, long, func(t *testing.T, v vendor) {
		came := call1(t, v, scenario("half-pair", true))
		require.NoError(t, came.err)
		require.Equal(t, "Hello \uFFFD", came.text)
		require.Equal(t, "stop", came.finish)
	})
	require.Equal(t, whatCame{finish: "stop"}, call1(t, bodyOf("data: [DONE]\n\n"), scenario("ok", true)))
}

// Neither Next nor Close waits behind [DONE]. A connection that the vendor leaves open is cut.
func TestOpenAINothingIsWaitedForAfterDone(t *testing.T) {
	t.Parallel()
	body := &unending{Reader: strings.NewReader(`data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\ndata: [DONE]\n\n")}
	var prompt io.Reader
	p := NewOpenAI(OpenAIConfig{BaseURL: "http://vendor", Timeouts: long, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		body.ctx, prompt = r.Context(), r.Body
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body, ContentLength: -1}, nil
	})})
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		body.closed = make(chan struct{})
		came := call1(t, p, scenario("ok", true))
		require.Equal(t, whatCame{text: "x", finish: "stop"}, came)
		require.Zero(t, time.Since(started))
		_, err := prompt.Read(make([]byte, 1))
		require.ErrorIs(t, err, errTakenBack, "the prompt's memory belongs to the caller again")
		<-body.closed
		require.Equal(t, drainWait, time.Since(started))
	})
}

// unending is a body that stays open after its last byte.
type unending struct {
	io.Reader
	ctx    context.Context //nolint:containedctx // of the request
	closed chan struct{}
}

func (u *unending) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

func (u *unending) Close() error {
	close(u.closed)
	return nil
}

// Closing the answer early ends the vendor's work; a complete one leaves the connection for the next call.
func TestOpenAIConnections(t *testing.T) {
	t.Parallel()
	v := startVendor(t, 1, long)
	dials := countDials(v.OpenAI)
	streamed := func(name string) {
		events, err := v.Open(t.Context(), scenario(name, true))
		require.NoError(t, err)
		require.NoError(t, readOut(t, events).err)
		events.Close()
		<-events.(*stream).ctx.Done() // the end of the body was read beside
	}
	for range 5 {
		streamed("ok")
		require.NoError(t, call1(t, v, scenario("ok", false)).err)
		require.Error(t, call1(t, v, scenario("429", false)).err)
		require.Error(t, call1(t, v, scenario("401;body=html", true)).err)
		streamed("gzip")
	}
	require.EqualValues(t, 1, dials.Load(), "one connection for calls one after the other")
}
