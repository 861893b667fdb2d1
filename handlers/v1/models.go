package v1

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
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
	models     []gateway.Model
	rendered   [][]byte
	position   map[string]int
	// all is the list of an organization without exceptions, nil if a model is closed to some keys.
	all []byte
}

// NewModels renders the models of a configuration.
func NewModels(list ModelList, exceptions ModelExceptions) *Models {
	m := &Models{exceptions: exceptions, models: list.Models(), position: make(map[string]int)}
	for i, model := range m.models {
		m.position[model.ID] = i
		m.rendered = append(m.rendered, handlers.Marshal(ModelObject{
			ID: model.ID, Object: "model", Created: model.Created, OwnedBy: model.OwnedBy,
			DisplayName: model.DisplayName, FriendlyName: model.FriendlyName, Tier: model.Tier,
			ContextWindow: model.ContextWindow, VNHosted: model.VNHosted,
		}))
	}
	if !slices.ContainsFunc(m.models, func(model gateway.Model) bool { return model.LiveOnly }) {
		m.all = m.list(nil, &identity.Principal{})
	}
	return m
}

// Serve serves a request that [handlers.Auth] has admitted. Query parameters are ignored. Unknown and disabled models, other paths and other
// methods are not_found.
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
		if len(exceptions) > 0 || principal.KeyModels.Valid || text == nil {
			text = m.list(exceptions, &principal)
		}
		handlers.WriteJSON(w, http.StatusOK, text)
		return nil
	}
	// The id contains a slash, which clients send plain or as %2F; the path is decoded in both cases.
	i, ok := m.position[rest[1:]]
	if !ok || !m.models[i].Enabled(exceptions, principal.Env, principal.KeyModels) {
		return handlers.NotFound("The model does not exist or is not enabled for the organization. GET %s lists those that are.", handlers.ModelsPath)
	}
	handlers.WriteJSON(w, http.StatusOK, m.rendered[i])
	return nil
}

// list renders the list of the enabled models.
func (m *Models) list(exceptions map[string]bool, principal *identity.Principal) []byte {
	text := []byte(`{"object":"list","data":[`)
	comma := false
	for i := range m.models {
		if !m.models[i].Enabled(exceptions, principal.Env, principal.KeyModels) {
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
