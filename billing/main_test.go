package billing

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain keeps the random state machines short unless the command line (-rapid.checks, -rapid.steps) or make soak asks for more.
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
