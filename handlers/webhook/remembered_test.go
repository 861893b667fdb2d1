package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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

// nodes are two processes on one store: deliveries come to the first, and the other changes channels.
type nodes struct {
	*gate

	db, other *store.DB
	org       string
}

func eachNodes(t *testing.T, run func(t *testing.T, n *nodes)) {
	t.Helper()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location, options := storetest.Location(t, engine), store.Options{Kinds: []store.Kind{inbox.Kind}}
			n := &nodes{gate: newGate(t), db: storetest.OpenAt(t, location, options), other: storetest.OpenAt(t, location, options)}
			org, err := identity.CreateOrganization(t.Context(), n.other, "test", "Acme", "free", "")
			require.NoError(t, err)
			n.org = org.ID
			n.Webhooks = New(n.config, n.db.Routes, inbox.New(n.db, n.ring), n.ring, nil, nil)
			run(t, n)
		})
	}
}

func (n *nodes) sealed(channelID string, credentials platforms.Credentials) []byte {
	return n.ring.Seal(handlers.Marshal(credentials), vault.ChannelCredentials(n.org, channelID))
}

// create makes a channel on the other node, and returns its id.
func (n *nodes) create(t *testing.T, kind, externalID string, credentials platforms.Credentials) string {
	t.Helper()
	id := store.NewID("chn")
	require.NoError(t, n.other.Channels.Create(t.Context(), "test", store.Channel{
		ID: id, OrgID: n.org, Type: kind, Name: id, ExternalID: externalID, State: store.ChannelActive, Credentials: n.sealed(id, credentials),
	}, 0))
	return id
}

func (n *nodes) change(t *testing.T, channelID string, change store.ChannelChange) {
	t.Helper()
	require.NoError(t, n.other.Channels.Update(t.Context(), "test", n.org, channelID, change))
}

