package webhook

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// give gives a channel credentials.
func (g *gate) give(t *testing.T, channelID string, credentials platforms.Credentials) {
	t.Helper()
	route := g.routes.byID[channelID]
	route.Credentials = g.ring.Seal(handlers.Marshal(credentials), vault.ChannelCredentials(route.OrgID, channelID))
	g.routes.byID[channelID] = route
}

// ownApplication is a platform with two ways to sign with the secrets of a channel's own application.
type ownApplication struct {
	platform
	first, second         platforms.Credentials // other sets of credentials
	signFirst, signSecond func(body string) string
	silent                string // a delivery for the channel that holds nothing
}

func ownApplications() []ownApplication {
	all := everyPlatform()
	localChat := func(id, key string) func(string) string {
		return func(body string) string {
			sum := sha256.Sum256([]byte(id + body + "1699003881354" + key))
			return "mac=" + hex.EncodeToString(sum[:])
		}
	}
	social := func(key string) func(string) string {
		return func(body string) string { return "sha256=" + hmacHex(key, body) }
	}
	market := func(key string) func(string) string {
		return func(body string) string { return hmacHex(key, testBaseURL, "/webhooks/market-a|", body) }
	}
	return []ownApplication{
		{
			all[1],
			platforms.Credentials{"appSecret": "own-1"},
			platforms.Credentials{"appSecret": "own-2"},
			social("own-1"), social("own-2"),
			`{"object":"page","entry":[{"id":"1001","messaging":[{"sender":{"id":"55"},"read":{"watermark":1}}]}]}`,
		},
		{
			all[2],
			platforms.Credentials{"oaSecretKey": "own-1"},
			platforms.Credentials{"appId": "77", "appSecret": "own-2"},
			localChat(testAppKey, "own-1"), localChat("77", "own-2"),
			`{"event_name":"user_seen_message","sender":{"id":"6142"},"recipient":{"id":"3662"},"timestamp":"1699003881354"}`,
		},
		{
			all[3],
			platforms.Credentials{"pushKey": "own-1"},
			platforms.Credentials{"partnerId": "77", "partnerKey": "own-2"},
			market("own-1"), market("own-2"), `{"code":3,"shop_id":94704,"data":{"ordersn":"1"}}`,
		},
	}
}

// TestDeliveriesOfAnOwnApplication guarantees that exactly the configured secret proves a delivery: the channel's own if it has one,
// else the operator's; and that a change holds for the next delivery.
func TestDeliveriesOfAnOwnApplication(t *testing.T) {
	t.Parallel()
	for _, p := range ownApplications() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			channel := p.want.Route.ChannelID
			by := func(sign func(string) string) *http.Request { return delivery(p.path, p.header, sign(p.text), p.text) }
			accepts := func(sign func(string) string) {
				t.Helper()
				acknowledged(t, p.serve(g), by(sign), 1)
			}
			refuses := func(sign func(string) string) {
				t.Helper()
				handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), by(sign))
			}
			accepts(p.sign)
			refuses(p.signFirst)

			g.give(t, channel, p.first)
			g.arrivals, g.routes.reads = nil, 0
			accepts(p.signFirst)
			require.Equal(t, 1, g.routes.reads)
			require.Equal(t, g.routes.byID[channel], g.arrivals[0].Route)
			require.Equal(t, p.want.Items, g.arrivals[0].Items)
			acknowledged(t, p.serve(g), delivery(p.path, p.header, p.signFirst(p.silent), p.silent), 0)
			refuses(p.sign)
			refuses(p.signSecond)
			handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), delivery(p.path, p.header, "", p.text))
			doubled := by(p.signFirst)
			doubled.Header.Add(p.header, p.signFirst(p.text))
			handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), doubled)

			g.give(t, channel, p.second)
			accepts(p.signSecond)
			refuses(p.signFirst)
			g.give(t, channel, platforms.Credentials{"accessToken": "x"})
			accepts(p.sign)
			refuses(p.signSecond)
			g.give(t, channel, p.first) // after it was seen to have none
			accepts(p.signFirst)
			refuses(p.sign)
			require.Zero(t, g.bodies.Used())
			for _, secret := range []string{"own-1", "own-2", "Chào"} {
				require.NotContains(t, g.logged.String(), secret)
			}
		})
	}
}

