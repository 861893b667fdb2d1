package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The operations on knowledge bases.
var (
	CreateKnowledgeBase = operation(members("createKnowledgeBase", "POST /knowledge-bases", identity.KnowledgeBasesWrite,
		"Create a knowledge base"), (*Deps).createKnowledgeBase)
	ListKnowledgeBases = operation(testKeys(members("listKnowledgeBases", "GET /knowledge-bases", identity.KnowledgeBasesRead,
		"List the knowledge bases, oldest first")), (*Deps).listKnowledgeBases)
	GetKnowledgeBase = operation(testKeys(members("getKnowledgeBase", "GET /knowledge-bases/{id}", identity.KnowledgeBasesRead,
		"Get a knowledge base")), (*Deps).getKnowledgeBase)
	UpdateKnowledgeBase = operation(members("updateKnowledgeBase", "PATCH /knowledge-bases/{id}", identity.KnowledgeBasesWrite,
		"Change a knowledge base"), (*Deps).updateKnowledgeBase)
	DeleteKnowledgeBase = operationOf(members("deleteKnowledgeBase", "DELETE /knowledge-bases/{id}", identity.KnowledgeBasesWrite,
		"Delete a knowledge base with its documents; its agents don't know it then"), (*Deps).deleteKnowledgeBase)
	SearchKnowledgeBase = operation(testKeys(members("searchKnowledgeBase", "GET /knowledge-bases/{id}/search", identity.KnowledgeBasesRead,
		"Find the parts of its documents that an agent would be shown for a text")), (*Deps).searchKnowledgeBase)
)

func (d *Deps) createKnowledgeBase(
	ctx context.Context, principal *identity.Principal, in *struct{ Body knowledgeBaseCreation },
) (*KnowledgeBaseObject, error) {
	name, err := identity.CleanName("name", in.Body.Name)
	if err != nil {
		return nil, handlers.BadField(err)
	}
	base := store.KnowledgeBase{
		ID: store.NewID("kb"), OrgID: principal.OrgID, Name: name, Description: in.Body.Description, CreatedAt: d.Now().UnixMilli(),
	}
	base.UpdatedAt = base.CreatedAt
	if err := d.DB.KnowledgeBases.Create(ctx, principal.Actor(), base); err != nil {
		return nil, knowledgeBaseConflict(err, handlers.Internal(fmt.Errorf("creating a knowledge base: %w", err)))
	}
	return new(showKnowledgeBase(&base)), nil
}

func (d *Deps) listKnowledgeBases(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[KnowledgeBaseObject], error) {
	id := func(row *store.KnowledgeBase) string { return row.ID }
	return listRows(ctx, principal, in.PageQuery, d.DB.KnowledgeBases.List, id, showKnowledgeBase)
}

func (d *Deps) getKnowledgeBase(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*KnowledgeBaseObject, error) {
	return getRow(ctx, d, principal, store.OwnedKnowledgeBases, in.ID, d.DB.KnowledgeBases.ByID, showKnowledgeBase)
}

func (d *Deps) updateKnowledgeBase(
	ctx context.Context, principal *identity.Principal, in *idAndBody[knowledgeBaseChange],
) (*KnowledgeBaseObject, error) {
	change := store.KnowledgeBaseChange{Description: in.Body.Description}
	if in.Body.Name != nil {
		name, err := identity.CleanName("name", *in.Body.Name)
		if err != nil {
			return nil, handlers.BadField(err)
		}
		change.Name = &name
	}
	if err := d.DB.KnowledgeBases.Update(ctx, principal.Actor(), principal.OrgID, in.ID, change); err != nil {
		return nil, knowledgeBaseConflict(err, d.refuse(ctx, principal, store.OwnedKnowledgeBases, in.ID, err))
	}
	return d.getKnowledgeBase(ctx, principal, &in.PathID)
}

func (d *Deps) deleteKnowledgeBase(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, d.change(ctx, principal, store.OwnedKnowledgeBases, in.ID, d.Knowledge.DeleteBase)
}

type knowledgeSearch struct {
	endpoint.PathID

	Query string `query:"q"     required:"true" minLength:"1" maxLength:"2000" doc:"What a customer might say"`
	Limit int    `query:"limit" minimum:"1" maximum:"50" default:"6" doc:"How many parts are wanted at most"`
}

