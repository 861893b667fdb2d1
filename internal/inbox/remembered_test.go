package inbox

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// TestRememberedRouteIsChecked guarantees that nothing of a delivery is stored whose remembered route isn't its channel's any longer, and that
// what it contains decides nothing about the deliveries that share its transaction.
func TestRememberedRouteIsChecked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.channel(t, "org_1", "chn_2")
		read := func(channelID string) store.Route {
			route, found, err := q.db.Routes.ByID(t.Context(), channelID)
			require.NoError(t, err)
			require.True(t, found)
			route.Remembered = true
			return route
		}
		first, second := read("chn_1"), read("chn_2")
		op := func(route store.Route, items ...Item) *enqueueOp {
			op, err := q.seal(t.Context(), []Arrival{{route, items}})
			require.NoError(t, err)
			return op
		}
		named := textOf("ann", "1", "hello")
		named.Other = &platforms.OtherIDs{Alias: "bob"}
		failed := Item{Kind: platforms.FailedDelivery, CustomerRef: "ann", MessageID: "p1"}

		old := first
		old.State = store.ChannelNeedsReauth
		gone := second
		gone.ChannelID = "chn_gone"
		changed := []*enqueueOp{op(old, named, failed), op(gone, textOf("eve", "1", "hello")), op(old)}
		kept := []*enqueueOp{op(first, textOf("bob", "2", "there")), op(second, textOf("ann", "1", "hi")), op(second)}
		var ops []store.Op
		for i := range kept {
			ops = append(ops, changed[i], kept[i])
		}
		for range 2 { // again, as after a transaction that was undone
			require.NoError(t, q.db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
				return errors.Join(Kind.Apply(ctx, tx, ops)...)
			}))
			for i := range kept {
				require.True(t, changed[i].changed)
				require.False(t, kept[i].changed)
			}
			require.Equal(t, "2", q.value(t, `SELECT count(*) FROM messages`))
			require.Equal(t, "2", q.value(t, `SELECT count(*) FROM conversations`))
			require.Equal(t, "0", q.value(t, `SELECT count(*) FROM customer_aliases`))
		}
		bob, err := q.seal(t.Context(), []Arrival{{first, []Item{textOf("bob", "3", "hello")}}})
		require.NoError(t, err)
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM conversations WHERE channel_id = 'chn_1' AND customer_ref = '`+bob.items[0].CustomerRef+`'`))

		unsent := []Item{{Kind: platforms.Unsent, MessageID: "2"}}
		require.ErrorIs(t, q.Enqueue(t.Context(), []Arrival{{first, unsent}, {old, unsent}}), ErrRouteChanged)
		require.ErrorIs(t, q.Enqueue(t.Context(), []Arrival{{first, []Item{textOf("bob", "4", "x")}}, {gone, unsent}}), ErrRouteChanged)
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM messages`))
		leases, err := q.Lease(t.Context(), Places{Free: 2}, life)
		require.NoError(t, err)
		require.Len(t, leases, 2)
		for _, lease := range leases {
			require.Equal(t, map[string][]string{"chn_1": {"there"}, "chn_2": {"hi"}}[lease.ChannelID], textsOf(q.open(t, lease).Waiting))
		}
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{first, unsent}}))
		q.healthy(t)
	})
}
