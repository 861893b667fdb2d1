package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// addOwn adds an active channel whose deliveries its own secret signs.
func (g *gate) addOwn(t *testing.T, org, page, secret string) {
	t.Helper()
	id := "chn_" + page
	g.routes.byID[id] = store.Route{ChannelID: id, OrgID: org, Type: "social_messenger", ExternalID: page, State: store.ChannelActive}
	g.give(t, id, platforms.Credentials{"appSecret": secret})
}

// pages returns a delivery with so many texts for each page.
func pages(texts map[string]int) string {
	var entries []string
	for page, n := range texts {
		for i := range n {
			entries = append(entries, pageEntry(page, fmt.Sprintf("%s-%d", page, i), "hi"))
		}
	}
	return `{"object":"page","entry":[` + strings.Join(entries, ",") + `]}`
}

func signedWith(secret, body string) *http.Request {
	return delivery("/webhooks/social", "X-Hub-Signature-256", "sha256="+hmacHex(secret, body), body)
}

// TestLongDeliveriesOfTenants guarantees that a delivery which a tenant's own secret signed is stored in order and a few messages at a time,
// and that its size has a limit. The operator's secret has none of this.
func TestLongDeliveriesOfTenants(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.addOwn(t, "org_1", "2001", "own")
	g.addOwn(t, "org_1", "2002", "own")
	for _, own := range []struct {
		first, second int
		writes        []int
	}{
		{10, 0, []int{10}},
		{60, 40, []int{100}},
		{100, 1, []int{100, 1}},
		{150, 51, []int{100, 100, 1}},
		{1, 199, []int{100, 100}},
		{1000, 0, slices.Repeat([]int{100}, 10)},
	} {
		stored := &writes{}
		g.queue = stored
		body := pages(map[string]int{"2001": own.first, "2002": own.second})
		acknowledged(t, g.Social, signedWith("own", body), own.first+own.second)
		require.Equal(t, own.writes, stored.sizes)
		for page, n := range map[string]int{"2001": own.first, "2002": own.second} {
			require.Len(t, stored.byChannel["chn_"+page], n)
			for i, id := range stored.byChannel["chn_"+page] {
				require.Equal(t, fmt.Sprintf("%s-%d", page, i), id)
			}
		}
	}
	stored := &writes{}
	g.queue = stored
	for _, many := range []string{pages(map[string]int{"2001": 1001}), pages(map[string]int{"2001": 501, "2002": 500})} {
		handlertest.RefusedWith(t, errcode.InvalidRequest, g.Social, signedWith("own", many))
	}
	require.Empty(t, stored.sizes)
	acknowledged(t, g.Social, signedWith("own", pages(map[string]int{"2001": 1000, "1001": 1000})), 1000)
	stored.sizes = nil
	acknowledged(t, g.Social, signedWith(testAppSecret, pages(map[string]int{"1001": 1001})), 1001)
	require.Equal(t, []int{1001}, stored.sizes)
}

// writes records what is enqueued.
type writes struct {
	sizes     []int
	byChannel map[string][]string // ids of messages
}

func (w *writes) Enqueue(_ context.Context, arrivals []inbox.Arrival) error {
	size := 0
	for _, arrival := range arrivals {
		size += len(arrival.Items)
		for _, item := range arrival.Items {
			if w.byChannel == nil {
				w.byChannel = map[string][]string{}
			}
			w.byChannel[arrival.Route.ChannelID] = append(w.byChannel[arrival.Route.ChannelID], item.MessageID)
		}
	}
	w.sizes = append(w.sizes, size)
	return nil
}

