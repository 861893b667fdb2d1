package command_test

import (
	"os"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	// The worker's probes need Caddy's own handlers.
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/caddymodule/command"
)

// workerVariable is set for the processes that are a worker.
const workerVariable = "SVC_TEST_WORKER"

// programVariable is set for the processes that run a command of the program.
const programVariable = "SVC_TEST_PROGRAM"

// TestMain fails if a test leaves a goroutine behind, and runs the worker instead of the tests if [workerVariable] is set,
// or the program if [programVariable] is: tests of whole processes start this binary so.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		os.Exit(command.WorkerMain())
	}
	if os.Getenv(programVariable) != "" {
		caddycmd.Main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/DeRuina/timberjack.(*Logger).millRun"), // Caddy's log writer never ends it
	)
}
