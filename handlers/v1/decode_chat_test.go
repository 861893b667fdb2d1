package v1

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

const hello = `"messages":[{"role":"user","content":"hi"}]`

// decoded is a request that must be valid.
func decoded(t *testing.T, body string) *ChatRequest {
	t.Helper()
	req, err := DecodeChat([]byte(body))
	require.NoError(t, err, clipped(body))
	return req
}

// refused is the error of a request that must not be valid.
func refused(t *testing.T, body string) *handlers.Error {
	t.Helper()
	req, err := DecodeChat([]byte(body))
	require.Nil(t, req, clipped(body))
	e, ok := errors.AsType[*handlers.Error](err)
	require.True(t, ok, "%s: %v", clipped(body), err)
	require.Equal(t, errcode.InvalidRequest, e.Code)
	require.NotEmpty(t, e.Message)
	return e
}

func clipped(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

func TestDecodeChatWhole(t *testing.T) {
	t.Parallel()
	body := []byte(` { "model" : "openai/gpt-6-luna", "messages": [ {"role":"system","content":"S\n\u00e9"},` +
		`{"content":"", "role":"user", "name":"x"}, {"role":"assistant","content":"A"},{"role":"tool","content":"{}","tool_call_id":"1"}],` +
		`"temperature":0.5,"max_tokens":7,"top_p":1,"stop":["a","\ud83d\ude00"],"stream":true,"n":3,"tools":[{"type":"function"}]} ` + "\r\n\t")
	req, err := DecodeChat(body)
	require.NoError(t, err)
	require.Equal(t, &ChatRequest{
		Model: "openai/gpt-6-luna",
		Messages: []providers.Message{
			{Role: "system", Content: providers.JSONString(`"S\n\u00e9"`)},
			{Role: "user", Content: providers.JSONString(`""`)},
			{Role: "assistant", Content: providers.JSONString(`"A"`)},
			{Role: "tool", Content: providers.JSONString(`"{}"`)},
		},
		Temperature: new(0.5), MaxTokens: 7, TopP: new(1.0), Stop: []string{"a", "😀"}, Stream: true,
	}, req)
	content := req.Messages[2].Content
	require.Equal(t, len(content), cap(content), "appending to a content must not write into the body")
}

func TestDecodeChatSmallest(t *testing.T) {
	t.Parallel()
	require.Equal(t, &ChatRequest{
		Model: "m/x", Messages: []providers.Message{{Role: "user", Content: providers.JSONString(`"hi"`)}},
	}, decoded(t, `{"model":"m/x",`+hello+`}`))
}

func TestDecodeChatFields(t *testing.T) {
	t.Parallel()
	// Each member is added to a request that is valid without it; field "" means that it is accepted.
	cases := []struct{ member, field string }{
		{`"temperature":0`, ""},
		{`"temperature":-0`, ""},
		{`"temperature":2`, ""},
		{`"temperature":2.0`, ""},
		{`"temperature":2e0`, ""},
		{`"temperature":0.2e1`, ""},
		{`"temperature":null`, ""},
		{`"temperature":1e-400`, ""},
		{`"temperature":-0.1`, "temperature"},
		{`"temperature":2.1`, "temperature"},
		{`"temperature":9`, "temperature"},
		{`"temperature":1e400`, "temperature"},
		{`"temperature":-1e400`, "temperature"},
		{`"temperature":"1"`, "temperature"},
		{`"temperature":true`, "temperature"},
		{`"temperature":[1]`, "temperature"},
		{`"temperature":{}`, "temperature"},
		{`"top_p":0`, ""},
		{`"top_p":1`, ""},
		{`"top_p":1.0`, ""},
		{`"top_p":null`, ""},
		{`"top_p":1.01`, "top_p"},
		{`"top_p":-1`, "top_p"},
		{`"top_p":"0.5"`, "top_p"},
		{`"top_p":false`, "top_p"},
		{`"max_tokens":1`, ""},
		{`"max_tokens":200000`, ""},
		{`"max_tokens":10.0`, ""},
		{`"max_tokens":1e1`, ""},
		{`"max_tokens":2E+5`, ""},
		{`"max_tokens":null`, ""},
		{`"max_tokens":100e-2`, ""},
		{`"max_tokens":0`, "max_tokens"},
		{`"max_tokens":200001`, "max_tokens"},
		{`"max_tokens":-1`, "max_tokens"},
		{`"max_tokens":-0`, "max_tokens"},
		{`"max_tokens":1.5`, "max_tokens"},
		{`"max_tokens":1e-1`, "max_tokens"},
		{`"max_tokens":1e99999999999999999999`, "max_tokens"},
		{`"max_tokens":9223372036854775808`, "max_tokens"},
		{`"max_tokens":18446744073709551617`, "max_tokens"},
		{`"max_tokens":"10"`, "max_tokens"},
		{`"max_tokens":true`, "max_tokens"},
		{`"max_tokens":[10]`, "max_tokens"},
		{`"max_tokens":10.00000000000000000001`, "max_tokens"},
		{`"stop":null`, ""},
		{`"stop":[]`, ""},
		{`"stop":"x"`, ""},
		{`"stop":["x"]`, ""},
		{`"stop":["",""]`, ""},
		{`"stop":1`, "stop"},
		{`"stop":{}`, "stop"},
		{`"stop":true`, "stop"},
		{`"stop":["a",1]`, "stop[1]"},
		{`"stop":[null]`, "stop[0]"},
		{`"stop":["a","b",["c"],1]`, "stop[2]"},
		{`"stream":true`, ""},
		{`"stream":false`, ""},
		{`"stream":null`, ""},
		{`"stream":"true"`, "stream"},
		{`"stream":1`, "stream"},
		{`"stream":[]`, "stream"},
		{`"max_completion_tokens":0`, ""},
		{`"max_completion_tokens":"x"`, ""},
		{`"max_completion_tokens":{"a":[1]}`, ""},
		{`"max_completion_tokens":1.5`, ""},
		{`"Temperature":9`, ""},
		{`"TEMPERATURE":"x"`, ""},
		{`"max_to\u212aens":0`, ""},
		{`"temperature ":9`, ""},
		{`"":9`, ""},
		{`"temp\u0065rature":9`, "temperature"},
		{`"\u0073top":1`, "stop"},
		{`"svc":{"a":{"b":[{},[],null,-1.5e+3,"\u0000"]}}`, ""},
	}
	for _, c := range cases {
		for _, body := range []string{`{"model":"m/x",` + hello + `,` + c.member + `}`, `{` + c.member + `,"model":"m/x",` + hello + `}`} {
			if c.field == "" {
				decoded(t, body)
				continue
			}
			e := refused(t, body)
			require.Equal(t, c.field, e.Field, body)
			require.True(t, strings.HasPrefix(e.Message, c.field+" must "), e.Message)
		}
	}
}

func TestDecodeChatValues(t *testing.T) {
	t.Parallel()
	with := func(members string) *ChatRequest { return decoded(t, `{"model":"m/x",`+hello+members+`}`) }
	require.EqualValues(t, 10, with(`,"max_tokens":10.0`).MaxTokens)
	require.EqualValues(t, 10, with(`,"max_tokens":1e1`).MaxTokens)
	require.EqualValues(t, 200_000, with(`,"max_tokens":0.00002e10`).MaxTokens)
	require.Zero(t, with(`,"max_tokens":null`).MaxTokens)
	require.Nil(t, with(`,"temperature":null`).Temperature)
	require.Equal(t, new(1.25), with(`,"temperature":1.25`).Temperature)
	require.Equal(t, "0", fmt.Sprint(*with(`,"temperature":-0.0`).Temperature))
	require.Equal(t, []string{"x\n"}, with(`,"stop":"x\n"`).Stop)
	require.Nil(t, with(`,"stop":[]`).Stop)
	require.False(t, with(`,"stream":null`).Stream)
	require.Equal(t, "né", decoded(t, `{"model":"n\u00e9",`+hello+`}`).Model)
}

func TestDecodeChatMaxCompletionTokens(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]int64{
		`"max_completion_tokens":5`:                       5,
		`"max_completion_tokens":200000`:                  200_000,
		`"max_completion_tokens":5.0`:                     5,
		`"max_completion_tokens":200001`:                  0,
		`"max_completion_tokens":null`:                    0,
		`"max_completion_tokens":"5"`:                     0,
		`"max_completion_tokens":5,"max_tokens":null`:     5,
		`"max_tokens":7,"max_completion_tokens":5`:        7,
		`"max_completion_tokens":5,"max_tokens":7`:        7,
		`"max_completion_tokens":{"x":5},"max_tokens":7`:  7,
		`"max_completion_tokens":-5`:                      0,
		`"max_completion_tokens":99999999999999999999999`: 0,
	} {
		require.Equal(t, want, decoded(t, `{"model":"m/x",`+hello+`,`+members+`}`).MaxTokens, members)
	}
}

