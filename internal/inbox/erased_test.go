package inbox

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// personalMark matches everything by which the test's customers could be known.
var personalMark = regexp.MustCompile(`private-[a-z]+-\d+\.`)

// readable returns the marks in the pages.
func readable(pages []byte) []string {
	found := map[string]bool{}
	for _, mark := range personalMark.FindAll(pages, -1) {
		found[string(mark)] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// The disk holds nothing readable of a customer, in tables, indexes, statistics or the log: what they wrote and were sent, their names,
// files, and the platform's ids of them and of messages. Of a customer who was erased, by whichever way, SQLite holds not even the sealed
// texts. Neighbours are erased alike, so that whole pages get free.
func TestErasedIsErased(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		pages := storetest.Pages(t, q.db)
		routes := []store.Route{q.route, q.channel(t, "org_2", "chn_2"), q.channel(t, "org_1", "chn_3")}
		const ways, each = 6, 50
		const customers = ways * each
		routeOf := func(n int) store.Route { return routes[max(n/each-3, 0)] }
		mark := func(kind string, n int) string { return fmt.Sprintf("private-%s-%d.", kind, n) }
		ref := func(n int) string { return mark("customer", n) }
		arrive := func(n int, item Item) { require.NoError(t, q.Enqueue(ctx, []Arrival{{routeOf(n), []Item{item}}})) }
		for message := range 4 {
			for n := range customers {
				arrive(n, Item{
					Kind: platforms.Text, CustomerRef: ref(n), Address: mark("address", n), MessageID: mark("message", n) + number(message),
					Text: mark("words", n), CustomerName: mark("name", n), Other: &platforms.OtherIDs{Alias: mark("alias", n), Business: mark("shop", n)},
					Files: []platforms.Attachment{{Kind: "image", Reference: mark("reference", n), Name: mark("file", n)}},
				})
			}
		}
		q.exec(t, `UPDATE messages SET handled = TRUE`)
		q.exec(t, `UPDATE conversations SET run_at = NULL, waiting_since = NULL`)
		ids, kept := make([]string, customers), map[int]bool{}
		for n := range customers {
			c, err := q.ConversationOf(ctx, routeOf(n).OrgID, routeOf(n).ChannelID, ref(n))
			require.NoError(t, err)
			require.Equal(t, mark("address", n), c.Address)
			ids[n] = c.ID
			if n%10 == 0 {
				_, err := q.SendAsHuman(ctx, "usr_1", c.OrgID, c.ID, []string{mark("reply", n)})
				require.NoError(t, err)
				file := media.Upload{Name: mark("attachment", n), Kind: "file", MediaType: "text/plain", Content: []byte(mark("content", n))}
				_, _, err = q.SendFile(ctx, "usr_1", c.OrgID, c.ID, &file, nil)
				require.NoError(t, err)
			}
		}
		leases, err := q.Lease(ctx, Places{Free: customers}, life)
		require.NoError(t, err)
		require.Len(t, leases, customers/10)
		for _, lease := range leases {
			parts := q.open(t, lease).Outbound
			require.Len(t, parts, 2)
			for i, part := range parts {
				require.NoError(t, q.Sending(ctx, lease, part.ID))
				require.NoError(t, q.Sent(ctx, lease, part.ID, lease.CustomerRef+number(i), ""))
			}
			require.NoError(t, q.Release(ctx, lease))
		}
		bodies := q.bodies(t, ids)
		for n := range customers {
			switch n / each {
			case 0:
				require.NoError(t, q.DeleteConversation(ctx, "usr_1", "org_1", ids[n]))
			case 1:
				arrive(n, Item{Kind: platforms.ErasureWanted, CustomerRef: ref(n)})
			case 4, 5: // by retention, and with their channel: see below
			default:
				kept[n] = true
			}
		}
		q.age(t, store.MinRetentionDays+1)
		q.retain(t, "org_2", store.MinRetentionDays)
		_, err = SweepRetention(ctx, q.db)
		require.NoError(t, err)
		require.NoError(t, q.db.Channels.Delete(ctx, "usr_1", "org_1", "chn_3"))
		require.Equal(t, number(2*each), q.value(t, `SELECT count(*) FROM conversations`))
		q.exec(t, `ANALYZE`)

		q.exec(t, `UPDATE agents SET instructions = 'private-control-1.'`)
		if q.db.Engine() == store.Postgres {
			q.exec(t, `UPDATE agents SET instructions = ''`) // what is gone stays in files, and is found
		}
		require.Equal(t, []string{"private-control-1."}, readable(pages()), "only what isn't sealed")
		if q.db.Engine() == store.Postgres {
			return
		}
		require.Eventually(t, func() bool {
			all := pages()
			for _, m := range bodies {
				if bytes.Contains(all, m.body) != kept[m.customer] {
					return false
				}
			}
			return true
		}, 5*time.Minute, 20*time.Millisecond)
	})
}

// sealedBody is the body of a customer's message as the database has it.
type sealedBody struct {
	customer int
	body     []byte
}

// bodies returns the bodies of all customers' messages. conversations are the customers', by their numbers.
func (q *inboxTest) bodies(t testing.TB, conversations []string) []sealedBody {
	t.Helper()
	all, err := store.ReadRows(t.Context(), q.db, "read bodies", func(row store.Row) (m sealedBody, err error) {
		var id string
		err = row.Scan(&id, &m.body)
		m.customer = slices.Index(conversations, id)
		return m, err
	}, `SELECT conversation_id, body FROM messages`)
	require.NoError(t, err)
	return all
}
