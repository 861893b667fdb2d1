package anthropic

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/providers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roundTripper is a transport that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// vendor returns the adapter for a vendor that answers with the response of a function.
func vendor(t testing.TB, options map[string]string, answer func(r *http.Request) (status int, body string)) providers.Provider {
	t.Helper()
	p, err := Driver{}.New(&providers.Config{
		BaseURL: "https://vendor.example", Options: options,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			status, body := answer(r)
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}, nil
		}),
	})
	require.NoError(t, err)
	return p
}

// says returns the adapter for a vendor that answers every request with a body.
func says(t testing.TB, body string) providers.Provider {
	t.Helper()
	return vendor(t, nil, func(*http.Request) (int, string) { return http.StatusOK, body })
}
