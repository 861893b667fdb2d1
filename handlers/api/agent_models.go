package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// agentModelObject is a model that an agent can have, with what a person chooses by (spec §2.1).
type agentModelObject struct {
	ID              string `json:"id"`
	DisplayName     string `json:"displayName"`
	FriendlyName    string `json:"friendlyName"`
	Tier            string `json:"tier"`
	ContextWindow   int64  `json:"contextWindow"   doc:"In tokens"`
	MaxOutputTokens int64  `json:"maxOutputTokens" doc:"The model's own bound of one answer"`
	VNHosted        bool   `json:"vnHosted"        doc:"It runs in the service's home country"`
}

// agentModelsObject is all of them, in the order of the configuration.
type agentModelsObject struct {
	Data []agentModelObject `json:"data"`
}

// registerAgentModels adds what [v1.Models] has under /v1, for those who have a login session and no API key.
func (g *agents) registerAgentModels(s *endpoint.Server) {
	endpoint.Register(s, endpoint.Operation{ID: "listAgentModels", Route: handlers.Route{
		Method: http.MethodGet, Path: "/agents/models", Scope: identity.AgentsRead, Role: handlers.RoleMember,
		Summary: "List the models that an agent can have",
	}}, g.listModels)
}

func (g *agents) listModels(ctx context.Context, principal *identity.Principal, _ *struct{}) (*endpoint.JSON[agentModelsObject], error) {
	exceptions, err := g.DB.Organizations.Models(ctx, principal.OrgID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the organization's models: %w", err))
	}
	models := agentModelsObject{Data: []agentModelObject{}}
	for _, model := range g.Models.Models() {
		if v1.Enabled(exceptions, model.ID) {
			models.Data = append(models.Data, showAgentModel(&model))
		}
	}
	return endpoint.Answer(models), nil
}

func showAgentModel(model *gateway.Model) agentModelObject {
	return agentModelObject{
		ID: model.ID, DisplayName: model.DisplayName, FriendlyName: model.FriendlyName, Tier: model.Tier,
		ContextWindow: model.ContextWindow, MaxOutputTokens: model.MaxOutputTokens, VNHosted: model.VNHosted,
	}
}
