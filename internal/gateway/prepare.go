package gateway

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/providers"
)

// storeWait bounds every wait for the store before the vendor is called.
const storeWait = 5 * time.Second

var errStoreSlow = errors.New("the store took longer than 5 s")

// prepare makes the decisions that precede money: model, context, bounds.
func (c *call) prepare(ctx context.Context) *Failure {
	if f := c.pickModel(ctx); f != nil {
		return f
	}
	if c.claim == nil { // else it isn't known yet whether the provider will be called
		if f := c.enterProvider(); f != nil {
			return f
		}
	}
	c.prompt = promptSize{
		counter: c.tokens, orgID: c.req.OrgID, messages: c.req.Messages, bytes: promptBytes(c.req.Messages),
	}
	if f := c.checkContext(ctx); f != nil {
		return f
	}
	maxTokens, f := c.outputBound(ctx)
	if f != nil {
		return f
	}
	c.upstream = providers.Request{
		Model: c.model.Upstream, MaxTokensField: c.model.MaxTokensField, Messages: c.req.Messages,
		Temperature: c.req.Temperature, TopP: c.req.TopP, MaxTokens: maxTokens, Stop: c.req.Stop,
		Stream: c.req.Stream,
	}
	return nil
}

// pickModel finds the model and checks that the organization may use it.
func (c *call) pickModel(ctx context.Context) *Failure {
	unsupported := &Failure{
		Outcome: OutcomeUnsupportedModel, Field: "model", NoRetry: true,
		Message: "The model does not exist or is not enabled for the organization; GET /v1/models lists the enabled ones.",
	}
	m, ok := c.Catalog.Model(c.req.Model)
	if !ok {
		return unsupported
	}
	c.model, c.provider = m, c.Catalog.providers[m.Provider]
	if c.req.AllModels {
		return nil
	}
	exceptions, err := c.DB.Organizations.Models(ctx, c.req.OrgID)
	if err != nil {
		return internal(ctx, "reading the organization's models", err)
	}
	if enabled, excepted := exceptions[m.ID]; excepted && !enabled {
		return unsupported
	}
	return nil
}

// longestPrompt returns the number of tokens by our count up to which a vendor may accept a prompt: our vocabulary isn't the
// vendor's, so only what exceeds the window by a quarter is surely too long.
func (c *call) longestPrompt() int64 { return c.model.ContextWindow + c.model.ContextWindow/4 }

// checkContext refuses only what is surely too long. The vendor judges a prompt that can't be counted in time.
func (c *call) checkContext(ctx context.Context) *Failure {
	if c.prompt.bytes <= c.model.ContextWindow {
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
	return nil
}

func (c *call) contextTooLong() *Failure {
	return &Failure{
		Outcome: OutcomeContextTooLong, Field: "messages", NoRetry: true,
		Message: fmt.Sprintf("This model's maximum context length is %d tokens, and the messages exceed it.",
			c.model.ContextWindow),
	}
}

// outputBound returns the max_tokens that goes upstream, which is also the output part of the hold.
func (c *call) outputBound(ctx context.Context) (int64, *Failure) {
	bound := c.model.MaxOutputTokens
	if c.req.MaxTokens > 0 {
		bound = min(bound, c.req.MaxTokens)
	}
	if c.model.ContextWindow-c.prompt.bytes >= bound {
		return bound, nil
	}
	tokens, err := c.prompt.count(ctx, c.longestPrompt())
	switch {
	case errors.Is(err, errUncounted):
		return bound, nil
	case err != nil:
		return 0, clientGone(err)
	}
	return max(1, min(bound, roomForOutput(c.model.ContextWindow, tokens, c.prompt.bytes))), nil
}

// roomForOutput returns how many tokens of a window are left for the output, beside a prompt whose size is given in tokens of
// our vocabulary and in bytes. Vendors refuse a max_tokens that exceeds the rest of the window by their own count. The densest
// vocabularies need a third more tokens than ours, though none more than bytes, so that much is left free. It is at most half
// of the rest: a prompt that nearly fills the window is still answered by the vendors that count as we do.
func roomForOutput(window, tokens, bytes int64) int64 {
	room := window - tokens
	return room - min(tokens/3, bytes-tokens, room/2)
}

// clientGone returns the failure of a wait that ended with the client.
func clientGone(err error) *Failure {
	return &Failure{Outcome: OutcomeClientGone, Message: "The client closed the connection.", Cause: err}
}

// upstreamKey returns the secret for the vendor, or a Failure when there is none.
func (c *call) upstreamKey(ctx context.Context) (string, *Failure) {
	if c.req.BYOK {
		return c.ownKey(ctx)
	}
	if c.provider.KeyMode == KeyMissing {
		return "", noKey("No key is configured for this model's provider.")
	}
	return c.provider.APIKey, nil
}

// ownKey opens the organization's own key for the provider.
func (c *call) ownKey(ctx context.Context) (string, *Failure) {
	sealed, ok, err := c.DB.ProviderKeys.Sealed(ctx, c.req.OrgID, c.provider.Name)
	if err != nil {
		return "", internal(ctx, "reading the provider key", err)
	}
	if !ok {
		return "", noKey("The organization has no key of its own for this model's provider.")
	}
	key, err := c.Ring.Open(sealed, vault.ProviderKey(c.req.OrgID, c.provider.Name))
	if err != nil {
		return "", internal(ctx, "opening the provider key", err)
	}
	return string(key), nil
}

func noKey(message string) *Failure {
	return &Failure{Outcome: OutcomeProviderError, NoRetry: true, Message: message}
}

// internal returns a fault of the service, or clientGone when the client left meanwhile.
func internal(ctx context.Context, doing string, err error) *Failure {
	if ctx.Err() != nil {
		return clientGone(err)
	}
	f := &Failure{
		Outcome: OutcomeInternalError, Message: "The service failed; the model was not called.",
		Cause: fmt.Errorf("%s: %w", doing, err),
	}
	if errors.Is(err, store.ErrBusy) {
		f.Message, f.RetryAfter = "The service is busy; the model was not called. Try again shortly.", store.RetryAfter
	}
	return f
}

// hold reserves the highest possible price and claims the Idempotency-Key, if there is one, in the same transaction. For a key
// whose call is complete it returns the replay, and nothing is held. Bytes are a cheap but pessimistic bound of the prompt, so
// a wallet that can't carry it gets a second try with counted tokens.
func (c *call) hold(ctx context.Context) (*billing.Replay, *Failure) {
	until := time.Now().Add(duplicateWait)
	for {
		replay, err := c.reserve(ctx)
		if errors.Is(err, billing.ErrInsufficientCredits) && c.prompt.counted == 0 {
			replay, err = c.reserveCounted(ctx)
		}
		if !errors.Is(err, billing.ErrKeyInFlight) {
			return replay, holdFailure(ctx, err)
		}
		ended, err := c.awaitFirst(ctx, until)
		if err != nil {
			return nil, internal(ctx, "waiting for the first use of the key", err)
		}
		if !ended {
			return nil, holdFailure(ctx, billing.ErrKeyInFlight)
		}
	}
}

// holdFailure returns nil for a hold that was made.
func holdFailure(ctx context.Context, err error) *Failure {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, billing.ErrInsufficientCredits):
		return &Failure{
			Outcome: OutcomeInsufficientCredits, NoRetry: true,
			Message: "The wallet has too few credits for this call; top it up or lower max_tokens.",
		}
	case errors.Is(err, billing.ErrKeyReused):
		return &Failure{
			Outcome: OutcomeKeyReused, NoRetry: true,
			Message: "This Idempotency-Key was already used with different content.",
		}
	case errors.Is(err, billing.ErrKeyInFlight):
		return &Failure{
			Outcome: OutcomeInFlight,
			Message: "The first request with this Idempotency-Key is still running; its answer is there when it has ended.",
		}
	case errors.Is(err, errUncounted):
		return &Failure{
			Outcome: OutcomeInternalError, RetryAfter: time.Second, Cause: err,
			Message: "The service is too busy to count the tokens that the wallet could pay for; the model was not called.",
		}
	default:
		return internal(ctx, "holding the price", err)
	}
}

