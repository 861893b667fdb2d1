package billing

import (
	"context"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Ledger turns the operations of a [Book] into rows. [store.Open] gets it; it has no state, so that one value serves every
// database.
var Ledger store.Kind = ledger{}

type ledger struct{}

// The operations: each carries its request and, after its transaction, its decision. refused is a decision, such as a wallet
// that is too small; the writer reports faults of the database.
type (
	holdOp struct {
		Hold
		// take asks for more of the wallet on the way, nil without.
		take *take
		// finished is the call that has the key already, with the same content; then nothing was held.
		finished string
		refused  error
	}
	settleOp struct {
		Settlement
		// recorded: the call has neither money nor a key, and its caller doesn't wait. A row of the same id stands.
		recorded bool
		// abandoned is the hold of a call whose hold may or may not exist, nil for every other settlement.
		abandoned *Hold
		// use is what a call without a hold of its own was granted, nil for every other one.
		use *use

		settled Settled
		refused error
	}
	postOp struct {
		posting
		entry   Entry
		refused error
	}
	sweepOp struct {
		expired int // holds
		lapsed  int // tranches
		removed int // claims
		more    bool
	}
)

// Urgent implements [store.Urgent]: a settlement ends a hold or a claim, and the vendor has already worked for it.
func (op *settleOp) Urgent() bool { return op.Held || op.Claim != nil }

// Urgent implements [store.Urgent]: what a tranche gives back may be waited for, and a lease must not run out behind other work.
func (*trancheOp) Urgent() bool { return true }

// Size implements [store.Sized].
func (op *settleOp) Size() int { return len(op.Response) }

// Urgent implements [store.Urgent]: a sweep releases what killed processes have left; a process runs one at a time.
func (*sweepOp) Urgent() bool { return true }

// sweepLimit bounds the rows of each sort that one sweepOp ends, so that a long backlog doesn't block the writer.
const sweepLimit = 256

// Name is the kind's name in metrics and logs.
func (ledger) Name() string { return "ledger" }

// Apply decides ops in arrival order: it locks their wallets in key order, reads what they touch, decides in Go, and writes the
// outcome with few statements. A fault of the database is the fault of all operations: the writer rolls back and runs each
// alone.
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
	batch := batch{records: true}
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
	books.write(tx)
	return passFailpoints(ctx, tx, ops)
}

// passFailpoints writes the last row of the batch and passes the failpoints between it and COMMIT. Without failpoints the last rows
// are sent together with COMMIT.
func passFailpoints(ctx context.Context, tx store.Tx, ops []store.Op) error {
	if !failpoint.Enabled {
		return nil
	}
	if err := tx.Flush(ctx); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	for _, op := range ops {
		switch op := op.(type) {
		case *holdOp:
			if op.refused == nil && op.finished == "" {
				failpoint.Hit(failpoint.AfterClaim)
			}
		case *settleOp:
			if op.refused == nil {
				failpoint.Hit(failpoint.BeforeCommit)
			}
		}
	}
	failpoint.SlowCommit()
	return nil
}

// batch names the rows that must be read before a batch of operations can be decided.
type batch struct {
	wallets []WalletID
	holds   []string
	settles []*settleOp
	posts   []*postOp
	claims  []claimKey
	// tranched are the wallets of which the tranches are read.
	tranched []WalletID
	// takenOver are the claims that may be taken from a call in progress.
	takenOver map[claimKey]bool
	// unheld are the calls without a hold whose row shows whether they have ended.
	unheld []string
	// claimants are the wallets of claims without a hold, and of abandoned holds. They are made when they don't exist: a new
	// claim is written under its wallet's lock, and an abandoned one waits there for the transaction that wrote it.
	claimants []WalletID
	// due are the holds whose time is over, shared by the sweeps of the batch. backlog reports that there may be more of a
	// sort.
	due            []string
	sweep, backlog bool
	// records: the batch has nothing but calls without money and key, for which nothing is read.
	records bool
}

