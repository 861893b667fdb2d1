package tokens

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tiktoken-go/tokenizer"
	"pgregory.net/rapid"
)

var load = sync.OnceValues(Load)

func vocabulary(t require.TestingT) *Vocabulary {
	v, err := load()
	require.NoError(t, err)
	return v
}

// count counts a whole text by its pieces.
func count(v *Vocabulary, text string) (total int) {
	for text != "" {
		length, tokens := v.First(text)
		total += tokens
		text = text[length:]
	}
	return total
}

// TestVocabulary: every token of the library is found, and what it has besides them are special tokens.
func TestVocabulary(t *testing.T) {
	t.Parallel()
	v := vocabulary(t)
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	require.NoError(t, err)
	for rank := range uint32(vocabularySize) {
		token, err := codec.Decode([]uint{uint(rank)})
		require.NoError(t, err)
		if v.rank(token) != rank {
			require.Equal(t, rank, v.rank(token), "%q", token)
		}
		require.LessOrEqual(t, len(token), maxPiece)
	}
	_, err = codec.Decode([]uint{vocabularySize})
	require.Error(t, err)
	for b := range 256 {
		require.Less(t, v.rank(string([]byte{byte(b)})), uint32(256), "each byte is a token")
	}
	require.Equal(t, none, v.rank("no token at all"))
}

// TestCount compares random texts with the library, without the characters that the library's own splitter doesn't treat as the
// pattern does: it skips \x7f and ends a piece at each newline.
func TestCount(t *testing.T) {
	t.Parallel()
	v := vocabulary(t)
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	require.NoError(t, err)
	word := rapid.OneOf(
		rapid.SampledFrom(strings.Fields(`hello there Xin chào các bạn, Straße don't WE'LL 2026 3.14 {"a":[1]} 汉字 สวัสดี 👩‍👩‍👧 https://x.vn/?a=b 0f3a9b`)),
		rapid.StringOfN(rapid.SampledFrom([]rune(kinds)), 1, 20, -1), rapid.StringN(1, 20, maxPiece),
	)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(strings.Fields(strings.Join(rapid.SliceOf(word).Draw(t, "words"), " ")), " ")
		text = strings.ReplaceAll(text, "\x7f", "")
		want, err := codec.Count(text)
		require.NoError(t, err)
		require.Equal(t, want, count(v, text), "%+q", text)
	})
}

// TestEveryByteCounts: no character and no broken one is free.
func TestEveryByteCounts(t *testing.T) {
	t.Parallel()
	v := vocabulary(t)
	for b := range 256 {
		text := strings.Repeat(string([]byte{byte(b)}), 1000)
		require.GreaterOrEqual(t, count(v, text), 1000/maxPiece, "%#x", b)
	}
}

// TestPieces: no piece is longer than the bound or cuts a character.
func TestPieces(t *testing.T) {
	t.Parallel()
	v := vocabulary(t)
	for _, part := range []string{" ", "\n ", "a", "ạ", "汉", "🙂", "汉A", "\u0301A", "!", "\xff", "'s"} {
		for rest := strings.Repeat(part, 500); rest != ""; {
			length, tokens := v.First(rest)
			require.Positive(t, length)
			require.LessOrEqual(t, length, maxPiece)
			require.Positive(t, tokens)
			require.LessOrEqual(t, tokens, length)
			rest = rest[length:]
			require.True(t, rest == "" || rest[0]&0xC0 != 0x80, "%q: a character is cut", part)
		}
	}
}

// TestCutsAddFewTokens: a run that is longer than a piece may only cost a token or two more for each cut.
func TestCutsAddFewTokens(t *testing.T) {
	t.Parallel()
	v := vocabulary(t)
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	require.NoError(t, err)
	for _, part := range []string{" ", "\n", "a", "A", "ạ", "汉", "สวัสดี", "qzjxvk", "!", "🙂", "👩‍👩‍👧", "e\u0301\u0301", "0f3a9b", "hello there "} {
		text := strings.Repeat(part, 5000/len(part))
		whole, err := codec.Count(text)
		require.NoError(t, err)
		require.GreaterOrEqual(t, count(v, text), whole, "%q", part)
		require.LessOrEqual(t, count(v, text), whole+2*(len(text)/(maxPiece-3)+1), "%q", part)
	}
}

// TestCountAllocatesNothing, whatever the text.
func TestCountAllocatesNothing(t *testing.T) {
	v := vocabulary(t)
	text := strings.Repeat("Xin chào các bạn, 12345 \r\n\t汉字!!!", 20) + strings.Repeat("ạ", 500)
	require.Zero(t, testing.AllocsPerRun(10, func() { count(v, text) }))
}
