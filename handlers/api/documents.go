package api

import (
	"context"
	"errors"
	"fmt"
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

// The operations on the documents of knowledge bases.
var (
	CreateDocument = operation(reading(MaxDocumentBody, members("createDocument", "POST /knowledge-bases/{id}/documents",
		identity.KnowledgeBasesWrite, "Add a document; a large one is ingested in the background")), (*Deps).createDocument)
	ListDocuments = operation(testKeys(members("listDocuments", "GET /knowledge-bases/{id}/documents", identity.KnowledgeBasesRead,
		"List the documents of a knowledge base, oldest first")), (*Deps).listDocuments)
	GetDocument = operation(testKeys(members("getDocument", "GET /knowledge-bases/{id}/documents/{docId}", identity.KnowledgeBasesRead,
		"Get a document, and how far its ingestion is")), (*Deps).getDocument)
	DeleteDocument = operation(members("deleteDocument", "DELETE /knowledge-bases/{id}/documents/{docId}", identity.KnowledgeBasesWrite,
		"Delete a document"), (*Deps).deleteDocument)
)

var documentOperations = []Operation{CreateDocument, ListDocuments, GetDocument, DeleteDocument}

// DocumentPath names a document in a path. It is exported for the framework, see [endpoint.PathID].
type DocumentPath struct {
	endpoint.PathID

	DocumentID string `path:"docId"`
}

func (d *Deps) createDocument(
	ctx context.Context, principal *identity.Principal, in *idAndBody[documentCreation],
) (*endpoint.JSON[DocumentObject], error) {
	name, err := identity.CleanName("name", in.Body.Name)
	if err != nil {
		return nil, handlers.BadField(err)
	}
	document, err := d.Knowledge.Ingest(ctx, principal.Actor(), knowledge.Upload{
		OrgID: principal.OrgID, KnowledgeBaseID: in.ID, Name: name, MediaType: knowledge.MediaType(in.Body.MediaType),
		Content: in.Body.Content,
	}, d.Plans.KnowledgeLimit(principal.Plan))
	if err != nil {
		return nil, documentRefusal(err, func() error { return d.refuse(ctx, principal, store.OwnedKnowledgeBases, in.ID, err) })
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

func (d *Deps) listDocuments(
	ctx context.Context, principal *identity.Principal, in *documentList,
) (*endpoint.JSON[endpoint.ListObject[DocumentObject]], error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	if _, err := d.DB.KnowledgeBases.ByID(ctx, principal.OrgID, in.ID); err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedKnowledgeBases, in.ID, err)
	}
	documents, err := d.Knowledge.Documents(ctx, principal.OrgID, in.ID, page)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("listing documents: %w", err))
	}
	return endpoint.Listed(in.PageQuery, documents, func(row *store.Document) string { return row.ID }, showDocument), nil
}

func (d *Deps) getDocument(ctx context.Context, principal *identity.Principal, in *DocumentPath) (*endpoint.JSON[DocumentObject], error) {
	if !handlers.WellFormedID(in.DocumentID) {
		return nil, d.refuseDocument(ctx, principal, in, store.ErrNotFound)
	}
	document, err := d.Knowledge.Document(ctx, principal.OrgID, in.ID, in.DocumentID)
	if err != nil {
		return nil, d.refuseDocument(ctx, principal, in, err)
	}
	return endpoint.Answer(showDocument(&document)), nil
}

func (d *Deps) deleteDocument(ctx context.Context, principal *identity.Principal, in *DocumentPath) (*endpoint.Empty, error) {
	if !handlers.WellFormedID(in.DocumentID) {
		return nil, d.refuseDocument(ctx, principal, in, store.ErrNotFound)
	}
	if err := d.Knowledge.DeleteDocument(ctx, principal.Actor(), principal.OrgID, in.ID, in.DocumentID); err != nil {
		return nil, d.refuseDocument(ctx, principal, in, err)
	}
	return &endpoint.Empty{}, nil
}

// refuseDocument returns the error for a document that isn't in the knowledge base, which may itself be unknown or another
// organization's.
func (d *Deps) refuseDocument(ctx context.Context, principal *identity.Principal, in *DocumentPath, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return handlers.Internal(fmt.Errorf("document %s: %w", in.DocumentID, err))
	}
	if _, err := d.DB.KnowledgeBases.ByID(ctx, principal.OrgID, in.ID); err != nil {
		return d.refuse(ctx, principal, store.OwnedKnowledgeBases, in.ID, err)
	}
	if !handlers.WellFormedID(in.DocumentID) {
		return handlers.NotFound("There is no document with this id.")
	}
	return d.refuse(ctx, principal, store.OwnedDocuments, in.DocumentID, err)
}
