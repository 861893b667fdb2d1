package console

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// customers is in every text of a customer of [busy].
const customers = "secret-of-a-customer"

// busy is [signedIn] with an organization that has a channel, customers who wait, a turn that was given up, a charged call, a key and a user.
func busy(t *testing.T, role string) *fixture {
	t.Helper()
	f := signedIn(t, role)
	ctx := t.Context()
	wallet := billing.WalletID{OrgID: "org_1", Env: store.Live}
	_, err := f.book.Credit(ctx, "test", wallet, 30_000_000, "BANK 1")
	require.NoError(t, err)
	_, err = f.book.Hold(ctx, billing.Hold{CallID: "call_1", Wallet: wallet, AmountMicros: 20_000_000, ExpiresIn: time.Hour})
	require.NoError(t, err)
	_, err = f.book.Settle(ctx, billing.Settlement{
		Call: billing.Call{
			ID: "call_1", Model: "echo/a", Provider: "echo", KeyID: "key_1", Wallet: wallet, Outcome: "completed",
			Usage: billing.Usage{CompletionTokens: 2_000_000}, UsageSource: billing.UsageProvider,
		},
		ReservedMicros: 20_000_000, Price: billing.Price{CachedInput: -1, Output: 10_000_000},
	})
	require.NoError(t, err)
	require.NoError(t, f.db.Organizations.Create(ctx, "test", store.Organization{ID: "org_2", Name: "Coffee", Plan: "start"}))
	require.NoError(t, f.db.Organizations.SetSuspended(ctx, "test", "org_2", true, "card fraud"))
	_, hash, hint := identity.NewKey(store.Live)
	require.NoError(t, f.db.APIKeys.Create(ctx, "test", store.APIKey{ID: "key_1", OrgID: "org_1", Env: store.Live, Name: "Website", Hash: hash, Hint: hint}))
	require.NoError(t, f.db.Channels.Create(ctx, "test", store.Channel{
		ID: "chn_1", OrgID: "org_1", Type: "bot", Name: "Bot", ExternalID: "1", State: store.ChannelActive,
	}, 0))
	queue := inbox.New(f.db, f.ring)
	for _, customer := range []string{"a", "b", "c"} {
		require.NoError(t, queue.Enqueue(ctx, []inbox.Arrival{{
			Route: store.Route{ChannelID: "chn_1", OrgID: "org_1", Type: "bot", State: store.ChannelActive},
			Items: []inbox.Item{{
				Kind: platforms.Text, CustomerRef: customers + customer, CustomerName: customers, Address: customers, MessageID: customer, Text: customers,
			}},
		}}))
	}
	leases, err := queue.Lease(ctx, inbox.Places{Free: 1}, time.Hour)
	require.NoError(t, err)
	work, err := queue.Open(ctx, leases[0], 10)
	require.NoError(t, err)
	require.NoError(t, queue.BeginCall(ctx, leases[0], inbox.Turn{ID: "trn_1", AgentID: "agt_1", Request: []byte(customers)}, []string{work.Waiting[0].ID}))
	require.NoError(t, queue.Stand(ctx, leases[0], inbox.Standing{TurnID: "trn_1", Code: "provider_error", Final: true}))
	require.NoError(t, queue.Release(ctx, leases[0]))
	storetest.Fill(t, f.db, `UPDATE conversations SET unanswered_since = 1 WHERE unanswered_since > 0`, `UPDATE turns SET state = 'dead'`,
		`INSERT INTO invitations (id, org_id, email, role, hash, created_at, updated_at, expires_at) VALUES ('usr_1', 'org_1', 'lan@example.com', 'owner', NULL, 1, 1, 1)`,
		`INSERT INTO conditions (kind, subject, node, since, text) VALUES ('wallet_ends', 'org_1', '', 1, 'A wallet ends.')`,
		`UPDATE conversations SET attention = 'provider_error' WHERE id = (SELECT conversation_id FROM turns)`)
	require.NoError(t, billing.NewUsageSums(f.db).Update(ctx))
	return f
}

var links = regexp.MustCompile(`href="(/console[^"]*)"`)

// Each page that a link leads to exists, for each role; so does each file. No page and no file has a text of a customer.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"viewer", "support", "administrator"} {
		f := busy(t, role)
		next, seen := []string{"/console"}, map[string]bool{}
		for _, p := range pages() {
			if !p.Public && p.Template != "" {
				next = append(next, strings.Replace(p.Path, "{id}", "org_1", 1))
			}
		}
		for len(next) > 0 {
			path, _, _ := strings.Cut(html.UnescapeString(next[0]), "#")
			next = next[1:]
			if seen[path] || strings.Contains(path, "/static/") {
				continue
			}
			seen[path] = true
			page := f.opens(t, path)
			require.NotContains(t, page, customers, path)
			for _, link := range links.FindAllStringSubmatch(page, -1) {
				next = append(next, link[1])
			}
		}
		for _, path := range []string{
			"/console/organizations/org_1/ledger.csv?", "/console/organizations/org_1/calls.csv?", "/console/usage.csv?", "/console/usage?by=model",
			"/console/organizations?suspended=true", "/console/organizations/org_1/people", "/console/organizations/org_2",
		} {
			require.True(t, seen[path], "%s of %d", path, len(seen))
		}
	}
}

var number = regexp.MustCompile(`<a href="([^"]*)">\s*<span class="figure-label">.*?</span>\s*<strong id="([\w-]+)"[^>]*>([^<]*)</strong>`)

