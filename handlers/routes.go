// Package handlers has what all HTTP handlers of the service share: the error contract, request ids, credentials, rate limits,
// bodies and the writing of answers. The handlers themselves are in its folders: v1, api, webhook, widget and openapi.
//
// A [Handler] returns its error, and [WriteError] alone writes errors. The order of the checks on /v1 is: key 401 → suspended
// 402 → scope 403 → rate 429 → body 400.
//
// The endpoint groups are operations of package endpoint, built on the huma framework. Each declares its scope and role, which
// one middleware checks for API keys and login sessions ([Sessions]) before the request's body is read. Answers are camelCase
// JSON with times in RFC 3339 (UTC, milliseconds). In a request null is the same as absent; in a PATCH it removes an optional
// value (an agent's maxTokens and temperature, a channel's agentId).
//
// Invariants:
//   - Every error has the body of docs/contract.md with one of its 22 codes and that code's status, and the same request id in
//     the body and in X-Request-Id. Causes are for logs and never reach a client.
//   - A fault of the service is internal_error: a failure of the store is never a 401, 404 or 429.
//   - A request body is bounded in bytes, depth and elements before anything looks at it, and is read in linear time.
//   - 429 and 503 carry a whole number of seconds, at least 1, twice: in the body and in Retry-After.
//
// It imports nothing of Caddy, money or model vendors, and keeps no state but the counters of [ByteBudget].
package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Role is the role of a person in an organization.
type Role = identity.Role

// The roles. Each has all rights of the previous one.
const (
	RoleMember        = identity.Member
	RoleAdministrator = identity.Administrator
	RoleOwner         = identity.Owner
)

// ModelsPath is the path of the list of models, and the prefix of a model's path.
const ModelsPath = "/v1/models"

// Route is one address of the service, with the scope and the role that it requires.
type Route struct {
	Method string
	// Path has the names of its variable segments in braces, as in /agents/{id}.
	Path string
	// Scope is required of an API key; empty where keys are not accepted: /members, /audit-log and /session are for users, and
	// /webhooks check a signature.
	Scope identity.Scope
	// Role is the least role of a login session; empty where sessions are not accepted (/v1, /webhooks).
	Role Role
	// OperatorScope is required of an operator of the service. Empty means that only the command line may use the route for an organization.
	OperatorScope identity.OperatorScope
	// TestKeys: a key of the test environment may use the route. Such a route changes only test data, or reads neither customers' messages nor the
	// credentials of other systems. Any other route refuses test keys.
	TestKeys bool
	// Public routes require no credentials.
	Public bool
	// Summary is one line for the interface description.
	Summary string
}

// ServeNotFound is the [Handler] of unknown paths and methods: not_found. For endpoints of the OpenAI API that this service
// lacks, the text names the supported one.
func ServeNotFound(w http.ResponseWriter, r *http.Request) error {
	EnsureRequestID(w, r)
	return RouteNotFound(r)
}

// RouteNotFound returns the error of a path or method that no route serves: not_found.
func RouteNotFound(r *http.Request) *Error {
	path := r.URL.Path
	rest, isV1 := strings.CutPrefix(path, "/v1/")
	first, _, _ := strings.Cut(rest, "/")
	// OpenAI's endpoints that the chat endpoint replaces.
	replaced := []string{"responses", "completions", "embeddings", "assistants", "threads", "images", "edits", "messages"}
	switch {
	case isV1 && slices.Contains(replaced, first):
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

// readyTimeout bounds the check of the store. Probes of load balancers have deadlines of a few seconds.
const readyTimeout = 2 * time.Second

// Health serves the operator's probes on a private listener. Its bodies are plain JSON objects, without the public contract's errors.
type Health struct {
	// Ping checks the store, as [store.DB] does.
	Ping func(ctx context.Context) error
	// ShuttingDown reports whether this process is about to end; nil means it never is.
	ShuttingDown func() bool
	// Version is the program's, for the bodies.
	Version string
}

// Serve serves paths that end in /live and /ready. Others are not_found.
func (h *Health) Serve(w http.ResponseWriter, r *http.Request) error {
	EnsureRequestID(w, r)
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
	case strings.HasSuffix(r.URL.Path, "/live"):
		return h.Live(w, r)
	case strings.HasSuffix(r.URL.Path, "/ready"):
		return h.Ready(w, r)
	}
	return RouteNotFound(r)
}

// Live returns 200 as long as the process can answer at all.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) error {
	h.write(w, http.StatusOK, probeAnswer{Status: "live"})
	return nil
}

// Ready returns 200 if this process can serve requests, else 503 with the reason: shutting_down or store. The store's error is only logged.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) error {
	if h.ShuttingDown != nil && h.ShuttingDown() {
		h.write(w, http.StatusServiceUnavailable, probeAnswer{Status: "unready", Reason: "shutting_down"})
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := h.Ping(ctx); err != nil {
		h.write(w, http.StatusServiceUnavailable, probeAnswer{Status: "unready", Reason: "store"})
		return nil
	}
	h.write(w, http.StatusOK, probeAnswer{Status: "ready"})
	return nil
}

// probeAnswer is the body of a probe.
type probeAnswer struct {
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Version string `json:"version,omitempty"`
}

func (h *Health) write(w http.ResponseWriter, status int, answer probeAnswer) {
	answer.Version = h.Version
	body, _ := json.Marshal(answer) //nolint:errcheck,errchkjson // texts only
	WriteJSON(w, status, body)
}
