package events_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/egress"
	"github.com/caddy-svc/caddy-svc/internal/events"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const patience = time.Minute

// received is one request that a receiver got.
type received struct {
	ID, Signature, Timestamp, Type, Body string
}

// receiver is an organization's own system.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	got    []received
	answer func(n int, w http.ResponseWriter, r *http.Request)
}

// receive starts a receiver. answer gets the number of the request, from 1 on; nil answers 204.
func receive(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	r.mu.Lock()
	r.got = append(r.got, received{
		request.Header.Get("webhook-id"), request.Header.Get("webhook-signature"), request.Header.Get("webhook-timestamp"),
		request.Header.Get("Content-Type"), string(body),
	})
	n := len(r.got)
	r.mu.Unlock()
	if r.answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	r.answer(n, w, request)
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// fixture is a database with two organizations and a master key.
type fixture struct {
	*store.DB
	ring *vault.Ring
	t    *testing.T
}

func each(t *testing.T, run func(f *fixture)) {
	t.Helper()
	ring, err := vault.ParseRing("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	require.NoError(t, err)
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		for _, id := range []string{"org_1", "org_2"} {
			require.NoError(t, db.Organizations.Create(t.Context(), "cli", store.Organization{ID: id, Name: id}))
		}
		run(&fixture{DB: db, ring: ring, t: t})
	})
}

// endpoint makes an endpoint and returns its secret.
func (f *fixture) endpoint(org, id, url string, types ...store.EventType) (secret string) {
	f.t.Helper()
	secret = events.NewSecret()
	require.NoError(f.t, f.EventEndpoints.Create(f.t.Context(), "cli", &store.EventEndpoint{
		ID: id, OrgID: org, URL: url, Events: types, Secret: events.SealSecret(f.ring, org, id, secret),
	}))
	return secret
}

// tell writes an event in a transaction of its own.
func (f *fixture) tell(event store.Event) {
	f.t.Helper()
	require.NoError(f.t, f.Exec(f.t.Context(), func(_ context.Context, tx store.Tx) error {
		store.QueueEvent(tx, &event)
		return nil
	}))
}

// start runs a deliverer until the returned function is called, or the test ends.
func (f *fixture) start(config events.Config) (stop func()) {
	config.DB, config.Ring = f.DB, f.ring
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		events.New(config).Run(ctx)
	}()
	stop = func() { cancel(); <-ended }
	f.t.Cleanup(stop)
	return stop
}

func (f *fixture) await(what string, reached func() bool) {
	f.t.Helper()
	require.Eventually(f.t, reached, patience, 5*time.Millisecond, what)
}

func (f *fixture) deliveries(org, endpoint string) []store.EventDelivery {
	f.t.Helper()
	all, err := f.EventDeliveries.OfEndpoint(f.t.Context(), org, endpoint, store.Page{})
	require.NoError(f.t, err)
	return all
}

// age makes an event older.
func (f *fixture) age(id, state string, age time.Duration) {
	f.t.Helper()
	require.NoError(f.t, f.Exec(f.t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(1, `UPDATE event_deliveries SET state = $2, created_at = $3 WHERE event_id = $1`, id, state, tx.Now()-age.Milliseconds())
		return nil
	}))
}

var open = egress.Policy{AllowPrivate: true}

func TestEventsAreDeliveredSigned(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		mine, others := receive(t, nil), receive(t, nil)
		secret := f.endpoint("org_1", "evep_1", mine.URL, store.EventAttention, store.EventHandover)
		f.endpoint("org_2", "evep_2", others.URL, store.EventTypes()...)
		f.endpoint("org_1", "evep_3", others.URL, store.EventWalletLow)
		f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention, ConversationID: "cnv_1", ChannelID: "chn_1", Code: "no_agent"})
		outcomes := make(chan string, 8)
		f.start(events.Config{Policy: open, Tried: func(outcome string) { outcomes <- outcome }})
		f.await("the event", func() bool {
			d := f.deliveries("org_1", "evep_1")
			return len(d) == 1 && d[0].State == store.DeliveryDelivered
		})
		require.Equal(t, events.OutcomeDelivered, <-outcomes)
		got := mine.all()
		require.Len(t, got, 1)
		require.Empty(t, others.all(), "neither another organization's nor one that asks for other events")

		one := f.deliveries("org_1", "evep_1")[0]
		require.Equal(t, one.EventID, got[0].ID)
		require.EqualValues(t, http.StatusNoContent, one.Status)
		require.EqualValues(t, 1, one.Attempts)
		require.Equal(t, "application/json", got[0].Type)
		at, err := strconv.ParseInt(got[0].Timestamp, 10, 64)
		require.NoError(t, err)
		require.InDelta(t, time.Now().Unix(), at, patience.Seconds())
		signature, err := events.Signature(secret, got[0].ID, at, []byte(got[0].Body))
		require.NoError(t, err)
		require.Equal(t, signature, got[0].Signature)
		require.JSONEq(t, `{"type":"conversation.attention","organizationId":"org_1","timestamp":"`+store.EventTime(one.CreatedAt)+`",
			"data":{"conversationId":"cnv_1","channelId":"chn_1","code":"no_agent"}}`, got[0].Body)
	})
}

