package handlers

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// ErrBudget is the cause of errors of requests without room for their body or answer in the account's share of the [ByteBudget].
var ErrBudget = errors.New("the account's share of the memory for request bodies and answers is used up")

// BudgetRetryAfter is the Retry-After of clients with a used-up share of the budget.
const BudgetRetryAfter = time.Second

// Share is a part of a [ByteBudget] that no other share can use up.
type Share int

// The shares of a budget.
const (
	// ShareOrganizations is half of the budget: the bodies of requests with an API key or a session, their answers, and the deliveries of bots,
	// which prove their secret before the body is read.
	ShareOrganizations Share = iota
	// ShareStrangers is a quarter: sign-in, one-time links, visitors of widgets, and the answers to them.
	ShareStrangers
	// ShareDeliveries is an eighth: webhook bodies up to [LargeDelivery], because their signature is checked over the whole body.
	ShareDeliveries
	// ShareLargeDeliveries is an eighth: webhook bodies beyond that, which platforms hardly ever send.
	ShareLargeDeliveries

	shares = iota
)

// LargeDelivery is the size in bytes beyond which a webhook body counts as large.
const LargeDelivery = 256 << 10

// Shares lists all shares.
func Shares() []Share {
	return []Share{ShareOrganizations, ShareStrangers, ShareDeliveries, ShareLargeDeliveries}
}

// String is the share's name in metrics.
func (s Share) String() string {
	return [shares]string{"organizations", "strangers", "deliveries", "large_deliveries"}[s]
}

// of is the share's part of a limit, in bytes.
func (s Share) of(limit int64) int64 { return limit / [shares]int64{2, 4, 8, 8}[s] }

// Account is the owner of bytes: an organization by its id, or a stranger by the network address. One account may hold as
// much of its share as is still free, so that a greedy one leaves half of the share to the others, two leave a third, and
// so on.
type Account struct {
	Share Share
	Owner string
}

// AccountOf returns the account of a request's body and answer: the operator or the organization of its principal, or the client's address
// without one.
func AccountOf(r *http.Request) Account {
	principal, _ := PrincipalFrom(r.Context())
	if owner := cmp.Or(principal.OperatorID, principal.OrgID); owner != "" {
		return Account{ShareOrganizations, owner}
	}
	return Account{ShareStrangers, ClientAddress(r)}
}

// Pace is how fast a body must arrive: after t seconds at least (t - Grace) · Rate bytes.
type Pace struct {
	// Grace is for strangers and GraceWithKey for requests with an API key or a session.
	Grace, GraceWithKey time.Duration
	// Rate is in bytes per second; 0 means that the whole body must be there within the grace.
	Rate int64
}

// DefaultPace lets a phone with a bad connection send a large prompt, and ends connections that send nothing.
var DefaultPace = Pace{Grace: 10 * time.Second, GraceWithKey: 30 * time.Second, Rate: 64 << 10}

// ByteBudget limits the memory of request bodies and answers in the process: the bytes that are held at a time, over all requests and by shares;
// how slowly bodies may arrive; and how many are decoded at a time. A nil budget has no bound on bytes and the default pace; a zero one admits no
// body at all. It is safe for concurrent use.
type ByteBudget struct {
	decodes decodeSlots

	mu    sync.Mutex
	limit int64
	pace  Pace
	// used are the charged bytes within the shares, beyond the bytes charged in excess of them.
	used, beyond [shares]int64
	// owners has both by account.
	owners map[Account]int64
}

// NewByteBudget returns a budget of limit bytes with the default pace.
func NewByteBudget(limit int64) *ByteBudget {
	slots := max(4, 2*runtime.GOMAXPROCS(0))
	return &ByteBudget{
		limit: limit, pace: DefaultPace, owners: make(map[Account]int64),
		decodes: decodeSlots{all: make(chan struct{}, slots), large: make(chan struct{}, slots/2)},
	}
}

// SetLimit changes the limit in bytes, and the pace, for bodies that come later, so that one budget outlives a
// configuration.
func (b *ByteBudget) SetLimit(limit int64, pace Pace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit, b.pace = limit, pace
}

// Used returns the bytes that are held now, over all shares.
func (b *ByteBudget) Used() (all int64) {
	for _, share := range Shares() {
		all += b.UsedBy(share)
	}
	return all
}

// UsedBy returns the bytes of a share that are held now.
func (b *ByteBudget) UsedBy(share Share) int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used[share] + b.beyond[share]
}

// Take charges n bytes to the account and reports true, or charges nothing when they don't fit.
func (b *ByteBudget) Take(account Account, n int64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	used, own := b.used[account.Share]+n, b.owners[account]+n
	if own > account.Share.of(b.limit)-used {
		return false
	}
	b.used[account.Share] = used
	b.owners[account] = own
	return true
}

// Give returns n bytes that the account took.
func (b *ByteBudget) Give(account Account, n int64) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used[account.Share] -= n
	b.own(account, -n)
}

// exceed charges n bytes to the account although its share has no room for them, or gives them back if n < 0. The room of other accounts doesn't
// change.
func (b *ByteBudget) exceed(account Account, n int64) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beyond[account.Share] += n
	b.own(account, n)
}

// own adds n to the bytes of an account. The mutex must be held.
func (b *ByteBudget) own(account Account, n int64) {
	if own := b.owners[account] + n; own > 0 {
		b.owners[account] = own
	} else {
		delete(b.owners, account)
	}
}

// paceOf returns the pace for an account as a grace and a rate.
func (b *ByteBudget) paceOf(share Share) (grace time.Duration, rate int64) {
	pace := DefaultPace
	if b != nil {
		b.mu.Lock()
		pace = b.pace
		b.mu.Unlock()
	}
	if share == ShareOrganizations {
		return pace.GraceWithKey, pace.Rate
	}
	return pace.Grace, pace.Rate
}

// largeDecode is the size in bytes from which a body counts as large while it is decoded.
const largeDecode = 64 << 10

// decodeSlots limits how many bodies are decoded at a time, and so the memory of all decoders. Large bodies may have half of the slots, so that
// small ones never wait behind them. The order is first come, first served. The shares of the [ByteBudget] limit how much can wait before a body:
// an organization can't keep the others waiting for longer than the decoding of its own share.
type decodeSlots struct{ all, large chan struct{} }

// Decoding waits for a slot to decode a body of the given size in bytes. done gives it back. The error is internal_error with a
// Retry-After, when ctx ends before a slot is free.
func (b *ByteBudget) Decoding(ctx context.Context, size int) (done func(), err error) {
	if b == nil || b.decodes.all == nil {
		return func() {}, nil
	}
	all, large := b.decodes.all, b.decodes.large
	switch {
	case size < largeDecode && enter(ctx, all):
		return func() { <-all }, nil
	case size >= largeDecode && enter(ctx, large):
		if enter(ctx, all) {
			return func() { <-all; <-large }, nil
		}
		<-large
	}
	return nil, Busy(BudgetRetryAfter, context.Cause(ctx))
}

// enter reports whether a slot was free before ctx ended.
func enter(ctx context.Context, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
