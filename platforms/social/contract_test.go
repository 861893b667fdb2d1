package social

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
	"github.com/caddy-svc/caddy-svc/verify"
)

// failed is an error of the platform.
func failed(code, subcode int) string {
	return fmt.Sprintf(`{"error":{"message":"x","type":"OAuthException","code":%d,"error_subcode":%d}}`, code, subcode)
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options map[string]string
		secret  string // the option with which deliveries are signed
	}{
		"one secret":             {map[string]string{"app_secret": "key-0123456789"}, "app_secret"},
		"application's of two":   {map[string]string{"app_secret": "key-0123456789", "photo_dm_app_secret": "photo-key-0123456789"}, "app_secret"},
		"photo service's of two": {map[string]string{"app_secret": "key-0123456789", "photo_dm_app_secret": "photo-key-0123456789"}, "photo_dm_app_secret"},
	} {
		test.options["verify_token"] = verifyToken
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			platformtest.Run(t, suite(test.options, test.secret))
		})
	}
}

const verifyToken = "verify-token-0123456789"

// suite is the adapter's, whose deliveries are signed with the option secret.
func suite(options map[string]string, secret string) platformtest.Suite {
	token := platforms.Credentials{platforms.AccessToken: "EAAG|page-token-0123456789"}
	own := []platforms.Credentials{{appSecret: "own-app-secret-0123456789"}}
	direct := func(object string, entries ...string) string {
		return `{"object":"` + object + `","entry":[` + strings.Join(entries, ",") + `]}`
	}
	const entry = `{"id":"%e","time":1763650000000,"messaging":[{"sender":{"id":"%c"},"recipient":{"id":"%e"},` +
		`"timestamp":1763650000000,"message":{"mid":"m_%m","text":"%t"}}]}`
	number := func(entries ...string) string { return direct("whatsapp_business_account", entries...) }
	const change = `{"id":"9","changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"%e"},` +
		`"contacts":[{"profile":{"name":"Lan"},"wa_id":"%c"}],"messages":[{"from":"%c","id":"wamid.%m","timestamp":"1763650000","type":"text",` +
		`"text":{"body":"%t"}}]}}]}`
	second := strings.NewReplacer("%e", "%E", "%c", "%C", "%m", "%M", "%t", "%T")
	return platformtest.Suite{
		Driver:  Driver{},
		Options: options,
		Sign: func(d *platforms.Delivery, channel *platforms.Channel, options map[string]string) {
			mac := hmac.New(sha256.New, []byte(cmp.Or(channel.Credentials[appSecret], options[secret])))
			mac.Write(d.Body)
			d.Header.Set(verify.SocialHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
		},
		Handshake:       url.Values{"hub.mode": {"subscribe"}, "hub.verify_token": {verifyToken}, "hub.challenge": {"1158201444"}},
		HandshakeAnswer: "1158201444",
		Channels: map[platforms.Type]platformtest.Sample{
			Messenger: {
				ExternalID: "1001", Credentials: token, Own: own, Text: direct("page", entry), Pair: direct("page", entry, second.Replace(entry)),
				Sent: `{"recipient_id":"2","message_id":"m_%m"}`, Uploaded: `{"attachment_id":"7"}`, Identified: `{"id":"%e"}`,
				Failures: []platformtest.Failure{
					{Status: 400, Body: failed(10, 2018278), Class: platforms.WindowExpired},
					{Status: 400, Body: failed(10, 2018065), Class: platforms.WindowExpired},
					{Status: 403, Body: failed(10, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(10, 99), Class: platforms.Refused},
					{Status: 400, Body: failed(10, 1893063), Class: platforms.Retry},
					{Status: 400, Body: failed(190, 463), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(200, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(299, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(551, 1545041), Class: platforms.CustomerBlocked},
					{Status: 400, Body: failed(200, 1545041), Class: platforms.CustomerBlocked},
					{Status: 400, Body: failed(4, 0), Class: platforms.Retry},
					{Status: 400, Body: failed(613, 0), Class: platforms.Retry},
					{Status: 400, Body: failed(80006, 0), Class: platforms.Retry},
					{Status: 500, Body: failed(2, 0), Class: platforms.Retry},
					{Status: 500, Body: failed(99999, 0), Class: platforms.Retry},
					{Status: 429, Body: failed(99999, 0), Class: platforms.Retry},
					{Status: 401, Body: failed(99999, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(100, 2018001), Class: platforms.Refused},
					{Status: 400, Body: `{"error":{"code":99999,"is_transient":true}}`, Class: platforms.Retry},
					{Status: 200, Body: failed(190, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(3, 0), Class: platforms.Refused},
					{Status: 200, Body: `{"recipient_id":"1"}`, Class: platforms.Unknown},
					{Status: 200, Body: `{"message_id":null}`, Class: platforms.Unknown},
				},
			},
			PhotoDM: {
				ExternalID: "1001", Credentials: token, Own: own, Text: direct("instagram", entry), Pair: direct("instagram", entry, second.Replace(entry)),
				Sent: `{"recipient_id":"2","message_id":"m_%m"}`, Uploaded: `{"attachment_id":"7"}`, Identified: `{"id":"5","user_id":"%e"}`,
				Refreshed: `{"access_token":"%a","token_type":"bearer","expires_in":5183944,"permissions":"instagram_business_basic"}`,
				Failures: []platformtest.Failure{
					{Status: 400, Body: failed(10, 2534022), Class: platforms.WindowExpired},
				},
			},
			ChatApp: {
				ExternalID: "1001", Credentials: token, Own: own,
				Text: number(change), Pair: number(change, second.Replace(change)),
				Edited: `{"object":"whatsapp_business_account","entry":[{"id":"9","changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"%e"},` +
					`"messages":[{"from":"%c","id":"wamid.0","timestamp":"1763650009","type":"edit",` +
					`"edit":{"original_message_id":"wamid.%m","message":{"type":"text","text":{"body":"%t"}}}}]}}]}]}`,
				Sent: `{"messages":[{"id":"wamid.%m"}]}`, Uploaded: `{"id":"7"}`, Identified: `{"id":"%e","display_phone_number":"+1 555 078 3881"}`,
				Failures: []platformtest.Failure{
					{Status: 400, Body: failed(131047, 0), Class: platforms.TemplateRequired},
					{Status: 400, Body: failed(470, 0), Class: platforms.TemplateRequired},
					{Status: 401, Body: failed(0, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(3, 0), Class: platforms.NeedsReauth},
					{Status: 403, Body: failed(10, 0), Class: platforms.NeedsReauth},
					{Status: 403, Body: failed(131005, 0), Class: platforms.NeedsReauth},
					{Status: 403, Body: failed(131031, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(131026, 0), Class: platforms.CustomerBlocked},
					{Status: 403, Body: failed(4, 0), Class: platforms.Retry},
					{Status: 403, Body: failed(80007, 0), Class: platforms.Retry},
					{Status: 429, Body: failed(130429, 0), Class: platforms.Retry},
					{Status: 500, Body: failed(131000, 0), Class: platforms.Retry},
					{Status: 400, Body: failed(131057, 0), Class: platforms.Retry},
					{Status: 400, Body: failed(131042, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(133010, 0), Class: platforms.NeedsReauth},
					{Status: 403, Body: failed(131037, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(131045, 0), Class: platforms.NeedsReauth},
					{Status: 403, Body: failed(368, 0), Class: platforms.NeedsReauth},
					{Status: 429, Body: failed(131048, 0), Class: platforms.Refused},
					{Status: 500, Body: failed(131049, 0), Class: platforms.Refused},
					{Status: 400, Body: failed(131050, 0), Class: platforms.Refused},
					{Status: 400, Body: failed(131064, 0), Class: platforms.Refused},
					{Status: 400, Body: failed(131051, 0), Class: platforms.Refused},
					{Status: 400, Body: failed(131052, 0), Class: platforms.Refused},
					{Status: 400, Body: failed(131053, 0), Class: platforms.Refused},
					{Status: 400, Body: failed(131062, 0), Class: platforms.Refused},
					{Status: 400, Body: failed(132000, 0), Class: platforms.TemplateRefused},
					{Status: 404, Body: failed(132001, 0), Class: platforms.TemplateRefused},
					{Status: 400, Body: failed(132005, 0), Class: platforms.TemplateRefused},
					{Status: 400, Body: failed(132007, 0), Class: platforms.TemplateRefused},
					{Status: 400, Body: failed(132012, 0), Class: platforms.TemplateRefused},
					{Status: 400, Body: failed(132015, 0), Class: platforms.TemplatePaused},
					{Status: 400, Body: failed(132016, 0), Class: platforms.TemplateRefused},
					{Status: 400, Body: failed(132018, 0), Class: platforms.TemplateRefused},
					{Status: 400, Body: failed(131056, 0), Class: platforms.Retry},
					{Status: 400, Body: failed(133016, 0), Class: platforms.Retry},
					{Status: 400, Body: failed(131009, 0), Class: platforms.Refused},
					{Status: 200, Body: `{"messages":[]}`, Class: platforms.Unknown},
				},
			},
		},
	}
}

// A person's message after the window has the tag for people, which messages of automata may not have; every message has our mark.
func TestSendMarks(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read, _ := io.ReadAll(r.Body)
		bodies <- string(read)
		_, _ = io.WriteString(w, `{"recipient_id":"2","message_id":"m_1"}`)
	}))
	t.Cleanup(server.Close)
	p := platformtest.New(t, Driver{}, map[string]string{"api_base": server.URL})
	for _, c := range []struct {
		of   platforms.Type
		late bool
		want string
	}{
		{Messenger, false, `"messaging_type":"RESPONSE",`},
		{Messenger, true, `"messaging_type":"MESSAGE_TAG","tag":"HUMAN_AGENT",`},
		{PhotoDM, false, ``},
		{PhotoDM, true, `"messaging_type":"MESSAGE_TAG","tag":"HUMAN_AGENT",`},
	} {
		_, err := p.Send(t.Context(), &platforms.Outgoing{
			Type: c.of, ExternalID: "1001", Address: "2", Text: "Hi", Mark: "msg_1", Late: c.late,
			Credentials: platforms.Credentials{platforms.AccessToken: "EAAG|page-token-0123456789"},
		})
		require.NoError(t, err)
		require.JSONEq(t, `{"recipient":{"id":"2"},`+c.want+`"message":{"text":"Hi","metadata":"caddy-svc:msg_1"}}`, <-bodies)
	}
	_, err := p.Send(t.Context(), &platforms.Outgoing{
		Type: ChatApp, ExternalID: "1001", Address: "2", Text: "Hi", Mark: "msg_1",
		Credentials: platforms.Credentials{platforms.AccessToken: "EAAG|page-token-0123456789"},
	})
	require.Error(t, err, "the answer is another service's")
	require.JSONEq(t, `{"messaging_product":"whatsapp","recipient_type":"individual","to":"2","type":"text","text":{"body":"Hi"},`+
		`"biz_opaque_callback_data":"caddy-svc:msg_1"}`, <-bodies)
}

// Messages to one customer of the chat app that come too fast wait for the platform's pause, at least.
func TestPairRate(t *testing.T) {
	t.Parallel()
	code := 131056
	for header, want := range map[string]time.Duration{"": 6 * time.Second, "2": 6 * time.Second, "30": 30 * time.Second} {
		failure := failureOf(&platforms.Response{Status: 400, Header: http.Header{"Retry-After": {header}}}, ChatApp, &graphError{Code: &code})
		require.Equal(t, platforms.Retry, failure.Class)
		require.Equal(t, want, failure.RetryAfter)
		require.True(t, failure.OneCustomer, "other customers needn't wait")
	}
}

// An error without a reason is worth three tries. Others are temporary, and tried for as long as the message is of use.
func TestUnexplainedErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]int64{131000: 3, 131016: 0, 131057: 0, 131056: 0, 130429: 0, 2: 0} {
		failure := failureOf(&platforms.Response{Status: 500, Header: http.Header{}}, ChatApp, &graphError{Code: &code})
		require.Equal(t, platforms.Retry, failure.Class, "%d", code)
		require.Equal(t, want, failure.MostTries, "%d", code)
	}
}

// A limit of calls holds the whole account for as long as the platform says, in the header that it has for that.
func TestLimitOfCalls(t *testing.T) {
	t.Parallel()
	const header = "X-Business-Use-Case-Usage"
	for _, code := range []int{4, 17, 32, 613, 130429, 80007} {
		for usage, want := range map[string]time.Duration{
			`{"1001":[{"type":"messenger","call_count":101,"estimated_time_to_regain_access":19},{"type":"pages"}]}`: 19 * time.Minute,
			`{"1001":[{"type":"messenger","call_count":100,"estimated_time_to_regain_access":0}]}`:                   2 * time.Second,
			`{"1001":[{"estimated_time_to_regain_access":1e300}]}`:                                                   24 * time.Hour,
			`{"1001":[{"estimated_time_to_regain_access":-1}]}`:                                                      2 * time.Second,
			`{"1001":7}`: 2 * time.Second,
			"":           2 * time.Second,
		} {
			r := &platforms.Response{Status: 400, Header: http.Header{header: {usage}}}
			failure := failureOf(r, Messenger, &graphError{Code: &code})
			require.Equal(t, platforms.Retry, failure.Class, "%d", code)
			require.Equal(t, want, failure.RetryAfter, "%d %s", code, usage)
			require.False(t, failure.OneCustomer)
		}
	}
}
