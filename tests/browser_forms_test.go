package tests

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// typed is a field, by its name, and what a person puts into it.
type typed struct{ name, value string }

// badForm is a form filled in with a fault.
type badForm struct {
	path, form string
	fields     []typed
	// wrong is the field that must show the fault; empty if no single field is at fault, and the form must show it.
	wrong string
	// forgotten are the fields that no page may show again.
	forgotten []string
}

// TestBrowserBadInput guarantees for the forms of the dashboard that bad input is reported at the field in words, that the
// field gets the focus, that no input is lost but secrets, and that nothing was changed.
func TestBrowserBadInput(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	l := b.line(t, social.Messenger)
	requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
	c.awaitSent(l.from(1), 1)
	p := b.person(t, "owner")
	p.open("/dashboard/keys")
	p.fill("#key-create-name", "Taken")
	p.submit("form#key-create")
	p.open("/dashboard/knowledge")
	p.fill("#knowledge-create-name", "Teas")
	p.submit("form#knowledge-create")
	base := p.path()
	agent, channel, conversation := "/dashboard/agents/"+b.AgentID, "/dashboard/channels/"+l.ID, "/dashboard/conversations/"+b.conversation(t, l).ID

	for name, bad := range map[string]badForm{
		"a key with a strange expiry": {
			path: "/dashboard/keys", form: "key-create", wrong: "expiresInDays",
			fields: []typed{{"name", "Backend"}, {"expiresInDays", "soon"}},
		},
		"a key that expires before it works": {
			path: "/dashboard/keys", form: "key-create", wrong: "expiresInDays",
			fields: []typed{{"name", "Backend"}, {"expiresInDays", "0"}},
		},
		"a key with a name that is taken": {
			path: "/dashboard/keys", form: "key-create", fields: []typed{{"name", "Taken"}, {"expiresInDays", "30"}},
		},
		"a member without an address": {
			path: "/dashboard/members", form: "member-invite", wrong: "email", fields: []typed{{"email", "nobody at all"}, {"role", "administrator"}},
		},
		"a provider key that is empty": {
			path: "/dashboard/provider-keys", form: "provider-key-set", wrong: "key", fields: []typed{{"provider", "acme"}, {"key", ""}},
			forgotten: []string{"key"},
		},
		"an assistant without a name": {
			path: "/dashboard/agents", form: "agent-create", wrong: "name",
			fields: []typed{{"name", ""}, {"model", modelStd}, {"instructions", "You are <b>Mai</b>.\n\nBe & stay \"kind\"."}},
		},
		"an assistant too hot": {
			path: agent, form: "agent-edit", wrong: "temperature",
			fields: []typed{{"name", "Lan"}, {"temperature", "7"}, {"maxTokens", "100"}, {"instructions", "Other."}},
		},
		"an assistant without end": {
			path: agent, form: "agent-edit", wrong: "maxTokens",
			fields: []typed{{"name", "Lan"}, {"temperature", "0.5"}, {"maxTokens", "many"}},
		},
		"a knowledge base without a name": {
			path: "/dashboard/knowledge", form: "knowledge-create", wrong: "name", fields: []typed{{"name", " "}, {"description", "All about tea"}},
		},
		"a knowledge base with a name that is taken": {
			path: "/dashboard/knowledge", form: "knowledge-create", fields: []typed{{"name", "Teas"}, {"description", "All about tea"}},
		},
		"a document without a name": {
			path: base, form: "document-create", wrong: "name", fields: []typed{{"content", "Sencha is green."}, {"mediaType", "text/markdown"}},
		},
		"a bot without a token": {
			path: "/dashboard/channels?type=bot", form: "channel-create", wrong: "credentials.botToken",
			fields:    []typed{{"name", "Bot"}, {"agentId", b.AgentID}, {"credentials.botToken", ""}, {"credentials.secretToken", "mine-0123456789abcdef"}},
			forgotten: []string{"credentials.botToken"},
		},
		"a page without its id": {
			path: "/dashboard/channels?type=social_messenger", form: "channel-create", wrong: "externalId",
			fields:    []typed{{"name", "Page"}, {"agentId", b.AgentID}, {"externalId", ""}, {"credentials.accessToken", "secret"}},
			forgotten: []string{"credentials.accessToken"},
		},
		"a page that is connected already": {
			path: "/dashboard/channels?type=social_messenger", form: "channel-create",
			fields:    []typed{{"name", "Page"}, {"agentId", b.AgentID}, {"externalId", l.External}, {"credentials.accessToken", "secret"}},
			forgotten: []string{"credentials.accessToken"},
		},
		"a widget for no page": {
			path: "/dashboard/channels?type=widget", form: "channel-create", wrong: "origins",
			fields: []typed{{"name", "Site"}, {"agentId", b.AgentID}, {"origins", "https://shop.test\nshop.test/path"}, {"requestsPerMinute", "10"}},
		},
		"a channel without a name": {
			path: channel, form: "channel-edit", wrong: "name", fields: []typed{{"name", ""}, {"agentId", ""}},
		},
		"credentials without a token": {
			path: channel, form: "channel-reconnect", wrong: "credentials.accessToken", fields: []typed{{"credentials.accessToken", ""}},
			forgotten: []string{"credentials.accessToken"},
		},
		"an answer without words": {
			path: conversation, form: "message-create", wrong: "text", fields: []typed{{"text", ""}},
		},
		"a time to keep that is none": {
			path: "/dashboard/organization", form: "organization-edit", wrong: "retentionDays", fields: []typed{{"retentionDays", "a month"}},
		},
		"a time to keep that is too short": {
			path: "/dashboard/organization", form: "organization-edit", wrong: "retentionDays", fields: []typed{{"retentionDays", "1"}},
		},
	} {
		t.Run(name, func(t *testing.T) { p.in(t).requireRefused(bad) })
	}

	t.Run("a file that is no text", func(t *testing.T) {
		p := p.in(t)
		p.open(base)
		p.upload("#document-create-file", "picture.md", []byte{0xff, 0xfe, 0x00})
		p.fill("#document-create-name", "Picture")
		p.submitBad("form#document-create")
		p.requireFieldError("#document-create-file")
		require.Equal(t, "Picture", p.value("#document-create-name"))
	})
	t.Run("a one-time link that was used", func(t *testing.T) {
		p := p.in(t)
		p.open("/dashboard/welcome#used")
		p.await("the code", `document.querySelector("#welcome-token").value === "used"`)
		p.fill("#welcome-password", "long enough to be a password")
		p.submitBad("form#welcome")
		p.requireFieldError("#welcome-token")
	})
	require.Empty(t, b.messages(t, b.conversation(t, l).ID)[2:], "nothing was sent")
	require.Len(t, list[map[string]any](t, b, "/agents", nil), 1)
	require.Len(t, list[map[string]any](t, b, "/channels", nil), 1)
}

