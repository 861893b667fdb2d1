package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// errVanished: the conversation was deleted between finding and locking it.
var errVanished = errors.New("inbox: the conversation was deleted meanwhile")

// delivery reads and writes the rows of a batch's arrivals.
type delivery struct {
	ops     []*enqueueOp
	ids     map[conversationKey]string
	failed  []string                    // conversations of messages that were not delivered
	made    []conversationKey           // that begin, where another process may make the same ones
	rows    map[string]*conversationRow // the session's
	decided *decisions
}

func newDelivery(ops []*enqueueOp, rows map[string]*conversationRow) *delivery {
	return &delivery{ops: ops, ids: map[conversationKey]string{}, rows: rows, decided: &decisions{
		byID: rows, rows: map[conversationKey]*conversationRow{}, seen: map[messageKey]bool{},
		sent: map[messageKey]*sentRow{}, marked: map[messageKey]*sentRow{}, written: map[string][]*writtenPart{},
		automatic: map[[sha256.Size]byte]bool{},
	}}
}

var (
	selectChannels = listSizes.Statement(`SELECT id FROM channels WHERE id IN {list}`, 1, 0)
	selectSent     = listSizes.Statement(`SELECT id, conversation_id, state, channel_id, platform_message_id FROM outbound_messages
		WHERE platform_message_id <> '' AND (channel_id, platform_message_id) IN ({list})`, 2, 0)
	selectMarked = listSizes.Statement(`SELECT id, conversation_id, state, channel_id, resends, attempts FROM outbound_messages
		WHERE id IN {list}`, 1, 0)
	// failRest ends the parts that follow a part that was not delivered.
	failRest = `UPDATE outbound_messages SET state = 'failed', code = $2, updated_at = $3
		WHERE turn_id = (SELECT turn_id FROM outbound_messages WHERE id = $1) AND state = 'pending'
		AND part > (SELECT part FROM outbound_messages WHERE id = $1)`
	insertMessages = listSizes.Statement(`INSERT INTO messages (id, org_id, channel_id, conversation_id, platform_message_id,
		author, kind, body, handled, sent_at, received_at) {list}`, 11, 0)
)

// find returns the stored conversations of all arrivals, and makes missing ones. All processes make theirs in the same order
// and before they lock any, so that two that meet the same new customers wait for each other in turn.
func (d *delivery) find(ctx context.Context, tx store.Tx) ([]string, error) {
	if len(d.ops) == 0 {
		return nil, nil
	}
	makers := map[conversationKey]*arrivedItem{} // the item that makes it; nil: none does
	for _, op := range d.ops {
		for _, item := range op.items {
			switch {
			case item.stored() && makers[item.key] == nil:
				makers[item.key] = item
			case (item.Kind == Blocked || item.Kind == AutomaticEcho) && makers[item.key] == nil:
				makers[item.key] = nil
			}
		}
	}
	keys := make([]conversationKey, 0, len(makers))
	for key := range makers {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, conversationKey.compare)
	queueFind(tx, keys, d.ids, d.rows)
	failed := decisions{sent: map[messageKey]*sentRow{}, marked: map[messageKey]*sentRow{}}
	failed.queueSent(tx, d.messageKeys(func(item *arrivedItem) bool { return item.Kind == FailedDelivery }))
	failed.queueMarked(tx, d.markedIDs())
	if err := tx.Flush(ctx); err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(d.ids)+len(failed.sent)+len(failed.marked))
	for _, id := range d.ids {
		ids = append(ids, id)
	}
	for _, sent := range failed.sent { // only the messages' rows name their conversations
		d.failed = append(d.failed, sent.conversationID)
	}
	for _, sent := range failed.marked {
		d.failed = append(d.failed, sent.conversationID)
	}
	ids = append(ids, d.failed...)
	return ids, d.makeMissing(ctx, tx, keys, makers)
}

