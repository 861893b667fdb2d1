package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

// message returns a message whose content is the JSON literal of text.
func message(role, text string) providers.Message {
	return providers.Message{Role: role, Content: providers.Quote(text)}
}

// written returns the body of a request.
func written(t testing.TB, version string, req *providers.Request) string {
	t.Helper()
	parts, err := (&dialect{version: version}).Body(req)
	require.NoError(t, err)
	body := bytes.Join(parts, nil)
	require.Empty(t, refusal(version, body), "%s", body)
	return string(body)
}

// refusal returns the reason why the API refuses a body, by its documentation and the errors that users met, or "".
func refusal(version string, raw []byte) string {
	var body struct {
		Model       string
		MaxTokens   int64           `json:"max_tokens"`
		System      *string         `json:"system"`
		Temperature *float64        `json:"temperature"`
		TopP        *float64        `json:"top_p"`
		Stops       *[]string       `json:"stop_sequences"`
		Thinking    json.RawMessage `json:"thinking"`
		Output      json.RawMessage `json:"output_config"`
		Stream      bool            `json:"stream"`
		Messages    []struct{ Role, Content string }
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil || decoder.More() {
		return fmt.Sprintf("no request: %v", err)
	}
	blank := func(text string) bool { return strings.TrimSpace(text) == "" }
	switch {
	case body.Model == "", body.MaxTokens < 1:
		return "model, max_tokens: field required"
	case body.System != nil && blank(*body.System):
		return "system: text content blocks must contain non-whitespace text"
	case len(body.Messages) == 0:
		return "messages: at least one message is required"
	case body.Temperature != nil && (*body.Temperature < 0 || *body.Temperature > 1):
		return "temperature: range: 0..1"
	case body.Temperature != nil && body.TopP != nil:
		return "`temperature` and `top_p` cannot both be specified for this model"
	case version >= "2026-10-21" && (body.Temperature != nil || body.TopP != nil):
		return "temperature: not permitted"
	case body.Stops != nil && len(*body.Stops) == 0:
		return "stop_sequences: empty"
	}
	for i, m := range body.Messages {
		switch {
		case m.Role != "user" && m.Role != "assistant":
			return "role '" + m.Role + "' is not supported on this model"
		case blank(m.Content):
			return "messages: text content blocks must be non-empty"
		case i == len(body.Messages)-1 && m.Role == "assistant" && strings.TrimSpace(m.Content[len(m.Content)-1:]) == "":
			return "messages: final assistant content cannot end with trailing whitespace"
		}
	}
	return ""
}

func TestBody(t *testing.T) {
	t.Parallel()
	half, two, part := 0.5, 2.0, 0.9
	user := []providers.Message{message("user", "Hi")}
	const head, hi = `{"model":"claude","messages":[`, `{"role":"user","content":"Hi"}`
	for name, test := range map[string]struct {
		req     providers.Request
		version string
		want    string
	}{
		"least": {providers.Request{Messages: user}, "", head + hi + `],"max_tokens":9}`},
		"everything": {
			providers.Request{
				Messages: []providers.Message{message("system", "Be \"kind\"."), message("user", "Hi"), message("assistant", "Yes?"), message("user", "Go\non")},
				TopP:     &part, Stop: []string{"END", "\"\n"}, Thinking: "disabled", Stream: true, MaxTokensField: "max_completion_tokens",
			},
			"",
			`{"model":"claude","system":"Be \"kind\".","messages":[` + hi + `,{"role":"assistant","content":"Yes?"},{"role":"user","content":"Go\non"}],` +
				`"max_tokens":9,"top_p":0.9,"stop_sequences":["END","\"\n"],"thinking":{"type":"disabled"},"stream":true}`,
		},
		"leading system texts are joined, later ones are the user's": {
			providers.Request{Messages: []providers.Message{message("system", "a"), message("system", " \n"), message("developer", "b"), message("user", "Hi"), message("system", "c")}},
			"",
			`{"model":"claude","system":"a\nb","messages":[` + hi + `,{"role":"user","content":"c"}],"max_tokens":9}`,
		},
		"only system texts": {
			providers.Request{Messages: []providers.Message{message("system", ""), message("system", "a"), message("system", "b"), message("user", " ")}},
			"",
			head + `{"role":"user","content":"a"},{"role":"user","content":"b"}],"max_tokens":9}`,
		},
		"a system text of white space":  {providers.Request{Messages: []providers.Message{message("system", "\t"), message("user", "Hi")}}, "", head + hi + `],"max_tokens":9}`},
		"an answer of a tool":           {providers.Request{Messages: []providers.Message{message("user", "Hi"), message("tool", "7")}}, "", head + hi + `,{"role":"user","content":"7"}],"max_tokens":9}`},
		"empty messages":                {providers.Request{Messages: []providers.Message{message("user", "Hi"), message("assistant", ""), message("user", " \u00a0\u3000\n"), message("tool", "\r\n\t\v\f")}}, "", head + hi + `],"max_tokens":9}`},
		"escaped white space":           {providers.Request{Messages: []providers.Message{{Role: "user", Content: []byte(`"\u0020\u00a0\n"`)}, message("user", "Hi")}}, "", head + hi + `],"max_tokens":9}`},
		"the assistant speaks last":     {providers.Request{Messages: []providers.Message{message("user", "Hi"), message("assistant", "So \\n: "), message("user", "")}}, "", head + hi + `,{"role":"assistant","content":"So \\n:"}],"max_tokens":9}`},
		"… with escapes at the end":     {providers.Request{Messages: []providers.Message{message("user", "Hi"), {Role: "assistant", Content: []byte(`"a\\\n\u0020\t  \u3000"`)}}}, "", head + hi + `,{"role":"assistant","content":"a\\"}],"max_tokens":9}`},
		"… without white space":         {providers.Request{Messages: []providers.Message{message("assistant", "a "), message("assistant", "é")}}, "", head + `{"role":"assistant","content":"a "},{"role":"assistant","content":"é"}],"max_tokens":9}`},
		"temperature":                   {providers.Request{Messages: user, Temperature: &half}, "", head + hi + `],"max_tokens":9,"temperature":0.5}`},
		"a temperature above 1":         {providers.Request{Messages: user, Temperature: &two}, "", head + hi + `],"max_tokens":9,"temperature":1}`},
		"temperature and top_p":         {providers.Request{Messages: user, Temperature: &half, TopP: &part}, "", head + hi + `],"max_tokens":9,"temperature":0.5}`},
		"an API without sampling":       {providers.Request{Messages: user, Temperature: &half, TopP: &part}, "2026-10-21", head + hi + `],"max_tokens":9}`},
		"a later API without sampling":  {providers.Request{Messages: user, TopP: &part}, "2027-01-01", head + hi + `],"max_tokens":9}`},
		"thinking between calls":        {providers.Request{Messages: user, Thinking: "between_tools"}, "", head + hi + `],"max_tokens":9,"thinking":{"type":"between_tools"}}`},
		"thinking as the model decides": {providers.Request{Messages: user, Thinking: "adaptive"}, "", head + hi + `],"max_tokens":9,"thinking":{"type":"adaptive"}}`},
		"thinking with little effort":   {providers.Request{Messages: user, Thinking: "low"}, "", head + hi + `],"max_tokens":9,"output_config":{"effort":"low"}}`},
	} {
		test.req.Model, test.req.MaxTokens = "claude", 9
		if test.version == "" {
			test.version = defaultVersion
		}
		require.Equal(t, test.want, written(t, test.version, &test.req), name)
	}
}

// A prompt without any text can't be written.
func TestBlankPrompt(t *testing.T) {
	t.Parallel()
	p := vendor(t, nil, func(*http.Request) (int, string) { t.Error("nothing is sent"); return http.StatusOK, "" })
	req := &providers.Request{Model: "claude", MaxTokens: 9, Messages: []providers.Message{message("system", ""), message("user", " "), message("assistant", "\n")}}
	e := providertest.RequireFailure(t, providertest.Ask(t, p, req).Err, providers.FailureInvalid)
	require.Equal(t, "messages", e.Invalid.Field)
	require.False(t, e.Elsewhere)
}

// Contents are slices of the caller's memory in the body, not copies.
func TestContentsAreNotCopied(t *testing.T) {
	t.Parallel()
	req := &providers.Request{Model: "claude", MaxTokens: 9, Messages: []providers.Message{message("system", "a"), message("user", "Hi"), message("assistant", "So ")}}
	parts, err := (&dialect{version: defaultVersion}).Body(req)
	require.NoError(t, err)
	require.Same(t, &req.Messages[0].Content[1], &parts[1][0])
	require.Same(t, &req.Messages[1].Content[0], &parts[3][0])
	require.Same(t, &req.Messages[2].Content[0], &parts[5][0])
}

// The API accepts every request of the public interface.
func FuzzBody(f *testing.F) {
	f.Add("system\nuser\nassistant", "Be kind.\x00Hi\x00So ", 1.5, 0.5, "\n", true)
	f.Add("tool\ndeveloper\nsystem", " \x00\x00\u3000", -1.0, 2.0, "", false)
	f.Fuzz(func(t *testing.T, roles, texts string, temperature, topP float64, stop string, undated bool) {
		req := &providers.Request{Model: "claude", MaxTokens: 9, Temperature: &temperature, TopP: &topP}
		if stop != "" {
			req.Stop = []string{stop}
		}
		version := defaultVersion
		if !undated {
			version = unsampledVersion
		}
		all := strings.Split(roles, "\n")
		for i, text := range strings.Split(texts, "\x00") {
			req.Messages = append(req.Messages, message(all[i%len(all)], text))
		}
		parts, err := (&dialect{version: version}).Body(req)
		if err != nil {
			require.Empty(t, strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(texts, "?"), "\x00", "")))
			return
		}
		require.Empty(t, refusal(version, bytes.Join(parts, nil)), "%s", parts)
	})
}

