package inbox

import (
	"crypto/sha256"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

func keyOf(key, content string) SendKey {
	return SendKey{Hash: sha256.Sum256([]byte(key)), Fingerprint: sha256.Sum256([]byte(content))}
}

// The same message under the same key is sent once; another message under it is refused, whichever conversation it is for.
func TestSendKeyed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"), textOf("bob", "2", "two"))
		list, err := q.Conversations(ctx, "org_1", ConversationFilter{}, pageAll)
		require.NoError(t, err)
		ann, bob := list[0].ID, list[1].ID
		key := keyOf("k", "hello, ann")
		none, err := q.SentUnder(ctx, "org_1", key)
		require.NoError(t, err)
		require.Empty(t, none)

		sent, replayed, err := q.SendKeyed(ctx, "usr_1", "org_1", ann, []string{"hello,", "ann"}, key)
		require.NoError(t, err)
		require.False(t, replayed)
		require.Equal(t, []string{"hello,", "ann"}, textsOf(sent))
		again, replayed, err := q.SendKeyed(ctx, "usr_2", "org_1", ann, []string{"hello,", "ann"}, key)
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, sent, again)
		found, err := q.SentUnder(ctx, "org_1", key)
		require.NoError(t, err)
		require.Equal(t, sent, found)

		other := keyOf("k", "hello, bob")
		_, _, err = q.SendKeyed(ctx, "usr_1", "org_1", bob, []string{"hello,", "bob"}, other)
		require.ErrorIs(t, err, ErrKeyReused)
		_, err = q.SentUnder(ctx, "org_1", other)
		require.ErrorIs(t, err, ErrKeyReused)
		_, _, err = q.SendKeyed(ctx, "usr_1", "org_2", ann, []string{"x"}, keyOf("new", "x"))
		require.ErrorIs(t, err, store.ErrNotFound)
		_, _, err = q.SendKeyed(ctx, "usr_1", "org_1", ann, nil, key)
		require.ErrorIs(t, err, ErrInvalid)
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM outbound_messages`))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE action = 'conversation.send'`))
		q.healthy(t)
	})
}

// A key belongs to its organization. A refused message keeps none.
func TestKeysOfMessagesBelongToOrganizations(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		foreign := q.channel(t, "org_2", "chn_2")
		q.arrive(t, textOf("ann", "1", "one"), Item{Kind: platforms.Blocked, CustomerRef: "ann"})
		require.NoError(t, q.Enqueue(ctx, []Arrival{{foreign, []Item{textOf("eve", "1", "one")}}}))
		id := func(orgID string) string { return q.value(t, `SELECT id FROM conversations WHERE org_id = $1`, orgID) }
		_, _, err := q.SendKeyed(ctx, "usr_1", "org_1", id("org_1"), []string{"x"}, keyOf("k", "x"))
		require.ErrorIs(t, err, ErrConversationClosed)
		_, replayed, err := q.SendKeyed(ctx, "usr_1", "org_2", id("org_2"), []string{"x"}, keyOf("k", "y"))
		require.NoError(t, err)
		require.False(t, replayed)
		found, err := q.SentUnder(ctx, "org_1", keyOf("k", "y"))
		require.NoError(t, err)
		require.Empty(t, found)
	})
}

// Repetitions that meet in several processes send one message.
func TestSendKeyedAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"), textOf("bob", "2", "two"))
		list, err := q.Conversations(ctx, "org_1", ConversationFilter{}, pageAll)
		require.NoError(t, err)
		var all sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			handle := newHandle(t, q)
			c := list[i%2] // the same key for two customers: one of them gets it
			all.Go(func() {
				_, _, errs[i] = handle.SendKeyed(ctx, "usr_1", "org_1", c.ID, []string{"hello"}, keyOf("k", c.ID))
			})
		}
		all.Wait()
		for i, err := range errs {
			first := errs[i%2]
			require.Equal(t, first == nil, err == nil, "%v", err)
			if err != nil {
				require.ErrorIs(t, err, ErrKeyReused)
			}
		}
		require.NotEqual(t, errs[0] == nil, errs[1] == nil, "one of the two contents has the key")
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM outbound_messages`))
	})
}

// After a day the key is free, and its row is swept.
func TestKeysOfMessagesExpire(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	ctx := t.Context()
	c.arrive(t, textOf("ann", "1", "one"))
	id := c.value(t, `SELECT id FROM conversations`)
	_, _, err := c.SendKeyed(ctx, "usr_1", "org_1", id, []string{"x"}, keyOf("k", "x"))
	require.NoError(t, err)
	c.pass(sendKeyLife - time.Second)
	_, _, err = c.SendKeyed(ctx, "usr_1", "org_1", id, []string{"y"}, keyOf("k", "y"))
	require.ErrorIs(t, err, ErrKeyReused)
	c.pass(time.Second)
	_, replayed, err := c.SendKeyed(ctx, "usr_1", "org_1", id, []string{"y"}, keyOf("k", "y"))
	require.NoError(t, err)
	require.False(t, replayed)
	require.NoError(t, sweepTombstones(ctx, c.db))
	require.Equal(t, "1", c.value(t, `SELECT count(*) FROM message_keys`))
	c.pass(sendKeyLife)
	require.NoError(t, sweepTombstones(ctx, c.db))
	require.Equal(t, "0", c.value(t, `SELECT count(*) FROM message_keys`))
}
