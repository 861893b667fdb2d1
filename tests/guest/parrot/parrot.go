// Package parrot is an adapter to a made-up vendor of models, the parrot. It is the example of docs/extending.md.
package parrot

import (
	"encoding/json"
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
		Name: "parrot", Label: "Parrot", ExampleURL: "https://api.parrot.example",
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

// Body implements [providers.Dialect].
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
		Piecewise   bool     `json:"piecewise"`
	}{Bird: req.Model, Most: req.MaxTokens, Temperature: req.Temperature, Piecewise: req.Stream}
	for _, m := range req.Messages {
		body.Heard = append(body.Heard, line{m.Role, json.RawMessage(m.Content)})
	}
	text, err := json.Marshal(body)
	return [][]byte{text}, err
}

// phrase is the answer, or a piece of it.
type phrase struct {
	Says *json.RawMessage `json:"says"`
	Why  string           `json:"why"`
	Cost *struct {
		Heard int64 `json:"heard"`
		Said  int64 `json:"said"`
	} `json:"cost"`
}

func read(data []byte) (piece providers.Piece, err error) {
	var p phrase
	if json.Unmarshal(data, &p) != nil || p.Says == nil && p.Why == "" {
		return piece, providers.NotAnAnswer("it is no phrase")
	}
	if p.Says != nil {
		if piece.Text = providers.JSONString(*p.Says); piece.Text[0] != '"' {
			return piece, providers.NotAnAnswer("the phrase is no text")
		}
	}
	if p.Cost != nil {
		piece.Usage = &providers.Usage{PromptTokens: p.Cost.Heard, CompletionTokens: p.Cost.Said}
	}
	piece.FinishReason = p.Why
	piece.End = p.Why != ""
	return piece, nil
}

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