// TestUsageIsReadForEachTry guarantees that the body of a usage event is made, and signed, when it is sent.
func TestUsageIsReadForEachTry(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		mine := receive(t, nil)
		secret := f.endpoint("org_1", "evep_1", mine.URL, store.EventUsage)
		f.tell(store.Event{OrgID: "org_1", Type: store.EventUsage, After: "0_1", Through: "0_2"})
		f.start(events.Config{Policy: open, Usage: func(_ context.Context, d *store.EventDelivery) (string, error) {
			return d.EventID + d.Payload, nil
		}})
		f.await("the event", func() bool { return len(mine.all()) == 1 })
		got := mine.all()[0]
		require.True(t, strings.HasPrefix(got.Body, got.ID+`{"type":"usage.recorded"`), got.Body)
		at, err := strconv.ParseInt(got.Timestamp, 10, 64)
		require.NoError(t, err)
		signature, err := events.Signature(secret, got.ID, at, []byte(got.Body))
		require.NoError(t, err)
		require.Equal(t, signature, got.Signature)
	})
}

// TestSignatureIsOfTheSpecification compares with the example of the specification's reference libraries.
func TestSignatureIsOfTheSpecification(t *testing.T) {
	t.Parallel()
	signature, err := events.Signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, []byte(`{"test": 2432232314}`))
	require.NoError(t, err)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", signature)
	for _, secret := range []string{"", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_*"} {
		_, err := events.Signature(secret, "id", 1, nil)
		require.ErrorContains(t, err, "not readable")
	}
}

func TestEventIsWrittenWithWhatItTellsOf(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		f.endpoint("org_1", "evep_1", "https://example.com", store.EventTypes()...)
		failed := f.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			store.QueueEvent(tx, &store.Event{OrgID: "org_1", Type: store.EventAttention})
			return store.ErrConflict
		})
		require.ErrorIs(t, failed, store.ErrConflict)
		require.Empty(t, f.deliveries("org_1", "evep_1"))
	})
}

func TestFailedDeliveriesAreTriedAgain(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		flaky := receive(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			}
		})
		f.endpoint("org_1", "evep_1", flaky.URL, store.EventAttention)
		f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
		f.start(events.Config{Policy: open})
		f.await("the first try", func() bool { return f.deliveries("org_1", "evep_1")[0].Outcome == events.OutcomeStatus })
		one := f.deliveries("org_1", "evep_1")[0]
		require.Equal(t, store.DeliveryPending, one.State)
		require.EqualValues(t, http.StatusTemporaryRedirect, one.Status)
		now, err := f.Now(t.Context())
		require.NoError(t, err)
		require.Greater(t, one.RunAt, now-2000)
		endpoint, err := f.EventEndpoints.ByID(t.Context(), "org_1", "evep_1")
		require.NoError(t, err)
		require.Positive(t, endpoint.FailingSince)
		f.await("the second try", func() bool { return f.deliveries("org_1", "evep_1")[0].State == store.DeliveryDelivered })
		got := flaky.all()
		require.Len(t, got, 2)
		require.Equal(t, got[0].ID, got[1].ID)
		endpoint, err = f.EventEndpoints.ByID(t.Context(), "org_1", "evep_1")
		require.NoError(t, err)
		require.Zero(t, endpoint.FailingSince)
	})
}

