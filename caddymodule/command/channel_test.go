package command_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	botToken       = "4711:plantedBotToken"
	botCredentials = `{"secretToken":"planted-secret-0123456789","botToken":"` + botToken + `"}`
)

// db opens the store of the command line beside it.
func (c *commandLine) db() *store.DB {
	c.t.Helper()
	location := c.postgres
	if location.DSN == "" {
		var err error
		location, err = store.ParseLocation(store.SQLite, c.path("svc.db"))
		require.NoError(c.t, err)
	}
	return storetest.OpenAt(c.t, location, store.Options{Kinds: []store.Kind{inbox.Kind, billing.Ledger}})
}

func (c *commandLine) ring() *vault.Ring {
	c.t.Helper()
	text, err := os.ReadFile(c.path("master.key"))
	require.NoError(c.t, err)
	ring, err := vault.ParseRing(string(text))
	require.NoError(c.t, err)
	return ring
}

// newChannel makes a channel with credentials on standard input.
func (c *commandLine) newChannel(credentials string, args ...string) map[string]any {
	c.t.Helper()
	done := c.run(credentials, append([]string{"--json", "channel", "create", "--credentials-file", "-"}, args...)...)
	require.NoError(c.t, done.err)
	require.NotContains(c.t, done.stdout+done.stderr, "lanted")
	return object(c.t, done.stdout)
}

func TestAgentCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	made := c.json("agent", "create", "--org", org, "--name", "Mai", "--model", "local/echo", "--instructions", "You sell tea.", "--use-byok")
	id := strOf(t, made, "id")
	require.Regexp(t, "^agt_", id)
	require.Equal(t, "Mai", made["name"])
	require.Equal(t, true, made["useByok"])
	agent, err := c.db().Agents.ByID(t.Context(), org, id)
	require.NoError(t, err)
	require.Equal(t, "You sell tea.", agent.Instructions)

	done := c.run("You sell\ncoffee.\n", "--json", "agent", "create", "--org", org, "--name", "Tu", "--model", "local/echo", "--instructions-file", "-")
	require.NoError(t, done.err)
	agent, err = c.db().Agents.ByID(t.Context(), org, strOf(t, object(t, done.stdout), "id"))
	require.NoError(t, err)
	require.Equal(t, "You sell\ncoffee.\n", agent.Instructions)

	list := c.json("agent", "list", "--org", org)["data"].([]any)
	require.Len(t, list, 2)
	require.Equal(t, id, list[0].(map[string]any)["id"])
	require.Equal(t, made, c.json("agent", "show", id))
	changed := c.json("agent", "set", id, "--name", "Mai 2", "--max-tokens", "50", "--typing=false", "--handover-words", "người,person")
	require.Equal(t, "Mai 2", changed["name"])
	require.Equal(t, "You sell tea.", changed["instructions"], "what no flag names stays")
	require.Equal(t, json.Number("50"), changed["maxTokens"])
	require.Equal(t, []any{"người", "person"}, changed["handoverWords"])
	require.Nil(t, c.json("agent", "set", id, "--max-tokens", "null", "--name", "Mai")["maxTokens"])
	c.refused("--max-tokens is not valid: expected number >= 1", "agent", "set", id, "--max-tokens", "0")
	text := c.run("", "agent", "list", "--org", org)
	require.NoError(t, text.err)
	require.Regexp(t, `agt_\w+ +Mai +local/echo`, text.stdout)

	create := func(args ...string) []string { return append([]string{"agent", "create", "--org", org}, args...) }
	c.refused("has an agent with this name already", create("--name", "Mai", "--model", "local/echo")...)
	c.refused("--model: The model does not exist", create("--name", "A", "--model", "gpt")...)
	c.refused("name", create("--name", " ", "--model", "local/echo")...)
	c.refused("instructions contains the character NUL, or is not UTF-8", create("--name", "A", "--model", "local/echo", "--instructions", "\xff")...)
	c.refused("instructions is not valid: expected length <= 100000", create("--name", "A", "--model", "local/echo", "--instructions", strings.Repeat("x", 100_001))...)
	c.refused("reading the instructions: open", create("--name", "A", "--model", "local/echo", "--instructions-file", c.path("none"))...)
	c.refused(`there is no organization "org_x"`, "agent", "create", "--org", "org_x", "--name", "A", "--model", "local/echo")
	c.refused(`there is no organization "org_x"`, "agent", "list", "--org", "org_x")
	require.Equal(t, map[string]any{"id": id}, c.json("agent", "delete", id))
	c.refused("no agent has the id", "agent", "show", id)
}

func TestChannelCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	agent := strOf(t, c.json("agent", "create", "--org", org, "--name", "Mai", "--model", "local/echo"), "id")

	bot := c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea", "--agent", agent)
	id := strOf(t, bot, "id")
	require.Equal(t, []any{"bot", "Tea", nil, agent, "active", "automatic", "http://localhost:8080/webhooks/bot/" + id},
		[]any{bot["type"], bot["name"], bot["externalId"], bot["agentId"], bot["state"], bot["answerMode"], bot["webhookUrl"]})
	require.Equal(t, bot, c.json("channel", "show", id))
	channel, err := c.db().Channels.ByID(t.Context(), org, id)
	require.NoError(t, err)
	opened, err := c.ring().Open(channel.Credentials, vault.ChannelCredentials(org, id))
	require.NoError(t, err)
	require.JSONEq(t, botCredentials, string(opened))

	for kind, path := range map[string]string{
		"social_messenger": "social", "photo_dm": "social", "chat_app": "social", "localchat": "localchat", "market_a": "market-a", "market_b": "market-b",
	} {
		credentials := `{"accessToken":"planted-access"}`
		if path != "social" {
			credentials = `{"accessToken":"planted-access","refreshToken":"planted-refresh","expiresAt":1800000000000}`
		}
		made := c.newChannel(credentials, "--org", org, "--type", kind, "--name", kind, "--external-id", "947042923")
		require.Equal(t, "http://localhost:8080/webhooks/"+path, made["webhookUrl"])
		require.Equal(t, "947042923", made["externalId"])
	}
	require.Len(t, c.json("channel", "list", "--org", org)["data"], 7, "the plan doesn't bind the operator")
	text := c.run("", "channel", "list", "--org", org)
	require.NoError(t, text.err)
	require.Contains(t, text.stdout, "http://localhost:8080/webhooks/bot/"+id)

	files, err := filepath.Glob(c.path("svc.db*"))
	require.NoError(t, err)
	for _, file := range files {
		bytes, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(bytes), "lanted")
	}
}

func TestChannelSet(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	made := c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea")
	id := strOf(t, made, "id")
	require.Nil(t, made["maxAgeMinutes"])
	require.Equal(t, json.Number("240"), c.json("channel", "set", id, "--max-age-minutes", "240")["maxAgeMinutes"])
	require.Equal(t, json.Number("240"), c.json("channel", "set", id)["maxAgeMinutes"], "no flag changes nothing")
	require.Regexp(t, `maxAgeMinutes +240\n`, c.run("", "channel", "set", id).stdout)
	c.refused("--max-age-minutes is not valid: expected number <= 10080", "channel", "set", id, "--max-age-minutes", "10081")
	c.refused("--max-age-minutes is not valid: expected number >= 1", "channel", "set", id, "--max-age-minutes", "-1")
	c.refused(`no channel has the id "chn_x"`, "channel", "set", "chn_x", "--max-age-minutes", "1")
	require.Nil(t, c.json("channel", "set", id, "--max-age-minutes", "null")["maxAgeMinutes"])
	require.Equal(t, "draft", c.json("channel", "set", id, "--answer-mode", "draft")["answerMode"])
	require.Equal(t, "draft", c.json("channel", "set", id, "--max-age-minutes", "5")["answerMode"])
	require.Equal(t, "automatic", c.json("channel", "set", id, "--answer-mode", "automatic")["answerMode"])
	c.refused(`--answer-mode is not valid: expected value to be one of "automatic, draft"`, "channel", "set", id, "--answer-mode", "bot")
	set := c.json("channel", "set", id, "--open", "mon-fri 08:00-17:30", "--open", "sat 09:00-12:00", "--time-zone", "Asia/Ho_Chi_Minh",
		"--closed-notice", "We are closed.")
	require.Equal(t, []any{"mon-fri 08:00-17:30", "sat 09:00-12:00"}, set["openingHours"])
	require.Equal(t, []any{"Asia/Ho_Chi_Minh", "We are closed."}, []any{set["timeZone"], set["closedNotice"]})
	require.Regexp(t, `openingHours +mon-fri 08:00-17:30,sat 09:00-12:00\n`, c.run("", "channel", "set", id).stdout)
	c.refused("--open[0] must be days and a time", "channel", "set", id, "--open", "weekdays")
	c.refused("--time-zone: There is no time zone with this name", "channel", "set", id, "--time-zone", "Mars")
	c.refused("--closed-notice is not valid: expected length <= 1000", "channel", "set", id, "--closed-notice", strings.Repeat("x", 1001))
	require.Equal(t, "Please write.", c.json("channel", "set", id, "--media-notice", "Please write.")["mediaNotice"])
	require.Nil(t, c.json("channel", "set", id, "--media-notice", "null")["mediaNotice"])
	require.Empty(t, c.json("channel", "set", id, "--open", "")["openingHours"])
	require.Contains(t, c.run("", "audit").stdout, "channel.update")
}

