package bot

import (
	"testing"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
	"github.com/caddy-svc/caddy-svc/verify"
)

func TestContract(t *testing.T) {
	t.Parallel()
	platformtest.Run(t, platformtest.Suite{
		Driver: Driver{},
		Sign: func(d *platforms.Delivery, channel *platforms.Channel, _ map[string]string) {
			d.Header.Set(verify.BotHeader, channel.Credentials[secretToken])
		},
		Channels: map[platforms.Type]platformtest.Sample{Type: {
			Credentials: platforms.Credentials{botToken: "110201543:bot-token-0123456789", secretToken: "delivery-secret_1"},
			Text:        `{"message":{"message_id":%m,"from":{"id":%c,"is_bot":false},"chat":{"id":%c,"type":"private"},"date":1763650000,"text":"%t"}}`,
			Edited:      `{"edited_message":{"message_id":%m,"from":{"id":%c,"is_bot":false},"chat":{"id":%c,"type":"private"},"date":1763650000,"edit_date":1763650009,"text":"%t"}}`,
			Sent:        `{"ok":true,"result":{"message_id":%m,"chat":{"id":5}}}`,
			Identified:  `{"ok":true,"result":{"id":%e,"is_bot":true}}`,
			Failures: []platformtest.Failure{
				{Status: 401, Body: `{"ok":false,"error_code":401,"description":"Unauthorized"}`, Class: platforms.NeedsReauth},
				{Status: 404, Body: `{"ok":false,"error_code":404,"description":"Not Found"}`, Class: platforms.NeedsReauth},
				{Status: 403, Body: `{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}`, Class: platforms.CustomerBlocked},
				{Status: 429, Body: `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 5","parameters":{"retry_after":5}}`, Class: platforms.Retry},
				{Status: 500, Body: `{"ok":false,"error_code":500,"description":"Internal Server Error"}`, Class: platforms.Retry},
				{Status: 400, Body: `{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}`, Class: platforms.Refused},
				{Status: 200, Body: `{"ok":false,"error_code":400,"description":"Bad Request"}`, Class: platforms.Refused},
				{Status: 200, Body: `{"ok":true,"result":{}}`, Class: platforms.Unknown},
				{Status: 200, Body: `{"ok":true,"result":true}`, Class: platforms.Unknown},
				{Status: 200, Body: `{"ok":true}`, Class: platforms.Unknown},
				{Status: 404, Body: `not found`, Class: platforms.Refused},
			},
		}},
	})
}
