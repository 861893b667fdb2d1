package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// agents serves /agents and the playground of each agent.
type agents struct{ *Deps }

func (g *agents) register(s *endpoint.Server) {
	route := func(method, path string, scope identity.Scope, summary string) handlers.Route {
		return handlers.Route{Method: method, Path: path, Scope: scope, Role: handlers.RoleMember, Summary: summary}
	}
	const all, one = "/agents", "/agents/{id}"
	endpoint.Register(s, endpoint.Operation{ID: "createAgent", Route: route(http.MethodPost, all, identity.AgentsWrite, "Create an agent")}, g.create)
	endpoint.Register(s, endpoint.Operation{ID: "listAgents", Route: route(http.MethodGet, all, identity.AgentsRead, "List the agents, oldest first")}, g.list)
	g.registerAgentModels(s)
	endpoint.Register(s, endpoint.Operation{ID: "getAgent", Route: route(http.MethodGet, one, identity.AgentsRead, "Get an agent")}, g.get)
	endpoint.Register(s, endpoint.Operation{ID: "updateAgent", Route: route(http.MethodPatch, one, identity.AgentsWrite, "Change an agent")}, g.update)
	endpoint.Register(s, endpoint.Operation{ID: "deleteAgent", Route: route(http.MethodDelete, one, identity.AgentsWrite,
		"Delete an agent; its channels have no agent then")}, g.remove)
	g.registerPlayground(s)
}

func (g *agents) create(
	ctx context.Context, principal *identity.Principal, in *struct{ Body agentCreation },
) (*endpoint.JSON[agentObject], error) {
	agent := store.Agent{ID: store.NewID("agt"), OrgID: principal.OrgID, CreatedAt: g.Now().UnixMilli()}
	agent.UpdatedAt = agent.CreatedAt
	if err := in.Body.change().apply(&agent); err != nil {
		return nil, err
	}
	if err := g.checkModel(ctx, principal, agent.Model); err != nil {
		return nil, err
	}
	if err := g.checkKnowledgeBases(ctx, principal, agent.KnowledgeBaseIDs); err != nil {
		return nil, err
	}
	if err := g.DB.Agents.Create(ctx, principal.Actor(), agent); err != nil {
		return nil, agentConflict(err, handlers.Internal(fmt.Errorf("creating an agent: %w", err)))
	}
	return endpoint.Answer(showAgent(&agent)), nil
}

func (g *agents) list(
	ctx context.Context, principal *identity.Principal, in *struct{ endpoint.PageQuery },
) (*endpoint.JSON[endpoint.ListObject[agentObject]], error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	agents, err := g.DB.Agents.List(ctx, principal.OrgID, page)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("listing agents: %w", err))
	}
	return endpoint.Listed(in.PageQuery, agents, func(row *store.Agent) string { return row.ID }, showAgent), nil
}

func (g *agents) get(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[agentObject], error) {
	agent, err := g.DB.Agents.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedAgents, in.ID, err)
	}
	return endpoint.Answer(showAgent(&agent)), nil
}

type agentUpdate struct {
	endpoint.PathID

	Body AgentChange
}

// update changes what the body names, and nothing that somebody else changes at the same time.
func (g *agents) update(ctx context.Context, principal *identity.Principal, in *agentUpdate) (*endpoint.JSON[agentObject], error) {
	agent, err := g.DB.Agents.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedAgents, in.ID, err)
	}
	if err := in.Body.apply(&agent); err != nil {
		return nil, err
	}
	// An agent may keep a model that was taken away; it can be changed all the same.
	if in.Body.Model != nil {
		if err := g.checkModel(ctx, principal, agent.Model); err != nil {
			return nil, err
		}
	}
	if err := g.checkKnowledgeBases(ctx, principal, in.Body.KnowledgeBaseIDs); err != nil {
		return nil, err
	}
	err = g.DB.Agents.Update(ctx, principal.Actor(), principal.OrgID, in.ID, in.Body.apply)
	if refused, ok := errors.AsType[*handlers.Error](err); ok { // together with what was changed since
		return nil, refused
	}
	if err != nil {
		return nil, agentConflict(err, g.refuse(ctx, principal, store.OwnedAgents, in.ID, err))
	}
	return g.get(ctx, principal, &in.PathID)
}

func (g *agents) remove(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	if err := g.DB.Agents.Delete(ctx, principal.Actor(), principal.OrgID, in.ID); err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedAgents, in.ID, err)
	}
	return &endpoint.Empty{}, nil
}

// checkModel refuses a model that the organization can't call (spec §7.2 unsupported_model).
func (g *agents) checkModel(ctx context.Context, principal *identity.Principal, model string) error {
	unsupported := &handlers.Error{
		Code: errcode.UnsupportedModel, Field: "model",
		Message: "The model does not exist or is not enabled for the organization. GET " + handlers.ModelsPath + " lists those that are.",
	}
	if _, ok := g.Models.Model(model); !ok {
		return unsupported
	}
	if !principal.HasOrgModels {
		return nil
	}
	exceptions, err := g.DB.Organizations.Models(ctx, principal.OrgID)
	if err != nil {
		return handlers.Internal(fmt.Errorf("reading the organization's models: %w", err))
	}
	if !v1.Enabled(exceptions, model) {
		return unsupported
	}
	return nil
}

// agentConflict is the answer to a name that is taken, or to a knowledge base that is gone since checkKnowledgeBases, or
// otherwise.
func agentConflict(err, otherwise error) error {
	if errors.Is(err, store.ErrKnowledgeBaseNotFound) {
		return unknownKnowledgeBase()
	}
	if errors.Is(err, store.ErrConflict) {
		return &handlers.Error{Code: errcode.Conflict, Message: "The organization has an agent with this name already.", Cause: err}
	}
	return otherwise
}

// checkKnowledgeBases refuses knowledge bases that an agent of the organization can't know.
func (g *agents) checkKnowledgeBases(ctx context.Context, principal *identity.Principal, ids []string) error {
	for _, id := range ids {
		if !handlers.WellFormedID(id) {
			return unknownKnowledgeBase()
		}
		_, err := g.DB.KnowledgeBases.ByID(ctx, principal.OrgID, id)
		if err == nil {
			continue
		}
		err = g.refuse(ctx, principal, store.OwnedKnowledgeBases, id, err)
		if handlers.AsError(err).Code == errcode.NotFound {
			return unknownKnowledgeBase()
		}
		return err
	}
	return nil
}

func unknownKnowledgeBase() *handlers.Error {
	return handlers.InvalidRequest("knowledgeBaseIds", "There is no knowledge base with one of these ids.")
}
