package inbox

import (
	"bytes"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Lists are in order of creation, in pages, filtered, and of one organization.
func TestConversationLists(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		second, foreign := q.channel(t, "org_1", "chn_2"), q.channel(t, "org_2", "chn_3")
		for n := range 5 {
			q.arrive(t, textOf("c"+number(n), number(n), "text"))
		}
		require.NoError(t, q.Enqueue(ctx, []Arrival{{second, []Item{textOf("d", "1", "text")}}, {foreign, []Item{textOf("e", "1", "text")}}}))
		refs := func(filter ConversationFilter, page store.Page) (refs []string) {
			list, err := q.Conversations(ctx, "org_1", filter, page)
			require.NoError(t, err)
			for _, c := range list {
				refs = append(refs, c.CustomerRef)
			}
			return refs
		}
		all, err := q.Conversations(ctx, "org_1", ConversationFilter{}, pageAll)
		require.NoError(t, err)
		require.Equal(t, []string{"c0", "c1", "c2", "c3", "c4", "d"}, refs(ConversationFilter{}, pageAll))
		require.Equal(t, []string{"c0", "c1"}, refs(ConversationFilter{}, store.Page{Limit: 2}))
		require.Equal(t, []string{"c2", "c3"}, refs(ConversationFilter{}, store.Page{Limit: 2, After: all[1].ID}))
		require.Equal(t, []string{"d"}, refs(ConversationFilter{ChannelID: "chn_2"}, pageAll))
		require.Empty(t, refs(ConversationFilter{ChannelID: "chn_3"}, pageAll))
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", all[3].ID))
		require.Equal(t, []string{"c3"}, refs(ConversationFilter{State: StateHuman, ChannelID: "chn_1"}, pageAll))

		recent := ConversationFilter{Recent: true}
		for at, n := range []int{5, 0, 2, 1, 4, 3} { // c3 wrote last; c1 and c2 at once
			q.exec(t, `UPDATE conversations SET last_customer_at = $2 WHERE id = $1`, all[n].ID, int64(max(at, 3)))
		}
		require.Equal(t, []string{"c3", "c4", "d", "c2", "c1", "c0"}, refs(recent, pageAll))
		require.Equal(t, []string{"d", "c2"}, refs(recent, store.Page{Limit: 2, After: all[4].ID}))
		require.Len(t, refs(recent, store.Page{After: "cnv_unknown"}), len(all))
		require.Equal(t, []string{"c3"}, refs(ConversationFilter{Recent: true, State: StateHuman, ChannelID: "chn_1"}, pageAll))
		q.exec(t, `UPDATE conversations SET attention = 'no_agent' WHERE id = $1 OR id = $2`, all[0].ID, all[5].ID)
		require.Equal(t, []string{"c0", "d"}, refs(ConversationFilter{Attention: true}, pageAll))
		require.Equal(t, []string{"d", "c0"}, refs(ConversationFilter{Attention: true, Recent: true}, pageAll))

		_, err = q.Conversation(ctx, "org_2", all[0].ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = q.Messages(ctx, "org_2", all[0].ID, pageAll)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = q.SendAsHuman(ctx, "usr_1", "org_2", all[0].ID, []string{"x"})
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = q.SendAsHuman(ctx, "usr_1", "org_1", all[0].ID, nil)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorIs(t, q.HandBack(ctx, "usr_1", "org_2", all[3].ID), store.ErrNotFound)
		require.ErrorIs(t, q.DeleteConversation(ctx, "usr_1", "org_2", all[0].ID), store.ErrNotFound)
		require.ErrorIs(t, q.DeleteConversation(ctx, "usr_1", "org_1", "cnv_unknown"), store.ErrNotFound)
	})
}

