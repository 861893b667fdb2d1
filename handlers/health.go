package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// readyTimeout bounds the check of the store. Probes of load balancers have deadlines of a few seconds.
const readyTimeout = 2 * time.Second

// Pinger checks the store, as [store.DB] does.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Health serves the operator's probes on a private listener. Its bodies are plain JSON objects, without the public contract's errors.
type Health struct {
	Store Pinger
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
	if err := h.Store.Ping(ctx); err != nil {
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
