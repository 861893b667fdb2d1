// Package v1 serves the OpenAI-compatible endpoints: the chat completions, whole and streamed, and the models.
//
// Invariants:
//   - A chat request is validated whole before the gateway is called; decoding takes time linear in the body, and the contents
//     of the messages stay slices of it.
//   - A stream that fails before there was text for the client is an ordinary error with its own status; a later failure is one
//     error event, without anything that would make the answer look complete.
//
// It does not call vendors, count money or keep idempotency keys: [Gateway] does.
package v1

import (
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Routes lists the routes of this package, whose handlers are [Models] and [Chat].
func Routes() []handlers.Route {
	return []handlers.Route{
		{
			Method: http.MethodGet, Path: "/v1/models", Scope: identity.ModelsRead, TestKeys: true,
			Summary: "List the models that are enabled for the organization",
		},
		{Method: http.MethodGet, Path: "/v1/models/{id}", Scope: identity.ModelsRead, TestKeys: true, Summary: "Get one model"},
		{Method: http.MethodPost, Path: "/v1/chat/completions", Scope: identity.ChatWrite, TestKeys: true, Summary: "Ask a model"},
	}
}
