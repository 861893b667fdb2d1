package tests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

// TestPlantedMessageSecrets guarantees reliability S21 for messages: of unique marks in webhook secrets and signatures,
// platform tokens, the applications' secrets, what a customer wrote and what was answered, none is in the logs of Caddy
// and of the worker, the access log (in the example's format), the metrics, the configuration behind the admin
// interface, or the database.
func TestPlantedMessageSecrets(t *testing.T) {
	t.Parallel()
	up, platform := startUpstream(t), platformfake.Start(t)
	d := deploy(t, store.SQLite, up).receiving(t, platform)
	p := prepareProduct(t, d)
	format := exampleLogFormat(t)
	text := strings.Replace(d.caddyfile(t), "access.log\n", "access.log\n"+format, 1)
	text = strings.Replace(text, "level DEBUG", "level INFO", 1)
	p.writeCaddyfile(strings.Replace(text, "format json\n", format, 1))
	p.start()
	p.awaitReady()
	const asked, answered, byHand = "customer-text-9a41c7e0", "assistant-text-5be2d813", "human-text-70c3f92a"
	b := p.business(t, 1_000_000, up.script(func(call *upstreamCall) { call.answer(answered, usualUsage) }), nil)
	c := &connectedProduct{product: p, up: up, platform: platform, worker: p.startWorker()}
	secrets := map[string]string{
		"the social app secret": socialAppSecret, "the verify token": socialVerifyToken, "the local chat's app secret": localchatAppSecret,
		"marketplace A's key": marketAPartnerKey, "marketplace B's secret": marketBAppSecret, "the master key": p.masterKey,
		"the customer's text": asked, "the answer": answered, "the human's text": byHand, "the API key": b.Key, "the platforms' own words": platformfake.Secret,
	}
	add := func(what, secret string) {
		require.NotEmpty(t, secret, what)
		secrets[what] = secret
	}
	for _, kind := range connected {
		l := b.line(t, kind)
		add("the token of "+string(kind), l.Token)
		if kind == bot.Type {
			add("the webhook secret", l.Secret)
		}
		good := l.from(1).says(asked)
		requireQueued(t, c.deliver(t, good), 1)
		c.awaitSent(l.from(1), 1)
		if kind != bot.Type {
			add("a signature of "+string(kind), good.Signatures[0][len(good.Signatures[0])-64:])
		}
		// Each in a place where it does not belong, and refused.
		for _, spoil := range spoilers(l) {
			bad := l.from(1).says("refused: " + asked)
			spoil(&bad)
			requireError(t, c.deliver(t, bad), "unauthenticated")
		}
		requireError(t, c.deliver(t, delivery{Path: good.Path + "/", Header: good.Header, Signatures: good.Signatures, Body: good.Body}), "not_found")
		if kind != bot.Type {
			require.GreaterOrEqual(t, c.deliver(t, l.sign("{"+asked)).Status, http.StatusBadRequest)
		}
		id := b.conversation(t, l).ID
		b.post(t, "/conversations/"+id+"/messages", map[string]string{"text": byHand}, http.StatusCreated)
		c.awaitSent(l.from(1), 2)
		for _, fault := range []platformfake.Fault{platformfake.Garbage, platformfake.Rejected, platformfake.ServerError} {
			platform.Script(l.from(1).Customer, fault)
			before := platform.Attempts(l.from(1).Customer)
			requireQueued(t, c.deliver(t, l.from(1).says(asked)), 1)
			platform.WaitAttempts(t, l.from(1).Customer, before+1)
		}
		shown := b.ask(t, http.MethodGet, "/channels/"+l.ID, nil)
		require.Equal(t, http.StatusOK, shown.Status)
		require.NotContains(t, string(shown.Body), l.Token, "credentials are write-only")
		platform.Revoke(l.Token)
		requireQueued(t, c.deliver(t, l.from(1).says(asked)), 1)
		c.await("the channel to need a new token", patience, func() bool { return b.channelState(t, l) == "needs_reauth" })
	}
	p.withKey("").get(t, "/webhooks/social?hub.mode=subscribe&hub.challenge=1&hub.verify_token="+socialVerifyToken)
	p.withKey("").get(t, "/webhooks/social?hub.mode=nothing&hub.verify_token="+socialVerifyToken)

	places := map[string]string{"the metrics": p.metrics(t), "the configuration": p.adminGet(t, "/config/")}
	c.worker.stop()
	p.stop() // all logs and the database are written
	places["Caddy's log"], places["the worker's log"] = p.log.String(), c.worker.log.String()
	files, err := filepath.Glob(p.location.DSN + "*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	require.NoError(t, filepath.WalkDir(p.Dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && filepath.Base(path) != "Caddyfile" {
			files = append(files, path)
		}
		return err
	}))
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		places[file] = string(text)
	}
	require.Contains(t, places[filepath.Join(p.Dir, "access.log")], "/webhooks/market-a")
	for place, text := range places {
		for what, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s is in %s: %q", what, place, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
}
