// Package billing keeps the money: the price of a call, the hold that reserves it, the charge, and the ledger that proves every
// change. Amounts are int64 micros (millionths of the currency unit), never floats, and are sent as decimal strings.
//
// # A call's money
//
// [Book.Hold] reserves an upper bound before the provider is called. [Book.Settle] ends the call:
//
//	charged   = min(cost, reserved, free), after the reservation was released
//	shortfall = cost - charged
//
// The cost is computed from the call's tokens and the price at its beginning. A void is charged 0, and so is a call whose key
// belongs to another call. Settle releases the reservation, charges the wallet and writes the call's row in one transaction. A
// repeated settlement returns the figures of the first.
//
// A reservation is a row only while its call runs: in holds, in the row of the call's key, or as a part of a tranche. When it
// expires, [Book.Sweep] releases it; a call that settles later pays from the free balance. A void ends a hold of unknown outcome:
// it waits for the lock of the wallet and so for the commit of the hold. No hold can be made for a call that has ended.
//
// # Tranches
//
// A process may reserve a part of a wallet, a tranche, and hold calls from it in memory ([Tranches]). Hold then writes nothing,
// and Settle subtracts the charge from the tranche. Deleting a tranche's row fences the process that owned it. Its calls then pay from the
// free balance. A process never sends how much it needs. Instead, an operation carries a ride, which reads the memory of the
// process when the operation is decided, under the lock of the wallet. If another process needs more of a wallet, its tranches
// are recalled for the time of a lease, in which each settlement and renewal returns the unused part.
//
// # Budgets
//
// A hold is also reserved in each budget that counts its call, in the present period of the budget. The reservation names these periods, and so
// does the row of a charged call. Every change of a reservation changes its periods by the same amount, and a charge moves from reserved to spent. A
// tranche is reserved in budgets like a hold.
//
// # A call's key
//
// A hold may carry an Idempotency-Key as a [Claim], which is written in the same transaction, even for a free call. A key counts
// within its wallet. The outcome of another hold with the same key depends on the first call:
//
//	                   ┌─ Settle with Keep → done      replayed for 24 hours, then free
//	Hold → in progress ┼─ Settle without ──→ no row    the key runs again
//	                   └─ its time is over → no row    by the next hold or Sweep; the reservation is released with it
//
// A late call may find its key free, and finishes it when it is charged. If the key belongs to another call, the late call is not
// charged, so no key is charged twice.
//
// # Companions
//
// A hold or a settlement may carry an operation of another kind ([Companion]), which is applied before it in the same savepoint:
// a turn of a conversation begins with its call's hold and ends with its charge. The companion locks first and decides: it may
// refuse the hold, name an earlier call whose hold ends, or report that the call lost its place and is charged 0.
//
// # Invariants
//
//   - No debt: 0 <= held <= balance. It is decided under the wallet's lock, written by a statement that names the values on which
//     the decision was based, and checked by the database. A refused hold doesn't block a later, smaller one.
//   - No budget is exceeded: spent and reserved together are never above the limit that admitted them. A call that has lost its reservation pays
//     no more than the room of its periods under the present limits.
//   - Nothing twice: a hold and its charge are identified by the call's id, a credit or adjustment by its reference, a refund by
//     its call. A caller whose commit wasn't confirmed repeats the operation.
//   - Order is a number: charges and postings of a wallet are numbered without a gap, and each records the balance after it.
//   - Each charge can be recomputed from its own row: tokens, price, reservation. A charge goes from the wallet to sys:revenue, a
//     posting names its account. Rows of charges and postings never change; a wallet is their projection.
//   - A cost beyond the reservation and the free balance is the operator's loss, recorded in calls.shortfall_micros, and never
//     charged to the organization.
//   - A key has one call at a time, and only one of its calls is charged while the key is kept: new claims are written under the
//     lock of their wallet, all others change under their own.
//   - Kept answers of a wallet have a bound ([Book.KeepAtMost]). A call whose answer doesn't fit is charged, and its answer isn't
//     kept.
//   - Time is the database's: holds are made and expire by its clock.
//
// [Check] verifies the invariants on a database in use.
//
// # Files
//
// price.go is arithmetic. decide.go contains every rule about money in plain Go, without SQL, decide_claim.go every rule about keys,
// decide_budget.go about budgets with their calendar, decide_payment.go about payments, and decide_tranche.go about tranches. ledger.go is the
// [store.Kind] that locks the wallets of a batch, then its claims (each in key order), reads, decides and writes, with few statements for any
// number of operations; rows.go, budget_rows.go and payment_rows.go have the statements. tranches.go is the memory of a process about its
// tranches, with their regular renewal. book.go, budget.go, posting.go, history.go and sweeper.go are the interface for other packages.
// usage.go sums up calls by day behind them. check.go, invariants.go and statement_check.go are the doctor.
//
// # Outside of the package
//
// The gateway hashes keys, defines equal content, seals transcripts, waits for a running call, estimates tokens, chooses prices
// and classifies the end of a call. It must settle or void every call that it held; the sweeper is for processes that died.
// Failed operations aren't retried here. There is no borrowing, no transfer between wallets, and no payment provider.
package billing

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// DefaultKeptBytes limits the bytes that finished keys of a wallet keep, unless [Book.KeepAtMost] sets another limit.
const DefaultKeptBytes = 64 << 20

