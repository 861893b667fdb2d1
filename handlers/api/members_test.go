package api

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/members", "user:administrator", `{"email":"Lan@example.com","role":"member","state":"active"}`)
	require.Regexp(t, `^https://svc\.example/dashboard/welcome#[A-Za-z0-9_-]{43}$`, made["link"])
	require.Equal(t, "2026-11-28T10:00:00.000Z", made["linkExpiresAt"])
	one := "/members/" + made["id"].(string)
	member := o.ask(t, http.StatusOK, http.MethodGet, one, "user:administrator", "")
	require.Equal(t, map[string]any{
		"id": made["id"], "email": "lan@example.com", "role": "member", "state": "invited",
		"expiresAt": member["expiresAt"], "createdAt": made["createdAt"], "updatedAt": made["createdAt"],
	}, member)
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/members", "user:owner", `{"email":"lan@EXAMPLE.com","role":"member"}`)
	// An address that another organization has is invited like any other, and its link is as good.
	known := o.ask(t, http.StatusCreated, http.MethodPost, "/members", "user:owner", `{"email":"stranger@example.com","role":"member"}`)
	require.Equal(t, "invited", known["state"])
	for name := range made {
		require.Contains(t, known, name)
	}
	_, code, _ := strings.Cut(known["link"].(string), "#")
	o.refused(t, errcode.InvalidRequest, "token", http.MethodPost, "/session/password", "", `{"token":"`+strings.Repeat("x", 43)+`","password":"correct horse battery"}`)
	joined := o.ask(t, http.StatusCreated, http.MethodPost, "/session/password", "", `{"token":"`+code+`","password":"correct horse battery"}`)
	require.Equal(t, "org_1", joined["organization"].(map[string]any)["id"])
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/members/"+known["id"].(string), "user:owner", "")
	o.DB.Exec(t.Context(), func(_ context.Context, tx store.Tx) error { //nolint:errcheck // the next line sees it
		tx.Queue(1, `UPDATE invitations SET expires_at = 5`)
		return nil
	})
	require.Equal(t, "expired", o.ask(t, http.StatusOK, http.MethodGet, one, "user:owner", "")["state"])
	one = "/members/" + o.ask(t, http.StatusCreated, http.MethodPost, "/members", "user:owner", `{"email":"lan@example.com","role":"member"}`)["id"].(string)
	o.refused(t, errcode.InvalidRequest, "email", http.MethodPost, "/members", "user:owner", `{"email":"lan","role":"member"}`)
	o.refused(t, errcode.InvalidRequest, "role", http.MethodPost, "/members", "user:owner", `{"email":"x@example.com","role":"boss"}`)
	o.refused(t, errcode.InvalidRequest, "role", http.MethodPatch, one, "user:owner", `{"role":"Owner"}`)

	require.Equal(t, "administrator", o.ask(t, http.StatusOK, http.MethodPatch, one, "user:administrator", `{"role":"administrator"}`)["role"])
	require.Equal(t, "administrator", o.ask(t, http.StatusOK, http.MethodPatch, one, "user:owner", `{"role":null}`)["role"])
	again := o.ask(t, http.StatusCreated, http.MethodPost, one+"/link", "user:administrator", "")
	require.NotEqual(t, made["link"], again["link"])
	require.Equal(t, made["email"], again["email"])
	listed := o.ask(t, http.StatusOK, http.MethodGet, "/members?limit=2", "user:administrator", "")
	require.Len(t, listed["data"], 2)
	require.NotNil(t, listed["nextCursor"])
	o.ask(t, http.StatusNoContent, http.MethodDelete, one, "user:administrator", "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, one, "user:administrator", "")
}

// An administrator can't change owners, and the last owner can't be removed.
func TestMembersAndOwners(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	before := o.snapshot(t)
	const owner = "/members/usr_owner"
	for _, c := range [][3]string{
		{http.MethodPost, "/members", `{"email":"x@example.com","role":"owner"}`},
		{http.MethodPatch, owner, `{"role":"member"}`},
		{http.MethodDelete, owner, ""},
		{http.MethodPost, owner + "/link", ""},
		{http.MethodPatch, "/members/usr_administrator", `{"role":"owner"}`},
	} {
		o.refused(t, errcode.Forbidden, "", c[0], c[1], "user:administrator", c[2])
	}
	o.refused(t, errcode.Conflict, "", http.MethodDelete, owner, "user:owner", "")
	o.refused(t, errcode.Conflict, "", http.MethodPatch, owner, "user:owner", `{"role":"administrator"}`)
	require.Equal(t, before, o.snapshot(t))

	o.ask(t, http.StatusOK, http.MethodPatch, "/members/usr_administrator", "user:owner", `{"role":"owner"}`)
	o.refused(t, errcode.Unauthenticated, "", http.MethodGet, "/session", "user:administrator", "") // who has other rights signs in anew
	o.ask(t, http.StatusNoContent, http.MethodDelete, owner, "user:owner", "")
	o.refused(t, errcode.Unauthenticated, "", http.MethodGet, "/session", "user:owner", "")
}

