package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"math/big"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

const depth = 64

// skip reads a whole text.
func skip(s jsonscan.Scanner) (what string, at int) {
	if s.Skip() && s.End() {
		return "", 0
	}
	return s.Fault()
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		what string
		at   int
	}{
		``:                      {"unexpected end", 0},
		" \n":                   {"unexpected end", 2},
		`?`:                     {"unexpected character", 0},
		`{}x`:                   {"more data after the end of the object", 2},
		`{}{}`:                  {"more data after the end of the object", 2},
		`[nul]`:                 {"unexpected character", 1},
		`{1:2}`:                 {"a member name is missing", 1},
		`{"a":1,}`:              {"a member name is missing", 7},
		`{"a" 1}`:               {"a colon is missing", 5},
		`{"a":1 "b":2}`:         {"a comma or closing brace is missing", 7},
		`{"a":1]`:               {"a comma or closing brace is missing", 6},
		`[1 2]`:                 {"a comma or closing bracket is missing", 3},
		`[1}`:                   {"a comma or closing bracket is missing", 2},
		`[1,]`:                  {"unexpected character", 3},
		`[`:                     {"unexpected end", 1},
		`[01]`:                  {"a comma or closing bracket is missing", 2},
		`[1.]`:                  {"an invalid number", 3},
		`[-]`:                   {"an invalid number", 2},
		`[1e+]`:                 {"an invalid number", 4},
		`"abc`:                  {"a string does not end", 4},
		`"a\`:                   {"an invalid escape or a lone surrogate", 2},
		`["ab\x"]`:              {"an invalid escape or a lone surrogate", 4},
		`["\u12g4"]`:            {"an invalid escape or a lone surrogate", 2},
		"[\"ab\ncd\"]":          {"a control character in a string", 4},
		`{"a":{"b":1},"c":[{`:   {"a member name is missing", 19},
		nested(depth + 1):       {"nested too deeply", depth},
		`{"a":` + nested(depth): {"nested too deeply", depth + 4},
	} {
		for _, s := range []jsonscan.Scanner{jsonscan.Strict([]byte(text), depth), jsonscan.Lenient([]byte(text), depth)} {
			what, at := skip(s)
			require.Equal(t, want.what, what, "%.100s", text)
			require.Equal(t, want.at, at, "%.100s", text)
		}
	}
}

// TestStrictFaults: faults of a strict text that a lenient one may have.
func TestStrictFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		what string
		at   int
	}{
		`["\ud800"]`:                  {"an invalid escape or a lone surrogate", 2},
		`["\udc00\ud800"]`:            {"an invalid escape or a lone surrogate", 2},
		`["\ud800\ud800"]`:            {"an invalid escape or a lone surrogate", 2},
		"[\"ab\xff\"]":                {"a string with invalid UTF-8", 2},
		"[\"ab\\ncd\xffe\\nf\"]":      {"a string with invalid UTF-8", 6},
		"[\"a\xc3\\n\"]":              {"a string with invalid UTF-8", 2},
		"[\"é\\n\xed\xa0\x80\"]":      {"a string with invalid UTF-8", 6},
		`{"a":1,"a":2}`:               {"a name is used twice in one object", 7},
		`{"a":1,"\u0061":2}`:          {"a name is used twice in one object", 7},
		`{"x":[{"é":1,"b":2,"é":3}]}`: {"a name is used twice in one object", 20},
	} {
		what, at := skip(jsonscan.Strict([]byte(text), depth))
		require.Equal(t, want.what, what, text)
		require.Equal(t, want.at, at, text)
		what, _ = skip(jsonscan.Lenient([]byte(text), depth))
		require.Empty(t, what, text)
	}
	// Of several faults of a string the first one is reported.
	what, at := skip(jsonscan.Strict([]byte("[\"a\\n\xff\\x\"]"), depth))
	require.Equal(t, "a string with invalid UTF-8", what)
	require.Equal(t, 5, at)
}

// TestFaultStops: after a fault nothing more is read, whatever is called.
func TestFaultStops(t *testing.T) {
	t.Parallel()
	s := jsonscan.Lenient([]byte(`{"a":tru, "b":[1,"x",{}],"c":null}`), depth)
	require.True(t, s.Enter('{'))
	s.Key()
	require.False(t, s.Skip())
	what, at := s.Fault()
	require.Zero(t, s.Peek())
	require.False(t, s.More('{'))
	require.False(t, s.Enter('['))
	require.False(t, s.End())
	require.False(t, s.Null())
	require.Nil(t, s.Key())
	require.Nil(t, s.String())
	require.Nil(t, s.Number())
	require.Nil(t, s.Value())
	require.False(t, s.Object(func(jsonscan.Literal) bool { return true }, nil))
	require.False(t, s.Array(func(int) bool { return true }))
	still, same := s.Fault()
	require.Equal(t, what, still)
	require.Equal(t, at, same)
}

func TestWalks(t *testing.T) {
	t.Parallel()
	s := jsonscan.Lenient([]byte(` { "a" : [ ] , "b" : [ 1 , "x" , { "y" : null } ] , "c" : {} , "c" : -1.5e+3 } `), depth)
	var names, values []string
	for more := s.Enter('{'); more; more = s.More('{') {
		names = append(names, string(s.Key()))
		values = append(values, string(s.Value()))
	}
	require.True(t, s.End())
	require.Equal(t, []string{`"a"`, `"b"`, `"c"`, `"c"`}, names)
	require.Equal(t, []string{`[ ]`, `[ 1 , "x" , { "y" : null } ]`, `{}`, `-1.5e+3`}, values)

	s = jsonscan.Strict([]byte(`{"a":[null,"\u0041",2],"b":1,"\u0061":2}`), depth)
	var repeated string
	read := s.Object(func(name jsonscan.Literal) bool {
		if name.Text() != "a" {
			return s.Skip()
		}
		return s.Array(func(index int) bool {
			switch index {
			case 0:
				return s.Null()
			case 1:
				return s.String().Text() == "A"
			default:
				return string(s.Number()) == "2"
			}
		})
	}, func(name jsonscan.Literal) { repeated = string(name) })
	require.False(t, read)
	require.Equal(t, `"\u0061"`, repeated)
}

func nested(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }

// TestDepth: what counts is what is open at a time, however it is read; and the stack doesn't grow with it.
func TestDepth(t *testing.T) {
	t.Parallel()
	mixed := func(n int) string {
		return strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`[0]`, n%2) + strings.Repeat(`]}`, n/2)
	}
	for _, most := range []int{3, 63, 64, 65, 128, 129, 10_000} {
		for _, text := range []string{nested(most), mixed(most), `[` + strings.Repeat(nested(most-1)+`,`, 3) + `0]`} {
			what, _ := skip(jsonscan.Lenient([]byte(text), most))
			require.Empty(t, what, most)
			what, _ = skip(jsonscan.Strict([]byte(text), most))
			require.Empty(t, what, most)
			what, _ = skip(jsonscan.Lenient([]byte(`[`+text+`]`), most))
			require.Equal(t, "nested too deeply", what)
			what, _ = skip(jsonscan.Strict([]byte(`[`+text+`]`), most))
			require.Equal(t, "nested too deeply", what)
		}
	}
}

func members(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"` + strconv.FormatInt(int64(i), 36) + `":0`)
	}
	return `{` + b.String()[1:] + `}`
}

