// Package handlers is the HTTP surface of the service in plain Go: the error contract, the checks that come before a
// request is served (key, scope, rate, body) and one handler for each thing a client can ask for.
//
// What belongs here: reading requests, deciding which error a bad one gets, writing answers. Handlers are methods of the
// shape func(http.ResponseWriter, *http.Request) error; what they return is written by [WriteError] and by nothing else.
// The order of the checks on /v1 is: key 401 → suspended 402 → scope 403 → rate 429 → body 400.
//
// The endpoint groups are operations of package endpoint, built on the huma framework: each declares its scope and role,
// one middleware checks them before anything of the request is read, for an API key or for a person who is signed in
// ([Sessions]), and the answers are camelCase JSON with moments in RFC 3339 (UTC, milliseconds). An id of another
// organization is forbidden and an unknown one not_found, told by one shared helper. In a request null is the same as
// absent; in a PATCH it takes away what may be absent (an agent's maxTokens and temperature, a channel's agentId). The
// webhooks are [webhook.Webhooks]: verify, extract, enqueue.
//
// Invariants:
//   - Every error that leaves has the error body of docs/contract.md with one of its 22 codes and that code's status, and the same
//     request id in the body and in X-Request-Id. Causes are for logs and never reach a client.
//   - A fault of ours is internal_error: a store that fails is never a 401, 404 or 429.
//   - A request body is bounded in bytes, depth and elements before anything looks at it, and is read in linear time.
//   - 429 and 503 carry a whole number of seconds, at least 1, twice: in the body and in Retry-After.
//   - A delivery is acknowledged only when all of it that has a channel is in the queue; no webhook calls out.
//   - Secrets that come in are sealed at once and never go out.
//
// What it does not do: it knows nothing of Caddy, of money or of model vendors, and keeps no state of its own but the
// counters of [ByteBudget] and [v1.Streams].
package handlers