func TestChannelCreateWidget(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	created := c.json("channel", "create", "--org", org, "--type", "widget", "--name", "Site", "--origin", "https://Shop.vn/", "--origin", "https://*.shop.vn")
	require.Equal(t, []any{"widget", "active", nil}, []any{created["type"], created["state"], created["webhookUrl"]})
	widget, err := c.db().Widgets.ByID(t.Context(), created["id"].(string))
	require.NoError(t, err)
	require.Equal(t, store.WidgetSettings{
		Origins: []string{"https://shop.vn", "https://*.shop.vn"}, RequestsPerMinute: store.DefaultWidgetRequests,
	}, widget.Settings)
	set := func(args ...string) any {
		return c.json(append([]string{"channel", "set", created["id"].(string)}, args...)...)["dailySpendMicros"]
	}
	require.Equal(t, "2500000", set("--daily-spend", "2.5"))
	require.Equal(t, "7", set("--daily-spend-micros", "7", "--requests-per-minute", "5"))
	require.Nil(t, set("--daily-spend-micros", "null"))
}

func TestChannelCreateRefuses(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea")
	c.newChannel(`{"accessToken":"planted"}`, "--org", org, "--type", "chat_app", "--name", "Chat", "--external-id", "17")
	for i, test := range []struct {
		want, credentials string
		args              string
	}{
		{"The organization has a channel with this name already", botCredentials, "--type bot --name Tea"},
		{"(active) has this external id. If it isn't theirs, delete that channel", `{"accessToken":"planted"}`, "--type chat_app --name B --external-id 17"},
		{"type must be one of: bot, social_messenger", botCredentials, "--type fax --name A"},
		{"--external-id is of no use to a channel of type widget", "{}", "--type widget --name A --external-id 7"},
		{"credentials are of no use to a channel of type widget", "{}", "--type widget --name A"},
		{"--origin is of no use to a channel of type bot", botCredentials, "--type bot --name A --origin https://shop.vn"},
		{"--external-id is of no use to a channel of type bot", botCredentials, "--type bot --name A --external-id 1"},
		{"--external-id is required", `{"accessToken":"planted"}`, "--type photo_dm --name A"},
		{"visible ASCII characters", `{"accessToken":"planted"}`, "--type photo_dm --name A --external-id é"},
		{"--agent: There is no agent with this id", botCredentials, "--type bot --name A --agent agt_x"},
		{"the credentials are not one JSON object", "planted", "--type bot --name A"},
		{"credentials.botToken is missing", `{"planted":1}`, "--type bot --name A"},
		{"the credentials are not one JSON object", `{"secretToken":{"planted":1}}`, "--type bot --name A"},
		{"the credentials are not one JSON object", botCredentials + botCredentials, "--type bot --name A"},
		{"the credentials are not one JSON object", botCredentials + "}", "--type bot --name A"},
		{"the credentials are not one JSON object", strings.Repeat(" ", 70_000) + botCredentials, "--type bot --name A"},
		{"--credentials-file: credentials.botToken is missing", `{"secretToken":"planted-0123456789"}`, "--type bot --name A"},
		{"--credentials-file: credentials.accessToken is missing", `{"refreshToken":"planted"}`, "--type market_a --name A --external-id 1"},
		{"credentials.secretToken ", `{"secretToken":"planted planted","botToken":"` + botToken + `"}`, "--type bot --name A"},
	} {
		args := append(strings.Fields("--json channel create --credentials-file - --org "+org), strings.Fields(test.args)...)
		done := c.run(test.credentials, args...)
		require.ErrorContains(t, done.err, test.want, "%d", i)
		require.Empty(t, done.stdout)
		require.NotContains(t, done.stderr, "lanted", "%d", i)
	}
	c.refused("--origin[1] must begin with https:// or http://", "channel", "create", "--org", org, "--type", "widget", "--name", "A",
		"--origin", "https://shop.vn", "--origin", "shop.vn")
	c.refused("--credentials-file: credentials is required", "channel", "create", "--org", org, "--type", "bot", "--name", "A")
	c.refused("reading the credentials: open", "channel", "create", "--org", org, "--type", "bot", "--name", "A", "--credentials-file", c.path("none"))
	c.refused(`there is no organization "org_x"`, "channel", "create", "--org", "org_x", "--type", "bot", "--name", "A")
	c.refused(`there is no organization "org_x"`, "channel", "list", "--org", "org_x")
	require.Len(t, c.json("channel", "list", "--org", org)["data"], 2)
}

