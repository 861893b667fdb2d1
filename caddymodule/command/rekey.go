package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

type rekeyAnswer identity.Rekeyed

func (a rekeyAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "sealed anew\t%d\nalready current\t%d\ncan't be opened\t%d\nchanged meanwhile\t%d\n",
		a.Renewed, a.Current, a.Unopened, a.Overtaken)
}

func rekeyCommand(f *commandFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "rekey",
		Short: "Encrypts what is encrypted in the store anew, under the first key of master_key",
		Long: `Encrypts what is encrypted in the store anew, under the first key of master_key. To rotate:

  1. put a new key in front of the old one in what master_key refers to, and reload every server
  2. run caddy svc rekey
  3. keep the old key behind the new one as long as conversations from before are needed, at least a day; then take it
     out and reload

Provider keys and the credentials of channels are sealed anew. Messages, and answers kept for an Idempotency-Key, are not:
they stay readable as long as their key stands in master_key.

It can be interrupted and repeated, and runs beside a working server. Values that no key of master_key opens are left
alone and named; the exit status is then 1.`,
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		ring, err := e.ring()
		if err != nil {
			return nil, err
		}
		done, err := identity.Rekey(ctx, e.db, ring, e.actor)
		return rekeyAnswer(done), err
	})
}