// channels are the channels of the stored messages, in the order of arrival.
func (n *nodes) channels(t *testing.T) (ids []string) {
	t.Helper()
	rows, err := n.db.Reader().QueryContext(t.Context(), `SELECT channel_id FROM messages ORDER BY id`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}

// botText is a new text for a bot, signed with a secret.
func botText(channelID, secret string, n int) *http.Request {
	body := fmt.Sprintf(`{"update_id":%[1]d,"message":{"message_id":%[1]d,"from":{"id":%[2]d,"first_name":"Lan"},"chat":{"id":%[2]d,"type":"private"},`+
		`"date":1763650000,"text":"hi"}}`, n, n%7)
	return delivery("/webhooks/bot/"+channelID, "X-Bot-Api-Secret-Token", secret, body)
}

// TestAChangeOfARememberedBot guarantees that a change of a channel, on any node, holds for the next delivery to its own address.
func TestAChangeOfARememberedBot(t *testing.T) {
	t.Parallel()
	eachNodes(t, func(t *testing.T, n *nodes) {
		handlertest.RefusedWith(t, errcode.NotFound, n.Bot, botText("", "one", 0))
		id := n.create(t, "bot", "", platforms.Credentials{"secretToken": "one"})
		refused := func(r *http.Request) {
			t.Helper()
			handlertest.RefusedWith(t, errcode.Unauthenticated, n.Bot, r)
		}
		for i := range 2 { // the second one by the remembered route
			acknowledged(t, n.Bot, botText(id, "one", 1+i), 1)
			refused(botText(id, "two", 3))
		}
		pending, active := store.ChannelPending, store.ChannelActive

		n.change(t, id, store.ChannelChange{Credentials: n.sealed(id, platforms.Credentials{"secretToken": "two"})})
		silent := delivery("/webhooks/bot/"+id, "X-Bot-Api-Secret-Token", "one", `{"update_id":9}`)
		refused(silent)
		refused(botText(id, "one", 4))
		acknowledged(t, n.Bot, botText(id, "two", 5), 1)
		acknowledged(t, n.Bot, botText(id, "two", 6), 1)

		n.change(t, id, store.ChannelChange{State: &pending})
		acknowledged(t, n.Bot, botText(id, "two", 7), 0)
		n.change(t, id, store.ChannelChange{State: &active})
		acknowledged(t, n.Bot, botText(id, "two", 8), 1)
		acknowledged(t, n.Bot, botText(id, "two", 9), 1)

		n.change(t, id, store.ChannelChange{Credentials: n.sealed(id, platforms.Credentials{"secretToken": "one"})})
		acknowledged(t, n.Bot, botText(id, "one", 10), 1)
		require.Len(t, n.channels(t), 7)

		require.NoError(t, n.other.Channels.Delete(t.Context(), "test", n.org, id))
		acknowledged(t, n.Bot, botText(id, "one", 11), 0)
		acknowledged(t, n.Bot, botText(id, "two", 12), 0)
		require.Empty(t, n.channels(t), "it has left with its messages")
	})
}

// TestAChangeOfARememberedPage guarantees the same for the address that channels share: also when an account moves to another channel, and
// when a channel gets a secret of its own.
func TestAChangeOfARememberedPage(t *testing.T) {
	t.Parallel()
	eachNodes(t, func(t *testing.T, n *nodes) {
		p := everyPlatform()[1]
		count := 0
		text := func(pages ...string) *http.Request {
			entries := make([]string, len(pages))
			for i, page := range pages {
				count++
				entries[i] = pageEntry(page, fmt.Sprint("m", count), "hi")
			}
			return p.signed(`{"object":"page","entry":[` + strings.Join(entries, ",") + `]}`)
		}
		acknowledged(t, n.Social, text("7001"), 0)
		first := n.create(t, "social_messenger", "7001", platforms.Credentials{"accessToken": "a"})
		other := n.create(t, "social_messenger", "7002", platforms.Credentials{"accessToken": "a"})
		for range 2 {
			acknowledged(t, n.Social, text("7001", "7002"), 2)
		}
		require.Equal(t, []string{first, other, first, other}, n.channels(t))

		require.NoError(t, n.other.Channels.Delete(t.Context(), "test", n.org, first))
		acknowledged(t, n.Social, text("7001"), 0)
		acknowledged(t, n.Social, text("7001", "7002"), 1)
		moved := n.create(t, "social_messenger", "7001", platforms.Credentials{"accessToken": "b"})
		acknowledged(t, n.Social, text("7001", "7002"), 2)
		require.Equal(t, []string{other, other, other, moved, other}, n.channels(t))

		n.change(t, moved, store.ChannelChange{Credentials: n.sealed(moved, platforms.Credentials{"appSecret": "own"})})
		for range 2 {
			handlertest.RefusedWith(t, errcode.Unauthenticated, n.Social, text("7001"))
			acknowledged(t, n.Social, text("7001", "7002"), 1)
			body := pageEvent("7001", fmt.Sprint("own ", count), "hi")
			acknowledged(t, n.Social, signedWith("own", body), 1)
		}
		n.change(t, moved, store.ChannelChange{Credentials: n.sealed(moved, platforms.Credentials{"accessToken": "c"})})
		acknowledged(t, n.Social, text("7001"), 1)

		// A message that its sender takes back is refused like any other.
		n.change(t, other, store.ChannelChange{Credentials: n.sealed(other, platforms.Credentials{"appSecret": "own"})})
		unsent := `{"object":"page","entry":[{"id":"7002","messaging":[{"sender":{"id":"55"},"recipient":{"id":"7002"},"timestamp":1763650000100,` +
			`"message":{"mid":"m2","is_deleted":true}}]}]}`
		handlertest.RefusedWith(t, errcode.Unauthenticated, n.Social, p.signed(unsent))
	})
}

// TestSecretsChangeDuringDeliveries guarantees, while one node changes a channel's secret again and again, that no delivery to the other one
// is accepted under a secret that was replaced before it came, and that none is refused whose secret held all the while.
func TestSecretsChangeDuringDeliveries(t *testing.T) {
	t.Parallel()
	eachNodes(t, func(t *testing.T, n *nodes) {
		const changes = 25
		secret := func(n int64) platforms.Credentials {
			return platforms.Credentials{"secretToken": fmt.Sprint("secret-", n)}
		}
		id := n.create(t, "bot", "", secret(0))
		var begun, done atomic.Int64 // the changes
		var count, accepted, refused atomic.Int64
		var clients sync.WaitGroup
		for client := range int64(8) {
			clients.Go(func() {
				for done.Load() < changes {
					before := done.Load()
					number := max(0, before-client%2)
					answer := handlertest.Served(n.Bot, botText(id, fmt.Sprint("secret-", number), int(count.Add(1))))
					switch after := begun.Load(); {
					case answer.Code == http.StatusOK && number < before:
						t.Errorf("secret %d was accepted after %d had replaced it", number, before)
					case answer.Code == http.StatusUnauthorized && number == before && after == before:
						t.Errorf("secret %d was refused while it held", number)
					case answer.Code == http.StatusOK:
						accepted.Add(1)
					case answer.Code == http.StatusUnauthorized:
						refused.Add(1)
					default:
						t.Errorf("status %d: %s", answer.Code, answer.Body.String())
					}
				}
			})
		}
		for change := int64(1); change <= changes; change++ {
			for seen := accepted.Load(); accepted.Load() < seen+4; { // deliveries under the last secret, so that its route is remembered
				acknowledged(t, n.Bot, botText(id, fmt.Sprint("secret-", change-1), int(count.Add(1))), 1)
				accepted.Add(1)
			}
			begun.Store(change)
			n.change(t, id, store.ChannelChange{Credentials: n.sealed(id, secret(change))})
			done.Store(change)
		}
		clients.Wait()
		require.NotZero(t, refused.Load())
		require.Len(t, n.channels(t), int(accepted.Load()), "each accepted delivery is stored, and no other")
	})
}