// TestChannelCreateWinsOverClaims guarantees that a claim that nobody has confirmed doesn't keep the operator from connecting the owner
// of an external id. The claim loses the id, and says so.
func TestChannelCreateWinsOverClaims(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	owner, squatter := c.newOrg("Owner"), c.newOrg("Squatter")
	create := []string{"--type", "chat_app", "--external-id", "17"}
	claim := strOf(t, c.newChannel(`{"accessToken":"x"}`, append(create, "--org", squatter, "--name", "Claim")...), "id")
	require.NoError(t, c.db().Channels.SetState(t.Context(), "test", squatter, claim, store.ChannelPending))

	c.newChannel(botCredentials, "--org", owner, "--type", "bot", "--name", "Taken")
	named := c.run(`{"accessToken":"x"}`, append([]string{"channel", "create", "--credentials-file", "-", "--org", owner, "--name", "Taken"}, create...)...)
	require.ErrorContains(t, named.err, "The organization has a channel with this name already")
	kept, err := c.db().Channels.ByID(t.Context(), squatter, claim)
	require.NoError(t, err)
	require.Equal(t, "17", kept.ExternalID, "a refused command takes nothing away")

	made := c.newChannel(`{"accessToken":"x"}`, append(create, "--org", owner, "--name", "Chat")...)
	require.Equal(t, []any{"active", "17"}, []any{made["state"], made["externalId"]})
	lost, err := c.db().Channels.ByID(t.Context(), squatter, claim)
	require.NoError(t, err)
	require.Equal(t, []string{store.ChannelPending, "", "17"}, []string{lost.State, lost.ExternalID, lost.LostExternalID})
	entries, err := c.db().AuditLog.List(t.Context(), squatter, store.Page{})
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(entries, func(e store.AuditEntry) bool {
		return e.Action == "channel.lose_external_id" && e.Target == claim && e.Detail == "chat_app 17: the operator confirmed it for another organization"
	}))
	c.refused("lost the external id 17, which was confirmed for another organization", "channel", "approve", claim)

	own := strOf(t, c.newChannel(`{"accessToken":"x"}`, "--org", owner, "--type", "chat_app", "--name", "Own claim", "--external-id", "18"), "id")
	require.NoError(t, c.db().Channels.SetState(t.Context(), "test", owner, own, store.ChannelPending))
	again := c.run(`{"accessToken":"x"}`, "channel", "create", "--credentials-file", "-", "--org", owner, "--type", "chat_app", "--name", "New", "--external-id", "18")
	require.ErrorContains(t, again.err, "own channel "+own+" claims this external id. Approve that channel.")
}

