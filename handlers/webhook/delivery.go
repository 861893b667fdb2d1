package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/tracing"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// receiver reads and stores the deliveries of a platform.
type receiver struct {
	account handlers.Account
	// extract verifies the body, if that wasn't done before, and reads it. Nothing it returns refers to the body.
	extract func(body []byte) ([]platforms.Inbound, error)
	// prove reads a body after its verification failed, because channels may have signed it themselves. It is nil if the
	// platform has no channels that sign.
	prove func(ctx context.Context, body []byte) ([]platforms.Inbound, error)
	// keep returns how many texts were handed to the queue, of no items also.
	keep func(ctx context.Context, items []platforms.Inbound) (int, error)
}

// receive reads one delivery, has it kept, and acknowledges it with the number of texts that were handed to the queue. A
// repeated delivery counts again: the queue merges.
func (h *webhook) receive(w http.ResponseWriter, r *http.Request, by *receiver) error {
	items, err := h.read(w, r, by)
	queued := 0
	if err == nil {
		queued, err = by.keep(r.Context(), items)
	}
	if err != nil {
		return handlers.RetryLater(err, webhookRetryAfter)
	}
	acknowledge(w, h.ackEmpty, queued)
	return nil
}

// read returns the content of a delivery. The body and its slot for decoding are free again before the store is used.
func (h *Webhooks) read(w http.ResponseWriter, r *http.Request, by *receiver) ([]platforms.Inbound, error) {
	body, release, err := handlers.ReadPaced(h.delivery(w, r), MaxBody, h.bodies, by.account)
	defer release()
	if errors.Is(err, handlers.ErrBudget) {
		// Also when the organization's share is used up: a platform has no rate to keep.
		return nil, handlers.Busy(handlers.BudgetRetryAfter, handlers.ErrBudget)
	}
	if err != nil {
		return nil, err
	}
	items, err := h.decoding(r.Context(), body, by.extract)
	if by.prove != nil && errors.Is(err, errUnproven) {
		return by.prove(r.Context(), body)
	}
	return items, err
}

// decoding calls do, which works on a body, with a slot for that. A read of the store in it would keep the slot from others.
func (h *Webhooks) decoding(ctx context.Context, body []byte, do func(body []byte) ([]platforms.Inbound, error)) ([]platforms.Inbound, error) {
	done, err := h.bodies.Decoding(ctx, len(body))
	if err != nil {
		return nil, err
	}
	defer done()
	return do(body)
}

// delivery is the body of a delivery, which must be there within a fixed time.
func (h *Webhooks) delivery(w http.ResponseWriter, r *http.Request) *handlers.PacedBody {
	return handlers.NewPacedBody(w, r, h.bodyTime, 0)
}

func acknowledge(w http.ResponseWriter, empty bool, queued int) {
	if empty {
		w.Header()["Content-Length"] = []string{"0"}
		w.WriteHeader(http.StatusOK)
		return
	}
	text := strconv.AppendInt([]byte(`{"ok":true,"queued":`), int64(queued), 10)
	handlers.WriteJSON(w, http.StatusOK, append(text, '}'))
}

// route finds the channels of a delivery by the ids in it, with one read, and hands the delivery over.
//
// The operator's secrets prove nothing for channels with a secret of their own: their items are left out, and a delivery for no
// other channel is refused.
func (h *Webhooks) route(ctx context.Context, items []platforms.Inbound) (queued int, _ error) {
	keys := routeKeys(items, nil)
	if routes := h.routes.RememberedByKeys(keys); routes != nil && h.withoutSigners(ctx, routes) == 0 {
		queued, stored, err := h.enqueue(ctx, items, h.queue.Enqueue, within(routes))
		if stored || err != nil && !errors.Is(err, inbox.ErrRouteChanged) {
			return queued, err
		}
	}
	routes, err := h.channels(ctx, keys)
	if err != nil {
		return 0, err
	}
	known := len(routes)
	switch refused := h.withoutSigners(ctx, routes); {
	case refused == known && refused > 0:
		return 0, errUnproven
	case refused > 0:
		h.log.WarnContext(ctx, "a delivery has messages for channels whose own secret didn't sign it; they are left out", "channels", refused)
	}
	queued, _, err = h.enqueue(ctx, items, h.queue.Enqueue, within(routes))
	return queued, err
}

