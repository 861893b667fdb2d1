package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// identifyTimeout bounds the question whose account a token belongs to; a client waits for it.
const identifyTimeout = 10 * time.Second

// proven asks the platform whether the credentials belong to the channel's external id. Without a clear yes it is no, whatever
// the reason: the channel can be verified again.
func (g *channels) proven(ctx context.Context, channel *store.Channel, credentials platforms.Credentials) bool {
	if channel.ExternalID == "" { // lost to another organization
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	ids, err := g.Platforms.Identify(ctx, &platforms.Channel{
		Type: platforms.Type(channel.Type), ExternalID: channel.ExternalID, Credentials: credentials,
	})
	if err != nil {
		g.Logger.Info("a platform did not say whose credentials a channel has", "channel", channel.ID, "type", channel.Type, "error", err)
		return false
	}
	return slices.Contains(ids, channel.ExternalID)
}

// takeOver creates a channel that was refused because of a conflict, when the cause is a pending channel of another
// organization that claims the same external id, and the platform confirms that the id belongs to these credentials.
// Otherwise it returns the refusal.
func (g *channels) takeOver(
	ctx context.Context, principal *identity.Principal, channel *store.Channel, credentials platforms.Credentials, refusal error,
) error {
	possible, err := g.DB.Channels.TakeOverPossible(ctx, *channel)
	if err != nil {
		return fmt.Errorf("looking for a pending claim: %w", err)
	}
	if !possible || !g.proven(ctx, channel, credentials) {
		return refusal
	}
	channel.State = store.ChannelActive
	if err := g.DB.Channels.TakeOver(ctx, principal.Actor(), *channel, g.Plans.ChannelLimit(principal.Plan)); err != nil {
		return fmt.Errorf("taking an external id over: %w", err)
	}
	return nil
}

// stateAfter is what new credentials make of the channel's state; nil leaves it. Whose the external id is was settled for
// a channel that has been active.
func (g *channels) stateAfter(ctx context.Context, channel *store.Channel, credentials platforms.Credentials) *string {
	active := store.ChannelActive
	switch channel.State {
	case store.ChannelNeedsReauth:
		return &active
	case store.ChannelPending:
		if g.proven(ctx, channel, credentials) {
			return &active
		}
	}
	return nil
}

// sealCredentials makes the stored form of the channel's credentials.
func (g *channels) sealCredentials(channel *store.Channel, credentials platforms.Credentials) []byte {
	return g.Ring.Seal(handlers.Marshal(credentials), vault.ChannelCredentials(channel.OrgID, channel.ID))
}
