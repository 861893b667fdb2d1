package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math"
	"sort"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
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
// it returns the replay, and nothing is held. Bytes are a cheap but pessimistic bound of the prompt, so a wallet or a budget that can't carry it
// gets a second try with counted tokens.
func (c *call) hold(ctx context.Context) (*billing.Replay, error) {
	until := time.Now().Add(duplicateWait)
	for {
		replay, err := c.reserve(ctx)
		switch {
		case billing.IsShort(err) && c.prompt.counted == 0:
			err = c.countAffordable(ctx, err)
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
		amount, err = c.price.Bound(c.prompt.bound(), c.reservedOutput())
		if err != nil {
			return nil, fmt.Errorf("pricing the bounds: %w", err)
		}
	}
	if amount == 0 && c.claim == nil && c.req.Turn == nil {
		return nil, nil //nolint:nilnil // nothing to hold and nothing to replay
	}
	ctx, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	if c.req.BudgetVersion > 0 && amount > 0 {
		c.budgets = &billing.Budgeted{KeyID: c.req.KeyID, AgentID: c.req.AgentID, Version: c.req.BudgetVersion}
	}
	hold := billing.Hold{
		CallID: c.id, Wallet: c.wallet(), AmountMicros: amount, Budgets: c.budgets,
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

// beginTurn holds in the transaction that begins the turn. The turn begins even if the wallet or a budget has too little left.
func (c *call) beginTurn(ctx context.Context, hold billing.Hold) error {
	var commit Commit
	var short error
	if hold.AmountMicros > 0 {
		commit = func(ctx context.Context, step billing.Companion) error {
			hold.With = step
			_, err := c.Book.Hold(ctx, hold)
			if billing.IsShort(err) || errors.Is(err, billing.ErrCreditsInTranches) {
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

// countAffordable counts the prompt for a wallet or a budget that can't carry its bytes, which short says. The count stops at the number of tokens
// that they can pay, so that an empty wallet costs no work. The error is then short.
func (c *call) countAffordable(ctx context.Context, short error) error {
	free, err := c.spendable(ctx)
	if err != nil {
		return err
	}
	tooMany := sort.Search(int(c.prompt.bytes)+1, func(tokens int) bool {
		cost, err := c.price.Bound(int64(tokens), c.reservedOutput())
		return err != nil || cost > free
	})
	affordable := int64(tooMany) - 1 // below 0 if the wallet can't even pay for the answer
	if affordable < overheadPerPrompt {
		return short
	}
	tokens, err := c.prompt.count(ctx, affordable)
	if err == nil && tokens > affordable {
		err = short
	}
	return err
}

// spendable returns the largest amount that the call's wallet and budgets can spend, in micros.
func (c *call) spendable(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	free, err := c.Book.Spendable(ctx, c.wallet())
	if err != nil || c.budgets == nil {
		return free, err
	}
	room, err := c.Book.BudgetRoom(ctx, c.wallet(), c.budgets)
	return min(free, room), err
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

func (c *call) holdLife() time.Duration { return c.model.maxDuration + c.HoldTTL }

func (c *call) wallet() billing.WalletID { return billing.WalletID{OrgID: c.req.OrgID, Env: c.req.Env} }

// maxTranscript limits a stored answer in bytes before it is sealed. A longer one, or one above the limit of [billing.Book.KeepAtMost], was
// charged and can't be replayed: a repetition gets conflict, and the call doesn't run again.
const maxTranscript = 1 << 20

// claim returns the claim of the request's Idempotency-Key, or nil if it has none.
func (r *Request) claim() *billing.Claim {
	if r.IdempotencyKey == "" {
		return nil
	}
	return &billing.Claim{KeyHash: sha256.Sum256([]byte(r.IdempotencyKey)), Fingerprint: r.fingerprint()}
}

// fingerprint returns a digest of the request's content: the validated fields after defaults, so that the order of members and
// unknown members don't matter. It doesn't include the API key, which may be replaced between two tries.
func (r *Request) fingerprint() [32]byte {
	d := digest{Hash: sha256.New()}
	d.text("v1 POST /v1/chat/completions")
	d.flag(r.BYOK)
	d.flag(r.Stream)
	d.text(r.Model)
	d.number(uint64(len(r.Messages)))
	for i := range r.Messages {
		d.text(r.Messages[i].Role)
		d.scratch = r.Messages[i].Content.AppendText(d.scratch[:0])
		d.bytes(d.scratch)
	}
	d.optional(r.Temperature)
	d.optional(r.TopP)
	d.number(uint64(r.MaxTokens)) //nolint:gosec // 0..200,000
	d.number(uint64(len(r.Stop)))
	for _, stop := range r.Stop {
		d.text(stop)
	}
	return [32]byte(d.Sum(nil))
}

// digest hashes values so that different sequences have different encodings.
type digest struct {
	hash.Hash
	scratch []byte
}

func (d *digest) number(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	_, _ = d.Write(b[:])
}

func (d *digest) bytes(b []byte) {
	d.number(uint64(len(b)))
	_, _ = d.Write(b)
}

func (d *digest) text(s string) { d.bytes([]byte(s)) }

func (d *digest) flag(on bool) {
	if on {
		d.number(1)
		return
	}
	d.number(0)
}

func (d *digest) optional(v *float64) {
	d.flag(v != nil)
	if v != nil {
		d.number(math.Float64bits(*v))
	}
}

// transcript is the part of an answer that is kept for a repeated request.
type transcript struct {
	ID           string    `json:"id"`
	Created      int64     `json:"created"`
	Text         string    `json:"text"`
	FinishReason string    `json:"finishReason,omitempty"`
	Usage        keptUsage `json:"usage"`
	// Failure is set for an answer that broke off after it had a cost.
	Failure *brokenAnswer `json:"failure,omitempty"`
}

// keptUsage is the stored form of [billing.Usage].
type keptUsage struct {
	PromptTokens         int64 `json:"prompt"`
	CompletionTokens     int64 `json:"completion"`
	CachedPromptTokens   int64 `json:"cached,omitempty"`
	CacheWriteTokens     int64 `json:"write,omitempty"`
	LongCacheWriteTokens int64 `json:"longWrite,omitempty"`
	ReasoningTokens      int64 `json:"reasoning,omitempty"`
}

type brokenAnswer struct {
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message"`
	NoRetry bool    `json:"noRetry,omitempty"`
}

// keep adds the answer to a settlement for a repeated request. It keeps only answers that succeeded or were charged. Otherwise
// the key is free to run again.
func (c *call) keep(s *billing.Settlement, usage billing.Usage, f *Failure) {
	if c.claim == nil {
		return
	}
	s.Claim = c.claim
	cost, err := s.Price.Cost(usage)
	s.Keep = f == nil || (err == nil && cost > 0 && !s.Void)
	if !s.Keep || int64(c.delivered.text.Len()) != c.delivered.bytes { // the text is not everything that was delivered
		return
	}
	t := transcript{
		ID: c.completionID(), Created: c.started.Unix(), Text: c.delivered.text.String(), FinishReason: c.finish,
		Usage: keptUsage(usage),
	}
	if f != nil {
		t.Failure = &brokenAnswer{Outcome: f.Outcome, Message: f.Message, NoRetry: f.NoRetry}
	}
	plain, err := json.Marshal(t)
	if err != nil || len(plain) > maxTranscript {
		return
	}
	s.Response = c.Ring.Seal(plain, vault.Transcript(c.req.OrgID, c.id))
}

// replay returns the result of the first use of the key: the same id, text, usage and charge.
func (c *call) replay(first *billing.Replay) (*Result, error) {
	if first.Response == nil {
		return nil, &Failure{
			Outcome: OutcomeNotKept, NoRetry: true, Replayed: true,
			Message: "The first request with this Idempotency-Key was answered and charged, but its answer was not kept: it was too long, " +
				"or the answers that are kept for the organization take all of their room.",
		}
	}
	plain, err := c.Ring.Open(first.Response, vault.Transcript(c.req.OrgID, first.CallID))
	if err != nil {
		return nil, fmt.Errorf("opening the kept answer: %w", err)
	}
	var t transcript
	if err := json.Unmarshal(plain, &t); err != nil {
		return nil, fmt.Errorf("reading the kept answer: %w", err)
	}
	if c.sink != nil {
		text := t.Text
		t.Text = "" // a client may read slowly
		err := c.sink.Begin(Head{ID: t.ID, Created: t.Created, Model: c.model.ID, Replayed: true})
		if text != "" {
			err = errors.Join(err, c.sink.Text(text), c.sink.Flush())
		}
		if err != nil {
			return nil, clientGone(err)
		}
	}
	if broken := t.Failure; broken != nil {
		return nil, &Failure{Outcome: broken.Outcome, Message: broken.Message, NoRetry: broken.NoRetry, Replayed: true}
	}
	c.observe(OutcomeReplayed, billing.Usage{}, billing.UsageNone, billing.Settled{})
	result := &Result{
		ID: t.ID, Created: t.Created, Model: c.model.ID, FinishReason: t.FinishReason,
		Usage:         billing.Usage(t.Usage),
		ChargedMicros: first.Settled.ChargedMicros, BYOK: first.BYOK, Replayed: true,
	}
	if c.sink == nil {
		result.Text = t.Text
	}
	return result, nil
}
