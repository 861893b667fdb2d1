package providertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// prompt is the part of a request that a vendor must get, in a form that can be compared.
type prompt struct {
	Model           string
	Messages        []string
	Temperature     *float64
	TopP            *float64
	MaxTokens       int64
	Stop            []string
	Thinking        string
	Stream          bool
	MaxTokensField  string
	Keys            []string // the keys that are in the header
	Traceparent     string
	KeyInURLOrBody  bool
	KeepsPathOfBase bool
}

func promptOf(req *providers.Request) prompt {
	p := prompt{
		Model: req.Model, Temperature: req.Temperature, TopP: req.TopP, MaxTokens: req.MaxTokens, Thinking: req.Thinking, Stream: req.Stream,
		MaxTokensField: req.MaxTokensField, Traceparent: req.Traceparent, Stop: slices.Clone(req.Stop), KeepsPathOfBase: true,
	}
	for _, m := range req.Messages {
		p.Messages = append(p.Messages, m.Role+": "+m.Content.Text())
	}
	if req.APIKey != "" {
		p.Keys = []string{req.APIKey}
	}
	return p
}

const otherKey = "sk-another-9876543210"

// odd has characters that JSON, HTML and URLs escape, and characters of two and four bytes.
const odd = "\"<&>\\ả😀\n\u2028%20"

// variety returns requests that differ in everything, each of which leaves something out that another one has.
func (s Suite) variety() []*providers.Request {
	said := func(pairs ...string) (messages []providers.Message) {
		for pair := range slices.Chunk(pairs, 2) {
			messages = append(messages, providers.Message{Role: pair[0], Content: providers.Quote(pair[1])})
		}
		return messages
	}
	description := s.Driver.Describe()
	stops := []string{"END", odd, " \n"}
	if description.RefusesBlankStops {
		stops = stops[:2]
	}
	if description.MaxStops >= 0 {
		stops = stops[:min(len(stops), description.MaxStops)]
	}
	number := func(f float64) *float64 { return &f }
	all := []*providers.Request{
		{
			Model: "vendor-model", APIKey: apiKey, MaxTokensField: "max_tokens", MaxTokens: 100, Temperature: number(0.5),
			Messages: said("user", " first: "+odd+" \n"),
		},
		{
			Model: "another-model.2", APIKey: otherKey, MaxTokensField: "max_completion_tokens", MaxTokens: 7, TopP: number(0.25), Stop: stops[:min(1, len(stops))],
			Messages:    said("system", "be: "+odd, "user", "second", "assistant", "yes: "+odd, "tool", "42", "assistant", "so", "user", "and?"),
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
		{
			Model: "vendor-model", APIKey: otherKey, MaxTokensField: "max_tokens", MaxTokens: 4096, Temperature: number(0), Stop: stops,
			Messages: said("system", "one", "user", "third"),
		},
		{
			Model: "another-model.2", APIKey: apiKey, MaxTokensField: "max_completion_tokens", MaxTokens: 1,
			Messages: said("user", strings.Repeat("long "+odd, 1_500), "assistant", "a", "user", "a"),
		},
		{
			Model: "vendor-model", MaxTokensField: "max_tokens", MaxTokens: 2, // without a key
			Messages: said("user", "fifth"),
		},
	}
	for _, word := range s.Vendor.Thinking {
		thinking := *all[0]
		thinking.Thinking = word
		all = append(all, &thinking)
	}
	return all
}

// Everything of a request arrives, nothing else, and nothing of the request before.
func (s Suite) requests(t tester) {
	var stream bool
	var seen []prompt
	p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, r *http.Request, body []byte) {
		req, err := s.Vendor.Read(r, body)
		if err != nil {
			t.Errorf("the vendor can't read %s: %v", body, err)
		}
		came := promptOf(&req)
		came.Traceparent = r.Header.Get("Traceparent")
		came.KeepsPathOfBase = strings.HasPrefix(r.URL.Path, "/some/base/")
		header := fmt.Sprint(r.Header)
		for _, key := range []string{apiKey, otherKey} {
			if strings.Contains(header, key) {
				came.Keys = append(came.Keys, key)
			}
			came.KeyInURLOrBody = came.KeyInURLOrBody || strings.Contains(r.URL.String()+string(body), key)
		}
		seen = append(seen, came)
		s.answer(w, stream, pieces...)
	})
	for _, one := range s.variety() {
		for _, stream = range []bool{true, false} {
			seen = nil
			req, adjusted := *one, *one
			req.Stream, adjusted.Stream = stream, stream
			adjusted.Messages = slices.Clone(req.Messages)
			if s.Vendor.Adjust != nil {
				s.Vendor.Adjust(&adjusted)
			}
			want := promptOf(&adjusted)
			s.requireGood(t, Ask(t, p, &req))
			require.Len(t, seen, 1, "one request is one on the wire")
			if seen[0].MaxTokensField == "" {
				want.MaxTokensField = ""
			}
			require.Equal(t, want, seen[0])
		}
	}
}

// A request that the dialect can't write is never sent.
func (s Suite) unwritable(t tester) {
	p := s.provider(t, longTimeouts(), func(_ http.ResponseWriter, r *http.Request, body []byte) {
		t.Errorf("%s %s was sent", r.URL, body)
	})
	for i, spoil := range s.Vendor.Unwritable {
		for _, stream := range []bool{true, false} {
			req := ask(stream)
			spoil(req)
			e := RequireFailure(t, Ask(t, p, req).Err, providers.FailureInvalid, apiKey)
			require.NotNil(t, e.Invalid, "request %d", i)
			require.NotEmpty(t, e.Invalid.Field, "request %d", i)
			require.NotEmpty(t, e.Invalid.Message, "request %d", i)
			require.True(t, e.Permanent, "request %d", i)
			require.False(t, e.Elsewhere, "request %d is refused by this dialect alone", i)
		}
	}
}

// Calls at the same time don't disturb each other: each vendor's answer is that to the caller's own prompt, with the caller's key.
func (s Suite) concurrency(t tester) {
	const calls = 16
	for _, stream := range []bool{true, false} {
		var all sync.WaitGroup
		var sent atomic.Int64
		ready := make(chan struct{}) // closed when all requests are on the wire, or one fails
		begin := sync.OnceFunc(func() { close(ready) })
		p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, r *http.Request, body []byte) {
			if sent.Add(1) == calls {
				begin()
			}
			<-ready
			req, err := s.Vendor.Read(r, body)
			if err != nil || len(req.Messages) == 0 || !strings.Contains(fmt.Sprint(r.Header), "sk-"+req.Model) {
				t.Errorf("a request is no longer its caller's: %s %v", body, r.Header)
				return
			}
			s.answer(w, stream, req.Model, " heard ", req.Messages[0].Content.Text())
		})
		var running [calls]providers.Events
		var errs [calls]error
		name := func(i int) string { return fmt.Sprintf("model-%02d", i) }
		for i := range calls {
			all.Go(func() {
				req := ask(stream)
				req.Model, req.APIKey = name(i), "sk-"+name(i)
				req.Messages[0].Content = providers.Quote("prompt of " + name(i))
				if running[i], errs[i] = p.Open(t.Context(), req); errs[i] != nil {
					begin()
				}
			})
		}
		all.Wait()
		for i, events := range running {
			require.NoError(t, errs[i])
			got := Read(t, events)
			events.Close()
			require.NoError(t, got.Err)
			require.Equal(t, name(i)+" heard prompt of "+name(i), got.Text)
		}
	}
}