func TestDecodeChatRequired(t *testing.T) {
	t.Parallel()
	for body, field := range map[string]string{
		`{}`:                                "model",
		`{"model":"m/x"}`:                   "messages",
		`{` + hello + `}`:                   "model",
		`{"model":null,` + hello + `}`:      "model",
		`{"model":1,` + hello + `}`:         "model",
		`{"model":["m/x"],` + hello + `}`:   "model",
		`{"Model":"m/x",` + hello + `}`:     "model",
		`{"model":"m/x","messages":null}`:   "messages",
		`{"model":"m/x","messages":[]}`:     "messages",
		`{"model":"m/x","messages":{}}`:     "messages",
		`{"model":"m/x","messages":"hi"}`:   "messages",
		`{"model":"m/x","messages":[1]}`:    "messages[0]",
		`{"model":"m/x","messages":[null]}`: "messages[0]",
	} {
		require.Equal(t, field, refused(t, body).Field, body)
	}
}

func TestDecodeChatMessages(t *testing.T) {
	t.Parallel()
	const good = `{"role":"user","content":"x"}`
	for messages, field := range map[string]string{
		`{"content":"x"}`:                                         "messages[0].role",
		`{"role":null,"content":"x"}`:                             "messages[0].role",
		`{"role":"developer","content":"x"}`:                      "messages[0].role",
		`{"role":"User","content":"x"}`:                           "messages[0].role",
		`{"role":"","content":"x"}`:                               "messages[0].role",
		`{"role":1,"content":"x"}`:                                "messages[0].role",
		`{"role":"` + strings.Repeat("u", 99) + `","content":""}`: "messages[0].role",
		`{"role":"user"}`:                                         "messages[0].content",
		`{"role":"user","content":null}`:                          "messages[0].content",
		`{"role":"user","content":1}`:                             "messages[0].content",
		`{"role":"user","content":[{"type":"text","text":"x"}]}`:  "messages[0].content",
		`{"role":"user","Content":"x"}`:                           "messages[0].content",
		good + `,{"role":"user"},{"content":"x"}`:                 "messages[1].content",
		good + `,` + good + `,7`:                                  "messages[2]",
		`{"content":1}`:                                           "messages[0].role",
		`{"content":1,"role":2}`:                                  "messages[0].role",
		`{}`:                                                      "messages[0].role",
	} {
		e := refused(t, `{"model":"m/x","messages":[`+messages+`]}`)
		require.Equal(t, field, e.Field, messages)
		require.Contains(t, e.Message, field)
		if strings.HasSuffix(field, ".content") {
			require.Contains(t, e.Message, "content must be a string", messages)
		}
	}
	require.Equal(t, "user", decoded(t, `{"model":"m/x","messages":[{"\u0072ole":"us\u0065r","content":"x"}]}`).Messages[0].Role)
}

