package gateway_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/providers"
)

// playedCall is a call whose ending is played.
type playedCall struct {
	*fixture
	*gateway.Request

	t     *testing.T
	leave context.CancelFunc
	// wire loses commits; it is there for endings with losesCommits.
	wire *storetest.Wire
}

// ending plays a row of the table in docs/billing.md#what-each-ending-costs.
type ending struct {
	// play prepares the call and returns the vendor's steps.
	play         func(c *playedCall) []step
	losesCommits bool
	// form is the only form of the request in which it can be played, nil for both: without a key, and with one.
	form func(*gateway.Request)
}

// endings are the rows by their first cell. A row without an ending is proved elsewhere.
var endings = map[string]ending{
	"whole, with its usage":                 {play: func(*playedCall) []step { return answered() }},
	"whole, a part of the usage is missing": {play: func(*playedCall) []step { return answered()[:3] }},
	"a stop sequence that the gateway applies ends a stream": {play: func(c *playedCall) []step {
		c.Stop = []string{"two"}
		return []step{text("one "), text("two"), {hang: true}}
	}},
	"whole, own provider key or a price of 0": {play: func(c *playedCall) []step { // TestOwnKeyReplay has the price
		sealed := c.Ring.Seal([]byte("their-key"), vault.ProviderKey(org, "acme"))
		require.NoError(c.t, c.db.ProviderKeys.Put(c.t.Context(), "test", store.ProviderKey{OrgID: org, Provider: "acme", Sealed: sealed}))
		c.BYOK = true
		return answered()
	}},
	"refused before the provider is asked": {play: func(c *playedCall) []step {
		_, err := c.book.Adjust(c.t.Context(), "test", wallet(), -credits, "test", "empty", "")
		require.NoError(c.t, err)
		return nil
	}},
	"the hold's commit isn't confirmed": {losesCommits: true, play: func(c *playedCall) []step {
		c.wire.LoseCommits(false)
		return nil
	}},
	"the provider fails before it begins": {play: func(c *playedCall) []step {
		c.script.open = &providers.Error{Failure: providers.FailureOverloaded}
		return nil
	}},
	"the provider breaks off, nothing reported": {play: func(*playedCall) []step {
		return []step{text("one "), broken(providers.FailureUnreachable)}
	}},
	"the provider breaks off before the text, usage reported": {play: func(*playedCall) []step {
		return []step{usage(10, 20, 15), broken(providers.FailureOverloaded)}
	}},
	"the provider breaks off in the text, usage reported": {play: func(*playedCall) []step {
		return []step{text("one "), usage(10, 20, 0), broken(providers.FailureTimeout)}
	}},
	"the client leaves, the call is read to its end": {play: func(c *playedCall) []step {
		return []step{text("one "), finish("stop"), {do: func() {
			c.leave()
			if c.Turn != nil {
				return // it is cut
			}
			require.Eventually(c.t, func() bool { return c.Detached() == 1 }, time.Minute, time.Millisecond)
		}}, usage(10, 20, 0)}
	}},
	"the client leaves, the call is cut": {play: func(c *playedCall) []step {
		c.FillDrains()
		return []step{text("one "), {do: c.leave}, {hang: true}}
	}},
	"the client leaves, the call is cut before the provider begins": {play: func(c *playedCall) []step {
		c.FillDrains()
		c.script.hangOpen = c.leave
		return nil
	}},
	"the settlement takes longer than 5 s, no key": {losesCommits: true, form: streamed, play: losesItsSettlement},
	"the settlement takes longer than 5 s, key":    {losesCommits: true, form: keyed, play: losesItsSettlement},
	"the process stops, nothing reported": {play: func(c *playedCall) []step {
		return []step{text("one "), {do: c.calls.Cut}, {hang: true}}
	}},
	"the process stops before the text, usage reported": {play: func(c *playedCall) []step {
		return []step{usage(10, 20, 0), {do: c.calls.Cut}, {hang: true}}
	}},
	"the process stops in the text, usage reported": {play: func(c *playedCall) []step {
		return []step{text("one "), usage(10, 20, 0), {do: c.calls.Cut}, {hang: true}}
	}},
	"the process is killed": {}, // tests.TestCrash
}

func losesItsSettlement(c *playedCall) []step {
	return append(answered(), step{do: func() { c.wire.LoseCommits(false) }})
}

