// Package events delivers events to organizations' own systems: outgoing webhooks, signed in the Standard Webhooks form.
//
// # Invariants
//
//   - An event is written in the transaction of its cause ([store.QueueEvent]), and is delivered once or more: a try is counted before the
//     call, and another process repeats the try of a process that died, under the same id.
//   - A delivery is retried for about a day, and an endpoint that fails for days is disabled, which people see.
//   - One organization uses up to a quarter of a process's places, and one try up to [tryTime]. Organizations get free places in turn.
//   - Only public addresses are called, unless the operator allows others (package egress). Only the status of an answer is kept.
package events

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/egress"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const (
	// places is how many deliveries a process makes at a time, orgPlaces how many of them for one organization.
	places    = 16
	orgPlaces = places / 4
	// tryTime bounds a try: connecting, sending and the header of the answer.
	tryTime = 10 * time.Second
	// giveUpAfter is the age at which an event gets no further try, however few it had: where an endpoint is slower than its events
	// come, they wait for each other.
	giveUpAfter = 36 * time.Hour
	// FailingTime is for how long every try to an endpoint must have failed until it is disabled.
	FailingTime = 72 * time.Hour
	// Retention is for how long events are kept.
	Retention = 30 * 24 * time.Hour
	// pruneInterval is the pause between two looks for old events.
	pruneInterval = time.Hour
	// watchInterval is the pause between two looks for the events that time causes. The looks spare charges and calls any work for them.
	watchInterval = 15 * time.Second
	// actor is the name in the audit log.
	actor = "events"
)

// retries are the pauses after the tries of an event, up to a quarter longer or shorter: a day in all.
var retries = [...]time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
	8 * time.Hour, 8 * time.Hour,
}

// Outcomes of tries.
const (
	OutcomeDelivered = "delivered"
	OutcomeStatus    = "http_status"   // the endpoint answered with another status than 2xx
	OutcomeTimeout   = "timeout"       // no answer within [tryTime]
	OutcomeConnect   = "no_connection" // or no answer that HTTP allows, or an address that isn't public
	OutcomeUnsigned  = "unsigned"      // the secret doesn't open with the master key
)

// Config configures a [Deliverer]. DB is required, and Ring without Operator.
type Config struct {
	DB   *store.DB
	Ring *vault.Ring
	// Policy is which addresses may be called.
	Policy egress.Policy
	// Operator has the operator's own endpoints by id. A deliverer with them delivers nothing but the operator's events.
	Operator map[string]OperatorEndpoint
	// Usage returns the body of a [store.EventUsage]. It is required without Operator.
	Usage func(context.Context, *store.EventDelivery) (body string, err error)
	// Lease is the time after a try's end until another process may try, if this one died. 0 means a minute.
	Lease time.Duration
	// Tried counts tries by outcome; nil counts nothing.
	Tried func(outcome string)
	// Logger gets faults; nil discards them.
	Logger *slog.Logger
}

// OperatorEndpoint is an address of the configuration that gets the operator's events. Secret has the form of [NewSecret].
type OperatorEndpoint struct{ URL, Secret string }

// Deliverer delivers events.
type Deliverer struct {
	Config
	client *http.Client
}

// New returns a deliverer that is idle until [Deliverer.Run].
func New(config Config) *Deliverer {
	config.Lease = cmp.Or(config.Lease, time.Minute)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.Tried == nil {
		config.Tried = func(string) {}
	}
	return &Deliverer{Config: config, client: config.Policy.Client(tryTime)}
}