func TestDecodeChatContentLengthIsInCodePoints(t *testing.T) {
	t.Parallel()
	for name, character := range map[string]string{
		"ascii": "a", "latin": "é", "vietnamese": "ệ", "combining": "\u0301", "han": "漢", "arabic": "ع", "thai": "ก", "emoji": "😀", "cuneiform": "𒀀",
		"escaped ascii": `\u0061`, "short escape": `\n`, "escaped quote": `\"`, "escaped han": `\u6f22`, "escaped astral": `\ud83d\ude00`, "escaped upper": `\uD83D\uDE00`, "escaped nul": `\u0000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Repeat(character, MaxContentRunes)
			message := func(content string) string {
				return `{"model":"m/x","messages":[` + `{"role":"user","content":"x"},{"role":"user","content":"` + content + `"}]}`
			}
			require.Equal(t, `"`+text+`"`, string(decoded(t, message(text)).Messages[1].Content))
			e := refused(t, message(text+character))
			require.Equal(t, "messages[1].content", e.Field)
			require.Contains(t, e.Message, "at most 200000 characters")
			refused(t, message("a"+text))
			refused(t, message(text+"a"))
		})
	}
}

func TestDecodeChatCounts(t *testing.T) {
	t.Parallel()
	const message = `{"role":"user","content":""}`
	list := func(element string, n int) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	require.Len(t, decoded(t, `{"model":"m/x","messages":[`+list(message, MaxMessages)+`]}`).Messages, MaxMessages)
	require.Equal(t, "messages", refused(t, `{"model":"m/x","messages":[`+list(message, MaxMessages+1)+`]}`).Field)
	require.Len(t, decoded(t, `{"model":"m/x",`+hello+`,"stop":[`+list(`"x"`, MaxMessages)+`]}`).Stop, MaxMessages)
	require.Equal(t, "stop", refused(t, `{"model":"m/x",`+hello+`,"stop":[`+list(`"x"`, MaxMessages+1)+`]}`).Field)
}

func TestDecodeChatTellsTheFirstFaultInTheContractsOrder(t *testing.T) {
	t.Parallel()
	members := []struct{ bad, field string }{
		{`"model":1`, "model"},
		{`"messages":[]`, "messages"},
		{`"temperature":9`, "temperature"},
		{`"max_tokens":0`, "max_tokens"},
		{`"top_p":9`, "top_p"},
		{`"stop":1`, "stop"},
		{`"stream":1`, "stream"},
	}
	for from := range members {
		reversed := make([]string, 0, len(members)+2)
		for i := len(members) - 1; i >= from; i-- {
			reversed = append(reversed, members[i].bad)
		}
		if from > 0 {
			reversed = append(reversed, `"model":"m/x"`)
		}
		if from > 1 {
			reversed = append(reversed, hello)
		}
		require.Equal(t, members[from].field, refused(t, `{`+strings.Join(reversed, ",")+`}`).Field)
	}
	broken := refused(t, `{"model":1,"temperature":9,`)
	require.Empty(t, broken.Field)
	require.Contains(t, broken.Message, "not valid JSON")
}

func TestDecodeChatRefusesBadJSON(t *testing.T) {
	t.Parallel()
	value := func(v string) string { return `{"model":"m/x",` + hello + `,"x":` + v + `}` }
	cases := []string{
		``, ` `, "\n", `null`, `true`, `1`, `"x"`, `[]`, `[{}]`, `{`, `}`, `{]`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a" 1}`, `{a:1}`, `{'a':1}`, `{1:1}`, `{,}`,
		"\xef\xbb\xbf{}", `{}`[:1] + "\x00}", `/**/{}`,
		value(``), value(`01`), value(`1.`), value(`.5`), value(`+1`), value(`-`), value(`1e`), value(`1e+`), value(`0x1`), value(`1_0`), value(`--1`), value(`NaN`), value(`Infinity`), value(`-Infinity`),
		value(`tru`), value(`nul`), value(`True`), value(`falsey`), value(`undefined`), value(`[1,]`), value(`[,]`), value(`[1 2]`), value(`[`), value(`{"a":1]`), value(`[1}`),
		value(`"`), value(`"\`), value(`"\x"`), value(`"\u12"`), value(`"\u12g4"`), value(`"\U0041"`), value("\"\n\""), value("\"\x1f\""), value("\"\x00\""), value(`"\'"`),
		value("\"\xff\""), value("\"\xc0\xaf\""), value("\"\xed\xa0\x80\""), value("\"\xf4\x90\x80\x80\""), value("\"\xe2\x82\""), value("\"a\x80\""),
		value(`"\ud800"`), value(`"\udc00"`), value(`"\ud800x"`), value(`"\ud800\n"`), value(`"\ud800\u0041"`), value(`"\ud800\ud800"`), value(`"\udc00\ud800"`), value(`"\ud83d`), value(`"\ud83d\`), value(`"\ud83d\ude0"`),
		`{"model":"m/x",` + hello + `}x`, `{"model":"m/x",` + hello + `}{}`, `{"model":"m/x",` + hello + `},`, `{"model":"m/x",` + hello + "}\x00", `{"model":"m/x",` + hello + `}]`,
		"{\"\xff\":1,\"model\":\"m/x\"," + hello + `}`, `{"\ud800":1,"model":"m/x",` + hello + `}`,
		value("\u00a01"), value("\v1"), value("\f1"),
	}
	for _, body := range cases {
		require.Empty(t, refused(t, body).Field, "%q", body)
	}
}

func TestDecodeChatRefusesRepeatedNames(t *testing.T) {
	t.Parallel()
	many := strings.Builder{}
	for i := range 3000 {
		fmt.Fprintf(&many, `"k%d":1,`, i)
	}
	for body, field := range map[string]string{
		`{"model":"m/x","model":"m/x",` + hello + `}`:                                                "model",
		`{"model":"m/x","mod\u0065l":"m/x",` + hello + `}`:                                           "model",
		`{"mod\u0065l":"m/x","\u006dodel":"m/x",` + hello + `}`:                                      "model",
		`{"model":"m/x",` + hello + `,` + hello + `}`:                                                "messages",
		`{"model":"m/x",` + hello + `,"max_tokens":null,"max_tokens":1}`:                             "max_tokens",
		`{"model":"m/x","messages":[{"role":"user","role":"system","content":"x"}]}`:                 "messages[0].role",
		`{"model":"m/x","messages":[{"role":"user","content":"x"},{"content":"","content":"x"}]}`:    "messages[1].content",
		`{"model":"m/x","messages":[{"role":"user","content":"x","y":1,"y":1}]}`:                     "",
		`{"model":"m/x",` + hello + `,"x":1,"x":1}`:                                                  "",
		`{"model":"m/x",` + hello + `,"":1,"":1}`:                                                    "",
		`{"model":"m/x",` + hello + `,"é":1,"\u00e9":1}`:                                             "",
		`{"model":"m/x",` + hello + `,"😀":1,"\ud83d\ude00":1}`:                                       "",
		`{"model":"m/x",` + hello + `,"a/b":1,"a\/b":1}`:                                             "",
		`{"model":"m/x",` + hello + `,"x":[{"a":{"b":1,"c":2,"b":3}}]}`:                              "",
		`{"model":"m/x",` + hello + `,"x":{` + many.String() + `"k0":1}}`:                            "",
		`{"model":"m/x",` + hello + `,"x":{` + many.String() + `"\u006b2999":1}}`:                    "",
		`{"model":"m/x",` + hello + `,"x":{` + many.String() + `"k11":1}}`:                           "",
		`{"model":"m/x",` + hello + `,"x":{"\u006b12":0,` + many.String() + `"z":1}}`:                "",
		`{` + many.String() + `"temperature":1,"model":"m/x",` + hello + `,"temper\u0061ture":null}`: "temperature",
	} {
		e := refused(t, body)
		require.Contains(t, e.Message, "used twice", clipped(body))
		require.Equal(t, field, e.Field, clipped(body))
	}
	// Names that only look alike, and equal names in different objects.
	decoded(t, `{"model":"m/x",`+hello+`,"a":{"a":{"a":1}},"A":1,"a ":1,"a\u0000":1,"aa":[{"a":1},{"a":1}],`+many.String()+`"k":1}`)
	decoded(t, `{"model":"m/x",`+hello+`,"e\u0301":1,"é":1,"\\u00e9":1,"\"":1,"\\":1,"\\\\":1,"\\\"":1}`)
}

func TestDecodeChatDepth(t *testing.T) {
	t.Parallel()
	nested := func(open, inner, shut string, n int) string {
		return `{"model":"m/x",` + hello + `,"x":` + strings.Repeat(open, n) + inner + strings.Repeat(shut, n) + `}`
	}
	decoded(t, nested(`[`, ``, `]`, handlers.MaxDepth-1))
	decoded(t, nested(`{"a":`, `1`, `}`, handlers.MaxDepth-1))
	require.Contains(t, refused(t, nested(`[`, ``, `]`, handlers.MaxDepth)).Message, "deep")
	require.Contains(t, refused(t, nested(`{"a":`, `1`, `}`, handlers.MaxDepth)).Message, "deep")
	require.Contains(t, refused(t, nested(`[`, ``, `]`, 1_000_000)).Message, "deep")
	require.Contains(t, refused(t, strings.Repeat(`{"x":`, 1_000_000)).Message, "deep")
	// Only open objects and arrays count as depth, not closed ones.
	decoded(t, nested(``, `[`+strings.Repeat(`[[]],`, 200)+`{}]`, ``, 1))
}

func TestDecodeChatNameBound(t *testing.T) {
	t.Parallel()
	object := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%x":0,`, i)
		}
		return `{` + strings.TrimSuffix(b.String(), ",") + `}`
	}
	// 3 names of the top object are open, too.
	decoded(t, `{"model":"m/x",`+hello+`,"x":`+object(jsonscan.MaxNames-3)+`}`)
	require.Contains(t, refused(t, `{"model":"m/x",`+hello+`,"x":`+object(jsonscan.MaxNames-2)+`}`).Message, "too many member names")
	half := object(jsonscan.MaxNames/2 + 1)
	decoded(t, `{"model":"m/x",`+hello+`,"x":[`+half+`,`+half+`,`+half+`]}`)
	refused(t, `{"model":"m/x",`+hello+`,"x":`+half[:len(half)-1]+`,"y":`+half+`}}`)
}

