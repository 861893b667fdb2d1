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

func (a *API) registerKnowledgeBases() {
	read := func(path, summary string) Route {
		return Route{Method: http.MethodGet, Path: path, Scope: identity.KnowledgeBasesRead, Role: RoleMember, Summary: summary}
	}
	write := func(method, path, summary string) Route {
		return Route{Method: method, Path: path, Scope: identity.KnowledgeBasesWrite, Role: RoleMember, Summary: summary}
	}
	const all, one = "/knowledge-bases", "/knowledge-bases/{id}"
	register(a, operation{id: "createKnowledgeBase", Route: write(http.MethodPost, all, "Create a knowledge base")}, a.createKnowledgeBase)
	register(a, operation{id: "listKnowledgeBases", Route: read(all, "List the knowledge bases, oldest first")}, a.listKnowledgeBases)
	register(a, operation{id: "getKnowledgeBase", Route: read(one, "Get a knowledge base")}, a.getKnowledgeBase)
	register(a, operation{id: "updateKnowledgeBase", Route: write(http.MethodPatch, one, "Change a knowledge base")}, a.updateKnowledgeBase)
	register(a, operation{id: "deleteKnowledgeBase", Route: write(http.MethodDelete, one,
		"Delete a knowledge base with its documents; its agents don't know it then")}, a.deleteKnowledgeBase)
	register(a, operation{id: "searchKnowledgeBase", Route: read(one+"/search",
		"Find the parts of its documents that an agent would be shown for a text")}, a.searchKnowledgeBase)
	a.registerDocuments()
}

func (a *API) createKnowledgeBase(
	ctx context.Context, caller *identity.Principal, in *struct{ Body knowledgeBaseCreation },
) (*jsonBody[knowledgeBaseObject], error) {
	name, err := identity.CleanName("name", in.Body.Name)
	if err != nil {
		return nil, badField(err)
	}
	base := store.KnowledgeBase{
		ID: store.NewID("kb"), OrgID: caller.OrgID, Name: name, Description: in.Body.Description, CreatedAt: a.Now().UnixMilli(),
	}
	base.UpdatedAt = base.CreatedAt
	if err := a.DB.KnowledgeBases.Create(ctx, caller.Actor(), base); err != nil {
		return nil, knowledgeBaseConflict(err, Internal(fmt.Errorf("creating a knowledge base: %w", err)))
	}
	return &jsonBody[knowledgeBaseObject]{showKnowledgeBase(&base)}, nil
}

func (a *API) listKnowledgeBases(
	ctx context.Context, caller *identity.Principal, in *struct{ PageQuery },
) (*jsonBody[listObject[knowledgeBaseObject]], error) {
	page, err := in.page()
	if err != nil {
		return nil, err
	}
	bases, err := a.DB.KnowledgeBases.List(ctx, caller.OrgID, page)
	if err != nil {
		return nil, Internal(fmt.Errorf("listing knowledge bases: %w", err))
	}
	return listed(in.PageQuery, bases, func(row *store.KnowledgeBase) string { return row.ID }, showKnowledgeBase), nil
}

func (a *API) getKnowledgeBase(ctx context.Context, caller *identity.Principal, in *PathID) (*jsonBody[knowledgeBaseObject], error) {
	base, err := a.DB.KnowledgeBases.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedKnowledgeBases, in.ID, err)
	}
	return &jsonBody[knowledgeBaseObject]{showKnowledgeBase(&base)}, nil
}

type knowledgeBaseUpdate struct {
	PathID

	Body knowledgeBaseChange
}

func (a *API) updateKnowledgeBase(
	ctx context.Context, caller *identity.Principal, in *knowledgeBaseUpdate,
) (*jsonBody[knowledgeBaseObject], error) {
	change := store.KnowledgeBaseChange{Description: in.Body.Description}
	if in.Body.Name != nil {
		name, err := identity.CleanName("name", *in.Body.Name)
		if err != nil {
			return nil, badField(err)
		}
		change.Name = &name
	}
	if err := a.DB.KnowledgeBases.Update(ctx, caller.Actor(), caller.OrgID, in.ID, change); err != nil {
		return nil, knowledgeBaseConflict(err, a.refuse(ctx, caller, store.OwnedKnowledgeBases, in.ID, err))
	}
	return a.getKnowledgeBase(ctx, caller, &in.PathID)
}

func (a *API) deleteKnowledgeBase(ctx context.Context, caller *identity.Principal, in *PathID) (*noBody, error) {
	if err := a.Knowledge.DeleteBase(ctx, caller.Actor(), caller.OrgID, in.ID); err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedKnowledgeBases, in.ID, err)
	}
	return &noBody{}, nil
}

type knowledgeSearch struct {
	PathID

	Query string `query:"q"     required:"true" minLength:"1" maxLength:"2000" doc:"What a customer might say"`
	Limit int    `query:"limit" minimum:"1" maximum:"50" default:"6" doc:"How many parts are wanted at most"`
}

func (a *API) searchKnowledgeBase(
	ctx context.Context, caller *identity.Principal, in *knowledgeSearch,
) (*jsonBody[snippetsObject], error) {
	if _, err := a.DB.KnowledgeBases.ByID(ctx, caller.OrgID, in.ID); err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedKnowledgeBases, in.ID, err)
	}
	snippets, err := a.Knowledge.Search(ctx, caller.OrgID, []string{in.ID}, in.Query, in.Limit)
	if err != nil {
		return nil, Internal(err)
	}
	found := snippetsObject{Data: make([]snippetObject, len(snippets))}
	for i := range snippets {
		found.Data[i] = showSnippet(&snippets[i])
	}
	return &jsonBody[snippetsObject]{found}, nil
}

// checkKnowledgeBases refuses knowledge bases that an agent of the organization can't know.
func (a *API) checkKnowledgeBases(ctx context.Context, caller *identity.Principal, ids []string) error {
	for _, id := range ids {
		if !wellFormedID(id) {
			return unknownKnowledgeBase()
		}
		_, err := a.DB.KnowledgeBases.ByID(ctx, caller.OrgID, id)
		if err == nil {
			continue
		}
		err = a.refuse(ctx, caller, store.OwnedKnowledgeBases, id, err)
		if asError(err).Code == errcode.NotFound {
			return unknownKnowledgeBase()
		}
		return err
	}
	return nil
}

func unknownKnowledgeBase() *Error {
	return InvalidRequest("knowledgeBaseIds", "There is no knowledge base with one of these ids.")
}

// knowledgeBaseConflict is the answer to a name that is taken, or otherwise.
func knowledgeBaseConflict(err, otherwise error) error {
	if errors.Is(err, store.ErrConflict) {
		return &Error{Code: errcode.Conflict, Message: "The organization has a knowledge base with this name already.", Cause: err}
	}
	return otherwise
}