// The operator's secret, entered as a channel's own, stays good.
func TestTheOperatorsSecretAsOwn(t *testing.T) {
	t.Parallel()
	for i, credentials := range []platforms.Credentials{
		{"appSecret": testAppSecret}, {"appId": testAppKey, "appSecret": testAppSecret}, {"pushKey": testPartnerKey},
	} {
		g, p := newGate(t), ownApplications()[i]
		g.give(t, p.want.Route.ChannelID, credentials)
		acknowledged(t, p.serve(g), p.signed(p.text), 1)
	}
}

// Whose secret a delivery is signed with decides which of its messages count.
func TestOwnApplicationsAmongOthers(t *testing.T) {
	t.Parallel()
	g, p := newGate(t), ownApplications()[0]
	add := func(id, page, secret, state string) {
		g.routes.byID[id] = store.Route{ChannelID: id, OrgID: "org_1", Type: "social_messenger", ExternalID: page, State: state}
		if secret != "" {
			g.give(t, id, platforms.Credentials{"appSecret": secret})
		}
	}
	add("chn_own1", "2001", "own-1", store.ChannelActive)
	add("chn_own2", "2002", "own-2", store.ChannelActive)
	add("chn_own3", "2003", "own-1", store.ChannelPending)
	add("chn_own4", "2004", "own-1", store.ChannelNeedsReauth)
	pages := []string{"2004", "2003", "9999", "2002", "1002", "2001"}
	body := func(pages ...string) string {
		entries := make([]string, len(pages))
		for i, page := range pages {
			entries[i] = pageEntry(page, "m"+page, "hi")
		}
		return `{"object":"page","entry":[` + strings.Join(entries, ",") + `]}`
	}
	kept := func(sign func(string) string, body string, queued int) (channels []string) {
		t.Helper()
		g.arrivals = nil
		acknowledged(t, g.Social, delivery(p.path, p.header, sign(body), body), queued)
		for _, arrival := range g.arrivals {
			channels = append(channels, arrival.Route.ChannelID)
		}
		return channels
	}
	require.Equal(t, []string{"chn_own4", "chn_own1"}, kept(p.signFirst, body(pages...), 2))
	require.Equal(t, []string{"chn_own2"}, kept(p.signSecond, body(pages...), 1))
	require.Equal(t, []string{"chn_page2"}, kept(p.sign, body(pages...), 1))
	require.Contains(t, g.logged.String(), "left out")
	require.Empty(t, kept(p.sign, body("9999"), 0))
	for _, foreign := range []string{body("1001"), body("9999"), body("2002"), body("1001", "9999", "2002"), body("2003")} {
		handlertest.RefusedWith(t, errcode.Unauthenticated, g.Social, delivery(p.path, p.header, p.signFirst(foreign), foreign))
	}
	both := body("2001", "2002")
	handlertest.RefusedWith(t, errcode.Unauthenticated, g.Social, delivery(p.path, p.header, p.sign(both), both))

	many := make([]string, 0, 3*platforms.MaxNamed)
	for len(many) < cap(many)-1 {
		many = append(many, "9"+strings.Repeat("0", len(many)))
	}
	many[0] = "2001"
	many = append(many, "2004")
	g.routes.reads = 0
	require.Equal(t, []string{"chn_own1", "chn_own4"}, kept(p.signFirst, body(many...), 2), "the others are found once the first is proven")
	require.Equal(t, 2, g.routes.reads)
	many[0] = "9999"
	last := body(many...)
	handlertest.RefusedWith(t, errcode.Unauthenticated, g.Social, delivery(p.path, p.header, p.signFirst(last), last))
}

// TestPendingClaimsHaveNoSay guarantees that a channel that claims an external id, and that nobody has confirmed, changes no answer to a
// delivery for it: its secret proves nothing, and takes nothing away from what the operator's secret proves.
func TestPendingClaimsHaveNoSay(t *testing.T) {
	t.Parallel()
	for _, p := range ownApplications() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			g, channel := newGate(t), p.want.Route.ChannelID
			claim := g.routes.byID[channel]
			claim.State = store.ChannelPending
			g.routes.byID[channel] = claim
			g.give(t, channel, p.first)
			acknowledged(t, p.serve(g), p.signed(p.text), 0)
			handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), delivery(p.path, p.header, p.signFirst(p.text), p.text))
			require.NotContains(t, g.logged.String(), "left out")
			g.routes.fail = errors.New("disk I/O error")
			forged := delivery(p.path, p.header, p.signSecond(p.text), p.text)
			handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), forged)
			require.Zero(t, g.enqueues)
		})
	}
}

