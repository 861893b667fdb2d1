package caddymodule

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestModuleVersion guarantees that a program which xcaddy built from a release has the version of that release, and one that was
// built from a folder none.
func TestModuleVersion(t *testing.T) {
	t.Parallel()
	ours := func(version string, replace *debug.Module) *debug.Module {
		return &debug.Module{Path: modulePath, Version: version, Replace: replace}
	}
	for want, built := range map[string]debug.BuildInfo{
		"v1.2.3": {Main: debug.Module{Path: "caddy", Version: "(devel)"}, Deps: []*debug.Module{{Path: "other", Version: "v9.0.0"}, ours("v1.2.3", nil)}},
		"v1.2.4": {Main: *ours("v1.2.4", nil)},
	} {
		require.Equal(t, want, moduleVersion(&built))
	}
	for _, built := range []debug.BuildInfo{
		{},
		{Main: *ours("(devel)", nil)},
		{Main: *ours("", nil)},
		{Main: debug.Module{Path: "caddy"}, Deps: []*debug.Module{ours("v0.0.0", &debug.Module{Path: "/src"})}},
	} {
		require.Equal(t, "devel", moduleVersion(&built))
	}
	require.Equal(t, "devel", Version())
}
