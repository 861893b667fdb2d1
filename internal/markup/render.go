// Package markup turns the Markdown that models write into the marks of a messaging platform, so that customers don't read asterisks and
// brackets. Texts without Markdown stay the same, byte for byte. It contains no platform: [platforms.Markup] describes one.
package markup

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// Render returns a text of Markdown as a platform shows it: emphasis and code in its characters or none, headings as strong lines, the
// bullets of lists as "•", links with their address in brackets, tables with a line for each row. HTML and everything else that isn't
// Markdown stay as they are. So does a whole text of more than 16 KiB, of more than 16 quotes or list items inside one another, with tables
// of more than 2,000 cells, or that would become more than four times as long.
func Render(markdown string, style platforms.Markup) (rendered string) {
	if style.Markdown || strings.TrimSpace(markdown) == "" || len(markdown) > maxSource {
		return markdown
	}
	defer func() {
		if recover() != nil { // errTooMuch, or a fault of the parser's
			rendered = markdown
		}
	}()
	return render(markdown, style)
}

// render panics with errTooMuch if a bound is exceeded.
func render(markdown string, style platforms.Markup) string {
	source := []byte(markdown)
	document := commonMark.Parse(text.NewReader(source))
	if isPlain(document, source) {
		return markdown
	}
	r := &renderer{source: source, style: style}
	r.blocks(document)
	if len(bytes.TrimSpace(r.out)) == 0 { // such as only a link's definition
		return markdown
	}
	return string(r.out)
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

// renderer renders the nodes of one text, in time linear in the length of the source.
type renderer struct {
	source []byte
	style  platforms.Markup
	out    []byte
	// prefix begins each further line: the marks of the quotes and the indents of the lists that are open.
	prefix []byte
	// newlines are the line ends that are written before the next text, if any follows in the block.
	newlines int
}

// write writes a text, each of its lines behind the prefix. It panics with errTooMuch when the text becomes too long.
func (r *renderer) write(text string) {
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			r.newlines++
		}
		if line == "" {
			continue
		}
		for ; r.newlines > 0; r.newlines-- {
			r.out = append(append(r.out, '\n'), r.prefix...)
			r.bound(0)
		}
		r.bound(len(line))
		r.out = append(r.out, line...)
	}
}

// bound panics with errTooMuch when another n bytes are too many.
func (r *renderer) bound(n int) {
	if len(r.out)+n > maxGrowth*len(r.source) {
		panic(errTooMuch{})
	}
}

// blocks renders the blocks in a parent, with an empty line between them where the text has one.
func (r *renderer) blocks(parent ast.Node) {
	start := len(r.out)
	for block := parent.FirstChild(); block != nil; block = block.NextSibling() {
		if len(r.out) > start {
			r.newlines = 1
			if block.HasBlankPreviousLines() {
				r.newlines = 2
			}
		}
		r.block(block)
		r.newlines = 0
	}
}

func (r *renderer) block(block ast.Node) {
	switch block := block.(type) {
	case *ast.Heading:
		r.around(r.style.Strong, block)
	case *ast.ThematicBreak:
		r.write("———")
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		lines := r.lines(block)
		if mark := r.style.CodeBlock; mark != "" {
			lines = mark + "\n" + lines + mark
		}
		r.write(lines)
	case *ast.HTMLBlock:
		r.write(r.lines(block))
		if block.HasClosure() {
			r.write(string(block.ClosureLine.Value(r.source)))
		}
	case *ast.Blockquote:
		r.indented("> ", "> ", block)
	case *ast.List:
		r.list(block)
	case *tables.Table:
		r.table(block)
	default:
		r.inlines(block)
	}
}

// lines returns the lines of a block as they are.
func (r *renderer) lines(block ast.Node) string {
	return string(block.Lines().Value(r.source))
}

