package openaitest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
)

// OperatorKey is the key in the requests of [Ask].
const OperatorKey = "sk-operator-key-1"

// Long is for the limits that a test doesn't want to meet.
var Long = providers.Timeouts{
	Connect: time.Minute, FirstByte: time.Minute, Idle: time.Minute, Response: time.Minute, MaxDuration: time.Minute,
}

// Vendor is a provider before a scripted upstream.
type Vendor struct {
	*Upstream
	*providers.HTTP
}

// New returns the adapter for a configuration.
func New(t testing.TB, config providers.Config) *providers.HTTP {
	t.Helper()
	p, err := openai.Driver{}.New(&config)
	require.NoError(t, err)
	return p.(*providers.HTTP)
}

// StartVendor starts an upstream with HTTP/1.1 or, as version 2, with HTTP/2, and a provider before it.
func StartVendor(t testing.TB, version int, timeouts providers.Timeouts) Vendor {
	t.Helper()
	config := providers.Config{Timeouts: timeouts, FinishGrace: 2 * time.Second}
	var u *Upstream
	if version == 2 {
		var transport *http.Transport
		u, config.BaseURL, transport = StartHTTP2(t)
		config.Transport = transport
	} else {
		u, config.BaseURL = Start(t)
		transport := &http.Transport{MaxIdleConnsPerHost: 16}
		t.Cleanup(transport.CloseIdleConnections)
		config.Transport = transport
	}
	return Vendor{Upstream: u, HTTP: New(t, config)}
}

// EachVersion runs a test over HTTP/1.1 and HTTP/2.
func EachVersion(t *testing.T, timeouts providers.Timeouts, f func(t *testing.T, v Vendor)) {
	t.Helper()
	for version, name := range map[int]string{1: "h1", 2: "h2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, StartVendor(t, version, timeouts))
		})
	}
}

// Ask returns a request for a scenario.
func Ask(name string, stream bool) *providers.Request {
	return &providers.Request{
		Model:     "vendor-model",
		Messages:  []providers.Message{{Role: "user", Content: providers.Quote("scenario:" + name)}},
		MaxTokens: 100,
		Stream:    stream,
		APIKey:    OperatorKey,
	}
}

// RoundTripper is a transport that is a function.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// BodyOf returns a provider whose vendor answers every request with a body that comes in the given reads.
func BodyOf(t testing.TB, parts ...string) *providers.HTTP {
	t.Helper()
	return New(t, providers.Config{BaseURL: "http://vendor", Timeouts: Long, Transport: RoundTripper(func(*http.Request) (*http.Response, error) {
		var body []io.Reader
		for _, part := range parts {
			body = append(body, strings.NewReader(part))
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(io.MultiReader(body...)), ContentLength: -1}, nil
	})})
}
