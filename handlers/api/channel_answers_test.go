package api

import (
	"net/http"
	"strings"
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

	a := o.refused(t, errcode.InvalidRequest, "timeZone", http.MethodPatch, path, "owner", `{"openingHours":["mon-fri 08:00-17:30"]}`)
	require.Contains(t, a.Text, "required")
	open := o.ask(t, http.StatusOK, http.MethodPatch, path, "owner",
		`{"openingHours":["mon-fri 08:00-17:30","sat 09:00-12:00"],"timeZone":"Asia/Ho_Chi_Minh","closedNotice":"We are closed."}`)
	require.Equal(t, []any{"mon-fri 08:00-17:30", "sat 09:00-12:00"}, open["openingHours"])
	require.Equal(t, []any{"Asia/Ho_Chi_Minh", "We are closed."}, []any{open["timeZone"], open["closedNotice"]})
	for body, field := range map[string]string{
		`{"openingHours":["mon 08:00-17:30","weekdays"]}`:      "openingHours[1]",
		`{"openingHours":["mon\n08:00-17:30"]}`:                "openingHours[0]",
		`{"openingHours":["mon 22:00-02:00"]}`:                 "openingHours[0]",
		`{"openingHours":"mon 08:00-17:30"}`:                   "openingHours",
		`{"timeZone":"Mars"}`:                                  "timeZone",
		`{"timeZone":null}`:                                    "timeZone",
		`{"closedNotice":" "}`:                                 "closedNotice",
		`{"closedNotice":"` + strings.Repeat("x", 1001) + `"}`: "closedNotice",
		`{"mediaNotice":" "}`:                                  "mediaNotice",
		`{"mediaNotice":"` + strings.Repeat("x", 1001) + `"}`:  "mediaNotice",
	} {
		o.refused(t, errcode.InvalidRequest, field, http.MethodPatch, path, "owner", body)
	}
	require.Equal(t, open["openingHours"], o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["openingHours"])
	require.Nil(t, open["mediaNotice"])
	for body, want := range map[string]any{`{"mediaNotice":"Please write."}`: "Please write.", `{"mediaNotice":null}`: nil} {
		require.Equal(t, want, o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", body)["mediaNotice"])
	}
	closed := o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"openingHours":[],"timeZone":null,"closedNotice":null}`)
	require.Equal(t, []any{[]any{}, nil, nil}, []any{closed["openingHours"], closed["timeZone"], closed["closedNotice"]})
}