// Book reads and changes the money of one database. Any number may be made with [NewBook].
type Book struct {
	db        *store.DB
	tranches  *Tranches // off until they are started
	keptBytes atomic.Int64
	prices    storedPrices
}

// NewBook opens the book kept in db, which must have been opened with [Ledger] among its kinds.
func NewBook(db *store.DB) *Book {
	b := &Book{db: db, tranches: newTranches(db, nil), prices: storedPrices{
		ids: map[priceRow]int64{}, answering: map[endpoint]map[string]bool{},
	}}
	b.tranches.off = true
	b.KeepAtMost(DefaultKeptBytes)
	return b
}

// KeepAtMost sets the limit, in bytes, of the answers that finished keys of each wallet keep. An answer above the limit is charged and not kept. A
// lower limit deletes nothing.
func (b *Book) KeepAtMost(bytes int64) { b.keptBytes.Store(bytes) }

// Hold reserves an amount, and claims the call's Idempotency-Key if it has one, in one transaction, and returns once that is durable. With
// [Tranches] the reservation may have been durable before. Nothing is reserved or claimed when it returns a [Replay], or an error other than
// [store.ErrCommitUnknown], after which both may exist until [Book.Settle] voids the call. Repeating a hold succeeds until its call has ended.
// With Tranches a call without a claim is held once, and one of unknown outcome is voided.
//
// A Replay is the finished call that has the key, with the same content. Hold returns [ErrKeyReused], [ErrKeyInFlight], [ErrInsufficientCredits],
// [ErrCreditsInTranches], a [BudgetError], [ErrCallEnded], [ErrInvalid], [store.ErrNotFound] (a claim for an unknown organization), the refusal of
// the hold's [Companion], or a wrapped error of the store.
func (b *Book) Hold(ctx context.Context, hold Hold) (*Replay, error) {
	if err := hold.validate(); err != nil {
		return nil, err
	}
	op := &holdOp{Hold: hold}
	if hold.With == nil { // otherwise there is a transaction anyway
		granted, ride, err := b.tranches.hold(hold)
		if granted || err != nil {
			return nil, err
		}
		op.ride = ride
	}
	for {
		if err := b.doHold(ctx, op); err != nil {
			return nil, err
		}
		switch {
		case op.finished != "":
			// The finished key may have expired before it was read. Then the key is free for this call.
			if replay, found, err := b.replay(ctx, hold, op.finished); found || err != nil {
				return replay, err
			}
		case IsShort(op.refused) && !hold.Rough:
			retry := func(ctx context.Context) (bool, error) {
				op.recalls, op.ride, op.returns = true, nil, b.tranches.returning(op.Wallet)
				err := b.doHold(ctx, op)
				return op.pending && err == nil, cmp.Or(err, op.refused)
			}
			if err := b.recall(ctx, hold.Wallet, hold.AmountMicros, op.refused, op.Budgets, retry); err != nil || op.finished == "" {
				return nil, err
			}
		default:
			return nil, op.refused
		}
	}
}

// doHold has a hold decided and written.
func (b *Book) doHold(ctx context.Context, op *holdOp) error {
	err := b.do(ctx, op, op.ride)
	for _, r := range op.returns {
		r.answer(err)
	}
	if err != nil {
		return fmt.Errorf("hold credits: %w", err)
	}
	if op.Budgets != nil {
		op.Budgets.periods = op.periods
	}
	return nil
}

// do has an operation and its ride decided and written.
func (b *Book) do(ctx context.Context, op store.Op, ride *ride) error {
	err := b.db.Do(ctx, Ledger, op)
	ride.answer(err)
	return err
}

// Settle ends a call. It releases the hold, charges the wallet and writes the call's row in one transaction, and returns once that is durable. It
// may be repeated, and returns the figures of the first settlement. A settlement after the loss of its hold also charges, unless another call has
// the key by now. [Settled] says which part of a cost isn't charged. After Settle no hold of the call can be made, so a void ends a call after
// [store.ErrCommitUnknown] from Hold, whether or not that commit arrived. It returns [ErrInvalid], the refusal of the settlement's [Companion], or
// a wrapped error of the store. After the last two it may be repeated.
func (b *Book) Settle(ctx context.Context, settlement Settlement) (Settled, error) {
	op, err := b.settlement(settlement)
	if err != nil {
		return Settled{}, err
	}
	op.ride = b.tranches.settle(settlement.Call)
	if err := b.do(ctx, op, op.ride); err != nil {
		return Settled{}, fmt.Errorf("settle call: %w", err)
	}
	if op.price != nil && op.refused == nil {
		b.prices.add(op.price, op.priceID)
	}
	return op.settled, op.refused
}

