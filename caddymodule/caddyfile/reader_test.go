package caddyfile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddyfiletext "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// settings has a value of every kind that the reader reads.
type settings struct {
	Text   string
	Secret config.Secret
	ID     config.Identifier
	Count  *int64
	Price  *int64
	Size   *int64
	Pause  caddy.Duration
	On     bool
	Names  []string
	Tables map[string]string
	Inner  struct{ Text string }
}

func (s *settings) rules() []caddyfile.Rule {
	s.Tables = map[string]string{}
	return []caddyfile.Rule{
		caddyfile.Text("text", &s.Text, "", "a text"),
		caddyfile.Secret("secret", &s.Secret),
		caddyfile.Identifier("id", &s.ID),
		caddyfile.Integer("count", &s.Count, -10, 10),
		caddyfile.Price("price", &s.Price, 1<<40),
		caddyfile.Size("size", &s.Size, 1, 1<<40),
		caddyfile.Duration("pause", &s.Pause, time.Second),
		caddyfile.Bool("on", &s.On),
		{Word: "item", Named: true, HasBlock: true, Read: func(r *caddyfile.Reader, path string, o caddyfile.Option) {
			s.Names = append(s.Names, o.Args[0].Text)
			var text string
			r.Block(path, o, []caddyfile.Rule{caddyfile.Text("text", &text, "", "a text")})
		}},
		{Word: "table", Named: true, Once: true, Valued: true, Read: func(r *caddyfile.Reader, path string, o caddyfile.Option) {
			value := s.Tables[o.Args[0].Text]
			caddyfile.Set(r, path, o, &value, o.Args[1].Text)
			s.Tables[o.Args[0].Text] = value
		}},
		{Word: "inner", HasBlock: true, Read: func(r *caddyfile.Reader, path string, o caddyfile.Option) {
			r.NoArguments(path, o)
			r.Block(path, o, []caddyfile.Rule{caddyfile.Text("text", &s.Inner.Text, "", "a text")})
		}},
	}
}

// read reads the lines of a svc block; the first line is 2 in the file. invalid are faults of the values.
func read(t *testing.T, lines string, invalid ...config.Fault) (s settings, err error) {
	t.Helper()
	tokens, err := caddyfiletext.Tokenize([]byte("svc {\n"+lines+"\n}"), "Caddyfile")
	require.NoError(t, err)
	r, block := caddyfile.NewReader(caddyfiletext.NewDispenser(tokens))
	r.Block("svc", block, s.rules())
	faults := config.Faults(invalid)
	return s, r.Err(&faults, block)
}

func TestValues(t *testing.T) {
	t.Parallel()
	s, err := read(t, `text "a b"
secret {env.A}
id acc_1
count -3
price 150000
size 10MiB
pause 2m30s
on
item a {
	text x
}
item b
item a
table x 1
table y 2
inner {
	text z
}`)
	require.NoError(t, err)
	require.Equal(t, "a b", s.Text)
	require.EqualValues(t, "{env.A}", s.Secret)
	require.EqualValues(t, "acc_1", s.ID)
	require.EqualValues(t, -3, *s.Count)
	require.EqualValues(t, 150_000, *s.Price)
	require.EqualValues(t, 10<<20, *s.Size)
	require.EqualValues(t, 150*time.Second, s.Pause)
	require.True(t, s.On)
	require.Equal(t, []string{"a", "b", "a"}, s.Names)
	require.Equal(t, map[string]string{"x": "1", "y": "2"}, s.Tables)
	require.Equal(t, "z", s.Inner.Text)

	s, err = read(t, "on false\nsize 1048576\npause 1d")
	require.NoError(t, err)
	require.False(t, s.On)
	require.EqualValues(t, 1<<20, *s.Size)
	require.EqualValues(t, 24*time.Hour, s.Pause)
	s, err = read(t, "on true")
	require.NoError(t, err)
	require.True(t, s.On)
}

