package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// A guest without a fault passes, with a stream of either kind.
func TestRightGuests(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]bool{"events": false, "lines": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, guestSuite(guest{lines: lines}))
		})
	}
}

// Each wrong guest is caught by the check that is named for it.
func TestWrongGuests(t *testing.T) {
	t.Parallel()
	number := func(f float64) *float64 { return &f }
	contents := func(change func(string) string) func(*providers.Request) {
		return func(req *providers.Request) {
			for i, m := range req.Messages {
				req.Messages[i].Content = providers.Quote(change(m.Content.Text()))
			}
		}
	}
	var firstKey, firstModel atomic.Pointer[string]
	var before atomic.Pointer[[]providers.Message]
	for check, guests := range map[string]map[string]guest{
		"requests": {
			"max tokens fixed":      {asks: func(req *providers.Request) { req.MaxTokens = 100 }},
			"max tokens missing":    {asks: func(req *providers.Request) { req.MaxTokens = 0 }},
			"max tokens and one":    {asks: func(req *providers.Request) { req.MaxTokens++ }},
			"all roles user":        {asks: func(req *providers.Request) { setRoles(req, func(string) string { return "user" }) }},
			"tools as assistants":   {asks: func(req *providers.Request) { setRoles(req, strings.NewReplacer("tool", "assistant").Replace) }},
			"system dropped":        {asks: func(req *providers.Request) { req.Messages = slices.DeleteFunc(req.Messages, isSystem) }},
			"only the last message": {asks: func(req *providers.Request) { req.Messages = req.Messages[len(req.Messages)-1:] }},
			"reversed":              {asks: func(req *providers.Request) { slices.Reverse(req.Messages) }},
			"temperature dropped":   {asks: func(req *providers.Request) { req.Temperature = nil }},
			"temperature 0 dropped": {asks: func(req *providers.Request) { req.Temperature = unlessZero(req.Temperature) }},
			"temperature invented":  {asks: func(req *providers.Request) { req.Temperature = orElse(req.Temperature, number(1)) }},
			"top_p dropped":         {asks: func(req *providers.Request) { req.TopP = nil }},
			"top_p invented":        {asks: func(req *providers.Request) { req.TopP = orElse(req.TopP, number(1)) }},
			"stop dropped":          {asks: func(req *providers.Request) { req.Stop = nil }},
			"only one stop":         {asks: func(req *providers.Request) { req.Stop = req.Stop[:min(1, len(req.Stop))] }},
			"thinking dropped":      {asks: func(req *providers.Request) { req.Thinking = "" }},
			"thinking invented":     {asks: func(req *providers.Request) { req.Thinking = "low" }},
			"never a stream":        {asks: func(req *providers.Request) { req.Stream = false }},
			"always a stream":       {asks: func(req *providers.Request) { req.Stream = true }},
			"the first model":       {asks: func(req *providers.Request) { req.Model = first(&firstModel, req.Model) }},
			"the messages before":   {asks: func(req *providers.Request) { req.Messages = swap(&before, req.Messages) }},
			"text escaped for HTML": {asks: contents(html.EscapeString)},
			"only ASCII":            {asks: contents(func(text string) string { return strings.Map(ascii, text) })},
			"white space trimmed":   {asks: contents(strings.TrimSpace)},
			"a long text cut":       {asks: contents(func(text string) string { return text[:min(len(text), 64<<10)] })},
			"a member of its own":   {body: func(body []byte, _ *providers.Request) []byte { return append([]byte(`{"n":1,`), body[1:]...) }},
			"the key in the body": {body: func(body []byte, req *providers.Request) []byte {
				return append([]byte(`{"model":"`+req.APIKey+`",`), body[1:]...)
			}},
			"the first key":           {key: func(req *providers.Request) string { return first(&firstKey, req.APIKey) }},
			"no key":                  {key: func(*providers.Request) string { return "" }},
			"a key for those without": {key: func(req *providers.Request) string { return req.APIKey + apiKey[len(req.APIKey):] }},
			"the key in the URL":      {url: func(u *url.URL, req *providers.Request) { u.RawQuery = url.Values{"key": {req.APIKey}}.Encode() }},
			"the base's path dropped": {url: func(u *url.URL, _ *providers.Request) { u.Path = "/chat" }},
			"sent twice":              {provider: func(p providers.Provider) providers.Provider { return twice{p} }},
		},
		"concurrency": {
			"the first key for all":   {key: func(req *providers.Request) string { return first(&firstKey, req.APIKey) }},
			"the first model for all": {asks: func(req *providers.Request) { req.Model = first(&firstModel, req.Model) }},
		},
		"unwritable": {
			"sent all the same":   {unwritable: func(string, string) error { return nil }},
			"an error of its own": {unwritable: func(field, message string) error { return errors.New(field + message) }},
			"without a field":     {unwritable: func(_, message string) error { return providers.Unwritable("", message) }},
			"for another to try": {unwritable: func(field, message string) error {
				e := providers.Unwritable(field, message)
				e.Elsewhere = true
				return e
			}},
		},
		"whole answer": {
			"no usage": {event: func(e *providers.Event) { e.Usage = nil }},
			"no text":  {event: func(e *providers.Event) { e.Text = "" }},
		},
		"finish reasons": {
			"length as stop":           {finish: map[string]string{"length": "stop"}},
			"content_filter as stop":   {finish: map[string]string{"content_filter": "stop"}},
			"a word that clients lack": {finish: map[string]string{"length": "max_tokens"}},
			"length as stop, streamed": {piece: func(p *providers.Piece) { p.FinishReason = "" }},
		},
		"usage": {
			"none in streams":            {piece: func(p *providers.Piece) { p.Usage = nil }},
			"no cached part":             {usage: func(u *providers.Usage) { u.CachedPromptTokens = 0 }},
			"no cache writes":            {usage: func(u *providers.Usage) { u.CacheWriteTokens = 0 }},
			"long writes as short ones":  {usage: func(u *providers.Usage) { u.CacheWriteTokens += u.LongCacheWriteTokens }},
			"reasoning counted twice":    {usage: func(u *providers.Usage) { u.CompletionTokens += u.ReasoningTokens }},
			"prompt without cache reads": {usage: func(u *providers.Usage) { u.PromptTokens -= u.CachedPromptTokens }},
			"prompt as completion":       {usage: func(u *providers.Usage) { u.CompletionTokens = u.PromptTokens }},
			"reports added up":           {adds: true},
			"at least one token":         {usage: func(u *providers.Usage) { u.PromptTokens = max(u.PromptTokens, 1) }},
		},
		"odd usage": {
			"whole numbers only": {count: func(raw json.RawMessage) (n int64, err error) { return n, json.Unmarshal(raw, &n) }},
			"floats fail": {count: func(raw json.RawMessage) (int64, error) {
				var f float64
				return int64(f), json.Unmarshal(raw, &f)
			}},
		},
		"broken streams": {
			"complete after each piece": {piece: func(p *providers.Piece) { p.FinishReason = "stop" }},
			"never complete":            {piece: func(p *providers.Piece) { p.End, p.Text = true, nil }},
		},
		"errors in answers": {
			"skipped": {faults: func(string) error { return nil }},
			"the vendor's": {faults: func(message string) error {
				return &providers.Error{Failure: providers.FailureUnreachable, Detail: message}
			}},
			"quoting the key": {faults: errors.New},
		},
		"statuses": {
			"all refused":           {fault: func(e *providers.Error) { e.Failure = providers.FailureRefused }},
			"never elsewhere":       {fault: func(e *providers.Error) { e.Elsewhere = false }},
			"always elsewhere":      {fault: func(e *providers.Error) { e.Elsewhere = true }},
			"no wait":               {fault: func(e *providers.Error) { e.RetryAfter = 0 }},
			"a wrong key may pass":  {fault: func(e *providers.Error) { e.Permanent = false }},
			"the key in the causes": {fault: func(e *providers.Error) { e.Cause = errors.New(e.Detail) }},
		},
		"no answers": {
			"anything is an answer": {accepts: true},
		},
		"never sent again": {
			"sent again": {provider: func(p providers.Provider) providers.Provider { return again{p} }},
		},
		"cancel": {
			"its own cause": {provider: func(p providers.Provider) providers.Provider { return ownCause{p} }},
		},
	} {
		for name, wrong := range guests {
			firstKey.Store(nil)
			firstModel.Store(nil)
			require.True(t, fails(t, guestSuite(wrong), check), "%s isn't caught by %s", name, check)
		}
	}
}