func TestAuditLog(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	require.NoError(t, o.DB.Organizations.SetPlan(t.Context(), "cli:root", "org_1", "pro"))
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Mai","model":"echo/a"}`)
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "stranger", `{"name":"theirs","model":"echo/a"}`)
	page := o.ask(t, http.StatusOK, http.MethodGet, "/audit-log?limit=2", "user:administrator", "")
	data := page["data"].([]any)
	first, second := data[0].(map[string]any), data[1].(map[string]any)
	require.Equal(t, []any{"key_1", "agent.create", "Mai"}, []any{first["actor"], first["action"], first["detail"]})
	require.Equal(t, []any{"operator", "organization.set_plan", "pro"}, []any{second["actor"], second["action"], second["detail"]})
	require.Len(t, first, 6)

	seen := map[string]bool{}
	cursor := ""
	for {
		page := o.ask(t, http.StatusOK, http.MethodGet, "/audit-log?limit=3&cursor="+cursor, "user:owner", "")
		for _, entry := range page["data"].([]any) {
			id := entry.(map[string]any)["id"].(string)
			require.False(t, seen[id])
			seen[id] = true
		}
		if page["nextCursor"] == nil {
			break
		}
		cursor = page["nextCursor"].(string)
	}
	all, err := o.DB.AuditLog.List(t.Context(), "org_1", store.Page{})
	require.NoError(t, err)
	require.Len(t, seen, len(all))
}

// A member can't reset the password of a person with an equal or higher role. A reset ends all sessions, is in the audit log
// under the author of its link, and is shown to the person.
func TestPasswordReset(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	for principal, refused := range map[string][]string{
		"user:owner": {"usr_owner"}, "user:administrator": {"usr_owner", "usr_administrator"},
	} {
		for _, id := range refused {
			o.refused(t, errcode.Forbidden, "", http.MethodPost, "/members/"+id+"/link", principal, "")
		}
	}
	require.NotContains(t, o.ask(t, http.StatusOK, http.MethodGet, "/session", "user:member", ""), "passwordReset")
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/members/usr_member/link", "user:administrator", "")
	_, code, _ := strings.Cut(made["link"].(string), "#")
	o.ask(t, http.StatusOK, http.MethodGet, "/session", "user:member", "")
	body := `{"token":"` + code + `","password":"` + goodPassword + `"}`
	o.ask(t, http.StatusCreated, http.MethodPost, "/session/password", "", body)
	o.refused(t, errcode.Unauthenticated, "", http.MethodGet, "/session", "user:member", "")

	entries, err := o.DB.AuditLog.List(t.Context(), "org_1", store.Page{})
	require.NoError(t, err)
	require.Equal(t, []string{"usr_administrator", "user.set_password", "usr_member", "reset"},
		[]string{entries[0].Actor, entries[0].Action, entries[0].Target, entries[0].Detail})
	signedIn := func() map[string]any {
		return o.ask(t, http.StatusCreated, http.MethodPost, "/session", "", `{"email":"member@example.com","password":"`+goodPassword+`"}`)
	}
	for _, days := range []int64{29, 1} { // a sign-in doesn't remove it, which may be an intruder's; 30 days do
		reset := signedIn()["passwordReset"].(map[string]any)
		require.Equal(t, "administrator@example.com", reset["by"])
		require.NotEmpty(t, reset["at"])
		require.NoError(t, o.DB.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `UPDATE users SET reset_at = reset_at - $1 WHERE id = 'usr_member'`, days*24*time.Hour.Milliseconds())
			return nil
		}))
	}
	require.NotContains(t, signedIn(), "passwordReset")

	link := store.UserLink{Hash: sha256.Sum256([]byte(sessionToken("link"))), Purpose: "reset", Lifetime: 60_000}
	require.NoError(t, o.DB.UserLinks.Put(t.Context(), "cli:root", "org_1", "usr_member",
		func(store.User) error { return nil }, func(store.User) store.UserLink { return link }))
	body = `{"token":"` + sessionToken("link") + `","password":"` + goodPassword + `"}`
	session := o.ask(t, http.StatusCreated, http.MethodPost, "/session/password", "", body)
	require.Equal(t, "operator", session["passwordReset"].(map[string]any)["by"])
}
