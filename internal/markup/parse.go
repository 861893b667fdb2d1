// Package markup turns the Markdown that models write into the marks of a messaging platform, so that customers don't read asterisks and
// brackets. Texts without Markdown stay the same, byte for byte. It contains no platform: [platforms.Markup] describes one.
package markup

import (
	"bytes"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

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
