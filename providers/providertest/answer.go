package providertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Answer is an answer that was read to its end.
type Answer struct {
	Text, FinishReason string
	// Usage has the largest reported count of each field. It is nil without a report.
	Usage *providers.Usage
	// Err is nil after a complete answer.
	Err error
}

// Ask sends the request and reads the answer. As the gateway does, it lets the adapter end the context.
func Ask(t testing.TB, p providers.Provider, req *providers.Request) Answer {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) }) // not now: what follows the terminator may still be read
	req.Cancel = cancel
	defer func() { req.Cancel = nil }()
	events, err := p.Open(ctx, req)
	if err != nil {
		require.Nil(t, events, "Open returns events or an error")
		return Answer{Err: err}
	}
	defer events.Close()
	return Read(t, events)
}

// Read reads the rest of an answer, and checks that the events keep their order and the end stays the end.
func Read(t testing.TB, events providers.Events) (answer Answer) {
	t.Helper()
	for {
		event, err := events.Next()
		if err != nil {
			again, same := events.Next()
			require.Equal(t, providers.Event{}, again)
			require.Equal(t, err, same, "the end stays the end")
			if !errors.Is(err, io.EOF) || errors.As(err, new(*providers.Error)) {
				answer.Err = err
			}
			return answer
		}
		require.NotEqual(t, providers.Event{}, event, "an event has content")
		require.Empty(t, answer.FinishReason, "nothing follows the finish reason")
		if event.Quoted != nil {
			require.Empty(t, event.Text, "a piece comes once")
			require.Equal(t, string(providers.Quote(event.Answer())), string(event.Quoted))
		}
		answer.Text += event.Answer()
		answer.FinishReason = event.FinishReason
		if event.Usage != nil {
			answer.Usage = largest(answer.Usage, event.Usage)
		}
	}
}

func largest(a, b *providers.Usage) *providers.Usage {
	if a == nil {
		a = b
	}
	return &providers.Usage{
		PromptTokens:         max(a.PromptTokens, b.PromptTokens),
		CompletionTokens:     max(a.CompletionTokens, b.CompletionTokens),
		CachedPromptTokens:   max(a.CachedPromptTokens, b.CachedPromptTokens),
		CacheWriteTokens:     max(a.CacheWriteTokens, b.CacheWriteTokens),
		LongCacheWriteTokens: max(a.LongCacheWriteTokens, b.LongCacheWriteTokens),
		ReasoningTokens:      max(a.ReasoningTokens, b.ReasoningTokens),
	}
}

// RequireFailure checks that err is an error of the contract, of the given class, and returns it. Secrets may be nowhere in
// it.
func RequireFailure(t testing.TB, err error, class providers.Failure, secrets ...string) *providers.Error {
	t.Helper()
	var e *providers.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, class, e.Failure, "%v", err)
	require.LessOrEqual(t, len(e.Detail), 512)
	if class != providers.FailureOverloaded {
		require.Zero(t, e.RetryAfter)
	}
	for _, secret := range secrets {
		require.NotContains(t, err.Error(), secret)
		require.NotContains(t, e.Detail, secret)
	}
	return e
}

// count returns a usage with all parts that the vendor reports.
func (s Suite) count() providers.Usage {
	has := s.Vendor.UsageParts
	return providers.Usage{
		PromptTokens: 1100, CompletionTokens: 70,
		CachedPromptTokens:   300 * min(has.CachedPromptTokens, 1),
		CacheWriteTokens:     200 * min(has.CacheWriteTokens, 1),
		LongCacheWriteTokens: 100 * min(has.LongCacheWriteTokens, 1),
		ReasoningTokens:      30 * min(has.ReasoningTokens, 1),
	}
}

// reported returns the usage that an adapter must report when the vendor counts usage.
func (s Suite) reported(usage providers.Usage) *providers.Usage {
	if s.Vendor.NoUsage {
		return nil
	}
	return &usage
}

func (s Suite) wholeAnswer(t tester) {
	p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, _ *http.Request, _ []byte) { s.answer(w, false, pieces...) })
	events, err := p.Open(t.Context(), ask(false))
	require.NoError(t, err)
	defer events.Close()
	require.True(t, events.Buffered(), "a whole answer is there when Open returns")
	s.requireGood(t, Read(t, events))
}

