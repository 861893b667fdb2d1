// Package openai is the dialect of OpenAI's chat completions, which most vendors and local servers imitate: Ollama, vLLM,
// llama.cpp, Groq, Gemini's compatible endpoint and others. It accepts their deviations: other places of the token counts, other
// forms of errors, missing fields.
package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Driver is the [providers.Driver] of the protocol.
type Driver struct{}

// Describe implements [providers.Driver].
func (Driver) Describe() *providers.Description {
	return &providers.Description{
		Name: "openai", Label: "OpenAI", ExampleURL: "https://api.openai.com/v1", MaxStops: 4, Options: options, Presets: presets,
	}
}

// New implements [providers.Driver]. Requests go to the base URL with "/chat/completions" appended.
func (Driver) New(config *providers.Config) (providers.Provider, error) {
	endpoint, err := providers.Endpoint(config.BaseURL, "chat/completions")
	if err != nil {
		return nil, err
	}
	d := newDialect(config.Options)
	d.endpoint = endpoint
	return providers.NewHTTP(d, config), nil
}

type dialect struct {
	endpoint *url.URL
	// keyHeader is the header of the key. It is empty for Authorization.
	keyHeader      string
	maxTokensField string
	// thinking is the text before the value of the field for thinking, and thinkingEnd the text after it.
	thinking, thinkingEnd string
	// reasoning are the fields that requests to models with hidden tokens get, with a comma before them.
	reasoning string
	// omit are the names of fields that are never sent.
	omit []string
	// model is the name in the previous answer. Equal names share its memory.
	model atomic.Pointer[string]
}

// Endpoint implements [providers.Dialect].
func (d *dialect) Endpoint(*providers.Request) *url.URL { return d.endpoint }

// Header implements [providers.Dialect].
func (d *dialect) Header(h http.Header, req *providers.Request) {
	switch {
	case req.APIKey == "":
	case d.keyHeader != "":
		h[d.keyHeader] = []string{req.APIKey}
	default:
		h["Authorization"] = []string{"Bearer " + req.APIKey}
	}
}

// Answer implements [providers.Dialect].
func (d *dialect) Answer(raw []byte) (providers.Event, error) {
	doc, ok := readChunk(raw, whole)
	if !ok {
		if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) { // Gemini wraps its error object into an array
			return providers.Event{}, classify(providers.ReadFault(raw), 0, nil)
		}
		return providers.Event{}, providers.NotAnAnswer("the answer is no JSON object")
	}
	if doc.fault != nil {
		return providers.Event{}, classify(providers.ReadFault(doc.fault), 0, nil)
	}
	if doc.malformed || !doc.chosen || !doc.filled {
		return providers.Event{}, providers.NotAnAnswer("the answer has no choice with a message")
	}
	finish, err := doc.finishReason()
	if err != nil {
		return providers.Event{}, err
	}
	return providers.Event{Text: doc.content.Text(), FinishReason: finish, Usage: doc.reported(), Model: d.modelName(doc.model)}, nil
}

// maxModel limits the literal of a model's name in bytes. A longer name is dropped.
const maxModel = 256

// modelName returns the text of a model's name, which may be empty.
func (d *dialect) modelName(name jsonscan.Literal) string {
	if len(name) == 0 || len(name) > maxModel {
		return ""
	}
	last := d.model.Load()
	if last != nil && string(name.Inner()) == *last {
		return *last
	}
	text := name.Text()
	d.model.Store(&text)
	return text
}

// Stream implements [providers.Dialect].
func (d *dialect) Stream() providers.StreamReader { return &events{dialect: d} }

// events reads the events of one stream. Most of them differ from the previous one only in their text.
type events struct {
	dialect *dialect
	last    frame
}

// Event implements [providers.StreamReader].
func (e *events) Event(data []byte) (providers.Piece, error) {
	if text := e.last.content(data); text != nil {
		return providers.Piece{Text: text}, nil
	}
	if string(data) == "[DONE]" {
		return providers.Piece{End: true}, nil
	}
	doc, ok := readChunk(data, pieces)
	switch {
	case !ok:
		return providers.Piece{}, providers.NotAnAnswer("an event of the stream is no JSON object")
	case doc.fault != nil:
		return providers.Piece{}, classify(providers.ReadFault(doc.fault), 0, nil)
	case doc.malformed:
		return providers.Piece{}, providers.NotAnAnswer("an event of the stream has an unexpected form")
	}
	finish, err := doc.finishReason()
	if err != nil {
		return providers.Piece{}, err
	}
	if finish == "" && !doc.counted {
		e.last.remember(data, &doc)
	}
	return providers.Piece{Text: doc.content, FinishReason: finish, Usage: doc.reported(), Model: e.dialect.modelName(doc.model)}, nil
}

// maxFrame limits the bytes of an event that a stream remembers.
const maxFrame = 1 << 10

// frame is an event that contains only text: the bytes before and after the text. The next event with the same bytes around its
// text is compared instead of parsed, because parsing took a quarter of a stream's processor time.
type frame struct{ head, tail []byte }

// remember stores the frame of an event, unless its text was put together from several parts.
func (f *frame) remember(data []byte, doc *chunk) {
	end := doc.contentAt + len(doc.content)
	if doc.contentAt == 0 || len(data)-len(doc.content) > maxFrame {
		return
	}
	f.head = append(f.head[:0], data[:doc.contentAt]...)
	f.tail = append(f.tail[:0], data[end:]...)
}

