package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// MaxDocumentBody is the largest body that POST …/documents reads: a document of 4 MiB with every second byte escaped.
	MaxDocumentBody = 2 * knowledge.MaxDocumentBytes
	// ingestRetryAfter is told to clients who come while as many documents are being ingested as may be.
	ingestRetryAfter = 5 * time.Second
)

func (a *API) registerDocuments() {
	const all, one = "/knowledge-bases/{id}/documents", "/knowledge-bases/{id}/documents/{docId}"
	register(a, operation{id: "createDocument", maxBody: MaxDocumentBody, Route: Route{
		Method: http.MethodPost, Path: all, Scope: identity.KnowledgeBasesWrite, Role: RoleMember,
		Summary: "Add a document; a large one is ingested in the background",
	}}, a.createDocument)
	register(a, operation{id: "listDocuments", Route: Route{
		Method: http.MethodGet, Path: all, Scope: identity.KnowledgeBasesRead, Role: RoleMember,
		Summary: "List the documents of a knowledge base, oldest first",
	}}, a.listDocuments)
	register(a, operation{id: "getDocument", Route: Route{
		Method: http.MethodGet, Path: one, Scope: identity.KnowledgeBasesRead, Role: RoleMember,
		Summary: "Get a document, and how far its ingestion is",
	}}, a.getDocument)
	register(a, operation{id: "deleteDocument", Route: Route{
		Method: http.MethodDelete, Path: one, Scope: identity.KnowledgeBasesWrite, Role: RoleMember, Summary: "Delete a document",
	}}, a.deleteDocument)
}

// DocumentPath names a document in a path. It is exported for the framework, see [PathID].
type DocumentPath struct {
	PathID

	DocumentID string `path:"docId"`
}

type documentUpload struct {
	PathID

	Body documentCreation
}

func (a *API) createDocument(ctx context.Context, caller *identity.Principal, in *documentUpload) (*jsonBody[documentObject], error) {
	name, err := identity.CleanName("name", in.Body.Name)
	if err != nil {
		return nil, badField(err)
	}
	document, err := a.Knowledge.Ingest(ctx, caller.Actor(), knowledge.Upload{
		OrgID: caller.OrgID, KnowledgeBaseID: in.ID, Name: name, MediaType: knowledge.MediaType(in.Body.MediaType),
		Content: in.Body.Content,
	}, a.Plans.KnowledgeLimit(caller.Plan))
	if err != nil {
		return nil, documentRefusal(err, func() error { return a.refuse(ctx, caller, store.OwnedKnowledgeBases, in.ID, err) })
	}
	return &jsonBody[documentObject]{showDocument(&document)}, nil
}

// documentRefusal is the answer to what knowledge refuses about an upload, or otherwise.
func documentRefusal(err error, otherwise func() error) error {
	switch {
	case errors.Is(err, knowledge.ErrMediaType):
		return InvalidRequest("mediaType", "mediaType must be text/plain, text/markdown or text/html.")
	case errors.Is(err, knowledge.ErrTooLarge):
		return InvalidRequest("content", "content must have at most %d bytes.", knowledge.MaxDocumentBytes)
	case errors.Is(err, knowledge.ErrNoText):
		return InvalidRequest("content", "content has no text that could be found.")
	case errors.Is(err, knowledge.ErrBusy):
		return Busy(ingestRetryAfter, err)
	case errors.Is(err, store.ErrLimit):
		return &Error{
			Code: errcode.PlanLimitExceeded, Cause: err,
			Message: "The organization's documents would have more bytes than its plan allows, or more than " +
				strconv.Itoa(store.MaxDocuments) + " documents.",
		}
	case errors.Is(err, store.ErrConflict):
		return &Error{Code: errcode.Conflict, Message: "The knowledge base has a document with this name already.", Cause: err}
	default:
		return otherwise()
	}
}

type documentList struct {
	PathID
	PageQuery
}

func (a *API) listDocuments(
	ctx context.Context, caller *identity.Principal, in *documentList,
) (*jsonBody[listObject[documentObject]], error) {
	page, err := in.page()
	if err != nil {
		return nil, err
	}
	if _, err := a.DB.KnowledgeBases.ByID(ctx, caller.OrgID, in.ID); err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedKnowledgeBases, in.ID, err)
	}
	documents, err := a.Knowledge.Documents(ctx, caller.OrgID, in.ID, page)
	if err != nil {
		return nil, Internal(fmt.Errorf("listing documents: %w", err))
	}
	return listed(in.PageQuery, documents, func(row *store.Document) string { return row.ID }, showDocument), nil
}

func (a *API) getDocument(ctx context.Context, caller *identity.Principal, in *DocumentPath) (*jsonBody[documentObject], error) {
	if !wellFormedID(in.DocumentID) {
		return nil, a.refuseDocument(ctx, caller, in, store.ErrNotFound)
	}
	document, err := a.Knowledge.Document(ctx, caller.OrgID, in.ID, in.DocumentID)
	if err != nil {
		return nil, a.refuseDocument(ctx, caller, in, err)
	}
	return &jsonBody[documentObject]{showDocument(&document)}, nil
}

func (a *API) deleteDocument(ctx context.Context, caller *identity.Principal, in *DocumentPath) (*noBody, error) {
	if !wellFormedID(in.DocumentID) {
		return nil, a.refuseDocument(ctx, caller, in, store.ErrNotFound)
	}
	if err := a.Knowledge.DeleteDocument(ctx, caller.Actor(), caller.OrgID, in.ID, in.DocumentID); err != nil {
		return nil, a.refuseDocument(ctx, caller, in, err)
	}
	return &noBody{}, nil
}

// refuseDocument answers for a document that isn't in the knowledge base, which may itself be unknown or another
// organization's.
func (a *API) refuseDocument(ctx context.Context, caller *identity.Principal, in *DocumentPath, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return Internal(fmt.Errorf("document %s: %w", in.DocumentID, err))
	}
	if _, err := a.DB.KnowledgeBases.ByID(ctx, caller.OrgID, in.ID); err != nil {
		return a.refuse(ctx, caller, store.OwnedKnowledgeBases, in.ID, err)
	}
	if !wellFormedID(in.DocumentID) {
		return NotFound("There is no document with this id.")
	}
	return a.refuse(ctx, caller, store.OwnedDocuments, in.DocumentID, err)
}