// fails reports whether a check of the suite fails.
func fails(t *testing.T, s Suite, name string) bool {
	t.Helper()
	all := s.checks()
	i := slices.IndexFunc(all, func(c check) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all[i].run(r)
	}()
	<-done
	return r.failed.Load()
}

// recorder is the test of a check that is expected to fail.
type recorder struct {
	testing.TB
	failed atomic.Bool
}

func (r *recorder) Errorf(string, ...any) { r.failed.Store(true) }
func (r *recorder) Error(...any)          { r.failed.Store(true) }
func (r *recorder) FailNow() {
	r.failed.Store(true)
	runtime.Goexit()
}

func isSystem(m providers.Message) bool { return m.Role == "system" }

func setRoles(req *providers.Request, role func(string) string) {
	for i, m := range req.Messages {
		req.Messages[i].Role = role(m.Role)
	}
}

func orElse(f, other *float64) *float64 {
	if f == nil {
		return other
	}
	return f
}

func unlessZero(f *float64) *float64 {
	if f != nil && *f == 0 {
		return nil
	}
	return f
}

func ascii(r rune) rune {
	if r > 127 {
		return -1
	}
	return r
}

// first returns the first of the values that it is called with.
func first(kept *atomic.Pointer[string], now string) string {
	kept.CompareAndSwap(nil, &now)
	return *kept.Load()
}

// swap returns the messages of the call before.
func swap(kept *atomic.Pointer[[]providers.Message], now []providers.Message) []providers.Message {
	now = slices.Clone(now)
	if before := kept.Swap(&now); before != nil {
		return *before
	}
	return now
}

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
