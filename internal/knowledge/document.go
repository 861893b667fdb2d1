package knowledge

import (
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// MaxDocumentBytes is the largest document that [Library.Ingest] takes.
const MaxDocumentBytes = 4 << 20

// MediaType is what a document's content is written in.
type MediaType string

// The media types that are understood.
const (
	PlainText MediaType = "text/plain"
	Markdown  MediaType = "text/markdown"
	HTML      MediaType = "text/html"
)

// The uploads that [Library.Ingest] refuses.
var (
	// ErrMediaType: the media type is none of those that are understood.
	ErrMediaType = errors.New("knowledge: unknown media type")
	// ErrTooLarge: the content has more than [MaxDocumentBytes].
	ErrTooLarge = errors.New("knowledge: the document is too large")
	// ErrNoText: there is nothing in the content that could be found.
	ErrNoText = errors.New("knowledge: the document has no text")
)

// Upload is a document as it comes in.
type Upload struct {
	OrgID, KnowledgeBaseID string
	Name                   string // unique within the knowledge base
	MediaType              MediaType
	// Content is text of that type. Bytes that are no UTF-8 are replaced, NUL and other control characters dropped.
	Content string
}

// chunks are what an upload is stored as.
func (u *Upload) chunks() ([]store.Chunk, error) {
	if len(u.Content) > MaxDocumentBytes {
		return nil, ErrTooLarge
	}
	var pieces []piece
	switch u.MediaType {
	case PlainText:
		pieces = split(clean(u.Content), false)
	case Markdown:
		pieces = split(clean(u.Content), true)
	case HTML:
		pieces = split(clean(htmlText(u.Content)), true)
	default:
		return nil, fmt.Errorf("%w %q", ErrMediaType, u.MediaType)
	}
	mark := markOf(u.KnowledgeBaseID)
	chunks := make([]store.Chunk, 0, len(pieces))
	words := 0
	for _, p := range pieces {
		chunk := store.Chunk{Text: p.String()}
		chunk.Words = indexWords(mark, chunk.Text)
		words += len(chunk.Words)
		chunks = append(chunks, chunk)
	}
	if words == 0 {
		return nil, ErrNoText
	}
	return chunks, nil
}