// Record writes the row of a call without money and without an Idempotency-Key. Its caller needn't wait for the result, because the row is
// information: it is written with the next transaction, within a second, and a process that is killed before loses only the row. Record refuses
// any other settlement with [ErrInvalid].
func (b *Book) Record(settlement Settlement) (*store.PendingWrite, error) {
	op, err := b.settlement(settlement)
	if err == nil && (settlement.ReservedMicros > 0 || !settlement.Price.free() || settlement.Claim != nil) {
		err = fmt.Errorf("%w: a call with money or an idempotency key is settled, not recorded", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	op.recorded = true
	return b.db.SubmitLazily(Ledger, op), nil
}

// settlement returns the operation that ends a call.
func (b *Book) settlement(s Settlement) (*settleOp, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	s.Call.Usage = s.Call.Usage.Bounded()
	op := &settleOp{Settlement: s, keptBytes: b.keptBytes.Load(), cost: int64(0)}
	if s.Price.free() && (s.VendorPrice.free() || s.Call.BYOK) {
		return op, nil
	}
	call := &s.Call
	row := priceRow{endpoint{call.Provider, call.UpstreamModel}, call.Model, call.AnsweringModel, s.Price, s.VendorPrice}
	if op.priceID = b.prices.find(&row); op.priceID == 0 {
		op.priceID, op.price = row.id(), new(row)
	}
	if call.Usage != (Usage{}) {
		op.cost = vendorCost(&s.VendorPrice, call.Usage)
	}
	return op, nil
}

// ErrKeyReused is returned for an Idempotency-Key that was used with other content: 409 idempotency_key_reused. The first call
// keeps the key.
var ErrKeyReused = errors.New("the idempotency key was used with other content")

// ErrKeyInFlight is returned while the call of an Idempotency-Key is running. The duplicate may wait with [Book.ClaimBusy] and hold again. Clients
// get 409 conflict if the call doesn't end in time.
var ErrKeyInFlight = errors.New("a call with the same idempotency key is in progress")

// ErrNoRoom is returned when the kept answer of an Idempotency-Key is larger than [Hold.Room] allows.
var ErrNoRoom = errors.New("there is no room for the kept answer")

// KeyLife is the time for which the outcome of a finished call is kept for replays.
const KeyLife = 24 * time.Hour

// Claim is the use of an Idempotency-Key by a call. A key counts within its wallet, so other organizations and other environments
// are independent.
type Claim struct {
	// KeyHash is the SHA-256 of the client's key.
	KeyHash [32]byte
	// Fingerprint identifies the request's content: equal content has equal fingerprints.
	Fingerprint [32]byte
}

// Replay is the outcome of an earlier call with the same key and content.
type Replay struct {
	// CallID is the id of the earlier call.
	CallID string
	// Response is the sealed transcript that the call's settlement kept. It is nil if there was no room for it.
	Response []byte
	BYOK     bool
	Settled  Settled
}

// ClaimBusy reports whether a call with this key is in progress and its lease is valid, by the database's clock. It is a cheap read for a waiting
// duplicate: after false the next [Book.Hold] replays the call or claims the key. It returns [ErrInvalid] or an error of reading.
func (b *Book) ClaimBusy(ctx context.Context, wallet WalletID, keyHash [32]byte) (bool, error) {
	if err := wallet.validate(); err != nil {
		return false, err
	}
	var busy bool
	err := b.db.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM running_keys
		WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND expires_at >= `+
		clockSQL[b.db.Engine()]+`)`, wallet.OrgID, string(wallet.Env), keyHash[:]).Scan(&busy)
	return busy, store.Wrap("read claim", err)
}

// clockSQL reads the database's clock in epoch milliseconds, as the store's transactions do. SQLite has only the machine's.
var clockSQL = map[store.Engine]string{
	store.SQLite:   `CAST(unixepoch('subsec') * 1000 AS INTEGER)`,
	store.Postgres: `floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
}

// finishedKey selects the row of a finished key.
const finishedKey = ` WHERE k.org_id = $1 AND k.env = $2 AND k.key_hash = $3 AND k.call_id = $4`

// replay reads the finished call of a hold's key. The transcript may be large, so it is read outside of the writer, and only if
// [Hold.Room] allows its length. found is false if the row has expired.
func (b *Book) replay(ctx context.Context, hold Hold, callID string) (replay *Replay, found bool, err error) {
	key := []any{hold.Wallet.OrgID, string(hold.Wallet.Env), hold.Claim.KeyHash[:], callID}
	if hold.Room != nil {
		var bytes int64
		err := b.db.Reader().QueryRowContext(ctx, `SELECT k.kept_bytes FROM idempotency_keys k`+finishedKey, key...).Scan(&bytes)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("read the length of finished call %s: %w", callID, err)
		case !hold.Room(bytes):
			return nil, true, ErrNoRoom
		}
	}
	replay = &Replay{CallID: callID}
	settled := &replay.Settled
	var byok sql.NullBool
	err = b.db.Reader().QueryRowContext(ctx, `SELECT a.response, c.byok, coalesce(c.charged_micros, 0), coalesce(c.shortfall_micros, 0)
		FROM idempotency_keys k LEFT JOIN calls c ON c.id = k.call_id
			LEFT JOIN kept_answers a ON a.org_id = k.org_id AND a.env = k.env AND a.call_id = k.call_id`+finishedKey, key...,
	).Scan(&replay.Response, &byok, &settled.ChargedMicros, &settled.ShortfallMicros)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, false, nil
	case err == nil && !byok.Valid:
		err = errors.New("its row is missing (doctor: L10)")
	}
	if err != nil {
		return nil, false, fmt.Errorf("read finished call %s: %w", callID, err)
	}
	replay.BYOK = byok.Bool
	return replay, true, nil
}

