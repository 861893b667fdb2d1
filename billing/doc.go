// Package billing is the money: what a call costs, the hold that promises it, the charge that takes it, and the books
// that prove it. Amounts are int64 micros (millionths of the currency unit), never floats, and travel as decimal
// strings.
//
// # A call's money
//
// [Book.Hold] reserves an upper bound before the provider is asked; the call then ends in exactly one way:
//
//	            ┌─ Settle ──────────→ settled   charged: from the hold, what is above it from the free balance
//	Hold → open ┼─ Settle with Void → voided    charged 0, the hold is released
//	            └─ Sweep, once late → expired   the hold is released; a Settle that comes now charges 0 (Settled.Expired)
//	Hold → ?    ── Abandon ─────────→ voided    whether the hold's commit arrived or not; it can't be made any more
//
// A settlement writes the hold's end, the wallet, the ledger and the call's row in one transaction, and its figures
// never change: settled again, by whomever, a call returns the figures of the first time. A call without a hold (the
// organization's own key, a model that costs nothing) gets its row and no ledger transaction, and so does a charge
// of 0.
//
// # A call's key
//
// A hold may carry an Idempotency-Key as a [Claim], which is written in the same transaction, for a call that costs nothing
// alone. A key counts within its wallet. Another hold with it is told what became of the first:
//
//	                   ┌─ Settle with Keep → done      replayed for 24 hours, then as if it never was
//	Hold → in progress ┼─ Settle without ──→ no row    the key runs again
//	                   ├─ Abandon ─────────→ no row    the key runs again
//	                   └─ lease over ──────→ no row    by the next hold or Sweep; the call's hold expires with it
//
// The lease ends with the hold, by the same clock. Whoever takes a lapsed key over expires the hold of the call that
// lost it, so that no key is charged for twice.
//
// # What holds
//
//   - No debt: 0 <= held <= balance, decided under the wallet's lock, written by a statement that names the values it
//     was decided on, and checked by the database (design §2.4). A refused hold doesn't stand in the way of a smaller
//     one behind it.
//   - Nothing twice: a hold and its charge are named by the call's id, a top-up or adjustment by its reference, a
//     refund by the call it refunds. Whoever doesn't know whether a commit arrived repeats the operation.
//   - Double entry: each ledger transaction has two legs that sum to 0, between org:<id>:<env> and sys:cash (top-ups),
//     sys:revenue (charges, refunds) or sys:loss (adjustments). The ledger can only grow; a wallet is its projection.
//   - A cost that neither hold nor free balance carries is the operator's loss, kept in calls.shortfall_micros. It is
//     never booked against the organization.
//   - One call for a key at a time, and of its calls at most one is charged while the key is kept: new claims are written
//     under the lock of their wallet, and all others change under their own.
//   - Time is the database's: holds are made to expire, and expire, by its clock.
//
// [Check] proves the invariants L1 to L8, L10, L14, L15 and L18 of the reliability notes on a database in use.
//
// # How it is built
//
// price.go and micros.go are arithmetic. decide.go is every rule about money in plain Go, without SQL, and
// decide_claim.go every rule about keys. ledger.go is the [store.Kind] that locks the wallets of a batch, then its claims
// (each in key order), reads (read.go), decides and writes (write.go; claim_rows.go does both for claims), a few statements
// for any number of operations. book.go, claim.go, wallet.go, adjust.go and sweeper.go are what others call. check.go and
// invariants.go are the doctor.
//
// # What it does not do
//
// It doesn't hash keys, say what equal content is, seal transcripts or bound their size, or wait for a call in flight.
// It doesn't estimate tokens or bounds, choose prices, or judge how a call ended: the gateway does, and must settle or
// void every call it held for; the sweeper is for processes that died. It doesn't retry: an operation that failed is the
// caller's to repeat. It gives nobody credit, moves no money between wallets, and knows no payment provider. It
// imports the store and nothing else of ours (design §3).
package billing
