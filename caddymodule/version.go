package caddymodule

import (
	"runtime/debug"
	"strings"
)

// modulePath is the path of this module.
const modulePath = "github.com/caddy-svc/caddy-svc"

// version is set by the scripts that build releases, with -ldflags -X.
var version string

// Version returns the version of this program: that of the release or commit which a script built, or that of the module in a program
// that xcaddy built, or "devel".
func Version() string {
	if version != "" {
		return version
	}
	if built, ok := debug.ReadBuildInfo(); ok {
		return moduleVersion(built)
	}
	return develVersion
}

// develVersion is the version of a program that was built from a folder.
const develVersion = "devel"

func moduleVersion(built *debug.BuildInfo) string {
	for _, module := range append([]*debug.Module{&built.Main}, built.Deps...) {
		if module.Path == modulePath && module.Replace == nil && strings.HasPrefix(module.Version, "v") {
			return module.Version
		}
	}
	return develVersion
}
