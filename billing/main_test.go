package billing

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain sets the length of the random state machines, which make soak and the command line (-rapid.checks, -rapid.steps) raise.
func TestMain(m *testing.M) {
	checks := "15"
	if os.Getenv("SVC_SOAK") != "" {
		checks = "100"
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.steps": "20"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
