package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// errVanished: the conversation was deleted between finding and locking it.
var errVanished = errors.New("inbox: the conversation was deleted meanwhile")

// delivery reads and writes the rows of a batch's arrivals.
type delivery struct {
	ops  []*enqueueOp
	ids  map[conversationKey]string
	rows map[string]*conversationRow // the session's
}

var (
	selectChannels = listSizes.Statement(`SELECT id FROM channels WHERE id IN {list}`, 1, 0)
	selectSent     = listSizes.Statement(`SELECT id, conversation_id, state, channel_id, platform_message_id FROM outbound_messages
		WHERE platform_message_id <> '' AND (channel_id, platform_message_id) IN ({list})`, 2, 0)
	selectBusy = listSizes.Statement(`SELECT conversation_id FROM outbound_messages
		WHERE state IN ('pending', 'sending') AND state = 'sending' AND conversation_id IN {list}`, 1, 0)
	insertMessages = listSizes.Statement(`INSERT INTO messages (id, org_id, channel_id, conversation_id, platform_message_id,
		author, kind, body, handled, sent_at, received_at) {list}`, 11, 0)
)

// find returns the conversations of all arrivals, and makes missing ones. All processes make theirs in the same order and
// before they lock any, so that two that meet the same new customers wait for each other in turn.
func (d *delivery) find(ctx context.Context, tx store.Tx) ([]string, error) {
	makers := map[conversationKey]*arrivedItem{} // the item that makes it; nil: none does
	for _, op := range d.ops {
		for _, item := range op.items {
			switch {
			case item.stored() && makers[item.key] == nil:
				makers[item.key] = item
			case item.Kind == Blocked && makers[item.key] == nil:
				makers[item.key] = nil
			}
		}
	}
	keys := make([]conversationKey, 0, len(makers))
	for key := range makers {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, conversationKey.compare)
	d.ids = make(map[conversationKey]string, len(keys))
	if err := find(ctx, tx, keys, d.ids, d.rows); err != nil {
		return nil, err
	}
	if err := d.makeMissing(ctx, tx, keys, makers); err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(d.ids))
	for _, id := range d.ids {
		ids = append(ids, id)
	}
	return d.findFailed(ctx, tx, ids)
}

// findFailed adds the conversations of messages that were not delivered, which only the messages' rows name.
func (d *delivery) findFailed(ctx context.Context, tx store.Tx, ids []string) ([]string, error) {
	var failed []messageKey
	for _, op := range d.ops {
		for _, item := range op.items {
			if item.Kind == FailedDelivery {
				failed = append(failed, messageKey{item.key.channelID, item.MessageID})
			}
		}
	}
	found := decisions{sent: map[messageKey]*sentRow{}}
	err := found.readSent(ctx, tx, failed)
	for _, sent := range found.sent {
		ids = append(ids, sent.conversationID)
	}
	return ids, err
}

func (d *delivery) makeMissing(ctx context.Context, tx store.Tx, keys []conversationKey, makers map[conversationKey]*arrivedItem) error {
	var missing []conversationKey
	for _, key := range keys {
		if d.ids[key] == "" && makers[key] != nil {
			missing = append(missing, key)
		}
	}
	missing, err := withChannel(ctx, tx, missing)
	if err == nil {
		missing, err = d.withoutTombstones(ctx, tx, missing)
	}
	if err != nil || len(missing) == 0 {
		return err
	}
	now := tx.Now()
	store.EachExact(listSizes, missing, func(size int, piece []conversationKey) {
		args := make([]any, 0, 14*len(piece))
		for _, key := range piece {
			maker := makers[key]
			args = append(args, store.NewID("cnv"), maker.route.OrgID, key.channelID, key.customerRef, maker.Address,
				StateAssistant, "", 0, 0, 0, 0, 0, now, now)
		}
		tx.Queue(store.AnyRows, insertConversations[size], args...)
	})
	return find(ctx, tx, missing, d.ids, d.rows)
}

