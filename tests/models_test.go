package tests

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// listedModel is docs/contract.md#models.
type listedModel struct {
	ID, Object    string
	Created       int64
	OwnedBy       string `json:"owned_by"`
	DisplayName   string `json:"display_name"`
	FriendlyName  string `json:"friendly_name"`
	Tier          string
	ContextWindow int64 `json:"context_window"`
	VNHosted      bool  `json:"vn_hosted"`
}

// TestModels guarantees the list of docs/contract.md#models: every configured model with exactly its public fields, only
// those enabled for the calling organization, whatever query a library adds; and one model by its id, which libraries
// send with the slash encoded.
func TestModels(t *testing.T) {
	t.Parallel()
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	c := p.operator().customer(t, 0)
	as := p.as(c)

	list := func(path string) (ids []string, models map[string]listedModel) {
		a := as.get(t, path)
		require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"))
		require.Regexp(t, `^req_`, a.Header.Get("X-Request-Id"))
		requireMembers(t, a.Body, "object", "data")
		var body struct {
			Object string
			Data   []json.RawMessage
		}
		require.NoError(t, json.Unmarshal(a.Body, &body))
		require.Equal(t, "list", body.Object)
		models = map[string]listedModel{}
		for _, raw := range body.Data {
			requireMembers(t, raw, "id", "object", "created", "owned_by", "display_name", "friendly_name", "tier", "context_window", "vn_hosted")
			var m listedModel
			require.NoError(t, json.Unmarshal(raw, &m))
			require.Equal(t, "model", m.Object)
			require.Positive(t, m.Created)
			ids, models[m.ID] = append(ids, m.ID), m
		}
		return ids, models
	}

	all := []string{modelFree, modelSmall, modelDeep, modelStd, modelDead, modelEcho, modelKeyed}
	ids, models := list("/v1/models")
	require.ElementsMatch(t, all, ids)
	std := models[modelStd]
	require.Equal(t, listedModel{
		ID: modelStd, Object: "model", Created: std.Created, OwnedBy: "acme", DisplayName: "Acme Standard",
		FriendlyName: "Standard", Tier: "economy", ContextWindow: stdWindow, VNHosted: true,
	}, std)
	require.Equal(t, modelSmall, models[modelSmall].DisplayName)
	require.Equal(t, modelSmall, models[modelSmall].FriendlyName)

	again, _ := list("/v1/models?limit=1&after=x&order=asc")
	require.Equal(t, ids, again)

	for _, path := range []string{modelStd, url.PathEscape(modelStd)} {
		a := as.get(t, "/v1/models/"+path)
		require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
		var m listedModel
		require.NoError(t, json.Unmarshal(a.Body, &m))
		require.Equal(t, std, m)
	}
	for _, path := range []string{"acme/none", "acme", "acme%2Fstd%2Fmore", "%2F"} {
		requireError(t, as.get(t, "/v1/models/"+path), "not_found")
	}

	require.NoError(t, p.operator().db.Organizations.SetModel(t.Context(), actor, c.OrgID, modelFree, false))
	ids, _ = list("/v1/models")
	require.ElementsMatch(t, slices.DeleteFunc(all, func(id string) bool { return id == modelFree }), ids)
	requireError(t, as.get(t, "/v1/models/"+modelFree), "not_found")
	others := p.as(p.operator().customer(t, 0)).get(t, "/v1/models")
	require.Contains(t, string(others.Body), `"`+modelFree+`"`)
}

// TestRateLimit guarantees docs/contract.md#rate-limits: a fixed window per organization, over the limit 429 with the seconds to the next
// window, the same for every key of the organization, and its headers.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		p := startProduct(t, deploy(t, engine, startUpstream(t)))
		c := p.operator().customerOn(t, planTight, 1_000_000)
		_, second := c.newKey(t, identity.KeyRequest{})
		clients := []*client{p.as(c), p.withKey(second)}

		// The window is the clock's minute, and a new one may begin meanwhile: then there are 5 more.
		var fine, refused int
		for i := 0; refused == 0 && i < 30; i++ {
			a := clients[i%2].get(t, "/v1/models")
			require.Equal(t, "5", a.Header.Get("X-Ratelimit-Limit-Requests"))
			require.NotEmpty(t, a.Header.Get("X-Ratelimit-Remaining-Requests"))
			require.NotEmpty(t, a.Header.Get("X-Ratelimit-Reset-Requests"))
			if a.Status == http.StatusOK {
				fine++
				continue
			}
			refused++
			e := requireError(t, a, "rate_limited")
			require.NotEmpty(t, a.Header.Get("Retry-After-Ms"))
			require.NotContains(t, e.Message, "billing") // a library would take it for permanent
		}
		require.Equal(t, 1, refused)
		require.True(t, fine >= 5 && fine <= 10, "%d requests passed", fine)
		other := p.operator().customerOn(t, planTight, 0)
		require.Equal(t, http.StatusOK, p.as(other).get(t, "/v1/models").Status)
	})
}
