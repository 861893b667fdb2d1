package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// WithdrawnText is the text of a message that its sender has taken back.
const WithdrawnText = "[This message was deleted by its sender.]"

// platformActor is the audit actor of changes that a platform requested.
const platformActor = "platform"

// applyRare applies the edits and deletions of a delivery: of messages that their senders have changed or taken back, and of all data about
// customers who demand that. It also marks the channels that may not send, by the platform's report. Each has a transaction of its own, after
// that of the delivery's messages. It may be repeated.
func (q *Queue) applyRare(ctx context.Context, arrivals []Arrival) error {
	for i := range arrivals {
		route := &arrivals[i].Route
		for j := range arrivals[i].Items {
			item := &arrivals[i].Items[j]
			if !item.isRare() {
				continue
			}
			sealed := item.sealed(q.ids.Load(), route.OrgID)
			key := messageKey{route.OrgID, route.ChannelID, sealed.MessageID}
			var err error
			switch item.Kind {
			case platforms.Unsent:
				err = q.takeBack(ctx, key)
			case platforms.Edited:
				err = q.edit(ctx, key, item.Text)
			case platforms.ErasureWanted:
				err = q.eraseWanted(ctx, route, &sealed)
			case platforms.AccessRefused:
				err = q.db.ChannelCredentials.RefuseReported(ctx, platformActor, route.OrgID, route.ChannelID, item.SentAt)
			default:
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// eraseWanted erases the customer with a sealed id, if there is one.
func (q *Queue) eraseWanted(ctx context.Context, route *store.Route, item *Item) error {
	id, err := store.ReadRow(ctx, q.db, "find a customer", store.ScanValue[string],
		`SELECT id FROM conversations WHERE org_id = $1 AND channel_id = $2 AND customer_ref = $3`,
		route.OrgID, route.ChannelID, item.CustomerRef)
	if err == nil {
		err = q.erase(ctx, platformActor, route.OrgID, id, item.SentAt)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// takeBack deletes the text of a message that its sender has taken back, and the requests that may repeat it. The message's running turn
// begins anew; any other continues, and begins anew only if it has to be repeated ([Turn.Forgotten]). A message that arrives later is not
// stored.
func (q *Queue) takeBack(ctx context.Context, key messageKey) error {
	var received, sent string // the message's id, in one of the two directions
	var storedAt int64
	var turn, running string // the turn that answers it, and the running turn of its conversation
	var drafted bool         // a draft waits that was made after the message
	op := &operation{find: findMessage(key, true)}
	op.reads = append(op.reads, func(s *session) {
		received, sent, turn, running, drafted = "", "", "", "", false
		s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&received, &storedAt, &turn) },
			`SELECT id, received_at, coalesce(turn_id, '') FROM messages WHERE org_id = $1 AND channel_id = $2 AND platform_message_id = $3`,
			key.orgID, key.channelID, key.platformID)
		s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&sent, &storedAt) },
			`SELECT id, created_at FROM outbound_messages WHERE org_id = $1 AND channel_id = $2 AND platform_message_id = $3
				AND platform_message_id <> '' AND state = 'sent'`, key.orgID, key.channelID, key.platformID)
		s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&running) }, `SELECT id FROM `+runningTurn, op.conversation)
		s.tx.QueueQuery(func(row store.Row) error {
			madeAt, err := store.ScanValue[int64](row)
			drafted = madeAt >= storedAt
			return err
		}, `SELECT created_at FROM turns WHERE conversation_id = $1 AND state = 'needs_attention' AND code = '`+codes.Draft+`'`, op.conversation)
	})
	op.run = func(s *session, c *conversationRow) error {
		if c == nil {
			s.queueTombstones([]tombstoneRow{{key.orgID, tombstone(key)}}, tombstoneDays)
			return nil
		}
		withdrawn := []byte(WithdrawnText)
		if received != "" {
			s.tx.Queue(1, `UPDATE messages SET body = $2, handled = TRUE WHERE id = $1`, received,
				q.ring.Seal(withdrawn, vault.InboundBody(key.orgID, received)))
			media.Drop(s.tx, received)
		}
		if sent != "" { // of a template also the values
			s.tx.Queue(1, `UPDATE outbound_messages SET body = $2, template = NULL, file_id = NULL WHERE id = $1`, sent,
				q.ring.Seal(withdrawn, vault.OutboundBody(key.orgID, sent)))
			media.DropSent(s.tx, sent)
		}
		if running != "" && running == turn { // the texts that are left wait for a turn without this one
			s.endTurn(c, running, turnEnd{state: TurnSuperseded})
			c.runBy(s.now)
		}
		if drafted { // it may repeat the text; as with a new text, the next draft is about the texts that are left
			s.reopenStanding(c)
			c.setAttention("")
			c.runBy(s.now)
		}
		s.tx.Queue(store.AnyRows, `UPDATE turns SET request = NULL, draft = NULL WHERE conversation_id = $1 AND created_at >= $2
			AND (request IS NOT NULL OR draft IS NOT NULL)`, c.id, storedAt)
		c.markUpdated(s.now)
		if c.attention != "" {
			return nil
		}
		return s.countUnanswered(c)
	}
	return q.do(ctx, "delete a message that was taken back", op)
}