func TestChannelApprove(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	id := strOf(t, c.newChannel(`{"accessToken":"planted"}`, "--org", org, "--type", "chat_app", "--name", "Chat", "--external-id", "17"), "id")
	db := c.db()
	require.NoError(t, db.Channels.SetState(t.Context(), "test", org, id, store.ChannelPending))
	for range 2 {
		require.Equal(t, "active", c.json("channel", "approve", id)["state"])
	}
	approvals := 0
	for _, entry := range c.json("audit")["data"].([]any) {
		if e := entry.(map[string]any); e["action"] == "channel.set_state" && strings.HasPrefix(e["actor"].(string), "cli:") {
			approvals++
		}
	}
	require.Equal(t, 1, approvals)
	require.NoError(t, db.Channels.SetState(t.Context(), "test", org, id, store.ChannelNeedsReauth))
	c.refused("needs new credentials", "channel", "approve", id)
	c.refused(`no channel has the id "chn_x"; `+"`caddy svc channel list --org ORG_ID` shows them", "channel", "approve", "chn_x")
	c.refused("takes exactly one argument, the channel's id", "channel", "approve")
}

func TestChannelDelete(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	args := []string{"--type", "chat_app", "--name", "Chat", "--external-id", "17"}
	squatter := strOf(t, c.newChannel(`{"accessToken":"planted"}`, append(args, "--org", c.newOrg("Squatter"))...), "id")
	require.Equal(t, map[string]any{"id": squatter}, c.json("channel", "delete", squatter))
	c.newChannel(`{"accessToken":"planted"}`, append(args, "--org", c.newOrg("Owner"))...)
	c.refused(`no channel has the id "`+squatter+`"`, "channel", "delete", squatter)
	c.refused("takes exactly one argument, the channel's id", "channel", "delete")
}