// TestFaultOfALine: one fault, with the path of the option and the file and line where it is.
func TestFaultOfALine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`text`:                      "svc.text: takes one value: a text",
		`text a b`:                  "svc.text: takes one value: a text",
		`text ""`:                   "svc.text: is empty; give a text",
		"text a {\nb\n}":            "svc.text: takes no block",
		`secret`:                    "svc.secret: takes one value: " + config.ReferenceForms,
		`secret ""`:                 "svc.secret: takes one value: " + config.ReferenceForms,
		`secret hunter 2`:           "svc.secret: takes one value: " + config.ReferenceForms,
		`id a b`:                    "svc.id: takes one value: " + config.IdentifierForms,
		`count`:                     "svc.count: takes one value: an integer",
		`count 1.5`:                 `svc.count: "1.5" is not an integer`,
		`count 9999999999999999999`: `svc.count: "9999999999999999999" is not an integer`,
		`price 0.15`:                `svc.price: "0.15" is not an integer; prices are micros per million tokens, e.g. 150000 for 0.15`,
		`size much`:                 `svc.size: "much" is not a size; write for example 10MiB, 512KiB or 1048576`,
		`size -1`:                   `svc.size: "-1" is not a size; write for example 10MiB, 512KiB or 1048576`,
		`size 16EiB`:                `svc.size: "16EiB" is not a size; write for example 10MiB, 512KiB or 1048576`,
		`pause 5`:                   `svc.pause: "5" is not a duration; write for example 500ms, 5s or 2m30s`,
		`pause 0s`:                  "svc.pause: must be more than 0",
		`pause -1s`:                 "svc.pause: must be more than 0",
		`on yes`:                    `svc.on: "yes" is neither true nor false`,
		`on true false`:             "svc.on: takes one value: true or false",
		`item`:                      "svc.item: takes exactly one name",
		`item a b`:                  "svc.item: takes exactly one name",
		`table a`:                   "svc.table: takes exactly one name and its value",
		`inner a`:                   "svc.inner: takes no arguments, only a block",
		"inner {\nsize 1\n}":        `svc.inner: "size" is not an option here; allowed: text`,
		`texts a`:                   `svc: "texts" is not an option here; allowed: text, secret, id, count, price, size, pause, on, item, table, inner`,
	} {
		at := ", at Caddyfile:2"
		if strings.HasPrefix(line, "inner {") {
			at = ", at Caddyfile:3"
		}
		_, err := read(t, line)
		require.EqualError(t, err, want+at)
	}
}

// TestAllFaultsTogether: in the order of the text, those of the values among them, each at the innermost option that was given.
func TestAllFaultsTogether(t *testing.T) {
	t.Parallel()
	s, err := read(t, `text a
count x
text b
item a {
	text ""
}
item a {
	texts 1
}
table k 1
table k 2
inner {
	text c
	text d
}
word`,
		config.Fault{Path: "svc.text", Text: "is too short"},
		config.Fault{Path: "svc.count", Text: "missing"}, // could not be read, which was reported
		config.Fault{Path: "svc.item[a#2].size", Text: "missing"},
		config.Fault{Path: "svc.inner.text", Text: "is not liked"},
		config.Fault{Path: "svc.pause", Text: "missing"})
	require.EqualError(t, err, strings.Join([]string{
		"11 faults:",
		"svc.pause: missing, at Caddyfile:1",
		"svc.text: is too short, at Caddyfile:2",
		`svc.count: "x" is not an integer, at Caddyfile:3`,
		"svc.text: given twice; first at Caddyfile:2, at Caddyfile:4",
		"svc.item[a].text: is empty; give a text, at Caddyfile:6",
		"svc.item[a#2].size: missing, at Caddyfile:8",
		`svc.item[a#2]: "texts" is not an option here; allowed: text, at Caddyfile:9`,
		"svc.table[k]: given twice; first at Caddyfile:11, at Caddyfile:12",
		"svc.inner.text: is not liked, at Caddyfile:14",
		"svc.inner.text: given twice; first at Caddyfile:14, at Caddyfile:15",
		`svc: "word" is not an option here; allowed: text, secret, id, count, price, size, pause, on, item, table, inner, at Caddyfile:17`,
	}, "\n  "))
	require.Equal(t, "a", s.Text, "the first value counts")
	require.Equal(t, "1", s.Tables["k"])
	require.Equal(t, "c", s.Inner.Text)
}

// TestArgumentsOfTheBlock: the svc block takes none.
func TestArgumentsOfTheBlock(t *testing.T) {
	t.Parallel()
	tokens, err := caddyfiletext.Tokenize([]byte("svc x {\n}"), "Caddyfile")
	require.NoError(t, err)
	r, block := caddyfile.NewReader(caddyfiletext.NewDispenser(tokens))
	require.EqualError(t, r.Err(&config.Faults{}, block), "svc: takes no arguments, only a block, at Caddyfile:1")
}

// TestLinesOfImports: a fault in an imported file has that file's name and line, and the line of the import.
func TestLinesOfImports(t *testing.T) {
	t.Parallel()
	text := []byte("(part) {\n\tcount x\n}\n:80 {\n\timport part\n}\n")
	blocks, err := caddyfiletext.Parse("Caddyfile", text)
	require.NoError(t, err)
	var s settings
	tokens, err := caddyfiletext.Tokenize([]byte("svc {\n}"), "Caddyfile")
	require.NoError(t, err)
	segment := append(append(tokens[:2:2], blocks[0].Segments[0]...), tokens[2:]...)
	r, block := caddyfile.NewReader(caddyfiletext.NewDispenser(segment))
	r.Block("svc", block, s.rules())
	require.ErrorContains(t, r.Err(&config.Faults{}, block), `svc.count: "x" is not an integer, at Caddyfile:2 import chain ['Caddyfile:5 (import part)']`)
}