// The overview shows the numbers of the service. Each number links to a list with that many things.
func TestOverview(t *testing.T) {
	t.Parallel()
	f := busy(t, "viewer")
	page := f.opens(t, "/console")
	numbers := map[string]string{}
	paths := map[string]string{}
	for _, match := range number.FindAllStringSubmatch(page, -1) {
		paths[match[2]], numbers[match[2]] = html.UnescapeString(match[1]), match[3]
	}
	require.Equal(t, map[string]string{
		"organizations": "2", "new-organizations": "1", "suspended": "1", "calls": "0", "charged": "20.00 credits", "margin": "20.00 credits",
		"waiting-customers": "3",
	}, numbers)
	rows := func(page string) int { return strings.Count(page, "<tr data-id=") }
	require.Equal(t, 2, rows(f.opens(t, paths["organizations"])))
	for _, id := range []string{"new-organizations", "suspended"} {
		listed := f.opens(t, paths[id])
		require.Equal(t, 1, rows(listed), id)
		require.Contains(t, listed, "Coffee", id)
	}
	require.Contains(t, f.opens(t, paths["charged"]), `data-micros="20000000"`)
	require.Equal(t, "#waits", paths["waiting-customers"])
	require.Regexp(t, `(?s)id="waits".*<strong>3</strong><a href="/console/organizations/org_1">Tea &lt;House&gt;</a>`, page)
	require.Regexp(t, `(?s)data-kind="wallet_ends".*A wallet ends.*since.*href="/console/organizations/org_1"`, page)
	require.Regexp(t, `(?s)id="wallets".*href="/console/organizations/org_1/ledger" data-micros="10000000">.*days`, page)
	require.Contains(t, page, `id="money"`)
	require.Contains(t, page, `data-live="/console?fragment=overview-now"`)
	now := f.opens(t, "/console?fragment=overview-now")
	require.Contains(t, now, "A wallet ends.")
	require.Contains(t, now, `<strong id="waiting-customers">3</strong>`)
	require.NotContains(t, now, "<html")
	require.NotContains(t, now, `id="money"`)
	require.Regexp(t, `href="/console/queue#dead">\s*1</a>|id="given-up">1</a>`, page)
}

// Figures are listed by each sort and filter; a filter that is refused is an error at its field. The file has the rows of the page.
func TestUsage(t *testing.T) {
	t.Parallel()
	f := busy(t, "viewer")
	today := time.Now().UTC().Format(time.DateOnly)
	for query, want := range map[string]string{
		"": `<a href="/console/usage?by=organization&amp;from=` + today, "by=organization": `<a href="/console/usage?by=model&amp;orgId=org_1">Tea`,
		"by=model": `<a href="/console/usage?by=day&amp;model=echo%2Fa">echo/a`, "by=vendor": `<a href="/console/vendors">echo`,
		"by=key&orgId=org_1": `<a href="/console/organizations/org_1/keys">Website`,
		"orgId=org_1":        `<a href="/console/organizations/org_1/calls?from=` + today + `&amp;to=` + today,
	} {
		page := f.opens(t, "/console/usage?"+query)
		require.Contains(t, page, want, query)
		require.Contains(t, page, `<td class="number" data-micros="20000000">`, query)
		require.Contains(t, page, `id="money-table"`, query)
	}
	require.Contains(t, f.opens(t, "/console/usage?by=key"), `id="usage-filter-orgId-error"`)
	require.Contains(t, f.opens(t, "/console/usage?from=2026-02-31"), `id="usage-filter-from-error"`)
	require.Contains(t, f.opens(t, "/console/usage?model=nothing"), "No call ended in this time.")
	require.Equal(t, http.StatusNotFound, f.send(t, "/console/usage?orgId=org_x", nil).Code)
	w := f.send(t, "/console/usage.csv?by=organization", nil)
	require.Equal(t, "text/csv; charset=utf-8; header=present", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Regexp(t, "^id,name,calls.*\r\norg_1,Tea <House>,1,", w.Body.String())
	require.Equal(t, http.StatusBadRequest, f.send(t, "/console/usage.csv?by=key", nil).Code)
}

// Search finds an organization by its name, and one by an id of something that it has; people are found by their addresses.
func TestSearch(t *testing.T) {
	t.Parallel()
	f := busy(t, "viewer")
	for text, want := range map[string]string{
		"tea": "", "org_1": "", "key_1": "/keys", "chn_1": "/channels", "call_1": "/calls",
	} {
		w := f.send(t, "/console/search?q="+url.QueryEscape(text), nil)
		require.Equal(t, "/console/organizations/org_1"+want, w.Header().Get("Location"), text)
	}
	for _, text := range []string{"%", "nothing", ""} {
		require.Contains(t, f.opens(t, "/console/search?q="+url.QueryEscape(text)), "Nothing has this name or id.")
	}
	require.Contains(t, f.opens(t, "/console/people?email=LAN@"), `<a href="/console/organizations/org_1/people">Tea &lt;House&gt;</a>`)
	require.Contains(t, f.opens(t, "/console/people?email=an"), "No person has such an address.")
	require.Contains(t, f.opens(t, "/console/people"), "viewer@example.com")
	require.Contains(t, f.opens(t, "/console/organizations?q=cof"), "Coffee")
	require.NotContains(t, f.opens(t, "/console/organizations?q=cof"), "Tea")
}