// Messages of both directions are read in the order they were stored, page by page.
func TestMessagePages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		var want []string
		for n := range 4 {
			q.arrive(t, textOf("ann", "a"+number(n), "a"+number(n)), textOf("ann", "b"+number(n), "b"+number(n)))
			q.reply(t, "r"+number(n), "p"+number(n))
			want = append(want, "a"+number(n), "b"+number(n), "r"+number(n))
		}
		list, err := q.Conversations(t.Context(), "org_1", ConversationFilter{}, pageAll)
		require.NoError(t, err)
		for _, size := range []int{1, 2, 5, 100} {
			var got []string
			page := store.Page{Limit: size}
			for {
				messages, err := q.Messages(t.Context(), "org_1", list[0].ID, page)
				require.NoError(t, err)
				require.LessOrEqual(t, len(messages), size)
				if len(messages) == 0 {
					break
				}
				got = append(got, textsOf(messages)...)
				page.After = messages[len(messages)-1].ID
			}
			require.Equal(t, want, got, "pages of %d", size)
			require.Equal(t, want, q.fromTheEnd(t, list[0].ID, size), "pages of %d", size)
		}
		_, err = q.LatestMessages(t.Context(), "org_2", list[0].ID, pageAll)
		require.ErrorIs(t, err, store.ErrNotFound)
		q.arrive(t, textOf("ann", "last", "last"))
		work, err := q.Open(t.Context(), q.take(t), 4)
		require.NoError(t, err)
		require.Equal(t, want[len(want)-4:], textsOf(work.History))
	})
}

// A value that doesn't open costs people and workers that value alone: lists show the rest, and one line of the log says which.
func TestUnreadableValues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		var logged bytes.Buffer
		q.Log = slog.New(slog.NewTextHandler(&logged, nil))
		q.arrive(t, textOf("ann", "1", "one"))
		q.reply(t, "answer", "p1")
		q.arrive(t, textOf("ann", "2", "two"))
		q.arrive(t, textOf("bob", "3", "three"))
		names := func() (names []string) {
			for _, recent := range []bool{false, true} {
				list, err := q.Conversations(ctx, "org_1", ConversationFilter{Recent: recent}, pageAll)
				require.NoError(t, err)
				for _, c := range list {
					names = append(names, c.CustomerName)
				}
			}
			slices.Sort(names)
			return slices.Compact(names)
		}
		require.Equal(t, []string{"Ms ann", "Ms bob"}, names())
		require.Empty(t, logged.String())

		id := q.value(t, `SELECT id FROM conversations WHERE customer_ref = '`+q.ref("ann")+`'`)
		lost := q.value(t, `SELECT id FROM messages WHERE platform_message_id = '`+q.messageID("2")+`'`)
		q.exec(t, `UPDATE conversations SET customer_name = $2 WHERE id = $1`, id, []byte("damaged"))
		q.exec(t, `UPDATE messages SET body = $2 WHERE id = $1`, lost, []byte("damaged"))
		q.exec(t, `UPDATE outbound_messages SET body = $1`, []byte("damaged"))
		require.Equal(t, []string{"", "Ms bob"}, names())
		one, err := q.Conversation(ctx, "org_1", id)
		require.NoError(t, err)
		require.Empty(t, one.CustomerName)
		want := []string{"one", UnreadableText, UnreadableText}
		messages, err := q.Messages(ctx, "org_1", id, pageAll)
		require.NoError(t, err)
		require.Equal(t, want, textsOf(messages))
		require.Equal(t, want, q.fromTheEnd(t, id, 2))
		require.Equal(t, 1, strings.Count(logged.String(), "can't be opened"))
		require.Contains(t, logged.String(), id)

		leases, err := q.Lease(ctx, Places{Free: 10}, life)
		require.NoError(t, err)
		for _, lease := range leases {
			work := q.open(t, lease)
			require.Equal(t, lease.ConversationID == id, work.Waiting[0].Unreadable)
			if lease.ConversationID == id {
				require.Equal(t, []string{"one"}, textsOf(work.History))
			}
		}
	})
}

