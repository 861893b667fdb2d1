package worker

import (
	"database/sql"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func TestStoredRequestIsTheWholeCall(t *testing.T) {
	t.Parallel()
	agent := &store.Agent{
		Model: "acme/std", Instructions: "be kind", UseBYOK: true, MaxTokens: 50,
		TemperatureMilli: sql.NullInt64{Int64: 700, Valid: true},
	}
	model := &gateway.Model{ContextWindow: 1000, MaxOutputTokens: 200}
	made := newRequest(agent, model, prompt{History: customer("before"), Waiting: customer("now")})
	encoded, err := json.Marshal(made)
	require.NoError(t, err)
	require.JSONEq(t, `{"model":"acme/std","messages":[{"role":"system","content":"be kind"},{"role":"user","content":"before"},
		{"role":"user","content":"now"}],"maxTokens":50,"temperatureMilli":700,"byok":true,"history":{"from":1,"to":2},"since":0,"first":""}`, string(encoded))

	agent.Model, agent.TemperatureMilli.Int64 = "other", 0 // what is stored doesn't follow the agent
	read, err := decodeRequest(encoded)
	require.NoError(t, err)
	call := read.call("org_1", "trn_1")
	require.Equal(t, "trn_1", call.RequestID)
	require.Equal(t, "org_1", call.OrgID)
	require.Equal(t, store.Live, call.Env)
	require.Equal(t, "acme/std", call.Model)
	require.EqualValues(t, 50, call.MaxTokens)
	require.True(t, call.BYOK)
	require.False(t, call.Stream)
	require.Empty(t, call.IdempotencyKey)
	require.InDelta(t, 0.7, *call.Temperature, 1e-9)
	require.Len(t, call.Messages, 3)
	require.Equal(t, "now", call.Messages[2].Content.Text())
}

func TestTheModelsOwnDefaultsStayItsOwn(t *testing.T) {
	t.Parallel()
	model := &gateway.Model{ContextWindow: 1000, MaxOutputTokens: 200}
	call := newRequest(&store.Agent{Model: "acme/std"}, model, prompt{Waiting: customer("now")}).call("org_1", "trn_1")
	require.Nil(t, call.Temperature)
	require.Zero(t, call.MaxTokens)
}

func TestHalvingDropsTheOldestHistoryOnly(t *testing.T) {
	t.Parallel()
	var past []inbox.Message
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		past = append(past, from(inbox.AuthorCustomer, name))
	}
	model := &gateway.Model{ContextWindow: 10_000, MaxOutputTokens: 200}
	r := newRequest(&store.Agent{Instructions: "S"}, model, prompt{History: past, Waiting: customer("x", "y")})
	for _, want := range []string{"Sdexy", "Sexy", "Sxy"} {
		require.True(t, r.halve())
		got := ""
		for _, m := range r.Messages {
			got += m.Content
		}
		require.Equal(t, want, got)
		encoded, err := json.Marshal(r)
		require.NoError(t, err)
		_, err = decodeRequest(encoded)
		require.NoError(t, err)
	}
	require.False(t, r.halve())
}

// TestMaxHalvingsReachesTheBottom: the bound of ask is no bound on what fits.
func TestMaxHalvingsReachesTheBottom(t *testing.T) {
	t.Parallel()
	r := &storedRequest{Messages: make([]message, historyMessages+1), History: span{0, historyMessages}}
	times := 0
	for r.halve() {
		times++
	}
	require.LessOrEqual(t, times, maxHalvings)
}

func TestAStoredRequestThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `null`, `{}`, `{"messages":[]}`, `[1]`,
		`{"messages":[{"role":"user"}],"history":{"from":0,"to":2}}`,
		`{"messages":[{"role":"user"}],"history":{"from":-1,"to":0}}`,
		`{"messages":[{"role":"user"}],"history":{"from":1,"to":0}}`,
	} {
		_, err := decodeRequest([]byte(text))
		require.Error(t, err, text)
	}
}
