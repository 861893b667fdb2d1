package markup

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// commonMark parses CommonMark 0.31 with GitHub's tables. Its parsers keep no state between texts.
var commonMark = goldmark.New(goldmark.WithExtensions(extension.Table)).Parser()

// Render returns a text of Markdown as a platform shows it: emphasis and code in its characters or none, headings as strong lines, the
// bullets of lists as "•", links with their address in brackets, tables with a line for each row. HTML and what is no Markdown
// stay as they are.
func Render(markdown string, style platforms.Markup) string {
	if style.Markdown || strings.TrimSpace(markdown) == "" {
		return markdown
	}
	source := []byte(markdown)
	document := commonMark.Parse(text.NewReader(source))
	if isPlain(document, source) {
		return markdown
	}
	rendered := (&renderer{source, style}).blocks(document)
	if strings.TrimSpace(rendered) == "" { // such as only a link's definition
		return markdown
	}
	return rendered
}

// isPlain reports whether a document has only paragraphs of text, without escapes and entities.
func isPlain(document ast.Node, source []byte) bool {
	for block := document.FirstChild(); block != nil; block = block.NextSibling() {
		if block.Kind() != ast.KindParagraph {
			return false
		}
		for inline := block.FirstChild(); inline != nil; inline = inline.NextSibling() {
			text, ok := inline.(*ast.Text)
			if !ok || bytes.ContainsAny(text.Value(source), `\&`) {
				return false
			}
		}
	}
	return true
}

// renderer renders the nodes of one text.
type renderer struct {
	source []byte
	style  platforms.Markup
}

// blocks renders the blocks in a parent, with an empty line between them where the text has one.
func (r *renderer) blocks(parent ast.Node) string {
	var b strings.Builder
	for block := parent.FirstChild(); block != nil; block = block.NextSibling() {
		rendered := strings.TrimRight(r.block(block), "\n")
		if rendered == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
			if block.HasBlankPreviousLines() {
				b.WriteByte('\n')
			}
		}
		b.WriteString(rendered)
	}
	return b.String()
}

func (r *renderer) block(block ast.Node) string {
	switch block := block.(type) {
	case *ast.Heading:
		return around(r.style.Strong, r.inlines(block))
	case *ast.ThematicBreak:
		return "———"
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		code := r.lines(block)
		if r.style.CodeBlock == "" {
			return code
		}
		return r.style.CodeBlock + "\n" + code + r.style.CodeBlock
	case *ast.HTMLBlock:
		whole := r.lines(block)
		if block.HasClosure() {
			whole += string(block.ClosureLine.Value(r.source))
		}
		return whole
	case *ast.Blockquote:
		return indent("> ", "> ", r.blocks(block))
	case *ast.List:
		return r.list(block)
	case *tables.Table:
		return r.table(block)
	default:
		return r.inlines(block)
	}
}

// lines returns the lines of a block as they are.
func (r *renderer) lines(block ast.Node) string {
	return string(block.Lines().Value(r.source))
}

func (r *renderer) list(list *ast.List) string {
	var b strings.Builder
	number := list.Start
	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		if b.Len() > 0 {
			b.WriteByte('\n')
			if !list.IsTight {
				b.WriteByte('\n')
			}
		}
		mark := "• "
		switch {
		case list.IsOrdered():
			mark = strconv.Itoa(number) + string(list.Marker) + " "
			number++
		case list.Marker == '+':
			mark = "+ "
		}
		b.WriteString(indent(mark, "  ", r.blocks(item)))
	}
	return b.String()
}

func (r *renderer) table(table *tables.Table) string {
	var rows []string
	for row := table.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, r.inlines(cell))
		}
		line := strings.Join(cells, " | ")
		if row.Kind() == tables.KindTableHeader {
			line = around(r.style.Strong, line)
		}
		rows = append(rows, line)
	}
	return strings.Join(rows, "\n")
}

// indent puts first before the first line of a text and rest before each of the others.
func indent(first, rest, text string) string {
	return first + strings.ReplaceAll(text, "\n", "\n"+rest)
}

// inlines renders what stands in a parent's lines.
func (r *renderer) inlines(parent ast.Node) string {
	var b strings.Builder
	for inline := parent.FirstChild(); inline != nil; inline = inline.NextSibling() {
		b.WriteString(r.inline(inline))
	}
	return b.String()
}

func (r *renderer) inline(inline ast.Node) string {
	switch inline := inline.(type) {
	case *ast.Text:
		shown := string(inline.Value(r.source))
		if !inline.IsRaw() {
			shown = literal(shown)
		}
		if inline.SoftLineBreak() || inline.HardLineBreak() {
			shown += "\n"
		}
		return shown
	case *ast.String:
		return literal(string(inline.Value))
	case *ast.CodeSpan:
		return around(r.style.Code, r.inlines(inline))
	case *ast.Emphasis:
		return r.emphasis(inline)
	case *ast.Link:
		return address(r.inlines(inline), string(inline.Destination))
	case *ast.Image:
		return address(r.inlines(inline), string(inline.Destination))
	case *ast.AutoLink:
		return string(inline.Label(r.source))
	case *ast.RawHTML:
		return string(inline.Segments.Value(r.source))
	default:
		return r.inlines(inline)
	}
}

// literal returns what a text stands for, without the backslashes and entities of Markdown.
func literal(text string) string {
	if !strings.ContainsAny(text, `\&`) {
		return text
	}
	return string(util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations([]byte(text)))))
}

// emphasis renders emphasized text. Asterisks within a word or a number are left as they are: 2*3*4 is a product.
func (r *renderer) emphasis(e *ast.Emphasis) string {
	inner := r.inlines(e)
	if first, ok := e.FirstChild().(*ast.Text); ok {
		if last, ok := e.LastChild().(*ast.Text); ok {
			before, _ := utf8.DecodeLastRune(r.source[:max(0, first.Segment.Start-e.Level)])
			after, _ := utf8.DecodeRune(r.source[min(len(r.source), last.Segment.Stop+e.Level):])
			if isWord(before) && isWord(after) {
				return around(strings.Repeat("*", e.Level), inner)
			}
		}
	}
	if e.Level > 1 {
		return around(r.style.Strong, inner)
	}
	return around(r.style.Emphasis, inner)
}

func isWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// around puts a mark on both sides of a text that isn't empty.
func around(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text + mark
}

// address returns a link's text with its address, or the address alone where the text says the same.
func address(shown, destination string) string {
	switch {
	case shown == "", shown == destination, "mailto:"+shown == destination, "tel:"+shown == destination:
		return strings.TrimPrefix(strings.TrimPrefix(destination, "mailto:"), "tel:")
	case destination == "":
		return shown
	default:
		return shown + " (" + destination + ")"
	}
}
