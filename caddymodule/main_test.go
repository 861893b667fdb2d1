package caddymodule

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain waits for stores that close in the background, as after a reload, and then looks for leaked goroutines. The ones
// it lets pass are Caddy's: a test has no way to end a provisioned configuration, and the log writer's mill never ends.
func TestMain(m *testing.M) {
	code := m.Run()
	retired.Wait()
	if code == 0 {
		if err := goleak.Find(
			goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.(*Cache).maintainAssets"),
			goleak.IgnoreTopFunction("github.com/DeRuina/timberjack.(*Logger).millRun"),
			goleak.IgnoreAnyFunction("github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy.(*metricsUpstreamsHealthyUpdater).init.func1"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
