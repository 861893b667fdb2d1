package api

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// run runs an operation as the operator, on an organization or on the service.
func run[T any](t *testing.T, o *fixture, operation Operation, org string, values endpoint.Values) T {
	t.Helper()
	principal, err := o.Operator(t.Context(), identity.CommandLine("cli:lan"), org)
	require.NoError(t, err)
	body, err := operation.Run(t.Context(), o.Deps, principal, values)
	require.NoError(t, err)
	return *body.(*T)
}

// TestSearchOrganizations guarantees that people find an organization by any name or id that they have of it, and that no character of a search is special.
func TestSearchOrganizations(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	for i, name := range []string{"Tiệm Bánh Gió", "TIỆM Bánh Đông", "100% Xưởng", "100_Xưởng", "Đông Á"} {
		require.NoError(t, o.DB.Organizations.Create(t.Context(), "test", store.Organization{ID: fmt.Sprint("org_v", i), Name: name, Plan: "start"}))
	}
	suspended := identity.CommandLine("cli:lan")
	require.NoError(t, o.DB.Organizations.SetSuspended(t.Context(), suspended.Actor(), "org_v4", true, ""))
	search := func(values endpoint.Values) (ids string) {
		t.Helper()
		for cursor := any(nil); ; {
			page := endpoint.Values{"limit": "2"}
			maps.Copy(page, values)
			if cursor != nil {
				page["cursor"] = cursor
			}
			list := run[endpoint.ListObject[customerObject]](t, o, ListOrganizations, "", page)
			require.LessOrEqual(t, len(list.Data), 2)
			for _, organization := range list.Data {
				ids += organization.ID + " "
			}
			if list.NextCursor == nil {
				return ids
			}
			cursor = *list.NextCursor
		}
	}
	require.Equal(t, "org_1 org_2 org_3 org_v0 org_v1 org_v2 org_v3 org_v4 ", search(nil))
	for text, want := range map[string]string{
		"tiệm bánh": "org_v0 org_v1 ", "tiem banh d": "org_v1 ", "TIEM": "org_v0 org_v1 ", "đông": "org_v4 ", "DONG": "org_v4 ",
		"Tie\u0302\u0323m bánh g": "org_v0 ", "%": "", "_": "", "100%": "org_v2 ", "100_": "org_v3 ", "100": "org_v2 org_v3 ", "org_v3": "org_v3 ",
		"org_": "org_1 org_2 org_3 ", "org_v": "", "bánh": "", "' OR 1=1 --": "",
	} {
		require.Equal(t, want, search(endpoint.Values{"q": text}), text)
	}
	require.Equal(t, "org_v0 org_v1 org_v2 org_v3 org_v4 ", search(endpoint.Values{"plan": "start"}))
	require.Equal(t, "org_v4 ", search(endpoint.Values{"plan": "start", "suspended": "true"}))
	require.Equal(t, "org_v1 ", search(endpoint.Values{"plan": "start", "suspended": "false", "q": "tiem banh d"}))
	created := func(after time.Duration) endpoint.Values {
		first, err := o.DB.Organizations.ByID(t.Context(), "org_v0")
		require.NoError(t, err)
		return endpoint.Values{"createdSince": time.UnixMilli(first.CreatedAt).Add(after).UTC().Format(time.RFC3339), "plan": "start"}
	}
	require.Equal(t, "org_v0 org_v1 org_v2 org_v3 org_v4 ", search(created(-time.Second)))
	require.Empty(t, search(created(time.Hour)))

	raw, hash, hint := identity.NewKey(store.Live)
	require.NoError(t, o.DB.APIKeys.Create(t.Context(), "test", store.APIKey{ID: "key_v", OrgID: "org_v1", Env: store.Live, Hash: hash, Hint: hint}))
	o.Book = billing.NewBook(o.DB)
	_, err := o.Book.Credit(t.Context(), "test", liveWallet, 1_000_000, "r")
	require.NoError(t, err)
	o.charge(t, *o.now, billing.Call{ID: "call_v", Wallet: liveWallet})
	storetest.Fill(t, o.DB, `INSERT INTO channels (id, org_id, type, name, external_id, state, credentials_version, created_at, updated_at) VALUES ('chn_v', 'org_2', 'bot', 'Shop', '', 'pending', 1, 1, 1)`)
	for text, want := range map[string]string{
		"chn_v": "channel org_2, ", "tiem": "organization org_v1, organization org_v0, ", "org_1": "organization org_1, ", "key_v": "key org_v1, ", raw[:12]: "key org_v1, ",
		raw[:11]: "", "call_v": "call org_1, ", "chatcmpl-v": "call org_1, ", "%": "", "ck_": "", "call_": "",
	} {
		found := ""
		for _, f := range run[endpoint.ListObject[FoundObject]](t, o, FindOrganization, "", endpoint.Values{"q": text}).Data {
			found += f.Kind + " " + f.OrgID + ", "
		}
		require.Equal(t, want, found, text)
	}
}

