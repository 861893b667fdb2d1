package api

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func TestAgentWithDefaults(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	created := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":" Lan ","model":"echo/a"}`)
	id := created["id"].(string)
	require.Regexp(t, `^agt_[0-9a-v]{26}$`, id)
	require.Equal(t, map[string]any{
		"id": id, "name": "Lan", "model": "echo/a", "instructions": "", "useByok": false, "maxTokens": nil, "temperature": nil,
		"debounceSeconds": 0.0, "debounceMaxSeconds": 0.0, "supersede": false, "pauseMinutes": nil, "knowledgeBaseIds": []any{},
		"handover": false, "handoverWords": []any{}, "handoverReply": "", "typing": false,
		"createdAt": "2026-11-21T10:00:00.000Z", "updatedAt": "2026-11-21T10:00:00.000Z",
	}, created)
	require.Equal(t, created, o.ask(t, http.StatusOK, http.MethodGet, "/agents/"+id, "owner", ""))
}

func TestAgentWithEverything(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	created := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a","instructions":"Be kind.\n",
		"useByok":true,"maxTokens":2e2,"temperature":0.7,"debounceSeconds":2.5,"debounceMaxSeconds":30.0,"supersede":true,"pauseMinutes":90,"typing":true,
		"handover":true,"handoverWords":[" a   person ","người","a person"],"handoverReply":" One moment.\n"}`)
	agent, err := o.DB.Agents.ByID(t.Context(), "org_1", created["id"].(string))
	require.NoError(t, err)
	require.Equal(t, store.Agent{
		ID: agent.ID, OrgID: "org_1", Name: "Lan", Model: "echo/a", Instructions: "Be kind.\n", UseBYOK: true, MaxTokens: 200,
		TemperatureMilli: sql.NullInt64{Int64: 700, Valid: true}, DebounceMS: 2500, DebounceMaxMS: 30_000, Supersede: true,
		Handover: true, HandoverWords: []string{"a person", "người"}, HandoverReply: "One moment.", Typing: true,
		PauseMS: 90 * 60_000, CreatedAt: apiNow().UnixMilli(), UpdatedAt: apiNow().UnixMilli(),
	}, agent)

	changed := o.ask(t, http.StatusOK, http.MethodPatch, "/agents/"+agent.ID, "owner", `{"model":"echo/b","temperature":null,"name":null,"supersede":false}`)
	require.Equal(t, "echo/b", changed["model"])
	require.Equal(t, "Lan", changed["name"], "null is absent")
	require.Nil(t, changed["temperature"], "null takes away what may be absent")
	require.Equal(t, false, changed["supersede"])
	require.EqualValues(t, 200, changed["maxTokens"])
	changed = o.ask(t, http.StatusOK, http.MethodPatch, "/agents/"+agent.ID, "owner", `{"maxTokens":null,"pauseMinutes":0}`)
	require.Nil(t, changed["maxTokens"])
	require.EqualValues(t, 0, changed["pauseMinutes"], "never")
	agent, err = o.DB.Agents.ByID(t.Context(), "org_1", agent.ID)
	require.NoError(t, err)
	require.EqualValues(t, store.NoPause, agent.PauseMS)
	changed = o.ask(t, http.StatusOK, http.MethodPatch, "/agents/"+agent.ID, "owner", `{"pauseMinutes":null}`)
	require.Nil(t, changed["pauseMinutes"], "the default")
	changed = o.ask(t, http.StatusOK, http.MethodPatch, "/agents/"+agent.ID, "owner", `{"handover":false,"handoverWords":[],"handoverReply":""}`)
	require.Equal(t, []any{false, []any{}, ""}, []any{changed["handover"], changed["handoverWords"], changed["handoverReply"]})
	same := o.ask(t, http.StatusOK, http.MethodPatch, "/agents/"+agent.ID, "owner", `{}`)
	same["updatedAt"] = changed["updatedAt"]
	require.Equal(t, changed, same)
}

func TestAgentRefusals(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)["id"].(string)
	long := strings.Repeat("é", 101)
	for _, c := range []struct {
		member, field string
	}{
		{`"name":""`, "name"},
		{`"name":" "`, "name"},
		{`"name":"` + long + `"`, "name"},
		{`"name":"a\u0007"`, "name"},
		{`"name":7`, "name"},
		{`"name":"a\u0000b"`, "name"},
		{`"model":7`, "model"},
		{`"instructions":"` + strings.Repeat("é", 100_001) + `"`, "instructions"},
		{`"instructions":"\u0000"`, "instructions"},
		{`"useByok":"yes"`, "useByok"},
		{`"maxTokens":0`, "maxTokens"},
		{`"maxTokens":200001`, "maxTokens"},
		{`"maxTokens":1.5`, "maxTokens"},
		{`"maxTokens":"1"`, "maxTokens"},
		{`"maxTokens":1e300`, "maxTokens"},
		{`"temperature":-0.1`, "temperature"},
		{`"temperature":2.1`, "temperature"},
		{`"debounceSeconds":61`, "debounceSeconds"},
		{`"debounceSeconds":-1`, "debounceSeconds"},
		{`"debounceMaxSeconds":301`, "debounceMaxSeconds"},
		{`"debounceSeconds":20,"debounceMaxSeconds":10`, "debounceMaxSeconds"},
		{`"supersede":1`, "supersede"},
		{`"typing":"on"`, "typing"},
		{`"pauseMinutes":1441`, "pauseMinutes"},
		{`"handover":"yes"`, "handover"},
		{`"handoverWords":"person"`, "handoverWords"},
		{`"handoverWords":["ok","` + strings.Repeat("é", 51) + `"]`, "handoverWords"},
		{`"handoverWords":["?!"]`, "handoverWords"},
		{`"handoverWords":[" "]`, "handoverWords"},
		{`"handoverWords":[` + strings.Repeat(`"a",`, 20) + `"a"]`, "handoverWords"},
		{`"handoverReply":"` + strings.Repeat("é", 1001) + `"`, "handoverReply"},
	} {
		body := `{"model":"echo/a",` + c.member + `}`
		if !strings.Contains(c.member, `"name"`) {
			body = `{"name":"Mai","model":"echo/a",` + c.member + `}`
		}
		if strings.Contains(c.member, `"model"`) {
			body = `{"name":"Mai",` + c.member + `}`
		}
		o.refused(t, errcode.InvalidRequest, c.field, http.MethodPost, "/agents", "owner", body)
		o.refused(t, errcode.InvalidRequest, c.field, http.MethodPatch, "/agents/"+id, "owner", `{`+c.member+`}`)
	}
	o.refused(t, errcode.InvalidRequest, "name", http.MethodPost, "/agents", "owner", `{"model":"echo/a","Name":"x"}`)
	o.refused(t, errcode.InvalidRequest, "model", http.MethodPost, "/agents", "owner", `{"name":"x","Model":"echo/a"}`)
	o.refused(t, errcode.UnsupportedModel, "model", http.MethodPost, "/agents", "owner", `{"name":"x","model":"echo/none"}`)
	o.refused(t, errcode.UnsupportedModel, "model", http.MethodPatch, "/agents/"+id, "owner", `{"model":"echo/none"}`)
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Mai","model":"echo/a"}`)
	o.refused(t, errcode.Conflict, "", http.MethodPatch, "/agents/"+id, "owner", `{"name":"Mai"}`)
	require.Equal(t, "Lan", o.ask(t, http.StatusOK, http.MethodGet, "/agents/"+id, "owner", "")["name"])
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "stranger", `{"name":"Lan","model":"echo/a"}`)
}