func (r *renderer) list(list *ast.List) {
	number := list.Start
	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		if item != list.FirstChild() {
			r.newlines = 1
			if !list.IsTight {
				r.newlines = 2
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
		r.indented(mark, "  ", item)
	}
}

// indented renders the blocks in a parent with first before the first line and rest before each of the others.
func (r *renderer) indented(first, rest string, parent ast.Node) {
	r.write(first)
	outer := len(r.prefix)
	r.prefix = append(r.prefix, rest...)
	r.blocks(parent)
	r.prefix = r.prefix[:outer]
}

// table renders a table without the cells that the parser added to its rows.
func (r *renderer) table(table *tables.Table) {
	for row := table.FirstChild(); row != nil; row = row.NextSibling() {
		if row != table.FirstChild() {
			r.newlines++
		}
		if row.Kind() == tables.KindTableHeader {
			r.marked(r.style.Strong, func() { r.cells(row) })
		} else {
			r.cells(row)
		}
	}
}

func (r *renderer) cells(row ast.Node) {
	for cell := row.FirstChild(); cell != nil && cell.Lines().Len() > 0; cell = cell.NextSibling() {
		if cell != row.FirstChild() {
			r.write(" | ")
		}
		r.inlines(cell)
	}
}

// inlines renders the content of a parent's lines.
func (r *renderer) inlines(parent ast.Node) {
	for inline := parent.FirstChild(); inline != nil; inline = inline.NextSibling() {
		r.inline(inline)
	}
}

func (r *renderer) inline(inline ast.Node) {
	switch inline := inline.(type) {
	case *ast.Text:
		shown := string(inline.Value(r.source))
		if !inline.IsRaw() {
			shown = literal(shown)
		}
		r.write(shown)
		if inline.SoftLineBreak() || inline.HardLineBreak() {
			r.write("\n")
		}
	case *ast.String:
		r.write(literal(string(inline.Value)))
	case *ast.CodeSpan:
		r.around(r.style.Code, inline)
	case *ast.Emphasis:
		r.around(r.emphasisMark(inline), inline)
	case *ast.Link:
		r.link(inline, string(inline.Destination))
	case *ast.Image:
		r.link(inline, string(inline.Destination))
	case *ast.AutoLink:
		r.write(string(inline.Label(r.source)))
	case *ast.RawHTML:
		r.write(string(inline.Segments.Value(r.source)))
	default:
		r.inlines(inline)
	}
}

// literal returns the meaning of a text, without the backslashes and entities of Markdown.
func literal(text string) string {
	if !strings.ContainsAny(text, `\&`) {
		return text
	}
	return string(util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations([]byte(text)))))
}

// emphasisMark returns the mark of emphasized text. Asterisks within a word or a number are left as they are: 2*3*4 is a product.
func (r *renderer) emphasisMark(e *ast.Emphasis) string {
	if first, ok := e.FirstChild().(*ast.Text); ok {
		if last, ok := e.LastChild().(*ast.Text); ok {
			before, _ := utf8.DecodeLastRune(r.source[:max(0, first.Segment.Start-e.Level)])
			after, _ := utf8.DecodeRune(r.source[min(len(r.source), last.Segment.Stop+e.Level):])
			if isWord(before) && isWord(after) {
				return strings.Repeat("*", e.Level)
			}
		}
	}
	if e.Level > 1 {
		return r.style.Strong
	}
	return r.style.Emphasis
}

func isWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// around renders the inlines of a parent with a mark on both sides.
func (r *renderer) around(mark string, parent ast.Node) {
	r.marked(mark, func() { r.inlines(parent) })
}

// marked puts a mark on both sides of inner's output, if there is any.
func (r *renderer) marked(mark string, inner func()) {
	outer, outerLines := len(r.out), r.newlines
	r.write(mark)
	start, startLines := len(r.out), r.newlines
	inner()
	if len(r.out) == start && r.newlines == startLines {
		r.out, r.newlines = r.out[:outer], outerLines
		return
	}
	r.write(mark)
}

