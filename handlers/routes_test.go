package handlers_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

func TestNotFoundNamesTheChatEndpoint(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/v1/responses", "/v1/responses/abc", "/v1/completions", "/v1/embeddings", "/v1/images/generations", "/v1/assistants",
		"/v1/chat/completions", "/v1/unknown", "/v1/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			a := handlertest.RefusedWith(t, errcode.NotFound, handlers.ServeNotFound, httptest.NewRequest(method, path, nil))
			require.Contains(t, a.Fields["message"], "/v1/chat/completions", path)
			require.Empty(t, a.Header.Get("Access-Control-Allow-Origin"))
		}
	}
}

func TestNotFoundEverywhereElse(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/v2/chat/completions", "/favicon.ico", "/v1", "//v1/responses", "/v1/models", "/v1/models/a"} {
		a := handlertest.RefusedWith(t, errcode.NotFound, handlers.ServeNotFound, handlertest.Get(path))
		require.NotEmpty(t, a.Fields["message"])
	}
	require.NotContains(t, handlertest.RefusedWith(t, errcode.NotFound, handlers.ServeNotFound, handlertest.Get("/SECRET%0d%0a")).Text, "SECRET")
}
