package inbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// customersOf returns the ids of the customers of org_1 as a queue lists them, sorted.
func customersOf(t testing.TB, q *Queue) (ids []string) {
	t.Helper()
	list, err := q.Conversations(context.Background(), "org_1", ConversationFilter{}, pageAll)
	require.NoError(t, err)
	for _, c := range list {
		ids = append(ids, c.CustomerRef)
	}
	slices.Sort(ids)
	return ids
}

// Two organizations share no sealed id, so that nobody who reads the database sees that they have a customer in common.
func TestOrganizationsShareNoSealedID(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		for _, route := range []store.Route{q.route, q.channel(t, "org_1", "chn_2"), q.channel(t, "org_2", "chn_3")} {
			require.NoError(t, q.Enqueue(t.Context(), []Arrival{{route, []Item{textOf("ann", "1", "text")}}}))
		}
		for _, column := range []string{"customer_ref", "address"} {
			require.Equal(t, "2", q.value(t, `SELECT count(DISTINCT `+column+`) FROM conversations`))
		}
		require.Equal(t, "2", q.value(t, `SELECT count(DISTINCT platform_message_id) FROM messages`))
	})
}

// With a master key that is lost, what customers write is stored, in new conversations, and an error is logged. When the lost one is put
// back, their old conversations go on, and those from between are still read.
func TestLostKeyOfIDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		both, err := vault.ParseRing(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, vault.KeyBytes)) + " " +
			base64.StdEncoding.EncodeToString(make([]byte, vault.KeyBytes)))
		require.NoError(t, err)
		other, err := vault.ParseRing(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, vault.KeyBytes)))
		require.NoError(t, err)
		var log bytes.Buffer
		lost := New(q.db, other)
		lost.Log = slog.New(slog.NewTextHandler(&log, nil))
		for range 2 { // with a second process
			require.NoError(t, lost.Enqueue(t.Context(), []Arrival{{q.route, []Item{textOf("ann", "2", "two")}}}))
			lost = New(q.db, other)
		}
		require.Contains(t, log.String(), "no key of customers' ids opens")
		require.Equal(t, []string{"", "ann"}, customersOf(t, lost))

		again := New(q.db, both)
		require.NoError(t, again.Enqueue(t.Context(), []Arrival{{q.route, []Item{textOf("ann", "3", "three")}}}))
		require.Equal(t, []string{"ann", "ann"}, customersOf(t, again))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM messages WHERE platform_message_id = $1
			AND conversation_id = (SELECT min(id) FROM conversations)`, q.messageID("3")))
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM id_keys`))
	})
}

// A damaged key stops what needs it, and is not replaced.
func TestDamagedKeyOfIDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.exec(t, `UPDATE id_keys SET sealed = $1`, testRing(t).Seal(vault.NewIDKey(), vault.StoredIDKey(1)))
		damaged := New(q.db, testRing(t))
		require.ErrorIs(t, damaged.Enqueue(t.Context(), []Arrival{{q.route, []Item{textOf("ann", "1", "text")}}}), vault.ErrCorrupt)
		_, err := damaged.Lease(t.Context(), Places{Free: 1}, life)
		require.ErrorIs(t, err, vault.ErrCorrupt)
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM messages`))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM id_keys`))
	})
}

// Readers of an empty store make no key, so that an archive can be imported; many processes that begin at one moment make one.
func TestOneKeyOfIDs(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{Kind}, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		q := New(db, testRing(t))
		leases, err := q.Lease(ctx, Places{Free: 1}, life)
		require.NoError(t, err)
		require.Empty(t, leases)
		require.Empty(t, customersOf(t, q))
		_, err = q.ConversationOf(ctx, "org_1", "chn_1", "ann")
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = q.Reply(ctx, "org_1", "chn_1", "1")
		require.ErrorIs(t, err, store.ErrNotFound)
		keys, err := db.IDKeys.All(ctx)
		require.NoError(t, err)
		require.Empty(t, keys)

		begin := make(chan struct{})
		var processes sync.WaitGroup
		sealed := make([]string, 8)
		for i := range sealed {
			processes.Go(func() {
				<-begin
				ids, err := New(db, testRing(t)).loadIDs(ctx, true)
				if err != nil {
					t.Error(err)
					return
				}
				sealed[i] = ids.seal("ann", vault.CustomerID("org_1"))
			})
		}
		close(begin)
		processes.Wait()
		require.Len(t, slices.Compact(sealed), 1)
		keys, err = db.IDKeys.All(ctx)
		require.NoError(t, err)
		require.Len(t, keys, 1)
	})
}