// findMessage finds the conversation of a customer's message, which never changes, or with sent also that of a message to a customer.
func findMessage(key messageKey, sent bool) func(ctx context.Context, tx store.Tx) (string, error) {
	text := `SELECT conversation_id FROM messages WHERE org_id = $1 AND channel_id = $2 AND platform_message_id = $3`
	if sent {
		text += ` UNION SELECT conversation_id FROM outbound_messages
			WHERE org_id = $1 AND channel_id = $2 AND platform_message_id = $3 AND platform_message_id <> ''`
	}
	return func(ctx context.Context, tx store.Tx) (id string, err error) {
		err = tx.Query(ctx, func(row store.Row) error { return row.Scan(&id) }, text, key.orgID, key.channelID, key.platformID)
		return id, err
	}
}

// edit replaces the text of a message that its sender has changed. A waiting text is answered as it reads now; a turn for the old text
// gives way to a turn for the new text. An answer that was made stays.
func (q *Queue) edit(ctx context.Context, key messageKey, text string) error {
	var id string // empty without such a message
	var body []byte
	var turnID, turnState, code sql.NullString
	op := &operation{find: findMessage(key, false)}
	op.reads = append(op.reads, func(s *session) {
		id = ""
		s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&id, &body, &turnID, &turnState, &code) },
			`SELECT m.id, m.body, m.turn_id, t.state, t.code FROM messages m LEFT JOIN turns t ON t.id = m.turn_id
				WHERE m.org_id = $1 AND m.channel_id = $2 AND m.platform_message_id = $3`, key.orgID, key.channelID, key.platformID)
	})
	op.run = func(s *session, c *conversationRow) error {
		if c == nil || id == "" {
			return nil
		}
		aad := vault.InboundBody(key.orgID, id)
		if old, err := q.ring.Open(body, aad); err == nil && (string(old) == text || string(old) == WithdrawnText) {
			return nil // platforms report the preview of a link as a change, and a change that comes late brings nothing back
		}
		s.tx.Queue(1, `UPDATE messages SET body = $2, kind = 'text', edited = TRUE WHERE id = $1`, id, q.ring.Seal([]byte(text), aad))
		switch {
		case turnState.String == TurnAwaiting:
			s.endTurn(c, turnID.String, turnEnd{state: TurnSuperseded})
			c.runBy(s.now)
		case turnState.String == TurnNeedsAttention && code.String == codes.Draft: // as with a new text, the next draft is about the new one
			s.reopenStanding(c)
			c.setAttention("")
			c.runBy(s.now)
		case turnState.String == TurnNeedsAttention, turnState.String == TurnDead: // a retry asks with the new text
			s.tx.Queue(1, `UPDATE turns SET request = NULL WHERE id = $1`, turnID.String)
		}
		c.markUpdated(s.now)
		return nil
	}
	return q.do(ctx, "change a message", op)
}

// DeleteConversation deletes an organization's conversation with all its messages, which is everything that is stored about the customer.
// Hashes of the messages' ids stay for 7 days, so that a platform that repeats one of them doesn't bring it back. A worker that has the
// conversation stores nothing more. It returns [store.ErrNotFound] or a wrapped error of the store.
func (q *Queue) DeleteConversation(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "delete a conversation", onOwn(orgID, id, func(s *session, c *conversationRow) error { return s.delete(c, actor) }))
}

