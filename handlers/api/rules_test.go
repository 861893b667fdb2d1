package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// furnished returns a fixture in which org_2 has one of each resource: idOf by the group's path.
func furnished(t *testing.T) (o *fixture, idOf map[string]string) {
	t.Helper()
	o = newFixture(t)
	agent := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "stranger", `{"name":"theirs","model":"echo/a"}`)
	channel := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "stranger", botBody("theirs"))
	key := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "stranger", `{"name":"theirs"}`)
	o.ask(t, http.StatusOK, http.MethodPut, "/provider-keys/echo", "stranger", `{"key":"sk-theirs"}`)
	base := o.ask(t, http.StatusCreated, http.MethodPost, "/knowledge-bases", "stranger", `{"name":"theirs"}`)
	document := o.ask(t, http.StatusCreated, http.MethodPost, "/knowledge-bases/"+base["id"].(string)+"/documents", "stranger",
		`{"name":"theirs","mediaType":"text/plain","content":"theirs"}`)
	endpoint := o.ask(t, http.StatusCreated, http.MethodPost, "/event-endpoints", "stranger", `{"url":"https://theirs.example.com"}`)
	budget := o.ask(t, http.StatusCreated, http.MethodPost, "/wallet/budgets", "stranger", `{"name":"theirs","period":"day","limitMicros":"1000"}`)
	o.inbox.conversations = []inbox.Conversation{{ID: "cnv_theirs", OrgID: "org_2", ChannelID: channel["id"].(string), State: inbox.StateAssistant}}
	require.NoError(t, o.DB.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(1, `INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, state, attention, lease_until, lease_token,
			attempts, paused_until, last_customer_at, created_at, updated_at) VALUES ($1, $2, $3, 'a', 'a', 'assistant', '', 0, 0, 0, 0, 0, 0, 0)`,
			"cnv_theirs", "org_2", channel["id"])
		tx.Queue(1, `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens,
			cached_tokens, usage_source, ended_at, duration_ms, reserved_micros, charged_micros, shortfall_micros)
			VALUES ('call_theirs', '', 'org_2', 'test', '', 'echo/a', '', FALSE,FALSE, 'completed', 0, 0, 0, 'none', 1, 0, 0, 0, 0)`)
		return nil
	}))
	return o, map[string]string{
		"/agents": agent["id"].(string), "/channels": channel["id"].(string), "/conversations": "cnv_theirs", "/wallet": "call_theirs",
		"/api-keys": key["id"].(string), "/members": "usr_stranger", "/knowledge-bases": base["id"].(string),
		"/event-endpoints": endpoint["id"].(string), "/wallet/budgets": budget["id"].(string), "{docId}": document["id"].(string),
	}
}

