package billing

import (
	"context"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Ledger turns the operations of a [Book] into rows. It is a kind of [store.Open]. It has no state, so one value serves every
// database.
var Ledger store.Kind = ledger{}

type ledger struct{}

// The operations: each carries its request and, after its transaction, its decision. refused is a decision, such as a wallet that is too small,
// while the writer reports faults of the database. recalls means that the free balance was too small before, so tranches give unused credits back,
// and pending that some processes may still do so.
type (
	holdOp struct {
		Hold

		ride    *ride // may be nil
		recalls bool
		returns []*ride // of all tranches of the wallet, if it recalls

		// finished is the finished call with the same key and content. If it is set, nothing was held.
		finished string
		periods  string // the names of the periods in which the amount was reserved
		pending  bool
		refused  error
	}
	settleOp struct {
		Settlement

		// recorded means that the call has neither money nor a key, and that its caller doesn't wait. An existing row with the same
		// id remains.
		recorded bool
		// ride is set for a call that is held from a tranche.
		ride      *ride
		keptBytes int64
		priceID   int64     // 0 for a call that costs nobody anything
		cost      any       // the operator's, nil if it is unknown
		price     *priceRow // nil if its row is known to exist

		settled Settled
		refused error
	}
	postOp struct {
		posting

		recalls bool

		entry   Entry
		pending bool
		refused error
	}
	sweepOp struct {
		lost Lost
		done int // rows of all kinds that it ended
		more bool
	}
)

// Urgent implements [store.Urgent]. A settlement ends a hold or a claim, and the vendor has already worked for it.
func (op *settleOp) Urgent() bool { return op.ReservedMicros > 0 || op.Claim != nil }

// Undo implements [store.Undoer].
func (op *holdOp) Undo() {
	op.ride.undo()
	for _, r := range op.returns {
		r.undo()
	}
}

// Undo implements [store.Undoer].
func (op *settleOp) Undo() { op.ride.undo() }

// Undo implements [store.Undoer].
func (op *tendOp) Undo() {
	for _, r := range op.rides {
		r.undo()
	}
}

// Size implements [store.Sized].
func (op *holdOp) Size() int { return sizeOf(op.With) }

// Joins implements [store.Joint].
func (op *holdOp) Joins() store.Kind { return kindOf(op.With) }

// Joins implements [store.Joint].
func (op *settleOp) Joins() store.Kind { return kindOf(op.With) }

func kindOf(with Companion) store.Kind {
	if with == nil {
		return nil
	}
	return with.Kind()
}

// Urgent implements [store.Urgent]: other operations may wait for the returned credits, and a lease must not run out behind other work.
func (*tendOp) Urgent() bool { return true }

// Size implements [store.Sized].
func (op *settleOp) Size() int { return len(op.Response) + sizeOf(op.With) }

func sizeOf(with Companion) int {
	if sized, ok := with.(store.Sized); ok {
		return sized.Size()
	}
	return 0
}

// Urgent implements [store.Urgent]. A sweep releases the holds of killed processes. A process runs one sweep at a time.
func (*sweepOp) Urgent() bool { return true }

// sweepLimit limits the rows of each kind that one sweepOp ends, so that a long backlog doesn't block the writer.
const sweepLimit = 256

// Name is the kind's name in metrics and logs.
func (ledger) Name() string { return "ledger" }

// Apply decides ops in arrival order. It locks their wallets in key order, reads the rows that they need, decides in Go, and writes the outcome
// with few statements. A fault of the database is the fault of all operations: the writer rolls back and runs each alone.
func (ledger) Apply(ctx context.Context, tx store.Tx, ops []store.Op) []error {
	return slices.Repeat([]error{apply(ctx, tx, ops)}, len(ops))
}

func apply(ctx context.Context, tx store.Tx, ops []store.Op) error {
	ops, err := applyCompanions(ctx, tx, ops)
	if err != nil {
		return err
	}
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
		if err := books.payClaims(); err != nil {
			return fmt.Errorf("pay what payments took back: %w", err)
		}
	}
	books.write(tx)
	return passFailpoints(ctx, tx, ops)
}

// applyCompanions applies the companions of the operations with the transaction's other operations of their kind. It returns the ledger's own.
func applyCompanions(ctx context.Context, tx store.Tx, ops []store.Op) (own []store.Op, err error) {
	var kind store.Kind
	var others []store.Op
	for _, op := range ops {
		if joint, ok := op.(*holdOp); ok && joint.With != nil {
			kind, others = joint.With.Kind(), append(others, joint.With)
		} else if joint, ok := op.(*settleOp); ok && joint.With != nil {
			kind, others = joint.With.Kind(), append(others, joint.With)
		}
	}
	if kind == nil {
		return ops, nil
	}
	for _, op := range ops {
		switch op.(type) {
		case *holdOp, *settleOp, *postOp, *payOp, *tendOp, *sweepOp:
			own = append(own, op)
		default:
			others = append(others, op)
		}
	}
	for _, fault := range kind.Apply(ctx, tx, others) {
		if fault != nil {
			return nil, fault
		}
	}
	return own, nil
}

