package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
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

  1. put a new key behind the old one in what master_key refers to, and have every server and worker read it
  2. put the new key in front of the old one, and have every server and worker read it
  3. run caddy svc rekey
  4. keep the old key behind the new one as long as conversations from before are needed, at least a day; then take it
     out, and have every server and worker read it

A server reads a file at caddy reload --force (without --force an unchanged Caddyfile isn't loaded again), and a variable
or a credential of systemd only at its start. A worker reads both at its start.

As long as a server or worker runs without the first key, rekey names it and changes nothing, because that process could
no longer open what is encrypted anew. A process that ended without notice is named for a minute.

Provider keys, the credentials of channels, the secrets of event endpoints and the key of customers' ids are encrypted anew.
Messages, and answers kept for an Idempotency-Key, are not: they stay readable as long as their key stands in master_key.

It can be interrupted and repeated, and runs beside a working server. Values that no key of master_key opens are left
alone and named; the exit status is then 1.`,
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		ring, err := e.ring()
		if err != nil {
			return nil, err
		}
		if err := requireFirstKey(ctx, e.db, ring); err != nil {
			return nil, err
		}
		done, err := identity.Rekey(ctx, e.db, ring, e.actor)
		return rekeyAnswer(done), err
	})
}

// requireFirstKey fails if a server or worker lives that doesn't have the ring's first key. The error names each.
func requireFirstKey(ctx context.Context, db *store.DB, ring *vault.Ring) error {
	living, err := db.Processes.Living(ctx)
	if err != nil {
		return err
	}
	first := ring.KeyIDs()[0]
	var without strings.Builder
	for _, process := range living {
		if !slices.Contains(process.KeyIDs, first) {
			without.WriteString("\n  " + process.Name)
		}
	}
	if without.Len() == 0 {
		return nil
	}
	return errors.New("nothing was changed, because these run without the first key of master_key and could no longer open what is " +
		"encrypted anew:" + without.String() + "\nHave each read its keys again: `caddy reload --force` for a server whose key is in a file, " +
		"a restart for a worker, and for a server whose key is in a variable or a credential of systemd. " +
		"One that has ended without notice is forgotten after a minute")
}