func TestAgentOfASwitchedOffModel(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	require.NoError(t, o.DB.Organizations.SetModel(t.Context(), "test", "org_1", "echo/b", false))
	o.refused(t, errcode.UnsupportedModel, "model", http.MethodPost, "/agents", "some models", `{"name":"x","model":"echo/b"}`)
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "some models", `{"name":"x","model":"echo/a"}`)
}

func TestAgentsInPages(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	require.Equal(t, map[string]any{"data": []any{}, "nextCursor": nil}, o.ask(t, http.StatusOK, http.MethodGet, "/agents", "owner", ""))
	for i := range 5 {
		o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"a`+strconv.Itoa(i)+`","model":"echo/a"}`)
	}
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "stranger", `{"name":"hidden","model":"echo/a"}`)
	var names []string
	cursor := ""
	for range 3 {
		page := o.ask(t, http.StatusOK, http.MethodGet, "/agents?limit=2"+cursor, "owner", "")
		require.LessOrEqual(t, len(page["data"].([]any)), 2)
		for _, agent := range page["data"].([]any) {
			names = append(names, agent.(map[string]any)["name"].(string))
		}
		next, more := page["nextCursor"].(string)
		if !more {
			break
		}
		cursor = "&cursor=" + next
	}
	require.Equal(t, []string{"a0", "a1", "a2", "a3", "a4"}, names)
	full := o.ask(t, http.StatusOK, http.MethodGet, "/agents?limit=5", "owner", "")
	require.Nil(t, full["nextCursor"])
}

func TestDeleteAgent(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)["id"].(string)
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/agents/"+id, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, "/agents/"+id, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodDelete, "/agents/"+id, "owner", "")
	log, err := o.DB.AuditLog.List(t.Context(), "", store.Page{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "key_1", log[0].Actor)
}

// Of two concurrent changes neither undoes the other.
func TestAgentChangesAtOnce(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	agent := "/agents/" + o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)["id"].(string)
	for round := range 20 {
		want := strconv.Itoa(round)
		bodies := []string{`{"instructions":"` + want + `"}`, `{"debounceSeconds":` + want + `}`}
		errs := make(chan error)
		for _, body := range bodies {
			go func() { errs <- o.Serve(httptest.NewRecorder(), request(http.MethodPatch, agent, "owner", body)) }()
		}
		for range bodies {
			require.NoError(t, <-errs)
		}
		changed := o.ask(t, http.StatusOK, http.MethodGet, agent, "owner", "")
		require.Equal(t, want, changed["instructions"])
		require.EqualValues(t, round, changed["debounceSeconds"])
	}
}

// The list of models has those that checkModel accepts, also for login sessions.
func TestAgentModels(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
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

// Lists leave the instructions out, so that their pages stay small whatever the agents are told.
func TestListsOfAgentsHaveNoInstructions(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Mai","model":"echo/a","instructions":"You are Mai."}`)["id"].(string)
	listed := o.ask(t, http.StatusOK, http.MethodGet, "/agents", "owner", "")["data"].([]any)[0].(map[string]any)
	require.NotContains(t, listed, "instructions")
	single := o.ask(t, http.StatusOK, http.MethodGet, "/agents/"+id, "owner", "")
	require.Equal(t, "You are Mai.", single["instructions"])
	delete(single, "instructions")
	require.Equal(t, single, listed)
}

