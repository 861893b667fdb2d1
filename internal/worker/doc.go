// Package worker answers customers: it takes a conversation that is due, asks the model once for everything that waits,
// and sends the answer part by part (design §7 "Queue"; platforms notes §6).
//
// The path of a conversation: lease → open → settle what a dead worker left → send what is pending → ask the model under
// the turn's id → store the answer → send it → release.
//
// Invariants:
//   - One lease, one goroutine. Every write carries the lease's token; a worker that lost its lease writes nothing more.
//   - The request is stored before the model is called and never changes after an answer exists: however often a turn is
//     asked, it is charged once.
//   - A message is committed as sending before its platform is called. What broke after that is delivery_unknown, and
//     is never sent again by itself.
//   - Messages of a conversation leave in order; a part that failed takes the later parts of its answer with it.
//   - Every retry is bounded and jittered; what can't be mended by waiting stands with a code until its reason is gone.
//   - No organization takes more than half of the places.
//
// What does not belong here: rows (package inbox), the price of a call (package gateway), vendors' APIs (package
// platforms), metrics and configuration (package caddymodule).
package worker
