package v1

import (
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Routes lists the routes of this package.
func Routes() []handlers.Route {
	return []handlers.Route{
		{Method: http.MethodGet, Path: "/v1/models", Scope: identity.ModelsRead, Summary: "List the models that are enabled for the organization"},
		{Method: http.MethodGet, Path: "/v1/models/{id}", Scope: identity.ModelsRead, Summary: "Get one model"},
		{Method: http.MethodPost, Path: "/v1/chat/completions", Scope: identity.ChatWrite, Summary: "Ask a model"},
	}
}