// link renders a link's text with its address, or the address alone where the text says the same.
func (r *renderer) link(link ast.Node, destination string) {
	start := len(r.out) + r.newlines*(1+len(r.prefix))
	r.inlines(link)
	shown := r.out[min(start, len(r.out)):] // not copied: links may be inside one another
	short := strings.TrimPrefix(strings.TrimPrefix(destination, "mailto:"), "tel:")
	switch {
	case len(shown) == 0:
		r.write(short)
	case string(shown) == destination, string(shown) == short:
		r.out = r.out[:start]
		r.write(short)
	case destination != "":
		r.write(" (" + destination + ")")
	}
}

// The bounds of a text that is rendered. A person who can make a model repeat a text also writes its answers, so time, memory and length of
// the result must be bounded by the source's length.
const (
	// maxSource bounds the source in bytes. The parser needs quadratic time for some texts: about 0.4 s for this many bytes.
	maxSource = 16 << 10
	// maxNesting is how many quotes and list items may be inside one another. Each is a prefix of every line in it.
	maxNesting = 16
	// maxCells bounds the cells of all tables together. The parser adds cells to rows that are shorter than the table's head.
	maxCells = 2000
	// maxGrowth bounds the rendered bytes for each byte of the source. A link's address can be repeated by a reference of three bytes.
	maxGrowth = 4
)

// errTooMuch is the value of the panic that ends parsing or rendering when a text exceeds a bound. The parser has no other way out.
type errTooMuch struct{}

// commonMark parses CommonMark 0.31 with GitHub's tables, within the bounds. Its parsers keep no state between texts.
var commonMark = newParser()

func newParser() parser.Parser {
	blocks := parser.DefaultBlockParsers()
	for i := range blocks {
		blocks[i].Value = boundedBlock{blocks[i].Value.(parser.BlockParser)} //nolint:forcetypeassert // all are
	}
	tables := boundedTable{extension.NewTableParagraphTransformer()}
	return parser.NewParser(
		parser.WithBlockParsers(blocks...),
		parser.WithInlineParsers(parser.DefaultInlineParsers()...),
		parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
		parser.WithParagraphTransformers(util.Prioritized(tables, 200)),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)),
	)
}

// boundedBlock is a block parser that opens no container deeper than maxNesting.
type boundedBlock struct{ parser.BlockParser }

// Open implements [parser.BlockParser].
func (b boundedBlock) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	node, state := b.BlockParser.Open(parent, reader, pc)
	if state&parser.HasChildren == 0 || node.Kind() == ast.KindList {
		return node, state
	}
	levels := 0 // the quotes and list items that the block is inside of
	for block := parent; block != nil; block = block.Parent() {
		if kind := block.Kind(); kind == ast.KindBlockquote || kind == ast.KindListItem {
			levels++
		}
	}
	if levels >= maxNesting {
		panic(errTooMuch{})
	}
	return node, state
}

// boundedTable makes tables of paragraphs as long as all of a text have up to maxCells.
type boundedTable struct{ parser.ParagraphTransformer }

var cellsKey = parser.NewContextKey()

// Transform implements [parser.ParagraphTransformer].
func (b boundedTable) Transform(paragraph *ast.Paragraph, reader text.Reader, pc parser.Context) {
	cells, _ := pc.Get(cellsKey).(int)
	cells += mostCells(paragraph.Lines(), reader.Source())
	if cells > maxCells {
		panic(errTooMuch{})
	}
	pc.Set(cellsKey, cells)
	b.ParagraphTransformer.Transform(paragraph, reader, pc)
}

// mostCells returns how many cells a table of the lines can have, with the cells that the parser adds. The line below its head has a column
// for each group of dashes.
func mostCells(lines *text.Segments, source []byte) (cells int) {
	const outside = "| \t\r\n\v\f"
	for i := 1; i < lines.Len(); i++ {
		line := lines.At(i)
		if rule := bytes.Trim(line.Value(source), outside); len(bytes.Trim(rule, "-:"+outside)) == 0 {
			cells = max(cells, (1+bytes.Count(rule, []byte("|")))*(lines.Len()-i))
		}
	}
	return cells
}
