// Package providertest checks adapters of package providers against the contract. A test of an adapter calls [Run]:
//
//	func TestContract(t *testing.T) {
//		providertest.Run(t, providertest.Suite{Driver: Driver{}, Vendor: &providertest.Vendor{Read: …, Answer: …, Stream: …, Error: …}})
//	}
//
// The suite plays the vendor over HTTP. The adapter's package only reads and writes the vendor's forms, with code of its own: a
// fault that the adapter and its Vendor share stays unseen. What is special about the dialect (odd forms, error codes) is for the
// adapter's own tests.
package providertest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Suite describes an adapter to the checks.
type Suite struct {
	Driver providers.Driver
	// Options are values for the driver's options, as in [providers.Config].
	Options map[string]string
	// Vendor reads and writes the vendor's forms. It is nil for a local protocol.
	Vendor *Vendor
}

// Vendor reads requests and writes answers in a vendor's dialect. Only Read, Answer, Stream and Error are required.
type Vendor struct {
	// Read reads a request from its body and, where they contain a part of it, from its URL and header. The body of r is empty.
	// It returns an error if the vendor would refuse the request or the body has a field that it doesn't know. Contents of messages
	// may have any escapes. APIKey, Traceparent and Sent stay empty. MaxTokensField may also stay empty.
	Read func(r *http.Request, body []byte) (providers.Request, error)
	// Adjust changes a request into the one that Read returns for it, if the vendor's interface can't carry everything: a role that
	// the vendor doesn't have, or a temperature above its bound. The request has no key.
	Adjust func(req *providers.Request)
	// Unwritable are changes that make a request one that the dialect refuses with [providers.Unwritable].
	Unwritable []func(req *providers.Request)
	// Thinking are words of [providers.Request.Thinking] that the vendor's interface has.
	Thinking []string

	// Answer returns the body of a whole answer. The finish reason is stop, length or content_filter, which the vendor may write in
	// its own words. Answer and Stream return nothing for a finish reason that the vendor doesn't have.
	Answer func(text, finishReason string, usage providers.Usage) string
	// Stream returns the body of a stream in parts: one for each piece of the text, which the adapter must be able to read
	// when it comes, and at least one more that ends the answer.
	Stream func(pieces []string, finishReason string, usage providers.Usage) []string
	// Report returns a part of a stream with the usage so far and no text. It is nil if the vendor counts only once.
	Report func(usage providers.Usage) string
	// NoUsage is set if the vendor never reports usage.
	NoUsage bool
	// UsageParts has 1 in each part of the usage that the vendor reports beside the tokens of prompt and completion.
	UsageParts providers.Usage
	// Error returns the body of an error status.
	Error func(message string) string
}

const (
	apiKey  = "sk-conformance-0123456789"
	patient = time.Minute
	hasty   = 50 * time.Millisecond
)

var (
	errGone = errors.New("the caller is gone")
	pieces  = []string{"Hello", " from", " 日本語 👋\n"}
	text    = strings.Join(pieces, "")
)

// Run checks the adapter.
func Run(t *testing.T, s Suite) {
	t.Helper()
	if !s.Driver.Describe().Local {
		require.NotNil(t, s.Vendor, "only a local protocol has no vendor")
		require.False(t, s.Vendor.Read == nil || s.Vendor.Answer == nil || s.Vendor.Stream == nil || s.Vendor.Error == nil,
			"the vendor lacks Read, Answer, Stream or Error")
	}
	for _, check := range s.checks() {
		t.Run(check.name, func(t *testing.T) { check.run(t) })
	}
}

// tester is the test that a check belongs to. The tests of this package record its failures.
type tester interface{ testing.TB }

type check struct {
	name string
	run  func(tester)
}

