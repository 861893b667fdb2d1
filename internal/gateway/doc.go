// Package gateway runs one model call from a validated request to a settled outcome. The chat handler and the worker share it,
// so that a call costs the same whichever makes it.
//
// The path of a call (call.go): enter the limits → pick model and provider → bound the prompt → hold the highest possible price →
// open the vendor's call → pass text on (vendor.go) → settle (settle.go). Call returns, and the client may see the end of its
// answer, only after the settlement is committed.
//
// Invariants:
//   - Every call ends in exactly one [Outcome], and one function settles for all of them.
//   - No upstream call is made without a committed hold, unless the call is free (own provider key, price 0).
//   - The upstream call is detached from the request and joined to it by AfterFunc, so that settling survives a client that
//     left.
//   - No text of the vendor reaches [Failure.Message].
//
// HTTP and SSE belong to handlers, vendor dialects to providers, rows and ledgers to billing; keys and rate limits are checked
// before Call.
package gateway