// bodyFor returns a valid body for a route that has one.
func bodyFor(route handlers.Route) string {
	switch route.Method + " " + route.Path {
	case "POST /agents":
		return `{"name":"new","model":"echo/a"}`
	case "POST /agents/{id}/playground":
		return `{"messages":[{"role":"user","content":"hello"}]}`
	case "POST /channels":
		return botBody("new")
	case "POST /conversations":
		return `{"action":"retry"}`
	case "POST /conversations/{id}/messages/{messageId}/resend":
		return `{"mayArriveTwice":true}`
	case "POST /conversations/{id}/messages", "POST /conversations/{id}/drafts/{draftId}/send":
		return `{"text":"hello"}`
	case "POST /api-keys":
		return `{"name":"new"}`
	case "PATCH /api-keys/{id}":
		return `{"models":[]}`
	case "PUT /provider-keys/{provider}":
		return `{"key":"sk-new"}`
	case "POST /event-endpoints", "PATCH /event-endpoints/{id}":
		return `{"url":"https://new.example.com"}`
	case "POST /members":
		return `{"email":"new@example.com","role":"member"}`
	case "PATCH /organization":
		return `{"retentionDays":7}`
	case "PATCH /members/{id}":
		return `{"role":"member"}`
	case "POST /session":
		return `{"email":"stranger@example.com","password":"a long password"}`
	case "POST /session/password":
		return `{"token":"` + sessionToken("no link") + `","password":"a long password"}`
	case "PATCH /session":
		return `{"language":"vi"}`
	case "PUT /session/password":
		return `{"currentPassword":"a long password","password":"another long password"}`
	case "PUT /session/second-factor":
		return `{"secret":"x","code":"12345"}`
	case "POST /session/second-factor/disable":
		return `{"code":"12345"}`
	case "POST /knowledge-bases":
		return `{"name":"new"}`
	case "POST /knowledge-bases/{id}/documents":
		return `{"name":"new","mediaType":"text/plain","content":"new"}`
	case "POST /wallet/top-ups":
		return `{"via":"transfer","amount":"1"}`
	case "POST /wallet/budgets":
		return `{"name":"new","period":"week","limitMicros":"1"}`
	case "POST /wallet/budgets/{id}/rises":
		return `{"reason":"new","amountMicros":"1","endsAt":"2100-01-01T00:00:00Z"}`
	case "PATCH /agents/{id}", "PATCH /channels/{id}", "PATCH /knowledge-bases/{id}", "PATCH /wallet/budgets/{id}":
		return `{"name":"mine now"}`
	default:
		return ""
	}
}

func groupOf(path string) string {
	for _, group := range []string{"/wallet/budgets", "/wallet/top-ups"} {
		if strings.HasPrefix(path, group) {
			return group
		}
	}
	return "/" + strings.Split(path, "/")[1]
}

// pathOf returns the route's path with an id of its group in it, and required parameters.
func pathOf(route handlers.Route, id string, idOf map[string]string) string {
	path := strings.NewReplacer("{id}", id, "{docId}", idOf["{docId}"], "{provider}", "echo").Replace(route.Path)
	if strings.HasSuffix(path, "/search") {
		path += "?q=theirs"
	}
	return path
}

// roleFor returns the role that docs/contract.md names for a group.
func roleFor(t *testing.T, route handlers.Route) handlers.Role {
	t.Helper()
	switch group := groupOf(route.Path); group {
	case "/agents", "/knowledge-bases", "/conversations", "/wallet", "/session":
		return handlers.RoleMember
	case "/channels", "/organization", "/wallet/budgets", "/wallet/top-ups":
		if route.Method == http.MethodGet {
			return handlers.RoleMember
		}
		return handlers.RoleAdministrator
	case "/api-keys", "/provider-keys", "/members", "/audit-log", "/event-endpoints":
		return handlers.RoleAdministrator
	default:
		require.Fail(t, "which role does "+group+" need?")
		return ""
	}
}

// scopeFor returns the scope that docs/contract.md names for a group; members, sessions and the audit log have none.
func scopeFor(route handlers.Route) identity.Scope {
	if route.Path == "/agents/{id}/playground" {
		return identity.ChatWrite // it is a call, and charged like one
	}
	group := strings.ReplaceAll(strings.TrimPrefix(groupOf(route.Path), "/"), "-", "_")
	group, _, _ = strings.Cut(group, "/") // their scopes are the wallet's
	right := "write"
	if route.Method == http.MethodGet {
		right = "read"
	}
	if scope := identity.Scope(group + ":" + right); scope.Known() {
		return scope
	}
	return ""
}

// someoneFor returns a principal of org_1 or org_2 that may use the route: a key with all scopes or, where keys may not, an owner.
func someoneFor(route handlers.Route, name string) string {
	if route.Scope == "" {
		return "user:" + name
	}
	return name
}

