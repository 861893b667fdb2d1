package tests

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

const (
	// upgradeCallers is the number of callers that keep calling on an upgraded store.
	upgradeCallers = 3
	// loadMark is the mark of their script. No kept database has it.
	loadMark = "script-9000001-"
)

// upgradeCrowd is the number of customers who wait for the worker of an upgraded store.
func upgradeCrowd() int {
	if soak() {
		return 40
	}
	return 12
}

// upgraded is a product that runs on a kept database of an older build.
type upgraded struct {
	*connectedProduct
	*upgradeFixture

	// org is the organization with everything; poor the one without funds.
	org, poor *business
}

// TestUpgrade guarantees that databases of older builds, with work in every state, go on with this one: their tables come to the newest
// version, no row changes, rows that the older build writes break no rule, the doctor finds nothing, calls that were cut give their holds
// back, kept answers are replayed, what customers wrote is answered on channels of every type, and keys, people and documents are what they
// were. All that holds under load: while another organization calls without a pause, and is charged for each call once, and a crowd of
// customers waits for the first worker, each of whom gets one reply.
//
// The first of them is a database that this build writes and leaves. With SVC_KEEP_BUILD=NAME it stays, see testdata/upgrade/README.md.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	t.Run("written now", func(t *testing.T) {
		t.Parallel()
		folder := t.TempDir()
		if name := os.Getenv("SVC_KEEP_BUILD"); name != "" {
			folder = filepath.Join(upgradeFolder, name)
			require.NoError(t, os.MkdirAll(folder, 0o755))
		}
		eachEngine(t, func(t *testing.T, engine store.Engine) {
			writeUpgradeFixture(t, folder, engine)
			testUpgrade(t, folder, engine)
		})
	})
	kept, err := filepath.Glob(filepath.Join(upgradeFolder, "*", "sqlite.db"))
	require.NoError(t, err)
	for _, file := range kept {
		folder := filepath.Dir(file)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			eachEngine(t, func(t *testing.T, engine store.Engine) { testUpgrade(t, folder, engine) })
		})
	}
}

func testUpgrade(t *testing.T, folder string, engine store.Engine) {
	t.Helper()
	up, platform := startUpstream(t), platformfake.Start(t)
	d := upgradable(t, engine, up, platform)
	u := &upgraded{connectedProduct: &connectedProduct{up: up, platform: platform}, upgradeFixture: restore(t, folder, d.location)}
	model := up.remembered(u.Mark, replying)
	requireMigrationChangesNoRow(t, d.location)
	u.product = startProduct(t, d)
	caller := u.newCustomer(t)
	load := startLoad(t, caller, u.as(caller), up.remembered(loadMark, answeringSoon), upgradeCallers)
	defer load.end()
	load.awaitAnswers(t, upgradeCallers)
	require.Equal(t, true, u.svc(t, "doctor")["ok"])
	u.org = u.business(u.OrgID, u.Key, model)
	u.poor = u.business(u.PoorOrgID, u.PoorKey, model)

	u.requireMoney(t)
	u.requireAnswers(t)
	u.requireKeys(t)
	u.requirePeople(t)
	u.requireKnowledge(t)
	u.requireMessages(t)
	load.awaitAnswers(t, upgradeCallers)
	load.end()
	load.requireCharges(t, 0)
	require.Equal(t, true, u.svc(t, "doctor")["ok"])
}

// requireMigrationChangesNoRow brings a database to the newest version and asserts that no value of any row has changed, and, on PostgreSQL,
// which can be upgraded node by node, that its rules are none that processes of the older build break.
func requireMigrationChangesNoRow(t *testing.T, location store.Location) {
	t.Helper()
	conn, disconnect := connectShortly(t, location)
	defer disconnect()
	columns := storetest.Columns(t, conn, location.Engine)
	rows := storetest.Contents(t, conn, columns)
	require.NotEmpty(t, rows["conversations"])
	require.NotEmpty(t, rows["widget_settings"])
	var rules tableRules
	if location.Engine == store.Postgres {
		rules = readRules(t, location)
	}
	db, err := store.Open(t.Context(), location, store.Options{})
	require.NoError(t, err)
	require.NoError(t, errors.Join(db.Migrate(t.Context()), db.Check(t.Context()), db.Close(t.Context())))
	require.Equal(t, rows, storetest.Contents(t, conn, columns))
	if location.Engine == store.Postgres {
		require.Empty(t, rules.broken(readRules(t, location)))
	}
}

