// Package tokens counts tokens with the vocabulary o200k_base, in time linear in the text and without allocating.
//
// A text is split into pieces, and byte pairs of a piece are merged, as OpenAI's tiktoken does. The only difference is that a
// piece ends after 128 bytes. So the count is exact for words and numbers, and a token or two higher for each 128 bytes of longer
// runs, such as Chinese text without spaces.
//
// The package does not encode texts, and does not bound how much of a processor its callers keep.
package tokens

import (
	"fmt"
	"hash/maphash"

	"github.com/tiktoken-go/tokenizer"
)

const (
	// vocabularySize is the number of tokens in o200k_base, without the special ones, which no text contains.
	vocabularySize = 199_998
	// slots is the size of the hash table, a power of two.
	slots = 1 << 19
	// none is the rank of what is no token.
	none = ^uint32(0)
	// maxPiece bounds the bytes of a piece, and so what one merge costs. The longest tokens have as many.
	maxPiece = 128
)

// Vocabulary holds the tokens of o200k_base. It has no pointers to tokens, because the garbage collector would follow 200,000 of
// them in each cycle.
type Vocabulary struct {
	*splitter

	seed maphash.Seed
	// text has the tokens in the order of their ranks, and ends is where each of them ends.
	text string
	ends [vocabularySize]uint32
	// table has a token's rank + 1 in the first free slot from its hash on.
	table [slots]uint32
}

// Load builds the vocabulary, which takes some 150 ms and 13 MB, 7 of them for the library's own map.
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
		v.ends[rank] = uint32(len(text)) //nolint:gosec // some MB
		slot := v.slot(token)
		for v.table[slot] != 0 {
			slot = (slot + 1) % slots
		}
		v.table[slot] = rank + 1
	}
	v.text = string(text)
	return v, nil
}

// First returns the length of the first piece of a text, at most 128 bytes, and its number of tokens.
func (v *Vocabulary) First(text string) (length, tokens int) {
	n := v.split(window(text))
	return n, v.count(text[:n])
}

// window returns the part of text in which the first piece is looked for.
func window(text string) string {
	if len(text) <= maxPiece {
		return text
	}
	end := maxPiece
	for end > maxPiece-3 && text[end]&0xC0 == 0x80 { // not within a character
		end--
	}
	return text[:end]
}

// count merges the byte pairs of a piece, always the pair whose token has the lowest rank, and returns the number of parts that
// are left.
func (v *Vocabulary) count(piece string) int {
	if len(piece) < 2 || v.rank(piece) != none {
		return 1
	}
	// Part i begins at starts[i]. Together with the next part it is the token of ranks[i].
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
