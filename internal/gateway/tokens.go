package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/tokens"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Upper bounds of the tokens of a message, and of a prompt, in addition to the text.
const (
	overheadPerMessage = 8
	overheadPerPrompt  = 16
)

const (
	// countWait limits a count together with the wait for its turn. Later the call goes on without the count.
	countWait = 2 * time.Second
	// countShare is the number of bytes that a count processes, in up to some 5 ms, before a waiting count may continue.
	countShare = 32 << 10
	// messageWork is the work of a message in addition to its bytes, in bytes.
	messageWork = 32
	// maxOrgCounts limits the counts of one organization that wait in line, and maxCounts the counts of all organizations.
	maxOrgCounts = 64
	maxCounts    = 1024
)

// denseBytesPerToken are the bytes per token of dense text, such as numbers; human text has 3 to 5. A prompt is counted only if it may exceed the
// window by this measure.
const denseBytesPerToken = 2

var (
	errCountSlow = errors.New("counting the tokens took longer than 2 s")
	// errUncounted means that the prompt wasn't counted.
	errUncounted = errors.New("the tokens were not counted")
)

// promptBytes returns an upper bound of a prompt's tokens by its size: byte-level vocabularies never need more tokens than bytes.
func promptBytes(messages []providers.Message) int64 {
	n := int64(overheadPerPrompt)
	for i := range messages {
		n += int64(messages[i].Content.ByteLen()) + overheadPerMessage
	}
	return n
}

// tokenCounter counts tokens with the o200k vocabulary, in time linear in the text. Some counts run at a time. The others wait in
// line, and organizations take turns.
type tokenCounter struct {
	line *dispatch.Turns
	// processors is [Config.Processors].
	processors *semaphore.Weighted
	vocabulary func() (*tokens.Vocabulary, error)
}

func newTokenCounter(processors *semaphore.Weighted) *tokenCounter {
	places := max(1, runtime.GOMAXPROCS(0)/2)
	return &tokenCounter{
		processors: processors,
		line:       dispatch.NewTurns(dispatch.Bounds{Places: places, Each: places, Line: maxOrgCounts, Lines: maxCounts}),
		vocabulary: sync.OnceValues(tokens.Load), // the first count loads it
	}
}

// process waits for a processor. After an error the place in the line is free again.
func (c *tokenCounter) process(ctx context.Context, orgID string) error {
	if c.processors != nil && c.processors.Acquire(ctx, 1) != nil {
		c.line.Leave(orgID)
		return context.Cause(ctx)
	}
	return nil
}

func (c *tokenCounter) rest() {
	if c.processors != nil {
		c.processors.Release(1)
	}
}

// prompt counts the tokens of messages with the same overhead as promptBytes. It stops at the first sum above limit and returns
// it. The error is the cause of ctx's end, errCountSlow after countWait, or [dispatch.ErrBusy].
func (c *tokenCounter) prompt(ctx context.Context, orgID string, messages []providers.Message, limit int64) (int64, error) {
	vocabulary, err := c.vocabulary()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, countWait, errCountSlow)
	defer cancel()
	if err := c.line.Enter(ctx, orgID); err != nil {
		return 0, err
	}
	if err := c.process(ctx, orgID); err != nil {
		return 0, err
	}
	running := true
	defer func() {
		if running {
			c.rest()
			c.line.Leave(orgID)
		}
	}()
	total, work := int64(overheadPerPrompt), 0
	for i := range messages {
		total += overheadPerMessage
		work += messageWork
		for rest := messages[i].Content.Text(); rest != "" && total <= limit; {
			length, count := vocabulary.First(rest)
			total += int64(count)
			rest = rest[length:]
			if work += length; work < countShare {
				continue
			}
			work = 0
			c.rest() // other counts and other long work go first
			err := c.line.Pass(ctx, orgID)
			if err == nil {
				err = c.process(ctx, orgID)
			}
			if err != nil {
				running = false // the count has no place after an error
				return 0, err
			}
		}
		if total > limit {
			break
		}
	}
	return total, nil
}

