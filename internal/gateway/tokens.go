package gateway

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/tiktoken-go/tokenizer"

	"github.com/caddy-svc/caddy-svc/internal/providers"
)

// Every message costs a vendor some tokens besides its text, and a prompt some more; these are upper bounds
// (design §5 "Hold").
const (
	overheadPerMessage = 8
	overheadPerPrompt  = 16
)

// promptBytes bounds a prompt's tokens from above without looking at the text: byte-level vocabularies never need
// more tokens than bytes.
func promptBytes(messages []providers.Message) int64 {
	n := int64(overheadPerPrompt)
	for i := range messages {
		n += int64(messages[i].Content.ByteLen()) + overheadPerMessage
	}
	return n
}

// tokenCounter counts tokens with the o200k vocabulary. A count can take hundreds of milliseconds for long text,
// so only some run at a time and the others wait.
type tokenCounter struct {
	slots chan struct{}
	codec func() (tokenizer.Codec, error)
}

func newTokenCounter() *tokenCounter {
	return &tokenCounter{
		slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		// Loading takes some 70 ms and 8 MB, which only those pay who need a count.
		codec: sync.OnceValues(func() (tokenizer.Codec, error) { return tokenizer.Get(tokenizer.O200kBase) }),
	}
}

// text counts the tokens of s, or gives up when ctx ends.
func (c *tokenCounter) text(ctx context.Context, s string) (int64, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { <-c.slots }()
	codec, err := c.codec()
	if err != nil {
		return 0, fmt.Errorf("loading the token vocabulary: %w", err)
	}
	n, err := codec.Count(s)
	if err != nil {
		return 0, fmt.Errorf("counting tokens: %w", err)
	}
	return int64(n), nil
}

// prompt counts the tokens of messages with the same overhead as promptBytes.
func (c *tokenCounter) prompt(ctx context.Context, messages []providers.Message) (int64, error) {
	total := int64(overheadPerPrompt)
	for i := range messages {
		n, err := c.text(ctx, messages[i].Content.Text())
		if err != nil {
			return 0, err
		}
		total += n + overheadPerMessage
	}
	return total, nil
}

// promptSize is what is known of a prompt's tokens. The count is made at most once, and only when the byte bound
// does not decide.
type promptSize struct {
	counter  *tokenCounter
	messages []providers.Message
	bytes    int64
	counted  int64
}

func (p *promptSize) count(ctx context.Context) (int64, error) {
	if p.counted > 0 {
		return p.counted, nil
	}
	n, err := p.counter.prompt(ctx, p.messages)
	if err != nil {
		return 0, err
	}
	p.counted = min(n, p.bytes)
	return p.counted, nil
}

// bound is the best upper bound known so far.
func (p *promptSize) bound() int64 {
	if p.counted > 0 {
		return p.counted
	}
	return p.bytes
}
