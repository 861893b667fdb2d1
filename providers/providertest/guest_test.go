package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/providers"
)

// guest is an adapter to a vendor of this test. Each field but lines is a fault; without them it keeps the contract.
type guest struct {
	lines      bool // the stream is JSON lines
	asks       func(*providers.Request)
	body       func([]byte, *providers.Request) []byte
	key        func(*providers.Request) string
	url        func(*url.URL, *providers.Request)
	unwritable func(field, message string) error
	event      func(*providers.Event)
	piece      func(*providers.Piece)
	usage      func(*providers.Usage)
	count      func(json.RawMessage) (int64, error)
	adds       bool
	accepts    bool
	finish     map[string]string
	faults     func(message string) error
	fault      func(*providers.Error)
	provider   func(providers.Provider) providers.Provider
}

func (g guest) Describe() *providers.Description {
	return &providers.Description{Name: "guest", Label: "Guest", MaxStops: -1}
}

func (g guest) New(config *providers.Config) (providers.Provider, error) {
	endpoint, err := providers.Endpoint(config.BaseURL, "chat")
	if err != nil {
		return nil, err
	}
	var p providers.Provider = providers.NewHTTP(&guestDialect{g, endpoint}, config)
	if g.provider != nil {
		p = g.provider(p)
	}
	return p, nil
}

type guestDialect struct {
	guest

	endpoint *url.URL
}

func (d *guestDialect) Endpoint(req *providers.Request) *url.URL {
	u := *d.endpoint
	if d.url != nil {
		d.url(&u, req)
	}
	return &u
}

func (d *guestDialect) Header(h http.Header, req *providers.Request) {
	key := req.APIKey
	if d.key != nil {
		key = d.key(req)
	}
	if key != "" {
		h.Set("X-Key", key)
	}
}

// wire is a request in the vendor's form.
type wire struct {
	Model       string     `json:"model"`
	Messages    []wireText `json:"messages"`
	Most        int64      `json:"most,omitempty"`
	Temperature *float64   `json:"temperature,omitempty"`
	TopP        *float64   `json:"top_p,omitempty"`
	Stop        []string   `json:"stop,omitempty"`
	Thinking    string     `json:"thinking,omitempty"`
	Stream      bool       `json:"stream"`
}

type wireText struct {
	Role string          `json:"role"`
	Text json.RawMessage `json:"text"`
}

func (d *guestDialect) Body(req *providers.Request) ([][]byte, error) {
	asked := *req
	asked.Messages = slices.Clone(req.Messages)
	if d.asks != nil {
		d.asks(&asked)
	}
	if asked.MaxTokens > 1_000_000 {
		refuse := d.unwritable
		if refuse == nil {
			refuse = func(field, message string) error { return providers.Unwritable(field, message) }
		}
		if err := refuse("max_tokens", "At most 1,000,000."); err != nil {
			return nil, err
		}
	}
	w := wire{asked.Model, nil, asked.MaxTokens, asked.Temperature, asked.TopP, asked.Stop, asked.Thinking, asked.Stream}
	for _, m := range asked.Messages {
		w.Messages = append(w.Messages, wireText{m.Role, json.RawMessage(m.Content)})
	}
	body, err := json.Marshal(w)
	if d.body != nil {
		body = d.body(body, req)
	}
	return [][]byte{body}, err
}

func (d *guestDialect) Answer(body []byte) (providers.Event, error) {
	p, err := (&guestStream{d: d}).read(body)
	if err == nil && p.FinishReason == "" && !d.accepts {
		err = providers.NotAnAnswer("no answer")
	}
	e := providers.Event{Text: p.Text.Text(), FinishReason: p.FinishReason, Usage: p.Usage}
	if d.event != nil {
		d.event(&e)
	}
	return e, err
}

func (d *guestDialect) Stream() providers.StreamReader {
	s := &guestStream{d: d, streamed: true}
	if d.lines {
		return struct {
			providers.JSONLines
			*guestStream
		}{guestStream: s}
	}
	return s
}

func (d *guestDialect) Fault(status int, header http.Header, body []byte) *providers.Error {
	e := providers.StatusError(status, header)
	var said struct{ Fault string }
	_ = json.Unmarshal(body, &said)
	e.Detail = said.Fault
	if d.fault != nil {
		d.fault(e)
	}
	return e
}

type guestStream struct {
	d        *guestDialect
	streamed bool
	total    providers.Usage
}

func (s *guestStream) Event(data []byte) (providers.Piece, error) {
	p, err := s.read(data)
	if s.d.piece != nil {
		s.d.piece(&p)
	}
	return p, err
}

