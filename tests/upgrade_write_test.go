package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

// writeUpgradeFixture lets this build write a database with work in every state into a folder, and what its clients, people and platforms
// remember.
func writeUpgradeFixture(t *testing.T, folder string, engine store.Engine) {
	t.Helper()
	up, platform := startUpstream(t), platformfake.Start(t)
	c := &connectedProduct{up: up, platform: platform}
	c.product = startProduct(t, upgradable(t, engine, up, platform))
	c.worker = c.startWorker()
	b := c.business(t, 1_000_000, up.script(replying), nil)
	f := &upgradeFixture{OrgID: b.OrgID, AgentID: b.AgentID, Mark: b.Model.Mark}

	// Keys, people, the wallet of the test environment, settings of the operator.
	scopes := make([]string, 0, len(identity.AllScopes()))
	for _, scope := range identity.AllScopes() {
		scopes = append(scopes, string(scope))
	}
	b.KeyID, b.Key = b.newKey(t, identity.KeyRequest{Scopes: scopes})
	f.Key = b.Key
	b.credit(t, store.Test, 5_000)
	_, err := b.book.Adjust(t.Context(), actor, billing.WalletID{OrgID: b.OrgID, Env: store.Live}, -1_000, "a correction", "correction-1", "")
	require.NoError(t, err)
	_, f.TestKey = b.newKey(t, identity.KeyRequest{Env: store.Test})
	revoked, key := b.newKey(t, identity.KeyRequest{})
	f.RevokedKey = key
	require.NoError(t, b.db.APIKeys.Revoke(t.Context(), actor, b.OrgID, revoked))
	f.ExpiredKey = c.svc(t, "key", "create", "--org", b.OrgID, "--name", "past", "--expires-at", "2020-01-01T00:00:00Z")["key"].(string)
	b.ownKey(t, "own", "sk-own-key-of-the-customer")
	c.svc(t, "model", "disable", "--org", b.OrgID, modelSmall)
	f.Email, f.Password = "lan@example.com", "correct horse battery staple"
	token := func(email, role string) string {
		link := c.svc(t, "user", "invite", "--org", b.OrgID, "--email", email, "--role", role)["link"].(string)
		return link[strings.LastIndex(link, "#")+1:]
	}
	people := &business{customer: &customer{operatorStore: b.operatorStore, OrgID: b.OrgID}, product: c.product}
	welcomed := people.ask(t, http.MethodPost, "/session/password", map[string]string{"token": token(f.Email, "owner"), "password": f.Password})
	require.Equal(t, http.StatusCreated, welcomed.Status, "%s", welcomed.Body)
	f.Cookie, _, _ = strings.Cut(welcomed.Header.Get("Set-Cookie"), ";")
	for range 2 {
		requireError(t, people.ask(t, http.MethodPost, "/session", map[string]string{"email": f.Email, "password": "wrong horse"}), "unauthenticated")
	}
	f.Invited = "mai@example.com"
	f.LinkOfA = token(f.Invited, "member")

	// Knowledge that the assistant uses.
	f.KnowledgeBase = b.post(t, "/knowledge-bases", map[string]string{"name": "Delivery", "description": "When and where"}, http.StatusCreated)["id"].(string)
	for name, text := range map[string]string{
		"Delivery times": "# Delivery\n\nWe deliver every day but Sunday, from 8 to 18 o'clock.", "Trà": "Trà xanh giá 40.000 đồng.",
	} {
		b.post(t, "/knowledge-bases/"+f.KnowledgeBase+"/documents", map[string]string{"name": name, "content": text, "mediaType": "text/markdown"}, http.StatusCreated)
	}
	b.call(t, http.MethodPatch, "/agents/"+b.AgentID, map[string]any{"knowledgeBaseIds": []string{f.KnowledgeBase}}, http.StatusOK)

	// A channel of every type, each with an answered customer.
	var lines []*line
	for _, kind := range connected {
		l := b.line(t, kind)
		requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
		c.awaitSent(l.from(1), 1)
		c.requireDelivered(b, l, 1)
		lines, f.Lines = append(lines, l), append(f.Lines, l.keep())
	}
	f.Widget = b.post(t, "/channels", map[string]any{"type": "widget", "name": "Shop site", "agentId": b.AgentID}, http.StatusCreated)["id"].(string)
	b.call(t, http.MethodPatch, "/channels/"+f.Widget, map[string]any{"origins": []string{visitedOrigin}}, http.StatusOK)

	// Calls whose answers are kept.
	for _, call := range []*keyedCall{
		{key: "kept", model: modelStd}, {key: "kept-stream", model: modelStd, stream: true}, {key: "kept-own", model: modelKeyed, byok: true},
	} {
		call.body = prompt(call.model, "hello", call.stream)
		call.run(t, c.as(b.customer))
		f.Calls = append(f.Calls, keptCall{Key: call.key, Model: call.model, Body: call.body, Stream: call.stream, BYOK: call.byok, Answer: call.first})
	}
	c.as(b.testing(t)).chat(t, prompt(modelStd, "hello", false))

	// Replies that failed, and one whose delivery is unknown; a customer of an organization without funds.
	for i, fault := range []platformfake.Fault{platformfake.CustomerBlocked, platformfake.DropAfter} {
		customer := lines[0].from(10 + i)
		platform.Script(customer.Customer, fault)
		before := platform.Attempts(customer.Customer)
		requireQueued(t, c.deliver(t, customer.says("hello")), 1)
		platform.WaitAttempts(t, customer.Customer, before+1)
	}
	poor := c.business(t, 0, b.Model, nil)
	l := poor.line(t, bot.Type)
	f.Poor, f.PoorOrgID, f.PoorKey, f.PoorAsked = l.keep(), poor.OrgID, poor.Key, "can you hear me?"
	requireQueued(t, c.deliver(t, l.from(1).says(f.PoorAsked)), 1)
	c.await("the conversation to need attention", patience, func() bool {
		all := poor.conversations(t, l)
		return len(all) == 1 && all[0].Attention == "insufficient_credits"
	})

	// Messages for the next worker, and two calls that a power failure cuts.
	c.await("the faults to be recorded", patience, func() bool {
		states := map[string]bool{}
		for _, conversation := range b.conversations(t, lines[0]) {
			_, to := written(b.messages(t, conversation.ID))
			for _, m := range to {
				states[m.State] = true
			}
		}
		return states["failed"] && states["delivery_unknown"]
	})
	c.worker.stop()
	f.Asked, f.Written = "do you deliver on Sunday?", "A person here."
	requireQueued(t, c.deliver(t, lines[0].from(2).says(f.Asked)), 1)
	for _, conversation := range b.conversations(t, lines[0]) {
		if conversation.CustomerID == lines[0].from(1).Customer {
			b.post(t, "/conversations/"+conversation.ID+"/messages", map[string]string{"text": f.Written}, http.StatusCreated)
		}
	}
	hanging := up.script(func(call *upstreamCall) { call.hang() })
	f.Cut = keptCall{Key: "cut", Model: modelStd, Body: prompt(modelStd, hanging.Mark, false)}
	cut := make(chan struct{}, 2)
	for _, headers := range [][]string{nil, {keyHeader, f.Cut.Key}} {
		go func() {
			_, _ = c.as(b.customer).tryChat(f.Cut.Body, headers...) // the power failure is its end
			cut <- struct{}{}
		}()
	}
	c.await("two calls to be under way", patience, func() bool { return len(hanging.Calls()) == 2 && c.operator().openHolds(t) == 2 })
	f.Balance, f.TestBalance = b.wallet(t).BalanceMicros, b.testing(t).wallet(t).BalanceMicros
	c.kill()
	<-cut
	<-cut
	require.EqualValues(t, 2, c.operator().openHolds(t))
	c.closeOperatorStore(t)
	keepDatabase(t, folder, c.location)
	text, err := json.MarshalIndent(f, "", "\t")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(keptFacts(folder, engine), append(text, '\n'), 0o600))
}

