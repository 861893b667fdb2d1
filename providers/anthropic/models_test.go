package anthropic_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/anthropic"
)

// TestListModels guarantees that the list of models is read with the headers of a call, whichever form base_url has.
func TestListModels(t *testing.T) {
	t.Parallel()
	body := `{"data":[{"type":"model","id":"claude-x-1","display_name":"X","created_at":"2026-01-01T00:00:00Z"},{"id":"claude-x-2"}],"has_more":false}`
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.String() != "/v1/models?limit=1000" || r.Header.Get("x-api-key") != "sk-planted" ||
			r.Header.Get("anthropic-version") == "" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(vendor.Close)
	for _, path := range []string{"", "/", "/v1", "/v1/"} {
		made, err := anthropic.Driver{}.New(&providers.Config{BaseURL: vendor.URL + path})
		require.NoError(t, err)
		models, err := made.(providers.Lister).ListModels(t.Context(), "sk-planted")
		require.NoError(t, err, path)
		require.Equal(t, []providers.ListedModel{{Name: "claude-x-1"}, {Name: "claude-x-2"}}, models)
	}
	body = `{"type":"error"}`
	made, err := anthropic.Driver{}.New(&providers.Config{BaseURL: vendor.URL})
	require.NoError(t, err)
	_, err = made.(providers.Lister).ListModels(t.Context(), "sk-planted")
	failed := new(providers.Error)
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "the list of models has an unexpected form", failed.Detail)
}
