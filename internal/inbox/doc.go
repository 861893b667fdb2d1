// Package inbox is the durable queue of customer messages (design §7): what came from the platforms, which conversation
// a worker has, which turn answers which messages, and what became of every part of an answer. The rows of the
// conversation are the queue; there is no other.
//
// # A message's way
//
//	Enqueue ─→ message ─ Lease, Open ─→ BeginTurn ─→ turn asking ─ Answer ─→ outbound pending ─ Sending ─→ sending ─ Sent ─→ sent
//	                                                  │                                                   └ SendFailed → failed, delivery_unknown
//	                                                  └ Supersede, Attention, Dead
//
// # What holds
//
//   - A message is accepted once: (channel, platform message id) is unique for good, and [Queue.Enqueue] returns only
//     after the commit (spec §6.2).
//   - A conversation is with one worker at a time. A lease carries a token that only grows; every write of a worker
//     locks the conversation and compares it, so that whoever lost the lease changes nothing ([ErrLeaseLost]). Leases
//     run out by the database's clock.
//   - A text is answered by at most one turn, and a turn has one answer. A turn takes all texts that wait, in order of
//     platform time, then arrival; a conversation has one running turn (unique index).
//   - `sending` is committed before the platform is asked. Who finds a part there, because its worker died, marks it
//     delivery_unknown; nothing is sent twice.
//   - Nothing of the assistant is sent while a human has the conversation ([ErrHandedOver]).
//   - Bodies, names and requests are sealed before they reach the writer, and never logged.
//
// [Check] proves the stored part of L17 (reliability notes §1.4).
//
// # How it is built
//
// [Kind] is the only writer. It makes the conversations that are missing (sorted), locks all that a batch touches in
// order of id, decides arrivals in plain Go (decide.go) and writes them with few statements, then runs the workers'
// operations one after the other on the locked rows, then leases with SKIP LOCKED: nodes can't deadlock.
//
// # What it does not do
//
// It calls no model and no platform, builds no prompt, splits no text, chooses no backoff, and doesn't judge whether a
// message may be sent: the worker does. It verifies no signature and resolves no route: the webhook does. It imports
// the store and the vault and nothing else of ours (design §3).
package inbox
