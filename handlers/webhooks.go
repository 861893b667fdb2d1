package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platforms"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/verify"
)

// MaxWebhookBody is the largest delivery that is read (design §6 "webhook bodies"). It is never cut: what the platform
// signed is what is hashed.
const MaxWebhookBody = 8 << 20

// webhookRetryAfter is sent to a platform whose delivery could not be kept because of a fault; some platforms honour it. A
// store with too much to do says itself when to come back, as to every other caller ([store.RetryAfter]).
const webhookRetryAfter = 5 * time.Second

// webhookBodyTime bounds how long a delivery may take to arrive: who sends one has shown nothing yet, and must not hold
// a part of the shared budget for as long as they like. Platforms give up after a few seconds themselves.
const webhookBodyTime = 10 * time.Second

// ChannelRoutes finds the channels of a delivery, as [store.Routes] does. Channels that don't exist are left out.
type ChannelRoutes interface {
	ByID(ctx context.Context, channelID string) (store.Route, bool, error)
	ByKeys(ctx context.Context, keys []store.RouteKey) (map[store.RouteKey]store.Route, error)
}

// Enqueuer keeps what arrived, as [inbox.Queue] does: durably when it returns, and once however often it is delivered.
type Enqueuer interface {
	Enqueue(ctx context.Context, arrivals []inbox.Arrival) error
}

// Webhooks receives the deliveries of the five platforms (spec §4.3). Its handlers verify, extract and enqueue, with one
// read of the store and one write, and call nothing outside. Nothing is acknowledged that isn't in the queue.
//
// A fault of ours is 500 with Retry-After. Everything that a platform could send and nobody wants is 200 with queued 0,
// for a refused delivery comes again and, on some platforms, holds up what comes after it.
type Webhooks struct {
	config WebhookConfig
	routes ChannelRoutes
	queue  Enqueuer
	ring   *vault.Ring
	bodies *ByteBudget
	log    *slog.Logger

	bodyTime time.Duration
}

// NewWebhooks makes the handlers of one configuration. ring opens the credentials of bot channels; bodies is the budget
// of all buffered request bodies, nil is unlimited; log may be nil.
func NewWebhooks(
	config WebhookConfig, routes ChannelRoutes, queue Enqueuer, ring *vault.Ring, bodies *ByteBudget, log *slog.Logger,
) *Webhooks {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Webhooks{config: config, routes: routes, queue: queue, ring: ring, bodies: bodies, log: log, bodyTime: webhookBodyTime}
}

// Bot serves POST /webhooks/bot/{channelId}. An address that is no bot channel's is 200 with queued 0 (spec §4.3 rule 3),
// whatever its secret. So 401 tells that a channel exists; its id can't be guessed, and is no credential.
func (h *Webhooks) Bot(w http.ResponseWriter, r *http.Request) error {
	channelID, ok := strings.CutPrefix(r.URL.Path, botPath)
	if !ok || channelID == "" || strings.Contains(channelID, "/") {
		return ServeNotFound(w, r)
	}
	r, _ = EnsureRequestID(w, r)
	if r.Method != http.MethodPost {
		return notFound(r)
	}
	route, found, err := h.admitBot(r, channelID)
	if err != nil || !found {
		// Nothing of the body is kept, but the platform reads an answer only when it has sent all of it.
		in := h.delivery(w, r)
		in.discard(MaxWebhookBody / 2)
		in.finish()
		if err != nil {
			return RetryLater(err, webhookRetryAfter)
		}
		acknowledge(w, h.config.Bot.AckEmpty, 0)
		return nil
	}
	return h.receive(w, r, &receiver{
		account: Account{ShareOrganizations, route.OrgID}, ackEmpty: h.config.Bot.AckEmpty,
		extract: func(body []byte) ([]platforms.Inbound, error) { return extracted(platforms.ExtractBot(body)) },
		keep: func(ctx context.Context, items []platforms.Inbound) (int, error) {
			return h.enqueue(ctx, items, func(*platforms.Inbound) (store.Route, bool) { return route, route.State != store.ChannelPending })
		},
	})
}

