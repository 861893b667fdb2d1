package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// The picker of models shows what [API.checkModel] takes, to people, too.
func TestAgentModels(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.Models = modelSet{
		"echo/a": {
			ID: "echo/a", DisplayName: "Echo A", FriendlyName: "A", Tier: "economy", ContextWindow: 8000, MaxOutputTokens: 4000,
			VNHosted: true,
		},
		"echo/b": {ID: "echo/b"},
	}
	all := o.ask(t, http.StatusOK, http.MethodGet, "/agents/models", "user:member", "")["data"].([]any)
	require.Len(t, all, 2)
	require.Equal(t, map[string]any{
		"id": "echo/a", "displayName": "Echo A", "friendlyName": "A", "tier": "economy", "contextWindow": 8000.0,
		"maxOutputTokens": 4000.0, "vnHosted": true,
	}, all[0])

	require.NoError(t, o.DB.Organizations.SetModel(t.Context(), "test", "org_1", "echo/a", false))
	left := o.ask(t, http.StatusOK, http.MethodGet, "/agents/models", "owner", "")["data"].([]any)
	require.Equal(t, []any{all[1]}, left)
	require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, "/agents/models", "stranger", "")["data"], 2)

	o.Models = modelSet(map[string]*gateway.Model{})
	require.Equal(t, []any{}, o.ask(t, http.StatusOK, http.MethodGet, "/agents/models", "stranger", "")["data"])
}
