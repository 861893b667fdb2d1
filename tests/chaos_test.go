package tests

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// chaosClients is how many clients work at a time.
	chaosClients = 20
	// chaosFunds is what every wallet begins with that isn't meant to run dry.
	chaosFunds = 1_000_000_000
	// chaosPoor is what the wallet begins with that is: some calls.
	chaosPoor = 2_000
	// dearFactor is how much a prompt costs more after every other reload.
	dearFactor = 3
)

// chaosTime is how long the chaos lasts before all is healed.
func chaosTime() time.Duration {
	if soak() {
		return 5 * time.Minute
	}
	return 8 * time.Second
}

// chaosSeed is SVC_CHAOS_SEED, or another one for each run. It decides what clients ask, what the provider does to each
// request, and what happens to the gateways; not how all that is interleaved.
func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("SVC_CHAOS_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, "SVC_CHAOS_SEED")
	}
	t.Logf("SVC_CHAOS_SEED=%d", seed)
	return seed
}

// TestChaos guarantees that money is right whatever comes together. Clients of several organizations (a hot one, one
// that is always nearly out of credits, own provider keys, the test environment) call two gateways on one store, in both
// forms, with and without Idempotency-Key, go away, come back with their key, and send duplicates at once. The provider
// fails in every way; the gateways are killed, restarted and reloaded with other prices; wallets are topped up, each
// payment more than once. Then all is healed and three independent books are compared: the clients', the provider's and
// the database's agree on the doctor's invariants.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := chaosSeed(t)
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		run := prepareChaos(t, engine, seed)
		var stop atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			together(chaosClients, func(i int) { run.clients[i].work(&stop) })
		}()
		func() {
			defer func() { stop.Store(true); <-ended }() // also when the test ends here
			run.trouble(t)
		}()
		run.heal(t)
		run.requireAgreement(t)
	})
}

// chaosRun is one run and its books.
type chaosRun struct {
	seed     uint64
	gateways []*product
	// customers by weight: the first is the hot one.
	customers []chaosCustomer
	provider  *chaosProvider
	clients   []*chaosClient
	payments  map[payment]int64 // confirmed, in micros

	kills, restarts, reloads int
	ledgerRows               int64
}

// chaosCustomer is an organization in one environment and how it calls.
type chaosCustomer struct {
	*customer
	weight int
	poor   bool
	// byok: it has own keys for the providers; onlyBYOK: and no credits.
	byok, onlyBYOK bool
}

// payment is what makes a top-up happen once.
type payment struct {
	wallet billing.WalletID
	ref    string
}

func prepareChaos(t *testing.T, engine store.Engine, seed uint64) *chaosRun {
	t.Helper()
	up := startUpstream(t)
	d := deploy(t, engine, up)
	d.First, d.Idle, d.Response, d.Longest = "1s", "1s", "2s", "3s"
	d.HoldTTL, d.Sweep, d.Grace = "1s", "200ms", "2s"
	run := &chaosRun{
		seed: seed, gateways: []*product{startProduct(t, d), startProduct(t, d.beside())},
		provider: newChaosProvider(seed), payments: map[payment]int64{},
	}
	run.provider.script = up.script(run.provider.play)
	o := run.gateways[0].operator()
	add := func(c chaosCustomer, micros int64) {
		if micros > 0 {
			run.pay(t, c.customer, micros, "first")
		}
		if c.byok {
			c.ownKey(t, "acme", chaosOwnKey(c.OrgID))
			c.ownKey(t, "own", chaosOwnKey(c.OrgID))
		}
		run.customers = append(run.customers, c)
	}
	add(chaosCustomer{customer: o.customer(t, 0), weight: 45}, chaosFunds)
	for range 4 {
		add(chaosCustomer{customer: o.customer(t, 0), weight: 9, byok: true}, chaosFunds)
	}
	add(chaosCustomer{customer: o.customer(t, 0), weight: 9, poor: true}, chaosPoor)
	add(chaosCustomer{customer: o.customer(t, 0), weight: 5, byok: true, onlyBYOK: true}, 0)
	add(chaosCustomer{customer: run.customers[0].testing(t), weight: 5}, chaosFunds)
	for i := range chaosClients {
		run.clients = append(run.clients, newChaosClient(run, i))
	}
	return run
}

