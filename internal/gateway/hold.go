package gateway

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// storeWait limits every wait for the store before the vendor is called.
	storeWait = 5 * time.Second
	// duplicateWait is the time for which a duplicate of a running call waits for its answer.
	duplicateWait = 20 * time.Second
	// duplicatePoll is about how often a duplicate reads the first call's state. The first call may run in another process, which can't signal its
	// end. The read needs some microseconds.
	duplicatePoll = 100 * time.Millisecond
)

var errStoreSlow = errors.New("the store took longer than 5 s")

// hold reserves the highest possible price and claims the Idempotency-Key, if there is one, in the same transaction. If the key's call is complete
// it returns the replay, and nothing is held. Bytes are a cheap but pessimistic bound of the prompt, so a wallet that can't carry it gets a second
// try with counted tokens.
func (c *call) hold(ctx context.Context) (*billing.Replay, error) {
	until := time.Now().Add(duplicateWait)
	for {
		replay, err := c.reserve(ctx)
		switch {
		case errors.Is(err, billing.ErrInsufficientCredits) && c.prompt.counted == 0:
			err = c.countAffordable(ctx)
		case errors.Is(err, billing.ErrKeyInFlight):
			err = c.awaitFirst(ctx, until)
		default:
			return replay, err
		}
		if err != nil {
			return nil, err
		}
	}
}

// reserve holds the price of the current bounds.
func (c *call) reserve(ctx context.Context) (*billing.Replay, error) {
	var amount int64
	if !c.req.BYOK {
		var err error
		amount, err = c.model.Price.Cost(billing.Usage{
			PromptTokens: c.prompt.bound(), CompletionTokens: c.reservedOutput(),
		})
		if err != nil {
			return nil, fmt.Errorf("pricing the bounds: %w", err)
		}
	}
	if amount == 0 && c.claim == nil && c.req.Turn == nil {
		return nil, nil //nolint:nilnil // nothing to hold and nothing to replay
	}
	ctx, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	hold := billing.Hold{
		CallID: c.id, Wallet: c.wallet(), AmountMicros: amount,
		ExpiresIn: c.holdLife(), Claim: c.claim, Rough: c.prompt.counted == 0,
	}
	if c.claim != nil && c.req.Room != nil { // twice, because a kept answer is encoded before it is sent
		hold.Room = func(bytes int64) bool { return c.req.Room(2 * bytes) }
	}
	var replay *billing.Replay
	var err error
	if c.req.Turn != nil {
		err = c.beginTurn(ctx, hold)
	} else {
		replay, err = c.Book.Hold(ctx, hold)
	}
	if errors.Is(err, billing.ErrNoRoom) {
		return nil, noRoom()
	}
	if replay == nil && (err == nil || errors.Is(err, store.ErrCommitUnknown)) { // end voids a hold that may exist
		c.held, c.claimed = amount, c.claim != nil
	}
	if err != nil {
		return nil, fmt.Errorf("holding the price: %w", err)
	}
	return replay, nil
}

// beginTurn holds in the transaction that begins the turn. The turn begins even if the wallet has too few credits.
func (c *call) beginTurn(ctx context.Context, hold billing.Hold) error {
	var commit Commit
	var short error
	if hold.AmountMicros > 0 {
		commit = func(ctx context.Context, step billing.Companion) error {
			hold.With = step
			_, err := c.Book.Hold(ctx, hold)
			if errors.Is(err, billing.ErrInsufficientCredits) || errors.Is(err, billing.ErrCreditsInTranches) {
				short, err = err, nil
			}
			return err
		}
	}
	if err := c.req.Turn.Begin(ctx, c.id, commit); err != nil {
		return err
	}
	return short
}

// reservedOutput returns the number of generated tokens for which the price is held.
func (c *call) reservedOutput() int64 {
	if c.model.ReserveMaxOutput {
		return c.model.MaxOutputTokens
	}
	return c.upstream.MaxTokens
}

// countAffordable counts the prompt for a wallet that can't carry its bytes. The count stops at the number of tokens that the
// wallet can pay, so that an empty wallet costs no work. The error is then [billing.ErrInsufficientCredits].
func (c *call) countAffordable(ctx context.Context) error {
	free, err := c.spendable(ctx)
	if err != nil {
		return err
	}
	tooMany := sort.Search(int(c.prompt.bytes)+1, func(tokens int) bool {
		cost, err := c.model.Price.Cost(billing.Usage{PromptTokens: int64(tokens), CompletionTokens: c.reservedOutput()})
		return err != nil || cost > free
	})
	affordable := int64(tooMany) - 1 // below 0 if the wallet can't even pay for the answer
	if affordable < overheadPerPrompt {
		return billing.ErrInsufficientCredits
	}
	tokens, err := c.prompt.count(ctx, affordable)
	if err == nil && tokens > affordable {
		err = billing.ErrInsufficientCredits
	}
	return err
}

// spendable returns the largest amount that the call's wallet can spend, in micros.
func (c *call) spendable(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	return c.Book.Spendable(ctx, c.wallet())
}

// awaitFirst waits until the first use of the key has ended. The error is [billing.ErrKeyInFlight] if it still runs at the given
// time.
func (c *call) awaitFirst(ctx context.Context, until time.Time) error {
	for time.Now().Before(until) {
		if err := repeat.Pause(ctx, repeat.Around(duplicatePoll)); err != nil {
			return fmt.Errorf("waiting for the first use of the key: %w", err)
		}
		busy, err := c.Book.ClaimBusy(ctx, c.wallet(), c.claim.KeyHash)
		if err != nil {
			return fmt.Errorf("looking for the first use of the key: %w", err)
		}
		if !busy {
			return nil
		}
	}
	return billing.ErrKeyInFlight
}

func (c *call) holdLife() time.Duration { return c.provider.MaxDuration + c.HoldTTL }

func (c *call) wallet() billing.WalletID {
	return billing.WalletID{OrgID: c.req.OrgID, Env: c.req.Env}
}
