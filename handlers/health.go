package handlers

import (
	"context"
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

// Health answers the operator's probes on a private listener. Its bodies are plain JSON objects, not those of the public
// contract.
type Health struct {
	Store Pinger
	// ShuttingDown reports whether this process is about to end; nil means it never is.
	ShuttingDown func() bool
}

// Serve answers paths that end in /live and /ready; others are not_found.
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

// Live answers 200 as long as the process can answer at all.
func (*Health) Live(w http.ResponseWriter, _ *http.Request) error {
	WriteJSON(w, http.StatusOK, []byte(`{"status":"live"}`))
	return nil
}

// Ready answers 200 when this process can serve requests, else 503 with the reason: shutting_down or store. The store's error is
// only logged.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) error {
	if h.ShuttingDown != nil && h.ShuttingDown() {
		WriteJSON(w, http.StatusServiceUnavailable, []byte(`{"status":"unready","reason":"shutting_down"}`))
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := h.Store.Ping(ctx); err != nil {
		WriteJSON(w, http.StatusServiceUnavailable, []byte(`{"status":"unready","reason":"store"}`))
		return nil
	}
	WriteJSON(w, http.StatusOK, []byte(`{"status":"ready"}`))
	return nil
}