// The credentials of channels are sealed anew with the keys of providers.
func TestRekeyOfChannels(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	ids := make([]string, 3)
	for i := range ids {
		ids[i] = strOf(t, c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", fmt.Sprintf("Tea %d", i)), "id")
	}
	c.write("master.key", masterKey(2))
	lost := c.run("", "--json", "rekey")
	require.ErrorContains(t, lost.err, "credentials of channel "+ids[0])
	require.Equal(t, json.Number("3"), object(t, lost.stdout)["unopened"])
	c.write("master.key", masterKey(2)+masterKey(1))
	require.Equal(t, json.Number("3"), c.json("rekey")["renewed"])
	c.write("master.key", masterKey(2))
	require.Equal(t, json.Number("3"), c.json("rekey")["current"])
	require.Contains(t, c.run("", "audit").stdout, "channel.rekey")
	for _, id := range ids {
		channel, err := c.db().Channels.ByID(t.Context(), org, id)
		require.NoError(t, err)
		opened, err := c.ring().Open(channel.Credentials, vault.ChannelCredentials(org, id))
		require.NoError(t, err)
		require.JSONEq(t, botCredentials, string(opened))
		require.EqualValues(t, 1, channel.CredentialsVersion)
	}
}

// giveUp makes a turn that was given up, as a worker would, and gives its id.
func (c *commandLine) giveUp(channelID string) string {
	c.t.Helper()
	ctx, db := c.t.Context(), c.db()
	queue := inbox.New(db, c.ring())
	route, found, err := db.Routes.ByID(ctx, channelID)
	require.NoError(c.t, err)
	require.True(c.t, found)
	require.NoError(c.t, queue.Enqueue(ctx, []inbox.Arrival{{Route: route, Items: []inbox.Item{{
		Kind: platforms.Text, CustomerRef: "5", Address: "5", MessageID: "5:1", Text: "Green tea?",
	}}}}))
	leases, err := queue.Lease(ctx, inbox.Places{Free: 1}, time.Minute)
	require.NoError(c.t, err)
	require.Len(c.t, leases, 1)
	work, err := queue.Open(ctx, leases[0], 10)
	require.NoError(c.t, err)
	turn := store.NewID("trn")
	err = queue.BeginCall(ctx, leases[0], inbox.Turn{ID: turn, AgentID: work.Channel.AgentID, Request: []byte("{}")}, []string{work.Waiting[0].ID})
	require.NoError(c.t, err)
	require.NoError(c.t, queue.Stand(ctx, leases[0], inbox.Standing{TurnID: turn, Code: "provider_error", Final: true}))
	require.NoError(c.t, queue.Release(ctx, leases[0]))
	return turn
}

func TestQueueCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	agent := strOf(t, c.json("agent", "create", "--org", org, "--name", "Mai", "--model", "local/echo"), "id")
	channel := strOf(t, c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea", "--agent", agent), "id")
	require.Empty(t, c.json("queue", "dead")["data"])
	turn := c.giveUp(channel)

	dead := c.json("queue", "dead")["data"].([]any)
	require.Len(t, dead, 1)
	first := dead[0].(map[string]any)
	require.Equal(t, turn, first["id"])
	require.Equal(t, org, first["orgId"])
	require.Equal(t, channel, first["channelId"])
	require.Equal(t, "provider_error", first["code"])
	text := c.run("", "queue", "dead")
	require.NoError(t, text.err)
	require.Contains(t, text.stdout, turn)
	require.NotContains(t, text.stdout, "Green tea")

	require.Equal(t, map[string]any{"id": turn, "retried": true}, c.json("queue", "retry", turn))
	require.Empty(t, c.json("queue", "dead")["data"])
	c.refused("There is no turn with this id that was given up", "queue", "retry", turn)
	c.refused("There is no turn with this id that was given up", "queue", "retry", "trn_x")
	c.refused("takes the id of one turn as its argument, or --org", "queue", "retry")
	c.refused("--limit is not valid: expected number >= 1", "queue", "dead", "--limit", "0")
	c.refused("--limit is 10001, want 1 to 10000", "audit", "--limit", "10001")
	require.Len(t, c.json("audit", "--limit", "2")["data"], 2)
	require.Equal(t, true, c.json("doctor")["ok"])
}

// Standing conversations are listed, retried and dismissed in bulk and singly, without a text of a customer in sight.
func TestStandingCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	agent := strOf(t, c.json("agent", "create", "--org", org, "--name", "Mai", "--model", "local/echo"), "id")
	channel := strOf(t, c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea", "--agent", agent), "id")
	turn := c.giveUp(channel)
	standing := func(flags ...string) []any {
		return c.json(append([]string{"queue", "standing", "--org", org}, flags...)...)["data"].([]any)
	}
	require.Len(t, standing(), 1)
	first := standing("--channel", channel, "--code", "provider_error")[0].(map[string]any)
	require.Equal(t, "provider_error", first["attention"])
	require.Empty(t, standing("--code", "no_agent"))
	require.NotContains(t, c.run("", "queue", "standing", "--org", org).stdout, "Green tea")
	changed := func(n string, args ...string) {
		require.Equal(t, map[string]any{"changed": json.Number(n)}, c.json(append([]string{"queue"}, args...)...))
	}
	changed("0", "retry", "--org", org, "--code", "no_agent")
	changed("1", "retry", "--org", org, "--channel", channel)
	require.Empty(t, standing())
	c.refused("and not both", "queue", "retry", turn, "--org", org)
	c.refused("takes flags only with --org", "queue", "retry", turn, "--channel", channel)
	c.refused("there is no organization", "queue", "retry", "--org", "org_x")

	id := strOf(t, first, "id")
	c.refused("This conversation doesn't need attention", "queue", "dismiss", id)
	c.refused(`no conversation has the id "cnv_x"`, "queue", "dismiss", "cnv_x")
	changed("0", "dismiss", "--org", org)
	c.refused("This conversation has no message to the customer with this id", "queue", "resend", "--conversation", id, "msg_x")
	c.refused(`no conversation has the id "cnv_x"`, "queue", "resend", "--conversation", "cnv_x", "msg_x")

	// The turn that was retried is answered, and nobody knows whether the answer arrived.
	queue := inbox.New(c.db(), c.ring())
	leases, err := queue.Lease(t.Context(), inbox.Places{Free: 1}, time.Minute)
	require.NoError(t, err)
	require.Len(t, leases, 1)
	parts, err := queue.Answer(t.Context(), leases[0], turn, []string{"Yes, green tea."}, true)
	require.NoError(t, err)
	require.NoError(t, queue.SendFailed(t.Context(), leases[0], parts[0].ID, inbox.OutboundDeliveryUnknown, "delivery_unknown", inbox.SendFailure{}))
	require.NoError(t, queue.Release(t.Context(), leases[0]))
	resend := []string{"queue", "resend", "--conversation", id, parts[0].ID}
	c.refused("set --may-arrive-twice if it may arrive twice", resend...)
	require.Equal(t, []any{parts[0].ID, "pending"}, func(m map[string]any) []any { return []any{m["id"], m["state"]} }(c.json(append(resend, "--may-arrive-twice")...)))
	c.refused("Only a message that failed", resend...)
	require.Equal(t, true, c.json("doctor")["ok"])
}

// A customer is blocked, exported and erased by commands.
func TestConversationCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	agent := strOf(t, c.json("agent", "create", "--org", org, "--name", "Mai", "--model", "local/echo"), "id")
	channel := strOf(t, c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea", "--agent", agent), "id")
	c.giveUp(channel)
	id := strOf(t, c.json("queue", "standing", "--org", org)["data"].([]any)[0].(map[string]any), "id")
	verb := func(name string, more ...string) []string {
		return append([]string{"conversation", name, id}, more...)
	}

	require.NotNil(t, c.json(verb("block")...)["blockedAt"])
	told := c.run("", verb("block")...)
	require.NoError(t, told.err)
	require.Equal(t, "The customer of "+id+" is blocked.\n", told.stdout)
	require.Empty(t, c.json("queue", "dead")["data"])
	require.Nil(t, c.json(verb("unblock")...)["blockedAt"])
	file := c.path("lan.json")
	require.Equal(t, map[string]any{"id": id, "path": file}, c.json(verb("export", "--org", org, "--file", file)...))
	c.refused("file exists", verb("export", "--org", org, "--file", file)...)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "Green tea?")
	require.Equal(t, map[string]any{"id": id}, c.json(verb("erase")...))
	for _, name := range []string{"block", "unblock", "erase"} {
		c.refused("no conversation has the id", verb(name)...)
	}
	c.refused("the organization has no conversation", verb("export", "--org", org, "--file", c.path("again.json"))...)
	require.NoFileExists(t, c.path("again.json"))
	require.Equal(t, true, c.json("doctor")["ok"])
}

