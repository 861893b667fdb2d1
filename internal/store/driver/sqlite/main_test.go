package sqlite

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The environment of a test that runs as another process: what it does, and with which file.
const (
	childRole = "SVC_TEST_ROLE"
	childFile = "SVC_TEST_FILE"
)

// childRoles are what such a process may do.
var childRoles = map[string]func(path string) error{
	"commits when told": commitWhenTold,
	"connects silently": connectSilently,
	"announces":         func(path string) error { return announceAndWait(path, false) },
	"commits":           func(path string) error { return announceAndWait(path, true) },
}

// TestMain runs the tests, or, re-executed by one of them, another process. It keeps the random state machine short unless the
// command line asks for more (-rapid.checks, -rapid.steps).
func TestMain(m *testing.M) {
	if run, ok := childRoles[os.Getenv(childRole)]; ok {
		fmt.Println(run(os.Getenv(childFile)))
		os.Exit(0)
	}
	for name, value := range map[string]string{"rapid.checks": "10", "rapid.steps": "40"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
