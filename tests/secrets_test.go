package tests

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestPlantedSecrets guarantees reliability S21: of unique marks in an API key, the operator's provider key, an own
// provider key, the master key, a prompt, its answer and a vendor's error text, none is in the access log (in the
// example's format), the error log, the metrics, the configuration and the profiles behind the admin interface, or the
// database.
func TestPlantedSecrets(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	const own, asked, answered = "sk-own-0f3b7c59e2d14a68", "prompt-7d21f0c4b9a8", "answer-51c0de88f7e3"
	p := prepareProduct(t, d)
	format := exampleLogFormat(t)
	text := strings.Replace(d.caddyfile(t), "access.log\n", "access.log\n"+format, 1)
	// At debug level a vendor's own words are logged, which may quote the prompt.
	text = strings.Replace(text, "level DEBUG", "level INFO", 1)
	p.writeCaddyfile(strings.Replace(text, "format json\n", format, 1))
	p.start()
	p.awaitReady()
	c := p.operator().customer(t, 1_000_000)
	key := filepath.Join(p.Dir, "own.key")
	require.NoError(t, os.WriteFile(key, []byte(own+"\n"), 0o600))
	p.svc(t, "provider-key", "set", "--org", c.OrgID, "--provider", "own", "--key-file", key)
	require.NoError(t, os.Remove(key))

	answers := up.script(func(call *upstreamCall) { call.answer(answered, usualUsage) })
	breaks := up.script(afterTwo(func(call *upstreamCall) {
		call.raw("data: " + answered + " " + own + "\n\n")
		call.drop()
	}))
	refuses := up.script(func(call *upstreamCall) {
		call.json(http.StatusUnauthorized, `{"error":{"message":"Incorrect API key provided: `+strings.TrimPrefix(call.Header.Get("Authorization"), "Bearer ")+
			` in `+asked+`","code":"`+asked+`"}}`)
	})
	for _, stream := range []bool{false, true} {
		for _, s := range []*script{answers, breaks, refuses} {
			for _, headers := range [][]string{
				nil,
				{"X-Api-Key", c.Key, "Cookie", asked},
			} {
				p.as(c).chat(t, prompt(modelStd, s.Mark+" "+asked, stream), headers...)
				p.as(c).chat(t, prompt(modelKeyed, s.Mark+" "+asked, stream), append([]string{"X-Svc-Use-Byok", "true"}, headers...)...)
			}
		}
	}
	requireStream(t, p.as(c).chat(t, prompt(modelEcho, asked, true)), modelEcho)
	requireError(t, p.as(c).chat(t, `{"model":"`+asked+`","messages":[{"role":"`+asked+`","content":"`+asked+`"}]}`), "invalid_request")
	stranger := p.withKey("")
	for _, query := range []string{
		"?api_key=" + c.Key + "&key=" + c.Key + "&token=" + c.Key, "?access_token=" + operatorKey, "?key=" + operatorKey, "?limit=5;key=" + operatorKey,
		"?" + operatorKey, "?%6bey=" + operatorKey, "%3Fkey=" + operatorKey, "/" + c.Key, "?next=%2Fa%3Ftoken%3D" + operatorKey, "?key=%20" + operatorKey,
	} {
		answer := stranger.get(t, "/v1/models"+query, "Referer", "https://shop.example/?access_token="+operatorKey)
		require.GreaterOrEqual(t, answer.Status, http.StatusBadRequest, query)
	}
	for _, header := range []string{"Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "Token", "Authorisation", "Proxy-Authorization", "X-Forwarded-Uri"} {
		requireError(t, stranger.get(t, "/v1/models", header, operatorKey, header, "Bearer "+c.Key), "unauthenticated")
	}
	for _, value := range []string{operatorKey, "Basic " + operatorKey, "Bearer  " + operatorKey, "bearer " + operatorKey} {
		require.Equal(t, http.StatusUnauthorized, stranger.get(t, "/v1/models", "Authorization", value).Status)
	}
	requireError(t, p.as(c).get(t, "/nothing", "X-Api-Key", c.Key), "not_found")
	require.NoError(t, p.reload(p.readConfig(t)))
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, asked, false)), modelStd)

	// Profiles are taken while calls run, whose goroutines have the secrets in hand.
	running := holdStreams(t, p, up, c, 3)
	profiles := map[string]string{}
	for _, profile := range []string{"goroutine?debug=2", "goroutine?debug=1", "heap?debug=1", "allocs?debug=1", "cmdline"} {
		profiles[profile] = p.adminGet(t, "/debug/pprof/"+profile)
	}
	require.Contains(t, profiles["goroutine?debug=2"], "internal/gateway", "the calls are in the profile")
	running.requireWhole(t)

	places := map[string]string{
		"the metrics":       p.metrics(t),
		"the configuration": p.adminGet(t, "/config/"),
	}
	maps.Copy(places, profiles)
	p.stop() // all logs and the database are written
	places["the log"] = p.log.String()
	access, err := os.ReadFile(filepath.Join(p.Dir, "access.log"))
	require.NoError(t, err)
	require.Contains(t, string(access), chatPath)
	require.Contains(t, string(access), `"uri":"/v1/models/REDACTED"`, "a client's mistake is seen")
	places["the access log"] = string(access)
	files, err := filepath.Glob(p.location.DSN + "*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		places[filepath.Base(file)] = string(text)
	}
	require.NoError(t, filepath.WalkDir(p.Dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && filepath.Base(path) != "Caddyfile" {
			text, readErr := os.ReadFile(path)
			require.NoError(t, readErr)
			places[path] = string(text)
		}
		return err
	}))
	for place, text := range places {
		for what, secret := range map[string]string{
			"the API key": c.Key, "the API key's random part": c.Key[len("ck_live_") : len("ck_live_")+20],
			"the provider key": operatorKey, "the own provider key": own, "the master key": p.masterKey,
			"the prompt": asked, "the answer": answered,
		} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s is in %s: %q", what, place, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
}

// exampleLogFormat returns the log format of Caddyfile.example.
func exampleLogFormat(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../Caddyfile.example")
	require.NoError(t, err)
	_, format, found := strings.Cut(string(text), "(without_secrets) {\n")
	require.True(t, found)
	format, _, _ = strings.Cut(format, "\n}\n")
	return format + "\n"
}

func (p *product) readConfig(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(p.configFile())
	require.NoError(t, err)
	return string(text)
}