// read reads {"text":…,"end":…,"usage":[…],"fault":…}.
func (s *guestStream) read(data []byte) (p providers.Piece, err error) {
	var in struct {
		Text  *json.RawMessage
		End   string
		Usage []json.RawMessage
		Fault string
	}
	switch err := json.Unmarshal(data, &in); {
	case s.d.accepts:
		return providers.Piece{End: true}, nil
	case err == nil && in.Fault != "":
		if s.d.faults != nil {
			return p, s.d.faults(in.Fault)
		}
		return p, &providers.Error{Failure: providers.FailureRefused, Detail: in.Fault, Elsewhere: true}
	case err != nil || in.Text == nil && in.End == "" && in.Usage == nil:
		return p, providers.NotAnAnswer("no answer")
	case in.Text != nil:
		p.Text = providers.JSONString(*in.Text)
	}
	p.FinishReason, p.End = in.End, in.End != ""
	if word, ok := s.d.finish[in.End]; ok {
		p.FinishReason = word
	}
	p.Usage, err = s.counted(in.Usage)
	return p, err
}

func (s *guestStream) counted(raw []json.RawMessage) (*providers.Usage, error) {
	count := s.d.count
	if count == nil {
		count = func(raw json.RawMessage) (int64, error) {
			f := -1.0 // the gateway drops the report
			_ = json.Unmarshal(raw, &f)
			return int64(f), nil
		}
	}
	var u providers.Usage
	for i, field := range []*int64{
		&u.PromptTokens, &u.CompletionTokens, &u.CachedPromptTokens, &u.CacheWriteTokens, &u.LongCacheWriteTokens, &u.ReasoningTokens,
	} {
		if i >= len(raw) {
			return nil, nil //nolint:nilnil // no report
		}
		var err error
		if *field, err = count(raw[i]); err != nil {
			return nil, err
		}
	}
	if s.d.usage != nil {
		s.d.usage(&u)
	}
	if s.d.adds {
		s.total.PromptTokens += u.PromptTokens
		s.total.CompletionTokens += u.CompletionTokens
		u.PromptTokens, u.CompletionTokens = s.total.PromptTokens, s.total.CompletionTokens
	}
	return &u, nil
}

func guestSuite(g guest) Suite {
	usage := func(u providers.Usage) string {
		return fmt.Sprintf(`"usage": [%d, %d, %d, %d, %d, %d]`,
			u.PromptTokens, u.CompletionTokens, u.CachedPromptTokens, u.CacheWriteTokens, u.LongCacheWriteTokens, u.ReasoningTokens)
	}
	event := func(members ...string) string {
		if g.lines {
			return "{" + strings.Join(members, ",") + "}\n"
		}
		return "data: {" + strings.Join(members, ",") + "}\n\n"
	}
	return Suite{Driver: g, Vendor: &Vendor{
		Read: func(_ *http.Request, body []byte) (req providers.Request, err error) {
			var w wire
			known := json.NewDecoder(bytes.NewReader(body))
			known.DisallowUnknownFields()
			err = known.Decode(&w)
			req = providers.Request{
				Model: w.Model, MaxTokens: w.Most, Temperature: w.Temperature, TopP: w.TopP, Stop: w.Stop, Thinking: w.Thinking, Stream: w.Stream,
			}
			for _, m := range w.Messages {
				req.Messages = append(req.Messages, providers.Message{Role: m.Role, Content: providers.JSONString(m.Text)})
			}
			return req, err
		},
		Unwritable: []func(*providers.Request){func(req *providers.Request) { req.MaxTokens = 2_000_000 }},
		Thinking:   []string{"off"},
		Answer: func(text, finish string, u providers.Usage) string {
			return fmt.Sprintf(`{"text":%s,"end":%q,%s}`, providers.Quote(text), finish, usage(u))
		},
		Stream: func(pieces []string, finish string, u providers.Usage) (parts []string) {
			for _, piece := range pieces {
				parts = append(parts, event(`"text":`+string(providers.Quote(piece))))
			}
			return append(parts, event(fmt.Sprintf(`"end":%q`, finish), usage(u)))
		},
		Report:     func(u providers.Usage) string { return event(usage(u)) },
		UsageParts: providers.Usage{CachedPromptTokens: 1, CacheWriteTokens: 1, LongCacheWriteTokens: 1, ReasoningTokens: 1},
		Error:      func(message string) string { return fmt.Sprintf(`{"fault":%q}`, message) },
	}}
}

// twice sends each request twice.
type twice struct{ providers.Provider }

func (p twice) Open(ctx context.Context, req *providers.Request) (providers.Events, error) {
	same := *req
	if events, err := p.Provider.Open(ctx, &same); err == nil {
		events.Close()
	}
	return p.Provider.Open(ctx, req)
}

// again sends a request again when it has failed.
type again struct{ providers.Provider }

func (p again) Open(ctx context.Context, req *providers.Request) (providers.Events, error) {
	same := *req
	if events, err := p.Provider.Open(ctx, &same); err == nil {
		return events, nil
	}
	return p.Provider.Open(ctx, req)
}

// ownCause hides the cause of the caller's end.
type ownCause struct{ providers.Provider }

func (p ownCause) Open(ctx context.Context, req *providers.Request) (providers.Events, error) {
	events, err := p.Provider.Open(ctx, req)
	if ctx.Err() != nil {
		err = &providers.Error{Failure: providers.FailureCanceled, Cause: ctx.Err()}
	}
	return events, err
}