// TestServersRefuseOtherStores guarantees that neither a server nor a worker starts on a store that a newer program has migrated, or that a
// build from before the first release has made.
func TestServersRefuseOtherStores(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		p := prepareProduct(t, deploy(t, engine, startUpstream(t)))
		p.svc(t, "migrate")
		for _, other := range [][2]string{
			{`INSERT INTO schema_migrations (version_id, is_applied) VALUES (1000, TRUE)`, "the store is of a newer version of this program: use that one"},
			{`CREATE TABLE schema_versions (version_id BIGINT)`, "made by a development version before the first release"},
		} {
			conn, disconnect := connectShortly(t, p.location)
			_, err := conn.ExecContext(t.Context(), other[0])
			require.NoError(t, err)
			disconnect()
			for _, args := range [][]string{{"run"}, {"svc-worker"}, {"svc", "doctor"}} {
				_, err := p.caddy(append(args, "--config", p.configFile())...)
				require.ErrorContains(t, err, other[1], "%v", args)
			}
		}
	})
}

// remembered is [upstream.script] for a mark that stands in a kept database, which the ones that are counted might be.
func (u *upstream) remembered(mark string, play func(*upstreamCall)) *script {
	s := &script{Mark: mark, play: play}
	u.scripts.Store(mark, s)
	return s
}

// business is an organization of the kept database.
func (u *upgraded) business(orgID, key string, model *script) *business {
	owner := &customer{operatorStore: u.operator(), OrgID: orgID, Key: key, Env: store.Live}
	return &business{customer: owner, product: u.product, AgentID: u.AgentID, Model: model}
}

// newCustomer is a customer with the funds of a load. Its name is none of those that the writer of the kept database counted.
func (u *upgraded) newCustomer(t *testing.T) *customer {
	t.Helper()
	organization, err := identity.CreateOrganization(t.Context(), u.operator().db, actor, "Calls without a pause", planDefault, "")
	require.NoError(t, err)
	c := &customer{operatorStore: u.operator(), OrgID: organization.ID, Env: store.Live}
	c.credit(t, store.Live, rollingFunds)
	c.KeyID, c.Key = c.newKey(t, identity.KeyRequest{})
	return c
}

// requireMoney asserts that the wallets are what they were, and that the holds of calls that were cut are given back.
func (u *upgraded) requireMoney(t *testing.T) {
	t.Helper()
	u.await("the holds of the cut calls to be given back", patience, func() bool { return u.org.wallet(t).HeldMicros == 0 })
	require.Equal(t, u.Balance, u.org.wallet(t).BalanceMicros)
	test := *u.org.customer
	test.Env = store.Test
	require.Equal(t, u.TestBalance, test.wallet(t).BalanceMicros)
	shown := u.as(u.org.customer).get(t, "/wallet")
	require.Equal(t, http.StatusOK, shown.Status, "%s", shown.Body)
	require.Contains(t, string(shown.Body), fmt.Sprintf(`"balanceMicros":"%d"`, u.Balance))
}

// requireAnswers asserts that kept answers are replayed, free of charge, and that the key of a cut call is free again.
func (u *upgraded) requireAnswers(t *testing.T) {
	t.Helper()
	for _, call := range u.Calls {
		call.keyed().requireReplay(t, u.as(u.org.customer), "after the upgrade")
	}
	require.Equal(t, u.Balance, u.org.wallet(t).BalanceMicros)
	usual := func(call *upstreamCall) { call.answer(usualText, usualUsage) }
	u.up.remembered(mark.FindString(u.Cut.Body), usual)
	requireAnswered(t, u.as(u.org.customer).chat(t, u.Cut.Body, u.Cut.keyed().headers()...), u.Cut.Model, false)
	require.Equal(t, u.Balance-usualCharge, u.org.wallet(t).BalanceMicros)

	own := u.up.remembered("script-0-", usual)
	requireAnswered(t, u.as(u.org.customer).chat(t, prompt(modelKeyed, own.Mark, false), byokHeader, "true"), modelKeyed, false)
	require.Equal(t, "Bearer sk-own-key-of-the-customer", own.only(t).Header.Get("Authorization"), "the master key opens the provider's key")
}

// requireKeys asserts which keys are accepted, and which scopes and models they have.
func (u *upgraded) requireKeys(t *testing.T) {
	t.Helper()
	requireError(t, u.withKey(u.RevokedKey).get(t, "/v1/models"), "api_key_revoked")
	requireError(t, u.withKey(u.ExpiredKey).get(t, "/v1/models"), "invalid_api_key")
	models := u.withKey(u.TestKey).get(t, "/v1/models")
	require.Equal(t, http.StatusOK, models.Status, "%s", models.Body)
	require.Contains(t, string(models.Body), modelStd)
	require.NotContains(t, string(models.Body), modelSmall, "the organization has it disabled")
	requireError(t, u.withKey(u.TestKey).get(t, "/agents"), "insufficient_scope")
}

