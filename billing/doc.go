// Package billing is the money: what a call costs, the hold that promises it, the charge that takes it, and the books that
// prove it. Amounts are int64 micros (millionths of the currency unit), never floats, and travel as decimal strings.
//
// # A call's money
//
// [Book.Hold] reserves an upper bound before the provider is called; the call then ends in exactly one way:
//
//	            ┌─ Settle ──────────→ settled   charged: from the hold, what is above it from the free balance
//	Hold → open ┼─ Settle with Void → voided    charged 0, the hold is released
//	            └─ Sweep, once late → expired   the hold is released; a later Settle charges 0 (Settled.Expired)
//	Hold → ?    ── Abandon ─────────→ voided    whether or not the hold's commit arrived; it can't be made any more
//
// A settlement writes the hold's end, the wallet, the ledger and the call's row in one transaction, and its figures never
// change: a repeated settlement returns those of the first. A call without a hold (the organization's own key, a model that
// costs nothing) and a charge of 0 get a call's row that is no charge.
//
// # Tranches
//
// A process may hold a part of a wallet, a tranche, and hold calls from it in memory ([Tranches]): Hold writes nothing then, and Settle
// draws the charge from the tranche. In the books a tranche is
//
//	taken → open ─┬─ recalled ── drained ─┐
//	              └───────────────────────┴→ ended
//
// and what it holds is what was taken, less what was drawn and what was given back. Another process that needs it recalls it; its own
// process gives back what no call uses, which drains it, and ends it when its calls have ended. When its lease is over, any process
// ends it.
// The id of a tranche that has ended fences its calls: they pay from the free balance.
//
// # A call's key
//
// A hold may carry an Idempotency-Key as a [Claim], which is written in the same transaction, for a free call alone. A key
// counts within its wallet. Another hold with it depends on the first call:
//
//	                   ┌─ Settle with Keep → done      replayed for 24 hours, then free
//	Hold → in progress ┼─ Settle without ──→ no row    the key runs again
//	                   ├─ Abandon ─────────→ no row    the key runs again
//	                   └─ lease over ──────→ no row    by the next hold or Sweep; the call's hold expires with it
//
// The lease ends with the hold, by the same clock. A call that takes a lapsed key over expires the hold of the call that lost
// it, so that no key is charged for twice.
//
// # Invariants
//
//   - No debt: 0 <= held <= balance, decided under the wallet's lock, written by a statement that names the values it was
//     decided on, and checked by the database. A refused hold doesn't block a smaller one behind it.
//   - Nothing twice: a hold and its charge are named by the call's id, a top-up or adjustment by its reference, a refund by the
//     call it refunds. A caller whose commit wasn't confirmed repeats the operation.
//   - Double entry: each ledger transaction has two legs that sum to 0, between org:<id>:<env> and sys:cash (top-ups),
//     sys:revenue (charges, refunds) or sys:loss (adjustments). The row of a charged call is the transaction of its charge, and
//     implies both legs; ledger_tx and ledger_entries have the others. The ledger only grows; a wallet is its projection.
//   - A cost that neither hold nor free balance carries is the operator's loss, kept in calls.shortfall_micros, and never
//     booked against the organization.
//   - A key has one call at a time, and at most one of its calls is charged while the key is kept: new claims are written under
//     the lock of their wallet, all others change under their own.
//   - Time is the database's: holds are made and expire by its clock.
//
// [Check] verifies the invariants on a database in use.
//
// # Files
//
// price.go is arithmetic. decide.go is every rule about money in plain Go, without SQL, and decide_claim.go every rule about
// keys. ledger.go is the [store.Kind] that locks the wallets of a batch, then its claims (each in key order), reads (read.go),
// decides and writes (write.go; claim_rows.go and tranche_rows.go do both for claims and tranches), with few statements for
// any number of operations. tranches.go is the memory of a process about its tranches, tranches_tend.go its regular work on
// them, decide_tranche.go every rule about them in the books, and recall.go their return to a call that needs the money.
// book.go, claim.go, posting.go, history.go and sweeper.go are what other packages call. check.go and invariants.go are the
// doctor.
//
// # What it does not do
//
// The gateway hashes keys, defines equal content, seals transcripts, waits for a call in flight, estimates tokens, chooses
// prices and judges how a call ended; it must settle or void every call it held for, and the sweeper is for processes that
// died. A failed operation isn't retried here. There is no credit, no transfer between wallets, and no payment provider.
package billing
