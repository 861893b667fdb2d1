package handlers

import (
	"context"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// furnished is an office where org_2 has one of each resource.
func furnished(t *testing.T) (o *office, idOf map[string]string) {
	t.Helper()
	o = newOffice(t)
	agent := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "stranger", `{"name":"theirs","model":"echo/a"}`)
	channel := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "stranger", botBody("theirs"))
	o.inbox.conversations = []inbox.Conversation{{ID: "cnv_theirs", OrgID: "org_2", ChannelID: channel["id"].(string), State: inbox.StateAssistant}}
	require.NoError(t, o.DB.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(1, `INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, state, attention, lease_until, lease_token,
			attempts, paused_until, last_customer_at, created_at, updated_at) VALUES ($1, $2, $3, 'a', 'a', 'assistant', '', 0, 0, 0, 0, 0, 0, 0)`,
			"cnv_theirs", "org_2", channel["id"])
		return nil
	}))
	return o, map[string]string{"/agents": agent["id"].(string), "/channels": channel["id"].(string), "/conversations": "cnv_theirs"}
}

// bodyFor is a good body for a route that has one.
func bodyFor(route Route) string {
	switch {
	case route.Method == http.MethodPatch:
		return `{"name":"mine now"}`
	case route.Method != http.MethodPost:
		return ""
	case strings.HasSuffix(route.Path, "/messages"):
		return `{"text":"hello"}`
	case route.Path == "/agents":
		return `{"name":"new","model":"echo/a"}`
	case route.Path == "/channels":
		return botBody("new")
	default:
		return ""
	}
}

func groupOf(path string) string { return "/" + strings.Split(path, "/")[1] }

// Every route: who may use it, and whose ids it takes.
func TestRightsOfEveryRoute(t *testing.T) {
	t.Parallel()
	o, idOf := furnished(t)
	require.Len(t, o.Routes(), 5+6+7+1)
	before := o.snapshot(t)
	for _, route := range o.Routes() {
		t.Run(route.Method+" "+route.Path, func(t *testing.T) {
			require.NotEmpty(t, route.Role)
			require.NotEmpty(t, route.Summary)
			group := strings.TrimPrefix(groupOf(route.Path), "/")
			right := "write"
			if route.Method == http.MethodGet {
				right = "read"
			}
			require.Equal(t, identity.Scope(group+":"+right), route.Scope)

			path := strings.Replace(route.Path, "{id}", idOf[groupOf(route.Path)], 1)
			body := bodyFor(route)
			// Who may not use the route learns nothing about the id or the body.
			for key, code := range map[string]Code{
				"": CodeUnauthenticated, "unknown": CodeInvalidAPIKey, "suspended": CodeOrganizationSuspended, "none": CodeInsufficientScope,
			} {
				for _, body := range []string{body, "{"} {
					r := request(route.Method, path, key, body)
					if key == "" {
						r.Header.Del("X-Api-Key")
					}
					refusedWith(t, code, o.Serve, r)
				}
			}
			others := slices.DeleteFunc(identity.AllScopes(), func(s identity.Scope) bool { return s == route.Scope })
			keys := o.Authenticator.(keyring)
			keys["others"], keys["only"] = someone(others...), someone(route.Scope)
			refusedWith(t, CodeInsufficientScope, o.Serve, request(route.Method, path, "others", body))
			if !strings.Contains(route.Path, "{id}") {
				return
			}
			a := refusedWith(t, CodeForbidden, o.Serve, request(route.Method, path, "only", body))
			require.NotContains(t, a.text, "theirs")
			for _, unknown := range []string{"agt_unknown", "x", "%00", "%2F", "a%20b", strings.Repeat("a", 1000), "ÄÖ", "'"} {
				refusedWith(t, CodeNotFound, o.Serve, request(route.Method, strings.Replace(route.Path, "{id}", unknown, 1), "only", body))
			}
		})
	}
	require.Equal(t, before, o.snapshot(t), "a refusal has no side effect")
}

// snapshot is what the other organization has.
func (o *office) snapshot(t *testing.T) any {
	t.Helper()
	agents, err := o.DB.Agents(t.Context(), "org_2", store.Page{})
	require.NoError(t, err)
	channels, err := o.DB.Channels(t.Context(), "org_2", store.Page{})
	require.NoError(t, err)
	return []any{agents, channels, slices.Clone(o.inbox.conversations), o.inbox.sent}
}

