package platforms

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/segment"
)

// Unit is the unit of a message's length.
type Unit int

// The units.
const (
	// Characters are Unicode code points.
	Characters Unit = iota
	// UTF16Units are the 16-bit units of UTF-16, which JavaScript and Java call characters.
	UTF16Units
	// Bytes are the bytes of UTF-8.
	Bytes
)

// Limit is the greatest length of one message. The zero value means unlimited.
type Limit struct {
	Most int
	Unit Unit
}

// Size returns the length of a text in the limit's unit.
func (l Limit) Size(text string) int {
	switch l.Unit {
	case UTF16Units:
		n := 0
		for _, r := range text {
			n++
			if r > 0xffff {
				n++
			}
		}
		return n
	case Bytes:
		return len(text)
	default:
		return utf8.RuneCountInString(text)
	}
}

// Split cuts a text into messages within the limit, in order. It prefers a cut between paragraphs, then between lines, sentences
// and words, and otherwise cuts between two graphemes (Unicode Standard Annex 29). It cuts a grapheme, between two characters,
// only if the grapheme alone exceeds the limit. It leaves a message less than half full only if every other cut would be within a
// word.
//
// White space around a cut and at both ends of the text is removed; nothing else is. Bytes that aren't UTF-8 become U+FFFD. A
// text of white space gives no parts.
func Split(l Limit, text string) []string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if l.Most <= 0 {
		l = Limit{len(text), Bytes}
	}
	if text != "" && text == strings.TrimSpace(text) && l.Size(text) <= l.Most {
		return []string{text}
	}
	var parts []string
	for pieces := trimRight(takeApart(text, l)); len(pieces) > 0; {
		n := l.cut(pieces)
		var part strings.Builder
		for _, p := range trimRight(pieces[:n]) {
			part.WriteString(p.text)
		}
		parts = append(parts, part.String())
		for pieces = pieces[n:]; len(pieces) > 0 && pieces[0].space; {
			pieces = pieces[1:]
		}
	}
	return parts
}

// cutKind ranks the places for a cut.
type cutKind uint8

const (
	cutGrapheme cutKind = iota
	cutSpace
	cutSentence
	cutLine
	cutParagraph
)

// piece is a grapheme, or a character of a grapheme that alone exceeds the limit.
type piece struct {
	text  string
	size  int
	space bool
	// before ranks a cut before the piece. A run of white space has its rank at its first piece.
	before cutKind
}

// takeApart returns the pieces of a text, without the white space at its beginning.
func takeApart(text string, l Limit) []piece {
	var (
		pieces   []piece
		run      = -1 // index of the first piece of the current white space, or -1
		lines    int  // line ends in the white space
		sentence bool // a sentence ended after the last piece that isn't white space
	)
	for cluster, ends := range segment.Characters(text) {
		p := piece{text: cluster, size: l.Size(cluster), space: strings.TrimSpace(cluster) == ""}
		switch {
		case p.space && len(pieces) == 0:
			continue
		case p.space && run < 0:
			run, lines = len(pieces), lineEnds[cluster]
		case p.space:
			lines += lineEnds[cluster]
		case run >= 0:
			pieces[run].before = kindOfRun(lines, sentence)
			run, sentence = -1, false
		case sentence:
			p.before, sentence = cutSentence, false
		}
		sentence = sentence || ends
		if p.size > l.Most {
			for _, r := range p.text {
				pieces = append(pieces, piece{text: string(r), size: l.Size(string(r)), before: p.before})
				p.before = cutGrapheme
			}
			continue
		}
		pieces = append(pieces, p)
	}
	return pieces
}

func kindOfRun(lines int, sentence bool) cutKind {
	switch {
	case lines >= 2:
		return cutParagraph
	case lines == 1:
		return cutLine
	case sentence:
		return cutSentence
	}
	return cutSpace
}

// cuts contains the index of the last cut of each kind. 0 means that there is none.
type cuts [cutParagraph + 1]int

func (c *cuts) best() int {
	for kind := cutParagraph; kind > cutGrapheme; kind-- {
		if c[kind] > 0 {
			return c[kind]
		}
	}
	return 0
}

// cut returns the number of pieces in the next message. White space at a cut needs no room.
func (l Limit) cut(pieces []piece) int {
	var early, late cuts // cuts that leave the message less than half full, and all others
	size := 0
	for i, p := range pieces {
		if 2*size < l.Most {
			early[p.before] = i
		} else {
			late[p.before] = i
		}
		size += p.size
		if size > l.Most {
			return cmp.Or(late.best(), early.best(), i)
		}
	}
	return len(pieces)
}

func trimRight(pieces []piece) []piece {
	for len(pieces) > 0 && pieces[len(pieces)-1].space {
		pieces = pieces[:len(pieces)-1]
	}
	return pieces
}

// lineEnds has the number of line ends in white space that ends lines.
var lineEnds = map[string]int{"\u2029": 2, "\n": 1, "\r\n": 1, "\r": 1, "\v": 1, "\f": 1, "\u0085": 1, "\u2028": 1}