// Run delivers, watches and prunes until ctx ends, and returns when the running tries have ended, within [tryTime] and the time of a write.
func (d *Deliverer) Run(ctx context.Context) {
	var loops sync.WaitGroup
	due := d.DB.EventDeliveries.Due
	if d.Operator == nil {
		loops.Go(func() { repeat.Every(ctx, watchInterval, d.watch) })
	} else {
		due = d.DB.EventDeliveries.OperatorDue
	}
	loops.Go(func() {
		repeat.Every(ctx, pruneInterval, func(ctx context.Context) {
			if _, err := d.DB.EventDeliveries.Prune(ctx, Retention.Milliseconds()); err != nil && ctx.Err() == nil {
				d.Logger.ErrorContext(ctx, "deleting old events failed", "error", err)
			}
		})
	})
	dispatch.Queue[store.EventDelivery]{
		Places: places, OrgPlaces: orgPlaces,
		Due: due, Committed: d.DB.Committed,
		Lease: func(ctx context.Context, org string, atMost int) ([]store.EventDelivery, error) {
			return d.DB.EventDeliveries.Lease(ctx, org, atMost, (tryTime + d.Lease).Milliseconds())
		},
		Try: func(ctx context.Context, one *store.EventDelivery) { d.deliver(context.WithoutCancel(ctx), one) },
		Failed: func(ctx context.Context, err error) {
			d.Logger.ErrorContext(ctx, "looking for events failed", "error", err)
		},
	}.Run(ctx)
	loops.Wait()
	d.client.CloseIdleConnections()
}

// deliver makes one try and stores how it ended.
func (d *Deliverer) deliver(ctx context.Context, delivery *store.EventDelivery) {
	log := d.Logger.With("event", delivery.EventID, "endpoint", delivery.EndpointID)
	bounded, cancel := dispatch.Storing(ctx)
	endpoint, err := d.endpoint(bounded, delivery)
	if err == nil && delivery.Type == store.EventUsage {
		delivery.Payload, err = d.Usage(bounded, delivery)
	}
	cancel()
	var try store.EventTry
	switch {
	case errors.Is(err, store.ErrNotFound) && d.Operator != nil: // a process with another configuration may have it
		try = after(delivery, store.OutcomeDisabled, 0)
	case errors.Is(err, store.ErrNotFound), err == nil && endpoint.State != store.EndpointActive:
		try = store.EventTry{State: store.DeliveryFailed, Outcome: store.OutcomeDisabled}
	case err != nil: // it is tried again when the lease ends
		log.ErrorContext(ctx, "reading an event or its endpoint failed", "error", err)
		return
	default:
		outcome, status := d.try(ctx, &endpoint, delivery)
		d.Tried(outcome)
		try = after(delivery, outcome, status)
	}
	bounded, cancel = dispatch.Storing(ctx)
	defer cancel()
	disabled, err := d.DB.EventDeliveries.Finish(bounded, actor, delivery, try)
	if err != nil {
		log.ErrorContext(ctx, "storing the delivery of an event failed; it is tried again", "error", err)
	}
	if disabled {
		log.WarnContext(ctx, "an event endpoint was disabled", "reason", try.DisableFor)
	}
}

func (d *Deliverer) endpoint(ctx context.Context, delivery *store.EventDelivery) (store.EventEndpoint, error) {
	if d.Operator == nil {
		return d.DB.EventEndpoints.ByID(ctx, delivery.OrgID, delivery.EndpointID)
	}
	own, found := d.Operator[delivery.EndpointID]
	if !found {
		return store.EventEndpoint{}, store.ErrNotFound
	}
	return store.EventEndpoint{ID: delivery.EndpointID, URL: own.URL, State: store.EndpointActive}, nil
}

// after returns the consequences of a try.
func after(delivery *store.EventDelivery, outcome string, status int) store.EventTry {
	try := store.EventTry{State: store.DeliveryPending, Outcome: outcome, Status: int64(status)}
	switch {
	case outcome == OutcomeDelivered:
		try.State = store.DeliveryDelivered
	case status == http.StatusGone:
		try.State, try.DisableFor = store.DeliveryFailed, store.EndpointGone
	case delivery.Attempts > int64(len(retries)), time.Now().UnixMilli()-delivery.CreatedAt > giveUpAfter.Milliseconds():
		try.State, try.DisableFor, try.FailingFor = store.DeliveryFailed, store.EndpointFailing, FailingTime.Milliseconds()
	default:
		try.Wait = repeat.Around(retries[delivery.Attempts-1]).Milliseconds()
	}
	return try
}

