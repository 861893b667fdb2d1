// Package anthropic is the dialect of Anthropic's Messages API, https://platform.claude.com/docs/en/api/messages, which other vendors
// (Bedrock, DeepSeek) also serve.
//
// It accepts everything that the public interface allows: a role, a place of the system text or an empty message that the API refuses
// becomes a form that it accepts. Refusals of single models (sampling, thinking, stops) are switches of the model's configuration.
package anthropic

import (
	"cmp"
	"encoding/json"
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

var _ providers.ListDialect = (*dialect)(nil)

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

// Fault implements [providers.Dialect].
func (d *dialect) Fault(status int, header http.Header, body []byte) *providers.Error {
	f := providers.ReadFault(body)
	if status != http.StatusOK {
		return classify(f, status, header)
	}
	if f.Message == "" {
		return providers.NotAnAnswer("the stream holds JSON that is no event")
	}
	return classify(f, 0, nil)
}

// statuses are the HTTP statuses of the API's types of errors, https://platform.claude.com/docs/en/api/errors. An error in a stream
// has only its type.
var statuses = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403, "not_found_error": 404,
	"conflict_error": 409, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504, "overloaded_error": 529,
}

// fundsCool is the time without calls to an account that has no money or has reached its spend limit. Only a person or the next month
// ends that, but a limit that was raised should have an effect soon.
const fundsCool = time.Hour

// classify returns the error for a fault. An error inside a successful answer has the status 0.
func classify(f providers.VendorFault, status int, header http.Header) *providers.Error {
	known := cmp.Or(status, f.Status(statuses))
	e := providers.StatusError(known, header)
	refused := known == http.StatusBadRequest || known == http.StatusUnprocessableEntity
	switch {
	case known == http.StatusPaymentRequired, // the API also reports that with 400 and 429, and waiting doesn't help
		f.HasWord("enforced_spend_limit_reached", "contract_spend_limit_reached", "organization_on_hold", "billing_error", "insufficient_quota"),
		f.Begins("specified api usage limits", "credit balance is too low", "organization has been disabled"):
		e.Failure, e.Permanent, e.Elsewhere, e.Cool = providers.FailureRefused, true, true, fundsCool
	case refused && f.Mentions("assistant message prefill", "must end with a user message"):
		e = providers.Unwritable("messages", "The last message of a request to this model must have the role user, system or tool.")
	case refused && f.Mentions(overflows...):
		e.Failure = providers.FailureContextTooLong
	case (known == 0 || known == http.StatusInternalServerError) && f.Begins("overloaded"):
		e.Failure = providers.FailureOverloaded
	}
	if e.Failure != providers.FailureOverloaded {
		e.RetryAfter = 0
	}
	e.Status, e.Detail = status, f.Detail()
	return e
}

// overflows are the words for a prompt that exceeds the window, of Anthropic, Bedrock, MiniMax, DeepSeek and Kimi.
var overflows = []string{
	"prompt is too long", "exceed context limit", "input is too long for requested model", "context window exceeds limit",
	"maximum context length", "exceeded model token limit",
}

// ListEndpoint implements [providers.ListDialect]: https://platform.claude.com/docs/en/api/models-list. One page has up to 1000 models.
func (d *dialect) ListEndpoint() *url.URL {
	address := d.endpoint.JoinPath("..", "models")
	query := address.Query()
	query.Set("limit", "1000")
	address.RawQuery = query.Encode()
	return address
}

// ReadList implements [providers.ListDialect]. The list names no day on which a model ends.
func (d *dialect) ReadList(body []byte) ([]providers.ListedModel, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil || list.Data == nil {
		return nil, providers.NotAnAnswer("the list of models has an unexpected form")
	}
	models := make([]providers.ListedModel, len(list.Data))
	for i, model := range list.Data {
		models[i].Name = model.ID
	}
	return models, nil
}
