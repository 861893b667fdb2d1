// Package anthropic is the dialect of Anthropic's Messages API, https://platform.claude.com/docs/en/api/messages, which other vendors
// (Bedrock, DeepSeek) also serve.
//
// It accepts everything that the public interface allows: a role, a place of the system text or an empty message that the API refuses
// becomes a form that it accepts. Refusals of single models (sampling, thinking, stops) are switches of the model's configuration.
package anthropic

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/providers"
)

const (
	// defaultVersion is the version of the API that every model and every other vendor of the dialect accepts.
	defaultVersion = "2023-06-01"
	// unsampledVersion is the first version that refuses temperature and top_p for every model,
	// https://platform.claude.com/docs/en/api/versioning.
	unsampledVersion = "2026-10-21"
)

// Driver is the [providers.Driver] of the protocol. Its option version is the date of the API's version.
type Driver struct{}

// Describe implements [providers.Driver].
func (Driver) Describe() *providers.Description {
	const address = "https://api.anthropic.com"
	return &providers.Description{
		Name: "anthropic", Label: "Anthropic", ExampleURL: address, MaxStops: -1, RefusesBlankStops: true,
		Presets: []providers.Preset{{Name: "anthropic", Label: "Anthropic", BaseURL: address, MaxStops: -1}},
		Options: []option.Option{{
			Name: "version", Kind: option.Text, Check: checkVersion,
			Help: "The date that is sent as anthropic-version, by default " + defaultVersion + "; from " + unsampledVersion +
				" on temperature and top_p are never sent, because the API refuses them.",
		}},
	}
}

func checkVersion(version string) (problem string) {
	if _, err := time.Parse(time.DateOnly, version); err != nil {
		return "must be a date as in " + defaultVersion
	}
	return ""
}

// New implements [providers.Driver]. Requests go to the base URL with "/v1/messages" appended, or "/messages" if it ends in "/v1".
func (Driver) New(config *providers.Config) (providers.Provider, error) {
	endpoint, err := providers.Endpoint(config.BaseURL, "")
	if err != nil {
		return nil, err
	}
	switch path := strings.TrimRight(endpoint.Path, "/"); {
	case strings.HasSuffix(path, "/messages"):
		return nil, errors.New("base_url is the address in front of /v1/messages; leave /messages out")
	case strings.HasSuffix(path, "/v1"):
		endpoint = endpoint.JoinPath("messages")
	default:
		endpoint = endpoint.JoinPath("v1/messages")
	}
	return providers.NewHTTP(&dialect{endpoint, cmp.Or(config.Options["version"], defaultVersion)}, config), nil
}

type dialect struct {
	endpoint *url.URL
	version  string
}

// Interface guards.
var (
	_ providers.Driver  = Driver{}
	_ providers.Dialect = (*dialect)(nil)
)

// Endpoint implements [providers.Dialect].
func (d *dialect) Endpoint(*providers.Request) *url.URL { return d.endpoint }

// Header implements [providers.Dialect].
func (d *dialect) Header(h http.Header, req *providers.Request) {
	h["Anthropic-Version"] = []string{d.version}
	if req.APIKey != "" {
		h["X-Api-Key"] = []string{req.APIKey}
	}
}

// Body implements [providers.Dialect]. Message contents are not copied. The API refuses system messages among the turns, messages of
// white space only, and a prompt without a turn. So the leading system messages become the system text, or the user's turn if nothing
// else has a text; later ones, and messages of tools, are turns of the user.
func (d *dialect) Body(req *providers.Request) ([][]byte, error) {
	leading := 0
	for leading < len(req.Messages) && slices.Contains([]string{"system", "developer"}, req.Messages[leading].Role) {
		leading++
	}
	system, turns := req.Messages[:leading], req.Messages[leading:]
	last := lastText(turns)
	if last < 0 {
		system, turns = nil, system
		if last = lastText(turns); last < 0 {
			return nil, providers.Unwritable("messages", "At least one message must contain more than white space.")
		}
	}
	b := providers.NewBody(req)
	b.Add(`{"model":`)
	b.Quote(req.Model)
	addSystem(&b, system)
	addTurns(&b, turns[:last+1])
	d.addParameters(&b, req)
	b.Add(`}`)
	return b.Slices(), nil
}

// addSystem joins the texts of the messages by line breaks.
func addSystem(b *providers.Body, messages []providers.Message) {
	before, after := `,"system":"`, ``
	for i := range messages {
		if content := messages[i].Content; !isBlank(content) {
			b.Add(before)
			b.Slice(jsonscan.Literal(content).Inner())
			before, after = `\n`, `"`
		}
	}
	b.Add(after)
}

// addTurns adds the messages that have a text. The last one has a text. White space at its end is left out if it is the assistant's,
// because the API refuses it there.
func addTurns(b *providers.Body, messages []providers.Message) {
	before := `,"messages":[{"role":"`
	for i := range messages {
		m := &messages[i]
		if isBlank(m.Content) {
			continue
		}
		role, content, after := "user", []byte(m.Content), ``
		if m.Role == "assistant" {
			role = m.Role
			if i == len(messages)-1 {
				content, after = content[:1+trimmedLen(m.Content)], `"`
			}
		}
		b.Add(before)
		b.Add(role)
		b.Add(`","content":`)
		b.Slice(content)
		b.Add(after)
		before = `},{"role":"`
	}
	b.Add(`}]`)
}

// lastText returns the index of the last message that has more than white space, or -1.
func lastText(messages []providers.Message) int {
	last := len(messages) - 1
	for last >= 0 && isBlank(messages[last].Content) {
		last--
	}
	return last
}

// isBlank reports whether a text has nothing but white space.
func isBlank(content providers.JSONString) bool {
	for in := jsonscan.Literal(content).Inner(); len(in) > 0; {
		r, size := jsonscan.DecodeRune(in)
		if !unicode.IsSpace(r) {
			return false
		}
		in = in[size:]
	}
	return true
}

// trimmedLen returns the length in bytes of the inner part of a literal without the white space at the end of its text.
func trimmedLen(content providers.JSONString) (length int) {
	in := jsonscan.Literal(content).Inner()
	for i := 0; i < len(in); {
		r, size := jsonscan.DecodeRune(in[i:])
		i += size
		if !unicode.IsSpace(r) {
			length = i
		}
	}
	return length
}

func (d *dialect) addParameters(b *providers.Body, req *providers.Request) {
	b.Add(`,"max_tokens":`)
	b.Int(req.MaxTokens)
	switch { // models since 2025 refuse temperature and top_p together
	case d.version >= unsampledVersion:
	case req.Temperature != nil:
		b.Float(`,"temperature":`, new(min(max(*req.Temperature, 0), 1)))
	default:
		b.Float(`,"top_p":`, req.TopP)
	}
	b.List(`,"stop_sequences":[`, req.Stop)
	switch req.Thinking {
	case "":
	case "disabled", "adaptive", "between_tools":
		b.Add(`,"thinking":{"type":"` + req.Thinking + `"}`)
	default: // a word of effort, the only lever of models that always think
		b.Add(`,"output_config":{"effort":`)
		b.Quote(req.Thinking)
		b.Add(`}`)
	}
	if req.Stream {
		b.Add(`,"stream":true`)
	}
}
