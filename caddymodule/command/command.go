// Package command has the commands `caddy svc …` and `caddy svc-worker`. Commands on organizations and their resources are made of the API's
// operations, which they run with the operator's rights. The others are about the machine and its store.
//
// A command reads the configuration of the server, opens the store as the server does, does one thing and ends. It resolves only
// the secrets it uses. Results go to standard output, as a table or with --json as one object; an error writes no result, with
// the exception of doctor.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "svc",
		Usage: "<command>",
		Short: "Administers the model gateway: organizations, users, keys, wallets, models, channels and the store",
		Long: `
Administers the model gateway that the configuration describes: organizations, their users, API keys, wallets,
models, provider keys, assistants and messaging channels, the queue, and the store itself.

Every command reads the configuration that the server runs with (--config), resolves only the secrets it uses, brings the
store's schema up to date, does one thing and ends. It never runs the server. A server that is running sees the change at
its next request.

Results go to standard output, everything else to standard error. With --json the result is exactly one JSON object,
with money as decimal strings of micros and times in RFC 3339; a command that failed writes no result. The exit status
is 0 when all went well and 1 otherwise, also when doctor has findings.

Secrets are read from files or standard input, never from the command line.`,
		CobraFunc: addCommands,
	})
}

func addCommands(root *cobra.Command) {
	flags := new(commandFlags)
	flags.configFlags(root)
	flags.serverFlags(root)
	root.PersistentFlags().BoolVar(&flags.json, "json", false, "write the result as one JSON object")

	root.Example = `  $ caddy svc org create --name "Acme"
  $ caddy svc user invite --org org_… --email lan@example.com --role owner
  $ caddy svc wallet credit --org org_… --micros 10000000 --ref invoice-17
  $ caddy svc key create --org org_… --scopes models:read,chat:write --json
  $ caddy svc doctor --config /etc/caddy/Caddyfile --envfile /etc/caddy/env`
	noun(root,
		orgCommand(flags), userCommand(flags), keyCommand(flags), walletCommand(flags), paymentCommand(flags), budgetCommand(flags),
		usageCommand(flags), modelCommand(flags), providerKeyCommand(flags), operatorCommand(flags), agentCommand(flags), channelCommand(flags),
		queueCommand(flags), conversationCommand(flags), migrateCommand(flags), doctorCommand(flags), rekeyCommand(flags), auditCommand(flags),
		backupCommand(flags),
		exportCommand(flags), importCommand(flags), statusCommand(flags), vendorsCommand(flags), healthCommand(),
		noun(&cobra.Command{Use: "catalog <command>", Short: "Imports prices of models"}, flags.catalogImportCommand()),
		flags.initCommand(), flags.tryCommand(), versionCommand(flags), helpCommand(),
	)
}

// helpCommand is `caddy svc help COMMAND`, which is `caddy svc COMMAND --help`. Cobra has a help command only for Caddy itself.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Prints the help of a command", DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Parent().Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("%s has no command %q", cmd.Parent().CommandPath(), strings.Join(args, " "))
			}
			return about.Help()
		},
	}
}

// noun returns the command of a noun with operations as its verbs, and other verbs after them.
func (f *commandFlags) noun(name, short string, others []*cobra.Command, all ...operation) *cobra.Command {
	var verbs []*cobra.Command
	for i := range all {
		verbs = append(verbs, all[i].command(f, name))
	}
	return noun(&cobra.Command{Use: name, Short: short}, append(verbs, others...)...)
}

// noun adds verbs to a command, which without one of them fails and lists them.
func noun(command *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	command.AddCommand(verbs...)
	names := store.Column(verbs, (*cobra.Command).Name)
	command.Args = cobra.ArbitraryArgs
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%s has no command %q; it has: %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
		}
		return fmt.Errorf("%s needs one of: %s (see %s --help)", cmd.CommandPath(), strings.Join(names, ", "), cmd.CommandPath())
	}
	return command
}

// answer is the result of a command. Its JSON form is exactly one object; text writes it for people, with tabs between
// columns.
type answer interface {
	text(w *strings.Builder)
}

// verb makes command open the store, do its work and write the answer, even if the work also returned an error.
func (f *commandFlags) verb(command *cobra.Command, opens opening, work func(context.Context, *commandEnv) (answer, error)) *cobra.Command {
	command.DisableFlagsInUseLine = true
	if command.Args == nil {
		command.Args = noArguments
	}
	command.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal ends the process at once
		e, err := f.openEnv(ctx, cmd, args, opens)
		if err != nil {
			return err
		}
		result, err := work(ctx, e)
		if closeErr := e.close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
		if result == nil {
			return err
		}
		return errors.Join(f.write(cmd.OutOrStdout(), result), err)
	}
	return command
}

// write writes the result in one piece.
func (f *commandFlags) write(w io.Writer, result answer) (err error) {
	if f.json {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(result)
	} else {
		var columns strings.Builder
		result.text(&columns)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		_, err = io.WriteString(table, columns.String())
		err = errors.Join(err, table.Flush())
	}
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

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
		Name: workerCommandName, Usage: "[--config <path>] [--adapter <name>] [--envfile <path>]", Short: workerShort,
		Long: workerLong, CobraFunc: workerCommand,
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