// reserveCounted tries once more for a wallet that can't carry the prompt's bytes. The count stops where the wallet ends, so
// that an empty one costs no work.
func (c *call) reserveCounted(ctx context.Context) (*billing.Replay, error) {
	affordable, err := c.affordablePrompt(ctx)
	if err != nil {
		return nil, err
	}
	if affordable < overheadPerPrompt {
		return nil, billing.ErrInsufficientCredits
	}
	tokens, err := c.prompt.count(ctx, affordable)
	if err != nil {
		return nil, err
	}
	if tokens > affordable {
		return nil, billing.ErrInsufficientCredits
	}
	return c.reserve(ctx)
}

// affordablePrompt returns the longest prompt, in tokens, that the free balance can pay for beside the answer; below 0 when it
// can't even pay for that.
func (c *call) affordablePrompt(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	free, err := c.FreeBalance(ctx, c.req.OrgID, c.req.Env)
	if err != nil {
		return 0, err
	}
	tooLong := sort.Search(int(c.prompt.bytes)+1, func(tokens int) bool {
		cost, err := c.model.Price.Cost(billing.Usage{PromptTokens: int64(tokens), CompletionTokens: c.upstream.MaxTokens})
		return err != nil || cost > free
	})
	return int64(tooLong) - 1, nil
}

// reserve holds the price of the bounds known now.
func (c *call) reserve(ctx context.Context) (*billing.Replay, error) {
	var amount int64
	if !c.req.BYOK {
		var err error
		amount, err = c.model.Price.Cost(billing.Usage{
			PromptTokens: c.prompt.bound(), CompletionTokens: c.upstream.MaxTokens,
		})
		if err != nil {
			return nil, fmt.Errorf("pricing the bounds: %w", err)
		}
	}
	if amount == 0 && c.claim == nil {
		return nil, nil //nolint:nilnil // nothing to hold and nothing to replay
	}
	ctx, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	hold := billing.Hold{
		CallID: c.id, Wallet: c.wallet(), AmountMicros: amount,
		ExpiresIn: c.holdLife(), Model: c.model.ID, Price: c.model.Price, Claim: c.claim,
	}
	replay, err := c.Book.Hold(ctx, hold)
	switch {
	case errors.Is(err, store.ErrCommitUnknown):
		c.unknown = &hold
	case err == nil && replay == nil:
		c.held, c.claimed = amount, c.claim != nil
	}
	return replay, err //nolint:wrapcheck // hold adds what was being done
}

func (c *call) holdLife() time.Duration { return c.provider.MaxDuration + c.HoldTTL }

func (c *call) wallet() billing.WalletID {
	return billing.WalletID{OrgID: c.req.OrgID, Env: c.req.Env}
}