// Every route admits its principals and the ids of their organization. A principal without the right learns nothing about the id
// or the body.
func TestRightsOfEveryRoute(t *testing.T) {
	t.Parallel()
	o, idOf := furnished(t)
	before := o.snapshot(t)
	for _, route := range o.Routes() {
		if route.Public {
			continue // TestPublicRoutes
		}
		t.Run(route.Method+" "+route.Path, func(t *testing.T) {
			require.NotEmpty(t, route.Summary)
			require.Equal(t, roleFor(t, route), route.Role)
			require.Equal(t, scopeFor(route), route.Scope)
			path, body := pathOf(route, idOf[groupOf(route.Path)], idOf), bodyFor(route)
			for principal, code := range o.refusals(route) {
				for _, body := range []string{body, "{"} {
					handlertest.RefusedWith(t, code, o.Serve, request(route.Method, path, principal, body))
				}
			}
			o.refusedFromElsewhere(t, route, path, body)
			if !strings.Contains(route.Path, "{id}") {
				return
			}
			for _, principal := range o.admitted(route) {
				a := handlertest.RefusedWith(t, errcode.Forbidden, o.Serve, request(route.Method, path, principal, body))
				require.NotContains(t, a.Text, "theirs")
				require.NotContains(t, a.Text, "stranger")
				require.NotRegexp(t, `\brole\b`, a.Text, "a word; ids have random letters")
				for _, unknown := range []string{"agt_unknown", "x", "%00", "%2F", "a%20b", strings.Repeat("a", 1000), "ÄÖ", "'"} {
					handlertest.RefusedWith(t, errcode.NotFound, o.Serve, request(route.Method, pathOf(route, unknown, idOf), principal, body))
				}
			}
		})
	}
	require.Equal(t, before, o.snapshot(t), "a refusal has no side effect")
}

// refusals are principals that may not use a route, with the code of the error.
func (o *fixture) refusals(route handlers.Route) map[string]errcode.Code {
	lacks := errcode.InsufficientScope
	if route.Scope == "" {
		lacks = errcode.Forbidden
	}
	keys := o.Authenticator.(handlertest.Keyring)
	keys["others"] = handlertest.Someone(slices.DeleteFunc(identity.AllScopes(), func(s identity.Scope) bool { return s == route.Scope })...)
	principals := map[string]errcode.Code{
		"": errcode.Unauthenticated, "unknown": errcode.InvalidAPIKey, "suspended": errcode.OrganizationSuspended, "none": lacks, "others": lacks,
		"user:nobody": errcode.Unauthenticated, "user:suspended": errcode.OrganizationSuspended,
	}
	for _, role := range identity.Roles() {
		if !role.Has(route.Role) {
			principals["user:"+string(role)] = errcode.Forbidden
		}
	}
	if !route.TestKeys {
		principals["test"] = errcode.Forbidden
	}
	return principals
}

// admitted are principals of org_1 that may use a route: the key with only its scope, and every role that has the right.
func (o *fixture) admitted(route handlers.Route) (principals []string) {
	if route.Scope != "" {
		o.Authenticator.(handlertest.Keyring)["only"] = handlertest.Someone(route.Scope)
		principals = append(principals, "only")
	}
	if route.TestKeys {
		principals = append(principals, "test")
	}
	for _, role := range identity.Roles() {
		if role.Has(route.Role) {
			principals = append(principals, "user:"+string(role))
		}
	}
	return principals
}

// refusedFromElsewhere: an unsafe request with a session is refused when another site makes it; an API key
// takes precedence, also an invalid one; and a cookie of another name, or two of them, is no session.
func (o *fixture) refusedFromElsewhere(t *testing.T, route handlers.Route, path, body string) {
	t.Helper()
	if route.Method != http.MethodGet {
		for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
			r := request(route.Method, path, "user:stranger", body)
			r.Header.Set(name, value)
			handlertest.RefusedWith(t, errcode.Forbidden, o.Serve, r)
		}
	}
	r := request(route.Method, path, "user:stranger", body)
	r.Header.Set("X-Api-Key", "unknown")
	handlertest.RefusedWith(t, errcode.InvalidAPIKey, o.Serve, r)
	r = request(route.Method, path, "user:stranger", body)
	r.AddCookie(r.Cookies()[0])
	handlertest.RefusedWith(t, errcode.Unauthenticated, o.Serve, r)
	r = request(route.Method, path, "", body)
	r.AddCookie(&http.Cookie{Name: handlers.LocalSessionCookie, Value: sessionToken("stranger")})
	handlertest.RefusedWith(t, errcode.Unauthenticated, o.Serve, r)
}

