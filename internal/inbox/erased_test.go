package inbox

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// numbered returns the numbers n of all words "<word>n." in the pages.
func numbered(word string, pages []byte) map[int]bool {
	numbers := map[int]bool{}
	for _, found := range regexp.MustCompile(word+`(\d+)\.`).FindAllSubmatch(pages, -1) {
		n, err := strconv.Atoi(string(found[1]))
		numbers[n] = err == nil
	}
	return numbers
}

// The disk holds nothing readable that a customer wrote, and on SQLite nothing of a customer who was erased, in the database or in its log,
// by whichever way. Neighbours are erased alike, so that whole pages get free.
func TestErasedIsErased(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		pages := storetest.Pages(t, q.db)
		routes := []store.Route{q.route, q.channel(t, "org_2", "chn_2"), q.channel(t, "org_1", "chn_3")}
		const ways, each = 6, 50
		const customers = ways * each
		routeOf := func(n int) store.Route { return routes[max(n/each-3, 0)] }
		ref := func(n int) string { return fmt.Sprintf("customer%d.", n) }
		arrive := func(n int, item Item) { require.NoError(t, q.Enqueue(ctx, []Arrival{{routeOf(n), []Item{item}}})) }
		for message := range 4 {
			for n := range customers {
				words := fmt.Sprintf("words%d.", n)
				arrive(n, Item{
					Kind: Text, CustomerRef: ref(n), Address: "to " + ref(n), MessageID: ref(n) + number(message), Text: words, CustomerName: words,
				})
			}
		}
		kept := map[int]bool{}
		for n := range customers {
			switch n / each {
			case 0:
				id := q.value(t, `SELECT id FROM conversations WHERE customer_ref = $1`, ref(n))
				require.NoError(t, q.DeleteConversation(ctx, "usr_1", "org_1", id))
			case 1:
				arrive(n, Item{Kind: ErasureWanted, CustomerRef: ref(n)})
			case 4, 5: // by retention, and with their channel: see below
			default:
				kept[n] = true
			}
		}
		q.exec(t, `UPDATE messages SET handled = TRUE`)
		q.exec(t, `UPDATE conversations SET run_at = NULL, waiting_since = NULL`)
		q.age(t, store.MinRetentionDays+1)
		q.retain(t, "org_2", store.MinRetentionDays)
		_, err := SweepRetention(ctx, q.db)
		require.NoError(t, err)
		require.NoError(t, q.db.Channels.Delete(ctx, "usr_1", "org_1", "chn_3"))
		require.Equal(t, number(2*each), q.value(t, `SELECT count(*) FROM conversations`))

		require.Empty(t, numbered("words", pages()))
		if q.db.Engine() == store.Postgres {
			return // it overwrites nothing, and its log keeps what it replays: docs/channels.md
		}
		require.Eventually(t, func() bool { return maps.Equal(kept, numbered("customer", pages())) }, time.Minute, 20*time.Millisecond)
	})
}
