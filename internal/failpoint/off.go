//go:build !failpoint

package failpoint

// Enabled says whether this build can kill itself. It is a constant, so that what only serves failpoints is left out of
// a build without them.
const Enabled = false

// Hit does nothing in this build; with the tag failpoint it may not return.
func Hit(Point) {}

// SlowCommit does nothing in this build.
func SlowCommit() {}
