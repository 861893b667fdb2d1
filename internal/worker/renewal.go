package worker

import (
	"context"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// renewalInterval is about how often all channels are looked at.
	renewalInterval = time.Hour
	// renewalAhead is how long before its end a token is refreshed in the background. It exceeds the longest time between two looks, so
	// that no token ends unused, and is less than half of the shortest life of tokens, 4 h.
	renewalAhead = 90 * time.Minute
	// renewalPlaces bounds the refreshes at a time, so that a platform that hangs doesn't hold up the others for long.
	renewalPlaces = 8
)

// renewalLoop refreshes tokens that are about to end, also those of idle channels, until ctx ends. A refresh that has begun may go on
// until work ends, because the new token has to be stored.
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
				p.tellExpiry(work)
			}
		})
		return nil
	})
}

// tellExpiry tells people of a token that should have been renewed long ago, and ends soon.
func (p *pass) tellExpiry(ctx context.Context) {
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

// renewable reports whether a channel's token is to be refreshed now, and whether it has ended already. A platform that refuses to
// refresh a token that hasn't ended is asked again with the next look: messages are sent meanwhile.
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
		// authorization ends if nobody renews it, also where no customer writes.
		return now.Sub(time.UnixMilli(channel.UpdatedAt)) >= platforms.MinRenewalAge, false
	}
	left := time.UnixMilli(end).Sub(now)
	return left <= max(kind.RenewAhead, renewalAhead), left <= 0
}
