// Package inbox is the durable queue of customer messages: messages from the platforms, the leases of conversations, the turns
// that answer messages, and the delivery of every part of an answer. The rows of the conversation are the queue; there is no
// other.
//
// # The path of a message
//
//	Enqueue ─→ message ─ Lease, Open ─→ BeginCall ─→ turn asking ─ Answer ─→ outbound pending ─ Sending ─→ sending ─ Sent ─→ sent
//	                                                  │                                                   └ SendFailed → failed, delivery_unknown
//	                                                  └ GiveWay, Stand
//
// # Invariants
//
//   - A message is accepted once: (channel, platform message id) is unique, and [Queue.Enqueue] returns only after the commit.
//   - A conversation is with one worker at a time. A lease carries a token that only grows; every write of a worker locks the
//     conversation and compares it, so that a worker that has lost the lease changes nothing ([ErrLeaseLost]). Leases run out
//     by the database's clock.
//   - A text is answered by at most one turn, and a turn has one answer. A turn takes all waiting texts, in order of platform
//     time, then arrival. A conversation has one running turn, which its row names.
//   - A turn names its last call ([Call]), the only one that can be charged: hold and charge are durable with its beginning and its end.
//   - `sending` is committed before the platform is called. A worker that finds such a part marks it delivery_unknown, because
//     its own worker died; no part is sent twice, unless a person wishes so ([Queue.Resend]).
//   - No part of the assistant's is sent while a person has the conversation ([ErrHandedOver]), but the last words with which it gave the
//     conversation to people.
//   - Bodies, names and requests are sealed before they reach the writer, and never logged.
//
// [Check] verifies the invariants that rows can show.
//
// # Files
//
// lease.go chooses which due conversations a worker gets, and in which order; claim.go leases one for a waiting visitor. open.go,
// turn.go and outbound.go have the worker's operations under a lease, call.go what they share with the turn's call, doubt.go those for
// what was interrupted, last_words.go the assistant's handing over. policy.go says what becomes of a turn or part that stands, and lets it;
// attention.go and reconnect.go end that. People's operations are in handover.go, send_key.go, template.go, standing.go (what stands
// unanswered), resend.go (what wasn't delivered), customer.go and export.go (the customer as a person).
// withdraw.go deletes what its sender has taken back.
//
// [Kind] is the only writer. It makes missing conversations (sorted), locks all that a batch touches in order of id and reads with
// that what its operations depend on, decides arrivals in plain Go (decide.go, of echoes echo.go), writes them with few statements, runs
// the workers' operations one after the other on the locked rows, then leases with SKIP LOCKED. What is leased is read in the same
// transaction ([Queue.OpenLeased]). Where turns begin or end with their calls, the ledger's kind applies the whole batch before its own, so
// that a transaction locks all of its conversations in one order, and then wallets: nodes can't deadlock.
//
// # What it does not do
//
// The worker calls models and platforms, builds prompts, splits texts, chooses pauses and judges whether a message may be sent.
// The webhook verifies signatures and resolves routes.
package inbox
