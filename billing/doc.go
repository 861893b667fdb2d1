// Package billing is the money: the cost of a call, the hold that promises it, the charge that collects it, and the books that
// prove it. Amounts are int64 micros (millionths of the currency unit), never floats, and travel as decimal strings.
//
// # A call's money
//
// [Book.Hold] reserves an upper bound before the provider is called. [Book.Settle] ends the call:
//
//	charged   = min(cost, reserved, free), after the reservation was released
//	shortfall = cost - charged
//
// The cost is the price of the call's tokens, by the price list at its beginning. A void is charged 0, and so is a call if another call
// has its key. Settle releases the reservation, charges the wallet and writes the call's row in one transaction. The figures never
// change: a repeated settlement returns the figures of the first.
//
// A reservation is a row only while its call runs: in holds, in the row of the call's key, or as a part of a tranche. When it expires,
// [Book.Sweep] releases it; a call that settles later pays from the free balance. A hold of unknown outcome is ended by a void, which waits
// for the lock of the wallet and so for that commit; no hold can be made for a call that has ended.
//
// # Tranches
//
// A process may hold a part of a wallet, a tranche, and hold calls from it in memory ([Tranches]): Hold writes nothing then, and Settle
// draws the charge from the tranche. A tranche exists or not; deleting its row fences the process that had it, and that process's calls
// pay from the free balance. The need of a process is never sent: an operation carries a ride, which reads the memory of the process when
// it is decided, under the lock of the wallet. A wallet from which another process needs more is recalled for the time of a lease, in
// which each settlement and renewal gives unused credits back.
//
// # A call's key
//
// A hold may carry an Idempotency-Key as a [Claim], which is written in the same transaction, for a free call alone. A key
// counts within its wallet. Another hold with it depends on the first call:
//
//	                   ┌─ Settle with Keep → done      replayed for 24 hours, then free
//	Hold → in progress ┼─ Settle without ──→ no row    the key runs again
//	                   └─ its time is over → no row    by the next hold or Sweep, with its reservation
//
// A call that comes late finds its key free, and finishes it when it is charged, or finds it with another call, and is not charged: no
// key is charged for twice.
//
// # Companions
//
// A hold or a settlement may carry an operation of another kind ([Companion]), which is applied before it in the same savepoint: a turn of a
// conversation begins with its call's hold and ends with its charge. The operation locks first, and rules: it refuses the hold, names a call
// that loses its hold, or says that the call lost its place and is charged 0.
//
// # Invariants
//
//   - No debt: 0 <= held <= balance, decided under the wallet's lock, written by a statement that names the values it was
//     decided on, and checked by the database. A refused hold doesn't block a smaller one behind it.
//   - Nothing twice: a hold and its charge are named by the call's id, a top-up or adjustment by its reference, a refund by the
//     call it refunds. A caller without a confirmation of its commit repeats the operation.
//   - Order is a number: charges and postings of a wallet are numbered without a gap, and each keeps the balance that it left.
//   - Each charge can be computed anew from its own row: tokens, price, reservation. A charge goes from the wallet to sys:revenue, a
//     posting names its account. Rows of charges and postings never change; a wallet is their projection.
//   - A cost that neither the reservation nor the free balance carries is the operator's loss, kept in calls.shortfall_micros, and never
//     booked against the organization.
//   - A key has one call at a time, and no more than one of its calls is charged while the key is kept: new claims are written under
//     the lock of their wallet, all others change under their own.
//   - Kept answers of a wallet are limited ([Book.KeepAtMost]). An answer above the limit is charged and not kept.
//   - Time is the database's: holds are made and expire by its clock.
//
// [Check] verifies the invariants on a database in use.
//
// # Files
//
// price.go is arithmetic. decide.go is every rule about money in plain Go, without SQL, and decide_claim.go every rule about
// keys. ledger.go is the [store.Kind] that locks the wallets of a batch, reads, decides and writes, with few statements for any
// number of operations, which are in rows.go. tranches.go is the memory of a process about its tranches with its regular work on
// them, and decide_tranche.go every rule about them in the books. Other packages call book.go, posting.go, history.go and
// sweeper.go. check.go and invariants.go are the doctor.
//
// # What it does not do
//
// The gateway hashes keys, defines equal content, seals transcripts, waits for a call in flight, estimates tokens, chooses
// prices and judges how a call ended; it must settle or void every call it held for, and the sweeper is for processes that
// died. A failed operation isn't retried here. There is no credit, no transfer between wallets, and no payment provider.
package billing