// A scan that isn't linear in the body doesn't end on these within the time of a test run.
func TestDecodeChatIsLinear(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, value := range map[string]string{
		"escaped quotes":     `"` + fill(`\"`) + `"`,
		"backslashes":        `"` + fill(`\\`) + `"`,
		"surrogates":         `"` + fill(`\ud83d\ude00`) + `"`,
		"empty arrays":       `[` + fill(`[],`) + `0]`,
		"objects":            `[` + fill(`{"a":{"b":[]}},`) + `0]`,
		"many small objects": `[` + fill(`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0,"l":0,"m":0},`) + `0]`,
		"long escaped names": `[` + strings.Repeat(`{"`+strings.Repeat(`\u0061`, 50_000)+`1":0,"`+strings.Repeat(`\u0061`, 50_000)+`2":0},`, 5) + `0]`,
		"digits":             fill(`1`) + `.` + fill(`0`) + `e-` + fill(`9`),
		"spaces":             fill(" ") + `0`,
		"han":                `"` + fill("漢") + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decoded(t, `{"model":"m/x",`+hello+`,"x":`+value+`}`)
			refused(t, `{"model":"m/x",`+hello+`,"x":`+value[:len(value)-1])
		})
	}
	require.Equal(t, "max_tokens", refused(t, `{"model":"m/x",`+hello+`,"max_tokens":`+fill("9")+`e-`+fill("9")+`}`).Field)
	require.EqualValues(t, 1, decoded(t, `{"model":"m/x",`+hello+`,"max_tokens":1`+strings.Repeat("0", 1000)+`e-1000}`).MaxTokens)
	require.Equal(t, "temperature", refused(t, `{"model":"m/x",`+hello+`,"temperature":`+fill("9")+`}`).Field)
}

func TestDecodeChatRefusesBodiesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	_, err := DecodeChat(make([]byte, 32<<20+1))
	require.Contains(t, handlertest.RequireInvalid(t, err).Message, "larger than 33554432 bytes")
}

func TestDecodeChatMessageTextsDoNotEchoTheBody(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"model":"m/x","messages":[{"role":"SECRET","content":"SECRET"}]}`, `{"SECRET":1,"SECRET":2}`, `{"model":SECRET}`, `{"model":["SECRET"]}`,
	} {
		require.NotContains(t, refused(t, body).Error(), "SECRET")
	}
}

func BenchmarkDecodeChat(b *testing.B) {
	body := func(text string) []byte {
		return []byte(`{"model":"openai/gpt-6-luna","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"` + text +
			`"}],"temperature":0.7,"max_tokens":256,"stream":true,"user":"u_1","metadata":{"a":1,"b":[true,null,"c"]}}`)
	}
	for name, data := range map[string][]byte{
		"1 KB": body(strings.Repeat("Where is my order? ", 45)), "200 KB": body(strings.Repeat("Where is my order? ", 10_000)),
		"200 KB with escapes": body(strings.Repeat(`Xin chào, \"bạn\"! `, 10_000)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeChat(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