// withChannel drops arrivals for a channel that was deleted since its route was read: they match no channel any more, and must
// not block the other tenants of their delivery.
func withChannel(ctx context.Context, tx store.Tx, keys []conversationKey) (kept []conversationKey, err error) {
	var ids []string
	for _, key := range keys { // sorted by channel
		if len(ids) == 0 || ids[len(ids)-1] != key.channelID {
			ids = append(ids, key.channelID)
		}
	}
	there := make(map[string]bool, len(ids))
	err = store.EachPadded(listSizes, ids, func(size int, piece []string) error {
		return tx.Query(ctx, func(row store.Row) error {
			var id string
			err := row.Scan(&id)
			there[id] = true
			return err
		}, selectChannels[size], store.Arguments(piece)...)
	})
	for _, key := range keys {
		if there[key.channelID] {
			kept = append(kept, key)
		}
	}
	return kept, err
}

// store decides the arrivals on the locked conversations and writes them.
func (d *delivery) store(ctx context.Context, s *session) error {
	decided := &decisions{
		now: s.now, byID: s.rows, rows: make(map[conversationKey]*conversationRow, len(d.ids)), seen: map[messageKey]bool{},
		sent: map[messageKey]*sentRow{}, busy: map[string]bool{},
	}
	for key, id := range d.ids {
		if s.rows[id] == nil {
			return errVanished
		}
		decided.rows[key] = s.rows[id]
	}
	if err := d.read(ctx, s, decided); err != nil {
		return err
	}
	for _, op := range d.ops {
		for _, item := range op.items {
			decided.decide(item)
		}
	}
	return decided.write(ctx, s)
}

// read loads what the decisions depend on, under the locks of the conversations.
func (d *delivery) read(ctx context.Context, s *session, into *decisions) error {
	var arrived, told []messageKey
	var echoed []string
	for _, op := range d.ops {
		for _, item := range op.items {
			key := messageKey{item.key.channelID, item.MessageID}
			if item.stored() {
				arrived = append(arrived, key)
			}
			if id := d.ids[item.key]; item.Kind == HumanEcho && id != "" {
				echoed = append(echoed, id)
			}
			if item.Kind == HumanEcho || item.Kind == FailedDelivery {
				told = append(told, key)
			}
		}
	}
	if err := into.readSeen(ctx, s.tx, arrived); err != nil {
		return fmt.Errorf("look for duplicates: %w", err)
	}
	if err := into.readSent(ctx, s.tx, told); err != nil {
		return fmt.Errorf("look for what was sent: %w", err)
	}
	err := store.EachPadded(listSizes, echoed, func(size int, piece []string) error {
		return s.tx.Query(ctx, func(row store.Row) error {
			var id string
			err := row.Scan(&id)
			into.busy[id] = true
			return err
		}, selectBusy[size], store.Arguments(piece)...)
	})
	if err != nil {
		return fmt.Errorf("look for what is being sent: %w", err)
	}
	return nil
}

func (d *decisions) readSent(ctx context.Context, tx store.Tx, keys []messageKey) error {
	return store.EachPadded(listSizes, keys, func(size int, piece []messageKey) error {
		return tx.Query(ctx, func(row store.Row) error {
			var key messageKey
			sent := &sentRow{}
			err := row.Scan(&sent.id, &sent.conversationID, &sent.state, &key.channelID, &key.platformID)
			d.sent[key] = sent
			return err
		}, selectSent[size], messageKeyArgs(piece)...)
	})
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
func (d *decisions) write(ctx context.Context, s *session) error {
	for _, effect := range d.effects {
		if effect.silence != "" {
			silence(s.tx, effect.conversationID, effect.silence, s.now)
		} else {
			takeUp(s.tx, effect.conversationID, s.now)
		}
	}
	for _, sent := range d.sent {
		if sent.changed {
			s.tx.Queue(1, setPart, sent.id, sent.state, sent.code, s.now)
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
	return s.tx.Flush(ctx)
}
