package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// TestAnswerRules guarantees that the rules of a channel are set, kept and taken back, and that a wrong one changes nothing.
func TestAnswerRules(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	created := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", `{"maxAgeMinutes":240,`+botBody("Shop")[1:])
	require.EqualValues(t, 240, created["maxAgeMinutes"])
	path := "/channels/" + created["id"].(string)
	change := func(body string) any {
		return o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", body)["maxAgeMinutes"]
	}
	require.EqualValues(t, 240, change(`{"name":"Another"}`))
	require.EqualValues(t, 10080, change(`{"maxAgeMinutes":10080}`))
	for _, body := range []string{`{"maxAgeMinutes":0}`, `{"maxAgeMinutes":10081}`, `{"maxAgeMinutes":"60"}`, `{"maxAgeMinutes":1.5}`} {
		o.refused(t, errcode.InvalidRequest, "maxAgeMinutes", http.MethodPatch, path, "owner", body)
	}
	require.EqualValues(t, 10080, o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["maxAgeMinutes"])
	require.Nil(t, change(`{"maxAgeMinutes":null}`))

	mode := func(body string) any {
		return o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", body)["answerMode"]
	}
	require.Equal(t, "automatic", created["answerMode"])
	require.Equal(t, "draft", mode(`{"answerMode":"draft"}`))
	require.Equal(t, "draft", mode(`{"maxAgeMinutes":60}`))
	for _, body := range []string{`{"answerMode":"bot"}`, `{"answerMode":true}`} {
		o.refused(t, errcode.InvalidRequest, "answerMode", http.MethodPatch, path, "owner", body)
	}
	require.Equal(t, "automatic", mode(`{"answerMode":"automatic"}`))
}