// TestDeadProcessLosesNoEvent: what a process took up and didn't finish is delivered by another one, under the same id.
func TestDeadProcessLosesNoEvent(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		r := receive(t, nil)
		f.endpoint("org_1", "evep_1", r.URL, store.EventAttention)
		f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
		leased, err := f.EventDeliveries.Lease(t.Context(), "org_1", 4, 1)
		require.NoError(t, err)
		require.Len(t, leased, 1)
		f.start(events.Config{Policy: open})
		f.await("the event", func() bool { return f.deliveries("org_1", "evep_1")[0].State == store.DeliveryDelivered })
		require.Equal(t, leased[0].EventID, r.all()[0].ID)
		_, err = f.EventDeliveries.Finish(t.Context(), "test", &leased[0], store.EventTry{State: store.DeliveryFailed})
		require.NoError(t, err)
		require.Equal(t, store.DeliveryDelivered, f.deliveries("org_1", "evep_1")[0].State, "the dead process can't undo it")
	})
}

// TestSlowEndpointTakesItsOwnShare: an organization whose endpoints hang doesn't hold up another one's events.
func TestSlowEndpointTakesItsOwnShare(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		release := make(chan struct{})
		var once sync.Once
		hangs := receive(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		t.Cleanup(func() { once.Do(func() { close(release) }) })
		quick := receive(t, nil)
		f.endpoint("org_1", "evep_1", hangs.URL, store.EventAttention)
		f.endpoint("org_2", "evep_2", quick.URL, store.EventAttention)
		for range 40 {
			f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
		}
		stop := f.start(events.Config{Policy: open})
		f.await("its share", func() bool { return len(hangs.all()) == 4 })
		for range 20 {
			f.tell(store.Event{OrgID: "org_2", Type: store.EventAttention})
		}
		f.await("the other's events", func() bool { return len(quick.all()) >= 20 })
		require.LessOrEqual(t, len(hangs.all()), 4+4, "a second share at most, after timeouts")
		once.Do(func() { close(release) })
		stop()
	})
}

func TestEndpointsAreDisabled(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		gone := receive(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
		f.endpoint("org_1", "evep_1", gone.URL, store.EventAttention)
		f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
		f.start(events.Config{Policy: open})
		state := func(id string) store.EventEndpoint {
			endpoint, err := f.EventEndpoints.ByID(t.Context(), "org_1", id)
			require.NoError(t, err)
			return endpoint
		}
		f.await("it to be disabled", func() bool { return state("evep_1").State == store.EndpointDisabled })
		require.Equal(t, store.EndpointGone, state("evep_1").Reason)
		f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
		require.Len(t, f.deliveries("org_1", "evep_1"), 1, "a disabled endpoint gets nothing")
		_, err := f.EventEndpoints.Test(t.Context(), "org_1", "evep_1")
		require.ErrorIs(t, err, store.ErrConflict)

		// The last try of an event disables an endpoint only if everything has failed for days.
		f.endpoint("org_1", "evep_9", "https://10.0.0.1/", store.EventHandover)
		last := func(ago time.Duration) store.EventEndpoint {
			f.tell(store.Event{OrgID: "org_1", Type: store.EventHandover})
			f.tell(store.Event{OrgID: "org_1", Type: store.EventHandover})
			require.NoError(t, f.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
				tx.Queue(store.AnyRows, `UPDATE event_endpoints SET failing_since = $1 WHERE id = 'evep_9'`, tx.Now()-ago.Milliseconds())
				tx.Queue(store.AnyRows, `UPDATE event_deliveries SET run_at = $1 WHERE endpoint_id = 'evep_9'`, tx.Now()+time.Hour.Milliseconds())
				return nil
			}))
			one := f.deliveries("org_1", "evep_9")[0]
			_, err := f.EventDeliveries.Finish(t.Context(), "test", &one, store.EventTry{
				State: store.DeliveryFailed, DisableFor: store.EndpointFailing, FailingFor: events.FailingTime.Milliseconds(),
			})
			require.NoError(t, err)
			return state("evep_9")
		}
		require.Equal(t, store.EndpointActive, last(events.FailingTime-time.Hour).State)
		disabled := last(events.FailingTime + time.Hour)
		require.Equal(t, store.EndpointDisabled, disabled.State)
		require.Equal(t, store.EndpointFailing, disabled.Reason)
		require.NoError(t, f.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(store.AnyRows, `UPDATE event_deliveries SET run_at = 0 WHERE state = 'pending'`)
			return nil
		}))
		f.await("what waits to be given up", func() bool {
			return !slices.ContainsFunc(f.deliveries("org_1", "evep_9"), func(one store.EventDelivery) bool { return one.State != store.DeliveryFailed })
		})
		require.Equal(t, store.OutcomeDisabled, f.deliveries("org_1", "evep_9")[1].Outcome)
		require.NoError(t, f.EventEndpoints.Update(t.Context(), "usr_1", "update", "org_1", "evep_9", func(e *store.EventEndpoint) { e.State = store.EndpointActive }))
		require.Empty(t, state("evep_9").Reason)
		require.Zero(t, state("evep_9").FailingSince)
	})
}