// TestUsage guarantees that what organizations used is listed by organization, model, vendor, key and day, up to a moment that is said, and that
// the sums of a list are the ledger's.
func TestUsage(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.Book = billing.NewBook(o.DB)
	o.Now = func() time.Time { return *o.now }
	for _, wallet := range []billing.WalletID{liveWallet, testWallet, strangerWallet} {
		_, err := o.Book.Credit(t.Context(), "test", wallet, 1_000_000, "r")
		require.NoError(t, err)
	}
	require.Nil(t, run[OverviewObject](t, o, GetOverview, "", nil).CountedThrough)
	call := func(id, model, key string, wallet billing.WalletID, age time.Duration, tokens int64) {
		o.charge(t, o.now.Add(-age), billing.Call{
			ID: id, Model: model, Provider: strings.Split(model, "/")[0], KeyID: key, Wallet: wallet, Outcome: "completed",
			Usage: billing.Usage{CompletionTokens: tokens},
		})
	}
	const day = 24 * time.Hour
	call("call_0", "echo/a", "key_1", liveWallet, 35*day, 4)
	call("call_1", "echo/a", "key_1", liveWallet, day, 1)
	call("call_2", "other/b", "=key", liveWallet, 0, 2)
	call("call_3", "echo/a", "", strangerWallet, 0, 5)
	call("call_4", "echo/a", "key_t", testWallet, 0, 9)
	ended := *o.now
	*o.now = o.now.Add(20 * time.Second)
	require.NoError(t, billing.NewUsageSums(o.DB).Update(t.Context()))

	list := func(org string, values endpoint.Values) (text string) {
		t.Helper()
		operation := Operation(ListUsage)
		if org != "" {
			operation = ListOrganizationUsage
		}
		for _, row := range run[endpoint.ListObject[UsageObject]](t, o, operation, org, values).Data {
			require.NotNil(t, row.CountedThrough)
			text += fmt.Sprintf("%s: %d for %s, ", row.ID, row.Calls, row.ChargedMicros)
		}
		return text
	}
	today, yesterday := ended.UTC().Format(dayLayout), ended.Add(-day).UTC().Format(dayLayout)
	require.Equal(t, yesterday+": 1 for 10, "+today+": 2 for 70, ", list("", nil))
	require.Equal(t, "org_1: 2 for 30, org_2: 1 for 50, ", list("", endpoint.Values{"by": "organization"}))
	require.Equal(t, "org_1: 1 for 10, org_2: 1 for 50, ", list("", endpoint.Values{"by": "organization", "model": "echo/a"}))
	require.Equal(t, "echo/a: 2 for 60, other/b: 1 for 20, ", list("", endpoint.Values{"by": "model"}))
	require.Equal(t, "echo: 2 for 60, other: 1 for 20, ", list("", endpoint.Values{"by": "vendor"}))
	require.Equal(t, "=key: 1 for 20, key_1: 1 for 10, ", list("org_1", endpoint.Values{"by": "key"}))
	require.Equal(t, "=key: 1 for 20, key_1: 1 for 10, ", list("", endpoint.Values{"by": "key", "orgId": "org_1"}))
	require.Equal(t, "echo/a: 1 for 90, ", list("org_1", endpoint.Values{"by": "model", "environment": "test"}))
	require.Equal(t, yesterday+": 1 for 10, ", list("", endpoint.Values{"from": yesterday, "to": yesterday}))
	first := run[endpoint.ListObject[UsageObject]](t, o, ListUsage, "", endpoint.Values{"by": "organization", "limit": "1"})
	require.Len(t, first.Data, 1)
	require.Equal(t, "org_2: 1 for 50, ", list("", endpoint.Values{"by": "organization", "cursor": *first.NextCursor}))
	require.Equal(t, endpoint.Timestamp(o.now.Add(-15*time.Second).UnixMilli()), *first.Data[0].CountedThrough)
	for field, values := range map[string]endpoint.Values{
		"orgId": {"by": "key"}, "by": {"by": "model;"}, "to": {"from": today, "to": yesterday}, "from": {"from": "yesterday"}, "cursor": {"cursor": "x"},
	} {
		principal, err := o.Operator(t.Context(), identity.CommandLine("cli:lan"), "")
		require.NoError(t, err)
		_, err = ListUsage.Run(t.Context(), o.Deps, principal, values)
		refusal, ok := errors.AsType[*handlers.Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, field, refusal.Field)
	}

	overview := run[OverviewObject](t, o, GetOverview, "", nil)
	require.Equal(t, int64(3), overview.Organizations)
	require.Equal(t, []int64{1, 0, 3, 2}, []int64{overview.Suspended, overview.NewOrganizations, overview.Waiting, overview.WaitingIn})
	require.Equal(t, []LongWait{{"org_1", "One", 2}, {"org_2", "Two", 1}}, overview.LongWaits)
	require.Len(t, overview.CallsByMinute, 60)
	require.Equal(t, int64(3), overview.Last30Days.Calls)
	require.Equal(t, "80", overview.Last30Days.MarginMicros)
	require.InDelta(t, 100, *overview.Last30Days.MarginPercent, 0)
	require.InDelta(t, 100, *overview.Last30Days.ChargedChange, 0)
	require.Empty(t, overview.EndingWallets)
	summary := run[SummaryObject](t, o, GetSummary, "org_1", nil)
	require.Equal(t, "30", summary.Last30Days.ChargedMicros)
	require.Equal(t, []OutcomeObject{{"completed", 1}}, summary.Outcomes)
	_, err := o.Book.Adjust(t.Context(), "test", liveWallet, -999_910, "r", "r", "")
	require.NoError(t, err)
	ending := run[OverviewObject](t, o, GetOverview, "", nil).EndingWallets
	require.Len(t, ending, 1)
	require.Equal(t, "org_1", ending[0].OrgID)
	require.Equal(t, "20", ending[0].BalanceMicros)
	require.Contains(t, []float64{5, 6.7}, *ending[0].DaysLeft, "30 in seven days and a part of today are 3 or 4 whole ones a day")
}

