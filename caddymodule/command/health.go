package command

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

// localReadiness is where the Caddyfile of a new installation has its readiness.
const localReadiness = "http://127.0.0.1:8081/health/ready"

// healthCommand is the health check of a container, which has no other program.
func healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "health [URL]",
		Short: "Succeeds if a probe, such as /health/ready, responds with status 200; for containers",
		Long: `Asks for the URL, by default ` + localReadiness + `, and ends with status 0 if the response has status 200
within ` + probeWait.String() + `, else with status 1. It reads no configuration and opens no store.`,
		Args:                  cobra.MaximumNArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			address := localReadiness
			if len(args) > 0 {
				address = args[0]
			}
			status, _, err := get(cmd.Context(), &http.Transport{DisableKeepAlives: true}, address)
			if err != nil {
				return fmt.Errorf("%s doesn't respond: %w", address, err)
			}
			if status != http.StatusOK {
				return fmt.Errorf("%s responds with status %d", address, status)
			}
			return nil
		},
	}
}
