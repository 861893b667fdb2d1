package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Bounds of a delivery that a tenant's own secret signed, in messages and events. The tenant can sign deliveries of any content, and all
// deliveries share one writer, so that a transaction with 50,000 messages would hold up everyone's for seconds.
const (
	// maxOwn is the limit for a whole delivery. Platforms put up to 1,000 into one.
	maxOwn = 1000
	// maxOwnWrite is the limit for one transaction.
	maxOwnWrite = 100
	// shortOwn is the limit for a delivery that waits for no turn.
	shortOwn = 10
)

// longDeliveries bounds the deliveries of more than shortOwn that are stored, or wait, at a time. A waiting one keeps its texts in memory.
var longDeliveries = dispatch.Bounds{Places: 2, Each: 1, Line: 2, Lines: 16}

// enqueueOwn stores a delivery that a tenant's own secret signed. It stores a long one in several transactions, between which other
// organizations have their turns. After an error a part of it may be stored, which the platform's repetition completes, because the queue
// merges items that it already has.
func (h *Webhooks) enqueueOwn(ctx context.Context, arrivals []inbox.Arrival) error {
	count := 0
	for i := range arrivals {
		count += len(arrivals[i].Items)
	}
	switch {
	case count > maxOwn:
		return handlers.InvalidRequest("", "The delivery has more than %d messages.", maxOwn)
	case count <= shortOwn:
		return h.queue.Enqueue(ctx, arrivals)
	}
	owner := arrivals[0].Route.OrgID // of all channels with the same secret
	if err := h.turns.Enter(ctx, owner); err != nil {
		return waitRefusal(err)
	}
	holds := true
	defer func() {
		if holds {
			h.turns.Leave(owner)
		}
	}()
	for rest := arrivals; ; {
		var some []inbox.Arrival
		some, rest = cut(rest, maxOwnWrite)
		if err := h.queue.Enqueue(ctx, some); err != nil {
			return err
		}
		if len(rest) == 0 {
			return nil
		}
		if err := h.turns.Pass(ctx, owner); err != nil {
			holds = false
			return waitRefusal(err)
		}
	}
}

// waitRefusal returns the error for a delivery that got no turn.
func waitRefusal(err error) error {
	if errors.Is(err, dispatch.ErrBusy) {
		return handlers.Busy(webhookRetryAfter, err) // no 429, after which platforms don't deliver again
	}
	return fmt.Errorf("waiting for the organization's turn: %w", err)
}

// cut splits arrivals after most items.
func cut(arrivals []inbox.Arrival, most int) (first, rest []inbox.Arrival) {
	for i, arrival := range arrivals {
		if n := len(arrival.Items); n < most {
			most -= n
			continue
		}
		first = append(first, arrivals[:i]...)
		first = append(first, inbox.Arrival{Route: arrival.Route, Items: arrival.Items[:most]})
		rest = arrivals[i+1:]
		if most < len(arrival.Items) {
			rest = append([]inbox.Arrival{{Route: arrival.Route, Items: arrival.Items[most:]}}, rest...)
		}
		return first, rest
	}
	return arrivals, nil
}

// sharedDelivery is a delivery to the address that all channels of a platform share.
type sharedDelivery struct {
	*webhook
	header http.Header

	// proven has the channels that signed the delivery with a secret of their own; nil: the operator's secret proves it.
	proven map[store.RouteKey]*store.Route
	// tried are the secrets that the delivery was compared with, and whether they signed it.
	tried map[string]bool
}

func (d *sharedDelivery) of(body []byte) *platforms.Delivery {
	return &platforms.Delivery{Header: d.header, URL: d.config.BaseURL + d.path, Body: body}
}

// extract reads a delivery that the operator's secret signed.
func (d *sharedDelivery) extract(body []byte) ([]platforms.Inbound, error) {
	if err := d.platform.Verify(d.of(body)); err != nil {
		return nil, unproven(err)
	}
	return d.webhook.extract(body)
}

