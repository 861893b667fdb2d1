package billing

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// long returns a number of repetitions: the first one, or the second one in make soak.
func long(usual, soak int) int {
	if os.Getenv("SVC_SOAK") != "" {
		return soak
	}
	return usual
}

// TestMain sets the length of the random state machines, which make soak and the command line (-rapid.checks, -rapid.steps) raise.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(long(15, 100)), "rapid.steps": "20"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