// TestLongDeliveriesTakeTurns guarantees that long deliveries of one organization wait for each other and have a short line, and that others'
// deliveries and its own short ones wait for none of them.
func TestLongDeliveriesTakeTurns(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.addOwn(t, "org_1", "2001", "own-1")
	g.addOwn(t, "org_2", "2002", "own-2")
	release := make(chan struct{})
	g.queue = enqueueFunc(func(_ context.Context, arrivals []inbox.Arrival) error {
		if arrivals[0].Route.ChannelID == "chn_2001" && len(arrivals[0].Items) > shortOwn {
			<-release
		}
		return nil
	})
	serve := g.Receiver("social")
	long := pages(map[string]int{"2001": 250})
	const sent = 4 // one is stored and two wait
	answers := make(chan int, sent)
	for range sent {
		go func() { answers <- handlertest.Served(serve, signedWith("own-1", long)).Code }()
	}
	require.Equal(t, http.StatusInternalServerError, <-answers)
	acknowledged(t, serve, signedWith("own-1", pages(map[string]int{"2001": 10})), 10)
	acknowledged(t, serve, signedWith("own-2", pages(map[string]int{"2002": 250})), 250)
	acknowledged(t, serve, signedWith(testAppSecret, pages(map[string]int{"1001": 250})), 250)
	require.Empty(t, answers)
	refused := handlertest.RefusedWith(t, errcode.InternalError, serve, signedWith("own-1", long))
	require.Equal(t, "5", refused.Header.Get("Retry-After"))

	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the platform has hung up"))
	close(release)
	for range sent - 1 {
		require.Equal(t, http.StatusOK, <-answers)
	}
	require.Equal(t, http.StatusInternalServerError, handlertest.Served(serve, signedWith("own-1", long).WithContext(gone)).Code)
	acknowledged(t, serve, signedWith("own-1", long), 250)
}

// TestLongDeliveriesGiveWay guarantees that the long deliveries of two organizations are stored in turns of one transaction, if there is one
// place for both.
func TestLongDeliveriesGiveWay(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	g.addOwn(t, "org_1", "2001", "own-1")
	g.addOwn(t, "org_2", "2002", "own-2")
	serve := g.Receiver("social")
	synctest.Test(t, func(t *testing.T) {
		one := longDeliveries
		one.Places = 1
		g.turns = dispatch.NewTurns(one)
		release := make(chan struct{})
		var order []string
		g.queue = enqueueFunc(func(_ context.Context, arrivals []inbox.Arrival) error {
			<-release
			order = append(order, arrivals[0].Route.OrgID)
			return nil
		})
		var sent sync.WaitGroup
		for _, page := range []string{"1", "2"} {
			sent.Go(func() {
				handlertest.Served(serve, signedWith("own-"+page, pages(map[string]int{"200" + page: 250})))
			})
			synctest.Wait()
		}
		close(release)
		sent.Wait()
		require.Equal(t, []string{"org_1", "org_2", "org_1", "org_2", "org_1", "org_2"}, order)
	})
}

type enqueueFunc func(ctx context.Context, arrivals []inbox.Arrival) error

func (f enqueueFunc) Enqueue(ctx context.Context, arrivals []inbox.Arrival) error {
	return f(ctx, arrivals)
}