// content returns the literal of an event's text, or nil if the event must be parsed.
func (f *frame) content(data []byte) providers.JSONString {
	rest, begins := bytes.CutPrefix(data, f.head)
	rest, ends := bytes.CutSuffix(rest, f.tail)
	if !begins || !ends || len(f.head) == 0 {
		return nil
	}
	s := newScanner(rest)
	if text := s.String(); len(text) == len(rest) {
		return providers.JSONString(text)
	}
	return nil
}

// finishWords are OpenAI's words for other vendors' finish reasons.
var finishWords = map[string]string{
	"max_tokens": "length", "max_output_tokens": "length", "model_length": "length", // Mistral has the last one
	"model_context_window_exceeded": "length", "sensitive": "content_filter", // GLM
	"content_filtered": "content_filter", "refusal": "content_filter", "safety": "content_filter",
}

// finishReason returns the finish reason, which may be empty. Some vendors report an error as a finish reason.
func (c *chunk) finishReason() (string, error) {
	reason := c.finish.Text()
	switch word := strings.ToLower(reason); word {
	case "", "stop", "length":
		return reason, nil
	case "insufficient_system_resource": // DeepSeek
		return "", &providers.Error{Failure: providers.FailureOverloaded, Elsewhere: true, Detail: "the answer ended with " + word}
	case "error", "abort", "network_error": // OpenRouter, vLLM, GLM
		return "", providers.NotAnAnswer("the vendor ended the answer with " + word)
	default:
		return cmp.Or(finishWords[word], reason), nil
	}
}

// reported returns a copy of the usage, or nil. The copy keeps events without usage free of allocations.
func (c *chunk) reported() *providers.Usage {
	if !c.counted {
		return nil
	}
	return new(c.usage)
}

// Body implements [providers.Dialect]. The vendor gets only the contract's fields, always in the same order, which keeps its
// prompt cache warm. Message contents are not copied.
func (d *dialect) Body(req *providers.Request) ([][]byte, error) {
	b := providers.NewBody(req)
	b.Add(`{"model":`)
	b.Quote(req.Model)
	before := `,"messages":[{"role":`
	for _, m := range req.Messages {
		role := m.Role
		if role == "tool" { // a message with this role must have the id of a tool's call
			role = "user"
		}
		b.Add(before)
		b.Quote(role)
		b.Add(`,"content":`)
		b.Slice(m.Content)
		before = `},{"role":`
	}
	b.Add(`}]`)
	d.addParameters(&b, req)
	b.Add(`}`)
	return b.Slices(), nil
}

func (d *dialect) addParameters(b *providers.Body, req *providers.Request) {
	if !slices.Contains(d.omit, "temperature") {
		b.Float(`,"temperature":`, req.Temperature)
	}
	if !slices.Contains(d.omit, "top_p") {
		b.Float(`,"top_p":`, req.TopP)
	}
	if req.MaxTokens > 0 {
		b.Add(`,`)
		b.Quote(cmp.Or(req.MaxTokensField, d.maxTokensField))
		b.Add(`:`)
		b.Int(req.MaxTokens)
	}
	b.List(`,"stop":[`, req.Stop)
	if req.Thinking != "" {
		b.Add(d.thinking)
		if req.Thinking == "false" || req.Thinking == "true" {
			b.Add(req.Thinking)
		} else {
			b.Quote(req.Thinking)
		}
		b.Add(d.thinkingEnd)
	}
	if req.Reasoning {
		b.Add(d.reasoning)
	}
	if req.Stream {
		b.Add(`,"stream":true`)
	}
	if req.Stream && !slices.Contains(d.omit, "stream_options") {
		b.Add(`,"stream_options":{"include_usage":true}`)
	}
}

var _ providers.ListDialect = (*dialect)(nil)

// ListEndpoint implements [providers.ListDialect].
func (d *dialect) ListEndpoint() *url.URL { return d.endpoint.JoinPath("..", "..", "models") }

// listed is a model in a list. OpenAI's shutdown_date is a day, Mistral's deprecation a time; both may be null.
type listed struct {
	ID           string          `json:"id"`
	Aliases      []string        `json:"aliases"`
	ShutdownDate json.RawMessage `json:"shutdown_date"`
	Deprecation  json.RawMessage `json:"deprecation"`
}

// ReadList implements [providers.ListDialect]. Together's list is an array instead of an object.
func (d *dialect) ReadList(body []byte) ([]providers.ListedModel, error) {
	var list struct {
		Data []listed `json:"data"`
	}
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		err = json.Unmarshal(body, &list.Data)
	} else {
		err = json.Unmarshal(body, &list)
	}
	if err != nil || list.Data == nil {
		return nil, providers.NotAnAnswer("the list of models has an unexpected form")
	}
	models := make([]providers.ListedModel, 0, len(list.Data))
	for _, model := range list.Data {
		end := readDay(model.ShutdownDate)
		if deprecation := readDay(model.Deprecation); end.IsZero() || !deprecation.IsZero() && deprecation.Before(end) {
			end = deprecation
		}
		models = append(models, providers.ListedModel{Name: model.ID, Aliases: model.Aliases, Shutdown: end})
	}
	return models, nil
}

// readDay returns the time of a JSON string with a day or a time, and the zero time for anything else.
func readDay(value json.RawMessage) time.Time {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return time.Time{}
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339, "2006-01-02T15:04:05"} {
		if day, err := time.Parse(layout, text); err == nil {
			return day.UTC()
		}
	}
	return time.Time{}
}