// The doctor names the types of channels whose platforms this program doesn't contain.
func TestDoctorNamesMissingPlatforms(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	channel := strOf(t, c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea"), "id")
	require.Equal(t, true, c.json("doctor")["ok"])
	db, err := sql.Open("sqlite", c.path("svc.db"))
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `UPDATE channels SET type = 'fax'`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	ill := c.run("", "doctor")
	require.Error(t, ill.err)
	require.Contains(t, ill.stdout, "fax: no platform of this program has this type; channels: 1")
	require.Contains(t, c.run("", "channel", "list", "--org", org).stdout, "fax")
	c.json("channel", "delete", channel)
	require.Equal(t, true, c.json("doctor")["ok"])
}

// The doctor looks at the queue, too: a message that names a turn which doesn't exist has no answer.
func TestDoctorExaminesTheQueue(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	agent := strOf(t, c.json("agent", "create", "--org", org, "--name", "Mai", "--model", "local/echo"), "id")
	channel := strOf(t, c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea", "--agent", agent), "id")
	c.giveUp(channel)
	db, err := sql.Open("sqlite", c.path("svc.db"))
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `UPDATE messages SET turn_id = 'trn_gone'`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	ill := c.run("", "--json", "doctor")
	require.EqualError(t, ill.err, "the books, the queue, a channel's platform, the master key or a vendor break an invariant")
	for _, invariant := range object(t, ill.stdout)["invariants"].([]any) {
		examined := invariant.(map[string]any)
		if examined["id"] == "QUEUE" {
			require.NotEmpty(t, examined["findings"])
		} else {
			require.Empty(t, examined["findings"])
		}
	}
}
