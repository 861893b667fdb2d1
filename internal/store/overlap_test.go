package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestDeliveriesBesideACommit guarantees that on PostgreSQL a delivery that waits in the server at its end holds no other customer's up, and
// that the same customer's next one is stored after it.
func TestDeliveriesBesideACommit(t *testing.T) {
	t.Parallel()
	m := newMeter(t, store.Postgres)
	m.db.Unhurried()
	m.deliver(t, "ann 1", "ann")
	m.deliver(t, "bob 1", "bob")
	conversations := map[string]string{}
	list, err := m.queue.Conversations(t.Context(), m.wallet.OrgID, inbox.ConversationFilter{}, store.Page{Limit: 10})
	require.NoError(t, err)
	for _, c := range list {
		conversations[c.Address] = c.ID
	}
	storetest.Fill(t, m.db, `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END'`,
		fmt.Sprintf(`CREATE TRIGGER waits BEFORE INSERT ON messages FOR EACH ROW WHEN (NEW.conversation_id = '%s') EXECUTE FUNCTION wait()`,
			conversations["ann"]))
	conn, err := pgx.Connect(t.Context(), m.db.Location().DSN)
	require.NoError(t, err)
	defer conn.Close(context.Background()) // it has let go of the lock
	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_lock(1)`)
	require.NoError(t, err)

	ended := make(chan error, 2)
	begin := func(id string, waiting int) {
		go func() { ended <- m.enqueue(textOf(id, "ann")) }()
		require.Eventually(t, func() bool {
			var n int
			err := m.db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
			return err == nil && n == waiting
		}, time.Minute, time.Millisecond)
	}
	begin("ann 2", 1)
	bob := make(chan error, 1)
	go func() { bob <- m.enqueue(textOf("bob 2", "bob")) }()
	select {
	case err := <-bob:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "bob waits for ann")
	}
	begin("ann 3", 2)
	require.Empty(t, ended)
	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_unlock(1)`)
	require.NoError(t, err)
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	for customer, count := range map[string]int{"ann": 3, "bob": 2} {
		messages, err := m.queue.Messages(t.Context(), m.wallet.OrgID, conversations[customer], store.Page{Limit: 10})
		require.NoError(t, err)
		require.Len(t, messages, count)
		require.Equal(t, fmt.Sprintf("text of %s %d", customer, count), messages[count-1].Text)
	}
}