// TestNames: many names are compared, none is lost when the table grows, and their number is bounded.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 12, 13, 24, 25, 1000, jsonscan.MaxNames} {
		text := members(n)
		what, _ := skip(jsonscan.Strict([]byte(text), depth))
		require.Empty(t, what, n)
		for _, again := range []int{0, n / 2, n - 1} {
			name := strconv.FormatInt(int64(again), 36)
			what, at := skip(jsonscan.Strict([]byte(text[:len(text)-1]+`,"\u00`+strconv.FormatInt(int64(name[0]), 16)+name[1:]+`":0}`), depth))
			require.Equal(t, "a name is used twice in one object", what, n)
			require.Equal(t, len(text), at)
		}
	}
	what, _ := skip(jsonscan.Strict([]byte(members(jsonscan.MaxNames+1)), depth))
	require.Equal(t, "too many member names", what)
	half := members(jsonscan.MaxNames / 2)
	what, _ = skip(jsonscan.Strict([]byte(`[`+half+`,`+half+`,`+half+`]`), depth))
	require.Empty(t, what)
	what, _ = skip(jsonscan.Strict([]byte(half[:len(half)-1]+`,"x y":`+half+`}`), depth))
	require.Equal(t, "too many member names", what, "names of objects around count, too")
	what, _ = skip(jsonscan.Lenient([]byte(members(jsonscan.MaxNames+1)), depth))
	require.Empty(t, what)
}

