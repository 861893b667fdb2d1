package platforms

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/segment"
)

// limit is how long one message may be, in the platform's own unit.
type limit struct {
	most int
	size func(string) int
}

func characters(s string) int { return utf8.RuneCountInString(s) }

func bytesOf(s string) int { return len(s) }

// utf16Units counts what JavaScript and Java call characters.
func utf16Units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}

// limitOf is the table of notes/platforms.md §4. The bot platform speaks of characters after entities, which are UTF-16
// units; the bytes of the photo service are general knowledge. No source names a limit of the marketplaces: 1,000
// characters are our choice. The widget has none, so a reply stays whole.
func limitOf(t Type) (limit, bool) {
	switch t {
	case Bot:
		return limit{4096, utf16Units}, true
	case SocialMessenger, LocalChat:
		return limit{2000, characters}, true
	case PhotoDM:
		return limit{1000, bytesOf}, true
	case ChatApp:
		return limit{4096, characters}, true
	case MarketA, MarketB:
		return limit{1000, characters}, true
	case Widget:
	}
	return limit{}, false
}

// Split cuts a text into messages within the limit of the platform, in order. It cuts between paragraphs, else between
// lines, sentences or words, and only where there is none of these between two graphemes (Unicode Standard Annex 29); a
// grapheme is cut, between two characters, only if it alone exceeds the limit. A cut that leaves a message less than half
// full is taken only if no other but one within a word is left.
//
// White space around a cut, and at both ends of the text, is left out; nothing else is. Bytes that are no UTF-8 become
// U+FFFD. A text of white space only gives no parts.
func Split(t Type, text string) []string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	l, limited := limitOf(t)
	if !limited {
		l = limit{len(text), bytesOf}
	}
	if text != "" && text == strings.TrimSpace(text) && l.size(text) <= l.most {
		return []string{text}
	}
	var parts []string
	for pieces := trimRight(takeApart(text, l)); len(pieces) > 0; {
		n := l.cut(pieces)
		parts = append(parts, join(trimRight(pieces[:n])))
		pieces = trimLeft(pieces[n:])
	}
	return parts
}

// cutKind says how good a place for a cut is.
type cutKind uint8

const (
	cutGrapheme cutKind = iota
	cutSpace
	cutSentence
	cutLine
	cutParagraph
)

// piece is a grapheme, or a character of one that alone exceeds the limit.
type piece struct {
	text  string
	size  int
	space bool
	// before is how good a cut before the piece is. That of a run of white space stands at its first piece.
	before cutKind
}

// takeApart returns the pieces of a text behind the white space that it begins with.
func takeApart(text string, l limit) []piece {
	var (
		pieces   []piece
		run      = -1 // where the white space at hand began
		lines    int  // line ends in it
		sentence bool // a sentence ended after the last piece that is no white space
	)
	for state := -1; text != ""; {
		cluster, rest, ends, next := segment.Step(text, state)
		text, state = rest, next
		p := piece{text: cluster, size: l.size(cluster), space: isSpace(cluster)}
		switch {
		case p.space && len(pieces) == 0:
			continue
		case p.space && run < 0:
			run, lines = len(pieces), lineEnds(cluster)
		case p.space:
			lines += lineEnds(cluster)
		case run >= 0:
			pieces[run].before = kindOfRun(lines, sentence)
			run, sentence = -1, false
		case sentence:
			p.before, sentence = cutSentence, false
		}
		sentence = sentence || ends
		if p.size > l.most {
			pieces = appendCharacters(pieces, p, l)
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

func appendCharacters(pieces []piece, p piece, l limit) []piece {
	before := p.before
	for _, r := range p.text {
		pieces = append(pieces, piece{text: string(r), size: l.size(string(r)), before: before})
		before = cutGrapheme
	}
	return pieces
}

// cuts holds the last place found of each kind; no cut is at 0.
type cuts [cutParagraph + 1]int

func (c *cuts) best() int {
	for kind := cutParagraph; kind > cutGrapheme; kind-- {
		if c[kind] > 0 {
			return c[kind]
		}
	}
	return 0
}

// cut returns how many pieces go into the next message. White space at a cut needs no room.
func (l limit) cut(pieces []piece) int {
	var early, late cuts // those of a message less than half full, and the others
	size := 0
	for i, p := range pieces {
		if 2*size < l.most {
			early[p.before] = i
		} else {
			late[p.before] = i
		}
		size += p.size
		if size > l.most {
			return cmp.Or(late.best(), early.best(), i)
		}
	}
	return len(pieces)
}

func join(pieces []piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.text)
	}
	return b.String()
}

func trimLeft(pieces []piece) []piece {
	for len(pieces) > 0 && pieces[0].space {
		pieces = pieces[1:]
	}
	return pieces
}

func trimRight(pieces []piece) []piece {
	for len(pieces) > 0 && pieces[len(pieces)-1].space {
		pieces = pieces[:len(pieces)-1]
	}
	return pieces
}

// isSpace tells whether a grapheme is white space and nothing else: an accent may sit on a blank.
func isSpace(cluster string) bool {
	return !strings.ContainsFunc(cluster, func(r rune) bool { return !unicode.IsSpace(r) })
}

func lineEnds(cluster string) int {
	switch cluster {
	case "\u2029":
		return 2
	case "\n", "\r\n", "\r", "\v", "\f", "\u0085", "\u2028":
		return 1
	}
	return 0
}
