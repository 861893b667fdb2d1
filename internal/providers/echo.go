package providers

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Echo is a provider without a vendor, for trying the service out: it answers "You said: " and the last user
// message, word by word. The same request always gets the same answer and the same usage. It honours MaxTokens
// (finish reason length) and Stop, and ignores the other parameters and the key.
//
// A text has as many tokens as [EchoTokens] says; a prompt has those of its contents and 4 more per message.
type Echo struct {
	// Delay is the pause before each word, 0 for none.
	Delay time.Duration
}

var _ Provider = (*Echo)(nil)

// NewEcho returns an Echo without a delay.
func NewEcho() *Echo { return &Echo{} }

// echoMessageTokens is what a message costs beside its content.
const echoMessageTokens = 4

// EchoTokens counts the tokens of a text: a run of letters and digits has one for every 4 characters begun, white
// space none, and any other character one.
func EchoTokens(text string) int64 {
	var total int64
	for text != "" {
		token, _ := cutEchoToken(text)
		if strings.TrimSpace(token) != "" {
			total++
		}
		text = text[len(token):]
	}
	return total
}

// cutEchoToken returns the first token of a text, with the white space before it.
func cutEchoToken(text string) (token, rest string) {
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

// Open implements [Provider].
func (p *Echo) Open(ctx context.Context, req *Request) (Events, error) {
	if cause := context.Cause(ctx); cause != nil {
		return nil, &Error{Failure: FailureCanceled, Cause: cause}
	}
	text, finish := echoAnswer(req)
	usage := Usage{CompletionTokens: EchoTokens(text)}
	for _, m := range req.Messages {
		usage.PromptTokens += EchoTokens(m.Content.Text()) + echoMessageTokens
	}
	if !req.Stream {
		if failure := echoPause(ctx, p.Delay); failure != nil {
			return nil, failure
		}
		return &answer{event: Event{Text: text, FinishReason: finish, Usage: &usage}}, nil
	}
	s := &echoStream{delay: p.Delay, rest: text, last: Event{FinishReason: finish, Usage: &usage}}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s, nil
}

// echoAnswer makes the text: up to the first stop sequence, then up to the token limit.
func echoAnswer(req *Request) (text, finish string) {
	text = "You said: " + lastUserText(req.Messages)
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
		_, rest = cutEchoToken(rest)
	}
	return text, "stop"
}

func lastUserText(messages []Message) string {
	for _, message := range slices.Backward(messages) {
		if message.Role == "user" {
			return message.Content.Text()
		}
	}
	return ""
}

func echoPause(ctx context.Context, d time.Duration) *Error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return &Error{Failure: FailureCanceled, Cause: cause}
	}
	return nil
}

// echoStream hands the answer out word by word.
type echoStream struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	delay    time.Duration
	rest     string
	last     Event
	finished bool
	err      error
}

// Next implements [Events].
func (s *echoStream) Next() (Event, error) {
	if s.err != nil {
		return Event{}, s.err
	}
	if s.finished {
		s.err = io.EOF
		return Event{}, s.err
	}
	if failure := echoPause(s.ctx, s.delay); failure != nil {
		s.err = failure
		return Event{}, s.err
	}
	if s.rest == "" {
		s.finished = true
		return s.last, nil
	}
	word := s.rest
	if i := strings.IndexByte(word, ' '); i >= 0 {
		word = word[:i+1]
	}
	s.rest = s.rest[len(word):]
	return Event{Text: word}, nil
}

// Buffered implements [Events]: with a delay every word is a wait.
func (s *echoStream) Buffered() bool { return s.delay <= 0 || s.finished }

// Close implements [Events].
func (s *echoStream) Close() { s.cancel(errClosed) }