func (s Suite) checks() []check {
	if s.Driver.Describe().Local {
		return []check{{"description", s.description}, {"local", s.local}}
	}
	return []check{
		{"description", s.description},
		{"requests", s.requests},
		{"unwritable", s.unwritable},
		{"concurrency", s.concurrency},
		{"whole answer", s.wholeAnswer},
		{"stream", s.stream},
		{"finish reasons", s.finishReasons},
		{"usage", s.usage},
		{"odd usage", s.oddUsage},
		{"broken streams", s.brokenStreams},
		{"errors in answers", s.errorsInAnswers},
		{"statuses", s.statuses},
		{"no answers", s.noAnswers},
		{"never sent again", s.neverAgain},
		{"timeouts", s.timeouts},
		{"cancel", s.cancel},
		{"close", s.close},
	}
}

func ask(stream bool) *providers.Request {
	return &providers.Request{
		Model: "vendor-model", MaxTokensField: "max_tokens", MaxTokens: 100, Stream: stream, APIKey: apiKey,
		Messages: []providers.Message{{Role: "user", Content: providers.Quote("Hello?")}},
	}
}

// vendorFunc answers a request that was read.
type vendorFunc func(w http.ResponseWriter, r *http.Request, body []byte)

// provider makes the adapter for a vendor that answers with serve.
func (s Suite) provider(t testing.TB, timeouts providers.Timeouts, serve vendorFunc) providers.Provider {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			serve(w, r, body)
		}
	}))
	t.Cleanup(server.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return s.new(t, &providers.Config{BaseURL: server.URL + "/some/base", Transport: transport, Timeouts: timeouts})
}

func (s Suite) new(t testing.TB, config *providers.Config) providers.Provider {
	t.Helper()
	config.Options = s.Options
	p, err := s.Driver.New(config)
	require.NoError(t, err)
	return p
}

func longTimeouts() providers.Timeouts {
	return providers.Timeouts{Connect: patient, FirstByte: patient, Idle: patient, Response: patient, MaxDuration: patient}
}

// send writes a part of an answer.
func send(w http.ResponseWriter, part string) {
	_, _ = io.WriteString(w, part)
	_ = http.NewResponseController(w).Flush()
}

func begin(w http.ResponseWriter, stream bool) {
	w.Header().Set("Content-Type", "application/json")
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
	}
}

// answer sends a whole answer, or its stream.
func (s Suite) answer(w http.ResponseWriter, stream bool, pieces ...string) {
	begin(w, stream)
	if !stream {
		send(w, s.Vendor.Answer(strings.Join(pieces, ""), "stop", s.count()))
		return
	}
	for _, part := range s.Vendor.Stream(pieces, "stop", s.count()) {
		send(w, part)
	}
}

// parts returns a good stream.
func (s Suite) parts() []string { return slices.Clone(s.Vendor.Stream(pieces, "stop", s.count())) }

// body asks for an answer whose body has the given parts.
func (s Suite) body(t testing.TB, stream bool, parts ...string) Answer {
	t.Helper()
	return Ask(t, s.provider(t, longTimeouts(), func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		begin(w, stream)
		for _, part := range parts {
			send(w, part)
		}
	}), ask(stream))
}

// requireGood checks an answer of the text and a usage that the vendor reports.
func (s Suite) requireGood(t testing.TB, answer Answer) {
	t.Helper()
	require.Equal(t, Answer{Text: text, FinishReason: "stop", Usage: s.reported(s.count())}, answer)
}

func (s Suite) description(t tester) {
	require.NoError(t, s.Driver.Describe().Check())
}

// local checks a protocol without a network.
func (s Suite) local(t tester) {
	p := s.new(t, &providers.Config{})
	for _, stream := range []bool{true, false} {
		answer := Ask(t, p, ask(stream))
		require.NoError(t, answer.Err)
		require.NotEmpty(t, answer.FinishReason)

		ctx, cancel := gone(t)
		cancel(errGone)
		_, err := p.Open(ctx, ask(stream))
		require.ErrorIs(t, RequireFailure(t, err, providers.FailureCanceled), errGone)

		events, err := p.Open(t.Context(), ask(stream))
		require.NoError(t, err)
		events.Close()
		events.Close()
		if err := Read(t, events).Err; err != nil {
			RequireFailure(t, err, providers.FailureCanceled)
		}
	}
}
