// Package tokens counts tokens with the vocabulary o200k_base, in time linear in the text and without allocating.
//
// A text is split into pieces, and byte pairs of a piece are merged, as OpenAI's tiktoken does. The only difference is that a
// piece ends after 128 bytes. So the count is exact for words and numbers, and a token or two higher for each 128 bytes of longer
// runs, such as Chinese text without spaces.
//
// The package does not encode texts, and does not limit the processor time of its callers.
package tokens

import (
	"fmt"
	"hash/maphash"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
	"golang.org/x/text/unicode/rangetable"
)

const (
	// vocabularySize is the number of tokens in o200k_base, without the special ones, which no text contains.
	vocabularySize = 199_998
	// slots is the size of the hash table, a power of two.
	slots = 1 << 19
	// none is the rank of a text that isn't a token.
	none = ^uint32(0)
	// maxPiece is the greatest length of a piece in bytes. It limits the cost of a merge. The longest tokens have as many bytes.
	maxPiece = 128
)

// Vocabulary holds the tokens of o200k_base. It has no pointers to tokens, because the garbage collector would follow 200,000 of
// them in each cycle.
type Vocabulary struct {
	*splitter

	seed maphash.Seed
	// text contains the tokens in the order of their ranks, ends the end of each.
	text string
	ends [vocabularySize]uint32
	// table contains each token's rank + 1, in the first free slot from its hash on.
	table [slots]uint32
}

// Load builds the vocabulary, which needs some 150 ms and 13 MB, 7 of them for the library's own map.
func Load() (*Vocabulary, error) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		return nil, fmt.Errorf("loading o200k_base: %w", err)
	}
	v := &Vocabulary{splitter: newSplitter(), seed: maphash.MakeSeed()}
	var text []byte
	for rank := range uint32(vocabularySize) {
		token, err := codec.Decode([]uint{uint(rank)})
		if err != nil {
			return nil, fmt.Errorf("reading o200k_base: %w", err)
		}
		text = append(text, token...)
		v.ends[rank] = uint32(len(text)) //nolint:gosec // the vocabulary has some MB
		slot := v.slot(token)
		for v.table[slot] != 0 {
			slot = (slot + 1) % slots
		}
		v.table[slot] = rank + 1
	}
	v.text = string(text)
	return v, nil
}

// First returns the length of the first piece of a text, up to 128 bytes, and its number of tokens.
func (v *Vocabulary) First(text string) (length, tokens int) {
	if len(text) > maxPiece {
		end := maxPiece
		for end > maxPiece-3 && text[end]&0xC0 == 0x80 { // not within a character
			end--
		}
		text = text[:end]
	}
	n := v.split(text)
	return n, v.count(text[:n])
}

// count merges the byte pairs of a piece, always the pair with the lowest rank of its token, and returns the number of remaining
// parts.
func (v *Vocabulary) count(piece string) int {
	if len(piece) < 2 || v.rank(piece) != none {
		return 1
	}
	// Part i begins at starts[i]. ranks[i] is the rank of the token that it forms with the next part.
	var starts [maxPiece + 1]uint8
	var ranks [maxPiece]uint32
	parts := len(piece)
	for i := range parts {
		starts[i] = uint8(i)
		ranks[i] = none
		if i+2 <= parts {
			ranks[i] = v.rank(piece[i : i+2])
		}
	}
	starts[parts] = uint8(parts)
	for {
		lowest, at := none, 0
		for i, rank := range ranks[:parts-1] {
			if rank < lowest {
				lowest, at = rank, i
			}
		}
		if lowest == none {
			return parts
		}
		copy(starts[at+1:parts], starts[at+2:parts+1])
		copy(ranks[at+1:parts-1], ranks[at+2:parts])
		parts--
		for i := max(0, at-1); i <= at; i++ {
			ranks[i] = none
			if i+2 <= parts {
				ranks[i] = v.rank(piece[starts[i]:starts[i+2]])
			}
		}
	}
}

// rank returns the rank of a token, or none.
func (v *Vocabulary) rank(token string) uint32 {
	for slot := v.slot(token); ; slot = (slot + 1) % slots {
		found := v.table[slot]
		if found == 0 {
			return none
		}
		if v.token(found-1) == token {
			return found - 1
		}
	}
}

func (v *Vocabulary) token(rank uint32) string {
	start := uint32(0)
	if rank > 0 {
		start = v.ends[rank-1]
	}
	return v.text[start:v.ends[rank]]
}

func (v *Vocabulary) slot(token string) uint64 { return maphash.String(v.seed, token) % slots }

