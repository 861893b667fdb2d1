// Package failpoint kills the process at a named place of a call's path, as a power failure would, so that tests see
// the rows that it leaves behind there, and slows the commits of a database without a network down.
//
// In a normal build there is nothing of it: [Enabled] is the constant false, and [Hit] is empty and inlined. Only a build
// with the tag "failpoint" (XCADDY_FAILPOINTS=1 ./xcaddy.sh), which is never shipped, reads the environment:
//
//	SVC_FAILPOINT=after_hold      the process dies when it comes to after_hold
//	SVC_FAILPOINT=after_hold:3    … for the third time since it started
//	SVC_SLOW_COMMITS=slow         while the file is there, every transaction that holds or settles waits before its
//	                              COMMIT for the duration in the file, such as 1.2s
//
// This package has the names of the places, the kill, and the delay that can't be made from the outside: a proxy slows
// PostgreSQL down, but nothing stands between the process and its SQLite file. What doesn't: errors and whatever else a
// fault can be (tests play faulty providers and databases from the outside), and any state that outlives the process.
package failpoint

// Variable is the environment variable that names a [Point] and, after a colon, the hit that kills (1 or more; without
// it the first).
const Variable = "SVC_FAILPOINT"

// SlowVariable is the environment variable that names the file of [SlowCommit].
const SlowVariable = "SVC_SLOW_COMMITS"

// Point is a place in the path of a call. The path passes them in this order.
type Point string

// The places. A hold and its claim are one transaction (design §5), so nothing lies between the two: AfterClaim and
// AfterHold are the two sides of that transaction's COMMIT, as BeforeCommit and AfterCommitBeforeWrite are the two
// sides of the settlement's.
const (
	// AfterClaim: the transaction that claims the Idempotency-Key, if the call has one, and holds the price has written
	// all its rows, and COMMIT has not been sent.
	AfterClaim Point = "after_claim"
	// AfterHold: claim and hold are committed, and the provider hasn't been called. A call that needs neither passes
	// here, too.
	AfterHold Point = "after_hold"
	// AfterUpstreamHeaders: the provider has begun to answer well, and nothing of the answer was handed on.
	AfterUpstreamHeaders Point = "after_upstream_headers"
	// AfterLastByte: the provider's answer is complete, and nothing of its settlement was given to the store. A stream's
	// text may have reached the client.
	AfterLastByte Point = "after_last_byte"
	// BeforeCommit: the transaction that settles the call has written all its rows, and COMMIT has not been sent.
	BeforeCommit Point = "before_commit"
	// AfterCommitBeforeWrite: the settlement is committed, and the client doesn't know: nothing of the answer's end was
	// written, and without a stream nothing at all.
	AfterCommitBeforeWrite Point = "after_commit_before_write"
)

// Points are all places in the order in which a call passes them.
func Points() []Point {
	return []Point{AfterClaim, AfterHold, AfterUpstreamHeaders, AfterLastByte, BeforeCommit, AfterCommitBeforeWrite}
}