// try calls the endpoint once.
func (d *Deliverer) try(ctx context.Context, endpoint *store.EventEndpoint, delivery *store.EventDelivery) (outcome string, status int) {
	address, err := d.Policy.Check(endpoint.URL)
	if err != nil { // the operator allowed it once
		return OutcomeConnect, 0
	}
	body := delivery.Payload
	at := time.Now().Unix()
	var signature string
	if d.Operator != nil {
		signature, err = Signature(d.Operator[endpoint.ID].Secret, delivery.EventID, at, []byte(body))
	} else {
		signature, err = signatures(d.Ring, endpoint, delivery.EventID, at, []byte(body))
	}
	if err != nil {
		return OutcomeUnsigned, 0
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address.String(), strings.NewReader(body))
	if err != nil {
		return OutcomeConnect, 0
	}
	request.GetBody = nil // with it Go would send the request again by itself
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "caddy-svc")
	request.Header.Set(HeaderID, delivery.EventID)
	request.Header.Set(HeaderTimestamp, strconv.FormatInt(at, 10))
	request.Header.Set(HeaderSignature, signature)
	response, err := d.client.Do(request)
	var slow interface{ Timeout() bool }
	switch {
	case errors.As(err, &slow) && slow.Timeout():
		return OutcomeTimeout, 0
	case err != nil:
		// A name that leads to a private address has the same outcome as a name that doesn't exist: the difference would reveal to
		// tenants which names exist in the operator's network.
		return OutcomeConnect, 0
	}
	_ = response.Body.Close()
	if response.StatusCode/100 == 2 {
		return OutcomeDelivered, response.StatusCode
	}
	return OutcomeStatus, response.StatusCode
}

// watch emits the events of conditions that begin with the passing of time.
func (d *Deliverer) watch(ctx context.Context) {
	for _, look := range []func(context.Context) (more bool, err error){d.DB.EventWatch.Wallets, d.DB.EventWatch.Waits, d.DB.EventWatch.Usage} {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = look(ctx); err != nil && ctx.Err() == nil {
				d.Logger.ErrorContext(ctx, "looking for events failed", "error", err)
				break
			}
		}
	}
}

// The headers of a delivery, by the Standard Webhooks specification 1.0.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32
	// RotationTime is how long an endpoint's old secret signs beside the new one.
	RotationTime = 24 * time.Hour
)

// errSecret doesn't quote the secret.
var errSecret = errors.New("events: a secret is not readable")

// NewSecret returns a new secret of 32 random bytes in its text form, `whsec_` and base64.
func NewSecret() string {
	var key [secretBytes]byte
	rand.Read(key[:])
	return secretPrefix + base64.StdEncoding.EncodeToString(key[:])
}

// SealSecret seals a secret for its endpoint's row.
func SealSecret(ring *vault.Ring, orgID, endpointID, secret string) []byte {
	return ring.Seal([]byte(secret), vault.EventSecret(orgID, endpointID))
}

// Signature signs a delivery with a secret: `v1,` and the base64 of the HMAC-SHA256 of id, time and body with dots between.
func Signature(secret, id string, at int64, body []byte) (string, error) {
	encoded, found := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !found || len(key) == 0 {
		return "", errSecret
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at, 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// signatures returns the header's value: the signature by the endpoint's secret, and during a rotation also by the old one, unless its
// master key is gone. at is in Unix seconds.
func signatures(ring *vault.Ring, endpoint *store.EventEndpoint, id string, at int64, body []byte) (string, error) {
	sign := func(sealed []byte) (string, error) {
		secret, err := ring.Open(sealed, vault.EventSecret(endpoint.OrgID, endpoint.ID))
		if err != nil {
			return "", errSecret
		}
		return Signature(string(secret), id, at, body)
	}
	signed, err := sign(endpoint.Secret)
	if err != nil || endpoint.OldSecret == nil || at*1000 >= endpoint.OldSecretUntil {
		return signed, err
	}
	if old, err := sign(endpoint.OldSecret); err == nil {
		signed += " " + old
	}
	return signed, nil
}
