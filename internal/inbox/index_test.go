package inbox

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// recorder is the inbox, noting every statement it runs.
type recorder struct {
	mu    sync.Mutex
	texts map[string][]any
}

func (*recorder) Name() string { return Kind.Name() }

func (r *recorder) Apply(ctx context.Context, tx store.Tx, ops []store.Op) []error {
	return Kind.Apply(ctx, &recordingTx{tx, r}, ops)
}

func (r *recorder) note(text string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.texts != nil && !strings.HasPrefix(text, "INSERT") && !strings.Contains(text, "pg_notify") {
		r.texts[text] = args
	}
}

type recordingTx struct {
	store.Tx

	recorder *recorder
}

func (tx *recordingTx) Query(ctx context.Context, each func(store.Row) error, text string, args ...any) error {
	tx.recorder.note(text, args)
	return tx.Tx.Query(ctx, each, text, args...)
}

func (tx *recordingTx) Queue(want int64, text string, args ...any) {
	tx.recorder.note(text, args)
	tx.Tx.Queue(want, text, args...)
}

func (tx *recordingTx) QueueQuery(each func(store.Row) error, text string, args ...any) {
	tx.recorder.note(text, args)
	tx.Tx.QueueQuery(each, text, args...)
}

// fullScan is how the engines' plans say that a whole table is read.
var fullScan = map[store.Engine]*regexp.Regexp{
	store.SQLite:   regexp.MustCompile(`SCAN (\w+ )*(conversations|messages|turns|outbound_messages|[mtoc])( USING PRIMARY KEY)?$`),
	store.Postgres: regexp.MustCompile(`Seq Scan on (conversations|messages|turns|outbound_messages)`),
}

// Nothing that a delivery, a worker or a poll runs reads a whole table of the queue, on either engine, once the tables
// have rows enough for an index to pay.
func TestStatementsUseIndexes(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			recorder := &recorder{}
			q := newInboxTest(t, storetest.OpenAt(t, storetest.Location(t, engine), store.Options{Kinds: []store.Kind{recorder}}))
			fill(t, q)
			recorder.texts = map[string][]any{}
			q.everything(t)

			texts := recorder.texts
			now := int64(2_000_000_000_000)
			texts[countWaiting] = []any{"org_1", MaxWaiting, now}
			require.Greater(t, len(texts), 25)
			maps.Copy(texts, map[string][]any{
				selectAsking: {"cnv_7"}, selectUnsent: {"cnv_7"}, selectWaiting: {"cnv_7", 1000}, selectEarlier: {"cnv_7", "", 50},
				selectDelivered: {"cnv_7", 50}, selectInterrupted[len(listSizes)-1]: {"cnv_7", "trn_7"}, selectUnanswered: {"cnv_7", "org_1"}, selectOpened: {"cnv_7", "org_1", int64(900)}, strings.ReplaceAll(nextDue, "{but}", ""): {now}, selectDepth: {now},
				selectLags: {now, 10}, selectStandingByCode: {},
				selectStanding: {now, 10, 10, now}, selectDead: {10},
				selectSweepable: {"org_1", "", now, retentionPage}, selectTurnPlaces[0]: store.Arguments(make([]string, listSizes[0]), any("org_1")),
			})
			for text, args := range texts {
				plan := q.plan(t, text, args)
				for line := range strings.Lines(plan) {
					require.False(t, fullScan[engine].MatchString(strings.TrimSpace(line)), "%s\n%s", text, plan)
				}
			}
		})
	}
}

