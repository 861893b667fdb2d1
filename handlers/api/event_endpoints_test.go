package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// An endpoint's secret is shown when it is made and when it is replaced, and never again.
func TestEventEndpoints(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	const url = "https://crm.example.com/events?shop=1"
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/event-endpoints", "user:administrator",
		`{"url":"`+url+`","secret":"whsec_mine","state":"disabled"}`)
	secret := made["secret"].(string)
	require.True(t, strings.HasPrefix(secret, "whsec_") && len(secret) == 6+44, secret)
	one := "/event-endpoints/" + made["id"].(string)
	shown := o.ask(t, http.StatusOK, http.MethodGet, one, "user:administrator", "")
	require.Equal(t, map[string]any{
		"id": made["id"], "url": url, "state": "active", "disabledReason": nil, "failingSince": nil, "oldSecretUntil": nil,
		"events": []any{
			"conversation.handover", "conversation.attention", "conversation.waiting", "channel.needs_reauth", "channel.expiring",
			"wallet.low", "wallet.credited",
			"budget.threshold_reached",
		},
		"createdAt": made["createdAt"], "updatedAt": made["updatedAt"],
	}, shown)
	row, err := o.DB.EventEndpoints.ByID(t.Context(), "org_1", made["id"].(string))
	require.NoError(t, err)
	opened, err := o.Ring.Open(row.Secret, vault.EventSecret("org_1", row.ID))
	require.NoError(t, err)
	require.Equal(t, secret, string(opened))

	changed := o.ask(t, http.StatusOK, http.MethodPatch, one, "owner", `{"url":"https://other.example.com","events":["wallet.low"]}`)
	require.Equal(t, "https://other.example.com", changed["url"])
	require.Equal(t, []any{"wallet.low"}, changed["events"])

	rotated := o.ask(t, http.StatusCreated, http.MethodPost, one+"/rotate-secret", "owner", "")
	require.NotEqual(t, secret, rotated["secret"])
	require.Equal(t, "2026-11-22T10:00:00.000Z", rotated["oldSecretUntil"])

	sent := o.ask(t, http.StatusCreated, http.MethodPost, one+"/test", "owner", "")
	log := o.ask(t, http.StatusOK, http.MethodGet, one+"/deliveries", "owner", "")["data"].([]any)
	require.Len(t, log, 1)
	delivery := log[0].(map[string]any)
	require.Equal(t, sent["eventId"], delivery["eventId"])
	require.Equal(t, "endpoint.test", delivery["type"])
	require.Equal(t, "pending", delivery["state"])
	require.Nil(t, delivery["outcome"])
	require.NotNil(t, delivery["nextTryAt"])
	require.Equal(t, map[string]any{"endpointId": made["id"]}, delivery["payload"].(map[string]any)["data"])

	tooSoon := o.refused(t, errcode.RateLimited, "", http.MethodPost, one+"/test", "user:owner", "")
	require.Equal(t, "1", tooSoon.Header.Get("Retry-After"))

	o.ask(t, http.StatusOK, http.MethodPatch, one, "owner", `{"state":"disabled"}`)
	o.refused(t, errcode.Conflict, "", http.MethodPost, one+"/test", "owner", "")

	list := handlertest.OkText(t, o.Serve, request(http.MethodGet, "/event-endpoints", "owner", ""))
	require.NotContains(t, list, "whsec_")
	audit, err := o.DB.AuditLog.List(t.Context(), "", store.Page{Limit: 50})
	require.NoError(t, err)
	for _, entry := range audit {
		require.NotContains(t, entry.Detail, "whsec_")
	}
	o.ask(t, http.StatusNoContent, http.MethodDelete, one, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, one, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, one+"/deliveries", "owner", "")
}

func TestEventEndpointsRefuse(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	for body, field := range map[string]string{
		`{}`:                                                 "url",
		`{"url":"http://example.com"}`:                       "url",
		`{"url":"https://10.0.0.1/"}`:                        "url",
		`{"url":"https://[::1]/"}`:                           "url",
		`{"url":"https://169.254.169.254"}`:                  "url",
		`{"url":"https://u:hunter2@e.com"}`:                  "url",
		`{"url":"https://e.com","events":["endpoint.test"]}`: "events[0]",
	} {
		refused := o.refused(t, errcode.InvalidRequest, field, http.MethodPost, "/event-endpoints", "owner", body)
		require.NotContains(t, refused.Text, "hunter2")
	}
	foreign := store.EventEndpoint{ID: "evep_foreign", OrgID: "org_2", URL: "https://example.com", Secret: []byte("x")}
	require.NoError(t, o.DB.EventEndpoints.Create(t.Context(), "cli", &foreign))
	for method, path := range map[string]string{
		http.MethodGet: "", http.MethodDelete: "", http.MethodPatch: "", http.MethodPost: "/test", "ROTATE": "/rotate-secret", "LOG": "/deliveries",
	} {
		body := ""
		switch method {
		case http.MethodPatch:
			body = `{"state":"disabled"}`
		case "ROTATE":
			method = http.MethodPost
		case "LOG":
			method = http.MethodGet
		}
		o.refused(t, errcode.Forbidden, "", method, "/event-endpoints/evep_foreign"+path, "owner", body)
		o.refused(t, errcode.NotFound, "", method, "/event-endpoints/evep_none"+path, "owner", body)
	}
	for range store.MaxEventEndpoints {
		o.ask(t, http.StatusCreated, http.MethodPost, "/event-endpoints", "owner", `{"url":"https://example.com"}`)
	}
	o.refused(t, errcode.PlanLimitExceeded, "", http.MethodPost, "/event-endpoints", "owner", `{"url":"https://example.com"}`)
	o.refused(t, errcode.Forbidden, "", http.MethodGet, "/event-endpoints", "user:member", "")
}

func TestBoundsOfEvents(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	shown := o.ask(t, http.StatusOK, http.MethodGet, "/organization", "user:member", "")
	require.Equal(t, "0", shown["lowBalanceMicros"])
	require.EqualValues(t, 15, shown["waitingMinutes"])
	shown = o.ask(t, http.StatusOK, http.MethodPatch, "/organization", "user:administrator", `{"lowBalanceMicros":"5000000"}`)
	require.Equal(t, "5000000", shown["lowBalanceMicros"])
	shown = o.ask(t, http.StatusOK, http.MethodPatch, "/organization", "user:administrator", `{"waitingMinutes":0}`)
	require.Equal(t, "5000000", shown["lowBalanceMicros"])
	require.EqualValues(t, 0, shown["waitingMinutes"])
	o.refused(t, errcode.InvalidRequest, "lowBalanceMicros", http.MethodPatch, "/organization", "user:administrator", `{"lowBalanceMicros":"-1"}`)
	o.refused(t, errcode.InvalidRequest, "waitingMinutes", http.MethodPatch, "/organization", "user:administrator", `{"waitingMinutes":-1}`)
}
