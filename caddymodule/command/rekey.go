package command

import (
	"context"
	"errors"
	"fmt"
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
		keys, err := e.providerKeys()
		if err != nil {
			return nil, err
		}
		ring, err := e.app.Ring(e.repl)
		if err != nil {
			return nil, fmt.Errorf("svc.master_key: %w", err)
		}
		done, err := keys.Rekey(ctx, e.actor)
		channels, channelErr := e.rekeyChannels(ctx, ring)
		return rekeyAnswer{
			Renewed: done.Renewed + channels.Renewed, Current: done.Current + channels.Current,
			Unopened: done.Unopened + channels.Unopened, Overtaken: done.Overtaken + channels.Overtaken,
		}, errors.Join(err, channelErr)
	})
}

// rekeyChannels re-encrypts the credentials of channels that are not sealed with the ring's first key, by the rules of
// [identity.ProviderKeys.Rekey].
func (e *commandEnv) rekeyChannels(ctx context.Context, ring *vault.Ring) (done identity.Rekeyed, err error) {
	var unopened []error
	err = e.db.ChannelCredentials.Each(ctx, func(c store.Channel) error {
		place := vault.ChannelCredentials(c.OrgID, c.ID)
		plain, err := ring.Open(c.Credentials, place)
		switch {
		case err != nil:
			done.Unopened++
			unopened = append(unopened, fmt.Errorf("credentials of channel %s of organization %s: %w", c.ID, c.OrgID, err))
			return nil
		case ring.Current(c.Credentials):
			done.Current++
			return nil
		}
		replaced, err := e.db.ChannelCredentials.Reseal(ctx, c.OrgID, c.ID, c.Credentials, ring.Seal(plain, place))
		switch {
		case err != nil:
			return err
		case replaced:
			done.Renewed++
		default:
			done.Overtaken++
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("sealing the credentials of channels anew: %w", err)
	}
	if done.Renewed > 0 {
		err = errors.Join(err, e.db.AuditLog.Add(ctx, store.AuditEntry{
			Actor: e.actor, Action: "channel.rekey", Target: "channels",
			Detail: fmt.Sprintf("%d sealed anew, %d can't be opened", done.Renewed, done.Unopened),
		}))
	}
	return done, errors.Join(append(unopened, err)...)
}