// TestOldEventsGetNoFurtherTry: an event that had to wait for a day and a half, behind a slow endpoint or for a worker, is given up after
// its next try, which disables no endpoint that hasn't failed for days.
func TestOldEventsGetNoFurtherTry(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		r := receive(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		f.endpoint("org_1", "evep_1", r.URL, store.EventAttention)
		for _, age := range []time.Duration{35 * time.Hour, 37 * time.Hour} {
			f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
			f.age(f.deliveries("org_1", "evep_1")[0].EventID, store.DeliveryPending, age)
		}
		f.start(events.Config{Policy: open})
		f.await("both tries", func() bool {
			found := f.deliveries("org_1", "evep_1")
			return found[0].Outcome == events.OutcomeStatus && found[1].Outcome == events.OutcomeStatus
		})
		found := f.deliveries("org_1", "evep_1")
		require.Equal(t, store.DeliveryFailed, found[0].State)
		require.EqualValues(t, 1, found[0].Attempts)
		require.Equal(t, store.DeliveryPending, found[1].State)
		endpoint, err := f.EventEndpoints.ByID(t.Context(), "org_1", "evep_1")
		require.NoError(t, err)
		require.Equal(t, store.EndpointActive, endpoint.State)
		require.Positive(t, endpoint.FailingSince)
	})
}

// TestOrganizationsTakeTurns: where the endpoints of several organizations hang, and more of their events wait, the next free place is
// another organization's, whatever its id.
func TestOrganizationsTakeTurns(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		release := make(chan struct{})
		hangs := receive(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(http.StatusInternalServerError)
		})
		t.Cleanup(sync.OnceFunc(func() { close(release) }))
		quick := receive(t, nil)
		for _, org := range []string{"org_3", "org_4", "org_5"} {
			require.NoError(t, f.Organizations.Create(t.Context(), "cli", store.Organization{ID: org, Name: org}))
		}
		for _, org := range []string{"org_1", "org_2", "org_3", "org_4"} {
			f.endpoint(org, "evep"+org, hangs.URL, store.EventAttention)
			for range 8 {
				f.tell(store.Event{OrgID: org, Type: store.EventAttention})
			}
		}
		f.endpoint("org_5", "evep_5", quick.URL, store.EventAttention)
		f.start(events.Config{Policy: open})
		f.await("all places to be taken", func() bool { return len(hangs.all()) == 16 })
		f.tell(store.Event{OrgID: "org_5", Type: store.EventAttention})
		release <- struct{}{}
		f.await("the other's event", func() bool { return len(quick.all()) == 1 })
		require.LessOrEqual(t, len(hangs.all()), 17)
	})
}

// A private address gets nothing, and its outcome is that of a name that doesn't exist.
func TestPrivateAddressesGetNothing(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		inside := receive(t, nil)
		f.endpoint("org_1", "evep_1", inside.URL, store.EventAttention)
		f.endpoint("org_1", "evep_2", strings.Replace(inside.URL, "http://127.0.0.1", "https://localhost", 1), store.EventAttention)
		f.endpoint("org_1", "evep_3", "https://nothing.invalid", store.EventAttention)
		f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
		f.start(events.Config{})
		for _, id := range []string{"evep_1", "evep_2", "evep_3"} {
			f.await("the try", func() bool { return f.deliveries("org_1", id)[0].Outcome != "" })
			delivery := f.deliveries("org_1", id)[0]
			require.Equal(t, []any{events.OutcomeConnect, int64(0), store.DeliveryPending}, []any{delivery.Outcome, delivery.Status, delivery.State})
		}
		require.Empty(t, inside.all())
	})
}

