//go:build !failpoint

package failpoint

// Enabled reports whether this build can kill itself. It is a constant, so that the compiler removes code that only failpoints
// need.
const Enabled = false

// Hit does nothing in this build. With the tag failpoint it may not return.
func Hit(Point) {}

// SlowCommit does nothing in this build.
func SlowCommit() {}