// delete deletes a conversation with all its rows.
func (s *session) delete(c *conversationRow, actor string) error {
	if err := s.bury(c, math.MaxInt64); err != nil {
		return err
	}
	// The cost of recent turns of a widget's conversation stays in the sum of the widget's day.
	s.tx.Queue(store.AnyRows, `INSERT INTO deleted_turns (id, org_id, channel_id, created_at, call_id)
		SELECT id, org_id, channel_id, created_at, call_id FROM turns
		WHERE conversation_id = $1 AND created_at > $2 AND widget_id IS NOT NULL`, c.id, s.now-spendDays*retentionDay)
	for _, text := range []string{
		`DELETE FROM outbound_messages WHERE conversation_id = $1`,
		`DELETE FROM messages WHERE conversation_id = $1`,
		`DELETE FROM turns WHERE conversation_id = $1`,
		`DELETE FROM conversations WHERE id = $1`,
	} {
		s.tx.Queue(store.AnyRows, text, c.id)
	}
	c.deleted = true
	s.audit(c, actor, "delete")
	return nil
}

// erase deletes the data of a customer who demands that. Platforms repeat the request for an hour: messages that the customer has written
// after until, by the platform's clock, stay, with the answers to them. 0 deletes everything.
func (q *Queue) erase(ctx context.Context, actor, orgID, id string, until int64) error {
	return q.do(ctx, "erase a customer", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		if until <= 0 || c.lastCustomerAt <= until {
			return s.delete(c, actor)
		}
		older := false
		err := s.value("look for older messages", &older, `SELECT EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND sent_at <= $2
			UNION ALL SELECT 1 FROM outbound_messages WHERE conversation_id = $1 AND created_at <= $2)`, c.id, until)
		if err != nil || !older {
			return err
		}
		if err := s.bury(c, until); err != nil {
			return err
		}
		// Every text that isn't answered waits again: prompts that were made for it may repeat deleted messages.
		s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id IN (
			SELECT id FROM turns WHERE conversation_id = $1 AND state IN ('awaiting', 'needs_attention'))`, c.id)
		s.tx.Queue(store.AnyRows, `UPDATE turns SET state = 'superseded', updated_at = $2
			WHERE conversation_id = $1 AND state IN ('awaiting', 'needs_attention')`, c.id, s.now)
		s.tx.Queue(store.AnyRows, `UPDATE turns SET request = NULL, draft = NULL WHERE conversation_id = $1
			AND (request IS NOT NULL OR draft IS NOT NULL)`, c.id)
		c.runBy(s.now)
		const answersNothing = `conversation_id = $1 AND NOT EXISTS (SELECT 1 FROM messages WHERE turn_id = t.id)`
		for _, text := range []string{
			`DELETE FROM messages WHERE conversation_id = $1 AND sent_at <= $2`,
			`DELETE FROM outbound_messages WHERE conversation_id = $1 AND (turn_id IS NULL AND created_at <= $2
				OR turn_id IN (SELECT id FROM turns t WHERE ` + answersNothing + `))`,
		} {
			s.tx.Queue(store.AnyRows, text, c.id, until)
		}
		s.tx.Queue(store.AnyRows, `DELETE FROM turns AS t WHERE `+answersNothing, c.id)
		_, attention, err := s.rest(c)
		if err != nil {
			return err
		}
		if !attention {
			c.acknowledge("")
		}
		c.markUpdated(s.now)
		s.audit(c, actor, "erase")
		return nil
	}))
}

// exportedCustomer is the stored data about a customer besides messages and turns.
type exportedCustomer struct {
	ID             string   `json:"id"`
	ChannelID      string   `json:"channelId"`
	CustomerID     string   `json:"customerId"`
	Address        string   `json:"address"`
	CustomerName   string   `json:"customerName"`
	OtherIDs       []string `json:"otherIds,omitzero"` // the platform's other ids of the customer
	State          string   `json:"state"`
	Attention      string   `json:"attention"`
	BlockedAt      string   `json:"blockedAt,omitzero"`
	PausedUntil    string   `json:"pausedUntil,omitzero"`
	LastCustomerAt string   `json:"lastCustomerAt,omitzero"`
	CreatedAt      string   `json:"createdAt"`
	UpdatedAt      string   `json:"updatedAt"`
}

type exportedMessage struct {
	Message

	At string `json:"at"`
}

type exportedTurn struct {
	ID        string `json:"id"`
	AgentID   string `json:"agentId"`
	State     string `json:"state"`
	Code      string `json:"code,omitzero"`
	Draft     string `json:"draft,omitzero"` // an answer that was proposed to people
	CreatedAt string `json:"createdAt"`
	UpdatedAt string `json:"updatedAt"`
}

// exportTime returns a time in RFC 3339, or nothing if it isn't set.
func exportTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// Export writes everything that is stored about the customer of an organization's conversation as one JSON object: the conversation
// with names and external ids, all messages with the names of their files, and the turns. The requests of turns repeat these texts,
// and are left out. It reads page by page while the conversation goes on. begin is called
// before the first byte, when the conversation was found. The error is [store.ErrNotFound], of the store or of w; w may have got a part.
func (q *Queue) Export(ctx context.Context, orgID, id string, w io.Writer, begin func()) error {
	c, err := q.Conversation(ctx, orgID, id)
	if err != nil {
		return err
	}
	others, err := store.ReadRows(ctx, q.db, "list a customer's other ids", func(row store.Row) (string, error) {
		alias, err := store.ScanValue[string](row)
		return q.openID("another id of the customer of "+id, alias, vault.CustomerID(orgID)), err
	}, `SELECT alias FROM customer_aliases WHERE conversation_id = $1`, id)
	if err != nil {
		return err
	}
	slices.Sort(others)
	begin()
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	if _, err := io.WriteString(w, `{"conversation":`); err != nil {
		return err
	}
	if err := out.Encode(exportedCustomer{
		ID: c.ID, ChannelID: c.ChannelID, CustomerID: c.CustomerRef, Address: c.Address, CustomerName: c.CustomerName,
		OtherIDs: others, State: c.State,
		Attention: c.Attention, BlockedAt: exportTime(c.BlockedAt), PausedUntil: exportTime(c.PausedUntil),
		LastCustomerAt: exportTime(c.LastCustomerAt), CreatedAt: exportTime(c.CreatedAt), UpdatedAt: exportTime(c.UpdatedAt),
	}); err != nil {
		return err
	}
	err = exportList(w, out, `,"messages":[`, func(m *exportedMessage) string { return m.ID }, func(page store.Page) ([]exportedMessage, error) {
		messages, err := q.Messages(ctx, orgID, id, page)
		all := make([]exportedMessage, len(messages))
		for i, m := range messages {
			all[i] = exportedMessage{m, exportTime(m.At)}
		}
		return all, err
	})
	if err != nil {
		return err
	}
	err = exportList(w, out, `],"turns":[`, func(t *exportedTurn) string { return t.ID }, func(page store.Page) ([]exportedTurn, error) {
		return store.ReadRows(ctx, q.db, "list turns", func(row store.Row) (t exportedTurn, err error) {
			var created, updated int64
			var draft []byte
			err = row.Scan(&t.ID, &t.AgentID, &t.State, &t.Code, &created, &updated, &draft)
			t.CreatedAt, t.UpdatedAt = exportTime(created), exportTime(updated)
			if draft != nil && err == nil {
				proposed := q.openedDraft(draft, orgID, t.ID)
				t.Draft = proposed.Text()
			}
			return t, err
		}, `SELECT id, agent_id, state, code, created_at, updated_at, draft FROM turns WHERE conversation_id = $1 AND org_id = $2 AND id > $3
			ORDER BY id LIMIT $4`, id, orgID, page.After, page.Rows())
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, "]}\n")
	return err
}

// exportList writes the text before a list, and its elements.
func exportList[T any](w io.Writer, out *json.Encoder, before string, id func(*T) string, read func(store.Page) ([]T, error)) error {
	if _, err := io.WriteString(w, before); err != nil {
		return err
	}
	separator := ""
	for page := (store.Page{}); ; {
		rows, err := read(page)
		if err != nil {
			return err
		}
		for i := range rows {
			if _, err := io.WriteString(w, separator); err != nil {
				return err
			}
			if err := out.Encode(&rows[i]); err != nil {
				return err
			}
			separator = ","
		}
		if len(rows) == 0 {
			return nil
		}
		page.After = id(&rows[len(rows)-1])
	}
}
