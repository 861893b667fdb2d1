package social

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"testing"

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
	const appSecret = "app-secret-0123456789"
	token := platforms.Credentials{platforms.AccessToken: "EAAG|page-token-0123456789"}
	direct := func(object string) string {
		return `{"object":"` + object + `","entry":[{"id":"1001","time":1763650000000,"messaging":[{"sender":{"id":"2"},"recipient":{"id":"1001"},` +
			`"timestamp":1763650000000,"message":{"mid":"m_%m","text":"%t"}}]}]}`
	}
	platformtest.Run(t, platformtest.Suite{
		Driver:  Driver{},
		Options: map[string]string{"app_secret": appSecret, "verify_token": "verify-token-0123456789"},
		Sign: func(d *platforms.Delivery, _ *platforms.Channel) {
			mac := hmac.New(sha256.New, []byte(appSecret))
			mac.Write(d.Body)
			d.Header.Set(verify.SocialHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
		},
		Handshake:       url.Values{"hub.mode": {"subscribe"}, "hub.verify_token": {"verify-token-0123456789"}, "hub.challenge": {"1158201444"}},
		HandshakeAnswer: "1158201444",
		Channels: map[platforms.Type]platformtest.Sample{
			Messenger: {
				ExternalID: "1001", Credentials: token, Text: direct("page"),
				Sent: `{"recipient_id":"2","message_id":"m_%m"}`, Identified: `{"id":"1001"}`,
				Failures: []platformtest.Failure{
					{Status: 400, Body: failed(10, 2018278), Class: platforms.WindowExpired},
					{Status: 400, Body: failed(10, 2018065), Class: platforms.WindowExpired},
					{Status: 403, Body: failed(10, 0), Class: platforms.NeedsReauth},
					{Status: 400, Body: failed(10, 99), Class: platforms.Refused},
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
				ExternalID: "1001", Credentials: token, Text: direct("instagram"),
				Sent: `{"recipient_id":"2","message_id":"m_%m"}`, Identified: `{"id":"5","user_id":"1001"}`,
				Failures: []platformtest.Failure{
					{Status: 400, Body: failed(10, 2534022), Class: platforms.WindowExpired},
				},
			},
			ChatApp: {
				ExternalID: "1001", Credentials: token,
				Text: `{"object":"whatsapp_business_account","entry":[{"id":"9","changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"1001"},` +
					`"contacts":[{"profile":{"name":"Lan"},"wa_id":"2"}],"messages":[{"from":"2","id":"wamid.%m","timestamp":"1763650000","type":"text",` +
					`"text":{"body":"%t"}}]}}]}]}`,
				Sent: `{"messages":[{"id":"wamid.%m"}]}`, Identified: `{"id":"1001","display_phone_number":"+1 555 078 3881"}`,
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
					{Status: 400, Body: failed(131048, 0), Class: platforms.Retry},
					{Status: 400, Body: failed(131056, 0), Class: platforms.Retry},
					{Status: 400, Body: failed(133016, 0), Class: platforms.Retry},
					{Status: 400, Body: failed(131009, 0), Class: platforms.Refused},
					{Status: 200, Body: `{"messages":[]}`, Class: platforms.Unknown},
				},
			},
		},
	})
}
