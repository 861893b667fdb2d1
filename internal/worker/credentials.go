package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// refreshAhead is how long before its end an access token is refreshed; some tokens live a day.
	refreshAhead = 10 * time.Minute
	// rotationLooks and rotationPause bound how long a refresh that the platform refused looks for the token of another process that used
	// the same refresh token up before, and is about to store the result.
	rotationLooks = 12
	rotationPause = 250 * time.Millisecond
)

// openCredentials reads a channel's credentials.
func (w *Worker) openCredentials(channel *store.Channel) (platforms.Credentials, error) {
	return messaging.OpenCredentials(w.Ring, channel.OrgID, channel.ID, channel.Credentials)
}

// makeReady opens the channel's credentials, and refreshes a token that is about to end. If that fails the old one is used, and its
// platform reports the reason.
func (p *pass) makeReady(ctx context.Context) {
	if p.credentials != nil || p.work.Channel.ID == "" {
		return
	}
	p.adopt(ctx, &p.work.Channel)
	if p.credentials == nil || p.credentials.Expiry() == 0 || !p.Platforms.Refreshable(p.channelType()) {
		return
	}
	if p.Now().Add(refreshAhead).Before(time.UnixMilli(p.credentials.Expiry())) {
		return
	}
	if p.refusal(inbox.AuthorHuman, false) == nil {
		_, _ = p.refresh(ctx, false)
	}
}

// adopt replaces the channel and the credentials of the pass by the channel's. It reports false when the credentials can't be opened.
func (p *pass) adopt(ctx context.Context, channel *store.Channel) bool {
	credentials, err := p.openCredentials(channel)
	if err != nil {
		p.Logger.ErrorContext(ctx, "a channel can't be used", "channel", channel.ID, "error", err)
		return false
	}
	p.work.Channel, p.credentials = *channel, credentials
	return true
}

// renewed reports whether there are newer credentials than the credentials that the platform has just refused: they were stored since,
// or the platform gave them for the refresh token. temporary is as in refresh.
func (p *pass) renewed(ctx context.Context, refreshable bool) (renewed bool, temporary *platforms.Error) {
	if !refreshable {
		return p.newer(ctx), nil
	}
	return p.refresh(ctx, true)
}

// newer reads the channel again, adopts its credentials if the pass has others, and reports whether it did. The pass gets the
// channel's state in any case.
func (p *pass) newer(ctx context.Context) bool {
	ctx, cancel := storing(ctx)
	defer cancel()
	channel, err := p.DB.Channels.ByID(ctx, p.lease.OrgID, p.lease.ChannelID)
	if err != nil {
		p.Logger.ErrorContext(ctx, "reading a channel again failed", "channel", p.lease.ChannelID, "error", err)
		return false
	}
	p.work.Channel.State = channel.State
	return channel.CredentialsVersion != p.work.Channel.CredentialsVersion && p.adopt(ctx, &channel)
}

