package marketa

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
	"github.com/caddy-svc/caddy-svc/verify"
)

func TestContract(t *testing.T) {
	t.Parallel()
	const key = "signing-key-0123456789"
	for name, options := range map[string]map[string]string{
		"one key":  {"partner_id": "2001234", "partner_key": key},
		"two keys": {"partner_id": "2001234", "partner_key": "calling-key-0123456789", "push_key": key},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			platformtest.Run(t, suite(options))
		})
	}
}

// suite is the adapter's.
func suite(options map[string]string) platformtest.Suite {
	return platformtest.Suite{
		Driver:  Driver{},
		Options: options,
		Sign: func(d *platforms.Delivery, channel *platforms.Channel, options map[string]string) {
			mac := hmac.New(sha256.New, []byte(cmp.Or(
				channel.Credentials[pushKey], channel.Credentials[partnerKey], options["push_key"], options["partner_key"])))
			mac.Write([]byte(d.URL + "|" + string(d.Body)))
			d.Header.Set(verify.MarketAHeader, hex.EncodeToString(mac.Sum(nil)))
		},
		Channels: map[platforms.Type]platformtest.Sample{Type: {
			ExternalID:  "1001",
			Credentials: platforms.Credentials{platforms.AccessToken: "access-0123456789", platforms.RefreshToken: "refresh-0123456789"},
			Own: []platforms.Credentials{
				{pushKey: "own-push-key-0123456789"},
				{partnerID: "77", partnerKey: "own-partner-key-0123456789"},
				{partnerID: "77", partnerKey: "own-partner-key-0123456789", pushKey: "own-push-key-0123456789"},
			},
			Text: `{"code":10,"shop_id":%e,"data":{"type":"message","content":{"message_id":"%m","from_id":%c,"conversation_id":"3%c",` +
				`"created_timestamp":1763650001,"message_type":"text","content":{"text":"%t"}}}}`,
			Sent:       `{"error":"","message":"","response":{"message_id":%m}}`,
			Identified: `{"error":"","shop_name":"x"}`,
			Refreshed:  `{"access_token":"%a","refresh_token":"%r","expire_in":14400,"error":""}`,
			Failures: []platformtest.Failure{
				{Status: 403, Body: `{"error":"error_auth","message":"Invalid access_token."}`, Class: platforms.NeedsReauth, Refreshable: true},
				{Status: 200, Body: `{"error":"invalid_acceess_token"}`, Class: platforms.NeedsReauth, Refreshable: true},
				{Status: 403, Body: `{"error":"error_permission"}`, Class: platforms.NeedsReauth},
				{Status: 429, Body: `{"error":"error_limit"}`, Class: platforms.Retry},
				{Status: 200, Body: `{"error":"error_limit"}`, Class: platforms.Retry},
				{Status: 500, Body: `{"error":"error_unheard_of"}`, Class: platforms.Retry},
				{Status: 403, Body: `{"error":"user_is_forbidden","message":"x","request_id":"x"}`, Class: platforms.WindowExpired},
				{Status: 403, Body: `{"error":"reach_5_message_limit"}`, Class: platforms.WindowExpired},
				{Status: 403, Body: `{"error":"first_chat_without_order_info"}`, Class: platforms.WindowExpired},
				{Status: 403, Body: `{"error":"error_blocked"}`, Class: platforms.CustomerBlocked},
				{Status: 403, Body: `{"error":"error_sender_block_receiver"}`, Class: platforms.CustomerBlocked},
				{Status: 403, Body: `{"error":"exceed_send_limitaion"}`, Class: platforms.Retry},
				{Status: 403, Body: `{"error":"message_too_long"}`, Class: platforms.Refused},
				{Status: 403, Body: `{"error":"message_is_censored"}`, Class: platforms.Refused},
				{Status: 403, Body: `{"error":"block_by_internal_safety_strategies"}`, Class: platforms.Refused},
				{Status: 403, Body: `{"error":"assigned_to_subaccount"}`, Class: platforms.Refused},
				{Status: 403, Body: `{"error":"shop_bound_subaccount"}`, Class: platforms.Refused},
				{Status: 403, Body: `{"error":"error_business"}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":"error_param","message":"x"}`, Class: platforms.Refused},
				{Status: 200, Body: `{"error":"","response":{}}`, Class: platforms.Unknown},
				{Status: 200, Body: `{}`, Class: platforms.Unknown},
			},
		}},
	}
}

// Calls of a shop with an application of its own are signed by that, refreshes included, whatever key signs deliveries.
func TestCallsOfAnOwnApplication(t *testing.T) {
	t.Parallel()
	own := platforms.Credentials{
		platforms.AccessToken: "access-1", platforms.RefreshToken: "refresh-1", partnerID: "77", partnerKey: "own-partner-key-0123456789", pushKey: "own-push-key-0123456789",
	}
	queries := make(chan url.Values, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		mac := hmac.New(sha256.New, []byte(own[partnerKey]))
		mac.Write([]byte("77" + r.URL.Path + q.Get("timestamp") + q.Get("access_token") + q.Get("shop_id")))
		if q.Get("sign") != hex.EncodeToString(mac.Sum(nil)) {
			q.Set("sign", "wrong")
		}
		queries <- q
		_, _ = io.WriteString(w, `{"error":"","response":{"message_id":"1"},"access_token":"access-2","refresh_token":"refresh-2","expire_in":14400}`)
	}))
	t.Cleanup(server.Close)
	p := platformtest.New(t, Driver{}, map[string]string{"api_base": server.URL, "partner_id": "2001234", "partner_key": "calling-key-0123456789"})
	_, err := p.Send(t.Context(), &platforms.Outgoing{Type: Type, ExternalID: "1001", Address: "2", Text: "Hi", Credentials: own})
	require.NoError(t, err)
	q := <-queries
	require.Equal(t, "77", q.Get("partner_id"))
	require.NotEqual(t, "wrong", q.Get("sign"))
	fresh, err := p.(platforms.Refresher).Refresh(t.Context(), &platforms.Channel{Type: Type, ExternalID: "1001", Credentials: own})
	require.NoError(t, err)
	q = <-queries
	require.Equal(t, "77", q.Get("partner_id"))
	require.NotEqual(t, "wrong", q.Get("sign"))
	for _, kept := range []string{partnerID, partnerKey, pushKey} {
		require.Equal(t, own[kept], fresh[kept], "what isn't a token stays")
	}
	require.Error(t, Driver{}.Describe().Channels[0].CheckCredentials(platforms.Credentials{
		platforms.AccessToken: "a", platforms.RefreshToken: "r", partnerID: "77",
	}), "an id without its key is of no use")
}
