// Package handlers has what all HTTP handlers of the service share: the error contract, request ids, credentials, rate limits,
// bodies and the writing of answers. The handlers themselves are in its folders: v1, api, webhook, widget and openapi.
//
// A [Handler] returns its error, and [WriteError] alone writes errors. The order of the checks on /v1 is: key 401 → suspended
// 402 → scope 403 → rate 429 → body 400.
//
// The endpoint groups are operations of package endpoint, built on the huma framework. Each declares its scope and role, which
// one middleware checks for API keys and login sessions ([Sessions]) before the request's body is read. Answers are camelCase
// JSON with times in RFC 3339 (UTC, milliseconds). In a request null is the same as absent; in a PATCH it removes an optional
// value (an agent's maxTokens and temperature, a channel's agentId).
//
// Invariants:
//   - Every error has the body of docs/contract.md with one of its 22 codes and that code's status, and the same request id in
//     the body and in X-Request-Id. Causes are for logs and never reach a client.
//   - A fault of the service is internal_error: a failure of the store is never a 401, 404 or 429.
//   - A request body is bounded in bytes, depth and elements before anything looks at it, and is read in linear time.
//   - 429 and 503 carry a whole number of seconds, at least 1, twice: in the body and in Retry-After.
//
// It imports nothing of Caddy, money or model vendors, and keeps no state but the counters of [ByteBudget].
package handlers