// refresh gets new credentials from the platform and stores them. Credentials that another process has stored since are adopted instead. In
// one process a channel is refreshed by one goroutine at a time, because a refresh token is good for one use; between processes the
// compare-and-set decides. needed: the platform has refused the current token, so the channel needs its owner unless there is another one;
// goroutines that wait for the refresh then don't ask the platform again. temporary is a failure that doesn't depend on the refresh token,
// such as an outage or our own stop: a later refresh may succeed.
func (p *pass) refresh(ctx context.Context, needed bool) (renewed bool, temporary *platforms.Error) {
	if err := p.refreshes.Enter(ctx, p.work.Channel.ID); err != nil {
		return false, &platforms.Error{Class: platforms.Retry, Cause: err}
	}
	defer p.refreshes.Leave(p.work.Channel.ID)
	if p.newer(ctx) {
		return true, nil
	}
	if p.work.Channel.State == store.ChannelNeedsReauth {
		return false, nil
	}
	fresh, err := p.Platforms.Refresh(ctx, &platforms.Channel{
		Type: p.channelType(), ExternalID: p.work.Channel.ExternalID, Credentials: p.credentials,
	})
	if err == nil {
		p.Observer.Refreshed(p.work.Channel.Type, endedRefreshed)
		return p.replace(ctx, fresh), nil
	}
	p.Logger.WarnContext(ctx, "refreshing a channel's token failed", "channel", p.work.Channel.ID, "error", err)
	failure, ok := errors.AsType[*platforms.Error](err)
	if ok {
		p.Observer.Refreshed(p.work.Channel.Type, string(failure.Class))
	}
	switch {
	case !ok:
		return false, nil
	case failure.Class == platforms.Retry, failure.Class == platforms.Unknown:
		return false, &platforms.Error{Class: platforms.Retry, RetryAfter: failure.RetryAfter, Cause: failure}
	case failure.Class != platforms.NeedsReauth:
		return false, nil
	}
	if p.awaitRotation(ctx) {
		return true, nil
	}
	if ctx.Err() != nil { // the winner may still be about to store
		return false, &platforms.Error{Class: platforms.Retry, Cause: context.Cause(ctx)}
	}
	if needed {
		if _, err := p.needsReauth(ctx); err != nil {
			p.Logger.ErrorContext(ctx, "a channel could not be marked", "channel", p.work.Channel.ID, "error", err)
		}
	}
	return false, nil
}

// awaitRotation waits a little for the credentials of a process that was faster.
func (p *pass) awaitRotation(ctx context.Context) bool {
	for range rotationLooks {
		if ctx.Err() != nil {
			return false
		}
		if p.newer(ctx) {
			return true
		}
		_ = repeat.Pause(ctx, rotationPause)
	}
	return p.newer(ctx)
}

// replace stores refreshed credentials under a compare-and-set.
func (p *pass) replace(ctx context.Context, fresh platforms.Credentials) bool {
	plain, err := json.Marshal(fresh) //nolint:gosec // it is sealed below
	if err != nil {
		return false
	}
	channel := &p.work.Channel
	sealed := p.Ring.Seal(plain, vault.ChannelCredentials(channel.OrgID, channel.ID))
	replaced := false
	err = insist(ctx, func(ctx context.Context) (err error) {
		replaced, err = p.DB.ChannelCredentials.Replace(ctx, channel.OrgID, channel.ID, channel.CredentialsVersion, sealed)
		return err
	})
	bounded, cancel := storing(ctx)
	defer cancel()
	switch {
	case err != nil:
		// The old refresh token is used up: what we hold is the only good one, so this pass at least goes on with it.
		p.Logger.ErrorContext(ctx, "storing a refreshed token failed", "channel", channel.ID, "error", err)
	case !replaced && p.newer(ctx): // also what a commit that was not confirmed has stored
		return true
	case !replaced: // nothing newer could be read: what we hold may be the only good token
	default:
		channel.CredentialsVersion++
		channel.Credentials = sealed
		p.reactivate(bounded)
	}
	p.credentials = fresh
	return true
}

// reactivate makes a channel active again that another process, which waited in vain for what we have just stored, has
// marked.
func (p *pass) reactivate(ctx context.Context) {
	if p.newer(ctx) || p.work.Channel.State != store.ChannelNeedsReauth {
		return
	}
	if err := p.DB.Channels.SetState(ctx, actor, p.lease.OrgID, p.lease.ChannelID, store.ChannelActive); err != nil {
		p.Logger.ErrorContext(ctx, "a channel could not be marked", "channel", p.lease.ChannelID, "error", err)
		return
	}
	p.work.Channel.State = store.ChannelActive
}

// needsReauth marks the channel as in need of new credentials. It reports true if it has got some since.
func (p *pass) needsReauth(ctx context.Context) (renewed bool, err error) {
	if p.work.Channel.State == store.ChannelNeedsReauth {
		return false, nil
	}
	if p.newer(ctx) {
		return true, nil
	}
	bounded, cancel := storing(ctx)
	defer cancel()
	current, err := p.DB.ChannelCredentials.Refuse(bounded, actor, p.lease.OrgID, p.lease.ChannelID, p.work.Channel.CredentialsVersion)
	if err != nil {
		return false, fmt.Errorf("marking a channel: %w", err)
	}
	if !current && p.newer(ctx) {
		return true, nil
	}
	p.work.Channel.State = store.ChannelNeedsReauth
	return false, nil
}

