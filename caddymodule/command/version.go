package command

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/caddymodule"
)

type versionAnswer struct {
	Version string `json:"version"`
	Caddy   string `json:"caddy"`
	Go      string `json:"go"`
}

func (a versionAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "caddy-svc\t%s\nCaddy\t%s\nGo\t%s\n", a.Version, a.Caddy, a.Go)
}

// versionCommand is a command without a configuration.
func versionCommand(f *commandFlags) *cobra.Command {
	return &cobra.Command{
		Use:                   "version",
		Short:                 "Prints the versions of caddy-svc, of Caddy and of Go in this program",
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			of, _ := caddy.Version()
			return f.write(cmd.OutOrStdout(), versionAnswer{Version: caddymodule.Version(), Caddy: of, Go: runtime.Version()})
		},
	}
}
