package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/caddymodule"
)

// workerCommandName is the name of the command, and of the binary that has only this command.
const workerCommandName = "svc-worker"

const (
	workerShort = "Answers the messages that customers sent to the server's webhooks"
	workerLong  = `
Takes conversations from the queue that the server's webhooks fill, asks the model, and sends the reply to the customer.

It reads the server's own configuration, of which it uses the svc block, the logging (but no log files) and the
grace_period; it opens no site. Any number of workers may run, on any number of machines if the store is PostgreSQL. With
worker { listen ADDRESS } in the svc block it answers probes and metrics there.

SIGTERM and SIGINT stop it: it takes no new conversation, finishes those it has within the grace_period, releases the rest,
and ends with status 0. A second signal ends it at once; another worker continues its conversations when their leases are
over. After a change of the configuration, restart it.`
	workerExample = `  $ caddy svc-worker --config /etc/caddy/Caddyfile --envfile /etc/caddy/env`
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:      workerCommandName,
		Usage:     "[--config <path>] [--adapter <name>] [--envfile <path>]",
		Short:     workerShort,
		Long:      workerLong,
		CobraFunc: workerCommand,
	})
}

func workerCommand(command *cobra.Command) {
	flags := new(commandFlags)
	flags.configFlags(command)
	command.Args = noArguments
	command.Example = workerExample
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		// The first signal stops the worker gracefully. The second ends the process immediately.
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop)
		configuration, err := flags.read()
		if err != nil {
			return err
		}
		return caddymodule.RunWorker(ctx, configuration, flags.config)
	}
}

// WorkerMain is the main function of the binary svc-worker, which has only the command of `caddy svc-worker`. It returns the
// exit status.
func WorkerMain() int {
	command := &cobra.Command{Use: workerCommandName, Short: workerShort, Long: workerLong, SilenceUsage: true, Version: caddymodule.Version()}
	workerCommand(command)
	if err := command.ExecuteContext(context.Background()); err != nil {
		return caddy.ExitCodeFailedStartup
	}
	return caddy.ExitCodeSuccess
}
