package knowledge

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

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
	// ErrSlow: parsing the content took more than 5 s of processor time.
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

// htmlText returns the visible text of an HTML source, roughly: headings begin with # as in Markdown, paragraphs are separated
// by an empty line, items of a list begin with a hyphen, cells of a table with a bar. Scripts, styles, templates, pictures and
// attributes are left out. It accepts any input, as browsers do, and loads nothing. It calls pass every few KB, and ends with its error.
func htmlText(source string, pass func() error) (string, error) {
	t := &htmlReader{tokens: html.NewTokenizer(&passingReader{source, pass})}
	for t.next() { //nolint:revive // next does the work
	}
	if err := t.tokens.Err(); !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading HTML: %w", err)
	}
	return t.out.String(), nil
}

// passBytes is how much of an HTML source is read before other work may go on, in some milliseconds.
const passBytes = 16 << 10

// passingReader reads a text. It calls pass before each piece.
type passingReader struct {
	rest string
	pass func() error
}

// Read implements io.Reader.
func (r *passingReader) Read(into []byte) (int, error) {
	if r.rest == "" {
		return 0, io.EOF
	}
	if err := r.pass(); err != nil {
		return 0, err
	}
	n := copy(into[:min(len(into), passBytes)], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// htmlReader extracts the text of an HTML source.
type htmlReader struct {
	tokens *html.Tokenizer
	out    strings.Builder
	// hidden counts the open elements without visible content, pre the open elements that preserve white space.
	hidden, pre int
	// Before the next text come lines line ends or, if there are none, a space if space is set; and prefix.
	lines  int
	space  bool
	prefix string
}

// next handles the next token. It returns false at the end.
func (t *htmlReader) next() bool {
	switch t.tokens.Next() {
	case html.ErrorToken: // the end of the text, or an error of pass
		return false
	case html.TextToken:
		if t.hidden == 0 {
			t.text(string(t.tokens.Text()))
		}
	case html.StartTagToken:
		name, _ := t.tokens.TagName()
		t.open(atom.Lookup(name))
	case html.SelfClosingTagToken:
		name, _ := t.tokens.TagName()
		if tag := atom.Lookup(name); !hidden[tag] && tag != atom.Pre {
			t.open(tag)
		}
	case html.EndTagToken:
		name, _ := t.tokens.TagName()
		t.close(atom.Lookup(name))
	default: // comments and the doctype
	}
	return true
}

func (t *htmlReader) open(tag atom.Atom) {
	switch {
	case hidden[tag]:
		t.hidden++
	case t.hidden == 0:
		element := elements[tag]
		t.breakLines(element.before)
		t.prefix = cmp.Or(element.prefix, t.prefix)
		t.space = t.space || element == cell
		if tag == atom.Pre {
			t.pre++
		}
	}
}

func (t *htmlReader) close(tag atom.Atom) {
	switch {
	case hidden[tag]:
		t.hidden = max(0, t.hidden-1)
	case t.hidden == 0:
		t.breakLines(elements[tag].after)
		if tag == atom.Pre {
			t.pre = max(0, t.pre-1)
		}
	}
}

// breakLines makes at least n line ends due before the next text.
func (t *htmlReader) breakLines(n int) {
	t.lines = max(t.lines, n)
	if n > 1 {
		t.prefix = ""
	}
}

// text writes the due white space and prefix, then the text. It collapses the text's white space unless the text is
// preformatted.
func (t *htmlReader) text(text string) {
	if t.pre > 0 {
		if strings.TrimSpace(text) != "" {
			t.due()
			t.out.WriteString(text)
			t.space = false
		}
		return
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		t.space = t.space || text != ""
		return
	}
	t.space = t.space || strings.TrimLeft(text, " \t\r\n\f") != text
	t.due()
	for i, word := range words {
		if i > 0 {
			t.out.WriteByte(' ')
		}
		t.out.WriteString(word)
	}
	t.space = strings.TrimRight(text, " \t\r\n\f") != text
}

// due writes the line ends, the space and the prefix that are due.
func (t *htmlReader) due() {
	switch {
	case t.out.Len() == 0:
	case t.lines > 0:
		t.out.WriteString("\n\n"[:min(t.lines, 2)])
	case t.space:
		t.out.WriteByte(' ')
	}
	t.out.WriteString(t.prefix)
	t.lines, t.space, t.prefix = 0, false, ""
}

// hidden are the elements with content that isn't shown.
var hidden = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Template: true, atom.Noscript: true, atom.Iframe: true, atom.Noembed: true, atom.Noframes: true,
	atom.Svg: true, atom.Object: true,
}

// element has the numbers of line ends before and after an HTML element, and the beginning of its text.
type element struct {
	before, after int
	prefix        string
}

var (
	block = element{before: 2, after: 2}
	line  = element{before: 1, after: 1}
	item  = element{before: 1, after: 1, prefix: "- "}
	cell  = element{prefix: "| "}
)

// elements are the elements that break the text. Headings begin as in Markdown. A page's title is its first heading.
var elements = map[atom.Atom]element{
	atom.Title: {2, 2, "# "}, atom.H1: {2, 2, "# "}, atom.H2: {2, 2, "## "}, atom.H3: {2, 2, "### "},
	atom.H4: {2, 2, "#### "}, atom.H5: {2, 2, "#### "}, atom.H6: {2, 2, "#### "},
	atom.Li: item, atom.Dt: item, atom.Td: cell, atom.Th: cell, atom.Br: {before: 1}, atom.Tr: line, atom.Dd: line, atom.Option: line,
	atom.P: block, atom.Div: block, atom.Section: block, atom.Article: block, atom.Aside: block, atom.Header: block, atom.Footer: block,
	atom.Main: block, atom.Nav: block, atom.Ul: block, atom.Ol: block, atom.Dl: block, atom.Table: block, atom.Caption: block,
	atom.Blockquote: block, atom.Pre: block, atom.Form: block, atom.Fieldset: block, atom.Hr: block, atom.Figure: block, atom.Figcaption: block,
	atom.Details: block, atom.Summary: block, atom.Address: block, atom.Body: block, atom.Html: block, atom.Head: block, atom.Select: block,
}
