package providers_test

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

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
	"github.com/caddy-svc/caddy-svc/providers/providertest/openaitest"
)

// A text that ends in half a pair has U+FFFD there, and a stream of nothing but its terminator is an empty answer.
func TestOddEnds(t *testing.T) {
	t.Parallel()
	openaitest.EachVersion(t, openaitest.Long, func(t *testing.T, v openaitest.Vendor) {
		came := providertest.Ask(t, v, openaitest.Ask("half-pair", true))
		require.NoError(t, came.Err)
		require.Equal(t, "Hello \uFFFD", came.Text)
		require.Equal(t, "stop", came.FinishReason)
	})
	require.Equal(t, providertest.Answer{FinishReason: "stop"}, providertest.Ask(t, openaitest.BodyOf(t, "data: [DONE]\n\n"), openaitest.Ask("ok", true)))
}

// Neither Next nor Close waits behind [DONE]. A connection that the vendor leaves open is cut.
func TestNothingIsWaitedForAfterDone(t *testing.T) {
	t.Parallel()
	body := &unending{Reader: strings.NewReader(`data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\ndata: [DONE]\n\n")}
	var prompt io.Reader
	p := openaitest.New(t, providers.Config{BaseURL: "http://vendor", Timeouts: openaitest.Long, Transport: openaitest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		body.ctx, prompt = r.Context(), r.Body
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body, ContentLength: -1}, nil
	})})
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		body.closed = make(chan struct{})
		came := providertest.Ask(t, p, openaitest.Ask("ok", true))
		require.Equal(t, providertest.Answer{Text: "x", FinishReason: "stop"}, came)
		require.Zero(t, time.Since(started))
		_, err := prompt.Read(make([]byte, 1))
		require.ErrorIs(t, err, providers.ErrTakenBack, "the prompt's memory belongs to the caller again")
		<-body.closed
		require.Equal(t, providers.DrainWait, time.Since(started))
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
func TestConnections(t *testing.T) {
	t.Parallel()
	v := openaitest.StartVendor(t, 1, openaitest.Long)
	dials := countDials(v.HTTP)
	streamed := func(name string) {
		events, err := v.Open(t.Context(), openaitest.Ask(name, true))
		require.NoError(t, err)
		require.NoError(t, providertest.Read(t, events).Err)
		events.Close()
		<-providers.Done(events) // the end of the body was read beside
	}
	for range 5 {
		streamed("ok")
		require.NoError(t, providertest.Ask(t, v, openaitest.Ask("ok", false)).Err)
		require.Error(t, providertest.Ask(t, v, openaitest.Ask("429", false)).Err)
		require.Error(t, providertest.Ask(t, v, openaitest.Ask("401;body=html", true)).Err)
		streamed("gzip")
	}
	require.EqualValues(t, 1, dials.Load(), "one connection for calls one after the other")
}

// A vendor's redirect could lead into the operator's own network, with the prompt and the key. It is an error like any other.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		redirects := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/latest/meta-data", status))
		t.Cleanup(redirects.Close)
		p := openaitest.New(t, providers.Config{BaseURL: redirects.URL, Timeouts: openaitest.Long})
		for _, stream := range []bool{true, false} {
			e := requireFailure(t, providertest.Ask(t, p, openaitest.Ask("ok", stream)).Err, providers.FailureRefused)
			require.Equal(t, status, e.Status)
			require.True(t, e.Permanent, "another try meets the same address")
		}
	}
	require.Zero(t, asked.Load())
}

// A vendor's words are masked wherever it says them: they may quote the key.
func TestWordsAreMasked(t *testing.T) {
	t.Parallel()
	const words = `{"error":{"message":"no: operators-word,\nsk-upstream-secret-1234"}}`
	for name, test := range map[string]struct {
		stream bool
		status int
		body   string
	}{
		"a refusal": {false, 401, words}, "an answer": {false, 200, words}, "a stream": {true, 200, "data: " + words + "\n\n"},
	} {
		p := openaitest.New(t, providers.Config{BaseURL: "http://vendor", Timeouts: openaitest.Long, Transport: openaitest.RoundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: test.status, Body: io.NopCloser(strings.NewReader(test.body)), ContentLength: -1}, nil
		})})
		req := openaitest.Ask("ok", test.stream)
		req.APIKey = "operators-word"
		require.Equal(t, "no: [masked], [masked]", requireFailure(t, providertest.Ask(t, p, req).Err, providers.FailureRefused).Detail, name)
	}
}

// A vendor's answer is bounded after decompression, so a small body can't fill the memory. The rest is not even read.
func TestGzipBomb(t *testing.T) {
	t.Parallel()
	const mebibytes = providers.MaxStreamBytes>>20 + 4
	for name, test := range map[string]struct {
		stream bool
		status int
		begins string
		plain  string // repeated, to mebibytes
		most   int    // mebibytes that may be read, the buffers' included
		want   providers.Failure
		says   string
	}{
		"a whole answer":  {false, 200, "", " ", providers.MaxAnswerBytes>>20 + 2, providers.FailureRefused, providers.ErrAnswerTooLarge.Error()},
		"an event":        {true, 200, "data: ", "x", providers.MaxEventBytes>>20 + 2, providers.FailureRefused, providers.ErrEventTooLarge.Error()},
		"a stream":        {true, 200, ":", "x", providers.MaxStreamBytes>>20 + 2, providers.FailureRefused, providers.ErrAnswerTooLarge.Error()},
		"a refusal":       {true, 400, "", "x", 2, providers.FailureRefused, ""},
		"a whole refusal": {false, 500, "", "x", 2, providers.FailureRefused, ""},
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
			body := &chunked{slices.Repeat([]string{zipped(strings.Repeat(test.plain, 1<<20))}, mebibytes)}
			body.parts = slices.Insert(body.parts, 0, zipped(test.begins))
			p := openaitest.New(t, providers.Config{BaseURL: "http://vendor", Timeouts: openaitest.Long, Transport: openaitest.RoundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: test.status, Header: http.Header{"Content-Encoding": {"gzip"}}, Body: body, ContentLength: -1}, nil
			})})
			e := requireFailure(t, providertest.Ask(t, p, openaitest.Ask("ok", test.stream)).Err, test.want)
			if test.says != "" {
				require.ErrorContains(t, e.Cause, test.says)
			}
			require.LessOrEqual(t, 1+mebibytes-len(body.parts), test.most)
		})
	}
}
