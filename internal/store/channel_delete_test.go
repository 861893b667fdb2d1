package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// queueTables hold what belongs to a channel.
var queueTables = []string{"conversations", "messages", "turns", "outbound_messages"}

const insertConversation = `INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, state, attention, lease_until,
	lease_token, attempts, paused_until, last_customer_at, created_at, updated_at)
	VALUES ($1, $2, $3, $4, '', 'assistant', '', 0, 0, 0, 0, 0, 1, 1)`

const insertMessage = `INSERT INTO messages (id, org_id, channel_id, conversation_id, platform_message_id, author, kind, body, handled, sent_at, received_at)
	VALUES ($1, $2, $3, $4, $1, 'customer', 'text', $5, $6, 1, 1)`

// fillChannel adds conversations with so many messages, turns and outbound messages each. Their ids begin with the
// channel's.
func fillChannel(t *testing.T, db *store.DB, orgID, channelID string, conversations, rows int) {
	t.Helper()
	require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		for i := range conversations {
			id := fmt.Sprintf("%s/cnv_%03d", channelID, i)
			tx.Queue(1, insertConversation, id, orgID, channelID, id)
			for j := range rows {
				row := fmt.Sprintf("%s/%d", id, j)
				tx.Queue(1, insertMessage, row, orgID, channelID, id, []byte("sealed"), false)
				tx.Queue(1, `INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, code, attempts, created_at, updated_at)
					VALUES ($1, $2, $3, $4, 'agt_1', 'answered', '', 0, 1, 1)`, row, orgID, channelID, id)
				tx.Queue(1, `INSERT INTO outbound_messages (id, org_id, channel_id, conversation_id, turn_id, part, author, body, state, code, platform_message_id, attempts, created_at, updated_at)
					VALUES ($1, $2, $3, $4, $1, 0, 'assistant', $5, 'sent', '', $1, 0, 1, 1)`, row, orgID, channelID, id, []byte("sealed"))
			}
		}
		return nil
	}))
}

// rowsOf counts what the database holds about a channel.
func rowsOf(t *testing.T, db *store.DB, channelID string) (n int) {
	t.Helper()
	for _, table := range queueTables {
		var rows int
		require.NoError(t, db.Reader().QueryRow(`SELECT count(*) FROM `+table+` WHERE channel_id = $1`, channelID).Scan(&rows))
		n += rows
	}
	return n
}

// What customers said doesn't outlive the channel, however much it is; other channels keep theirs.
func TestDeleteChannel(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		for _, id := range []string{"chn_1", "chn_2", "chn_3"} {
			createChannel(t, db, store.Channel{ID: id, OrgID: "org_1", ExternalID: id})
		}
		fillChannel(t, db, "org_1", "chn_1", 25, 3)
		fillChannel(t, db, "org_1", "chn_2", 1, 120) // more than one transaction takes of a conversation
		fillChannel(t, db, "org_1", "chn_3", 2, 2)
		before := rowsOf(t, db, "chn_3")

		require.ErrorIs(t, db.Channels.Delete(ctx, "cli", "org_2", "chn_1"), store.ErrNotFound)
		require.ErrorIs(t, db.Channels.Delete(ctx, "cli", "org_1", "chn_none"), store.ErrNotFound)
		require.Equal(t, 25*(1+3*3), rowsOf(t, db, "chn_1"), "another organization's request changes nothing")
		for _, id := range []string{"chn_1", "chn_2"} {
			require.NoError(t, db.Channels.Delete(ctx, "cli", "org_1", id))
			require.Zero(t, rowsOf(t, db, id))
			_, err := db.Channels.ByID(ctx, "org_1", id)
			require.ErrorIs(t, err, store.ErrNotFound)
			require.ErrorIs(t, db.Channels.Delete(ctx, "cli", "org_1", id), store.ErrNotFound)
		}
		require.Equal(t, before, rowsOf(t, db, "chn_3"))
		require.Equal(t, []string{"cli channel.delete chn_1", "cli channel.delete chn_2"}, actions(t, db)[5:])
		createChannel(t, db, store.Channel{ID: "chn_4", OrgID: "org_2", ExternalID: "chn_1"})
	})
}

// cancelsAfter cancels once the writer has ended its next transaction.
type cancelsAfter struct{ cancel context.CancelFunc }

func (c *cancelsAfter) ObserveBatch(store.Batch) {
	if c.cancel != nil {
		c.cancel()
	}
}

// A deletion whose caller has gone away leaves no half-deleted channel behind.
func TestDeleteChannelGoesOn(t *testing.T) {
	t.Parallel()
	observer := &cancelsAfter{}
	db := storetest.OpenAt(t, storetest.Location(t, store.SQLite), store.Options{Observer: observer})
	createOrganization(t, db, "org_1")
	createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1"})
	fillChannel(t, db, "org_1", "chn_1", 25, 1)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, db.Exec(ctx, func(context.Context, store.Tx) error {
		observer.cancel = sync.OnceFunc(func() { observer.cancel = cancel }) // not after this transaction, but the next
		return nil
	}))
	require.NoError(t, db.Channels.Delete(ctx, "cli", "org_1", "chn_1"))
	require.Error(t, ctx.Err())
	require.Zero(t, rowsOf(t, db, "chn_1"))
}

