package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// cutAt returns the index of the first occurrence of any stop in a text, or -1. It is the plain definition.
func cutAt(text string, stops []string) int {
	first := -1
	for _, stop := range stops {
		if i := strings.Index(text, stop); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

// mayBegin returns the first index in a text from which its end is the beginning of a stop.
func mayBegin(text string, stops []string) int {
	for i := range len(text) {
		if slices.ContainsFunc(stops, func(stop string) bool { return strings.HasPrefix(stop, text[i:]) }) {
			return i
		}
	}
	return len(text)
}

// searched passes a text in pieces, and checks after each that everything is passed on that can't belong to a stop, and nothing else.
func searched(t *testing.T, stops, pieces []string) (passed string, found bool) {
	t.Helper()
	s := newStopSearch(slices.Clone(stops))
	seen := ""
	for i, piece := range pieces {
		seen += piece
		event := providers.Event{Text: piece}
		if i%2 == 1 {
			event = providers.Event{Quoted: providers.Quote(piece)}
		}
		s.pass(&event)
		passed += event.Answer()
		cut := cutAt(seen, stops)
		if s.found {
			require.Equal(t, seen[:cut], passed, "%q in %q", stops, pieces)
			return passed, true
		}
		due := mayBegin(seen, stops)
		if cut >= 0 {
			require.Less(t, due, cut, "%q in %q: the first stop is known", stops, pieces[:i+1])
		}
		require.Equal(t, seen[:due], passed, "%q in %q", stops, pieces[:i+1])
	}
	passed += s.rest()
	require.Empty(t, s.rest(), "there is one end")
	return passed, s.found
}

func requireStopped(t *testing.T, stops, pieces []string) {
	t.Helper()
	whole := strings.Join(pieces, "")
	passed, found := searched(t, stops, pieces)
	cut := cutAt(whole, stops)
	require.Equal(t, cut >= 0, found, "%q in %q", stops, pieces)
	if !found {
		cut = len(whole)
	}
	require.Equal(t, whole[:cut], passed, "%q in %q", stops, pieces)
}

func TestStopSearch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ stops, pieces []string }{
		{[]string{"END"}, []string{"one E", "N", "D two"}},
		{[]string{"END"}, []string{"one EN", "EN", "DO"}},
		{[]string{"END"}, []string{"one EN"}},
		{[]string{"\n\n"}, []string{"a\n", "b\n\n", "c"}},
		{[]string{"ab", "abc", "ab"}, []string{"xab", "c"}},                // a stop that begins another one, and twice the same
		{[]string{"abcdX", "cd"}, []string{"abc", "d", "X"}},               // the longer one begins earlier
		{[]string{"abcdX", "cd"}, []string{"abc", "d", "Y"}},               // but doesn't come
		{[]string{"abcdX", "cd"}, []string{"abc", "d"}},                    // and isn't decided when the text ends
		{[]string{"bcdefX", "abcdefgY", "de"}, []string{"abcdef", "gZ"}},   // the last one is decided by two that don't come
		{[]string{"aab"}, []string{"aaa", "aaab"}},                         // overlapping beginnings
		{[]string{"é", "😀"}, []string{"abc è", "a 😀"}},                     // bytes of characters that begin alike
		{[]string{"a", "b", "c", "d", "e", "f"}, []string{"xyz", "xyf"}},   // more than a vendor accepts
		{[]string{"he", "she", "his", "hers"}, []string{"us", "h", "ers"}}, // the example of Aho and Corasick
		{[]string{"x"}, nil},
	} {
		requireStopped(t, test.stops, test.pieces)
	}
}

// TestStopSearchAgreesWithIndex compares the search with strings.Index over the whole text, with any cuts. Two letters make beginnings of stops
// that overlap likely.
func TestStopSearchAgreesWithIndex(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	word := func(letters, length int) string {
		b := make([]byte, length)
		for i := range b {
			b[i] = 'a' + byte(r.IntN(letters))
		}
		return string(b)
	}
	for range 3000 {
		letters := 1 + r.IntN(3)
		stops := make([]string, 1+r.IntN(6))
		for i := range stops {
			stops[i] = word(letters, 1+r.IntN(7))
		}
		var pieces []string
		for range r.IntN(8) {
			pieces = append(pieces, word(letters+r.IntN(2), r.IntN(6)))
		}
		requireStopped(t, stops, pieces)
	}
}

func FuzzStopSearch(f *testing.F) {
	f.Add("END|EN", "one E|N|D")
	f.Add("abcdX|cd", "abc|d|Y")
	f.Add("\n", "a|\n")
	f.Fuzz(func(t *testing.T, stops, pieces string) {
		stops, pieces = strings.ToValidUTF8(stops, "?"), strings.ToValidUTF8(pieces, "?")
		given := slices.DeleteFunc(strings.Split(stops, "|"), func(stop string) bool { return stop == "" })
		if len(given) > 0 && len(stops) < 200 && len(pieces) < 500 {
			requireStopped(t, given, strings.Split(pieces, "|"))
		}
	})
}

// hardStops are stop sequences up to the limit for which a plain search would need a time that grows with the square of the text, or with the
// number of stops. The text never has one.
var hardStops = map[string]func() (stops []string, text string){
	"one long": func() ([]string, string) {
		return []string{strings.Repeat("a", maxStopBytes-1) + "b"}, strings.Repeat("a", 1<<20)
	},
	"ends of each other": func() ([]string, string) {
		var stops []string
		for n := 1; n < 700; n++ {
			stops = append(stops, strings.Repeat("a", n)+"b")
		}
		return stops, strings.Repeat(strings.Repeat("a", 700)+"c", 1500)
	},
	"many": func() ([]string, string) {
		stops := make([]string, 10_000)
		for i := range stops {
			stops[i] = fmt.Sprintf("the end, all of it %04d", i)
		}
		return stops, strings.Repeat("the end, all of it 12.34", 42_000)
	},
}

// TestStopSearchIsLinear guarantees that no stops within the limit make a call slow: the texts of 1 MiB are searched in some 20 ms. A search that
// isn't linear would need minutes.
func TestStopSearchIsLinear(t *testing.T) {
	t.Parallel()
	for name, hard := range hardStops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stops, text := hard()
			s := newStopSearch(stops)
			passed := 0
			for piece := range slices.Chunk([]byte(text), 5) {
				event := providers.Event{Text: string(piece)}
				s.pass(&event)
				passed += len(event.Text)
			}
			require.Equal(t, len(text), passed+len(s.rest()))
			require.False(t, s.found)
		})
	}
}

// TestStopSearchMemory guarantees that a search needs no more memory than the room that is reserved for it.
func TestStopSearchMemory(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, unsafe.Sizeof(stopNode{}), uintptr(stopNodeBytes))
	require.LessOrEqual(t, cap(newStopSearch([]string{"abc", "abd", "x"}).nodes), len("abcabdx")+2)
}

func BenchmarkStopSearch(b *testing.B) {
	for name, hard := range hardStops {
		b.Run(name, func(b *testing.B) {
			stops, text := hard()
			b.Run("new", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					newStopSearch(slices.Clone(stops))
				}
			})
			b.Run("text", func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				s := newStopSearch(slices.Clone(stops))
				for b.Loop() {
					s.at, s.held, s.cut = 0, nil, -1
					for piece := range slices.Chunk([]byte(text), 5) {
						event := providers.Event{Text: string(piece)}
						s.pass(&event)
					}
				}
			})
		})
	}
}