// fromTheEnd reads all messages newest first, and returns their texts oldest first.
func (q *inboxTest) fromTheEnd(t *testing.T, conversationID string, size int) (texts []string) {
	t.Helper()
	for page := (store.Page{Limit: size}); ; {
		messages, err := q.LatestMessages(t.Context(), "org_1", conversationID, page)
		require.NoError(t, err)
		require.LessOrEqual(t, len(messages), size)
		if len(messages) == 0 {
			slices.Reverse(texts)
			return texts
		}
		texts = append(texts, textsOf(messages)...)
		page.After = messages[len(messages)-1].ID
	}
}

// A deleted conversation leaves nothing but the audit log.
func TestDeleteConversation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		q.reply(t, "a", "p1")
		q.arrive(t, textOf("ann", "2", "two"))
		lease := q.take(t)
		q.begin(t, lease)
		require.NoError(t, q.DeleteConversation(t.Context(), "usr_1", "org_1", lease.ConversationID))
		for _, table := range []string{"conversations", "messages", "turns", "outbound_messages"} {
			require.Equal(t, "0", q.value(t, `SELECT count(*) FROM `+table))
		}
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE action = 'conversation.delete' AND actor = 'usr_1'`))
		q.arrive(t, textOf("ann", "3", "three"))
		require.Equal(t, []string{"three"}, textsOf(q.open(t, q.take(t)).Waiting))
	})
}

// A channel that is deleted takes its conversations with it. Its worker has lost them, and what still arrives for it is
// dropped without standing in the way of the other tenants of a delivery.
func TestDeletedChannel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		second := q.channel(t, "org_2", "chn_2")
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		require.NoError(t, q.db.Channels.Delete(t.Context(), "test", "org_1", "chn_1"))
		_, err := q.Open(t.Context(), lease, 10)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorIs(t, q.Release(t.Context(), lease), ErrLeaseLost)
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{
			{q.route, []Item{textOf("ann", "2", "two"), echoOf("ann", "h1"), {Kind: platforms.Blocked, CustomerRef: "ann"}}},
			{second, []Item{textOf("ann", "2", "three")}},
		}))
		require.Equal(t, []string{"three"}, textsOf(q.open(t, q.take(t)).Waiting))
		q.idle(t)
	})
}

// A delivery that the platform repeats after its conversation was deleted brings nothing back, in whichever company it
// comes, until no platform repeats it any more.
func TestRepeatedDeliveryAfterDeletion(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		image := Item{Kind: platforms.Event, CustomerRef: "ann", MessageID: "2", Text: "image"}
		q.arrive(t, textOf("ann", "1", "one"), image)
		q.reply(t, "a", "p1")
		id := q.value(t, `SELECT id FROM conversations`)
		require.NoError(t, q.DeleteConversation(t.Context(), "usr_1", "org_1", id))
		require.Equal(t, "3", q.value(t, `SELECT count(*) FROM message_tombstones`))
		echo := Item{Kind: platforms.HumanEcho, CustomerRef: "ann", MessageID: "p1", Text: "a"}
		q.arrive(t, textOf("ann", "1", "one"), image, echo)
		require.Equal(t, [4]string{"0", "0", "0", "0"}, q.tables(t, "org_1"))

		q.arrive(t, textOf("ann", "1", "one"), textOf("ann", "3", "new"), textOf("bob", "1 ", "other"))
		require.Equal(t, [4]string{"2", "2", "0", "0"}, q.tables(t, "org_1"), "what is new is stored")
		q.arrive(t, textOf("ann", "1", "one"), echo)
		require.Equal(t, [4]string{"2", "2", "0", "0"}, q.tables(t, "org_1"))
		second := q.channel(t, "org_2", "chn_2")
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{second, []Item{textOf("ann", "1", "one")}}}))
		require.Equal(t, "1", q.tables(t, "org_2")[1], "another channel's message of the same id is another one")

		q.exec(t, `UPDATE message_tombstones SET expires_at = expires_at - $1`, int64(7*retentionDay-60_000))
		_, err := SweepRetention(t.Context(), q.db)
		require.NoError(t, err)
		require.Equal(t, "3", q.value(t, `SELECT count(*) FROM message_tombstones`))
		q.exec(t, `UPDATE message_tombstones SET expires_at = expires_at - $1`, int64(60_000))
		_, err = SweepRetention(t.Context(), q.db)
		require.NoError(t, err)
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM message_tombstones`))
		before := q.tables(t, "org_1")
		q.arrive(t, textOf("ann", "1", "one"))
		require.Equal(t, [4]string{"2", "2", "0", "0"}, before)
		require.Equal(t, [4]string{"2", "3", "0", "0"}, q.tables(t, "org_1"), "after that week it is a new message")
		q.healthy(t)
	})
}

