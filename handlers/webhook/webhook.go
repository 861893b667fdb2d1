// Package webhook receives the deliveries of the messaging platforms: it verifies, extracts and enqueues them.
//
// Invariants:
//   - A delivery is acknowledged only when all of it that has a channel is in the queue.
//   - One delivery costs up to one read of the store and one write, and no call to the outside. A delivery that the operator's
//     secrets don't prove costs a read if it is signed and names channels, and another read if one of their own secrets proves
//     it.
//   - A remembered route serves only to store items: the queue compares it with its channel in the same transaction. Before
//     anything is refused or dropped, and when the channel has changed, the route is read.
//   - A delivery under a tenant's own secret delays others' deliveries by few messages at a time: see own_delivery.go.
//   - A body is extracted only after its signature was verified. A delivery under a channel's own secret is for channels with
//     that secret only, and a delivery under the operator's secrets is for channels without a secret of their own.
//
// It contains no platform: their signatures and formats are behind [messaging.Set].
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// MaxBody is the largest delivery that is read, in bytes. A larger one is refused and never cut: the signature is over the whole
// body.
const MaxBody = 8 << 20

// webhookRetryAfter is the Retry-After of a delivery that was not stored because of a fault; some platforms honour it. When the
// store is busy, [store.RetryAfter] replaces it.
const webhookRetryAfter = 5 * time.Second

// webhookBodyTime bounds how long a delivery may take to arrive: its sender is unverified, and must not hold a part of the shared
// budget for longer. Platforms give up after a few seconds themselves.
const webhookBodyTime = 10 * time.Second

// ChannelRoutes finds the channels of a delivery, as [store.Routes] does. Channels that don't exist are left out.
type ChannelRoutes interface {
	ByID(ctx context.Context, channelID string) (store.Route, bool, error)
	ByKeys(ctx context.Context, keys []store.RouteKey) (map[store.RouteKey]*store.Route, error)
	RememberedByID(channelID string) (store.Route, bool)
	RememberedByKeys(keys []store.RouteKey) map[store.RouteKey]*store.Route
}

// Enqueuer stores deliveries, as [inbox.Queue] does: durably when it returns, and once however often they are repeated. It returns
// [inbox.ErrRouteChanged] instead if a remembered route is no longer that of its channel.
type Enqueuer interface {
	Enqueue(ctx context.Context, arrivals []inbox.Arrival) error
}

// Config holds the operator's settings of the webhooks.
type Config struct {
	// BaseURL is the service's own address without a trailing slash; some platforms sign it.
	BaseURL string
	// Platforms verifies and extracts the deliveries.
	Platforms *messaging.Set
	// AckEmpty has the names of the platforms that get 200 and no body for accepted deliveries instead of
	// {"ok":true,"queued":n}: some treat any other response as a failure.
	AckEmpty map[string]bool
}

// Webhooks receives the deliveries of the platforms. Its handlers verify, extract and enqueue, with one read of the store and
// one write, and call nothing outside. Nothing is acknowledged that isn't in the queue.
//
// A fault of the service is 500 with Retry-After. A delivery without a channel or a known event is 200 with queued 0, because a
// refused delivery is repeated and, on some platforms, delays those after it.
type Webhooks struct {
	config Config
	routes ChannelRoutes
	queue  Enqueuer
	ring   *vault.Ring
	bodies *handlers.ByteBudget
	log    *slog.Logger

	bodyTime time.Duration

	// turns are the turns of organizations with long deliveries.
	turns *dispatch.Turns

	// ownSigned has the channel types of which a channel with a secret of its own was seen, unsigned the channels without a secret of
	// their own.
	ownSigned sync.Map
	unsigned  channelsSeen
}

