package marketb

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
	"github.com/caddy-svc/caddy-svc/verify"
)

func TestContract(t *testing.T) {
	t.Parallel()
	platformtest.Run(t, platformtest.Suite{
		Driver:  Driver{},
		Options: map[string]string{"app_key": "123456", "app_secret": "signing-key-0123456789"},
		Sign: func(d *platforms.Delivery, _ *platforms.Channel, options map[string]string) {
			mac := hmac.New(sha256.New, []byte(options["app_secret"]))
			mac.Write([]byte(options["app_key"] + string(d.Body)))
			d.Header.Set(verify.MarketBHeader, hex.EncodeToString(mac.Sum(nil)))
		},
		Channels: map[platforms.Type]platformtest.Sample{Type: {
			ExternalID:  "1001",
			Credentials: platforms.Credentials{platforms.AccessToken: "access-0123456789", platforms.RefreshToken: "refresh-0123456789"},
			Text: `{"message_type":2,"shop_id":"%e","data":{"session_id":"%c","message_id":"%m","from_account_type":1,"template_id":1,` +
				`"send_time":1763650000323,"content":{"txt":"%t"}}}`,
			Sent:       `{"code":"0","data":{"message_id":"%m"}}`,
			Identified: `{"code":"0","data":{"seller_id":%e}}`,
			Refreshed:  `{"code":"0","access_token":"%a","refresh_token":"%r","expires_in":604800}`,
			Failures: []platformtest.Failure{
				{Status: 200, Body: `{"code":"IllegalAccessToken","type":"ISP"}`, Class: platforms.NeedsReauth, Refreshable: true},
				{Status: 200, Body: `{"code":"InsufficientPermission"}`, Class: platforms.NeedsReauth},
				{Status: 200, Body: `{"code":"ApiCallLimit"}`, Class: platforms.Retry},
				{Status: 200, Body: `{"code":"ServiceTimeout"}`, Class: platforms.Unknown},
				{Status: 200, Body: `{"code":"0","success":"false","err_code":"-22"}`, Class: platforms.WindowExpired},
				{Status: 200, Body: `{"code":0,"err_code":-22}`, Class: platforms.WindowExpired},
				{Status: 200, Body: `{"code":"0","success":false}`, Class: platforms.Refused},
				{Status: 200, Body: `{"code":"IncompleteSignature"}`, Class: platforms.Refused},
				{Status: 200, Body: `{"code":"0","data":{}}`, Class: platforms.Unknown},
			},
		}},
	})
}