// trouble happens to the gateways and wallets for a while, on the test's goroutine. It goes on until enough was seen
// for the comparison to mean something, on a slow machine, too.
func (r *chaosRun) trouble(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(r.seed, 1<<32)) //nolint:gosec // the same for the same seed
	end := time.Now().Add(chaosTime())
	for round := 0; time.Now().Before(end) || (!r.eventful() && time.Now().Before(end.Add(2*time.Minute))); round++ {
		<-time.After(time.Duration(random.IntN(400)) * time.Millisecond) // the work between two events
		p := r.gateways[random.IntN(len(r.gateways))]
		switch event := random.IntN(10); {
		case event < 3 || round == 0:
			p.kill()
			<-time.After(time.Duration(random.IntN(300)) * time.Millisecond)
			p.start()
			p.awaitReady()
			r.kills++
		case event == 3:
			p.restart()
			r.restarts++
		case event < 6 || round == 1:
			text := p.caddyfile(t)
			if r.reloads++; r.reloads%2 == 1 {
				text = strings.ReplaceAll(text, "price_input 1000000", "price_input "+strconv.Itoa(dearFactor*1_000_000))
			}
			require.NoError(t, p.reload(text))
		default:
			r.topUp(t, random, p, round)
		}
		r.sample(t)
	}
}

// eventful says whether the clients have seen enough of everything.
func (r *chaosRun) eventful() bool {
	var complete, replays, broken, left, refused int64
	for _, c := range r.clients {
		complete += c.complete.Load()
		replays += c.replays.Load()
		broken += c.broken.Load()
		left += c.left.Load()
		refused += c.refused.Load()
	}
	return r.kills > 0 && r.reloads > 0 && complete >= 300 && replays >= 20 && broken >= 10 && left >= 20 && refused > 0
}

// topUp pays for the poor, by the command line now and then; a payment is often sent again.
func (r *chaosRun) topUp(t *testing.T, random *rand.Rand, p *product, round int) {
	t.Helper()
	ref := "payment-" + strconv.Itoa(round)
	micros := int64(500 + random.IntN(1000))
	for _, c := range r.customers {
		if !c.poor {
			continue
		}
		if random.IntN(4) == 0 {
			p.svc(t, "wallet", "credit", "--org", c.OrgID, "--micros", strconv.FormatInt(micros, 10), "--ref", ref)
			r.payments[payment{billing.WalletID{OrgID: c.OrgID, Env: c.Env}, ref}] = micros
		}
		for range 1 + random.IntN(2) {
			r.pay(t, c.customer, micros, ref)
		}
	}
}

// pay tops up a wallet and notes what was confirmed.
func (r *chaosRun) pay(t *testing.T, c *customer, micros int64, ref string) {
	t.Helper()
	c.pay(t, c.Env, micros, ref)
	r.payments[payment{billing.WalletID{OrgID: c.OrgID, Env: c.Env}, ref}] = micros
}

// sample looks at the store in the middle of it all: no wallet is overdrawn, and the ledger only grows.
func (r *chaosRun) sample(t *testing.T) {
	t.Helper()
	db := r.gateways[0].operator().db.Reader()
	var overdrawn int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM wallets
		WHERE balance_micros < 0 OR held_micros < 0 OR held_micros > balance_micros`).Scan(&overdrawn))
	require.Zero(t, overdrawn, "L5")
	var rows int64
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM ledger_tx) + (SELECT count(*) FROM calls)`).Scan(&rows))
	require.GreaterOrEqual(t, rows, r.ledgerRows, "L16")
	r.ledgerRows = rows
}

// heal lets the provider be well, waits until what was left behind has expired, and then lets the clients ask once more
// for all that they have a key for and no answer.
func (r *chaosRun) heal(t *testing.T) {
	t.Helper()
	r.provider.well.Store(true)
	r.awaitQuiet(t)
	together(chaosClients, func(i int) { r.clients[i].askAgain() })
	r.awaitQuiet(t)
}

// awaitQuiet waits until nothing is held and no key is in progress.
func (r *chaosRun) awaitQuiet(t *testing.T) {
	t.Helper()
	db := r.gateways[0].operator().db.Reader()
	r.gateways[0].await("what was left behind to expire", patience, func() bool {
		var open int
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM holds)
			+ (SELECT count(*) FROM tranches) + (SELECT count(*) FROM running_keys)`).Scan(&open))
		return open == 0
	})
}