// messageKeys returns the keys of the arrivals that are wanted.
func (d *delivery) messageKeys(wanted func(*arrivedItem) bool) (keys []messageKey) {
	for _, op := range d.ops {
		for _, item := range op.items {
			if wanted(item) {
				keys = append(keys, messageKey{item.key.channelID, item.MessageID})
			}
		}
	}
	return keys
}

// markedIDs returns the ids of the messages in the marks of failed deliveries.
func (d *delivery) markedIDs() (ids []string) {
	for _, op := range d.ops {
		for _, item := range op.items {
			if id, _, found := strings.Cut(item.Mark, "."); found && item.Kind == FailedDelivery {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// makeMissing queues the conversations that begin. [delivery.queueMade] reads them, where another process may have been faster.
func (d *delivery) makeMissing(ctx context.Context, tx store.Tx, keys []conversationKey, makers map[conversationKey]*arrivedItem) error {
	missing := slices.DeleteFunc(keys, func(key conversationKey) bool { return d.ids[key] != "" || makers[key] == nil })
	if len(missing) == 0 {
		return nil
	}
	missing, err := d.beginning(ctx, tx, missing)
	if err != nil {
		return err
	}
	now := tx.Now()
	store.EachExact(listSizes, missing, func(size int, piece []conversationKey) {
		args := make([]any, 0, 14*len(piece))
		for _, key := range piece {
			c := newConversation(makers[key], now)
			d.ids[key] = c.id
			if locksRows(tx) {
				d.made = append(d.made, key)
			} else {
				d.rows[c.id] = c
			}
			args = append(args, c.id, c.orgID, key.channelID, key.customerRef, c.address, c.state, c.attention, c.leaseUntil,
				c.leaseToken, c.attempts, c.pausedUntil, c.lastCustomerAt, now, c.updatedAt)
		}
		tx.Queue(store.AnyRows, insertConversations[size], args...)
	})
	return nil
}

// queueMade locks and reads the conversations that begin: each is this transaction's, or one that another process has made at this
// moment. They are locked after all others: ids rise with time, so this is the order of ids, too.
func (d *delivery) queueMade(tx store.Tx) {
	for size, piece := range store.Padded(listSizes, d.made) {
		tx.QueueQuery(func(row store.Row) error {
			c, err := scanConversationRow(row)
			if err == nil {
				d.ids[c.key], d.rows[c.id] = c.id, c
			}
			return err
		}, findConversations[size]+" ORDER BY id"+tx.LockRows(), conversationKeyArgs(piece)...)
	}
}

func newConversation(maker *arrivedItem, now int64) *conversationRow {
	begun := queueState{state: StateAssistant}
	return &conversationRow{
		queueState: begun, stored: begun, id: store.NewID("cnv"), orgID: maker.route.OrgID, key: maker.key,
		address: maker.Address, updatedAt: now,
	}
}

// beginning leaves out conversations of a channel that was deleted since its route was read, which match no channel any more and
// must not block the other tenants of their delivery, and those of which only deleted messages have arrived again.
func (d *delivery) beginning(ctx context.Context, tx store.Tx, missing []conversationKey) (kept []conversationKey, err error) {
	var channels []string
	for _, key := range missing { // sorted by channel
		if len(channels) == 0 || channels[len(channels)-1] != key.channelID {
			channels = append(channels, key.channelID)
		}
	}
	there := make(map[string]bool, len(channels))
	for size, piece := range store.Padded(listSizes, channels) {
		tx.QueueQuery(func(row store.Row) error {
			var id string
			err := row.Scan(&id)
			there[id] = true
			return err
		}, selectChannels[size], store.Arguments(piece)...)
	}
	alive := d.queueAlive(tx, missing)
	if err := tx.Flush(ctx); err != nil {
		return nil, err
	}
	living := alive()
	return slices.DeleteFunc(missing, func(key conversationKey) bool { return !there[key.channelID] || !living[key] }), nil
}

// store decides the arrivals on the locked conversations and queues what they change.
func (d *delivery) store(ctx context.Context, s *session) error {
	d.decided.now = s.now
	for key, id := range d.ids {
		if s.rows[id] == nil {
			return errVanished
		}
		d.decided.rows[key] = s.rows[id]
	}
	if err := d.readEchoes(ctx, s); err != nil {
		return err
	}
	for _, op := range d.ops {
		for _, item := range op.items {
			d.decided.decide(item)
		}
	}
	d.decided.write(s)
	return nil
}

// conversations returns the ids of the conversations that the arrivals may change.
func (d *delivery) conversations() map[string]bool {
	ids := make(map[string]bool, len(d.ids)+len(d.failed))
	for _, id := range d.ids {
		ids[id] = true
	}
	for _, id := range d.failed {
		ids[id] = true
	}
	return ids
}

// queueReads loads what the decisions depend on, under the locks of the conversations.
func (d *delivery) queueReads(tx store.Tx) {
	d.decided.queueSeen(tx, d.messageKeys((*arrivedItem).stored))
	d.decided.queueSent(tx, d.messageKeys(func(item *arrivedItem) bool { return item.isEcho() || item.Kind == FailedDelivery }))
	d.decided.queueMarked(tx, d.markedIDs())
}

func (d *decisions) queueSent(tx store.Tx, keys []messageKey) {
	for size, piece := range store.Padded(listSizes, keys) {
		tx.QueueQuery(func(row store.Row) error {
			var key messageKey
			sent := &sentRow{}
			err := row.Scan(&sent.id, &sent.conversationID, &sent.state, &key.channelID, &key.platformID)
			d.sent[key] = sent
			return err
		}, selectSent[size], messageKeyArgs(piece)...)
	}
}

func (d *decisions) queueMarked(tx store.Tx, ids []string) {
	for size, piece := range store.Padded(listSizes, ids) {
		tx.QueueQuery(func(row store.Row) error {
			var channelID string
			var resends, attempts int64
			sent := &sentRow{}
			err := row.Scan(&sent.id, &sent.conversationID, &sent.state, &channelID, &resends, &attempts)
			if sent.state == OutboundDeliveryUnknown { // its try was counted when it broke off
				attempts--
			}
			d.marked[messageKey{channelID, markOf(sent.id, resends, attempts)}] = sent
			return err
		}, selectMarked[size], store.Arguments(piece)...)
	}
}

func messageKeyArgs(keys []messageKey) []any {
	args := make([]any, 0, 2*len(keys))
	for _, key := range keys {
		args = append(args, key.channelID, key.platformID)
	}
	return args
}

// write applies the effects to what was stored before, then adds the messages. If another process stores one of them at this
// moment, under another conversation, the unique index reports [store.ErrConflict].
func (d *decisions) write(s *session) {
	for _, effect := range d.effects {
		if effect.silence != "" {
			silence(s.tx, effect.conversationID, effect.silence, s.now)
		} else {
			takeUp(s.tx, effect.conversationID, s.now)
		}
	}
	d.writeEchoes(s)
	for _, found := range []map[messageKey]*sentRow{d.sent, d.marked} {
		for _, sent := range found {
			if sent.changed {
				s.tx.Queue(1, setPart, sent.id, sent.state, sent.code, s.now)
				s.tx.Queue(store.AnyRows, failRest, sent.id, sent.code, s.now)
			}
		}
	}
	slices.SortFunc(d.messages, func(a, b *messageRow) int {
		return cmp.Or(cmp.Compare(a.key.channelID, b.key.channelID), cmp.Compare(a.MessageID, b.MessageID))
	})
	store.EachExact(listSizes, d.messages, func(size int, piece []*messageRow) {
		args := make([]any, 0, 11*len(piece))
		for _, m := range piece {
			args = append(args, m.id, m.route.OrgID, m.key.channelID, m.conversationID, m.MessageID,
				m.author, m.kind, m.body, m.handled, m.sentAt, s.now)
		}
		s.tx.Queue(store.AnyRows, insertMessages[size], args...)
	})
}