// TestTableOfEndings: the table in docs/billing.md#what-each-ending-costs has a row for each ending that is played here, and the call's
// record, the wallet and the next use of the key are as the row says.
func TestTableOfEndings(t *testing.T) {
	t.Parallel()
	rows := documentedEndings(t)
	require.Len(t, rows, len(endings))
	for _, row := range rows {
		how, charge, key := row[0], row[2], row[3]
		played, known := endings[how]
		require.True(t, known, how)
		if played.play == nil {
			continue
		}
		outcome := "^" + strings.ReplaceAll(strings.Split(row[1], "`")[1], "…", ".*") + "$"
		forms := map[string]func(*gateway.Request){"no key": streamed, "key": keyed}
		if played.form != nil {
			forms = map[string]func(*gateway.Request){"": played.form}
		}
		for form, change := range forms {
			t.Run(how+" "+form, func(t *testing.T) {
				t.Parallel()
				c := play(t, played, change)
				gotOutcome, gotCharge := c.recorded()
				require.Equal(t, charge, gotCharge)
				require.Regexp(t, outcome, gotOutcome)
				if c.IdempotencyKey != "" {
					require.Equal(t, key, c.again())
				}
			})
		}
		if played.form != nil {
			continue // TestTurnThatDoesNotEnd
		}
		t.Run(how+" turn", func(t *testing.T) {
			t.Parallel()
			turn := &playedTurn{}
			c := play(t, played, turn.of)
			_, gotCharge := c.recorded()
			if len(turn.texts) == 0 { // no whole answer is stored
				require.Equal(t, "0", gotCharge)
				return
			}
			require.Equal(t, charge, gotCharge)
		})
	}
}

// documentedEndings returns the cells of the table's rows.
func documentedEndings(t *testing.T) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/billing.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## What each ending costs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.HasPrefix(cells[1], "---") || cells[2] == " outcome " {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells[1:5])
	}
	return rows
}

// play plays an ending to the end of its settlement.
func play(t *testing.T, e ending, change func(*gateway.Request)) *playedCall {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	c := &playedCall{t: t, Request: request(streamed, change), leave: leave}
	var db *store.DB
	if e.losesCommits {
		c.wire = storetest.StartWire(t, storetest.Location(t, store.Postgres))
		db = storetest.OpenAt(t, c.wire.Location, store.Options{Kinds: []store.Kind{billing.Ledger}})
	} else {
		db = storetest.Open(t, store.SQLite, billing.Ledger)
	}
	c.fixture = setupAt(t, db, &script{})
	c.script.steps = e.play(c)
	_, _ = c.Call(ctx, c.Request, newClient()) // the record says how it ended
	if c.wire != nil {
		c.wire.Mend()
	}
	require.NoError(t, c.calls.Wait(t.Context()))
	return c
}

// recorded returns how the call ended and what it cost, in the words of the table. A call that was refused has no record, and that of one
// without money and key is written later: then the metrics say it.
func (c *playedCall) recorded() (outcome, charge string) {
	c.t.Helper()
	var charged, shortfall int64
	var source billing.UsageSource
	err := c.db.Reader().QueryRowContext(c.t.Context(), `SELECT outcome, charged_micros, shortfall_micros, usage_source FROM calls`).
		Scan(&outcome, &charged, &shortfall, &source)
	require.Equal(c.t, billing.Settled{ChargedMicros: charged, ShortfallMicros: shortfall}, c.observed.settled(), "in the metrics")
	if errors.Is(err, sql.ErrNoRows) {
		ended := c.ended(c.t)
		outcome, charged, source, err = string(ended.Outcome), ended.Settled.ChargedMicros, ended.UsageSource, nil
	}
	require.NoError(c.t, err)
	if charged == 0 {
		return outcome, "0"
	}
	return outcome, map[billing.UsageSource]string{billing.UsageProvider: "reported", billing.UsageEstimated: "estimated"}[source]
}

// again uses the key again, with a vendor that answers, and returns what became of it, in the words of the table.
func (c *playedCall) again() string {
	c.t.Helper()
	f := c.early(time.Minute) // a gateway whose places are free
	f.calls = gateway.NewInFlight()
	f.Calls = f.calls
	f.script.open, f.script.hangOpen, f.script.steps = nil, nil, answered()
	_, err := f.book.Credit(c.t.Context(), "test", wallet(), credits, "again")
	require.NoError(c.t, err)
	result, err := f.Call(c.t.Context(), c.Request, newClient())
	failed, isFailure := errors.AsType[*failure](err)
	require.True(c.t, err == nil || isFailure && failed.Replayed, "%v", err)
	if isFailure || result.Replayed {
		return "kept"
	}
	return "free"
}
