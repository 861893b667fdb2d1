// Package gemini is the native dialect of Google's Gemini API: generateContent and streamGenerateContent,
// https://ai.google.dev/api/generate-content.
package gemini

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Driver is the [providers.Driver] of the protocol. It has no options of its own.
type Driver struct{}

// Describe implements [providers.Driver].
func (Driver) Describe() *providers.Description {
	const address = "https://generativelanguage.googleapis.com/v1beta"
	return &providers.Description{
		Name: "gemini", Label: "Gemini", ExampleURL: address, MaxStops: maxStops,
		Presets: []providers.Preset{{Name: "gemini", Label: "Gemini", BaseURL: address, MaxStops: maxStops}},
	}
}

const (
	// maxStops is the largest number of stop sequences: "must not exceed 5".
	maxStops = 5
	// maxWhole is the largest number of tokens that gemini-4-argon generates for generateContent. The other method has no such limit.
	maxWhole = 32_768
)

// New implements [providers.Driver]. Requests go to the base URL with "/models/NAME:METHOD" appended.
func (Driver) New(config *providers.Config) (providers.Provider, error) {
	models, err := providers.Endpoint(config.BaseURL, "models/")
	if err != nil {
		return nil, err
	}
	query := models.Query()
	query.Set("alt", "sse")
	return providers.NewHTTP(&dialect{models: models, streamQuery: query.Encode()}, config), nil
}

type dialect struct {
	// models is the address to which a model's name and a method are appended.
	models *url.URL
	// streamQuery is the query that makes streamGenerateContent answer with server-sent events, and not with a JSON array.
	streamQuery string
}

var _ providers.ListDialect = (*dialect)(nil)

// Endpoint implements [providers.Dialect]. An answer that may be longer than maxWhole tokens is requested as the JSON array of a
// stream.
func (d *dialect) Endpoint(req *providers.Request) *url.URL {
	method := ":generateContent"
	if req.Stream || req.MaxTokens > maxWhole {
		method = ":streamGenerateContent"
	}
	u := *d.models
	u.RawPath = u.EscapedPath() + url.PathEscape(req.Model) + method
	u.Path += req.Model + method
	if req.Stream {
		u.RawQuery = d.streamQuery
	}
	return &u
}

// ListEndpoint implements [providers.ListDialect]. 1000 models are the largest page, and more than the vendor has.
func (d *dialect) ListEndpoint() *url.URL {
	u := d.models.JoinPath("..", "models")
	query := u.Query()
	query.Set("pageSize", "1000")
	u.RawQuery = query.Encode()
	return u
}

// ReadList implements [providers.ListDialect]. The list has no dates.
func (d *dialect) ReadList(body []byte) (models []providers.ListedModel, err error) {
	var list struct {
		Models []struct {
			Name string `json:"name"`
		} `json:"models"`
	}
	if json.Unmarshal(body, &list) != nil || list.Models == nil {
		return nil, providers.NotAnAnswer("the list of models has an unexpected form")
	}
	for _, model := range list.Models {
		models = append(models, providers.ListedModel{Name: strings.TrimPrefix(model.Name, "models/")})
	}
	return models, nil
}

// Header implements [providers.Dialect]. The API also accepts the key in the query, but addresses are logged.
func (d *dialect) Header(h http.Header, req *providers.Request) {
	if req.APIKey != "" {
		h["X-Goog-Api-Key"] = []string{req.APIKey}
	}
}

// Answer implements [providers.Dialect]. The body is one response, or the array of all responses of a stream.
func (d *dialect) Answer(raw []byte) (providers.Event, error) {
	var answer providers.Event
	var text providers.Joined
	var reader events
	add := func(data []byte) error {
		piece, err := reader.Event(data)
		if err != nil {
			return err
		}
		text.Add(piece.Text)
		answer.Model = piece.Model
		switch {
		case piece.Usage != nil:
			answer.Usage = largest(answer.Usage, *piece.Usage)
		case answer.Usage != nil && piece.Text.ByteLen() > 0: // nothing has counted this text, so nothing has counted all
			answer.Usage.CompletionTokens, answer.Usage.ReasoningTokens = 0, 0
		}
		if piece.FinishReason != "" {
			answer.FinishReason = piece.FinishReason
		}
		return nil
	}
	s := newScanner(raw)
	list := s.Peek() == '['
	if !list {
		if err := add(raw); err != nil {
			return providers.Event{}, err
		}
	} else {
		for more := s.Enter('['); more; more = s.More('[') {
			if err := add(s.Value()); err != nil {
				return providers.Event{}, err
			}
		}
		if !s.End() {
			return providers.Event{}, providers.NotAnAnswer("the answer is no JSON array")
		}
	}
	if answer.FinishReason == "" && (list || text.Text == nil) {
		return providers.Event{}, providers.NotAnAnswer("the answer has no text and no finish reason, or is cut off")
	}
	answer.Text = text.Text.Text()
	return answer, nil
}

// largest returns the largest count of each field.
func largest(before *providers.Usage, now providers.Usage) *providers.Usage {
	if before != nil {
		now.PromptTokens = max(now.PromptTokens, before.PromptTokens)
		now.CompletionTokens = max(now.CompletionTokens, before.CompletionTokens)
		now.CachedPromptTokens = max(now.CachedPromptTokens, before.CachedPromptTokens)
		now.ReasoningTokens = max(now.ReasoningTokens, before.ReasoningTokens)
	}
	return &now
}

// Stream implements [providers.Dialect].
func (d *dialect) Stream() providers.StreamReader { return new(events) }

// events reads the responses of one answer.
type events struct {
	last frame
	// usage is the newest report.
	usage providers.Usage
	model string
	// begun is set if there was text.
	begun bool
}

// Event implements [providers.StreamReader]. A response of a stream counts the tokens so far, and one that doesn't leaves its text uncounted.
func (e *events) Event(data []byte) (providers.Piece, error) {
	if text, counts := e.last.content(data); text != nil {
		e.begun = e.begun || len(text) > len(`""`)
		return providers.Piece{Text: text, Usage: e.report(&counts), Model: e.model}, nil
	}
	doc, ok := readResponse(data)
	switch {
	case doc.fault != nil:
		return providers.Piece{}, classify(providers.ReadFault(data), 0, nil)
	case !ok:
		if f := providers.ReadFault(data); f.Status(statuses) != 0 { // an array may wrap an error
			return providers.Piece{}, classify(f, 0, nil)
		}
		return providers.Piece{}, providers.NotAnAnswer("a response is no JSON object")
	case doc.malformed:
		return providers.Piece{}, providers.NotAnAnswer("a response has an unexpected form")
	}
	usage := e.report(&doc.counts)
	if e.model == "" {
		e.model = doc.model.Text()
	}
	e.begun = e.begun || doc.text.Text.ByteLen() > 0
	finish, err := doc.finishReason(e.begun)
	if err != nil {
		return providers.Piece{}, err
	}
	if finish == "" {
		e.last.remember(data, &doc)
	}
	return providers.Piece{Text: doc.text.Text, FinishReason: finish, Usage: usage, Model: e.model}, nil
}

// report returns the usage of a response, which the next one overwrites, or nil if it has none.
func (e *events) report(c *counts) *providers.Usage {
	usage, counted := c.usage()
	if !counted {
		return nil
	}
	e.usage = usage
	return &e.usage
}

// Body implements [providers.Dialect]. The vendor gets only the contract's fields, always in the same order, which keeps its
// prompt cache warm. Message contents are not copied.
//
// The system messages before all others are the system instruction, and a later one is the user's, as the role tool is. Without
// any other message they are the user's turn, because contents must not be empty. Nor must parts, so messages without text are left
// out. Adjacent messages of one role are one turn.
func (d *dialect) Body(req *providers.Request) ([][]byte, error) {
	b := providers.NewBody(req)
	b.Add(`{`)
	messages := req.Messages
	if leading := leadingSystem(messages); leading > 0 {
		before := `"systemInstruction":{"parts":[`
		for _, m := range messages[:leading] {
			if hasText(m) {
				b.Add(before)
				addPart(&b, m)
				before = `,`
			}
		}
		b.Add(`]},`)
		messages = messages[leading:]
	}
	b.Add(`"contents":[`)
	if !addTurns(&b, messages) {
		return nil, providers.Unwritable("messages", "At least one message must have text.")
	}
	b.Add(`],"generationConfig":{"maxOutputTokens":`)
	b.Int(max(1, req.MaxTokens))
	b.Float(`,"temperature":`, req.Temperature)
	b.Float(`,"topP":`, req.TopP)
	b.List(`,"stopSequences":[`, req.Stop)
	addThinking(&b, req.Thinking)
	b.Add(`}}`)
	return b.Slices(), nil
}