// admitBot finds the channel and compares its secret, both before the body is read: the secret doesn't depend on it.
func (h *Webhooks) admitBot(r *http.Request, channelID string) (route store.Route, found bool, err error) {
	route, found, err = h.botRoute(r.Context(), channelID)
	if err != nil || !found {
		return route, false, err
	}
	secret, err := h.botSecret(&route)
	if err != nil {
		return route, false, err
	}
	if verify.Bot(r.Header, h.config.Bot.Header, secret) != nil {
		return route, false, wrongSignature()
	}
	return route, true, nil
}

func (h *Webhooks) botRoute(ctx context.Context, channelID string) (route store.Route, found bool, err error) {
	if !wellFormedID(channelID) {
		return route, false, nil
	}
	route, found, err = h.routes.ByID(ctx, channelID)
	if err != nil {
		return route, false, fmt.Errorf("finding the channel of a delivery: %w", err)
	}
	return route, found && route.Type == string(platforms.Bot), nil
}

// botSecret is the channel's secret token; a channel without credentials has none, and verifies nothing.
func (h *Webhooks) botSecret(route *store.Route) (string, error) {
	if route.Credentials == nil {
		return "", nil
	}
	credentials, err := openCredentials(h.ring, route.OrgID, route.ChannelID, route.Credentials)
	return credentials.SecretToken, err
}

// Social serves /webhooks/social: POST for events, GET for the subscription handshake.
func (h *Webhooks) Social(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodGet && r.URL.Path == socialPath {
		return h.handshake(w, r)
	}
	c := &h.config.Social
	return h.receiveSigned(w, r, socialPath, c.AckEmpty, func(body []byte) ([]platforms.Inbound, error) {
		if verify.Social(r.Header, c.Header, c.AppSecret, body) != nil {
			return nil, wrongSignature()
		}
		return extracted(platforms.ExtractSocial(body, c.Objects))
	})
}

// LocalChat serves POST /webhooks/localchat. A body that isn't JSON is 401: it has no timestamp to hash.
func (h *Webhooks) LocalChat(w http.ResponseWriter, r *http.Request) error {
	c := &h.config.LocalChat
	return h.receiveSigned(w, r, localChatPath, c.AckEmpty, func(body []byte) ([]platforms.Inbound, error) {
		if verify.LocalChat(r.Header, c.Header, c.AppID, c.AppSecret, body) != nil {
			return nil, wrongSignature()
		}
		return extracted(platforms.ExtractLocalChat(body))
	})
}

// MarketA serves POST /webhooks/market-a. The address that the platform signs is the configured one, whatever the request
// says about the host.
func (h *Webhooks) MarketA(w http.ResponseWriter, r *http.Request) error {
	c := &h.config.MarketA
	return h.receiveSigned(w, r, marketAPath, c.AckEmpty, func(body []byte) ([]platforms.Inbound, error) {
		if verify.MarketA(r.Header, c.Header, c.PartnerKey, h.config.BaseURL+marketAPath, body) != nil {
			return nil, wrongSignature()
		}
		return extracted(platforms.ExtractMarketA(body))
	})
}

// MarketB serves POST /webhooks/market-b.
func (h *Webhooks) MarketB(w http.ResponseWriter, r *http.Request) error {
	c := &h.config.MarketB
	return h.receiveSigned(w, r, marketBPath, c.AckEmpty, func(body []byte) ([]platforms.Inbound, error) {
		if verify.MarketB(r.Header, c.Header, c.AppKey, c.AppSecret, body) != nil {
			return nil, wrongSignature()
		}
		return extracted(platforms.ExtractMarketB(body))
	})
}

// handshake answers GET /webhooks/social with the challenge as it came. It is reflected input, hence plain text that no
// browser takes for anything else.
func (h *Webhooks) handshake(w http.ResponseWriter, r *http.Request) error {
	EnsureRequestID(w, r)
	challenge, err := verify.Handshake(r.URL.Query(), h.config.Social.VerifyToken)
	if err != nil {
		return &Error{Code: errcode.Forbidden, Message: "The verify token does not match.", Cause: err}
	}
	writeWhole(w, http.StatusOK, "text/plain; charset=utf-8", []byte(challenge))
	return nil
}