// Every group of docs/contract.md that this API serves is there.
func TestGroups(t *testing.T) {
	t.Parallel()
	groups := map[string]bool{}
	for _, route := range newFixture(t).Routes() {
		groups[groupOf(route.Path)] = true
	}
	for _, group := range []string{
		"/api-keys", "/provider-keys", "/agents", "/channels", "/conversations", "/wallet", "/session", "/members", "/audit-log",
		"/knowledge-bases", "/organization",
	} {
		require.True(t, groups[group], group)
	}
}

// snapshot returns the rows of the organizations.
func (o *fixture) snapshot(t *testing.T) (all []any) {
	t.Helper()
	ctx := t.Context()
	keep := func(rows any, err error) {
		require.NoError(t, err)
		all = append(all, rows)
	}
	for _, orgID := range []string{"org_1", "org_2", "org_3"} {
		keep(o.DB.Agents.List(ctx, orgID, store.Page{}))
		keep(o.DB.Channels.List(ctx, orgID, store.Page{}))
		keep(o.DB.Users.List(ctx, orgID, store.Page{}))
		keep(o.DB.APIKeys.All(ctx, orgID))
		keep(o.DB.ProviderKeys.List(ctx, orgID))
		keep(o.DB.KnowledgeBases.List(ctx, orgID, store.Page{}))
		keep(o.DB.AuditLog.List(ctx, orgID, store.Page{}))
		keep(o.Book.Budgets(ctx, billing.WalletID{OrgID: orgID, Env: store.Live}))
	}
	return append(all, slices.Clone(o.inbox.conversations), o.inbox.sent)
}

