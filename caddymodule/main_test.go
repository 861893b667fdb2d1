package caddymodule

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// storeFolders is the folder of all tests' stores.
var storeFolders string

// storeFolder returns a new folder for a store. It stays until all tests have ended: a store that a test no longer uses is closed in
// the background and may make its files again, so t.TempDir could not remove them.
func storeFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp(storeFolders, "") //nolint:usetesting // see above
	require.NoError(t, err)
	return folder
}

// TestMain waits for stores that close in the background, as after a reload, and then looks for leaked goroutines. The ones
// it lets pass are Caddy's: a test has no way to end a provisioned configuration, and the log writer's mill never ends.
func TestMain(m *testing.M) {
	folders, err := os.MkdirTemp("", "caddymodule-stores-")
	if err != nil {
		panic(err)
	}
	storeFolders = folders
	code := m.Run()
	retired.Wait()
	if err := os.RemoveAll(folders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
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
