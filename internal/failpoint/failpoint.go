// Package failpoint kills the process at a named point in the path of a call or a message, as a power failure would, so that
// tests find the rows that remain. It also delays the commits of a database that has no network to slow down.
//
// The linker decides whether a program can do that: only one with build set (XCADDY_FAILPOINTS=1 ./xcaddy.sh), which is never shipped,
// reads the environment. In any other, [Hit] compares a pointer with nil. It is no build tag, for which all packages above this one would be
// compiled once more.
//
//	SVC_FAILPOINT=after_hold      the process dies when it reaches after_hold
//	SVC_FAILPOINT=after_hold:3    … for the third time since it started
//	SVC_SLOW_COMMITS=slow         while this file exists, every transaction that holds or settles waits before its
//	                              COMMIT for the duration in the file, such as 1.2s
//
// Other faults are made from outside the process, by faulty providers, databases and proxies of the tests.
package failpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Variable is the environment variable with the name of a [Point] and, after a colon, the number of the hit that kills, from 1
// (the default).
const Variable = "SVC_FAILPOINT"

// SlowVariable is the environment variable with the name of the file of [SlowCommit].
const SlowVariable = "SVC_SLOW_COMMITS"

// Point is a point in the path of a call or of a message.
type Point string

// The points of calls, in the order of a call. A hold and its claim are one transaction: AfterClaim is before its COMMIT,
// AfterHold after it. BeforeCommit and AfterCommitBeforeWrite are before and after the COMMIT of the settlement.
const (
	// AfterClaim: all rows of the hold and of the claim of the Idempotency-Key are written; COMMIT has not been sent.
	AfterClaim Point = "after_claim"
	// AfterHold: hold and claim are committed, and the provider hasn't been called. A call without both also passes this point.
	AfterHold Point = "after_hold"
	// AfterUpstreamHeaders: the provider's response has begun successfully; no part of it was passed on.
	AfterUpstreamHeaders Point = "after_upstream_headers"
	// AfterLastByte: the provider's answer is complete; the store hasn't received its settlement. The client may have received
	// text of a stream.
	AfterLastByte Point = "after_last_byte"
	// BeforeCommit: all rows of the settlement are written; COMMIT has not been sent.
	BeforeCommit Point = "before_commit"
	// AfterCommitBeforeWrite: the settlement is committed. The end of a stream, or the whole answer without a stream, is
	// unwritten.
	AfterCommitBeforeWrite Point = "after_commit_before_write"
)

// The points of customers' messages and of people's actions. The worker passes all but the first two.
const (
	// BeforePersonCommit: all rows of a person's action in a conversation (send a draft or a template, erase a customer) are
	// written; COMMIT has not been sent.
	BeforePersonCommit Point = "before_person_commit"
	// AfterPersonCommit: the action is committed, and the person has no answer yet.
	AfterPersonCommit Point = "after_person_commit"
	// BeforeDraftCommit: the call of a draft is settled, and all rows of the draft are written; COMMIT has not been sent.
	BeforeDraftCommit Point = "before_draft_commit"
	// AfterDraftCommit: the draft is committed, and the conversation is still leased.
	AfterDraftCommit Point = "after_draft_commit"
	// BeforeSend: a message is marked as being sent; its platform hasn't been called.
	BeforeSend Point = "before_send"
	// AfterSend: the platform has accepted the message; the store doesn't have the result.
	AfterSend Point = "after_send"
	// AfterPiece: a piece of a customer's file is committed.
	AfterPiece Point = "after_piece"
	// BeforeFileCommit: all pieces are committed, and the row that marks the file as stored is written; COMMIT has not been sent.
	BeforeFileCommit Point = "before_file_commit"
	// AfterFileCommit: the file is stored.
	AfterFileCommit Point = "after_file_commit"
	// AfterSweptPieces: some pieces of an erased customer's file are deleted, others are not.
	AfterSweptPieces Point = "after_swept_pieces"
)

// Points returns all points.
func Points() []Point { return append(CallPoints(), MessagePoints()...) }

// CallPoints returns the points in the order in which a call passes them.
func CallPoints() []Point {
	return []Point{AfterClaim, AfterHold, AfterUpstreamHeaders, AfterLastByte, BeforeCommit, AfterCommitBeforeWrite}
}

// MessagePoints returns the points of messages.
func MessagePoints() []Point {
	return []Point{
		BeforePersonCommit, AfterPersonCommit, BeforeDraftCommit, AfterDraftCommit, BeforeSend, AfterSend,
		AfterPiece, BeforeFileCommit, AfterFileCommit, AfterSweptPieces,
	}
}

// build is set by the linker's flag -X in programs that can kill themselves.
var build string

// Enabled reports whether this program can kill itself.
func Enabled() bool { return build != "" }

// armed is the failpoint in the environment when the process started. It is nil in programs that aren't [Enabled].
var armed = arm(os.Getenv(Variable))

// trap is a point that kills at one of its hits.
type trap struct {
	point Point
	left  atomic.Int64
}

// arm parses the value of [Variable]. It panics on an unknown point, because a test with a misspelled point would otherwise pass.
func arm(text string) *trap {
	if !Enabled() || text == "" {
		return nil
	}
	name, count, counted := strings.Cut(text, ":")
	t := &trap{point: Point(name)}
	t.left.Store(1)
	if counted {
		n, err := strconv.ParseUint(count, 10, 31)
		if err != nil || n == 0 {
			panic(fmt.Sprintf("%s=%q: after the colon stands a number from 1", Variable, text))
		}
		t.left.Store(int64(n))
	}
	if !slices.Contains(Points(), t.point) {
		panic(fmt.Sprintf("%s=%q: the points are %q", Variable, text, Points()))
	}
	return t
}

// Hit kills the process with SIGKILL if the environment demands it at this hit of p. It doesn't return, and no deferred function
// runs. It is safe for concurrent use.
func Hit(p Point) {
	if armed != nil {
		armed.hit(p)
	}
}

func (t *trap) hit(p Point) {
	if t.point != p || t.left.Add(-1) != 0 {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("failpoint %s: %v", p, err))
	}
	select {} // the signal is on its way to this thread
}

// SlowCommit waits for the duration in the file that [SlowVariable] names. Without the variable or the file it doesn't wait. It
// is called before each COMMIT of the ledger.
func SlowCommit() {
	path := os.Getenv(SlowVariable)
	if !Enabled() || path == "" {
		return
	}
	text, err := os.ReadFile(path) //nolint:gosec // the test chooses it
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	wait, parseErr := time.ParseDuration(strings.TrimSpace(string(text)))
	if err = errors.Join(err, parseErr); err != nil {
		panic(fmt.Sprintf("%s=%q: %v", SlowVariable, path, err))
	}
	<-time.After(wait)
}