// TestUsageAsCSV guarantees that a spreadsheet gets every row, and evaluates none.
func TestUsageAsCSV(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.Book = billing.NewBook(o.DB)
	o.Now = func() time.Time { return *o.now }
	_, err := o.Book.Credit(t.Context(), "test", liveWallet, 1_000_000, "r")
	require.NoError(t, err)
	o.charge(t, *o.now, billing.Call{ID: "call_1", Model: "echo/a", Provider: "echo", KeyID: "=key", Wallet: liveWallet})
	*o.now = o.now.Add(20 * time.Second)
	require.NoError(t, billing.NewUsageSums(o.DB).Update(t.Context()))
	public := ListOrganizationUsage // as a route of an organization, because the operator's routes have a server of their own
	public.Scope, public.Role, public.OperatorScope = identity.WalletRead, handlers.RoleMember, ""
	server := endpoint.New(o.Authenticator, o.Sessions, nil)
	public.Register(server, o.Deps)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/wallet/usage?by=key&format=csv", http.NoBody)
	r.Header.Set("Authorization", "Bearer owner")
	w := httptest.NewRecorder()
	require.NoError(t, server.Serve(w, r))
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\r\n")
	require.Len(t, lines, 2, w.Body.String())
	require.Equal(t, strings.Count(lines[0], ","), strings.Count(lines[1], ","))
	require.True(t, strings.HasPrefix(lines[1], "'=key,,1,0,0,1,"), lines[1])
}