// TestALongDeliveryThatBreaksOff guarantees that the platform is told to repeat a delivery of which only a part was stored, that the
// repetition stores each message once, and that it counts all of them.
func TestALongDeliveryThatBreaksOff(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{inbox.Kind}, func(t *testing.T, db *store.DB) {
		g, ring := newGate(t), handlertest.Ring(t)
		org, err := identity.CreateOrganization(t.Context(), db, "test", "Acme", "free", "")
		require.NoError(t, err)
		channel := store.Channel{
			ID: store.NewID("chn"), OrgID: org.ID, Type: "social_messenger", Name: "Page", ExternalID: "2001", State: store.ChannelActive,
		}
		channel.Credentials = ring.Seal(handlers.Marshal(platforms.Credentials{"appSecret": "own"}), vault.ChannelCredentials(org.ID, channel.ID))
		require.NoError(t, db.Channels.Create(t.Context(), "test", channel, 0))
		queue, calls := inbox.New(db, ring), atomic.Int32{}
		g.Webhooks = New(g.config, db.Routes, enqueueFunc(func(ctx context.Context, arrivals []inbox.Arrival) error {
			if calls.Add(1) == 3 {
				return store.ErrBusy
			}
			return queue.Enqueue(ctx, arrivals)
		}), ring, nil, nil)
		stored := func() (messages int) {
			require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM messages`).Scan(&messages))
			return messages
		}
		body := pages(map[string]int{"2001": 450})
		broken := handlertest.RefusedWith(t, errcode.InternalError, g.Social, signedWith("own", body))
		require.NotEmpty(t, broken.Header.Get("Retry-After"))
		require.Equal(t, 200, stored())
		acknowledged(t, g.Social, signedWith("own", body), 450)
		require.Equal(t, 450, stored())
	})
}

// TestFewSecretsForADelivery guarantees that a delivery is hashed with few secrets, whatever channels it is for, and that channels with one
// secret are proven together.
func TestFewSecretsForADelivery(t *testing.T) {
	t.Parallel()
	g, hashed := newGate(t), &countedDriver{}
	for _, driver := range builtin.Platforms() {
		if driver.Describe().Name == "social" {
			hashed.Driver = driver
		}
	}
	set, err := messaging.New(messaging.Config{Drivers: []platforms.Driver{hashed}, Options: g.options})
	require.NoError(t, err)
	t.Cleanup(set.Close)
	g.config.Platforms = set

	// kept delivers a text for each page, signed with "own". The secrets of pages are listed in order; "" is an unknown page.
	kept := func(secrets []string) (hashes, queued int) {
		g.routes.byID, g.arrivals, hashed.own = map[string]store.Route{}, nil, 0
		entries := make([]string, len(secrets))
		for i, secret := range secrets {
			page := fmt.Sprint(5000 + i)
			entries[i] = pageEntry(page, "m"+page, "hi")
			if secret == "" {
				continue
			}
			g.addOwn(t, "org_1", page, strings.TrimPrefix(secret, "pending "))
			if strings.HasPrefix(secret, "pending ") {
				route := g.routes.byID["chn_"+page]
				route.State = store.ChannelPending
				g.routes.byID["chn_"+page] = route
			}
		}
		body := `{"object":"page","entry":[` + strings.Join(entries, ",") + `]}`
		answer := handlertest.Served(g.Social, signedWith("own", body))
		for _, arrival := range g.arrivals {
			queued += len(arrival.Items)
		}
		require.Equal(t, queued == 0, answer.Code == http.StatusUnauthorized)
		return hashed.own, queued
	}
	of := func(n int, name func(i int) string) (secrets []string) {
		for i := range n {
			secrets = append(secrets, name(i))
		}
		return secrets
	}
	own := func(int) string { return "own" }
	different := func(i int) string { return fmt.Sprint("another ", i) }
	for name, delivered := range map[string]struct {
		secrets        []string
		hashes, queued int
	}{
		"one secret of 300":          {of(300, own), 1, 300},
		"the eighth":                 {slices.Concat(of(7, different), []string{"own"}), 8, 1},
		"300 secrets":                {slices.Concat([]string{"own"}, of(299, different)), 8, 1},
		"one again after 300":        {slices.Concat([]string{"own"}, of(299, different), []string{"own"}), 8, 2},
		"pending claims don't count": {slices.Concat([]string{"own"}, of(299, func(i int) string { return fmt.Sprint("pending ", i) }), []string{"own"}), 1, 2},
		"strangers":                  {slices.Concat(of(299, different), []string{"own"}), 8, 0},
	} {
		hashes, queued := kept(delivered.secrets)
		require.Equal(t, []int{delivered.hashes, delivered.queued}, []int{hashes, queued}, name)
	}
}

// countedDriver counts the deliveries that are compared with secrets of channels.
type countedDriver struct {
	platforms.Driver

	own int
}

func (d *countedDriver) New(config *platforms.Config) (platforms.Platform, error) {
	made, err := d.Driver.New(config)
	return countedPlatform{made.(socialPlatform), d}, err
}

type socialPlatform interface {
	platforms.Platform
	platforms.SignedDeliveries
	platforms.ChannelSigned
	platforms.Handshaker
	platforms.Refresher
	platforms.Templater
	platforms.FileSender
}

type countedPlatform struct {
	socialPlatform

	counted *countedDriver
}

func (p countedPlatform) VerifyOwn(d *platforms.Delivery, c platforms.Credentials) error {
	p.counted.own++
	return p.socialPlatform.VerifyOwn(d, c)
}
