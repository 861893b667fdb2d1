package command_test

import (
	"context"
	"io/fs"
	"os"
	"regexp"
	"testing"
	"testing/fstest"

	// The worker's probes need Caddy's own handlers.
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/caddymodule/command"
)

// workerVariable is set for the processes that are a worker.
const workerVariable = "SVC_TEST_WORKER"

// initVariable is set for the processes that run init; its value is the address of the scripted vendor, or "own" for the
// vendors' own.
const initVariable = "SVC_TEST_INIT"

// runInit runs init with the arguments of the process, and returns its exit status.
func runInit(address string) int {
	vendors := fstest.MapFS{}
	for name := range vendorVariables {
		text, err := fs.ReadFile(command.BuiltInVendors(), name+".caddyfile")
		if err != nil {
			panic(err)
		}
		if address != "own" {
			text = regexp.MustCompile(`base_url \S+`).ReplaceAll(text, []byte("base_url "+address))
		}
		vendors[name+".caddyfile"] = &fstest.MapFile{Data: text}
	}
	root := command.InitCommand(vendors)
	root.SilenceUsage = true
	if err := root.ExecuteContext(context.Background()); err != nil {
		return 1
	}
	return 0
}

// TestMain fails if a test leaves a goroutine behind, and runs the worker instead of the tests if [workerVariable] is set,
// or init if [initVariable] is: tests of whole processes start this binary so.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		os.Exit(command.WorkerMain())
	}
	if address := os.Getenv(initVariable); address != "" {
		os.Exit(runInit(address))
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/DeRuina/timberjack.(*Logger).millRun"), // Caddy's log writer never ends it
	)
}
