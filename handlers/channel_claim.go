package handlers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// identifyTimeout bounds the question whose account a token belongs to; a client waits for it.
const identifyTimeout = 10 * time.Second

// proven asks the platform whether the credentials belong to the channel's external id. Without a clear yes it is no, whatever
// the reason: the channel can be verified again.
func (a *API) proven(ctx context.Context, channel *store.Channel, credentials platforms.Credentials) bool {
	if channel.ExternalID == "" { // lost to another organization
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	ids, err := a.Platforms.Identify(ctx, &platforms.Channel{
		Type: platforms.Type(channel.Type), ExternalID: channel.ExternalID, Credentials: credentials,
	})
	if err != nil {
		a.Logger.Info("a platform did not say whose credentials a channel has", "channel", channel.ID, "type", channel.Type, "error", err)
		return false
	}
	return slices.Contains(ids, channel.ExternalID)
}

// takeOver creates a channel that was refused because of a conflict, when the cause is a pending channel of another
// organization that claims the same external id, and the platform confirms that the id belongs to these credentials.
// Otherwise it returns the refusal.
func (a *API) takeOver(
	ctx context.Context, caller *identity.Principal, channel *store.Channel, credentials platforms.Credentials, refusal error,
) error {
	possible, err := a.DB.Channels.TakeOverPossible(ctx, *channel)
	if err != nil {
		return fmt.Errorf("looking for a pending claim: %w", err)
	}
	if !possible || !a.proven(ctx, channel, credentials) {
		return refusal
	}
	channel.State = store.ChannelActive
	if err := a.DB.Channels.TakeOver(ctx, caller.Actor(), *channel, a.Plans.ChannelLimit(caller.Plan)); err != nil {
		return fmt.Errorf("taking an external id over: %w", err)
	}
	return nil
}

// stateAfter is what new credentials make of the channel's state; nil leaves it. Whose the external id is was settled for
// a channel that has been active.
func (a *API) stateAfter(ctx context.Context, channel *store.Channel, credentials platforms.Credentials) *string {
	active := store.ChannelActive
	switch channel.State {
	case store.ChannelNeedsReauth:
		return &active
	case store.ChannelPending:
		if a.proven(ctx, channel, credentials) {
			return &active
		}
	}
	return nil
}

// sealCredentials makes the stored form of the channel's credentials.
func (a *API) sealCredentials(channel *store.Channel, credentials platforms.Credentials) []byte {
	return a.Ring.Seal(marshal(credentials), vault.ChannelCredentials(channel.OrgID, channel.ID))
}

// openCredentials reads the stored form of a channel's credentials.
func openCredentials(ring *vault.Ring, orgID, channelID string, sealed []byte) (credentials platforms.Credentials, err error) {
	plain, err := ring.Open(sealed, vault.ChannelCredentials(orgID, channelID))
	if err != nil {
		return credentials, fmt.Errorf("opening the credentials of channel %s: %w", channelID, err)
	}
	if json.Unmarshal(plain, &credentials) != nil { // Its error would quote them.
		return credentials, fmt.Errorf("the credentials of channel %s are not in the form they were sealed in", channelID)
	}
	return credentials, nil
}