func (d *Deps) searchKnowledgeBase(ctx context.Context, principal *identity.Principal, in *knowledgeSearch) (*snippetsObject, error) {
	if _, err := d.DB.KnowledgeBases.ByID(ctx, principal.OrgID, in.ID); err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedKnowledgeBases, in.ID, err)
	}
	snippets, err := d.Knowledge.SearchInTurn(ctx, principal.OrgID, []string{in.ID}, in.Query, in.Limit)
	if err != nil {
		return nil, searchRefusal(err)
	}
	return &snippetsObject{showAll(snippets, showSnippet)}, nil
}

// searchRefusal returns the public form of a search's error.
func searchRefusal(err error) error {
	if errors.Is(err, knowledge.ErrBusy) {
		return endpoint.RateLimited(knowledgeRetryAfter, err, "Too many searches are running at this moment. Retry shortly.")
	}
	return handlers.Internal(err)
}

// knowledgeBaseConflict returns conflict for a taken name, or otherwise for any other error.
func knowledgeBaseConflict(err, otherwise error) error {
	if errors.Is(err, store.ErrLimit) {
		return noRoom(store.MaxKnowledgeBases, "knowledge bases", err)
	}
	if errors.Is(err, store.ErrConflict) {
		return endpoint.Refusal(errcode.Conflict, err, "The organization has a knowledge base with this name already.")
	}
	return otherwise
}

// KnowledgeBaseObject is a knowledge base as the API shows it, without its documents.
type KnowledgeBaseObject struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Documents   int64  `json:"documents"   doc:"How many documents it has"`
	Bytes       int64  `json:"bytes"       doc:"What its documents count towards the plan's limit"`
	CreatedAt   string `json:"createdAt"   format:"date-time"`
	UpdatedAt   string `json:"updatedAt"   format:"date-time"`
}

func showKnowledgeBase(base *store.KnowledgeBase) KnowledgeBaseObject {
	return KnowledgeBaseObject{
		ID: base.ID, Name: base.Name, Description: base.Description, Documents: base.Documents, Bytes: base.Bytes,
		CreatedAt: endpoint.Timestamp(base.CreatedAt), UpdatedAt: endpoint.Timestamp(base.UpdatedAt),
	}
}

// knowledgeBaseCreation is the body of POST /knowledge-bases.
type knowledgeBaseCreation struct {
	Name        string `json:"name"                  minLength:"1" maxLength:"100" doc:"Unique within the organization"`
	Description string `json:"description,omitempty" maxLength:"1000"`
}

// knowledgeBaseChange is the body of PATCH /knowledge-bases/{id}. An absent member changes nothing.
type knowledgeBaseChange struct {
	Name        *string `json:"name,omitempty"        minLength:"1" maxLength:"100"`
	Description *string `json:"description,omitempty" maxLength:"1000"`
}

// DocumentObject is a document as the API shows it. Its text is in the answers of a search only.
type DocumentObject struct {
	ID              string  `json:"id"`
	KnowledgeBaseID string  `json:"knowledgeBaseId"`
	Name            string  `json:"name"`
	MediaType       string  `json:"mediaType"`
	Bytes           int64   `json:"bytes"       doc:"Of the content as it was sent"`
	State           string  `json:"state"       enum:"ingesting,ready,failed" doc:"Only a document that is ready is found"`
	ChunksDone      int64   `json:"chunksDone"  doc:"Progress while it is ingesting"`
	ChunksTotal     int64   `json:"chunksTotal"`
	Reason          *string `json:"reason"      doc:"Why it failed; null otherwise"`
	CreatedAt       string  `json:"createdAt"   format:"date-time"`
	UpdatedAt       string  `json:"updatedAt"   format:"date-time"`
}

func showDocument(document *store.Document) DocumentObject {
	return DocumentObject{
		ID: document.ID, KnowledgeBaseID: document.KnowledgeBaseID, Name: document.Name, MediaType: document.MediaType,
		Bytes: document.Bytes, State: document.State, ChunksDone: document.ChunksDone, ChunksTotal: document.ChunksTotal,
		Reason:    endpoint.OrNull(document.Reason),
		CreatedAt: endpoint.Timestamp(document.CreatedAt), UpdatedAt: endpoint.Timestamp(document.UpdatedAt),
	}
}