// requireRefused fills in a bad form and requires that it is refused as TestBrowserBadInput says.
func (p *person) requireRefused(bad badForm) {
	p.t.Helper()
	field := func(name string) string { return `#` + bad.form + ` [name=` + quoted(name) + `]` }
	p.open(bad.path)
	for _, f := range bad.fields {
		p.fill(field(f.name), f.value)
	}
	p.submitBad("form#" + bad.form)
	for _, f := range bad.fields {
		want := f.value
		for _, name := range bad.forgotten {
			if name == f.name {
				want = ""
			}
		}
		require.Equal(p.t, want, strings.ReplaceAll(p.value(field(f.name)), "\r\n", "\n"), "what %s holds", f.name)
	}
	if bad.wrong == "" {
		require.NotEmpty(p.t, p.text("form#"+bad.form+" [role=alert]"), "the fault is told")
		return
	}
	id := p.property(field(bad.wrong), "id")
	require.Equal(p.t, bad.form+"-"+bad.wrong, id)
	p.requireFieldErrorAt(id)
	p.await("the focus on the field", `document.activeElement.id === `+quoted(id)) // the browser sets it after it has painted
}

// TestBrowserRoles guarantees that the dashboard shows users what their role allows and says what it doesn't; and that nothing of
// another organization is shown.
func TestBrowserRoles(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	other := c.business(t, 1_000_000, c.up.script(replying), nil)
	l := b.line(t, bot.Type)
	administrators := []string{"/dashboard/keys", "/dashboard/provider-keys", "/dashboard/events", "/dashboard/members", "/dashboard/audit"}
	everybody := []string{
		"/dashboard", "/dashboard/agents", "/dashboard/knowledge", "/dashboard/channels", "/dashboard/conversations", "/dashboard/wallet",
		"/dashboard/organization",
	}
	for _, role := range []string{"member", "administrator", "owner"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			p := b.person(t, role)
			shown := p.links("nav a")
			for _, section := range slices.Clone(shown) {
				p.open(section)
				shown = append(shown, p.links("nav a")...) // its tabs
			}
			for _, path := range everybody {
				require.Contains(t, shown, path)
				p.open(path)
			}
			for _, path := range administrators {
				if role == "member" {
					require.NotContains(t, shown, path)
					require.EqualValues(t, http.StatusForbidden, p.openAny(path), path)
					require.NotEmpty(t, p.text("main [role=alert]"))
					continue
				}
				require.Contains(t, shown, path)
				p.open(path)
			}
			p.open("/dashboard/channels?type=bot")
			require.Equal(t, role != "member", p.has("form#channel-create"))
			p.open("/dashboard/channels/" + l.ID)
			require.Equal(t, role != "member", p.has("form#channel-edit"))
			require.Equal(t, c.BaseURL+"/webhooks/bot/"+l.ID, p.text("#webhook-url"))
			p.open("/dashboard/organization")
			require.Equal(t, role != "member", p.has("form#organization-edit"))
			if role != "member" {
				p.open("/dashboard/members")
				require.Equal(t, role == "owner", p.has(`#member-invite-role option[value="owner"]`))
			}
			require.EqualValues(t, http.StatusForbidden, p.openAny("/dashboard/agents/"+other.AgentID))
			require.EqualValues(t, http.StatusNotFound, p.openAny("/dashboard/agents/agt_unknown"))
			require.EqualValues(t, http.StatusNotFound, p.openAny("/dashboard/nothing"))
		})
	}
}

// TestBrowserSession guarantees that a session that ended says so, and that a form sent afterwards loses nothing: signed in
// again, it can be sent as it was.
func TestBrowserSession(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	p := b.person(t, "member")
	p.open("/dashboard/agents")
	p.fill("#agent-create-name", "Lan")
	p.fill("#agent-create-model", modelStd)
	p.fill("#agent-create-instructions", "Be\nkind & brief.")
	c.svc(t, "user", "set", "--org", b.OrgID, "--email", p.Email, "--role", "administrator") // which ends all sessions
	p.submitBad("form#agent-create")
	again := &person{tab: p.beside(), Email: p.Email, Password: p.Password}
	again.open("/dashboard/login")
	again.signIn()
	p.requireAccessible()
	p.submit("form#ended-resend")
	p.open("/dashboard/agents")
	p.follow(`#agents th a[href*="/agents/"]:not([href*="` + b.AgentID + `"])`)
	require.Equal(t, "Lan", p.value("#agent-edit-name"))
	require.Equal(t, "Be\nkind & brief.", p.value("#agent-edit-instructions"))
}