// TestRotation: after a rotation deliveries have a signature by each of both secrets, and later only by the new one.
func TestRotation(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		r := receive(t, nil)
		older := f.endpoint("org_1", "evep_1", r.URL, store.EventAttention)
		newer := events.NewSecret()
		rotate := func(until time.Time) {
			require.NoError(t, f.EventEndpoints.Update(t.Context(), "usr_1", "rotate_secret", "org_1", "evep_1", func(e *store.EventEndpoint) {
				e.OldSecret, e.OldSecretUntil = events.SealSecret(f.ring, "org_1", "evep_1", older), until.UnixMilli()
				e.Secret = events.SealSecret(f.ring, "org_1", "evep_1", newer)
			}))
		}
		expected := func(got received, secrets ...string) string {
			at, err := strconv.ParseInt(got.Timestamp, 10, 64)
			require.NoError(t, err)
			signed := make([]string, len(secrets))
			for i, secret := range secrets {
				signed[i], err = events.Signature(secret, got.ID, at, []byte(got.Body))
				require.NoError(t, err)
			}
			return strings.Join(signed, " ")
		}
		rotate(time.Now().Add(events.RotationTime))
		f.start(events.Config{Policy: open})
		f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
		f.await("the first event", func() bool { return len(r.all()) == 1 })
		require.Equal(t, expected(r.all()[0], newer, older), r.all()[0].Signature)
		rotate(time.Now().Add(-time.Second))
		f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
		f.await("the second event", func() bool { return len(r.all()) == 2 })
		require.Equal(t, expected(r.all()[1], newer), r.all()[1].Signature)

		// An old secret that was sealed under a master key which is gone signs no more, and holds nothing up.
		require.NoError(t, f.EventEndpoints.Update(t.Context(), "usr_1", "rotate_secret", "org_1", "evep_1", func(e *store.EventEndpoint) {
			e.OldSecret, e.OldSecretUntil = []byte("sealed by another key"), time.Now().Add(events.RotationTime).UnixMilli()
		}))
		f.tell(store.Event{OrgID: "org_1", Type: store.EventAttention})
		f.await("the third event", func() bool { return len(r.all()) == 3 })
		require.Equal(t, expected(r.all()[2], newer), r.all()[2].Signature)
	})
}

// TestOperatorsEvents guarantees that the operator's events reach the addresses of the configuration once, signed with their secrets and retried,
// that an organization's deliverer leaves them alone, and that an address which a process doesn't have waits for another process.
func TestOperatorsEvents(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		t := f.t
		operator := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		secret := events.NewSecret()
		require.NoError(t, f.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			store.QueueOperatorEvent(tx, []string{"op_1", "op_2"}, "condition.began", map[string]string{"kind": "queue_waits"})
			return nil
		}))
		f.start(events.Config{Policy: open})
		stop := f.start(events.Config{Policy: open, Operator: map[string]events.OperatorEndpoint{"op_1": {URL: operator.URL, Secret: secret}}})
		f.await("the event", func() bool {
			return f.deliveries("", "op_1")[0].Attempts == 1 && f.deliveries("", "op_1")[0].Outcome != ""
		})
		require.Equal(t, store.DeliveryPending, f.deliveries("", "op_1")[0].State)
		require.NoError(t, f.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `UPDATE event_deliveries SET run_at = 0 WHERE endpoint_id = 'op_1'`)
			return nil
		}))
		f.await("the event", func() bool { return f.deliveries("", "op_1")[0].State == store.DeliveryDelivered })
		stop()
		got := operator.all()
		require.Len(t, got, 2)
		require.Equal(t, got[0].ID, got[1].ID)
		at, err := strconv.ParseInt(got[1].Timestamp, 10, 64)
		require.NoError(t, err)
		signature, err := events.Signature(secret, got[1].ID, at, []byte(got[1].Body))
		require.NoError(t, err)
		require.Equal(t, signature, got[1].Signature)
		require.JSONEq(t, `{"type":"condition.began","timestamp":"`+store.EventTime(f.deliveries("", "op_1")[0].CreatedAt)+`","data":{"kind":"queue_waits"}}`, got[1].Body)
		other := f.deliveries("", "op_2")[0]
		require.Equal(t, store.DeliveryPending, other.State)
		require.Equal(t, store.OutcomeDisabled, other.Outcome)
	})
}