func (b *batch) add(op store.Op) error {
	settle, isSettle := op.(*settleOp)
	b.records = b.records && isSettle && settle.recorded
	switch op := op.(type) {
	case *holdOp:
		b.wallets = append(b.wallets, op.Wallet)
		b.holds = append(b.holds, op.CallID)
		if op.take != nil {
			b.tranched = append(b.tranched, op.Wallet)
		}
		if op.Claim != nil {
			b.addClaim(claimKey{op.Wallet, op.Claim.KeyHash}, op.Claim.TakeOver)
		}
		if op.AmountMicros == 0 {
			b.claimants = append(b.claimants, op.Wallet)
			b.unheld = append(b.unheld, op.CallID)
		}
	case *settleOp:
		if op.recorded {
			return nil
		}
		if op.use != nil {
			b.addTranched(op.Call.Wallet)
			b.unheld = append(b.unheld, op.Call.ID)
			return nil
		}
		b.settles = append(b.settles, op)
		if !op.Held {
			b.unheld = append(b.unheld, op.Call.ID)
		}
		if op.Claim != nil {
			b.claims = append(b.claims, claimKey{op.Call.Wallet, op.Claim.KeyHash})
		}
		if op.Held || op.abandoned != nil {
			b.wallets = append(b.wallets, op.Call.Wallet)
			b.holds = append(b.holds, op.Call.ID)
		}
		if op.abandoned != nil {
			b.claimants = append(b.claimants, op.Call.Wallet)
		}
	case *postOp:
		b.posts = append(b.posts, op)
		if op.kind != EntryRefund {
			b.wallets = append(b.wallets, op.wallet)
		}
	case *trancheOp:
		b.addTranched(op.wallet)
	case *recallOp:
		b.addTranched(op.wallet)
	case *sweepOp:
		b.sweep = true
	default:
		return fmt.Errorf("the ledger has no operation %T", op)
	}
	return nil
}

func (b *batch) addTranched(wallet WalletID) {
	b.wallets = append(b.wallets, wallet)
	b.tranched = append(b.tranched, wallet)
}

func (b *batch) addClaim(key claimKey, takeOver bool) {
	b.claims = append(b.claims, key)
	if !takeOver {
		return
	}
	if b.takenOver == nil {
		b.takenOver = map[claimKey]bool{}
	}
	b.takenOver[key] = true
}

// read loads the books of the batch. What leads to a wallet is read first, without locks, because it can't change (a call) or
// is read again (a hold, a claim); all else is read once the wallets are locked, and changes only under that lock. A claim may
// also change under its own lock alone, because a sweep removes claims of many wallets. On PostgreSQL the locks and what is
// read under them share a round trip: each statement sees what was committed before it began.
func (b *batch) read(ctx context.Context, tx store.Tx) (*books, error) {
	books := &books{
		newID: func() string { return store.NewID("txn") },

		wallets: make(map[WalletID]*walletRow, len(b.wallets)),
		holds:   make(map[string]*holdRow, len(b.holds)),
		calls:   map[string]callFigures{},
		entries: map[entryKey]Entry{},
		claims:  make(map[claimKey]*claimRow, len(b.claims)),
	}
	if b.records {
		return books, nil
	}
	if err := b.findWallets(ctx, tx, books); err != nil {
		return nil, err
	}
	slices.SortFunc(b.wallets, WalletID.compare)
	b.wallets = slices.Compact(b.wallets)
	slices.SortFunc(b.claims, claimKey.compare)
	queueWallets(tx, b.wallets, books)
	slices.SortFunc(b.tranched, WalletID.compare)
	queueTranches(tx, slices.Compact(b.tranched), books)
	queueHolds(tx, b.holds, books)
	queueClaims(tx, slices.Compact(b.claims), books)
	queueCalls(tx, b.unheld, books)
	b.queueEntries(tx, books)
	if err := tx.Flush(ctx); err != nil {
		return nil, fmt.Errorf("read the books: %w", err)
	}
	queueHolds(tx, b.losableHolds(tx.Now(), books), books)
	queueCalls(tx, b.endedCalls(books), books)
	if err := tx.Flush(ctx); err != nil {
		return nil, fmt.Errorf("read what has ended: %w", err)
	}
	books.now = tx.Now() // last, because PostgreSQL sends its clock along with the first answer
	return books, nil
}

// findWallets adds the wallets that only the database can connect with an operation, and makes missing ones.
func (b *batch) findWallets(ctx context.Context, tx store.Tx, books *books) error {
	if b.sweep {
		if err := b.findDue(ctx, tx); err != nil {
			return err
		}
	}
	var refunded []string
	credited := b.claimants
	for _, op := range b.posts {
		if op.kind == EntryRefund {
			refunded = append(refunded, op.ref)
		} else {
			credited = append(credited, op.wallet)
		}
	}
	if len(refunded) > 0 {
		queueCalls(tx, refunded, books)
		if err := tx.Flush(ctx); err != nil {
			return fmt.Errorf("read refunded calls: %w", err)
		}
	}
	for _, id := range refunded {
		if call, ok := books.calls[id]; ok {
			b.wallets = append(b.wallets, call.wallet)
		}
	}
	makeWallets(tx, credited)
	return nil
}