// Answers that are not read are their organization's: it is refused, before anything is changed, and others are served.
func TestAnswersAreCharged(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.Bodies = handlers.NewByteBudget(8 << 20) // 2 MiB for one organization alone
	o.Server = serve(o.Deps)
	instructions := strings.Repeat("\\u0001", 99_000) // 600 KB in JSON
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Mai","model":"echo/a","instructions":"`+instructions+`"}`)
	path := "/agents/" + made["id"].(string)
	client := handlertest.OpenNoWindow(t, handlertest.Serve(t, handlertest.Handler(o.Serve)))
	for i := range 3 {
		require.Equal(t, "200", client.Status(client.Send(http.MethodGet, path, "", "X-Api-Key", "owner")))
		require.Greater(t, o.Bodies.Used(), int64(i+1)*6*99_000)
	}
	o.refused(t, errcode.RateLimited, "", http.MethodGet, path, "owner", "")
	require.Equal(t, "200", client.Status(client.Send(http.MethodPatch, path, `{"name":"Lan"}`, "X-Api-Key", "owner")), "it is made, so it is answered")
	o.refused(t, errcode.RateLimited, "", http.MethodPatch, path, "owner", `{"name":"An"}`)
	o.ask(t, http.StatusOK, http.MethodGet, "/agents", "stranger", "")

	client.Close()
	require.Eventually(t, func() bool { return o.Bodies.Used() == 0 }, 10*time.Second, time.Millisecond)
	require.Equal(t, "Lan", o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["name"])
}
