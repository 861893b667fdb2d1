package v1

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// ModelList lists the models of a configuration, as [gateway.Catalog] does.
type ModelList interface {
	// Models returns all models, in the order in which they are listed.
	Models() []gateway.Model
}

// ModelExceptions returns which models an organization has switched on or off, as [store.Organizations] does. A model without an
// exception is enabled.
type ModelExceptions interface {
	Models(ctx context.Context, orgID string) (map[string]bool, error)
}

// ModelObject is a model as /v1/models shows it.
type ModelObject struct {
	ID            string `json:"id"`
	Object        string `json:"object"`
	Created       int64  `json:"created"`
	OwnedBy       string `json:"owned_by"`
	DisplayName   string `json:"display_name"`
	FriendlyName  string `json:"friendly_name"`
	Tier          string `json:"tier"`
	ContextWindow int64  `json:"context_window"`
	VNHosted      bool   `json:"vn_hosted"`
}

// Models serves GET /v1/models and GET /v1/models/{id}. Each model is rendered once; the list of an organization
// with exceptions is put together for each request.
type Models struct {
	exceptions ModelExceptions
	ids        []string
	rendered   [][]byte
	position   map[string]int
	all        []byte
}

// NewModels renders the models of a configuration.
func NewModels(list ModelList, exceptions ModelExceptions) *Models {
	m := &Models{exceptions: exceptions, position: make(map[string]int)}
	for i, model := range list.Models() {
		m.ids = append(m.ids, model.ID)
		m.position[model.ID] = i
		m.rendered = append(m.rendered, handlers.Marshal(ModelObject{
			ID: model.ID, Object: "model", Created: model.Created, OwnedBy: model.OwnedBy,
			DisplayName: model.DisplayName, FriendlyName: model.FriendlyName, Tier: model.Tier,
			ContextWindow: model.ContextWindow, VNHosted: model.VNHosted,
		}))
	}
	m.all = m.list(nil)
	return m
}

// Serve answers a request that [handlers.Auth] has admitted. Query parameters are ignored. Unknown and disabled models, other paths
// and other methods are not_found.
func (m *Models) Serve(w http.ResponseWriter, r *http.Request) error {
	handlers.EnsureRequestID(w, r)
	rest, ok := strings.CutPrefix(r.URL.Path, handlers.ModelsPath)
	if r.Method != http.MethodGet || !ok || (rest != "" && rest[0] != '/') {
		return handlers.RouteNotFound(r)
	}
	principal, err := handlers.RequirePrincipal(r)
	if err != nil {
		return err
	}
	exceptions, err := m.exceptions.Models(r.Context(), principal.OrgID)
	if err != nil {
		return handlers.Internal(fmt.Errorf("reading the organization's models: %w", err))
	}
	if rest == "" {
		text := m.all
		if len(exceptions) > 0 {
			text = m.list(exceptions)
		}
		handlers.WriteJSON(w, http.StatusOK, text)
		return nil
	}
	// The id contains a slash, which clients send plain or as %2F; the path is decoded in both cases.
	i, ok := m.position[rest[1:]]
	if !ok || !Enabled(exceptions, m.ids[i]) {
		return handlers.NotFound("The model does not exist or is not enabled for the organization. GET %s lists those that are.", handlers.ModelsPath)
	}
	handlers.WriteJSON(w, http.StatusOK, m.rendered[i])
	return nil
}

// list renders the list without the models that are switched off.
func (m *Models) list(exceptions map[string]bool) []byte {
	text := []byte(`{"object":"list","data":[`)
	comma := false
	for i, id := range m.ids {
		if !Enabled(exceptions, id) {
			continue
		}
		if comma {
			text = append(text, ',')
		}
		text = append(text, m.rendered[i]...)
		comma = true
	}
	return append(text, "]}"...)
}

// Enabled reports whether a model is enabled, given the models for which an organization has an exception: every model is,
// unless an exception switches it off.
func Enabled(exceptions map[string]bool, id string) bool {
	on, exception := exceptions[id]
	return on || !exception
}