// Every route with a body: the JSON rules of docs/contract.md.
func TestBodyRulesOfEveryRoute(t *testing.T) {
	t.Parallel()
	o, idOf := furnished(t)
	description := o.Description()
	for _, route := range o.Routes() {
		if bodyFor(route) == "" {
			continue
		}
		path, principal := pathOf(route, idOf[groupOf(route.Path)], idOf), someoneFor(route, "stranger")
		good := bodyFor(route)
		name := regexp.MustCompile(`^\{"([a-zA-Z]+)"`).FindStringSubmatch(good)[1]
		for _, body := range []string{
			"", " ", "{", "[]", "null", "7", `"x"`, good + "x", good + good, strings.Replace(good, "{", `{"x":"`+"\xff"+`",`, 1),
			strings.Replace(good, "{", `{"x":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)+",", 1),
			strings.Replace(good, "{", `{"x":1,"x":2,`, 1), strings.Replace(good, "{", `{"x":"\ud800",`, 1),
			"\xef\xbb\xbf" + good, `{"x":"` + strings.Repeat("a", bodyBound(description, route)) + `"}`,
		} {
			o.refused(t, errcode.InvalidRequest, "", route.Method, path, principal, body)
		}
		o.refused(t, errcode.InvalidRequest, name, route.Method, path, principal, strings.Replace(good, "{", `{"`+name+`":"a",`, 1))
		r := request(route.Method, path, principal, good)
		r.Header.Set("Content-Encoding", "gzip")
		handlertest.RefusedWith(t, errcode.InvalidRequest, o.Serve, r)
	}
}

// bodyBound returns the largest body of the route in bytes.
func bodyBound(description *huma.OpenAPI, route handlers.Route) int {
	item := description.Paths[route.Path]
	for _, operation := range []*huma.Operation{item.Post, item.Put, item.Patch} {
		if operation != nil && operation.Method == route.Method {
			return int(operation.MaxBodyBytes)
		}
	}
	return 0
}

// Every member that is required is named when it is missing, also in another case.
func TestRequiredMembersAreNamed(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	description := o.Description()
	for path, item := range description.Paths {
		if item.Post == nil || item.Post.RequestBody == nil || strings.HasPrefix(path, "/widget/") {
			continue // a visitor's body is read by the widget alone, which has tests of its own
		}
		principal := someoneFor(routeOf(t, item.Post), "owner")
		path = strings.Replace(path, "{id}", "cnv_1", 1)
		schema := item.Post.RequestBody.Content["application/json"].Schema
		schema = description.Components.Schemas.SchemaFromRef(schema.Ref)
		free := path == "/api-keys" || path == "/conversations/cnv_1/messages" || // a message has a text or a template
			strings.HasSuffix(path, "/drafts/{draftId}/send") // without a text what was proposed is sent
		require.Equal(t, !free, len(schema.Required) > 0, path)
		for i, name := range schema.Required {
			var others []string
			for j, other := range schema.Required {
				if i != j {
					others = append(others, `"`+other+`":`+sampleOf(schema.Properties[other]))
				}
			}
			o.refused(t, errcode.InvalidRequest, name, http.MethodPost, path, principal, `{`+strings.Join(others, ",")+`}`)
			others = append(others, `"`+strings.ToUpper(name)+`":`+sampleOf(schema.Properties[name]))
			o.refused(t, errcode.InvalidRequest, name, http.MethodPost, path, principal, `{`+strings.Join(others, ",")+`}`)
		}
	}
}

func sampleOf(schema *huma.Schema) string {
	switch {
	case schema.Ref != "":
		return "{}"
	case len(schema.Enum) > 0:
		return `"` + schema.Enum[0].(string) + `"`
	case schema.MinLength != nil:
		return `"` + strings.Repeat("x", *schema.MinLength) + `"`
	default:
		return `"x"`
	}
}

// No two members differ by case only: the check of names relies on it.
func TestMembersDifferByMoreThanCase(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, schema := range newFixture(t).Description().Components.Schemas.Map() {
		for name := range schema.Properties {
			before, known := seen[strings.ToLower(name)]
			require.True(t, !known || before == name, name)
			seen[strings.ToLower(name)] = name
		}
	}
}

// No request can set members that aren't part of its body's description (mass assignment); unknown members are ignored.
func TestUnknownMembersAreIgnored(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	const more = `"id":"agt_mine","orgId":"org_2","org_id":"org_2","OrgID":"org_2","createdAt":"2000-01-01T00:00:00Z","updatedAt":7,
		"state":"active","webhookUrl":"https://evil.example","Name":"evil","x":{"y":[null,{}]},`
	agent := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{`+more+`"name":"Lan","model":"echo/a"}`)
	require.Equal(t, "Lan", agent["name"])
	channel := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner",
		`{`+more+`"type":"photo_dm","name":"Lan","externalId":"17","credentials":{"accessToken":"t","expiresAt":9,"ExpiresAt":9}}`)
	require.Equal(t, store.ChannelPending, channel["state"])
	require.Equal(t, "https://svc.example/webhooks/social", channel["webhookUrl"])
	for path, created := range map[string]map[string]any{"/agents": agent, "/channels": channel} {
		require.NotEqual(t, "agt_mine", created["id"])
		require.Equal(t, "2026-11-21T10:00:00.000Z", created["createdAt"])
		changed := o.ask(t, http.StatusOK, http.MethodPatch, path+"/"+created["id"].(string), "owner", `{`+more+`"type":"bot","externalId":"18"}`)
		changed["updatedAt"] = created["updatedAt"]
		require.Equal(t, created, changed)
	}
	r := request(http.MethodPost, "/agents", "owner", `{"name":"plain","model":"echo/a"}`)
	r.Header.Set("Content-Type", "text/plain")
	r.Header.Set("Accept", "application/cbor, text/html")
	require.Equal(t, http.StatusCreated, handlertest.Served(o.Serve, r).Code)
}

func TestPageParameters(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	encoded := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, route := range o.Routes() {
		if route.Method != http.MethodGet || strings.Contains(route.Path, "{") ||
			slices.Contains([]string{
				"/wallet", "/wallet/spend", "/organization", "/session", "/session/all", "/session/second-factor", "/provider-keys", "/agents/models",
				"/wallet/usage-events",               // TestUsageEvents
				"/wallet/budgets", "/wallet/top-ups", // all on one page
			}, route.Path) {
			continue
		}
		principal := someoneFor(route, "owner")
		for query, field := range map[string]string{
			"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "limit=-1": "limit", "limit=1.5": "limit", "limit": "limit",
			"cursor=!": "cursor", "cursor=" + encoded("a\x00"): "cursor", "cursor=" + encoded("' OR 1"): "cursor",
			"cursor=" + strings.Repeat("a", 300): "cursor",
		} {
			o.refused(t, errcode.InvalidRequest, field, http.MethodGet, route.Path+"?"+query, principal, "")
		}
		place := "1_zzz"
		if route.Path == "/wallet/transactions" {
			place = "1"
		}
		o.ask(t, http.StatusOK, http.MethodGet, route.Path+"?limit=100&unknown=1&cursor="+encoded(place), principal, "")
	}
	for query, field := range map[string]string{"state=open": "state", "channelId=%00": "channelId", "channelId=" + strings.Repeat("a", 65): "channelId"} {
		o.refused(t, errcode.InvalidRequest, field, http.MethodGet, "/conversations?"+query, "owner", "")
	}
}

func TestAPIBodiesAreCharged(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.Bodies = handlers.NewByteBudget(10)
	o.Server = serve(o.Deps)
	a := handlertest.RefusedWith(t, errcode.RateLimited, o.Serve, request(http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`))
	require.EqualValues(t, 1, a.Fields["retryAfter"])
	a = handlertest.RefusedWith(t, errcode.InternalError, o.Serve, request(http.MethodPost, "/session", "", `{"email":"a@example.com","password":"x"}`))
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	o.Bodies.SetLimit(1<<20, handlers.DefaultPace)
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)
	require.Zero(t, o.Bodies.Used())
}

// A body that finds no slot for decoding is refused.
func TestAPIBodiesAreDecodedInTurn(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	synctest.Test(t, func(t *testing.T) {
		o.Bodies = handlers.NewByteBudget(1 << 20)
		o.Server = serve(o.Deps)
		handlertest.FillSlots(t, o.Bodies)
		r := request(http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)
		a := handlertest.RefusedWith(t, errcode.InternalError, o.Serve, handlertest.Impatient(t, r))
		require.Equal(t, "1", a.Header.Get("Retry-After"))
	})
}

func TestAPIWithoutItsStore(t *testing.T) {
	t.Parallel()
	o, idOf := furnished(t)
	o.DB.Close(t.Context())
	for _, route := range o.Routes() {
		if groupOf(route.Path) == "/wallet" || groupOf(route.Path) == "/conversations" || groupOf(route.Path) == "/widget" ||
			route.Path == "/wallet/top-ups" { // without a configured way to pay, it reads nothing
			continue
		}
		path := pathOf(route, idOf[groupOf(route.Path)], idOf)
		a := handlertest.RefusedWith(t, errcode.InternalError, o.Serve, request(route.Method, path, someoneFor(route, "stranger"), bodyFor(route)))
		require.NotContains(t, a.Text, "store")
	}
}

func TestHandWrittenRoutesAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, route := range slices.Concat(v1.Routes(), webhook.Routes(handlertest.BuiltinPlatforms(t).Catalog), newFixture(t).Routes()) {
		require.False(t, seen[route.Method+" "+route.Path])
		seen[route.Method+" "+route.Path] = true
		closed := route.Scope != "" || route.Role != ""
		require.Equal(t, strings.HasPrefix(route.Path, "/webhooks") || route.Public, !closed)
	}
}

func routeOf(t *testing.T, operation *huma.Operation) handlers.Route {
	t.Helper()
	route, ok := endpoint.RouteOf(operation)
	require.True(t, ok, operation.OperationID)
	return route
}
