package messaging_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// seen is a request as it came.
type seen struct {
	method, path string
	query        url.Values
	header       http.Header
	body         string
}

// vendor answers everything alike and keeps the last request.
type vendor struct {
	status int
	header map[string]string
	body   string
	last   seen
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	v.last = seen{r.Method, r.URL.Path, r.URL.Query(), r.Header, string(body)}
	for name, value := range v.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(v.status)
	_, _ = io.WriteString(w, v.body)
}

// at is the time of the clients of these tests: 2026-11-21.
var at = time.Unix(1795219200, 0)

// client calls the vendor only.
func (v *vendor) client(t *testing.T) *messaging.Set {
	t.Helper()
	return clientOf(t, serve(t, v)+"/base")
}

func serve(t *testing.T, v *vendor) (base string) {
	t.Helper()
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	return server.URL
}

func clientOf(t *testing.T, base string) *messaging.Set {
	t.Helper()
	return setOf(t, messaging.Config{
		Options: platformfake.Options(func(string) string { return base }),
		Now:     func() time.Time { return at },
	})
}

// setOf is the built-in platforms.
func setOf(t *testing.T, config messaging.Config) *messaging.Set {
	t.Helper()
	config.Drivers = builtin.Platforms()
	set, err := messaging.New(config)
	require.NoError(t, err)
	t.Cleanup(set.Close)
	return set
}

// over is the built-in platforms over a transport.
func over(t *testing.T, transport http.RoundTripper) *messaging.Set {
	t.Helper()
	return setOf(t, messaging.Config{Client: platforms.NewClient(platforms.ClientConfig{Transport: transport})})
}

var sendingTypes = []platforms.Type{
	bot.Type, social.Messenger, social.PhotoDM, social.ChatApp, localchat.Type, marketa.Type, marketb.Type,
}

// secretToken is what no error may show.
const secretToken = "tok-en_1234567890abcdef"

func credentials(platform platforms.Type) platforms.Credentials {
	if platform == bot.Type {
		return platforms.Credentials{"secretToken": "s", "botToken": "110201543:" + secretToken}
	}
	return platforms.Credentials{platforms.AccessToken: secretToken, platforms.RefreshToken: "refresh-" + secretToken}
}

func outgoing(platform platforms.Type) platforms.Outgoing {
	return platforms.Outgoing{
		Type: platform, ExternalID: "947042923", Conversation: "165105353", Address: "165105353", Text: "Chào \"bạn\" <b> & 👋",
		Credentials: credentials(platform),
	}
}

// requireFailure takes the SendError out of err, and looks that it shows nothing it must not.
func requireFailure(t *testing.T, err error) *platforms.Error {
	t.Helper()
	var failure *platforms.Error
	require.ErrorAs(t, err, &failure)
	for _, hidden := range []string{secretToken, "Chào", platformfake.Secret, "165105353"} {
		require.NotContains(t, err.Error(), hidden)
	}
	require.Error(t, failure.Cause)
	return failure
}

func refreshable(platform platforms.Type) bool {
	return platform == localchat.Type || platform == marketa.Type || platform == marketb.Type
}