// large are valid texts of about n bytes, each of which is the worst case of something.
func large(n int) map[string]string {
	fill := func(piece string) string { return strings.Repeat(piece, n/len(piece)) }
	return map[string]string{
		"escaped quotes": `"` + fill(`\"`) + `"`, "surrogates": `"` + fill(`\ud83d\ude00`) + `"`, "one text": `"` + fill("a") + `"`, "han": `"` + fill("漢") + `"`,
		"empty arrays": `[` + fill(`[],`) + `0]`, "objects": `[` + fill(`{"a":{"b":[]}},`) + `0]`, "numbers": `[` + fill(`1e17,`) + `0]`,
		"13 names":           `[` + fill(`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0,"l":0,"m":0},`) + `0]`,
		"names":              members(n / 8),
		"long escaped names": `[` + strings.Repeat(`{"`+strings.Repeat(`\u0061`, 500)+`1":0,"`+strings.Repeat(`\u0061`, 500)+`2":0},`, n/6000) + `0]`,
		"digits":             fill(`1`) + `.` + fill(`0`) + `e-` + fill(`9`), "white space": fill(" \n") + `0`, "deep": `[` + strings.Repeat(nested(60)+`,`, n/121) + `0]`,
	}
}

// TestLinear: a scan that looks at a byte more than a bounded number of times does not end within the time of a test run.
func TestLinear(t *testing.T) {
	t.Parallel()
	for name, text := range large(4 << 20) {
		if name == "names" {
			continue // more than are compared
		}
		begun := time.Now()
		for _, s := range []jsonscan.Scanner{jsonscan.Strict([]byte(text), depth), jsonscan.Lenient([]byte(text), depth)} {
			what, _ := skip(s)
			require.Empty(t, what, name)
		}
		require.Less(t, time.Since(begun), 30*time.Second, name)
	}
}

// TestMemory: a lenient scan takes none, a strict one at most eight bytes for each of the text.
func TestMemory(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	for name, text := range large(256 << 10) {
		data := []byte(text)
		require.LessOrEqual(t, allocated(func() { skip(jsonscan.Lenient(data, depth)) }), uint64(1<<10), name)
		require.LessOrEqual(t, allocated(func() { skip(jsonscan.Strict(data, depth)) }), uint64(8*len(data)), name)
	}
}

// allocated returns the bytes that one of several runs allocates at least.
func allocated(run func()) uint64 {
	least := ^uint64(0)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

func TestInteger(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]int64{
		"0": 0, "-0": 0, "0.0e5": 0, "10": 10, "10.0": 10, "1e1": 10, "100e-1": 10, "1.5e1": 15, "-1.20E+2": -120, "999999999999999999": 999999999999999999, "0.00001e6": 10,
		"1" + strings.Repeat("0", 1000) + "e-1000": 1,
	} {
		got, whole := jsonscan.Integer([]byte(number))
		require.True(t, whole, number)
		require.Equal(t, want, got, number)
	}
	for _, number := range []string{"0.5", "1e-1", "15e-1", "1e18", "1000000000000000000", "1e99999999999999999999", "1.00000000000000000001"} {
		_, whole := jsonscan.Integer([]byte(number))
		require.False(t, whole, number)
	}
}

func TestLiterals(t *testing.T) {
	t.Parallel()
	var buf [jsonscan.MaxWord]byte
	long := strings.Repeat("a", jsonscan.MaxWord)
	for literal, want := range map[string]string{
		`"abc"`: "abc", `"a\u0062\u0063"`: "abc", `""`: "", `"` + long + `"`: long, `"` + long + `b"`: "", `"\u0061` + long + `"`: "", `"\u00e9"`: "", `"a\"\\\/\b\f\n\r\t"`: "a\"\\/\b\f\n\r\t",
	} {
		require.Equal(t, want, string(jsonscan.Literal(literal).Word(&buf)), literal)
	}
	require.True(t, jsonscan.Literal(`"a\u0000b"`).HasNUL())
	require.True(t, jsonscan.Literal(`"\\\u0000"`).HasNUL())
	require.False(t, jsonscan.Literal(`"\\u0000"`).HasNUL())
	require.False(t, jsonscan.Literal(`"u0000"`).HasNUL())
	for _, literal := range []string{``, `"`, `"\"`, `"\u"`, `"\ud83d\u"`, `x`, "\"\xff\\"} {
		l := jsonscan.Literal(literal)
		require.Equal(t, len(l.Text()), l.Len(), literal) // no panic
		l.Word(&buf)
		l.HasNUL()
		l.LongerThan(0)
	}
}