// fill adds conversations that are quiet, with messages that were answered.
func fill(t *testing.T, q *inboxTest) {
	t.Helper()
	conversations, perConversation := 15_000, 2
	if q.db.Engine() == store.SQLite { // which is slow under the race detector
		conversations = 1_000
	}
	empty := map[store.Engine]string{store.SQLite: "x''", store.Postgres: "''::bytea"}[q.db.Engine()]
	series := `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) `
	storetest.Fill(t, q.db,
		fmt.Sprintf(`INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, state, attention, lease_until,
		lease_token, attempts, paused_until, last_customer_at, created_at, updated_at) `+series+`
		SELECT 'cnv_' || i, 'org_1', 'chn_1', 'old ' || i, '', 'assistant', '', 0, 0, 0, 0, 0, 1, 1 FROM n`, conversations),
		fmt.Sprintf(`INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, code, attempts, created_at,
		updated_at) `+series+`SELECT 'trn_' || i, 'org_1', 'chn_1', 'cnv_' || (i %% %d + 1), 'a', 'answered', '', 0, i, i FROM n`,
			conversations*perConversation, conversations),
		fmt.Sprintf(`INSERT INTO messages (id, org_id, channel_id, conversation_id, platform_message_id, author, kind, body,
		turn_id, handled, sent_at, received_at) `+series+`
		SELECT 'msg_' || i, 'org_1', 'chn_1', 'cnv_' || (i %% %d + 1), 'old ' || i, 'customer', 'text', `+empty+`, 'trn_' || i, FALSE, i, i FROM n`,
			conversations*perConversation, conversations),
		fmt.Sprintf(`INSERT INTO outbound_messages (id, org_id, channel_id, conversation_id, turn_id, part, author, body, state,
		code, platform_message_id, attempts, created_at, updated_at) `+series+`
		SELECT 'out_' || i, 'org_1', 'chn_1', 'cnv_' || (i %% %d + 1), 'trn_' || i, 0, 'assistant', `+empty+`, 'sent', '', 'p' || i, 0, i, i FROM n`,
			conversations*perConversation, conversations),
		`UPDATE outbound_messages SET platform_message_id = '`+q.messageID("p7")+`' WHERE platform_message_id = 'p7'`,
		`ANALYZE`,
	)
}

// everything runs every operation of the queue once.
func (q *inboxTest) everything(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	var items []Item
	for n := range 100 {
		items = append(items, textOf("c"+number(n), "m"+number(n), "text"))
	}
	q.arrive(t, append(items, echoOf("c1", "h1"), echoSaying("c4", "h2", "by hand", 5), Item{Kind: platforms.Blocked, CustomerRef: "c2"}, Item{Kind: platforms.FailedDelivery, MessageID: "p7"})...)
	q.arrive(t, tookBack("c3", "m3"), tookBack("c7", "p7"))
	lease := q.take(t)
	turnID := q.begin(t, lease)
	q.arrive(t, textOf(lease.CustomerRef, "more", "more"))
	q.superseded(t, lease, turnID)
	turnID = q.begin(t, lease)
	require.NoError(t, q.BeginCall(ctx, lease, Turn{ID: turnID, Request: []byte("shorter")}, nil))
	require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: turnID, Code: "insufficient_credits"}))
	require.NoError(t, q.Resume(ctx, turnID, 0))
	require.NoError(t, q.Backoff(ctx, lease, 0))
	leases, err := q.Lease(ctx, Places{Free: 100}, life)
	require.NoError(t, err)
	lease = leases[slices.IndexFunc(leases, func(l Lease) bool { return l.ConversationID == lease.ConversationID })]
	parts, err := q.Answer(ctx, lease, turnID, []string{"a", "b"}, true)
	require.NoError(t, err)
	require.NoError(t, q.Unmark(ctx, lease, ""))
	require.NoError(t, q.Sending(ctx, lease, parts[0].ID))
	require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "new", parts[1].ID))
	require.NoError(t, q.SendFailed(ctx, lease, parts[1].ID, OutboundFailed, "x", SendFailure{RestOfTurn: true}))
	require.NoError(t, q.Release(ctx, lease))
	require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
	require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", lease.ConversationID))
	require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
	require.NoError(t, q.Resend(ctx, "usr_1", "org_1", lease.ConversationID, parts[1].ID, false))
	require.ErrorIs(t, q.Dismiss(ctx, "usr_1", "org_1", lease.ConversationID, ""), ErrEnded)
	_, _, err = q.SendKeyed(ctx, "usr_1", "org_1", lease.ConversationID, []string{"x"}, keyOf("k", "x"))
	require.NoError(t, err)
	q.arrive(t, imageOf("pictures", "n1"))
	q.due(t)
	leases, err = q.Lease(ctx, Places{Free: 100}, life)
	require.NoError(t, err)
	shown := leases[slices.IndexFunc(leases, func(l Lease) bool { return l.CustomerRef == "pictures" })]
	_, err = q.SayNotice(ctx, shown, idsOf(q.open(t, shown).Waiting), []string{"x"})
	require.NoError(t, err)
	q.exec(t, `UPDATE conversations SET attention = 'media_message' WHERE id = $1`, shown.ConversationID)
	_, err = q.SendAsHuman(ctx, "usr_1", "org_1", shown.ConversationID, []string{"x"})
	require.NoError(t, err)
	require.NoError(t, q.db.Organizations.SetRetention(ctx, "usr_1", "org_1", store.MinRetentionDays))
	var swept Swept
	err = sweepConversation(ctx, q.db, store.Retention{OrgID: "org_1", Days: 7}, "cnv_1", &swept)
	require.NoError(t, err)
	require.NotZero(t, swept.Turns)
	require.NoError(t, q.DeleteConversation(ctx, "usr_1", "org_1", lease.ConversationID))
}