// refreshBounds let one goroutine at a time refresh a channel. Passes and renewals bound how many wait.
var refreshBounds = dispatch.Bounds{Places: math.MaxInt, Each: 1, Line: math.MaxInt, Lines: math.MaxInt}

const (
	// renewalInterval is about how often all channels are looked at.
	renewalInterval = time.Hour
	// renewalAhead is how long before its end a token is refreshed in the background. It exceeds the longest time between two looks, so
	// that no token ends unused, and is less than half of the shortest life of tokens, 4 h.
	renewalAhead = 90 * time.Minute
	// renewalPlaces bounds the refreshes at a time, so that a platform that hangs doesn't hold up the others for long.
	renewalPlaces = 8
)

// renewalLoop refreshes tokens that are about to end, also of idle channels, until ctx ends. A refresh that has begun may go on until work
// ends, because the new token has to be stored.
func (w *Worker) renewalLoop(ctx, work context.Context) {
	if w.DB == nil {
		return
	}
	repeat.Every(ctx, renewalInterval, func(ctx context.Context) {
		if err := w.renewTokens(ctx, work); err != nil && ctx.Err() == nil {
			w.Logger.ErrorContext(ctx, "looking for tokens that end soon failed", "error", err)
		}
	})
}

// renewTokens looks at all channels once.
func (w *Worker) renewTokens(ctx, work context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	places := make(chan struct{}, renewalPlaces)
	return w.DB.ChannelCredentials.Each(ctx, func(channel store.Channel) error {
		due, overdue := w.renewable(ctx, &channel)
		if !due {
			return nil
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		running.Go(func() {
			defer func() { <-places }()
			p := &pass{Worker: w, lease: inbox.Lease{OrgID: channel.OrgID, ChannelID: channel.ID}}
			if !p.adopt(work, &channel) {
				return
			}
			if renewed, _ := p.refresh(work, overdue); !renewed {
				p.reportExpiry(work)
			}
		})
		return nil
	})
}

// reportExpiry reports a token to people that should have been renewed long ago, and ends soon.
func (p *pass) reportExpiry(ctx context.Context) {
	channel := &p.work.Channel
	kind, known := p.Platforms.Find(channel.Type)
	if !known || channel.State != store.ChannelActive || !kind.Expiring(p.credentials, p.Now()) {
		return
	}
	bounded, cancel := storing(ctx)
	defer cancel()
	if err := p.DB.EventWatch.Expiry(bounded, channel.OrgID, channel.ID, p.credentials.Expiry()); err != nil {
		p.Logger.ErrorContext(ctx, "telling of a token that ends soon failed", "channel", channel.ID, "error", err)
	}
}

// renewable reports whether a channel's token is to be refreshed now, and whether it has ended already. A platform that refuses to refresh
// a token that hasn't ended is asked again with the next look. Until then messages are sent.
func (w *Worker) renewable(ctx context.Context, channel *store.Channel) (due, overdue bool) {
	kind, known := w.Platforms.Find(channel.Type)
	if !known || channel.State != store.ChannelActive || !w.Platforms.Refreshable(platforms.Type(channel.Type)) {
		return false, false
	}
	credentials, err := w.openCredentials(channel)
	if err != nil {
		w.Logger.ErrorContext(ctx, "a channel can't be used", "channel", channel.ID, "error", err)
		return false, false
	}
	now, end := w.Now(), credentials.Expiry()
	if end == 0 {
		// The end of a pasted token is unknown until it was exchanged once; a token is as old as the channel's last change, at least. An
		// authorization ends if it isn't renewed, also where no customer writes.
		return now.Sub(time.UnixMilli(channel.UpdatedAt)) >= platforms.MinRenewalAge, false
	}
	left := time.UnixMilli(end).Sub(now)
	return left <= max(kind.RenewAhead, renewalAhead), left <= 0
}
