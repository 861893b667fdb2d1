package knowledge

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// MaxDocumentBytes is the largest document that [Library.Ingest] accepts.
const MaxDocumentBytes = 4 << 20

// MediaType is the format of a document's content.
type MediaType string

// The supported media types.
const (
	PlainText MediaType = "text/plain"
	Markdown  MediaType = "text/markdown"
	HTML      MediaType = "text/html"
)

// The reasons for which [Library.Ingest] refuses an upload.
var (
	// ErrMediaType: the media type isn't supported.
	ErrMediaType = errors.New("knowledge: unknown media type")
	// ErrTooLarge: the content has more than [MaxDocumentBytes].
	ErrTooLarge = errors.New("knowledge: the document is too large")
	// ErrNoText: the content has no searchable text.
	ErrNoText = errors.New("knowledge: the document has no text")
	// ErrSlow: parsing the content took longer than 5 s.
	ErrSlow = errors.New("knowledge: the document takes too long to read")
)

// Upload is a document before its ingestion.
type Upload struct {
	OrgID, KnowledgeBaseID string
	Name                   string // unique within the knowledge base
	MediaType              MediaType
	// Content is text of that type. Invalid UTF-8 is replaced; NUL and other control characters are dropped.
	Content string
}

// passChunks is how many chunks are made before other work may go on, in some milliseconds.
const passChunks = 4

// chunks returns the chunks that are stored for an upload. It calls pass now and then, and ends with its error.
func (u *Upload) chunks(pass func() error) ([]store.Chunk, error) {
	if len(u.Content) > MaxDocumentBytes {
		return nil, ErrTooLarge
	}
	content := u.Content
	switch u.MediaType {
	case PlainText, Markdown:
	case HTML:
		text, err := htmlText(content, pass)
		if err != nil {
			return nil, err
		}
		content = text
	default:
		return nil, fmt.Errorf("%w %q", ErrMediaType, u.MediaType)
	}
	mark := markOf(u.KnowledgeBaseID)
	var chunks []store.Chunk
	words := 0
	for p := range split(clean(content), u.MediaType != PlainText) {
		chunk := store.Chunk{Text: p.String()}
		chunk.Words = indexWords(mark, chunk.Text)
		words += len(chunk.Words)
		if chunks = append(chunks, chunk); len(chunks)%passChunks > 0 {
			continue
		}
		if err := pass(); err != nil {
			return nil, err
		}
	}
	if words == 0 {
		return nil, ErrNoText
	}
	return chunks, nil
}

// clean turns any bytes into a text that every engine stores: valid UTF-8, lines ending in \n, no control character but tab.
func clean(text string) string {
	text = strings.TrimPrefix(strings.ToValidUTF8(text, "\uFFFD"), "\uFEFF")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n\n").Replace(text)
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return c
		case c == 0:
			return -1
		case unicode.IsControl(c):
			return ' '
		default:
			return c
		}
	}, text)
}