// Every route with a body: the JSON rules of design §6.
func TestBodyRulesOfEveryRoute(t *testing.T) {
	t.Parallel()
	o, idOf := furnished(t)
	for _, route := range o.Routes() {
		if bodyFor(route) == "" {
			continue
		}
		path := strings.Replace(route.Path, "{id}", idOf[groupOf(route.Path)], 1)
		good := bodyFor(route)
		name := regexp.MustCompile(`^\{"([a-z]+)"`).FindStringSubmatch(good)[1]
		for _, body := range []string{
			"", " ", "{", "[]", "null", "7", `"x"`, good + "x", good + good, strings.Replace(good, "{", `{"x":"`+"\xff"+`",`, 1),
			strings.Replace(good, "{", `{"x":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)+",", 1),
			strings.Replace(good, "{", `{"x":1,"x":2,`, 1), strings.Replace(good, "{", `{"x":"\ud800",`, 1),
			strings.Replace(good, "{", `{"x":1e400,`, 1),
			"\xef\xbb\xbf" + good, `{"x":"` + strings.Repeat("a", MaxAPIBody) + `"}`,
		} {
			o.refused(t, CodeInvalidRequest, "", route.Method, path, "stranger", body)
		}
		o.refused(t, CodeInvalidRequest, name, route.Method, path, "stranger", strings.Replace(good, "{", `{"`+name+`":"a",`, 1))
		r := request(route.Method, path, "stranger", good)
		r.Header.Set("Content-Encoding", "gzip")
		refusedWith(t, CodeInvalidRequest, o.Serve, r)
	}
}

// Every member that is required is named when it is missing, also in another case.
func TestRequiredMembersAreNamed(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for path, item := range o.huma.OpenAPI().Paths {
		if item.Post == nil || item.Post.RequestBody == nil {
			continue
		}
		path = strings.Replace(path, "{id}", "cnv_1", 1)
		schema := item.Post.RequestBody.Content["application/json"].Schema
		schema = o.huma.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
		require.NotEmpty(t, schema.Required, path)
		for i, name := range schema.Required {
			var others []string
			for j, other := range schema.Required {
				if i != j {
					others = append(others, `"`+other+`":`+sampleOf(schema.Properties[other]))
				}
			}
			o.refused(t, CodeInvalidRequest, name, http.MethodPost, path, "owner", `{`+strings.Join(others, ",")+`}`)
			others = append(others, `"`+strings.ToUpper(name)+`":`+sampleOf(schema.Properties[name]))
			o.refused(t, CodeInvalidRequest, name, http.MethodPost, path, "owner", `{`+strings.Join(others, ",")+`}`)
		}
	}
}

func sampleOf(schema *huma.Schema) string {
	switch {
	case schema.Ref != "":
		return "{}"
	case len(schema.Enum) > 0:
		return `"` + schema.Enum[0].(string) + `"`
	default:
		return `"x"`
	}
}

// No two members differ by case only: the check of names relies on it.
func TestMembersDifferByMoreThanCase(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for name := range newOffice(t).members {
		require.Empty(t, seen[strings.ToLower(name)], name)
		seen[strings.ToLower(name)] = name
	}
}

// Nobody can set what isn't theirs to set (mass assignment), and unknown members do no harm.
func TestUnknownMembersAreIgnored(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
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
	require.Equal(t, http.StatusCreated, served(o.Serve, r).Code)
}

func TestPageParameters(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	encoded := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, route := range o.Routes() {
		if route.Method != http.MethodGet || strings.Contains(route.Path, "{id}") || route.Path == "/wallet" {
			continue
		}
		for query, field := range map[string]string{
			"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "limit=-1": "limit", "limit=1.5": "limit", "limit": "limit",
			"cursor=!": "cursor", "cursor=" + encoded("a\x00"): "cursor", "cursor=" + encoded("' OR 1"): "cursor",
			"cursor=" + strings.Repeat("a", 300): "cursor",
		} {
			o.refused(t, CodeInvalidRequest, field, http.MethodGet, route.Path+"?"+query, "owner", "")
		}
		o.ask(t, http.StatusOK, http.MethodGet, route.Path+"?limit=100&unknown=1&cursor="+encoded("zzz_1"), "owner", "")
	}
	for query, field := range map[string]string{"state=open": "state", "channelId=%00": "channelId", "channelId=" + strings.Repeat("a", 65): "channelId"} {
		o.refused(t, CodeInvalidRequest, field, http.MethodGet, "/conversations?"+query, "owner", "")
	}
}

func TestAPIBodiesAreCharged(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.Bodies = NewByteBudget(10)
	refusedWith(t, CodeInternalError, o.Serve, request(http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`))
	o.Bodies.SetLimit(1 << 20)
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)
	require.Zero(t, o.Bodies.Used())
}

func TestAPIWithoutItsStore(t *testing.T) {
	t.Parallel()
	o, idOf := furnished(t)
	o.DB.Close(t.Context())
	for _, route := range o.Routes() {
		if groupOf(route.Path) == "/wallet" || groupOf(route.Path) == "/conversations" {
			continue
		}
		path := strings.Replace(route.Path, "{id}", idOf[groupOf(route.Path)], 1)
		a := refusedWith(t, CodeInternalError, o.Serve, request(route.Method, path, "stranger", bodyFor(route)))
		require.NotContains(t, a.text, "store")
	}
}

func TestHandWrittenRoutesAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, route := range slices.Concat(Routes(), newOffice(t).Routes()) {
		require.False(t, seen[route.Method+" "+route.Path])
		seen[route.Method+" "+route.Path] = true
		require.Equal(t, strings.HasPrefix(route.Path, "/webhooks"), route.Scope == "")
	}
}