// plan is how the engine would run a statement, a step a line.
func (q *inboxTest) plan(t *testing.T, text string, args []any) string {
	t.Helper()
	explain := "EXPLAIN "
	if q.db.Engine() == store.SQLite {
		explain = "EXPLAIN QUERY PLAN "
	}
	for i, arg := range args {
		if n, ok := arg.(int); ok {
			args[i] = int64(n)
		}
	}
	lines, err := store.ReadRows(t.Context(), q.db, text, func(row store.Row) (line string, err error) {
		if q.db.Engine() == store.SQLite {
			var id, parent, unused int
			err = row.Scan(&id, &parent, &unused, &line)
			return line, err
		}
		err = row.Scan(&line)
		return line, err
	}, explain+text, args...)
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// TestRowsAreFoundInSmallTables guarantees that a delivery finds its conversations and messages by their whole keys, and writes conversations
// by their ids, also by a plan that a connection made while the tables were small, and keeps.
func TestRowsAreFoundInSmallTables(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 20, 60, 200} {
		for _, analyzed := range []string{"", "ANALYZE"} {
			if analyzed != "" && size < 20 {
				continue // a few counted rows are read as quickly, and counted again when there are fifty more
			}
			t.Run(fmt.Sprint(size, analyzed), func(t *testing.T) {
				t.Parallel()
				location, recorder := storetest.Location(t, store.Postgres), &recorder{texts: map[string][]any{}}
				q := newInboxTest(t, storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{recorder}}))
				var items []Item
				for n := range size {
					items = append(items, textOf("c"+number(n), "m"+number(n), "text"))
				}
				q.arrive(t, items...)
				q.arrive(t, textOf("ann", "1", "hello"), textOf("bob", "2", "hello"))
				q.arrive(t, textOf("ann", "3", "hello"), textOf("bob", "4", "hello"))
				q.arrive(t, Item{Kind: platforms.Blocked, CustomerRef: "ann"}, Item{Kind: platforms.Blocked, CustomerRef: "bob"})
				plans := q.keptPlans(t, location, analyzed, slices.Collect(maps.Keys(recorder.texts)))
				for text, index := range map[string]string{
					findConversationsText: "conversations_customer", selectSeenText: "messages_org_id_channel_id_platform_message_id_key",
					updateHeard: "conversations_pkey", updateSeveral: "conversations_pkey",
				} {
					text, _, _ = strings.Cut(text, "{list}")
					found := slices.DeleteFunc(slices.Collect(maps.Keys(plans)), func(noted string) bool { return !strings.HasPrefix(noted, text) })
					require.Len(t, found, 1, "any number of rows is one statement: %s", text)
					require.Regexp(t, `using `+index+` on [^I]*Index Cond`, plans[found[0]])
				}
			})
		}
	}
}

// keptPlans returns the plans for any arguments of statements, which are made on the tables as they are.
func (q *inboxTest) keptPlans(t *testing.T, location store.Location, before string, texts []string) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), location.DSN)
	require.NoError(t, err)
	defer conn.Close(context.Background()) // it only read
	_, err = conn.Exec(t.Context(), `SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off;
		SET enable_mergejoin = off; `+before)
	require.NoError(t, err)
	plans := map[string]string{}
	for i, text := range texts {
		name := fmt.Sprint("statement_", i)
		prepared, err := conn.Prepare(t.Context(), name, text)
		require.NoError(t, err)
		if len(prepared.ParamOIDs) == 0 {
			continue
		}
		nulls := strings.TrimSuffix(strings.Repeat("NULL,", len(prepared.ParamOIDs)), ",")
		rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE "+name+"("+nulls+")")
		require.NoError(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		plans[text] = strings.Join(plan, "\n")
	}
	return plans
}
