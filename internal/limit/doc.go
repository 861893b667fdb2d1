// Package limit counts requests per organization in fixed windows of one minute (docs/contract.md#rate-limits): in memory for
// one process, in the store for several that share a PostgreSQL, in Redis for any number of them.
//
// Invariants:
//   - In one window at most the limit is admitted, under any concurrency, by all processes that share the counter.
//   - A window is a minute of the counter's clock, not of the caller's. A clock that steps back never reopens a window.
//   - A refused request counts nothing and changes nothing, so that repeating it only waits for the window's end.
//   - The limit is an argument of each request and never stored: another plan holds from the next request on.
//   - A request waits 100 ms at most for Redis. Without Redis every process admits its share of the limit. A change between the
//     two within a window, and a Redis that loses its memory, are the only ways to admit more.
//
// Plans and HTTP belong to its callers. It reports a failing store in the error and doesn't refuse by itself. It doesn't smooth
// the burst of twice the limit that two adjacent windows allow.
package limit
