package platforms_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platforms"
	"github.com/caddy-svc/caddy-svc/internal/platforms/platformtest"
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

// client speaks to the vendor only.
func (v *vendor) client(t *testing.T) *platforms.Client {
	t.Helper()
	return clientOf(t, serve(t, v)+"/base")
}

func serve(t *testing.T, v *vendor) (base string) {
	t.Helper()
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	return server.URL
}

func clientOf(t *testing.T, base string) *platforms.Client {
	t.Helper()
	config := platforms.Config{
		Bases:     map[platforms.Type]string{},
		LocalChat: platforms.LocalChatApp{AppID: platformtest.LocalChatAppID, AppSecret: platformtest.LocalChatAppSecret},
		MarketA:   platforms.MarketAApp{PartnerID: platformtest.MarketAPartnerID, PartnerKey: platformtest.MarketAPartnerKey},
		MarketB:   platforms.MarketBApp{AppKey: platformtest.MarketBAppKey, AppSecret: platformtest.MarketBAppSecret},
		Now:       func() time.Time { return at },
	}
	for _, platform := range sendingTypes {
		config.Bases[platform] = base
	}
	client := platforms.NewClient(config)
	t.Cleanup(client.Close)
	return client
}

var sendingTypes = []platforms.Type{
	platforms.Bot, platforms.SocialMessenger, platforms.PhotoDM, platforms.ChatApp, platforms.LocalChat, platforms.MarketA, platforms.MarketB,
}

// secretToken is what no error may show.
const secretToken = "tok-en_1234567890abcdef"

func credentials(platform platforms.Type) platforms.Credentials {
	if platform == platforms.Bot {
		return platforms.Credentials{SecretToken: "s", BotToken: "110201543:" + secretToken}
	}
	return platforms.Credentials{AccessToken: secretToken, RefreshToken: "refresh-" + secretToken}
}

func outgoing(platform platforms.Type) platforms.Outgoing {
	return platforms.Outgoing{
		Type: platform, ExternalID: "947042923", Conversation: "165105353", Address: "165105353", Text: "Chào \"bạn\" <b> & 👋",
		Credentials: credentials(platform),
	}
}

// requireFailure takes the SendError out of err, and looks that it shows nothing it must not.
func requireFailure(t *testing.T, err error) *platforms.SendError {
	t.Helper()
	var failure *platforms.SendError
	require.ErrorAs(t, err, &failure)
	for _, hidden := range []string{secretToken, "Chào", platformtest.Secret, "165105353"} {
		require.NotContains(t, err.Error(), hidden)
	}
	require.Error(t, failure.Cause)
	return failure
}