// hasText reports whether a message has text.
func hasText(m providers.Message) bool { return len(m.Content) > len(`""`) }

// leadingSystem returns the number of messages before the first text of another role than system. It returns 0 if there is no such
// text, or no system message has text.
func leadingSystem(messages []providers.Message) int {
	found := false
	for i, m := range messages {
		switch {
		case !hasText(m):
		case m.Role == "system":
			found = true
		case found:
			return i
		default:
			return 0
		}
	}
	return 0
}

func addPart(b *providers.Body, m providers.Message) {
	b.Add(`{"text":`)
	b.Slice(m.Content)
	b.Add(`}`)
}

// addTurns writes the messages as turns of the user and the model in alternation. It reports whether there is any.
func addTurns(b *providers.Body, messages []providers.Message) bool {
	role := ""
	for _, m := range messages {
		if !hasText(m) {
			continue
		}
		own := "user"
		if m.Role == "assistant" {
			own = "model"
		}
		if own == role {
			b.Add(`,`)
		} else if role != "" {
			b.Add(`]},`)
		}
		if own != role {
			role = own
			b.Add(`{"role":"`)
			b.Add(role)
			b.Add(`","parts":[`)
		}
		addPart(b, m)
	}
	if role == "" {
		return false
	}
	b.Add(`]}`)
	return true
}

// addThinking adds thinkingConfig: a number is the thinkingBudget in tokens of the models before Gemini 3, where 0 means off, and
// a word the thinkingLevel of the later ones. A request with both is refused.
func addThinking(b *providers.Body, thinking string) {
	if thinking == "" {
		return
	}
	if budget, err := strconv.Atoi(thinking); err == nil {
		b.Add(`,"thinkingConfig":{"thinkingBudget":`)
		b.Int(int64(budget))
	} else {
		b.Add(`,"thinkingConfig":{"thinkingLevel":`)
		b.Quote(thinking)
	}
	b.Add(`}`)
}

// Fault implements [providers.Dialect].
func (d *dialect) Fault(status int, header http.Header, body []byte) *providers.Error {
	f := providers.ReadFault(body)
	if status != http.StatusOK {
		return classify(f, status, header)
	}
	if f.Status(statuses) == 0 && f.Message == "" {
		return providers.NotAnAnswer("the stream holds JSON that is no event")
	}
	return classify(f, 0, nil)
}

// statuses are the HTTP statuses of the words in an error's member status, for errors without a code:
// https://ai.google.dev/gemini-api/docs/troubleshooting.
var statuses = map[string]int{
	"invalid_argument": 400, "failed_precondition": 400, "unauthenticated": 401, "permission_denied": 403, "not_found": 404,
	"resource_exhausted": 429, "internal": 500, "unavailable": 503, "deadline_exceeded": 504,
}

// coolLong is the time to cool for an endpoint whose key, region, credit, model or daily quota is missing. A person has to act, and may
// have acted an hour later. The vendor states no wait, or one of seconds.
const coolLong = time.Hour

// classify returns the error for a fault. An error inside a successful answer has status 0.
func classify(f providers.VendorFault, status int, header http.Header) *providers.Error {
	known := cmp.Or(status, f.Status(statuses))
	e := providers.StatusError(known, header)
	e.Status, e.Detail = status, f.Detail()
	switch {
	case known == http.StatusBadRequest && f.Mentions("token count") && f.Mentions("exceeds the maximum number of tokens"):
		e.Failure = providers.FailureContextTooLong
	case known == http.StatusBadRequest && f.HasWord("failed_precondition", "api_key_invalid"),
		known == http.StatusBadRequest && strings.HasPrefix(strings.ToLower(f.Message), "api key "), // a wrong or expired one
		known >= http.StatusUnauthorized && known <= http.StatusNotFound:
		e.Elsewhere, e.Cool = true, coolLong
	case e.Failure == providers.FailureOverloaded && f.PerDay:
		e.Cool, e.RetryAfter = coolLong, providers.ClampRetryAfter(coolLong)
	case e.Failure == providers.FailureOverloaded && e.RetryAfter == 0:
		if wait := f.RetryAfter(); wait > 0 {
			e.Cool, e.RetryAfter = wait, providers.ClampRetryAfter(wait)
		}
	}
	return e
}
