package pager

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

func TestContract(t *testing.T) {
	platformtest.Run(t, platformtest.Suite{
		Driver:  Driver{},
		Options: map[string]string{"signing_key": "signing-key-0123456789"},
		Sign: func(d *platforms.Delivery, _ *platforms.Channel, options map[string]string) {
			mac := hmac.New(sha256.New, []byte(options["signing_key"]))
			mac.Write(d.Body)
			d.Header.Set(signatureHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
		},
		Channels: map[platforms.Type]platformtest.Sample{Type: {
			ExternalID:  "77",
			Credentials: platforms.Credentials{platforms.AccessToken: "pager-token-0123456789"},
			Text:        `{"pages":[{"account":"%e","from":"%c","id":"%m","text":"%t"}]}`,
			Pair:        `{"pages":[{"account":"%e","from":"%c","id":"%m","text":"%t"},{"account":"%E","from":"%C","id":"%M","text":"%T"}]}`,
			Sent:        `{"id":"%m"}`,
			Identified:  `{"id":"%e"}`,
			Failures: []platformtest.Failure{
				{Status: 409, Body: `{"error":"switched_off"}`, Class: platforms.CustomerBlocked},
				{Status: 401, Body: `{"error":"token"}`, Class: platforms.NeedsReauth},
				{Status: 422, Body: `{"error":"too_long"}`, Class: platforms.Refused},
			},
		}},
	})
}
