package webhook

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// A recorded delivery is valid only at the address that it was sent to: neither at another platform's nor at another bot's.
func TestWebhookDeliveriesElsewhere(t *testing.T) {
	t.Parallel()
	for _, seen := range everyPlatform() {
		for _, other := range everyPlatform() {
			if seen.name == other.name && seen.name != "bot" {
				continue // it has one address
			}
			g := newGate(t)
			path := strings.Replace(other.path, "chn_bot1", "chn_bot2", 1)
			for _, header := range []string{seen.header, other.header} {
				handlertest.RefusedWith(t, errcode.Unauthenticated, other.serve(g), delivery(path, header, seen.sign(seen.text), seen.text))
			}
			require.Zero(t, g.enqueues)
		}
	}
}

// Deliveries for channels that don't exist write nothing, however many come and however well they are signed.
func TestWebhookWritesNothingForStrangers(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{inbox.Kind}, func(t *testing.T, db *store.DB) {
		g := newGate(t)
		g.Webhooks = New(g.config, db.Routes, inbox.New(db, handlertest.Ring(t)), handlertest.Ring(t), nil, nil)
		before := rowsOf(t, db)
		require.Greater(t, len(before), 20)
		for i := range 100 {
			for _, p := range everyPlatform() {
				p.path = strings.Replace(p.path, "chn_bot1", fmt.Sprintf("chn_%026d", i), 1)
				acknowledged(t, p.serve(g), p.signed(p.text), 0)
			}
		}
		require.Equal(t, before, rowsOf(t, db))
	})
}

// rowsOf returns the number of rows of each table.
func rowsOf(t *testing.T, db *store.DB) map[string]int {
	t.Helper()
	tables := `SELECT name FROM sqlite_master WHERE type = 'table'`
	if db.Engine() == store.Postgres {
		tables = `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'`
	}
	rows, err := db.Reader().QueryContext(t.Context(), tables)
	require.NoError(t, err)
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		counts[name] = 0
	}
	require.NoError(t, rows.Err())
	for name := range counts {
		var n int
		require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM `+name).Scan(&n))
		counts[name] = n
	}
	return counts
}

// fillDeliveries takes the whole share of unverified deliveries.
func fillDeliveries(t *testing.T, budget *handlers.ByteBudget) {
	t.Helper()
	owners := 0
	for _, size := range []int64{4 << 10, 1} {
		for budget.Take(handlers.Account{Share: handlers.ShareDeliveries, Owner: fmt.Sprint(owners)}, size) {
			for budget.Take(handlers.Account{Share: handlers.ShareDeliveries, Owner: fmt.Sprint(owners)}, size) { // as much as is free
				continue
			}
			owners++
		}
	}
	for budget.Take(handlers.Account{Share: handlers.ShareLargeDeliveries, Owner: ""}, 1<<20) {
		continue
	}
}

// The secret of a bot is compared before its body is read, so strangers' bodies take no room from those of its organization.
func TestStrangersTakeNothingFromBots(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	fillDeliveries(t, g.bodies)
	bot := everyPlatform()[0]
	for _, size := range []int{0, 8 << 10, 2 * handlers.LargeDelivery} {
		acknowledged(t, bot.serve(g), bot.signed(bot.text+strings.Repeat(" ", size)), 1)
	}
	require.Zero(t, g.bodies.UsedBy(handlers.ShareOrganizations))
	require.True(t, g.bodies.Take(handlers.Account{Share: handlers.ShareOrganizations, Owner: "org_1"}, 64<<20), "as much as the organization may hold")
	a := handlertest.RefusedWith(t, errcode.InternalError, bot.serve(g), bot.signed(bot.text))
	require.Equal(t, "1", a.Header.Get("Retry-After"), "platforms come back after a fault, not after a refusal")
}

// A small delivery that arrives at once is accepted although strangers hold the whole share; one that arrives slowly isn't.
func TestPromptDeliveriesPassAFullReserve(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		if p.name == "bot" {
			return // it needs none of the reserve
		}
		before := g.bodies.UsedBy(handlers.ShareDeliveries)
		acknowledged(t, p.serve(g), p.signed(p.text+strings.Repeat(" ", handlers.PromptDelivery-len(p.text))), 1)
		require.Equal(t, before, g.bodies.UsedBy(handlers.ShareDeliveries))
		fillDeliveries(t, g.bodies)
		full := g.bodies.UsedBy(handlers.ShareDeliveries)
		acknowledged(t, p.serve(g), p.signed(p.text), 1)
		acknowledged(t, p.serve(g), p.signed(p.text+strings.Repeat(" ", handlers.PromptDelivery-len(p.text))), 1)
		handlertest.RefusedWith(t, errcode.InternalError, p.serve(g), p.signed(p.text+strings.Repeat(" ", handlers.PromptDelivery+1-len(p.text))))
		undeclared := p.signed(p.text)
		undeclared.ContentLength = -1
		handlertest.RefusedWith(t, errcode.InternalError, p.serve(g), undeclared)

		began := time.Now()
		w := &handlertest.Deadlines{ResponseWriter: httptest.NewRecorder()}
		slow := p.signed(p.text)
		slow.Body = io.NopCloser(io.MultiReader(strings.NewReader(p.text[:40]), strings.NewReader(p.text[40:80]), tooLate{}))
		require.Equal(t, http.StatusBadRequest, handlertest.Written(t, p.serve(g)(w, slow), "").Status)
		require.Len(t, w.Read, 2, "a byte that comes late moves nothing")
		require.WithinRange(t, w.Read[1], began, w.Read[0].Add(handlers.PromptTime-webhookBodyTime+time.Since(began)))
		require.Equal(t, full, g.bodies.UsedBy(handlers.ShareDeliveries))
	})
}

// tooLate is the rest of a body that didn't arrive in time.
type tooLate struct{}

func (tooLate) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }
