package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func botBody(name string) string {
	return `{"type":"bot","name":"` + name + `","credentials":{"secretToken":"secret_T-1-0123456789","botToken":"1:ABC"}}`
}

func pageBody(name, externalID, token string) string {
	return `{"type":"social_messenger","name":"` + name + `","externalId":"` + externalID + `","credentials":{"accessToken":"` + token + `"}}`
}

func TestBotChannel(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	created := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", botBody("Shop"))
	id := created["id"].(string)
	require.Regexp(t, `^chn_[0-9a-v]{26}$`, id)
	require.Equal(t, map[string]any{
		"id": id, "type": "bot", "name": "Shop", "externalId": nil, "lostExternalId": nil, "agentId": nil, "state": "active", "unavailableReason": nil,
		"throttledUntil": nil,
		"webhookUrl":     "https://svc.example/webhooks/bot/" + id, "origins": nil, "dailySpendMicros": nil, "requestsPerMinute": nil,
		"maxAgeMinutes": nil, "answerMode": "automatic", "openingHours": []any{}, "timeZone": nil, "closedNotice": nil,
		"mediaNotice": nil,
		"createdAt":   "2026-11-21T10:00:00.000Z", "updatedAt": "2026-11-21T10:00:00.000Z",
	}, created)
	require.Equal(t, created, o.ask(t, http.StatusOK, http.MethodGet, "/channels/"+id, "owner", ""))
	require.Equal(t, []any{created}, o.ask(t, http.StatusOK, http.MethodGet, "/channels", "owner", "")["data"])
	require.Zero(t, o.platform.calls, "a bot claims nothing")

	// The credentials are sealed for this row and readable there.
	channel, err := o.DB.Channels.ByID(t.Context(), "org_1", id)
	require.NoError(t, err)
	require.NotContains(t, string(channel.Credentials), "ABC")
	credentials, err := messaging.OpenCredentials(o.Ring, "org_1", id, channel.Credentials)
	require.NoError(t, err)
	require.Equal(t, platforms.Credentials{"secretToken": "secret_T-1-0123456789", "botToken": "1:ABC"}, credentials)
	_, err = messaging.OpenCredentials(o.Ring, "org_2", id, channel.Credentials)
	require.ErrorIs(t, err, vault.ErrCorrupt)
}

func TestWebhookURLs(t *testing.T) {
	t.Parallel()
	want := map[platforms.Type]string{
		bot.Type: "http://x/webhooks/bot/chn_1", social.Messenger: "http://x/webhooks/social", social.PhotoDM: "http://x/webhooks/social",
		social.ChatApp: "http://x/webhooks/social", localchat.Type: "http://x/webhooks/localchat", marketa.Type: "http://x/webhooks/market-a",
		marketb.Type: "http://x/webhooks/market-b", messaging.Widget: "",
	}
	catalog := handlertest.BuiltinPlatforms(t).Catalog
	for _, channel := range catalog.Types() {
		require.Equal(t, want[channel.Type], catalog.WebhookURL("http://x", string(channel.Type), "chn_1"))
	}
	require.Empty(t, catalog.WebhookURL("http://x", "pigeon", "chn_1"))
}