// requirePeople asserts that people are still signed in, that passwords fit, and that an invitation can be used.
func (u *upgraded) requirePeople(t *testing.T) {
	t.Helper()
	people := u.withKey("")
	session := people.get(t, "/session", "Cookie", u.Cookie)
	require.Equal(t, http.StatusOK, session.Status, "%s", session.Body)
	require.Contains(t, string(session.Body), u.Email)
	post := func(path, body string) answer {
		return people.send(t, http.MethodPost, path, strings.NewReader(body), "Content-Type", "application/json")
	}
	signedIn := post("/session", fmt.Sprintf(`{"email":%s,"password":%s}`, quoted(u.Email), quoted(u.Password)))
	require.Equal(t, http.StatusCreated, signedIn.Status, "%s", signedIn.Body)
	requireError(t, post("/session", fmt.Sprintf(`{"email":%s,"password":"wrong horse"}`, quoted(u.Email))), "unauthenticated")
	welcome := post("/session/password", fmt.Sprintf(`{"token":%s,"password":"correct horse battery staple"}`, quoted(u.LinkOfA)))
	require.Equal(t, http.StatusCreated, welcome.Status, "%s", welcome.Body)
	require.Contains(t, string(welcome.Body), u.Invited)
	require.Contains(t, fmt.Sprint(u.svc(t, "audit", "--org", u.OrgID)), "usr_", "what was done to people stands in the log")
}

// requireKnowledge asserts that documents are found, with accents folded.
func (u *upgraded) requireKnowledge(t *testing.T) {
	t.Helper()
	for question, found := range map[string]string{"deliver sunday": "every day but Sunday", "tra xanh": "40.000"} {
		a := u.org.ask(t, http.MethodGet, "/knowledge-bases/"+u.KnowledgeBase+"/search?q="+url.QueryEscape(question), nil)
		require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
		require.Contains(t, string(a.Body), found)
	}
}

// requireMessages asserts that what waited is answered and sent, and that every channel takes and answers new messages
// with the credentials that it had.
func (u *upgraded) requireMessages(t *testing.T) {
	t.Helper()
	lines := make([]*line, len(u.Lines))
	for i, kept := range u.Lines {
		lines[i] = kept.line(t, u.product)
	}
	poor := u.Poor.line(t, u.product)
	standing := u.poor.conversation(t, poor)
	require.Equal(t, "insufficient_credits", standing.Attention)
	states := map[string]bool{}
	for _, c := range u.org.conversations(t, lines[0]) {
		for _, m := range u.org.messages(t, c.ID) {
			states[m.State] = true
		}
	}
	for _, state := range []string{"sent", "failed", "delivery_unknown", "pending"} {
		require.True(t, states[state], "no message of the first line is %s: %v", state, states)
	}

	crowd := make([]sender, upgradeCrowd())
	for i := range crowd {
		crowd[i] = lines[0].from(1000 + i)
		requireQueued(t, u.deliver(t, crowd[i].says("is anybody there?")), 1)
	}
	u.worker = u.startWorker()
	u.poor.credit(t, store.Live, 100_000)
	require.Equal(t, []string{"Re: " + u.PoorAsked}, u.awaitSent(poor.from(1), 1))
	u.await("the conversation to need no attention", patience, func() bool { return u.poor.conversation(t, poor).Attention == "" })
	require.Equal(t, []string{u.Written}, u.awaitSent(lines[0].from(1), 1))
	require.Len(t, u.awaitSent(lines[0].from(2), 1), 1)
	for _, waiting := range crowd {
		require.Equal(t, []string{"Re: is anybody there?"}, u.awaitSent(waiting, 1))
	}
	calls := u.org.Model.Calls()
	require.True(t, slices.ContainsFunc(calls, func(call *upstreamCall) bool { return strings.Contains(call.Raw, "every day but Sunday") }),
		"the assistant is shown what its documents say")
	for i, l := range lines {
		require.Equal(t, "active", u.org.channelState(t, l))
		customer := l.from(3)
		fresh := fmt.Sprint(9_000_001 + i) // no id that the writer of the kept database has counted to
		requireQueued(t, u.deliver(t, customer.message(fresh, "still there?")), 1)
		require.Equal(t, []string{"Re: still there?"}, u.awaitSent(customer, 1), l.Type)
	}
	visit := u.withKey("").send(t, http.MethodPost, "/widget/"+u.Widget+"/session", strings.NewReader(`{}`),
		"Content-Type", "application/json", "Origin", visitedOrigin)
	require.Equal(t, http.StatusOK, visit.Status, "%s", visit.Body)
	_, fresh := u.org.newKey(t, identity.KeyRequest{})
	require.Equal(t, http.StatusOK, u.withKey(fresh).get(t, "/v1/models").Status)
}
