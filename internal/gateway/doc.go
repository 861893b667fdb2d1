// Package gateway runs one model call from a validated request to a settled outcome (design §5). The chat handler
// and the worker share it, so that a call costs the same whoever makes it.
//
// The path of a call: pick model and provider → bound the prompt → hold the highest possible price → open the
// upstream call → hand out text → settle. Only after the settlement is committed does Call return, and only then
// may the caller tell its client that the answer is complete.
//
// Invariants:
//   - Every call ends in exactly one [Outcome], and money is settled in one place for all of them (settle.go).
//   - No upstream call is made without a committed hold, unless the call is free (own provider key, price 0).
//   - The upstream call is detached from the request and joined to it by AfterFunc, so that settling survives
//     a client that left.
//   - Nothing of the vendor's text reaches [Failure.Message].
//
// What does not belong here: HTTP and SSE (package handlers), vendor dialects (package providers), rows and
// ledgers (package billing), API keys and rate limits (checked before Call).
package gateway
