package providertest

import (
	"encoding/json"
	"errors"
	"html"
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
			"a long text cut":       {asks: contents(func(text string) string { return text[:min(len(text), 32<<10)] })},
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
			"the key in the causes": {faults: func(message string) error { return &providers.Error{Cause: errors.New(message)} }},
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