// Each piece is handed out when it comes, and Buffered is false while the vendor is waited for.
func (s Suite) stream(t tester) {
	next := make(chan struct{})
	p := s.provider(t, longTimeouts(), func(w http.ResponseWriter, r *http.Request, _ []byte) {
		begin(w, true)
		for _, part := range s.parts() {
			send(w, part)
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})
	events, err := p.Open(t.Context(), ask(true))
	require.NoError(t, err)
	defer events.Close()
	for _, piece := range pieces {
		text := ""
		for text != piece {
			event, err := events.Next()
			require.NoError(t, err)
			require.Empty(t, event.FinishReason)
			text += event.Answer()
			require.True(t, strings.HasPrefix(piece, text), "%q is no piece of the answer", text)
		}
		require.False(t, events.Buffered(), "the vendor has sent nothing more")
		next <- struct{}{}
	}
	close(next)
	rest := Read(t, events)
	require.NoError(t, rest.Err)
	require.Empty(t, rest.Text)
	require.Equal(t, "stop", rest.FinishReason)
}

// both asks for a whole answer and for a stream in the words of write, and returns the two answers.
func (s Suite) both(t testing.TB, finishReason string, usage providers.Usage, write func(string) string) []Answer {
	t.Helper()
	return []Answer{
		s.body(t, false, write(s.Vendor.Answer(text, finishReason, usage))),
		s.body(t, true, write(strings.Join(s.Vendor.Stream(pieces, finishReason, usage), ""))),
	}
}

func same(body string) string { return body }

// The end of an answer has its reason, in OpenAI's words.
func (s Suite) finishReasons(t tester) {
	for _, reason := range []string{"length", "content_filter", "stop"} {
		if reason == "content_filter" && s.Vendor.Answer(text, reason, s.count()) == "" {
			continue
		}
		for _, answer := range s.both(t, reason, s.count(), same) {
			require.NoError(t, answer.Err)
			require.Equal(t, reason, answer.FinishReason)
		}
	}
}

// Each count that the vendor reports is reported, the largest one counts, and zeros fail nothing.
func (s Suite) usage(t tester) {
	few := s.count()
	few.CompletionTokens = 40
	for _, usage := range []providers.Usage{s.count(), few, {PromptTokens: 1100, CompletionTokens: 12}} {
		for _, answer := range s.both(t, "stop", usage, same) {
			require.Equal(t, Answer{Text: text, FinishReason: "stop", Usage: s.reported(usage)}, answer)
		}
	}
	for _, answer := range s.both(t, "stop", providers.Usage{}, same) {
		require.Contains(t, []*providers.Usage{nil, {}}, answer.Usage)
		answer.Usage = nil
		require.Equal(t, Answer{Text: text, FinishReason: "stop"}, answer)
	}
	if s.Vendor.Report == nil {
		return
	}
	for _, reports := range [][]providers.Usage{{few, s.count()}, {s.count(), few}, {s.count(), s.count()}} {
		parts := s.Vendor.Stream(pieces, "stop", reports[1])
		s.requireGood(t, s.body(t, true, slices.Insert(parts, 1, s.Vendor.Report(reports[0]))...))
	}
}

// counts matches the numbers of a usage in an answer of the suite.
var counts = regexp.MustCompile(`([:,\[]\s*)([0-9]{2,})\b`)

// A count like 7.0 is the number 7. A count that is no number loses the count and not the answer.
func (s Suite) oddUsage(t tester) {
	for _, answer := range s.both(t, "stop", s.count(), func(body string) string { return counts.ReplaceAllString(body, "${1}${2}.0") }) {
		s.requireGood(t, answer)
	}
	for _, count := range []string{"null", "-5", "1.5", "1e300", `"many"`, "{}", "[]"} {
		for _, answer := range s.both(t, "stop", s.count(), func(body string) string { return counts.ReplaceAllString(body, "${1}"+count) }) {
			answer.Usage = nil
			require.Equal(t, Answer{Text: text, FinishReason: "stop"}, answer, "with a count of %s", count)
		}
	}
}