// TestOwnSecretsThatDontOpen guarantees that one channel's damaged credentials stop no delivery of the operator's.
func TestOwnSecretsThatDontOpen(t *testing.T) {
	t.Parallel()
	g, p := newGate(t), ownApplications()[0]
	g.give(t, "chn_page1", p.first)
	route := g.routes.byID["chn_page1"]
	route.Credentials = append([]byte(nil), route.Credentials...)
	route.Credentials[len(route.Credentials)-1] ^= 1
	g.routes.byID["chn_page1"] = route
	acknowledged(t, p.serve(g), p.signed(p.text), 1)
	require.Contains(t, g.logged.String(), "chn_page1")
	handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), delivery(p.path, p.header, p.signFirst(p.text), p.text))
}

// TestOwnApplicationWithoutAStore guarantees that a delivery that only its channel's secret can prove is repeated by its platform
// while the store is down, and that a forged one is refused as always where no channel of its type has such a secret.
func TestOwnApplicationWithoutAStore(t *testing.T) {
	t.Parallel()
	all := ownApplications()
	for i, p := range all {
		g := newGate(t)
		down, other := errors.New("disk I/O error"), all[(i+1)%len(all)]
		forged := func() *http.Request { return delivery(p.path, p.header, p.signSecond(p.text), p.text) }
		g.routes.fail = down
		handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), forged())
		handlertest.RefusedWith(t, errcode.InternalError, p.serve(g), p.signed(p.text))

		g.routes.fail = nil
		g.give(t, other.want.Route.ChannelID, other.first)
		acknowledged(t, other.serve(g), delivery(other.path, other.header, other.signFirst(other.text), other.text), 1)
		g.routes.fail = down
		handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), forged())

		g.routes.fail = nil
		g.give(t, p.want.Route.ChannelID, p.first)
		handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), p.signed(p.text))
		g.routes.fail, g.enqueues = down, 0
		for _, r := range []*http.Request{forged(), delivery(p.path, p.header, p.signFirst(p.text), p.text)} {
			a := handlertest.RefusedWith(t, errcode.InternalError, p.serve(g), r)
			require.Equal(t, "5", a.Header.Get("Retry-After"))
		}
		require.Zero(t, g.enqueues)
	}
}

// TestOwnSecretsOutliveANewMasterKey guarantees that a channel's own secret is sealed and sealed anew with its other credentials, and
// proves deliveries all the time.
func TestOwnSecretsOutliveANewMasterKey(t *testing.T) {
	t.Parallel()
	ringOf := func(fills ...byte) *vault.Ring {
		var keys []string
		for _, fill := range fills {
			keys = append(keys, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, vault.KeyBytes)))
		}
		ring, err := vault.ParseRing(strings.Join(keys, " "))
		require.NoError(t, err)
		return ring
	}
	storetest.Each(t, []store.Kind{inbox.Kind}, func(t *testing.T, db *store.DB) {
		g, p := newGate(t), ownApplications()[2]
		org, err := identity.CreateOrganization(t.Context(), db, "test", "Acme", "free", "")
		require.NoError(t, err)
		old, both, fresh := ringOf(1), ringOf(2, 1), ringOf(2)
		channel := store.Channel{
			ID: store.NewID("chn"), OrgID: org.ID, Type: "market_a", Name: "Shop", ExternalID: "94704", State: store.ChannelActive,
		}
		channel.Credentials = old.Seal(handlers.Marshal(p.first), vault.ChannelCredentials(org.ID, channel.ID))
		require.NotContains(t, string(channel.Credentials), p.first["pushKey"])
		require.NoError(t, db.Channels.Create(t.Context(), "test", channel, 0))
		accepts := func(ring *vault.Ring) {
			t.Helper()
			g.Webhooks = New(g.config, db.Routes, inbox.New(db, ring), ring, nil, nil)
			acknowledged(t, p.serve(g), delivery(p.path, p.header, p.signFirst(p.text), p.text), 1)
			handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), p.signed(p.text))
		}
		accepts(old)
		accepts(both)
		_, err = identity.Rekey(t.Context(), db, both, "test")
		require.NoError(t, err)
		accepts(both)
		accepts(fresh)
	})
}

// Channels are remembered in a bounded memory, each with its present credentials only.
func TestChannelsSeen(t *testing.T) {
	t.Parallel()
	var seen channelsSeen
	for i := range mostSeen + 1 {
		seen.add(strconv.Itoa(i), []byte{1})
		require.LessOrEqual(t, len(seen.of), mostSeen)
	}
	last := strconv.Itoa(mostSeen)
	require.True(t, seen.has(last, []byte{1}))
	require.False(t, seen.has(last, []byte{2}))
	require.False(t, seen.has("0", []byte{1}), "it began anew")
}
