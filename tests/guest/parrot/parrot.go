// Package parrot is an adapter to a made-up vendor of models, the parrot. It is the example of docs/extending.md.
package parrot

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Driver is the [providers.Driver] of the protocol.
type Driver struct{}

// Describe implements [providers.Driver].
func (Driver) Describe() *providers.Description {
	return &providers.Description{
		Name: "parrot", Label: "Parrot", ExampleURL: "https://api.parrot.example", MaxStops: 3,
		Options: []option.Option{{Name: "cage", Kind: option.Identifier, Required: true, Help: "The cage that answers."}},
	}
}

// New implements [providers.Driver].
func (Driver) New(config *providers.Config) (providers.Provider, error) {
	endpoint, err := providers.Endpoint(config.BaseURL, "talk")
	if err != nil {
		return nil, err
	}
	return providers.NewHTTP(&dialect{endpoint, config.Options["cage"]}, config), nil
}

type dialect struct {
	endpoint *url.URL
	cage     string
}

// Endpoint implements [providers.Dialect].
func (d *dialect) Endpoint(*providers.Request) *url.URL { return d.endpoint }

// Header implements [providers.Dialect].
func (d *dialect) Header(h http.Header, req *providers.Request) {
	h.Set("X-Parrot-Cage", d.cage)
	if req.APIKey != "" {
		h.Set("X-Parrot-Key", req.APIKey)
	}
}

// Body implements [providers.Dialect]. The parrot has no role tool, and accepts a system message only at the start.
func (d *dialect) Body(req *providers.Request) ([][]byte, error) {
	type line struct {
		By   string          `json:"by"`
		Says json.RawMessage `json:"says"`
	}
	body := struct {
		Bird        string   `json:"bird"`
		Heard       []line   `json:"heard"`
		Most        int64    `json:"most"`
		Temperature *float64 `json:"temperature,omitempty"`
		TopP        *float64 `json:"top_p,omitempty"`
		Hush        []string `json:"hush,omitempty"`
		Mood        string   `json:"mood,omitempty"`
		Piecewise   bool     `json:"piecewise"`
	}{Bird: req.Model, Most: req.MaxTokens, Temperature: req.Temperature, TopP: req.TopP, Hush: req.Stop, Mood: req.Thinking, Piecewise: req.Stream}
	for i, m := range req.Messages {
		if m.Role == "system" && i > 0 {
			return nil, providers.Unwritable(fmt.Sprintf("messages[%d].role", i), "A system message must be the first message.")
		}
		if m.Role == "tool" {
			m.Role = "user"
		}
		body.Heard = append(body.Heard, line{m.Role, json.RawMessage(m.Content)})
	}
	text, err := json.Marshal(body)
	return [][]byte{text}, err
}

// phrase is the answer, or a piece of it.
type phrase struct {
	Says *json.RawMessage `json:"says"`
	Why  string           `json:"why"`
	Cost json.RawMessage  `json:"cost"`
}

func read(data []byte) (piece providers.Piece, err error) {
	var p phrase
	if json.Unmarshal(data, &p) != nil || p.Says == nil && p.Why == "" && p.Cost == nil {
		return piece, providers.NotAnAnswer("it is no phrase")
	}
	if p.Says != nil {
		if piece.Text = providers.JSONString(*p.Says); piece.Text[0] != '"' {
			return piece, providers.NotAnAnswer("the phrase is no text")
		}
	}
	var cost struct{ Heard, Said float64 } // an odd count doesn't fail the answer
	if json.Unmarshal(p.Cost, &cost) == nil && cost.Heard >= 1 && cost.Heard < 1e9 && cost.Said >= 0 && cost.Said < 1e9 {
		piece.Usage = &providers.Usage{PromptTokens: int64(cost.Heard), CompletionTokens: int64(cost.Said)}
	}
	piece.FinishReason = finishReasons[p.Why]
	piece.End = p.Why != ""
	return piece, nil
}

// finishReasons maps the parrot's reasons to OpenAI's words. Any other reason means stop.
var finishReasons = map[string]string{"asleep": "length", "ashamed": "content_filter"}

// Answer implements [providers.Dialect].
func (d *dialect) Answer(body []byte) (providers.Event, error) {
	p, err := read(body)
	if err != nil || p.Text == nil {
		return providers.Event{}, providers.NotAnAnswer("the answer says nothing")
	}
	return providers.Event{Text: p.Text.Text(), FinishReason: p.FinishReason, Usage: p.Usage}, nil
}

// Stream implements [providers.Dialect].
func (d *dialect) Stream() providers.StreamReader { return stream{} }

type stream struct{}

// Event implements [providers.StreamReader].
func (stream) Event(data []byte) (providers.Piece, error) { return read(data) }

// Fault implements [providers.Dialect]: the parrot's errors are {"squawk":…}.
func (d *dialect) Fault(status int, header http.Header, body []byte) *providers.Error {
	var said struct{ Squawk string }
	_ = json.Unmarshal(body, &said)
	e := providers.StatusError(status, header)
	e.Detail = said.Squawk
	return e
}

// Interface guards.
var (
	_ providers.Driver  = Driver{}
	_ providers.Dialect = (*dialect)(nil)
)