// The request has the API's address, key and version, at its own host and behind relays with a path.
func TestRequestLine(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"https://api.anthropic.com":            "https://api.anthropic.com/v1/messages",
		"https://api.anthropic.com/":           "https://api.anthropic.com/v1/messages",
		"https://api.anthropic.com/v1":         "https://api.anthropic.com/v1/messages",
		"https://api.anthropic.com/v1/":        "https://api.anthropic.com/v1/messages",
		"https://api.deepseek.com/anthropic":   "https://api.deepseek.com/anthropic/v1/messages",
		"https://relay.example/anthropic/v1//": "https://relay.example/anthropic/v1/messages",
		"http://v1":                            "http://v1/v1/messages",
	} {
		for _, version := range []string{"", "2026-10-21"} {
			var sent *http.Request
			var body []byte
			p, err := Driver{}.New(&providers.Config{
				BaseURL: base, Options: map[string]string{"version": version},
				Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					sent = r
					body, _ = io.ReadAll(r.Body)
					return nil, io.ErrUnexpectedEOF
				}),
			})
			require.NoError(t, err)
			half := 0.5
			providertest.Ask(t, p, &providers.Request{Model: "m", MaxTokens: 9, APIKey: "sk-1", Temperature: &half, Messages: []providers.Message{message("user", "Hi")}})
			require.Equal(t, want, sent.URL.String())
			require.Equal(t, "sk-1", sent.Header.Get("X-Api-Key"))
			require.Empty(t, sent.Header.Get("Authorization"))
			if version == "" {
				version = "2023-06-01"
			}
			require.Equal(t, version, sent.Header.Get("Anthropic-Version"))
			require.Empty(t, refusal(version, body))
		}
	}
	for _, base := range []string{"https://api.anthropic.com/v1/messages", "https://api.anthropic.com/v1/messages/", "api.anthropic.com"} {
		_, err := Driver{}.New(&providers.Config{BaseURL: base})
		require.Error(t, err, base)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	require.Empty(t, option.Check(Driver{}.Describe().Options))
	check := Driver{}.Describe().Options[0].Check
	require.Empty(t, check("2023-06-01"))
	for _, wrong := range []string{"v1", "2023-6-1", "2023-06-01\n", "2023-13-01"} {
		require.NotEmpty(t, check(wrong), wrong)
	}
}
