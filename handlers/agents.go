package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func (a *API) registerAgents() {
	route := func(method, path string, scope identity.Scope, summary string) Route {
		return Route{Method: method, Path: path, Scope: scope, Role: RoleMember, Summary: summary}
	}
	const all, one = "/agents", "/agents/{id}"
	register(a, operation{id: "createAgent", Route: route(http.MethodPost, all, identity.AgentsWrite, "Create an agent")}, a.createAgent)
	register(a, operation{id: "listAgents", Route: route(http.MethodGet, all, identity.AgentsRead, "List the agents, oldest first")}, a.listAgents)
	a.registerAgentModels()
	register(a, operation{id: "getAgent", Route: route(http.MethodGet, one, identity.AgentsRead, "Get an agent")}, a.getAgent)
	register(a, operation{id: "updateAgent", Route: route(http.MethodPatch, one, identity.AgentsWrite, "Change an agent")}, a.updateAgent)
	register(a, operation{id: "deleteAgent", Route: route(http.MethodDelete, one, identity.AgentsWrite,
		"Delete an agent; its channels have no agent then")}, a.deleteAgent)
}

func (a *API) createAgent(
	ctx context.Context, caller *identity.Principal, in *struct{ Body agentCreation },
) (*jsonBody[agentObject], error) {
	agent := store.Agent{ID: store.NewID("agt"), OrgID: caller.OrgID, CreatedAt: a.Now().UnixMilli()}
	agent.UpdatedAt = agent.CreatedAt
	if err := in.Body.change().apply(&agent); err != nil {
		return nil, err
	}
	if err := a.checkModel(ctx, caller, agent.Model); err != nil {
		return nil, err
	}
	if err := a.checkKnowledgeBases(ctx, caller, agent.KnowledgeBaseIDs); err != nil {
		return nil, err
	}
	if err := a.DB.Agents.Create(ctx, caller.Actor(), agent); err != nil {
		return nil, agentConflict(err, Internal(fmt.Errorf("creating an agent: %w", err)))
	}
	return &jsonBody[agentObject]{showAgent(&agent)}, nil
}

func (a *API) listAgents(
	ctx context.Context, caller *identity.Principal, in *struct{ PageQuery },
) (*jsonBody[listObject[agentObject]], error) {
	page, err := in.page()
	if err != nil {
		return nil, err
	}
	agents, err := a.DB.Agents.List(ctx, caller.OrgID, page)
	if err != nil {
		return nil, Internal(fmt.Errorf("listing agents: %w", err))
	}
	return listed(in.PageQuery, agents, func(row *store.Agent) string { return row.ID }, showAgent), nil
}

func (a *API) getAgent(ctx context.Context, caller *identity.Principal, in *PathID) (*jsonBody[agentObject], error) {
	agent, err := a.DB.Agents.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedAgents, in.ID, err)
	}
	return &jsonBody[agentObject]{showAgent(&agent)}, nil
}

type agentUpdate struct {
	PathID

	Body AgentChange
}

// updateAgent changes what the body names, and nothing that somebody else changes at the same time.
func (a *API) updateAgent(ctx context.Context, caller *identity.Principal, in *agentUpdate) (*jsonBody[agentObject], error) {
	agent, err := a.DB.Agents.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedAgents, in.ID, err)
	}
	if err := in.Body.apply(&agent); err != nil {
		return nil, err
	}
	// An agent may keep a model that was taken away; it can be changed all the same.
	if in.Body.Model != nil {
		if err := a.checkModel(ctx, caller, agent.Model); err != nil {
			return nil, err
		}
	}
	if err := a.checkKnowledgeBases(ctx, caller, in.Body.KnowledgeBaseIDs); err != nil {
		return nil, err
	}
	err = a.DB.Agents.Update(ctx, caller.Actor(), caller.OrgID, in.ID, in.Body.apply)
	if refused, ok := errors.AsType[*Error](err); ok { // together with what was changed since
		return nil, refused
	}
	if err != nil {
		return nil, agentConflict(err, a.refuse(ctx, caller, store.OwnedAgents, in.ID, err))
	}
	return a.getAgent(ctx, caller, &in.PathID)
}

func (a *API) deleteAgent(ctx context.Context, caller *identity.Principal, in *PathID) (*noBody, error) {
	if err := a.DB.Agents.Delete(ctx, caller.Actor(), caller.OrgID, in.ID); err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedAgents, in.ID, err)
	}
	return &noBody{}, nil
}

// checkModel refuses a model that the organization can't call (spec §7.2 unsupported_model).
func (a *API) checkModel(ctx context.Context, caller *identity.Principal, model string) error {
	unsupported := &Error{
		Code: errcode.UnsupportedModel, Field: "model",
		Message: "The model does not exist or is not enabled for the organization. GET " + modelsPath + " lists those that are.",
	}
	if _, ok := a.Models.Model(model); !ok {
		return unsupported
	}
	if !caller.HasOrgModels {
		return nil
	}
	exceptions, err := a.DB.Organizations.Models(ctx, caller.OrgID)
	if err != nil {
		return Internal(fmt.Errorf("reading the organization's models: %w", err))
	}
	if !enabled(exceptions, model) {
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
		return &Error{Code: errcode.Conflict, Message: "The organization has an agent with this name already.", Cause: err}
	}
	return otherwise
}