// findDue finds what a sweep ends: holds whose time is over with their claims, claims whose lease is over, and finished ones
// whose life is over.
func (b *batch) findDue(ctx context.Context, tx store.Tx) error {
	err := readDueHolds(ctx, tx, func(id string, wallet WalletID) {
		b.due = append(b.due, id)
		b.holds = append(b.holds, id)
		b.wallets = append(b.wallets, wallet)
	})
	if err != nil {
		return fmt.Errorf("read due holds: %w", err)
	}
	// Like all reads for a sweep these take no lock: the claims are read again.
	queueByIDs(tx, selectClaimsOfCalls, b.due, collectClaimKeys(&b.claims))
	if err := tx.Flush(ctx); err != nil {
		return fmt.Errorf("read claims of due holds: %w", err)
	}
	lapsed, err := readDueTranches(ctx, tx)
	if err != nil {
		return fmt.Errorf("read tranches whose lease is over: %w", err)
	}
	for _, wallet := range lapsed {
		b.addTranched(wallet)
	}
	b.backlog = len(b.due) == sweepLimit || len(lapsed) == sweepLimit
	// A claim whose hold is still open waits until the hold is due.
	for _, text := range []string{selectLapsedClaims, selectOldClaims} {
		before := len(b.claims)
		if err := tx.Query(ctx, collectClaimKeys(&b.claims), text, tx.Now(), int64(sweepLimit)); err != nil {
			return fmt.Errorf("read claims whose time is over: %w", err)
		}
		b.backlog = b.backlog || len(b.claims)-before == sweepLimit
	}
	return nil
}

// losableHolds returns the unread holds of claims that their calls may lose.
func (b *batch) losableHolds(now int64, books *books) (ids []string) {
	for key, claim := range books.claims {
		losable := claim.leaseUntil < now || b.takenOver[key]
		if !claim.done && losable && books.holds[claim.callID] == nil {
			ids = append(ids, claim.callID)
		}
	}
	return ids
}

// endedCalls returns the calls that may have been settled before: an open hold shows that its call has not.
func (b *batch) endedCalls(books *books) (ids []string) {
	for _, op := range b.settles {
		if hold := books.holds[op.Call.ID]; op.Held && (hold == nil || hold.status != holdOpen) {
			ids = append(ids, op.Call.ID)
		}
	}
	return ids
}

// queueEntries reads the postings that repeat a reference.
func (b *batch) queueEntries(tx store.Tx, books *books) {
	for _, op := range b.posts {
		wallet := op.wallet
		if op.kind == EntryRefund {
			wallet = books.calls[op.ref].wallet
		}
		if op.ref != "" && wallet != (WalletID{}) {
			queueEntry(tx, entryKey{op.kind, wallet, op.ref}, books)
		}
	}
}

// decide sets every result anew: an operation may be decided again after a fault.
func (b *batch) decide(books *books, op store.Op) {
	switch op := op.(type) {
	case *holdOp:
		op.finished, op.refused = books.hold(op.Hold)
		books.addTake(op.Wallet, op.take, op.refused)
	case *settleOp:
		if op.recorded {
			books.records = append(books.records, callRow{Call: op.Call})
			return
		}
		if op.abandoned != nil {
			books.preclude(*op.abandoned)
		}
		op.settled, op.refused = books.settle(op.Settlement, op.use)
		if op.use != nil {
			books.addTake(op.Call.Wallet, op.use.take, op.refused)
		}
	case *trancheOp:
		books.move(op)
	case *recallOp:
		books.recall(op)
	case *postOp:
		op.entry, op.refused = books.post(op.posting)
	case *sweepOp:
		before := books.expired
		for _, id := range b.due {
			books.expire(id)
		}
		op.removed = books.sweepClaims()
		op.expired, op.more = books.expired-before, b.backlog
		op.lapsed = 0
		for _, wallet := range books.wallets {
			op.lapsed += books.lapseTranches(wallet)
		}
	}
}
