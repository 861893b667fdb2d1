package week

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/providers"
)

// question is the form of what customers write: the tenant's number and the message's.
var question = regexp.MustCompile(`q-\d+-\d+`)

// vendor is a model that repeats the questions since its last answer, in some seconds, while it is well.
type vendor struct {
	mu      sync.Mutex
	random  *rand.Rand
	outcome providers.Failure // of all calls; "" is well
	hangs   bool
}

func (v *vendor) set(outcome providers.Failure, hangs bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.outcome, v.hangs = outcome, hangs
}

// next is how the next call goes.
func (v *vendor) next() (outcome providers.Failure, hangs bool, takes time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.outcome, v.hangs, time.Second + time.Duration(v.random.Int64N(int64(4*time.Second)))
}

// Open implements [providers.Provider].
func (v *vendor) Open(ctx context.Context, req *providers.Request) (providers.Events, error) {
	outcome, hangs, takes := v.next()
	if hangs {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, &providers.Error{Failure: providers.FailureTimeout, Cause: context.Cause(ctx)}
	}
	if outcome != "" {
		return nil, &providers.Error{Failure: outcome, Cause: errors.New("the vendor is down")}
	}
	var asked []string
	for _, m := range req.Messages {
		if m.Role == "user" {
			asked = append(asked, question.FindAllString(m.Content.Text(), -1)...)
		} else {
			asked = nil
		}
	}
	return &answer{text: "About " + strings.Join(asked, ", ")}, nil
}

// answer is a whole answer in one event.
type answer struct {
	text string
	done bool
}

func (a *answer) Next() (providers.Event, error) {
	if a.done {
		return providers.Event{}, io.EOF
	}
	a.done = true
	return providers.Event{Text: a.text, FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 4, CompletionTokens: 4}}, nil
}

func (a *answer) Buffered() bool { return !a.done }
func (a *answer) Close()         {}