// passFailpoints writes the last row of the batch and passes the failpoints between the row and COMMIT. Without failpoints the
// last rows are sent together with COMMIT.
func passFailpoints(ctx context.Context, tx store.Tx, ops []store.Op) error {
	if !failpoint.Enabled() {
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

// batch lists the rows that must be read before a batch of operations can be decided.
type batch struct {
	wallets []WalletID
	// made are the wallets to create if they are missing: the wallets of credits, and of claims, which are written under the lock of the wallet.
	made []WalletID
	// tranched are the wallets with tranches to read.
	tranched []WalletID
	// held are the calls with holds to read. ended are the calls that may have ended, which is read.
	held, ended []callKey
	// running are claims that may be in progress. finished are claims that may belong to a call that has ended.
	running, finished []claimKey
	// owners are the owners of the budgets that count a hold. periods are the periods of the holds of settled calls.
	owners     []budgetOwner
	periods    []periodKey
	lastWallet WalletID
	lastNames  string
	// settles are the settlements of calls that may have a reservation of their own.
	settles []*settleOp
	posts   []*postOp
	pays    []*payOp
	// due are the expired holds, shared by the sweeps of the batch. backlog reports that a sort may have more.
	due            []callKey
	sweep, backlog bool
	// records means that the batch contains only calls without money and key, for which nothing is read.
	records bool
}

func (b *batch) add(op store.Op) error {
	settle, isSettle := op.(*settleOp)
	b.records = b.records && isSettle && settle.recorded
	switch op := op.(type) {
	case *holdOp:
		b.addHold(op)
	case *settleOp:
		if op.recorded {
			return nil
		}
		b.wallets = append(b.wallets, op.Call.Wallet)
		if op.ride != nil {
			b.addRides(op.ride)
		} else if op.Budgets != nil {
			b.addPeriods(op.Call.Wallet, op.Budgets.periods)
		}
		switch {
		case op.ride != nil:
			b.tranched = append(b.tranched, op.Call.Wallet)
			if op.ride.repeats() {
				b.ended = append(b.ended, callKey{op.Call.Wallet, op.Call.ID})
			}
			return nil
		case op.Claim != nil:
			b.made = append(b.made, op.Call.Wallet)
			b.running = append(b.running, claimKey{op.Call.Wallet, op.Claim.KeyHash})
		default:
			b.held = append(b.held, callKey{op.Call.Wallet, op.Call.ID})
		}
		b.settles = append(b.settles, op)
	case *postOp:
		b.posts = append(b.posts, op)
		if op.kind == EntryRefund {
			return nil
		}
		b.wallets = append(b.wallets, op.wallet)
		b.made = append(b.made, op.wallet)
		if op.recalls {
			b.tranched = append(b.tranched, op.wallet)
		}
	case *tendOp:
		for _, r := range op.rides {
			b.wallets = append(b.wallets, r.tranche.wallet)
			b.tranched = append(b.tranched, r.tranche.wallet)
		}
		b.addRides(op.rides...)
	case *sweepOp:
		b.sweep = true
	case *payOp:
		b.pays = append(b.pays, op)
	default:
		return fmt.Errorf("the ledger has no operation %T", op)
	}
	return nil
}

func (b *batch) addHold(op *holdOp) {
	b.wallets = append(b.wallets, op.Wallet)
	b.ended = append(b.ended, callKey{op.Wallet, op.CallID})
	if op.Claim == nil {
		b.held = append(b.held, callKey{op.Wallet, op.CallID})
	} else {
		key := claimKey{op.Wallet, op.Claim.KeyHash}
		b.made, b.running, b.finished = append(b.made, op.Wallet), append(b.running, key), append(b.finished, key)
	}
	b.owners = append(b.owners, op.Budgets.owners(op.Wallet)...)
	if replaced, _, _ := ruling(op.With); replaced != "" {
		b.held = append(b.held, callKey{op.Wallet, replaced})
	}
	if op.ride != nil || op.recalls {
		b.tranched = append(b.tranched, op.Wallet)
		b.addRides(op.ride)
		b.addRides(op.returns...)
	}
}

// addRides adds the periods of the tranches of rides.
func (b *batch) addRides(rides ...*ride) {
	for _, r := range rides {
		if r != nil && r.tranche.version > 0 {
			b.addPeriods(r.tranche.wallet, r.names())
		}
	}
}

// addPeriods adds periods by their names. Most operations of a batch name the same ones.
func (b *batch) addPeriods(wallet WalletID, names string) {
	if names != b.lastNames || wallet != b.lastWallet {
		b.periods = slices.AppendSeq(b.periods, periodKeys(wallet, names))
		b.lastWallet, b.lastNames = wallet, names
	}
}

// read loads the books of the batch. Rows that lead to a wallet are read first, without locks, because they can't change (a call) or are read
// again (a hold, a claim). All other rows are read after the wallets are locked, and change only under these locks. On PostgreSQL the locks and
// the reads under them share a round trip, because each statement reads everything that was committed before it began.
func (b *batch) read(ctx context.Context, tx store.Tx) (*books, error) {
	books := &books{
		wallets: make(map[WalletID]*walletRow, len(b.wallets)), holds: make(map[string]*holdRow, len(b.held)),
		claims: make(map[claimKey]*claimRow, len(b.running)), calls: map[string]callFigures{}, entries: map[entryKey]Entry{},
		corrected: map[correctedKey]*corrected{}, payments: map[paymentKey]*paymentRow{}, newPrices: map[int64]*priceRow{},
	}
	if b.records {
		books.now = tx.Now()
		return books, nil
	}
	if err := b.findWallets(ctx, tx); err != nil {
		return nil, err
	}
	slices.SortFunc(b.wallets, WalletID.compare)
	b.wallets = slices.Compact(b.wallets)
	slices.SortFunc(b.tranched, WalletID.compare)
	b.tranched = slices.Compact(b.tranched)
	if err := b.readLocked(ctx, tx, books); err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(b.made, func(id WalletID) bool { return books.wallets[id] != nil })
	if len(missing) > 0 {
		// The inserts wait for another transaction that creates the same wallets, hence the order. Organizations that don't exist get none.
		slices.SortFunc(missing, WalletID.compare)
		for _, id := range slices.Compact(missing) {
			tx.Queue(store.AnyRows, insertWallet, id.OrgID, string(id.Env))
		}
		if err := b.readLocked(ctx, tx, books); err != nil {
			return nil, err
		}
	}
	if err := b.readLate(ctx, tx, books); err != nil {
		return nil, err
	}
	if err := readNamed(ctx, tx, books); err != nil {
		return nil, err
	}
	books.now = tx.Now() // last, because PostgreSQL sends its clock with the first answer
	return books, nil
}

// readLocked locks the wallets, and reads the rows that these locks protect.
func (b *batch) readLocked(ctx context.Context, tx store.Tx, books *books) error {
	queueWallets(tx, b.wallets, books)
	queueTranches(tx, b.tranched, books)
	queueHolds(tx, b.held, books)
	queueClaims(tx, false, b.running, books)
	queueClaims(tx, true, b.finished, books)
	queueEnded(tx, b.ended, books)
	store.QueueListed(tx, listSizes, selectBudgets, "", b.owners, func(values []any, o budgetOwner) []any {
		return append(listWallet(values, o.wallet), string(o.kind), o.id)
	}, books.scanBudget) // the lock of the wallet protects them
	queuePeriods(tx, b.periods, books)
	for _, op := range b.posts {
		queuePosted(tx, op.posting, books)
	}
	for _, op := range b.pays {
		queuePayment(tx, op, books)
	}
	return store.Wrap("read the books", tx.Flush(ctx))
}

// readLate reads whether calls without a reservation have ended, and which calls have finished their keys. A reservation ends
// with its call, so nothing else has to be read for a call with a reservation.
func (b *batch) readLate(ctx context.Context, tx store.Tx, books *books) error {
	var ended []callKey
	var finished []claimKey
	for _, op := range b.settles {
		if op.Claim == nil && books.holds[op.Call.ID] != nil {
			continue
		}
		if op.Claim != nil {
			key := claimKey{op.Call.Wallet, op.Claim.KeyHash}
			if claim := books.claims[key]; claim == nil {
				finished = append(finished, key)
			} else if claim.callID == op.Call.ID && !claim.done {
				continue
			}
		}
		ended = append(ended, callKey{op.Call.Wallet, op.Call.ID})
	}
	queueEnded(tx, ended, books)
	queueClaims(tx, true, finished, books)
	return store.Wrap("read what late calls have left", tx.Flush(ctx))
}

// decide sets every result anew, because an operation may be decided again after a fault.
func (b *batch) decide(books *books, op store.Op) {
	switch op := op.(type) {
	case *holdOp:
		if op.recalls {
			op.pending = books.recall(op.Wallet, op.returns, func() bool {
				_, err := books.admit(op.Hold)
				return err != nil || books.wallets[op.Wallet].free() < op.AmountMicros
			})
		}
		op.finished, op.refused = books.hold(op.Hold)
		op.periods = books.reservedIn(op.Hold)
		if !op.recalls {
			books.carry(op.ride, op.refused)
		}
	case *settleOp:
		if op.recorded {
			if op.price != nil {
				books.newPrices[op.priceID] = op.price
			}
			books.records = append(books.records, callRow{settleOp: op, endedAt: books.now})
			return
		}
		op.settled, op.refused = books.settle(op)
		books.carry(op.ride, op.refused)
	case *postOp:
		if op.recalls {
			op.pending = books.recall(op.wallet, nil, func() bool { return books.wallets[op.wallet].free() < -op.micros })
		}
		op.entry, op.refused = books.post(op.posting)
	case *tendOp:
		for _, r := range op.rides {
			books.carry(r, nil)
		}
	case *payOp:
		op.payment, op.refused = books.pay(op)
	case *sweepOp:
		op.lost, op.done = books.sweep(b.due)
		op.more = b.backlog
	}
}
