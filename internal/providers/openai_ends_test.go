package providers

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
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

// A vendor's redirect could lead into the operator's own network, with the prompt and the key. It is an error like any other.
func TestOpenAIRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		redirects := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/latest/meta-data", status))
		t.Cleanup(redirects.Close)
		p := NewOpenAI(OpenAIConfig{BaseURL: redirects.URL, Timeouts: long})
		for _, stream := range []bool{true, false} {
			e := requireFailure(t, call1(t, p, scenario("ok", stream)).err, FailureRefused)
			require.Equal(t, status, e.Status)
			require.True(t, e.Permanent, "another try meets the same address")
		}
	}
	require.Zero(t, asked.Load())
}

// A vendor's answer is bounded after decompression, so a small body can't fill the memory. The rest is not even read.
func TestOpenAIGzipBomb(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stream bool
		status int
		begins string
		plain  string // repeated, to 256 MiB
		most   int    // mebibytes that may be read, the buffers' included
		want   Failure
		says   string
	}{
		"a whole answer":  {false, 200, "", " ", maxAnswerBytes>>20 + 2, FailureRefused, errAnswerTooLarge.Error()},
		"an event":        {true, 200, "data: ", "x", maxEventBytes>>20 + 2, FailureRefused, errEventTooLarge.Error()},
		"a refusal":       {true, 400, "", "x", 2, FailureRefused, ""},
		"a whole refusal": {false, 500, "", "x", 2, FailureRefused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zipped := func(text string) string {
				var member bytes.Buffer
				writer := gzip.NewWriter(&member)
				_, err := io.WriteString(writer, text)
				require.NoError(t, err)
				require.NoError(t, writer.Close())
				return member.String()
			}
			body := &chunked{slices.Repeat([]string{zipped(strings.Repeat(test.plain, 1<<20))}, 256)}
			body.parts = slices.Insert(body.parts, 0, zipped(test.begins))
			p := NewOpenAI(OpenAIConfig{BaseURL: "http://vendor", Timeouts: long, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: test.status, Header: http.Header{"Content-Encoding": {"gzip"}}, Body: body, ContentLength: -1}, nil
			})})
			e := requireFailure(t, call1(t, p, scenario("ok", test.stream)).err, test.want)
			if test.says != "" {
				require.ErrorContains(t, e.Cause, test.says)
			}
			require.LessOrEqual(t, 257-len(body.parts), test.most)
		})
	}
}
