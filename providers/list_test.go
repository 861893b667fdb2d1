package providers_test

import (
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// plainDialect has no list of models.
type plainDialect struct{ providers.Dialect }

// Header implements [providers.Dialect].
func (plainDialect) Header(http.Header, *providers.Request) {}

// listDialect has one at an address.
type listDialect struct{ plainDialect }

// ListEndpoint implements [providers.ListDialect].
func (listDialect) ListEndpoint() *url.URL {
	return &url.URL{Scheme: "https", Host: "acme.example", Path: "/models"}
}

// ReadList implements [providers.ListDialect].
func (listDialect) ReadList([]byte) ([]providers.ListedModel, error) { panic("nothing was read") }

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestListsWithoutAnAnswer guarantees that a dialect without a list is recognized without a request, and that a vendor that hangs is left
// after 30 seconds.
func TestListsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		config := &providers.Config{Transport: transport(func(r *http.Request) (*http.Response, error) {
			asked++
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		_, err := providers.NewHTTP(plainDialect{}, config).ListModels(t.Context(), "")
		require.ErrorIs(t, err, providers.ErrNoList)
		require.Zero(t, asked)
		_, err = providers.NewHTTP(listDialect{}, config).ListModels(t.Context(), "")
		failed := new(providers.Error)
		require.ErrorAs(t, err, &failed)
		require.Equal(t, providers.FailureTimeout, failed.Failure)
		require.EqualError(t, failed.Cause, "no list of models within 30s")
		require.Equal(t, 1, asked)
	})
}
