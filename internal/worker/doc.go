// Package worker answers customers: it leases a due conversation, calls the model once for all waiting texts, and sends the
// answer part by part.
//
// The path of a conversation: lease → open → settle what a dead worker left → send what is pending → call the model under the
// turn's id → store the answer → send it → release.
//
// Invariants:
//   - One lease, one goroutine. Every write carries the lease's token; a worker that has lost its lease writes nothing more.
//   - The request is stored before the model is called and never changes after an answer exists: however often a turn is
//     repeated, it is charged once.
//   - A message is committed as sending before its platform is called. A send that breaks off after that is delivery_unknown,
//     and never repeated.
//   - Messages of a conversation are sent in order; a part that fails takes the later parts of its answer with it.
//   - Every retry is bounded and jittered; a cause that waiting doesn't resolve stalls the turn with a code until it is gone.
//   - No organization takes more than half of the places. Places that get free go to the organizations with the fewest leases in all
//     workers, and none stays free while another organization has work.
//
// Rows belong to package inbox, the price of a call to package gateway, vendors' APIs to package platforms, metrics and
// configuration to package caddymodule.
package worker
