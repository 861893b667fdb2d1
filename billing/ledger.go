package billing

import (
	"context"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Ledger turns the operations of a [Book] into rows (design §3, §7). The wiring gives it to [store.Open]; it keeps no
// state, so that one value serves every database.
var Ledger store.Kind = ledger{}

type ledger struct{}

// The operations: each carries what was asked and, after its transaction, what was decided. refused is a decision,
// such as a wallet that is too small; a fault of the database is the writer's to report.
type (
	holdOp struct {
		Hold
		refused error
	}
	settleOp struct {
		Settlement
		settled Settled
		refused error
	}
	postOp struct {
		posting
		entry   Entry
		refused error
	}
	sweepOp struct {
		expired int
		more    bool
	}
)

// sweepLimit bounds the holds one sweepOp expires, so that a long backlog doesn't hold up the writer.
const sweepLimit = 256

// Name is the kind's name in metrics and logs.
func (ledger) Name() string { return "ledger" }

// Apply decides ops in arrival order: it locks their wallets in key order, reads what they touch, decides in Go, and
// writes the outcome with few statements (storage notes B). A fault of the database is the fault of all of them: the
// writer rolls back and runs each alone.
func (ledger) Apply(ctx context.Context, tx store.Tx, ops []store.Op) []error {
	faults := make([]error, len(ops))
	if err := apply(ctx, tx, ops); err != nil {
		for i := range faults {
			faults[i] = err
		}
	}
	return faults
}

func apply(ctx context.Context, tx store.Tx, ops []store.Op) error {
	var batch batch
	for _, op := range ops {
		if err := batch.add(op); err != nil {
			return err
		}
	}
	books, err := batch.read(ctx, tx)
	if err != nil {
		return err
	}
	for _, op := range ops {
		batch.decide(books, op)
	}
	return books.write(ctx, tx)
}

// batch is what a batch of operations needs to know before it can be decided.
type batch struct {
	wallets []WalletID
	holds   []string
	settles []*settleOp
	posts   []*postOp
	// due are the holds whose time is over, for the sweeps among the operations; they share them.
	due   []string
	sweep bool
}

func (b *batch) add(op store.Op) error {
	switch op := op.(type) {
	case *holdOp:
		b.wallets = append(b.wallets, op.Wallet)
		b.holds = append(b.holds, op.CallID)
	case *settleOp:
		b.settles = append(b.settles, op)
		if op.Held {
			b.wallets = append(b.wallets, op.Call.Wallet)
			b.holds = append(b.holds, op.Call.ID)
		}
	case *postOp:
		b.posts = append(b.posts, op)
		if op.kind != EntryRefund {
			b.wallets = append(b.wallets, op.wallet)
		}
	case *sweepOp:
		b.sweep = true
	default:
		return fmt.Errorf("the ledger has no operation %T", op)
	}
	return nil
}

// read loads the books of the batch. What leads to a wallet is read first, without locks, because it can't change
// (a call) or is read again (a hold); all else is read once the wallets are locked, for nobody changes it without
// that lock.
func (b *batch) read(ctx context.Context, tx store.Tx) (*books, error) {
	books := &books{
		newID: func() string { return store.NewID("txn") },

		wallets: make(map[WalletID]*walletRow, len(b.wallets)),
		holds:   make(map[string]*holdRow, len(b.holds)),
		calls:   map[string]callFigures{},
		entries: map[entryKey]Entry{},
	}
	if err := b.findWallets(ctx, tx, books); err != nil {
		return nil, err
	}
	slices.SortFunc(b.wallets, WalletID.compare)
	b.wallets = slices.Compact(b.wallets)
	if err := lockWallets(ctx, tx, b.wallets, books); err != nil {
		return nil, fmt.Errorf("lock wallets: %w", err)
	}
	if err := readHolds(ctx, tx, b.holds, books); err != nil {
		return nil, fmt.Errorf("read holds: %w", err)
	}
	if err := readCalls(ctx, tx, b.endedCalls(books), books); err != nil {
		return nil, fmt.Errorf("read calls: %w", err)
	}
	if err := b.readEntries(ctx, tx, books); err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	books.now = tx.Now() // last, because PostgreSQL sends its clock along with the first answer
	return books, nil
}

// findWallets adds the wallets that only the database knows to belong to an operation, and makes those that don't
// exist yet.
func (b *batch) findWallets(ctx context.Context, tx store.Tx, books *books) error {
	if b.sweep {
		err := readDueHolds(ctx, tx, func(id string, wallet WalletID) {
			b.due = append(b.due, id)
			b.holds = append(b.holds, id)
			b.wallets = append(b.wallets, wallet)
		})
		if err != nil {
			return fmt.Errorf("read due holds: %w", err)
		}
	}
	var refunded []string
	var credited []WalletID
	for _, op := range b.posts {
		if op.kind == EntryRefund {
			refunded = append(refunded, op.ref)
		} else {
			credited = append(credited, op.wallet)
		}
	}
	if err := readCalls(ctx, tx, refunded, books); err != nil {
		return fmt.Errorf("read refunded calls: %w", err)
	}
	for _, id := range refunded {
		if call, ok := books.calls[id]; ok {
			b.wallets = append(b.wallets, call.wallet)
		}
	}
	makeWallets(tx, credited)
	return nil
}

// endedCalls are the calls that may have been settled before: a hold that is open says that its call has not.
func (b *batch) endedCalls(books *books) []string {
	var ids []string
	for _, op := range b.settles {
		if hold := books.holds[op.Call.ID]; !op.Held || hold == nil || hold.status != holdOpen {
			ids = append(ids, op.Call.ID)
		}
	}
	return ids
}

// readEntries reads the postings that repeat a reference.
func (b *batch) readEntries(ctx context.Context, tx store.Tx, books *books) error {
	for _, op := range b.posts {
		wallet := op.wallet
		if op.kind == EntryRefund {
			wallet = books.calls[op.ref].wallet
		}
		if op.ref == "" || wallet == (WalletID{}) {
			continue
		}
		if err := readEntry(ctx, tx, entryKey{op.kind, wallet, op.ref}, books); err != nil {
			return err
		}
	}
	return nil
}

// decide sets every result afresh: an operation may be decided again after a fault.
func (b *batch) decide(books *books, op store.Op) {
	switch op := op.(type) {
	case *holdOp:
		op.refused = books.hold(op.Hold)
	case *settleOp:
		op.settled, op.refused = books.settle(op.Settlement)
	case *postOp:
		op.entry, op.refused = books.post(op.posting)
	case *sweepOp:
		op.expired, op.more = 0, len(b.due) == sweepLimit
		for _, id := range b.due {
			if books.expire(id) {
				op.expired++
			}
		}
	}
}