func TestChannelRefusals(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	for _, c := range []struct{ body, field string }{
		{`{"type":"widget","name":"a","credentials":{}}`, "credentials"},
		{`{"type":"widget","name":"a","externalId":"7"}`, "externalId"},
		{`{"type":"widget","name":"a","origins":["https://example.com/path"]}`, "origins[0]"},
		{`{"type":"widget","name":"a","origins":["https://example.com","https://*.com"]}`, "origins[1]"},
		{`{"type":"widget","name":"a","origins":["https://*.co.uk"]}`, "origins[0]"},
		{`{"type":"widget","name":"a","origins":["https://*.CO.uk"]}`, "origins[0]"},
		{`{"type":"widget","name":"a","origins":["https://*.github.io"]}`, "origins[0]"},
		{`{"type":"widget","name":"a","origins":"https://example.com"}`, "origins"},
		{`{"type":"widget","name":"a","origins":[` + strings.Repeat(`"https://example.com",`, 20) + `"https://example.com"]}`, "origins"},
		{`{"type":"widget","name":"a","dailySpendMicros":"-1"}`, "dailySpendMicros"},
		{`{"type":"widget","name":"a","dailySpendMicros":5}`, "dailySpendMicros"},
		{`{"type":"widget","name":"a","dailySpendMicros":"1.5"}`, "dailySpendMicros"},
		{`{"type":"widget","name":"a","requestsPerMinute":0}`, "requestsPerMinute"},
		{`{"type":"widget","name":"a","requestsPerMinute":6001}`, "requestsPerMinute"},
		{`{"type":"bot","name":"a","origins":[],"credentials":{"secretToken":"a-0123456789abcde","botToken":"1:A"}}`, "origins"},
		{`{"type":"bot","name":"a","dailySpendMicros":null,"credentials":{"secretToken":"a-0123456789abcde","botToken":"1:A"}}`, "dailySpendMicros"},
		{`{"type":"bot","name":"a","requestsPerMinute":1,"credentials":{"secretToken":"a-0123456789abcde","botToken":"1:A"}}`, "requestsPerMinute"},
		{`{"type":"telegram","name":"a","credentials":{}}`, "type"},
		{`{"type":null,"name":"a","credentials":{}}`, "type"},
		{`{"type":"bot","name":"a"}`, "credentials"},
		{`{"type":"bot","name":"a","credentials":7}`, "credentials"},
		{`{"type":"bot","name":"a","credentials":null}`, "credentials"},
		{`{"type":"bot","name":"a","credentials":{"botToken":"1:A"}}`, "credentials.secretToken"},
		{`{"type":"bot","name":"a","credentials":{"secretToken":"a b","botToken":"1:A"}}`, "credentials.secretToken"},
		{`{"type":"bot","name":"a","credentials":{"secretToken":"` + strings.Repeat("a", 15) + `","botToken":"1:A"}}`, "credentials.secretToken"},
		{`{"type":"photo_dm","name":"a","externalId":"7","credentials":{"accessToken":"t","appSecret":"` + strings.Repeat("a", 15) + `"}}`, "credentials.appSecret"},
		{`{"type":"bot","name":"a","credentials":{"secretToken":"` + strings.Repeat("a", 257) + `","botToken":"1:A"}}`, "credentials.secretToken"},
		{`{"type":"bot","name":"a","credentials":{"secretToken":7,"botToken":"1:A"}}`, "credentials.secretToken"},
		{`{"type":"bot","name":"a","credentials":{"secretToken":"\u0000","botToken":"1:A"}}`, "credentials.secretToken"},
		{`{"type":"bot","name":"a","credentials":{"secretToken":"a-0123456789abcde","botToken":"1:A","accessToken":"x"}}`, "credentials.accessToken"},
		{`{"type":"bot","name":"a","externalId":"7","credentials":{"secretToken":"a-0123456789abcde","botToken":"1:A"}}`, "externalId"},
		{`{"type":"photo_dm","name":"a","credentials":{"accessToken":"x"}}`, "externalId"},
		{`{"type":"photo_dm","name":"a","externalId":"a b","credentials":{"accessToken":"x"}}`, "externalId"},
		{`{"type":"photo_dm","name":"a","externalId":7,"credentials":{"accessToken":"x"}}`, "externalId"},
		{`{"type":"photo_dm","name":"a","externalId":"` + strings.Repeat("7", 513) + `","credentials":{"accessToken":"x"}}`, "externalId"},
		{`{"type":"localchat","name":"a","externalId":"7","credentials":{"accessToken":"x"}}`, "credentials.refreshToken"},
		{`{"type":"photo_dm","name":" ","externalId":"7","credentials":{"accessToken":"x"}}`, "name"},
		{`{"type":"photo_dm","name":"a","externalId":"7","agentId":"agt_unknown","credentials":{"accessToken":"x"}}`, "agentId"},
		{`{"type":"photo_dm","name":"a","externalId":"7","agentId":"'","credentials":{"accessToken":"x"}}`, "agentId"},
	} {
		a := o.refused(t, errcode.InvalidRequest, c.field, http.MethodPost, "/channels", "owner", c.body)
		if c.field == "type" && !strings.Contains(c.body, "null") {
			require.Contains(t, a.Text, "market_b")
		}
	}
	require.Zero(t, o.platform.calls)
	for _, body := range []string{ // with the shortest secrets
		`{"type":"bot","name":"a","credentials":{"secretToken":"` + strings.Repeat("a", 16) + `","botToken":"1:A"}}`,
		`{"type":"photo_dm","name":"b","externalId":"7","credentials":{"accessToken":"t","appSecret":"` + strings.Repeat("a", 16) + `"}}`,
	} {
		o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", body)
	}
}

