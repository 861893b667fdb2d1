package inbox

import (
	"context"
	"errors"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// WithdrawnText is the text of a message that its sender has taken back.
const WithdrawnText = "[This message was deleted by its sender.]"

// platformActor is the actor of what platforms demand, in the audit log.
const platformActor = "platform"

// withdraw changes what a delivery asks to have changed, and deletes what it asks to have deleted: messages that their senders have taken
// back, and all that is stored about customers who want that. It is rare, and has transactions of its own, after that of the delivery's
// messages. It may be repeated.
func (q *Queue) withdraw(ctx context.Context, arrivals []Arrival) error {
	for i := range arrivals {
		route := &arrivals[i].Route
		for j := range arrivals[i].Items {
			item := &arrivals[i].Items[j]
			if item.Kind != Unsent && item.Kind != Edited && item.Kind != ErasureWanted {
				continue
			}
			sealed := item.sealed(q.ids.Load(), route.OrgID)
			key := messageKey{route.OrgID, route.ChannelID, sealed.MessageID}
			var err error
			switch item.Kind {
			case Unsent:
				err = q.do(ctx, "delete a message that was taken back", &withdrawOp{ring: q.ring, key: key})
			case Edited:
				err = q.do(ctx, "change a message", &editOp{ring: q.ring, key: key, text: item.Text})
			default:
				err = q.eraseWanted(ctx, route, &sealed)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// eraseWanted erases a customer, whose id is sealed, if there is one.
func (q *Queue) eraseWanted(ctx context.Context, route *store.Route, item *Item) error {
	id, err := store.ReadRow(ctx, q.db, "find a customer", store.ScanValue[string],
		`SELECT id FROM conversations WHERE org_id = $1 AND channel_id = $2 AND customer_ref = $3`,
		route.OrgID, route.ChannelID, item.CustomerRef)
	if err == nil {
		err = q.do(ctx, "erase a customer", &eraseOp{
			deleteOp: deleteOp{ownOp{actor: platformActor, orgID: route.OrgID, id: id}}, until: item.SentAt,
		})
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// withdrawOp deletes the text of a message that its sender has taken back, and the requests that may repeat it. A running turn begins anew
// if it answers the message; any other goes on, and begins anew only if it has to be repeated ([Turn.Forgotten]). A message that arrives later
// is not stored.
type withdrawOp struct {
	ring *vault.Ring
	key  messageKey

	conversationID string
	received, sent string // the message's id, in one of the two directions
	at             int64  // when it was stored
	turn           string // the turn that answers it, "" for none
	asking         string // the running turn of its conversation
	drafted        bool   // a draft waits that was made after the message
}

func (op *withdrawOp) refusal() error { return nil }

func (op *withdrawOp) conversation() string { return op.conversationID }

// find reads the conversation of the message, which never changes.
func (op *withdrawOp) find(ctx context.Context, tx store.Tx) error {
	op.conversationID = ""
	return tx.Query(ctx, func(row store.Row) error { return row.Scan(&op.conversationID) },
		`SELECT conversation_id FROM messages WHERE org_id = $1 AND channel_id = $2 AND platform_message_id = $3
		UNION SELECT conversation_id FROM outbound_messages
			WHERE org_id = $1 AND channel_id = $2 AND platform_message_id = $3 AND platform_message_id <> ''`,
		op.key.orgID, op.key.channelID, op.key.platformID)
}

func (op *withdrawOp) read(s *session) {
	op.received, op.sent, op.turn, op.asking, op.drafted = "", "", "", "", false
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.received, &op.at, &op.turn) },
		`SELECT id, received_at, coalesce(turn_id, '') FROM messages WHERE org_id = $1 AND channel_id = $2 AND platform_message_id = $3`,
		op.key.orgID, op.key.channelID, op.key.platformID)
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.sent, &op.at) },
		`SELECT id, created_at FROM outbound_messages WHERE org_id = $1 AND channel_id = $2 AND platform_message_id = $3 AND platform_message_id <> ''
			AND state = 'sent'`, op.key.orgID, op.key.channelID, op.key.platformID)
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.asking) },
		`SELECT id FROM `+runningTurn, op.conversationID)
	s.tx.QueueQuery(func(row store.Row) error {
		madeAt, err := store.ScanValue[int64](row)
		op.drafted = madeAt >= op.at
		return err
	}, `SELECT created_at FROM turns WHERE conversation_id = $1 AND state = 'needs_attention' AND code = '`+codes.Draft+`'`, op.conversationID)
}

func (op *withdrawOp) run(ctx context.Context, s *session) error {
	c := s.rows[op.conversationID]
	if c == nil || c.deleted {
		s.queueTombstones([]tombstoneRow{{op.key.orgID, tombstone(op.key)}}, tombstoneDays)
		return nil
	}
	if op.received != "" {
		s.tx.Queue(1, `UPDATE messages SET body = $2, handled = TRUE WHERE id = $1`, op.received, op.sealed(vault.InboundBody, op.received))
		media.Drop(s.tx, op.received)
	}
	if op.sent != "" { // of a template, the values go too
		s.tx.Queue(1, `UPDATE outbound_messages SET body = $2, template = NULL, file_id = NULL WHERE id = $1`, op.sent,
			op.sealed(vault.OutboundBody, op.sent))
		media.DropSent(s.tx, op.sent)
	}
	if op.asking != "" && op.asking == op.turn { // the texts that are left wait for a turn that doesn't know this one
		(&turnOp{turnID: op.asking}).supersede(s)
		c.runBy(s.now)
	}
	if op.drafted { // it may repeat the text; as with a new text, the next draft is about what is left
		takeUp(s.tx, c.id, s.now)
		c.stands("")
		c.runBy(s.now)
	}
	s.tx.Queue(store.AnyRows, `UPDATE turns SET request = NULL, draft = NULL WHERE conversation_id = $1 AND created_at >= $2
		AND (request IS NOT NULL OR draft IS NOT NULL)`, c.id, op.at)
	c.touch(s.now)
	if c.attention != "" {
		return nil
	}
	return s.countUnanswered(ctx, c)
}

// sealed returns what replaces the text of a message.
func (op *withdrawOp) sealed(aad func(orgID, messageID string) vault.AAD, id string) []byte {
	return op.ring.Seal([]byte(WithdrawnText), aad(op.key.orgID, id))
}

var (
	_ finder = (*withdrawOp)(nil)
	_ reader = (*withdrawOp)(nil)
)
