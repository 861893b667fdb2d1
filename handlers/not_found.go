package handlers

import (
	"net/http"
	"strings"
)

// ServeNotFound is the [Handler] of everything that no route serves: every unknown path and method is not_found.
// On the endpoints of the OpenAI standard that this service doesn't have, the text names the one it has.
func ServeNotFound(w http.ResponseWriter, r *http.Request) error {
	EnsureRequestID(w, r)
	return RouteNotFound(r)
}

// RouteNotFound returns the error of a path or method that no route serves: not_found.
func RouteNotFound(r *http.Request) *Error {
	path := r.URL.Path
	rest, isV1 := strings.CutPrefix(path, "/v1/")
	first, _, _ := strings.Cut(rest, "/")
	switch {
	case isV1 && wantsChat(first):
		return NotFound("This endpoint is not supported. Use POST /v1/chat/completions.")
	case path == "/v1/chat/completions":
		return NotFound("Use POST with /v1/chat/completions.")
	case path == ModelsPath || strings.HasPrefix(path, ModelsPath+"/"):
		return NotFound("Use GET with %s.", ModelsPath)
	case isV1:
		return NotFound("There is nothing at this address. /v1 has GET %s and POST /v1/chat/completions.", ModelsPath)
	default:
		return NotFound("There is nothing at this address for this method.")
	}
}

// wantsChat reports whether the endpoint is one whose caller is helped by the name of the chat endpoint.
func wantsChat(endpoint string) bool {
	switch endpoint {
	case "responses", "completions", "embeddings", "assistants", "threads", "images", "edits", "messages":
		return true
	default:
		return false
	}
}