// documentCreation is the body of POST /knowledge-bases/{id}/documents.
type documentCreation struct {
	Name      string `json:"name"      minLength:"1" maxLength:"100" doc:"Unique within the knowledge base; replies may name it as their source"`
	MediaType string `json:"mediaType" enum:"text/plain,text/markdown,text/html"`
	Content   string `json:"content"   minLength:"1" doc:"The whole document, at most 4 MiB in UTF-8"`
}

// SnippetObject is a part of a document that a search has found.
type SnippetObject struct {
	DocumentID string  `json:"documentId"`
	Document   string  `json:"document" doc:"The document's name"`
	Position   int64   `json:"position" doc:"Which part of the document it is, from 0"`
	Text       string  `json:"text"`
	Score      float64 `json:"score"    doc:"How well it fits; scores of different searches don't compare"`
}

func showSnippet(snippet *knowledge.Snippet) SnippetObject {
	return SnippetObject{
		DocumentID: snippet.DocumentID, Document: snippet.Document, Position: snippet.Position, Text: snippet.Text,
		Score: snippet.Score,
	}
}

// snippetsObject is the answer of a search, the best snippet first.
type snippetsObject struct {
	Data []SnippetObject `json:"data"`
}

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
	DeleteDocument = operationOf(members("deleteDocument", "DELETE /knowledge-bases/{id}/documents/{docId}", identity.KnowledgeBasesWrite,
		"Delete a document"), (*Deps).deleteDocument)
)

// DocumentPath names a document in a path. It is exported for huma, see [endpoint.PathID].
type DocumentPath struct {
	endpoint.PathID

	DocumentID string `path:"docId"`
}

func (d *Deps) createDocument(ctx context.Context, principal *identity.Principal, in *idAndBody[documentCreation]) (*DocumentObject, error) {
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
	return new(showDocument(&document)), nil
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
		return endpoint.RateLimited(knowledgeRetryAfter, err, "Too many documents are being read at this moment. Retry shortly.")
	case errors.Is(err, store.ErrLimit):
		return endpoint.Refusal(errcode.PlanLimitExceeded, err,
			"The organization's documents would have more bytes than its plan allows, or more than %d documents.", store.MaxDocuments)
	case errors.Is(err, store.ErrConflict):
		return endpoint.Refusal(errcode.Conflict, err, "The knowledge base has a document with this name already.")
	default:
		return otherwise()
	}
}

func (d *Deps) listDocuments(ctx context.Context, principal *identity.Principal, in *pathIDAndPage) (*pageOf[DocumentObject], error) {
	list := func(ctx context.Context, orgID string, page store.Page) ([]store.Document, error) {
		if _, err := d.DB.KnowledgeBases.ByID(ctx, orgID, in.ID); err != nil {
			return nil, d.refuse(ctx, principal, store.OwnedKnowledgeBases, in.ID, err)
		}
		return d.Knowledge.Documents(ctx, orgID, in.ID, page)
	}
	return listRows(ctx, principal, in.PageQuery, list, func(row *store.Document) string { return row.ID }, showDocument)
}

func (d *Deps) getDocument(ctx context.Context, principal *identity.Principal, in *DocumentPath) (*DocumentObject, error) {
	if !handlers.WellFormedID(in.DocumentID) {
		return nil, d.refuseDocument(ctx, principal, in, store.ErrNotFound)
	}
	document, err := d.Knowledge.Document(ctx, principal.OrgID, in.ID, in.DocumentID)
	return new(showDocument(&document)), d.refuseDocument(ctx, principal, in, err)
}

func (d *Deps) deleteDocument(ctx context.Context, principal *identity.Principal, in *DocumentPath) (*endpoint.Empty, error) {
	if !handlers.WellFormedID(in.DocumentID) {
		return nil, d.refuseDocument(ctx, principal, in, store.ErrNotFound)
	}
	err := d.Knowledge.DeleteDocument(ctx, principal.Actor(), principal.OrgID, in.ID, in.DocumentID)
	return &endpoint.Empty{}, d.refuseDocument(ctx, principal, in, err)
}

// refuseDocument returns the error for a document that isn't in the knowledge base, which may itself be unknown or another
// organization's. It returns nil if there is no error.
func (d *Deps) refuseDocument(ctx context.Context, principal *identity.Principal, in *DocumentPath, err error) error {
	if err == nil {
		return nil
	}
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