// withoutSigners deletes the channels that have a secret of their own from routes, and returns how many those were.
func (h *Webhooks) withoutSigners(ctx context.Context, routes map[store.RouteKey]*store.Route) (signers int) {
	for key, route := range routes {
		if _, secret := h.ownSigner(ctx, route); secret != "" {
			delete(routes, key)
			signers++
		}
	}
	return signers
}

// within returns the function that finds an item's channel in routes.
func within(routes map[store.RouteKey]*store.Route) func(*platforms.Inbound) (*store.Route, bool) {
	return func(item *platforms.Inbound) (*store.Route, bool) {
		route, found := routes[routeKeyOf(item)]
		return route, found
	}
}

// routeKeys returns the keys of the items' channels, each once, without known keys.
func routeKeys(items []platforms.Inbound, known map[store.RouteKey]*store.Route) []store.RouteKey {
	seen := make(map[store.RouteKey]bool, 1)
	keys := make([]store.RouteKey, 0, 1)
	for i := range items {
		key := routeKeyOf(&items[i])
		if _, has := known[key]; !has && !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// channels returns the channels of the keys, without pending ones: anyone may claim an external id, so an unconfirmed claim must change
// nothing for the other channels of a delivery.
func (h *Webhooks) channels(ctx context.Context, keys []store.RouteKey) (map[store.RouteKey]*store.Route, error) {
	routes, err := h.routes.ByKeys(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("finding the channels of a delivery: %w", err)
	}
	maps.DeleteFunc(routes, func(_ store.RouteKey, route *store.Route) bool { return route.State == store.ChannelPending })
	return routes, nil
}

func routeKeyOf(item *platforms.Inbound) store.RouteKey {
	return store.RouteKey{Type: string(item.Type), ExternalID: item.ExternalID}
}

// enqueue passes the items that have a channel to add, in the order of the delivery, and counts the texts. Without an error, stored is
// false if no item had a channel.
func (h *Webhooks) enqueue(
	ctx context.Context, items []platforms.Inbound,
	add func(context.Context, []inbox.Arrival) error, routeOf func(*platforms.Inbound) (*store.Route, bool),
) (queued int, stored bool, err error) {
	var arrivals []inbox.Arrival
	at := make(map[string]int, 1)
	for i := range items {
		route, found := routeOf(&items[i])
		if !found {
			continue
		}
		item, wanted := h.item(&items[i], route)
		if !wanted {
			continue
		}
		place, known := at[route.ChannelID]
		if !known {
			place = len(arrivals)
			at[route.ChannelID] = place
			arrivals = append(arrivals, inbox.Arrival{Route: *route})
		}
		arrivals[place].Items = append(arrivals[place].Items, item)
		if item.Kind == platforms.Text {
			queued++
		}
	}
	if len(arrivals) == 0 {
		return 0, false, nil
	}
	if err := add(ctx, arrivals); err != nil {
		return 0, false, fmt.Errorf("enqueueing a delivery: %w", err)
	}
	linkAnswers(ctx, arrivals)
	return queued, true, nil
}

// linkAnswers links the request's span, if it is recorded, to the answers of its texts, which a worker begins later.
func linkAnswers(ctx context.Context, arrivals []inbox.Arrival) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	for i := range arrivals {
		for j := range arrivals[i].Items {
			if item := &arrivals[i].Items[j]; item.Kind == platforms.Text {
				span.AddLink(trace.Link{SpanContext: tracing.Answer(arrivals[i].Route.ChannelID, item.MessageID)})
			}
		}
	}
}

// item returns the queue's form of a delivered message or event, and logs reports about the channel. wanted is false if the queue doesn't
// store the item.
func (h *Webhooks) item(in *platforms.Inbound, route *store.Route) (item inbox.Item, wanted bool) {
	if in.Kind < platforms.Text || in.Kind > platforms.Edited {
		return item, false
	}
	switch in.Kind {
	case platforms.AccessRefused:
		h.log.Warn("the platform says that a channel's account may not send", "channel", route.ChannelID, "type", route.Type)
	case platforms.ErasureWanted:
		h.log.Info("a customer asks through the platform for the erasure of their data", "channel", route.ChannelID, "type", route.Type)
	case platforms.TokenExpiring:
		h.log.Warn("the platform says that a channel's access ends soon", "channel", route.ChannelID, "type", route.Type)
		return item, false
	default:
	}
	return inbox.ItemOf(in, messaging.FailureCode(in.Failure)), true
}
