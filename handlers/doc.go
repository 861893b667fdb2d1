// Package handlers is the HTTP surface of the service in plain Go: the error contract, the checks that come before a
// request is served (key, scope, rate, body) and one handler for each thing a client can ask for.
//
// What belongs here: reading requests, deciding which error a bad one gets, writing answers. Handlers are methods of the
// shape func(http.ResponseWriter, *http.Request) error; what they return is written by [WriteError] and by nothing else.
// The order of the checks on /v1 is that of design §6: key 401 → suspended 402 → scope 403 → rate 429 → body 400.
//
// Invariants:
//   - Every error that leaves has the body of spec §7.1 with one of the 22 codes of §7.2 and its status, and the same
//     request id in the body and in X-Request-Id. Causes are for logs and never reach a client.
//   - A fault of ours is internal_error: a store that fails is never a 401, 404 or 429.
//   - A request body is bounded in bytes, depth and elements before anything looks at it, and is read in linear time.
//   - 429 and 503 carry a whole number of seconds, at least 1, twice: in the body and in Retry-After.
//
// What it does not do: it knows nothing of Caddy, of money or of model vendors, and keeps no state of its own but the
// counters of [ByteBudget] and [Streams].
package handlers