// A tombstone is a hash that reveals no id. It is kept only while the platform may repeat the delivery.
func TestTombstones(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "old message", "one"))
		q.reply(t, "a", "old answer")
		q.age(t, 7)
		q.arrive(t, textOf("ann", "new message", "two"))
		require.NoError(t, q.DeleteConversation(t.Context(), "usr_1", "org_1", q.value(t, `SELECT id FROM conversations`)))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM message_tombstones`))
		var hash []byte
		require.NoError(t, q.db.Reader().QueryRowContext(t.Context(), `SELECT hash FROM message_tombstones`).Scan(&hash))
		require.NotContains(t, string(hash), "message")
		require.NotContains(t, string(hash), "chn_1")

		var many []Item // more than one transaction takes
		for n := range tombstoneRows + 7 {
			many = append(many, textOf("bob", "m"+number(n), "text"))
		}
		q.arrive(t, many...)
		require.NoError(t, q.DeleteConversation(t.Context(), "usr_1", "org_1", q.value(t, `SELECT id FROM conversations`)))
		q.exec(t, `UPDATE message_tombstones SET expires_at = 1`)
		_, err := SweepRetention(t.Context(), q.db)
		require.NoError(t, err)
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM message_tombstones`))
	})
}

// A page of long messages ends early, in both directions of reading, and the pages together have every message once. So has the
// export.
func TestPagesOfLongMessages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		long := strings.Repeat("x", maxPageText/2)
		var want []string
		for i, text := range []string{"a" + long, "b" + long, "c", "d" + long + long, "e" + long, "f", "g"} {
			q.arrive(t, textOf("ann", strconv.Itoa(i), text))
			want = append(want, text[:1])
			if i%2 == 0 {
				q.reply(t, "answer to "+text[:1], "p"+strconv.Itoa(i))
				want = append(want, "answer to "+text[:1])
			}
		}
		list, err := q.Conversations(t.Context(), "org_1", ConversationFilter{}, pageAll)
		require.NoError(t, err)
		id := list[0].ID
		short := func(texts []string) (all []string) {
			for _, text := range texts {
				all = append(all, strings.Trim(text, "x"))
			}
			return all
		}
		var seen []string
		pages := 0
		for page := (store.Page{Limit: 50}); ; pages++ {
			messages, err := q.Messages(t.Context(), "org_1", id, page)
			require.NoError(t, err)
			if len(messages) == 0 {
				break
			}
			size := 0
			for _, m := range messages[:len(messages)-1] {
				size += len(m.Text)
			}
			require.LessOrEqual(t, size, 3*maxPageText)
			seen = append(seen, short(textsOf(messages))...)
			page.After = messages[len(messages)-1].ID
		}
		require.Equal(t, want, seen)
		require.Greater(t, pages, 1)
		require.Equal(t, want, short(q.fromTheEnd(t, id, 50)))
		var exported strings.Builder
		require.NoError(t, q.Export(t.Context(), "org_1", id, &exported, func() {}))
		require.Equal(t, len(want), strings.Count(exported.String(), `"text":`))
	})
}
