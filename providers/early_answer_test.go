package providers_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai/openaitest"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

// TestEndedCallReadsNoPrompt guarantees that the memory of a prompt can serve another request once the call has ended: a
// transport that still sends the request, because the vendor answered before it had all of it, gets no further byte.
func TestEndedCallReadsNoPrompt(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]*http.Response{
		"answered": {StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"choices":[{"message":{"content":"early"}}]}`)), ContentLength: -1},
		"refused":  {StatusCode: http.StatusRequestEntityTooLarge, Body: io.NopCloser(strings.NewReader(`{}`)), ContentLength: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sending io.Reader
			p := openaitest.New(t, providers.Config{
				BaseURL: "http://vendor", Timeouts: openaitest.Long,
				Transport: openaitest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					sending = r.Body
					_, err := io.CopyN(io.Discard, r.Body, 1000)
					return answer, err
				}),
			})
			request := openaitest.Ask("", false)
			request.Messages = []providers.Message{{Role: "user", Content: providers.Quote(strings.Repeat("a", 100_000))}}
			_ = providertest.Ask(t, p, request)
			rest, err := io.ReadAll(sending)
			require.Error(t, err)
			require.Empty(t, rest)
		})
	}
}