// class is a set of the character classes in the pattern of o200k_base.
type class uint8

const (
	upper   class = 1 << iota // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower                     // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	letter                    // \p{L}
	number                    // \p{N}
	space                     // \s
	newline                   // [\r\n]
)

// splitter contains the class of each character. It splits texts as the pattern of o200k_base does.
type splitter [unicode.MaxRune + 1]class

func newSplitter() *splitter {
	var s splitter
	for table, is := range map[*unicode.RangeTable]class{
		unicode.Lu: upper | letter, unicode.Lt: upper | letter, unicode.Ll: lower | letter,
		unicode.Lm: upper | lower | letter, unicode.Lo: upper | lower | letter, unicode.M: upper | lower,
		unicode.N: number, unicode.White_Space: space,
	} {
		rangetable.Visit(table, func(r rune) { s[r] |= is })
	}
	s['\r'] |= newline
	s['\n'] |= newline
	return &s
}

// first decodes the first character of a text.
func (s *splitter) first(text string) (is class, size int) {
	r, size := utf8.DecodeRuneInString(text)
	return s[r], size
}

// split returns the length of the pattern's first match in a text, which must not be empty. The pattern's alternatives are, in
// this order:
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
func (s *splitter) split(text string) int {
	if end := s.word(text); end > 0 {
		return end + contraction(text[end:])
	}
	if end := s.digits(text); end > 0 {
		return end
	}
	if end := s.symbols(text); end > 0 {
		return end
	}
	return s.blank(text)
}

// word returns the end of the match of the first two alternatives, without the contraction, or 0.
func (s *splitter) word(text string) int {
	is, start := s.first(text)
	if is&(letter|number|newline) != 0 {
		start = 0
	}
	end, capitals := s.letters(text, start)
	if end == 0 && start > 0 && is&lower != 0 { // the mark at the beginning is part of the word
		end, _ = s.letters(text, 0)
	}
	if end == 0 && capitals > start {
		end = capitals
	}
	return end
}

// letters returns the end of the match of [upper]*[lower]+ from start on, or 0, and the end of the match of [upper]*.
func (s *splitter) letters(text string, start int) (end, capitals int) {
	for at := start; at < len(text); {
		is, size := s.first(text[at:])
		if is&upper == 0 {
			if is&lower != 0 {
				return at + s.lowers(text[at:]), at
			}
			return end, at
		}
		at += size
		if is&lower != 0 { // [upper]* gives back the characters up to this one
			end = at
		}
	}
	return end, len(text)
}

// lowers returns the end of the match of [lower]*.
func (s *splitter) lowers(text string) int {
	for at := 0; at < len(text); {
		is, size := s.first(text[at:])
		if is&lower == 0 {
			return at
		}
		at += size
	}
	return len(text)
}

// contraction returns the end of the match of (?i:'s|'t|'re|'ve|'m|'ll|'d)?.
func contraction(text string) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	switch r, size := utf8.DecodeRuneInString(text[1:]); r {
	case 's', 'S', 'ſ', 't', 'T', 'm', 'M', 'd', 'D':
		return 1 + size
	}
	if len(text) < 3 {
		return 0
	}
	if two := text[1:3]; strings.EqualFold(two, "re") || strings.EqualFold(two, "ve") || strings.EqualFold(two, "ll") {
		return 3
	}
	return 0
}

// digits returns the end of the match of the third alternative, or 0.
func (s *splitter) digits(text string) int {
	at := 0
	for range 3 {
		is, size := s.first(text[at:])
		if is&number == 0 {
			break
		}
		at += size
	}
	return at
}

// symbols returns the end of the match of the fourth alternative, or 0.
func (s *splitter) symbols(text string) int {
	start := 0
	if text[0] == ' ' {
		start = 1
	}
	at := start
	for at < len(text) {
		is, size := s.first(text[at:])
		if is&(letter|number|space) != 0 {
			break
		}
		at += size
	}
	if at == start {
		return 0
	}
	for at < len(text) && strings.IndexByte("\r\n/", text[at]) >= 0 {
		at++
	}
	return at
}

// blank returns the end of the match of the last three alternatives: after the last newline, else before the last character if
// the text goes on after the white space.
func (s *splitter) blank(text string) int {
	at, last, line := 0, 0, 0
	for at < len(text) {
		is, size := s.first(text[at:])
		if is&space == 0 {
			break
		}
		last, at = at, at+size
		if is&newline != 0 {
			line = at
		}
	}
	switch {
	case line > 0:
		return line
	case last > 0 && at < len(text):
		return last
	default:
		return at
	}
}