// prove reads a delivery that the operator's secret didn't sign: it may come from an application of a channel's owner. prove
// returns only the items for channels with a secret of their own that signed it.
func (d *sharedDelivery) prove(ctx context.Context, body []byte) (items []platforms.Inbound, err error) {
	keys, named, err := d.named(ctx, body)
	if err != nil {
		return nil, err
	}
	d.proven, d.tried = make(map[store.RouteKey]*store.Route, 1), make(map[string]bool, 1)
	if err := d.compare(ctx, body, keys, named); err != nil {
		return nil, err
	}
	if len(d.proven) == 0 {
		return nil, errUnproven
	}
	if items, err = d.decoding(ctx, body, d.webhook.extract); err != nil {
		return nil, err
	}
	if rest := routeKeys(items, named); len(rest) > 0 {
		found, err := d.channels(ctx, rest)
		if err != nil {
			return nil, err
		}
		if err := d.compare(ctx, body, rest, found); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(items, func(item platforms.Inbound) bool {
		_, proven := d.proven[routeKeyOf(&item)]
		return !proven
	}), nil
}

// named reads the channels that a delivery says it is for: few of them, so that a stranger has us compute little. When they can't be
// read, the platform is asked to come again if one of their type is known to have a secret of its own; else the delivery is refused as
// a forged one.
func (d *sharedDelivery) named(ctx context.Context, body []byte) (keys []store.RouteKey, found map[store.RouteKey]*store.Route, err error) {
	ownSigned := false
	_, err = d.decoding(ctx, body, func(body []byte) ([]platforms.Inbound, error) {
		for _, channel := range d.platform.Named(d.of(body)) {
			keys = append(keys, store.RouteKey{Type: string(channel.Type), ExternalID: channel.ExternalID})
			_, known := d.ownSigned.Load(string(channel.Type))
			ownSigned = ownSigned || known
		}
		return nil, nil
	})
	switch {
	case err != nil:
		return nil, nil, err
	case len(keys) == 0:
		return nil, nil, errUnproven
	}
	found, err = d.channels(ctx, keys)
	if err != nil && !ownSigned {
		return nil, nil, errUnproven
	}
	return keys, found, err
}

// compare adds to proven, in the order of keys, the channels with a secret of their own that signed the body. The body is compared
// with up to [platforms.MaxNamed] different secrets, because hashing 8 MiB lasts 5 ms, and a delivery may be for any number of
// channels.
func (d *sharedDelivery) compare(ctx context.Context, body []byte, keys []store.RouteKey, channels map[store.RouteKey]*store.Route) error {
	delivery := d.of(body)
	for _, key := range keys {
		route, found := channels[key]
		if !found {
			continue
		}
		credentials, secret := d.ownSigner(ctx, route)
		if secret == "" {
			continue
		}
		if _, tried := d.tried[secret]; !tried && len(d.tried) < platforms.MaxNamed {
			_, err := d.decoding(ctx, body, func([]byte) ([]platforms.Inbound, error) {
				return nil, unproven(d.platform.VerifyOwn(delivery, credentials))
			})
			if err != nil && err != errUnproven { //nolint:errorlint // it is that very value
				return err
			}
			d.tried[secret] = err == nil
		}
		if d.tried[secret] {
			d.proven[key] = route
		}
	}
	return nil
}

// keep hands the delivery over to its channels.
func (d *sharedDelivery) keep(ctx context.Context, items []platforms.Inbound) (queued int, err error) {
	if d.proven == nil {
		return d.route(ctx, items)
	}
	queued, _, err = d.enqueue(ctx, items, d.enqueueOwn, within(d.proven))
	return queued, err
}

// ownSigner returns the credentials and the secret that sign a channel's deliveries. The secret is empty if the operator's secret signs
// them. A channel with credentials that don't open counts as a channel without a secret, so that deliveries under the operator's secret
// aren't lost.
func (h *Webhooks) ownSigner(ctx context.Context, route *store.Route) (credentials platforms.Credentials, secret string) {
	if route.Credentials == nil || h.unsigned.has(route.ChannelID, route.Credentials) {
		return nil, ""
	}
	credentials, secret, err := h.config.Platforms.OwnSigner(platforms.Type(route.Type), func() (platforms.Credentials, error) {
		return messaging.OpenCredentials(h.ring, route.OrgID, route.ChannelID, route.Credentials)
	})
	if err != nil {
		h.log.ErrorContext(ctx, "a channel's own secret can't be read", "channel", route.ChannelID, "error", err)
	}
	switch {
	case secret != "":
		h.ownSigned.Store(route.Type, true)
	case err == nil:
		h.unsigned.add(route.ChannelID, route.Credentials)
	}
	return credentials, secret
}

// channelsSeen remembers channels by their sealed credentials. New credentials have another sealed form, and are then looked at again.
type channelsSeen struct {
	mu sync.Mutex
	of map[string][]byte // sealed credentials by channel id
}

// mostSeen bounds the channels of [channelsSeen], which then begins anew: some 300 bytes each.
const mostSeen = 10_000

func (c *channelsSeen) has(channelID string, sealed []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Equal(c.of[channelID], sealed)
}

func (c *channelsSeen) add(channelID string, sealed []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= mostSeen {
		c.of = map[string][]byte{}
	}
	c.of[channelID] = sealed
}