// A deletion that broke off leaves a channel that takes nothing in, and is finished by the next one.
func TestDeleteChannelAgain(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createOrganization(t, db, "org_1")
		createChannel(t, db, store.Channel{ID: "chn_1", OrgID: "org_1"})
		fillChannel(t, db, "org_1", "chn_1", 25, 1)
		stop, start := `CREATE TRIGGER stop BEFORE DELETE ON conversations WHEN OLD.id = 'chn_1/cnv_015' BEGIN SELECT RAISE(ABORT, 'stopped'); END`, `DROP TRIGGER stop`
		if db.Engine() == store.Postgres {
			write(t, db, `CREATE FUNCTION stopped() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stopped'; END $$`)
			stop = `CREATE TRIGGER stop BEFORE DELETE ON conversations FOR EACH ROW WHEN (OLD.id = 'chn_1/cnv_015') EXECUTE FUNCTION stopped()`
			start = `DROP TRIGGER stop ON conversations`
		}
		write(t, db, stop)
		require.ErrorContains(t, db.Channels.Delete(t.Context(), "cli", "org_1", "chn_1"), "stopped")
		channel, err := db.Channels.ByID(t.Context(), "org_1", "chn_1")
		require.NoError(t, err)
		require.Equal(t, store.ChannelPending, channel.State)
		require.Equal(t, 15*4, rowsOf(t, db, "chn_1"), "what a failed transaction took away is still there")
		require.Len(t, actions(t, db), 2)

		write(t, db, start)
		require.NoError(t, db.Channels.Delete(t.Context(), "cli", "org_1", "chn_1"))
		require.Zero(t, rowsOf(t, db, "chn_1"))
	})
}

// Messages that come in while a channel is deleted, by way of this process and another, don't outlive it.
func TestDeleteChannelWhileMessagesComeIn(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			dbs := []*store.DB{storetest.OpenAt(t, location, store.Options{}), storetest.OpenAt(t, location, store.Options{})}
			createOrganization(t, dbs[0], "org_1")
			createChannel(t, dbs[0], store.Channel{ID: "chn_1", OrgID: "org_1"})
			const senders = 8
			ends, came := make(chan error, senders), make(chan struct{}, senders)
			for i := range senders {
				go func() {
					ends <- keepReceiving(dbs[i%2], i, came)
				}()
			}
			for range senders {
				<-came
			}
			require.NoError(t, storetest.Insist(func() error { return dbs[0].Channels.Delete(t.Context(), "cli", "org_1", "chn_1") }))
			for range senders {
				if err := <-ends; err != nil {
					require.ErrorIs(t, err, store.ErrNotFound, "what comes in too late")
				}
			}
			require.Zero(t, rowsOf(t, dbs[1], "chn_1"))
			require.ErrorIs(t, receive(dbs[1], "late", "late"), store.ErrNotFound)
		})
	}
}

// keepReceiving stores message after message as a webhook does, until it finds the channel closed, or a message comes
// too late. It says so when some have come in.
func keepReceiving(db *store.DB, sender int, came chan<- struct{}) error {
	for i := 0; ; i++ {
		if i == 20 {
			came <- struct{}{}
		}
		route, found, err := db.Routes.ByID(context.Background(), "chn_1")
		if err != nil || !found || route.State != store.ChannelActive {
			return err
		}
		customer, messageID := fmt.Sprintf("%d of %d", i%3, sender), fmt.Sprintf("%d/%d", sender, i)
		if err := storetest.Insist(func() error { return receive(db, customer, messageID) }); err != nil {
			return err
		}
	}
}

var errConversationGone = errors.New("the conversation is gone")

// receive stores a message as the queue does: into a conversation that it has made, if need be, and locked.
func receive(db *store.DB, customer, messageID string) error {
	for {
		err := db.Exec(context.Background(), func(ctx context.Context, tx store.Tx) error {
			tx.Queue(store.AnyRows, insertConversation+` ON CONFLICT DO NOTHING`, store.NewID("cnv"), "org_1", "chn_1", customer)
			var id string
			err := tx.Query(ctx, func(row store.Row) error { return row.Scan(&id) },
				`SELECT id FROM conversations WHERE channel_id = 'chn_1' AND customer_ref = $1`+tx.LockRows(), customer)
			if err != nil {
				return err
			}
			if id == "" {
				return errConversationGone
			}
			tx.Queue(1, insertMessage, messageID, "org_1", "chn_1", id, []byte("sealed"), false)
			return nil
		})
		if !errors.Is(err, errConversationGone) {
			return err
		}
	}
}