// ErrCreditsInTranches is returned if the amount would fit after a tranche's process returned its unused part, and the process
// didn't do so in time. The tranche ends after [trancheLease] anyway, so another try is decided.
var ErrCreditsInTranches = errors.New("another process holds credits that it doesn't use")

const (
	// recallPause is about the pause between two reads of a wallet with recalled tranches.
	recallPause = 50 * time.Millisecond
	// recallWait limits the wait: a lease, and some time for the database.
	recallWait = trancheLease + 5*time.Second
)

// IsShort reports whether an operation was refused because the free balance or a budget has too little.
func IsShort(refused error) bool {
	_, budget := errors.AsType[*BudgetError](refused)
	return budget || errors.Is(refused, ErrInsufficientCredits)
}

// recall retries an operation that was refused because its wallet or a budget has too little, after asking all processes for their unused credits.
// try reports with this kind of refusal whether some processes may still return credits. recall returns try's last error. It returns refused
// without a try if the wallet or a budget has too little together with all tranches, and [ErrCreditsInTranches] if they have enough but it isn't
// returned in time.
func (b *Book) recall(
	ctx context.Context, wallet WalletID, micros int64, refused error, call *Budgeted, try func(context.Context) (pending bool, err error),
) error {
	most, err := b.Spendable(ctx, wallet)
	if err == nil && call != nil {
		var room int64
		room, err = b.BudgetRoom(ctx, wallet, call)
		most = min(most, room)
	}
	if err != nil {
		return err
	}
	if most < micros {
		return refused
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recallWait, ErrCreditsInTranches)
	defer cancel()
	for {
		pending, err := try(ctx)
		if !pending || !IsShort(err) {
			return err
		}
		wanted := micros
		if !errors.Is(err, ErrInsufficientCredits) {
			wanted = math.MaxInt64 // the wallet has enough, but the budget hasn't
		}
		if err := b.awaitReturn(ctx, wallet, wanted); err != nil {
			return err
		}
	}
}

// awaitReturn waits until another try may succeed: the amount is free, no tranche has an unused part, or a second has passed,
// after which a lease may have ended.
func (b *Book) awaitReturn(ctx context.Context, wallet WalletID, micros int64) error {
	for looks := time.Second / recallPause; looks > 0; looks-- {
		if err := repeat.Pause(ctx, repeat.Around(recallPause)); err != nil {
			return fmt.Errorf("recall tranches: %w: %w", ErrCreditsInTranches, err)
		}
		var free int64
		var spare bool
		err := b.db.Reader().QueryRowContext(ctx, selectSpare, wallet.OrgID, string(wallet.Env)).Scan(&free, &spare)
		if err != nil {
			return fmt.Errorf("look for returned tranches: %w", err)
		}
		if free >= micros || !spare {
			return nil
		}
	}
	return nil
}

// Spendable returns the greatest possible hold in a wallet in micros: the free balance and the amounts of its tranches, which may
// be in use. The error is an error of reading.
func (b *Book) Spendable(ctx context.Context, wallet WalletID) (micros int64, err error) {
	micros, err = store.ReadRow(ctx, b.db, "read the free balance", func(row store.Row) (int64, error) {
		var free, left int64
		if err := row.Scan(&free, &left); err != nil {
			return 0, err
		}
		return addMicros(free, left)
	}, selectSpendable, wallet.OrgID, string(wallet.Env))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return micros, err
}
