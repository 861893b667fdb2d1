package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// MaxDocumentBody is the largest body that POST …/documents reads: a document of 4 MiB with every second byte escaped.
	MaxDocumentBody = 2 * knowledge.MaxDocumentBytes
	// knowledgeRetryAfter is the Retry-After when too many documents are being ingested, or searches run.
	knowledgeRetryAfter = 5 * time.Second
)

type documents struct{ *Deps }

func (g *documents) register(s *endpoint.Server) {
	const all, one = "/knowledge-bases/{id}/documents", "/knowledge-bases/{id}/documents/{docId}"
	const read, write = identity.KnowledgeBasesRead, identity.KnowledgeBasesWrite
	members := operations{s, handlers.RoleMember}
	endpoint.Register(s, endpoint.Operation{ID: "createDocument", MaxBody: MaxDocumentBody, Route: members.route(http.MethodPost, all, write,
		"Add a document; a large one is ingested in the background")}, g.create)
	addForTestKeys(members, "listDocuments", http.MethodGet, all, read, "List the documents of a knowledge base, oldest first", g.list)
	addForTestKeys(members, "getDocument", http.MethodGet, one, read, "Get a document, and how far its ingestion is", g.get)
	add(members, "deleteDocument", http.MethodDelete, one, write, "Delete a document", g.remove)
}

// DocumentPath names a document in a path. It is exported for the framework, see [endpoint.PathID].
type DocumentPath struct {
	endpoint.PathID

	DocumentID string `path:"docId"`
}

func (g *documents) create(
	ctx context.Context, principal *identity.Principal, in *idAndBody[documentCreation],
) (*endpoint.JSON[documentObject], error) {
	name, err := identity.CleanName("name", in.Body.Name)
	if err != nil {
		return nil, handlers.BadField(err)
	}
	document, err := g.Knowledge.Ingest(ctx, principal.Actor(), knowledge.Upload{
		OrgID: principal.OrgID, KnowledgeBaseID: in.ID, Name: name, MediaType: knowledge.MediaType(in.Body.MediaType),
		Content: in.Body.Content,
	}, g.Plans.KnowledgeLimit(principal.Plan))
	if err != nil {
		return nil, documentRefusal(err, func() error { return g.refuse(ctx, principal, store.OwnedKnowledgeBases, in.ID, err) })
	}
	return endpoint.Answer(showDocument(&document)), nil
}

// documentRefusal returns the public form of an error of an upload, or otherwise for any other error.
func documentRefusal(err error, otherwise func() error) error {
	switch {
	case errors.Is(err, knowledge.ErrMediaType):
		return handlers.InvalidRequest("mediaType", "mediaType must be text/plain, text/markdown or text/html.")
	case errors.Is(err, knowledge.ErrTooLarge):
		return handlers.InvalidRequest("content", "content must have at most %d bytes.", knowledge.MaxDocumentBytes)
	case errors.Is(err, knowledge.ErrNoText):
		return handlers.InvalidRequest("content", "content has no text that could be found.")
	case errors.Is(err, knowledge.ErrSlow):
		return handlers.InvalidRequest("content", "content takes too long to read. Make several documents of it.")
	case errors.Is(err, knowledge.ErrBusy):
		return knowledgeBusy(err, "Too many documents are being read at this moment. Retry shortly.")
	case errors.Is(err, store.ErrLimit):
		return &handlers.Error{
			Code: errcode.PlanLimitExceeded, Cause: err,
			Message: "The organization's documents would have more bytes than its plan allows, or more than " +
				strconv.Itoa(store.MaxDocuments) + " documents.",
		}
	case errors.Is(err, store.ErrConflict):
		return &handlers.Error{Code: errcode.Conflict, Message: "The knowledge base has a document with this name already.", Cause: err}
	default:
		return otherwise()
	}
}

// knowledgeBusy is the refusal of work that found no place in time.
func knowledgeBusy(cause error, message string) error {
	return &handlers.Error{Code: errcode.RateLimited, RetryAfter: knowledgeRetryAfter, Message: message, Cause: cause}
}

type documentList struct {
	endpoint.PathID
	endpoint.PageQuery
}

func (g *documents) list(
	ctx context.Context, principal *identity.Principal, in *documentList,
) (*endpoint.JSON[endpoint.ListObject[documentObject]], error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	if _, err := g.DB.KnowledgeBases.ByID(ctx, principal.OrgID, in.ID); err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedKnowledgeBases, in.ID, err)
	}
	documents, err := g.Knowledge.Documents(ctx, principal.OrgID, in.ID, page)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("listing documents: %w", err))
	}
	return endpoint.Listed(in.PageQuery, documents, func(row *store.Document) string { return row.ID }, showDocument), nil
}

func (g *documents) get(ctx context.Context, principal *identity.Principal, in *DocumentPath) (*endpoint.JSON[documentObject], error) {
	if !handlers.WellFormedID(in.DocumentID) {
		return nil, g.refuseDocument(ctx, principal, in, store.ErrNotFound)
	}
	document, err := g.Knowledge.Document(ctx, principal.OrgID, in.ID, in.DocumentID)
	if err != nil {
		return nil, g.refuseDocument(ctx, principal, in, err)
	}
	return endpoint.Answer(showDocument(&document)), nil
}

func (g *documents) remove(ctx context.Context, principal *identity.Principal, in *DocumentPath) (*endpoint.Empty, error) {
	if !handlers.WellFormedID(in.DocumentID) {
		return nil, g.refuseDocument(ctx, principal, in, store.ErrNotFound)
	}
	if err := g.Knowledge.DeleteDocument(ctx, principal.Actor(), principal.OrgID, in.ID, in.DocumentID); err != nil {
		return nil, g.refuseDocument(ctx, principal, in, err)
	}
	return &endpoint.Empty{}, nil
}

// refuseDocument returns the error for a document that isn't in the knowledge base, which may itself be unknown or another
// organization's.
func (g *documents) refuseDocument(ctx context.Context, principal *identity.Principal, in *DocumentPath, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return handlers.Internal(fmt.Errorf("document %s: %w", in.DocumentID, err))
	}
	if _, err := g.DB.KnowledgeBases.ByID(ctx, principal.OrgID, in.ID); err != nil {
		return g.refuse(ctx, principal, store.OwnedKnowledgeBases, in.ID, err)
	}
	if !handlers.WellFormedID(in.DocumentID) {
		return handlers.NotFound("There is no document with this id.")
	}
	return g.refuse(ctx, principal, store.OwnedDocuments, in.DocumentID, err)
}
