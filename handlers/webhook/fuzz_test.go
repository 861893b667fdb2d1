package webhook

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Any signed body is acknowledged or, if it isn't JSON, refused, and the acknowledged number is that of the texts in the queue.
func FuzzSignedDelivery(f *testing.F) {
	all := everyPlatform()
	for i, p := range all {
		f.Add(uint8(i), p.text)
		f.Add(uint8(i), p.text[:len(p.text)/2])
	}
	f.Add(uint8(1), `{"object":"page","entry":[null,7,{"id":"1001","messaging":[null,{"sender":7}]}]}`)
	f.Add(uint8(1), `{"object":"whatsapp_business_account","entry":[{"changes":[{"value":{"messages":[{}]}}]}]}`)
	f.Fuzz(func(t *testing.T, index uint8, body string) {
		p, g := all[int(index)%len(all)], newGate(t)
		w := handlertest.Served(p.serve(g), p.signed(body))
		if w.Code != http.StatusOK {
			code := handlertest.Checked(t, w).Code()
			// The test finds the local chat's timestamp only where it is written plainly.
			if p.name != "localchat" || code != string(errcode.Unauthenticated) {
				require.Equal(t, string(errcode.InvalidRequest), code)
			}
			require.Zero(t, g.enqueues)
			return
		}
		texts := 0
		for _, arrival := range g.arrivals {
			require.NotEmpty(t, arrival.Route.ChannelID)
			require.NotEmpty(t, arrival.Items)
			for _, item := range arrival.Items {
				if item.Kind == platforms.Text {
					texts++
					require.NotEmpty(t, item.MessageID)
				}
			}
		}
		acknowledged(t, p.serve(g), p.signed(body), texts)
	})
}
