package api

import (
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// knowledgeBaseObject is a knowledge base as the API shows it.
type knowledgeBaseObject struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Documents   int64  `json:"documents"   doc:"How many documents it has"`
	Bytes       int64  `json:"bytes"       doc:"What its documents count towards the plan's limit"`
	CreatedAt   string `json:"createdAt"   format:"date-time"`
	UpdatedAt   string `json:"updatedAt"   format:"date-time"`
}

func showKnowledgeBase(base *store.KnowledgeBase) knowledgeBaseObject {
	return knowledgeBaseObject{
		ID: base.ID, Name: base.Name, Description: base.Description, Documents: base.Documents, Bytes: base.Bytes,
		CreatedAt: endpoint.Timestamp(base.CreatedAt), UpdatedAt: endpoint.Timestamp(base.UpdatedAt),
	}
}

// knowledgeBaseCreation is the body of POST /knowledge-bases.
type knowledgeBaseCreation struct {
	Name        string `json:"name"                  minLength:"1" maxLength:"100" doc:"Unique within the organization"`
	Description string `json:"description,omitempty" maxLength:"1000"`
}

// knowledgeBaseChange is the body of PATCH /knowledge-bases/{id}: what is absent stays as it is.
type knowledgeBaseChange struct {
	Name        *string `json:"name,omitempty"        minLength:"1" maxLength:"100"`
	Description *string `json:"description,omitempty" maxLength:"1000"`
}

// documentObject is a document as the API shows it. Its text is in the answers of a search only.
type documentObject struct {
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

func showDocument(document *store.Document) documentObject {
	return documentObject{
		ID: document.ID, KnowledgeBaseID: document.KnowledgeBaseID, Name: document.Name, MediaType: document.MediaType,
		Bytes: document.Bytes, State: document.State, ChunksDone: document.ChunksDone, ChunksTotal: document.ChunksTotal,
		Reason: endpoint.TextOrNull(document.Reason), CreatedAt: endpoint.Timestamp(document.CreatedAt), UpdatedAt: endpoint.Timestamp(document.UpdatedAt),
	}
}

// documentCreation is the body of POST /knowledge-bases/{id}/documents.
type documentCreation struct {
	Name      string `json:"name"      minLength:"1" maxLength:"100" doc:"Unique within the knowledge base; replies may name it as their source"`
	MediaType string `json:"mediaType" enum:"text/plain,text/markdown,text/html"`
	Content   string `json:"content"   minLength:"1" doc:"The whole document, at most 4 MiB in UTF-8"`
}

// snippetObject is a part of a document that a search has found.
type snippetObject struct {
	DocumentID string  `json:"documentId"`
	Document   string  `json:"document" doc:"The document's name"`
	Position   int64   `json:"position" doc:"Which part of the document it is, from 0"`
	Text       string  `json:"text"`
	Score      float64 `json:"score"    doc:"How well it fits; scores of different searches don't compare"`
}

func showSnippet(snippet *knowledge.Snippet) snippetObject {
	return snippetObject{
		DocumentID: snippet.DocumentID, Document: snippet.Document, Position: snippet.Position, Text: snippet.Text,
		Score: snippet.Score,
	}
}

// snippetsObject is the answer of a search, the best snippet first.
type snippetsObject struct {
	Data []snippetObject `json:"data"`
}
