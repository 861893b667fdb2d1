package inbox

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain sets the length of the random state machine, which make soak and the command line (-rapid.checks, -rapid.steps) raise.
func TestMain(m *testing.M) {
	checks := "10"
	if os.Getenv("SVC_SOAK") != "" {
		checks = "300"
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.steps": "60"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