// FuzzScanner compares the scanner with encoding/json, and its strict mode with jsontext, which implements RFC 7493.
func FuzzScanner(f *testing.F) {
	for _, text := range []string{
		``, `{}`, ` [1, -0.5e+10, "a", true, false, null, {"a":{"a":[]}}] `, `{"a":1,"\u0061":2}`, `"\ud83d\ude00\ud800"`, "\"\xff\xc3\\n\"", `"a longer text with an escape \" and é in it"`, nested(10_001),
		nested(64), nested(65), `[01]`, `[1.]`, `{"a" 1}`, `["a`, `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":0,"k":1,"l":2,"m":3,"n":4,"m":5}`, `123456789012345678e-3`, "[\"\u2028\x7f\"]", "[1]\x00",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		lenient := jsonscan.Lenient(text, 10_000) // the bound of encoding/json
		value := lenient.Value()
		valid := lenient.End()
		require.Equal(t, json.Valid(text), valid)
		strict := jsonscan.Strict(text, depth)
		require.Equal(t, jsontext.Value(text).IsValid() && deepest(text) <= depth, strict.Skip() && strict.End())
		require.Equal(t, before, text, "the text must not be changed")
		if !valid {
			what, at := lenient.Fault()
			require.NotEmpty(t, what)
			require.LessOrEqual(t, at, len(text))
			return
		}
		require.Equal(t, string(bytes.Trim(text, " \t\r\n")), string(value))
		s := jsonscan.Lenient(text, 10_000)
		requireSame(t, &s)
		require.True(t, s.End())
	})
}

// deepest is the depth of a valid text.
func deepest(text []byte) (deepest int) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := d.ReadToken(); err != nil {
			return deepest
		}
		deepest = max(deepest, d.StackDepth())
	}
}

// requireSame reads one value step by step and requires that each string and number is the same for encoding/json.
func requireSame(t *testing.T, s *jsonscan.Scanner) {
	t.Helper()
	switch c := s.Peek(); {
	case c == '{':
		for more := s.Enter('{'); more; more = s.More('{') {
			requireSameText(t, s.Key())
			requireSame(t, s)
		}
	case c == '[':
		for more := s.Enter('['); more; more = s.More('[') {
			requireSame(t, s)
		}
	case c == '"':
		requireSameText(t, s.String())
	case jsonscan.IsNumber(c):
		requireSameNumber(t, s.Number())
	case c == 'n':
		require.True(t, s.Null())
	default:
		require.Contains(t, []string{"true", "false"}, string(s.Value()))
	}
}

func requireSameText(t *testing.T, l jsonscan.Literal) {
	t.Helper()
	var want string
	require.NoError(t, json.Unmarshal(l, &want))
	require.Equal(t, want, l.Text())
	require.Equal(t, len(want), l.Len())
	require.Equal(t, strings.Contains(want, "\x00"), l.HasNUL())
	var runes []rune
	for in := l.Inner(); len(in) > 0; {
		r, size := jsonscan.DecodeRune(in)
		runes, in = append(runes, r), in[size:]
	}
	require.Equal(t, want, string(runes))
	if utf8.Valid(l) {
		require.False(t, l.LongerThan(len(runes)))
		require.True(t, l.LongerThan(len(runes)-1))
	}
	var buf [jsonscan.MaxWord]byte
	if word := l.Word(&buf); len(want) <= len(buf) && strings.IndexFunc(want, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		require.Equal(t, want, string(word))
	} else if utf8.Valid(l) && strings.Contains(string(l), `\`) {
		require.Nil(t, word)
	}
}

func requireSameNumber(t *testing.T, number []byte) {
	t.Helper()
	require.True(t, json.Valid(number))
	if exponent := bytes.IndexAny(number, "eE"); exponent >= 0 && len(number)-exponent > 4 {
		return // too much for big.Rat
	}
	exact, ok := new(big.Rat).SetString(string(number))
	require.True(t, ok)
	value, whole := jsonscan.Integer(number)
	small := exact.IsInt() && new(big.Int).Abs(exact.Num()).Cmp(big.NewInt(1e18)) < 0
	require.Equal(t, small, whole, "%s", number)
	if whole {
		require.Equal(t, exact.Num().Int64(), value)
	}
}

// TestUnreadValuesAreSkipped: a loop that doesn't read its values accepts and refuses the texts that encoding/json does.
func TestUnreadValuesAreSkipped(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `{"a":1}`, `{ "a" : [1, {"b": 2}] , "c" : "d" }`, "{\"a\":\n\ttrue,\"b\":{}}", `[]`, `[ 1 , [2], {"a":3} , null ]`,
		`{"a":}`, `{"a":,}`, `{"a":1,}`, `{"a" 1}`, `{"a":1 2}`, `{"a":tru}`, `{"a":1`, `{"a":`, `{"a":{"b":}}`,
		`[,]`, `[1,]`, `[1 2]`, `[1,,2]`, `[`, `[1`, `[}`,
	} {
		s := jsonscan.Lenient([]byte(text), 8)
		open := text[0]
		for more := s.Enter(open); more; more = s.More(open) {
			if open == '{' {
				s.Key()
			}
		}
		require.Equal(t, json.Valid([]byte(text)), s.End(), text)
	}
}
