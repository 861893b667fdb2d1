//go:build failpoint

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

// Enabled reports whether this build can kill itself.
const Enabled = true

// armed is the failpoint in the environment when the process started.
var armed = arm(os.Getenv(Variable))

// trap is a point that kills at one of its hits.
type trap struct {
	point Point
	left  atomic.Int64
}

// arm parses the value of [Variable]. It panics on an unknown point, because a test with a misspelled point would otherwise pass.
func arm(text string) *trap {
	if text == "" {
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
	if armed == nil || armed.point != p || armed.left.Add(-1) != 0 {
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
	if path == "" {
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