func TestAgentOfAChannel(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	mine := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)["id"].(string)
	theirs := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "stranger", `{"name":"Lan","model":"echo/a"}`)["id"].(string)
	body := func(agent string) string { return `{"agentId":"` + agent + `",` + botBody("Shop")[1:] }
	o.refused(t, errcode.Forbidden, "", http.MethodPost, "/channels", "owner", body(theirs))
	created := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", body(mine))
	require.Equal(t, mine, created["agentId"])
	path := "/channels/" + created["id"].(string)
	o.refused(t, errcode.Forbidden, "", http.MethodPatch, path, "owner", `{"agentId":"`+theirs+`"}`)
	o.refused(t, errcode.InvalidRequest, "agentId", http.MethodPatch, path, "owner", `{"agentId":""}`)
	o.refused(t, errcode.InvalidRequest, "agentId", http.MethodPatch, path, "owner", `{"agentId":7}`)
	require.Equal(t, mine, o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"name":"New"}`)["agentId"])
	require.Nil(t, o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"agentId":null}`)["agentId"])
	require.Equal(t, mine, o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"agentId":"`+mine+`"}`)["agentId"])
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/agents/"+mine, "owner", "")
	require.Nil(t, o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["agentId"])
}

func TestPlanLimitOfChannels(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.plan = 1
	id := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", botBody("one"))["id"].(string)
	o.refused(t, errcode.PlanLimitExceeded, "", http.MethodPost, "/channels", "owner", pageBody("two", "7", "t"))
	require.Zero(t, o.platform.calls)
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/channels/"+id, "owner", "")
	o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("two", "7", "t"))
}

func TestChannelConflicts(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("Page", "7", "t"))
	other := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", botBody("Bot"))["id"].(string)
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/channels", "owner", botBody("Page"))
	o.refused(t, errcode.Conflict, "", http.MethodPatch, "/channels/"+other, "owner", `{"name":"Page"}`)
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/channels", "stranger", pageBody("Mine", "7", "t"))
	o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "stranger", botBody("Page"))
}

// An external id belongs to the channel whose credentials the platform confirms; see "Channels" in docs/contract.md.
func TestClaimOfAnExternalID(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.platform.ids = map[string][]string{"good": {"6", "7"}, "other": {"8"}}
	require.Equal(t, "active", o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("a", "7", "good"))["state"])
	for name, token := range map[string]string{"of another account": "other", "refused by the platform": "unknown"} {
		o.platform.ids = map[string][]string{"good": {"6", "7", "9"}, "other": {"8"}}
		created := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody(name, "9", token))
		path := "/channels/" + created["id"].(string)
		require.Equal(t, "pending", created["state"], name)
		require.Equal(t, "pending", o.ask(t, http.StatusOK, http.MethodPost, path+"/verify", "owner", "")["state"], name)
		require.Equal(t, "pending", o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"credentials":{"accessToken":"x"}}`)["state"], name)
		require.Equal(t, "active", o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"credentials":{"accessToken":"good"}}`)["state"], name)
		o.ask(t, http.StatusNoContent, http.MethodDelete, path, "owner", "")
	}
	created := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("later", "10", "t"))
	path := "/channels/" + created["id"].(string)
	o.platform.ids["t"] = []string{"10"}
	require.Equal(t, "active", o.ask(t, http.StatusOK, http.MethodPost, path+"/verify", "owner", "")["state"])
	calls := o.platform.calls
	require.Equal(t, "active", o.ask(t, http.StatusOK, http.MethodPost, path+"/verify", "owner", "")["state"])
	require.Equal(t, calls, o.platform.calls, "an active channel needn't be verified")
}

// An unproven claim doesn't keep the owner of the account from the external id, and takes no id from another channel.
func TestProvenOwnerTakesOverPendingClaim(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.platform.ids = map[string][]string{"good": {"7"}, "other": {"8"}}
	squatter := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "stranger", pageBody("Mine", "7", "fake"))
	require.Equal(t, "pending", squatter["state"])
	path := "/channels/" + squatter["id"].(string)

	o.refused(t, errcode.Conflict, "", http.MethodPost, "/channels", "owner", pageBody("Page", "7", "other"))
	require.Equal(t, squatter, o.ask(t, http.StatusOK, http.MethodGet, path, "stranger", ""), "without proof nothing changes")
	o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", botBody("Taken"))
	calls := o.platform.calls
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/channels", "owner", pageBody("Taken", "7", "good"))
	require.Equal(t, calls, o.platform.calls, "a name that is taken is no reason to ask the platform")

	taken := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("Page", "7", "good"))
	require.Equal(t, "active", taken["state"])
	require.Equal(t, "7", taken["externalId"])
	route, err := o.DB.Routes.ByKeys(t.Context(), []store.RouteKey{{Type: "social_messenger", ExternalID: "7"}})
	require.NoError(t, err)
	require.Equal(t, taken["id"], route[store.RouteKey{Type: "social_messenger", ExternalID: "7"}].ChannelID)

	// The channel that lost the id shows the reason and can't get it back. The platform isn't asked again.
	o.platform.ids["fake"] = []string{"7", ""}
	calls = o.platform.calls
	for _, lost := range []map[string]any{
		o.ask(t, http.StatusOK, http.MethodGet, path, "stranger", ""),
		o.ask(t, http.StatusOK, http.MethodPost, path+"/verify", "stranger", ""),
		o.ask(t, http.StatusOK, http.MethodPatch, path, "stranger", `{"credentials":{"accessToken":"fake"}}`),
	} {
		require.Equal(t, "pending", lost["state"])
		require.Nil(t, lost["externalId"])
		require.Equal(t, "7", lost["lostExternalId"])
		require.Equal(t, calls, o.platform.calls)
	}
	require.NoError(t, o.DB.Channels.SetState(t.Context(), "cli:root", "org_2", squatter["id"].(string), store.ChannelActive))
	require.Equal(t, "pending", o.ask(t, http.StatusOK, http.MethodGet, path, "stranger", "")["state"])
	entries, err := o.DB.AuditLog.List(t.Context(), "org_2", store.Page{})
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(entries, func(e store.AuditEntry) bool {
		return e.Action == "channel.lose_external_id" && e.Target == squatter["id"] && !strings.Contains(e.Detail+e.Actor, "org_1")
	}))

	// An active channel keeps its id, even if its new credentials belong to another one.
	o.platform.ids["fake"] = []string{"7"}
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/channels", "stranger", pageBody("Again", "7", "fake"))
	require.Equal(t, calls, o.platform.calls)
}

func TestNewCredentialsEndReauth(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.platform.ids = map[string][]string{"good": {"7"}}
	id := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("Page", "7", "good"))["id"].(string)
	require.NoError(t, o.DB.Channels.SetState(t.Context(), "test", "org_1", id, store.ChannelNeedsReauth))
	path := "/channels/" + id
	require.Equal(t, "needs_reauth", o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"name":"Page 2"}`)["state"])
	o.refused(t, errcode.InvalidRequest, "credentials.accessToken", http.MethodPatch, path, "owner", `{"credentials":{}}`)
	require.Equal(t, "active", o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"credentials":{"accessToken":"new"}}`)["state"])
	channel, err := o.DB.Channels.ByID(t.Context(), "org_1", id)
	require.NoError(t, err)
	require.EqualValues(t, 2, channel.CredentialsVersion)
	credentials, err := messaging.OpenCredentials(o.Ring, "org_1", id, channel.Credentials)
	require.NoError(t, err)
	require.Equal(t, "new", credentials[platforms.AccessToken])
}

// TestExpiringChannel guarantees that a token which ends soon although its platform should have renewed it is shown in time.
func TestExpiringChannel(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	const day = 24 * time.Hour
	channel := store.Channel{
		ID: store.NewID("chn"), OrgID: "org_1", Type: "photo_dm", Name: "Photos", ExternalID: "1789", State: store.ChannelActive,
	}
	require.NoError(t, o.DB.Channels.Create(t.Context(), "test", channel, 0))
	for _, step := range []struct {
		left  time.Duration // 0 is unknown
		state string
		shown string
	}{
		{0, store.ChannelActive, "active"},
		{11 * day, store.ChannelActive, "active"},
		{9 * day, store.ChannelActive, "expiring"},
		{-day, store.ChannelActive, "expiring"},
		{9 * day, store.ChannelNeedsReauth, "needs_reauth"},
	} {
		credentials := platforms.Credentials{platforms.AccessToken: "IGAA-token"}
		if step.left != 0 {
			credentials[platforms.ExpiresAt] = strconv.FormatInt(o.Now().Add(step.left).UnixMilli(), 10)
		}
		require.NoError(t, o.DB.Channels.Update(t.Context(), "test", "org_1", channel.ID, store.ChannelChange{
			State: &step.state, Credentials: o.Ring.Seal(handlers.Marshal(credentials), vault.ChannelCredentials("org_1", channel.ID)),
		}))
		require.Equal(t, step.shown, o.ask(t, http.StatusOK, http.MethodGet, "/channels/"+channel.ID, "owner", "")["state"], step)
	}
}

// TestThrottledChannel guarantees that a pause which a platform has asked for is shown until it is over, whatever else is the matter.
func TestThrottledChannel(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", botBody("Shop"))["id"].(string)
	other := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", botBody("Other"))["id"].(string)
	const end = 4_000_000_000_000
	pause := func(until int64) {
		require.NoError(t, o.DB.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(store.AnyRows, `DELETE FROM channel_paces`)
			tx.Queue(1, `INSERT INTO channel_paces (channel_id, org_id, paced_until, queued_until, closed_until)
				VALUES ($1, 'org_1', 0, 0, $2)`, id, until)
			return nil
		}))
	}
	for _, step := range []struct {
		closed       int64
		state, shown string
		until        any
	}{
		{0, store.ChannelActive, "active", nil},
		{1, store.ChannelActive, "active", nil},
		{end, store.ChannelActive, "throttled", "2096-10-02T07:06:40.000Z"},
		{end, store.ChannelNeedsReauth, "needs_reauth", "2096-10-02T07:06:40.000Z"},
	} {
		pause(step.closed)
		require.NoError(t, o.DB.Channels.SetState(t.Context(), "test", "org_1", id, step.state))
		shown := o.ask(t, http.StatusOK, http.MethodGet, "/channels/"+id, "owner", "")
		require.Equal(t, []any{step.shown, step.until}, []any{shown["state"], shown["throttledUntil"]})
		listed := o.ask(t, http.StatusOK, http.MethodGet, "/channels", "owner", "")["data"].([]any)
		require.Equal(t, shown, listed[0])
		require.Equal(t, "active", o.ask(t, http.StatusOK, http.MethodGet, "/channels/"+other, "owner", "")["state"])
	}
}

// No answer contains credentials.
func TestCredentialsAreNeverShown(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	const secret = "EAAG-very-secret"
	for _, body := range []string{
		pageBody("Page", "7", secret), pageBody("Page", "7", secret), pageBody("Page", "7 8", secret),
		`{"type":"bot","name":"a","credentials":{"secretToken":"` + secret + ` x"}}`,
		`{"type":"bot","name":"a","credentials":"` + secret + `"}`, `{"type":"` + secret + `","name":"a","credentials":{}}`,
		`{"credentials":{"accessToken":"` + secret + `"}`,
	} {
		require.NotContains(t, handlertest.Served(o.Serve, request(http.MethodPost, "/channels", "owner", body)).Body.String(), secret)
	}
	list := handlertest.Served(o.Serve, keyed(http.MethodGet, "/channels", "owner")).Body.String()
	require.Contains(t, list, "Page")
	require.NotContains(t, list, secret)
	log, err := o.DB.AuditLog.List(t.Context(), "", store.Page{Limit: 10})
	require.NoError(t, err)
	text, err := json.Marshal(log)
	require.NoError(t, err)
	require.NotContains(t, string(text), secret)
}

// A channel whose platform is not part of the installation is shown and says so; it takes no credentials and no messages, and
// can be changed otherwise and deleted.
func TestChannelWithoutPlatform(t *testing.T) {
	t.Parallel()
	const reason = "The platform of channels of type fax is not part of this installation."
	o := newFixture(t)
	conversationID, channelID := o.withConversation(t, "fax", 0)
	path := "/channels/" + channelID
	shown := o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")
	require.Equal(t, "fax", shown["type"])
	require.Equal(t, reason, shown["unavailableReason"])
	require.Nil(t, shown["webhookUrl"])
	require.Equal(t, []any{shown}, o.ask(t, http.StatusOK, http.MethodGet, "/channels", "owner", "")["data"])
	require.Equal(t, shown, o.ask(t, http.StatusOK, http.MethodPost, path+"/verify", "owner", ""))

	a := o.refused(t, errcode.InvalidRequest, "type", http.MethodPatch, path, "owner", `{"credentials":{"accessToken":"x"}}`)
	require.Contains(t, a.Text, reason)
	a = o.refused(t, errcode.Conflict, "", http.MethodPost, "/conversations/"+conversationID+"/messages", "owner", `{"text":"Hello"}`)
	require.Contains(t, a.Text, reason)
	require.Zero(t, o.platform.calls)
	o.ask(t, http.StatusOK, http.MethodGet, "/conversations/"+conversationID, "owner", "")
	require.Equal(t, "Old fax", o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"name":"Old fax"}`)["name"])
	o.ask(t, http.StatusNoContent, http.MethodDelete, path, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, path, "owner", "")
}
