package knowledge

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/segment"
)

// Sizes of chunks, in characters (Unicode code points).
const (
	// chunkRunes bounds a chunk: enough text to answer a question, little enough that several chunks fit into a prompt.
	chunkRunes = 1000
	// leastRunes is the least that a chunk ended by a heading has, so that many small headings don't make many chunks.
	leastRunes = 200
	// headingRunes bounds the section's heading that precedes each chunk of the section but the first, which begins with it.
	headingRunes = 120
)

// piece is a part of a document.
type piece struct {
	// heading is the heading of the text's section. It is empty if there is none or the text begins with it.
	heading string
	text    string
}

// String returns the piece as a chunk.
func (p piece) String() string {
	if p.heading == "" {
		return p.text
	}
	return p.heading + "\n" + p.text
}

// split cuts a clean text into pieces, at headings, between paragraphs, else between sentences, else between words, and never
// inside a grapheme, unless one alone is longer than a chunk. headings reports that the text has Markdown's. Only white space
// at the cuts is lost. A caller that stops early spares the rest of the work.
func split(text string, headings bool) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		p := packer{yield: yield}
		for paragraph, heading := range paragraphs(text, headings) {
			switch {
			case heading:
				p.section(paragraph)
			case utf8.RuneCountInString(paragraph) <= chunkRunes:
				p.add(paragraph)
			default:
				p.cut(paragraph)
			}
			if p.stopped {
				return
			}
		}
		p.flush()
	}
}

// paragraphs returns the parts of a text that are separated by empty lines, and whether each is a heading, which is a part of its own.
func paragraphs(text string, headings bool) iter.Seq2[string, bool] {
	return func(yield func(paragraph string, heading bool) bool) {
		more := true
		emit := func(paragraph string, heading bool) { more = more && yield(paragraph, heading) }
		start, end := -1, 0 // of the paragraph that is open
		flush := func() {
			if start >= 0 {
				emit(strings.TrimRightFunc(text[start:end], unicode.IsSpace), false)
			}
			start = -1
		}
		fenced := false
		for pos := 0; pos < len(text) && more; {
			next := len(text)
			if i := strings.IndexByte(text[pos:], '\n'); i >= 0 {
				next = pos + i + 1
			}
			line := strings.TrimSpace(text[pos:next])
			if headings && (strings.HasPrefix(line, "```") || strings.HasPrefix(line, "~~~")) {
				fenced = !fenced
			}
			switch {
			case line == "":
				flush()
			case headings && !fenced && isHeading(line):
				flush()
				emit(line, true)
			default:
				if start < 0 {
					start = pos
				}
				end = next
			}
			pos = next
		}
		flush()
	}
}

// isHeading reports whether a line is a heading of Markdown: one to six # and then a space.
func isHeading(line string) bool {
	rest := strings.TrimLeft(line, "#")
	marks := len(line) - len(rest)
	return marks >= 1 && marks <= 6 && strings.HasPrefix(rest, " ")
}

// packer joins paragraphs into pieces.
type packer struct {
	yield   func(piece) bool
	stopped bool // yield has returned false, and isn't called again
	current strings.Builder
	runes   int    // of current
	begins  string // heading of the piece that is being filled, see [piece]
	heading string // of the section
}

// add appends a paragraph, or a part of one, to the open piece, or begins the next with it.
func (p *packer) add(text string) {
	if text = strings.TrimSpace(text); text == "" {
		return
	}
	const gap = "\n\n"
	size := utf8.RuneCountInString(text)
	if p.runes > 0 && p.runes+len(gap)+size > chunkRunes {
		p.flush()
	}
	if p.runes > 0 {
		p.current.WriteString(gap)
		p.runes += len(gap)
	}
	p.current.WriteString(text)
	p.runes += size
}

// section begins a section.
func (p *packer) section(heading string) {
	if p.runes >= leastRunes {
		p.flush()
	}
	p.heading = firstRunes(heading, headingRunes)
	if p.runes == 0 {
		p.begins = ""
	}
	if utf8.RuneCountInString(heading) > chunkRunes {
		p.cut(heading)
		return
	}
	p.add(heading)
}

// flush ends the open piece.
func (p *packer) flush() {
	if p.runes > 0 && !p.stopped {
		p.stopped = !p.yield(piece{heading: p.begins, text: p.current.String()})
	}
	p.current.Reset()
	p.runes, p.begins = 0, p.heading
}

// cut adds a long paragraph in parts of up to chunkRunes: as many whole sentences as fit.
func (p *packer) cut(paragraph string) {
	var start, runes int
	var sentence, space place // the last good positions for a cut
	pos := 0
	for cluster, ends := range segment.Characters(paragraph) {
		size := utf8.RuneCountInString(cluster)
		for runes > 0 && runes+size > chunkRunes {
			at := place{pos, runes}
			switch {
			case sentence.pos > start:
				at = sentence
			case space.pos > start:
				at = space
			}
			p.add(paragraph[start:at.pos])
			start, runes = at.pos, runes-at.runes
			sentence.runes -= at.runes
			space.runes -= at.runes
		}
		if p.stopped {
			return
		}
		if size > chunkRunes { // no real text has such a grapheme
			p.cutRunes(cluster)
			pos += len(cluster)
			start = pos
			continue
		}
		pos += len(cluster)
		runes += size
		if ends {
			sentence = place{pos, runes}
		}
		if first, _ := utf8.DecodeRuneInString(cluster); unicode.IsSpace(first) {
			space = place{pos, runes}
		}
	}
	p.add(paragraph[start:])
}

// place is a position in a paragraph, in bytes, and in runes from the start of the part.
type place struct{ pos, runes int }

// cutRunes adds a text in parts of chunkRunes code points.
func (p *packer) cutRunes(text string) {
	start, runes := 0, 0
	for i := range text {
		if runes == chunkRunes {
			p.add(text[start:i])
			start, runes = i, 0
		}
		runes++
	}
	p.add(text[start:])
}

// firstRunes returns the longest beginning of a text that ends with a grapheme and has up to n code points.
func firstRunes(text string, n int) string {
	length := 0
	for cluster := range segment.Characters(text) {
		if n -= utf8.RuneCountInString(cluster); n < 0 {
			return text[:length]
		}
		length += len(cluster)
	}
	return text
}