// New returns the webhooks of one configuration. ring opens the credentials of channels with a secret of their own;
// bodies is the budget of all buffered request bodies; nil means unlimited. log may be nil.
func New(config Config, routes ChannelRoutes, queue Enqueuer, ring *vault.Ring, bodies *handlers.ByteBudget, log *slog.Logger) *Webhooks {
	return &Webhooks{
		config: config, routes: routes, queue: queue, ring: ring, bodies: bodies, log: cmp.Or(log, slog.New(slog.DiscardHandler)),
		bodyTime: webhookBodyTime, turns: dispatch.NewTurns(longDeliveries),
	}
}

// Receiver returns the handler of a platform's webhook, nil if the build has no such platform.
func (h *Webhooks) Receiver(name string) func(w http.ResponseWriter, r *http.Request) error {
	platform := h.config.Platforms.Platform(name)
	if platform == nil {
		return nil
	}
	hook := &webhook{Webhooks: h, platform: platform, path: messaging.WebhookPath(platform.Description), ackEmpty: h.config.AckEmpty[name]}
	if platform.ChannelWebhooks {
		return hook.serveChannel
	}
	return hook.serveShared
}

// webhook is the webhook of one platform.
type webhook struct {
	*Webhooks

	platform *messaging.Platform
	path     string // ends with a slash if a channel's id follows
	ackEmpty bool
}

// serveChannel serves POST to a channel's own address. An address that is no channel's is 200 with queued 0, whatever its
// secret. So a 401 reveals that a channel exists. Its id can't be guessed, and is no credential.
func (h *webhook) serveChannel(w http.ResponseWriter, r *http.Request) error {
	channelID, ok := strings.CutPrefix(r.URL.Path, h.path)
	if !ok || channelID == "" || strings.Contains(channelID, "/") {
		return handlers.ServeNotFound(w, r)
	}
	r, _ = handlers.EnsureRequestID(w, r)
	if r.Method != http.MethodPost {
		return handlers.RouteNotFound(r)
	}
	d := &channelDelivery{webhook: h, header: r.Header, channelID: channelID}
	found, err := d.admit(r.Context())
	if err != nil || !found {
		// Nothing of the body is kept, but the platform reads an answer only when it has sent all of it.
		in := h.delivery(w, r)
		in.Discard(MaxBody / 2)
		in.Finish()
		if err != nil {
			return handlers.RetryLater(err, webhookRetryAfter)
		}
		acknowledge(w, h.ackEmpty, 0)
		return nil
	}
	return h.receive(w, r, &receiver{
		account: handlers.Account{Share: handlers.ShareOrganizations, Owner: d.route.OrgID}, extract: h.extract, keep: d.keep,
	})
}

// channelDelivery is a delivery to a channel's own address.
type channelDelivery struct {
	*webhook
	header    http.Header
	channelID string

	route store.Route // that admitted the delivery
}

// admit finds the channel and compares its secret, both before the body is read: the secret doesn't depend on it.
func (d *channelDelivery) admit(ctx context.Context) (found bool, err error) {
	if !handlers.WellFormedID(d.channelID) {
		return false, nil
	}
	route, remembered := d.routes.RememberedByID(d.channelID)
	if remembered && d.has(route.Type) && d.verify(&route) == nil {
		d.route = route
		return true, nil
	}
	return d.admitAsRead(ctx)
}

// admitAsRead is admit without remembered routes.
func (d *channelDelivery) admitAsRead(ctx context.Context) (found bool, err error) {
	d.route, found, err = d.routes.ByID(ctx, d.channelID)
	if err != nil {
		return false, fmt.Errorf("finding the channel of a delivery: %w", err)
	}
	if !found || !d.has(d.route.Type) {
		return false, nil
	}
	return true, d.verify(&d.route)
}

func (d *channelDelivery) verify(route *store.Route) error {
	credentials, err := messaging.OpenCredentials(d.ring, route.OrgID, route.ChannelID, route.Credentials)
	if err != nil {
		return err
	}
	return unproven(d.platform.VerifyChannel(d.header, credentials))
}