// promptSize has bounds of a prompt's tokens. The count is tried once, and only if the bound by bytes does not decide.
type promptSize struct {
	counter  *tokenCounter
	orgID    string
	messages []providers.Message
	bytes    int64
	// counted is the count of tokens. 0 means not counted.
	counted int64
	// failed is the reason why there is no count.
	failed error
}

// count returns the prompt's tokens. If they exceed limit, it returns any number above limit. The error wraps errUncounted if the
// call must go on without a count; otherwise ctx has ended.
func (p *promptSize) count(ctx context.Context, limit int64) (int64, error) {
	if p.counted > 0 || p.failed != nil {
		return p.counted, p.failed
	}
	n, err := p.counter.prompt(ctx, p.orgID, p.messages, limit)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return 0, err
	default:
		p.failed = fmt.Errorf("%w: %w", errUncounted, err)
		return 0, p.failed
	}
	n = min(n, p.bytes)
	if n <= limit {
		p.counted = n
	}
	return n, nil
}

// bound returns the best known upper bound.
func (p *promptSize) bound() int64 {
	if p.counted > 0 {
		return p.counted
	}
	return p.bytes
}

// estimate returns the count, or an estimate by the bytes. It is immediate.
func (p *promptSize) estimate() int64 {
	if p.counted > 0 {
		return p.counted
	}
	return tokensOfBytes(p.bytes)
}

// bound sets the vendor's request. Its max_tokens is also the output part of the hold. A prompt that is surely too long is refused. The vendor
// judges a prompt that isn't counted: its refusal costs nothing and has the same code, and until its reply the hold is for the prompt's bytes.
func (c *call) bound(ctx context.Context) error {
	c.prompt = promptSize{
		counter: c.tokens, orgID: c.req.OrgID, messages: c.req.Messages, bytes: promptBytes(c.req.Messages),
	}
	c.upstream = providers.Request{
		Model: c.endpoint.Upstream, Messages: c.req.Messages,
		Temperature: c.req.Temperature, TopP: c.req.TopP, MaxTokens: c.model.MaxOutputTokens,
		Reasoning: c.model.Reasoning, Stream: c.req.Stream,
	}
	if c.model.DropSampling {
		c.upstream.Temperature, c.upstream.TopP = nil, nil
	}
	most, least := &c.upstream.MaxTokens, max(1, c.model.LeastMaxTokens)
	if asked := c.req.MaxTokens; asked > 0 {
		if asked < least && c.req.Turn == nil { // for a turn it is raised, because the customer who waits can't change it
			return final(OutcomeInvalidRequest, "max_tokens",
				fmt.Sprintf("max_tokens must be at least %d for this model, because its hidden reasoning counts as output.", least))
		}
		*most = min(*most, max(asked, least))
	}
	if c.prompt.bytes <= denseBytesPerToken*(c.model.ContextWindow-*most) {
		return nil
	}
	tokens, err := c.prompt.count(ctx, c.longestPrompt())
	switch {
	case errors.Is(err, errUncounted):
		return nil
	case err != nil:
		return clientGone(err)
	case tokens > c.longestPrompt():
		return c.contextTooLong()
	}
	// Vendors refuse a max_tokens that exceeds the rest of the window by their own count. The densest vocabularies need a third more tokens
	// than ours, though none more than bytes, so that much is left free, limited to half of the rest: a prompt that nearly fills the window
	// is still answered by the vendors that count as we do.
	room := c.model.ContextWindow - tokens
	*most = max(least, min(*most, room-min(tokens/3, c.prompt.bytes-tokens, room/2)))
	return nil
}

// longestPrompt returns the number of tokens, by our count, up to which a vendor may accept a prompt. Our vocabulary isn't the
// vendor's, so only a prompt that exceeds the window by a quarter is certainly too long.
func (c *call) longestPrompt() int64 { return c.model.ContextWindow + c.model.ContextWindow/4 }