// keepDatabase copies a database that is not in use.
func keepDatabase(t *testing.T, folder string, location store.Location) {
	t.Helper()
	target := keptFile(folder, location.Engine)
	if location.Engine == store.SQLite {
		require.NoFileExists(t, location.DSN+"-wal", "the log was not written back")
		text, err := os.ReadFile(location.DSN)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(target, text, 0o600))
		return
	}
	programs, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_dump")
	require.NoError(t, err)
	require.NotEmpty(t, programs, "there is no pg_dump")
	config, err := pgconn.ParseConfig(location.DSN)
	require.NoError(t, err)
	dump := exec.Command(programs[len(programs)-1], "--inserts", "--no-owner", "--no-privileges", "--host", config.Host,
		"--port", strconv.Itoa(int(config.Port)), "--username", config.User, config.Database)
	dump.Env = append(os.Environ(), "PGPASSWORD="+config.Password)
	dump.Stderr = os.Stderr
	text, err := dump.Output()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(target, text, 0o600))
}

// keep remembers a line.
func (l *line) keep() keptLine {
	return keptLine{
		Type: l.Type, ID: l.ID, Account: fmt.Sprint(947_000_000 + l.number), External: l.External, Secret: l.Secret, Token: l.Token, Number: l.number,
	}
}
