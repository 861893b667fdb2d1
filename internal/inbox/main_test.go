package inbox

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain keeps the random state machine short unless the command line asks for more (-rapid.checks, -rapid.steps).
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "10", "rapid.steps": "60"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
