// Package echo is a provider without a vendor, for trials of the service.
package echo

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Driver is the [providers.Driver] of the protocol. It has no options.
type Driver struct{}

// Describe implements [providers.Driver].
func (Driver) Describe() *providers.Description {
	return &providers.Description{Name: "echo", Label: "Echo", Local: true, MaxStops: -1}
}

// New implements [providers.Driver].
func (Driver) New(*providers.Config) (providers.Provider, error) { return &Echo{}, nil }

// Echo answers with "You said: " and the last user message, word by word. The same request always gets the same answer and usage.
// Echo supports MaxTokens (finish reason length) and Stop. It ignores the other parameters and the key.
//
// [Tokens] counts the tokens of a text. A prompt has the tokens of its contents and 4 more for each message.
type Echo struct {
	// Delay is the pause before each word. It may be 0.
	Delay time.Duration
}

// messageTokens is the number of tokens of a message beside its content.
const messageTokens = 4

// Tokens counts the tokens of a text. A run of letters and digits has one for every 4 characters begun, white space none, and any
// other character one.
func Tokens(text string) int64 {
	var total int64
	for text != "" {
		token, _ := cutToken(text)
		if strings.TrimSpace(token) != "" {
			total++
		}
		text = text[len(token):]
	}
	return total
}

// cutToken returns the first token of a text, with the white space before it.
func cutToken(text string) (token, rest string) {
	word := 0
	for i, r := range text {
		end := i + utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size := utf8.DecodeRuneInString(text[i:])
			end = i + size
		}
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			if word++; word == 4 {
				return text[:end], text[end:]
			}
		case word > 0:
			return text[:i], text[i:]
		case !unicode.IsSpace(r):
			return text[:end], text[end:]
		}
	}
	return text, ""
}

// Open implements [providers.Provider].
func (p *Echo) Open(ctx context.Context, req *providers.Request) (providers.Events, error) {
	if cause := context.Cause(ctx); cause != nil {
		return nil, &providers.Error{Failure: providers.FailureCanceled, Cause: cause}
	}
	text, finish := answer(req)
	usage := providers.Usage{CompletionTokens: Tokens(text)}
	for _, m := range req.Messages {
		usage.PromptTokens += Tokens(m.Content.Text()) + messageTokens
	}
	if !req.Stream {
		if failure := pause(ctx, p.Delay); failure != nil {
			return nil, failure
		}
		return providers.WholeAnswer(providers.Event{Text: text, FinishReason: finish, Usage: &usage}), nil
	}
	s := &stream{delay: p.Delay, rest: text, last: providers.Event{FinishReason: finish, Usage: &usage}}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s, nil
}

// answer returns the text up to the first stop sequence and the token limit.
func answer(req *providers.Request) (text, finish string) {
	question := ""
	for _, message := range slices.Backward(req.Messages) {
		if message.Role == "user" {
			question = message.Content.Text()
			break
		}
	}
	text = "You said: " + question
	for _, stop := range req.Stop {
		if i := strings.Index(text, stop); stop != "" && i >= 0 {
			text = text[:i]
		}
	}
	if req.MaxTokens <= 0 {
		return text, "stop"
	}
	rest := text
	for n := int64(0); strings.TrimSpace(rest) != ""; n++ {
		if n == req.MaxTokens {
			return text[:len(text)-len(rest)], "length"
		}
		_, rest = cutToken(rest)
	}
	return text, "stop"
}

func pause(ctx context.Context, d time.Duration) *providers.Error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return &providers.Error{Failure: providers.FailureCanceled, Cause: cause}
	}
	return nil
}

// stream returns the answer word by word.
type stream struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	delay  time.Duration
	rest   string
	last   providers.Event
	err    error // of Next from now on, io.EOF after last
}

// Next implements [providers.Events].
func (s *stream) Next() (providers.Event, error) {
	if s.err != nil {
		return providers.Event{}, s.err
	}
	if failure := pause(s.ctx, s.delay); failure != nil {
		s.err = failure
		return providers.Event{}, s.err
	}
	if s.rest == "" {
		s.err = io.EOF
		return s.last, nil
	}
	word := s.rest
	if i := strings.IndexByte(word, ' '); i >= 0 {
		word = word[:i+1]
	}
	s.rest = s.rest[len(word):]
	return providers.Event{Text: word}, nil
}

// Buffered implements [providers.Events]. With a delay, every word is a wait.
func (s *stream) Buffered() bool { return s.delay <= 0 || s.err != nil }

// Close implements [providers.Events].
func (s *stream) Close() { s.cancel(context.Canceled) }