// keep hands the delivery over to its channel.
func (d *channelDelivery) keep(ctx context.Context, items []platforms.Inbound) (queued int, err error) {
	if d.route.Remembered {
		queued, stored, err := d.enqueue(ctx, items, d.enqueueOwn, d.routeOf)
		if stored || err != nil && !errors.Is(err, inbox.ErrRouteChanged) {
			return queued, err
		}
		if found, err := d.admitAsRead(ctx); !found || err != nil {
			return 0, err
		}
	}
	queued, _, err = d.enqueue(ctx, items, d.enqueueOwn, d.routeOf)
	return queued, err
}

func (d *channelDelivery) routeOf(*platforms.Inbound) (*store.Route, bool) {
	return &d.route, d.route.State != store.ChannelPending
}

// has reports whether a channel type is the platform's.
func (h *webhook) has(channelType string) bool {
	return slices.ContainsFunc(h.platform.Channels, func(t platforms.ChannelType) bool { return string(t.Type) == channelType })
}

// serveShared serves the address of all channels: POST for deliveries, which are signed over the body, and GET for the
// handshake of platforms that have one. Until the signature was checked the body is its sender's.
func (h *webhook) serveShared(w http.ResponseWriter, r *http.Request) error {
	r, _ = handlers.EnsureRequestID(w, r)
	switch {
	case r.URL.Path != h.path:
		return handlers.RouteNotFound(r)
	case r.Method == http.MethodGet && h.platform.Handshake != nil:
		return h.handshake(w, r)
	case r.Method != http.MethodPost:
		return handlers.RouteNotFound(r)
	}
	d := &sharedDelivery{webhook: h, header: r.Header}
	return h.receive(w, r, &receiver{
		account: handlers.Account{Share: handlers.ShareDeliveries, Owner: handlers.ClientAddress(r)},
		extract: d.extract, prove: d.prove, keep: d.keep,
	})
}

// unproven returns the public error of a failed verification, or nil if err is nil.
func unproven(err error) error {
	switch {
	case err == nil:
		return nil
	case messaging.IsPanic(err):
		return handlers.Internal(err)
	}
	return errUnproven
}

// errUnproven is the refusal of a delivery that no secret proves.
var errUnproven error = &handlers.Error{Code: errcode.Unauthenticated, Message: "The webhook signature is missing or wrong."}

// extract reads a verified delivery. Nothing it returns refers to the body.
func (h *webhook) extract(body []byte) ([]platforms.Inbound, error) {
	items, err := h.platform.Extract(body)
	switch {
	case err == nil:
		return items, nil
	case errors.Is(err, platforms.ErrMalformed):
		e := handlers.InvalidRequest("", "The request body is not a JSON object.")
		e.Cause = err
		return nil, e
	}
	return nil, handlers.Internal(err)
}

// handshake returns the platform's challenge. It is reflected input, so it is sent as plain text that no browser interprets
// otherwise.
func (h *webhook) handshake(w http.ResponseWriter, r *http.Request) error {
	challenge, err := h.platform.Answer(r.URL.Query())
	if messaging.IsPanic(err) {
		return handlers.Internal(err)
	}
	if err != nil {
		return &handlers.Error{Code: errcode.Forbidden, Message: "The verify token does not match.", Cause: err}
	}
	handlers.WriteWhole(w, http.StatusOK, "text/plain; charset=utf-8", []byte(challenge))
	return nil
}

// Routes lists the webhooks of all platforms.
func Routes(catalog *messaging.Catalog) []handlers.Route {
	var routes []handlers.Route
	for _, p := range catalog.Platforms() {
		path, summary := messaging.WebhookPath(p), p.Deliveries
		if p.ChannelWebhooks {
			path, summary = path+"{channelId}", summary+", one address per channel"
		}
		if p.Handshake != nil {
			routes = append(routes, handlers.Route{Method: http.MethodGet, Path: path, Summary: p.Handshake.Summary})
		}
		routes = append(routes, handlers.Route{Method: http.MethodPost, Path: path, Summary: summary})
	}
	return routes
}
