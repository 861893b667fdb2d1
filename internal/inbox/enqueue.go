package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Arrival is the part of a delivery for one channel.
type Arrival struct {
	Route store.Route // if it is a remembered one, it is checked when the delivery is stored
	Items []Item      // in the order of the delivery
}

// Item is one entry of a delivery. Which texts are needed depends on its kind; all but Text and CustomerName must be valid
// UTF-8 without NUL.
type Item struct {
	Kind         platforms.Kind
	Unsure       bool                // of a Text or Media: the platform doesn't say whether the customer wrote it or the business
	CustomerRef  string              // the platform's key of the conversation
	Other        *platforms.OtherIDs // nil for none
	Address      string              // where replies go
	CustomerName string              // "" unknown
	MessageID    string              // the platform's, unique within the channel
	Text, Code   string
	Media        string                 // of an echo without text, a short name of its content
	Files        []platforms.Attachment // of a customer's message or an echo, to be fetched
	SentAt       int64                  // platform's time, epoch milliseconds; 0, or one in the future, is the time of arrival
}

// otherIDs returns the ids that only some platforms have.
func (i *Item) otherIDs() platforms.OtherIDs {
	if i.Other == nil {
		return platforms.OtherIDs{}
	}
	return *i.Other
}

// ItemOf returns the queue's form of a platform's message or event. code is the reason of a [platforms.FailedDelivery].
func ItemOf(in *platforms.Inbound, code string) Item {
	item := Item{
		Kind: in.Kind, Unsure: in.Unsure, CustomerRef: in.Conversation, Other: in.Other, Address: in.Address, CustomerName: in.CustomerName,
		MessageID: in.MessageID, Text: in.Text, Code: code, Files: in.Attachments(),
	}
	if in.Wordless {
		item.Text, item.Media = "", in.Text
	}
	if !in.SentAt.IsZero() {
		item.SentAt = in.SentAt.UnixMilli()
	}
	return item
}

// enqueueTries bounds how often a delivery is stored again after meeting, in another process, the same new message, or the end
// of its conversation or channel.
const enqueueTries = 5

// Enqueue stores a delivery, of any number of channels and messages, and returns once that is durable: the platform gets its answer only
// after that. It needs one transaction, and another one for a conversation that another process has begun at this moment. Repeating it,
// whole or in part, changes nothing.
//
// Texts make the conversation due after its agent's quiet window, [Media] after some seconds, in which a text may come. While a person has
// the conversation they stay open, and in a pause until its end. An echo is ours when its id or its text is that of a part, and automatic
// by the platform's mark or, where that has none, its time or an earlier one with its text; any other means that a person has written: that
// closes the customer's earlier texts, the assistant is silent for the agent's pause, and its unsent messages are discarded. A part of
// unknown delivery is sent when its echo arrives. A block closes the conversation until the customer writes again. Of a message that its
// sender has taken back, [WithdrawnText] is left.
//
// It returns [ErrInvalid] for a text without message id or conversation, and [ErrRouteChanged] if a remembered route is no longer its
// channel's; in both cases nothing is stored. It returns a wrapped error of the store, after which it may be repeated.
func (q *Queue) Enqueue(ctx context.Context, arrivals []Arrival) error {
	op, err := q.seal(ctx, arrivals)
	if err != nil {
		return err
	}
	for range enqueueTries {
		if len(op.items) == 0 && len(op.remembered) == 0 {
			break
		}
		err = q.write(ctx, op) // another process may be faster with a message, a conversation or a channel
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, errVanished) && !op.again {
			break
		}
	}
	switch {
	case err == nil && op.changed:
		err = ErrRouteChanged
	case err == nil && op.again:
		err = errVanished
	}
	if err != nil {
		return fmt.Errorf("enqueue messages: %w", err)
	}
	return q.applyRare(ctx, arrivals)
}

// enqueueOp is a delivery with sealed bodies and assigned ids.
type enqueueOp struct {
	ring  *vault.Ring // for the names of new customers
	items []*arrivedItem
	// remembered are the routes to be checked, and changed is set when the transaction left out the delivery because one of them differs.
	remembered []*store.Route
	changed    bool
	// again is set when the transaction left out items because another process had just begun their conversation.
	again bool
}

// Size implements [store.Sized].
func (op *enqueueOp) Size() (bytes int) {
	for _, item := range op.items {
		bytes += len(item.body)
	}
	return bytes
}

// arrivedItem is an item with its values in the database. The platform's ids in it are sealed.
type arrivedItem struct {
	Item

	route *store.Route
	key   conversationKey
	ring  *vault.Ring

	id    string      // of its row, if it gets one
	body  []byte      // sealed
	files []media.Row // sealed
}

// stored reports whether the item becomes a row of the conversation.
func (i *arrivedItem) stored() bool {
	return i.Kind == platforms.Text || i.Kind == platforms.Media || i.Kind == platforms.Event ||
		i.Kind == platforms.HumanEcho || i.Kind == platforms.UnmarkedEcho
}

// isRare reports whether the item is left to [Queue.applyRare].
func (i *Item) isRare() bool {
	return i.Kind == platforms.AccessRefused || i.Kind == platforms.Unsent || i.Kind == platforms.ErasureWanted || i.Kind == platforms.Edited
}

// isEcho reports whether the item is a message of the business itself.
func (i *arrivedItem) isEcho() bool {
	return i.Kind == platforms.HumanEcho || i.Kind == platforms.UnmarkedEcho || i.Kind == platforms.AutomaticEcho
}

// sealed returns the item with sealed ids.
func (i *Item) sealed(ids *idKeys, orgID string) Item {
	sealed, customer := *i, vault.CustomerID(orgID)
	sealed.CustomerRef = ids.seal(i.CustomerRef, customer)
	sealed.Address = sealed.CustomerRef
	if i.Address != i.CustomerRef {
		sealed.Address = ids.seal(i.Address, customer)
	}
	sealed.MessageID = ids.seal(i.MessageID, vault.PlatformMessageID(orgID))
	if other := i.Other; other != nil {
		sealed.Other = &platforms.OtherIDs{
			Alias: ids.seal(other.Alias, customer), Business: ids.seal(other.Business, customer), Mark: other.Mark,
		}
	}
	return sealed
}

// seal assigns ids, in the order of arrival, and seals the texts and the platform's ids, outside of the writer.
func (q *Queue) seal(ctx context.Context, arrivals []Arrival) (*enqueueOp, error) {
	ids, err := q.loadIDs(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("enqueue messages: %w", err)
	}
	op := &enqueueOp{ring: q.ring}
	last := ""
	for i := range arrivals {
		arrival := &arrivals[i]
		if arrival.Route.Remembered {
			op.remembered = append(op.remembered, &arrival.Route)
		}
		for _, item := range arrival.Items {
			complete := item.MessageID != "" && item.CustomerRef != ""
			switch {
			case item.Kind == platforms.Text && !complete:
				return nil, fmt.Errorf("%w: a text without message id or conversation", ErrInvalid)
			case item.Kind < platforms.Text || item.Kind > platforms.Edited:
				return nil, fmt.Errorf("%w: an item of unknown kind", ErrInvalid)
			case item.isRare(), // see applyRare
				item.Kind == platforms.Blocked && item.CustomerRef == "",
				item.Kind == platforms.FailedDelivery && item.MessageID == "",
				item.Kind != platforms.Blocked && item.Kind != platforms.FailedDelivery && !complete:
				continue // it can't be found again, and has no answer
			}
			arrived := &arrivedItem{Item: item.sealed(ids, arrival.Route.OrgID), route: &arrival.Route, ring: q.ring}
			arrived.key = conversationKey{arrival.Route.OrgID, arrival.Route.ChannelID, arrived.CustomerRef}
			if arrived.stored() {
				last = idAfter("msg", last)
				arrived.id = last
				arrived.body = q.ring.Seal([]byte(cmp.Or(item.Text, item.Media)), vault.InboundBody(arrival.Route.OrgID, last))
				arrived.files = media.Rows(q.ring, arrival.Route.OrgID, item.Files)
			}
			op.items = append(op.items, arrived)
		}
	}
	return op, nil
}

// idAfter returns a new id that sorts after another: the clock in an id may not have advanced.
func idAfter(prefix, last string) string {
	for {
		if id := store.NewID(prefix); id > last {
			return id
		}
	}
}

var (
	selectAliases = listSizes.Statement(`SELECT org_id, channel_id, alias, conversation_id FROM customer_aliases
		WHERE (org_id, channel_id, alias) IN ({list})`, 3, 0)
	insertAlias = `INSERT INTO customer_aliases (org_id, channel_id, alias, conversation_id) VALUES ($1, $2, $3, $4)
		ON CONFLICT (org_id, channel_id, alias) DO UPDATE SET conversation_id = excluded.conversation_id`
)

// aliasKey is the key of a conversation that begins while the platform names the customer by the other id alone.
func (i *arrivedItem) aliasKey() conversationKey {
	return conversationKey{i.key.orgID, i.key.channelID, i.otherIDs().Alias}
}

// uniteKeys gives the items of one customer one key, if an item of the batch has both ids.
func uniteKeys(ops []*enqueueOp) {
	var keys map[conversationKey]conversationKey
	for _, op := range ops {
		for _, item := range op.items {
			item.key.customerRef = item.CustomerRef // of a batch that had others
			if item.otherIDs().Alias != "" && item.otherIDs().Alias != item.CustomerRef {
				if keys == nil {
					keys = map[conversationKey]conversationKey{}
				}
				keys[item.aliasKey()] = item.key
			}
		}
	}
	if keys == nil {
		return
	}
	for _, op := range ops {
		for _, item := range op.items {
			if key, named := keys[item.key]; named {
				item.key = key
			}
		}
	}
}

func (d *delivery) queueAliases(keys []conversationKey) {
	store.QueueListed(d.s.tx, listSizes, selectAliases, "", keys, func(values []any, key conversationKey) []any {
		return append(values, key.orgID, key.channelID, key.customerRef)
	}, func(row store.Row) error {
		var key conversationKey
		var id string
		err := row.Scan(&key.orgID, &key.channelID, &key.customerRef, &id)
		d.aliases[key] = id
		return err
	})
}

// resolveAliases finds the conversations of customers by any of their ids. A customer who is named by the other id alone may have begun a
// conversation with it before both were known: the later knowledge counts.
func (d *delivery) resolveAliases() {
	for item := range d.items() {
		if item.otherIDs().Alias == "" {
			continue
		}
		direct, alias := item.key, item.aliasKey()
		id := cmp.Or(d.ids[direct], d.aliases[direct], d.aliases[alias], d.ids[alias])
		if direct == alias {
			id = cmp.Or(d.aliases[direct], d.ids[direct])
		}
		if id != "" {
			d.ids[direct] = id
		}
	}
}

// writeAliases queues the customers' other ids that weren't known.
func (d *delivery) writeAliases() {
	for item := range d.items() {
		c := d.byKey[item.key]
		if item.otherIDs().Alias == "" || c == nil || d.s.rows[c.id] == nil {
			continue
		}
		for _, key := range []conversationKey{item.aliasKey(), {item.key.orgID, item.key.channelID, item.CustomerRef}} {
			if key != c.key && d.aliases[key] != c.id {
				d.aliases[key] = c.id
				d.s.tx.Queue(1, insertAlias, key.orgID, key.channelID, key.customerRef, c.id)
			}
		}
	}
}

// attribute turns messages of which the platform doesn't say who wrote them into echoes if the business did, and records the ids of
// businesses. Otherwise the assistant would answer its own shop.
func (d *delivery) attribute() {
	for _, item := range d.withBusiness() {
		if item.Unsure && d.byBusiness(item) {
			if item.Kind == platforms.Media {
				item.Text, item.Media = "", item.Text
			}
			item.Kind, item.Unsure, item.CustomerName = platforms.HumanEcho, false, ""
			item.Address, item.Other = item.otherIDs().Business, &platforms.OtherIDs{Alias: item.otherIDs().Alias, Business: item.Address}
		}
		if hash := businessDigest(item, item.otherIDs().Business); !d.known[hash] {
			d.known[hash] = true
			d.learned = append(d.learned, tombstoneRow{item.key.orgID, hash})
		}
	}
}

// withBusiness returns the arrivals that name the business's side.
func (d *delivery) withBusiness() (items []*arrivedItem) {
	for item := range d.items() {
		if item.otherIDs().Business != "" {
			items = append(items, item)
		}
	}
	return items
}

// queueKnown reads which digests are stored.
func (d *delivery) queueKnown(hashes [][sha256.Size]byte) {
	store.QueueListed(d.s.tx, listSizes, selectTombstones, "", hashes, func(values []any, hash [sha256.Size]byte) []any {
		return append(values, hash[:])
	}, func(row store.Row) error {
		hash, err := store.ScanValue[[]byte](row)
		if len(hash) == sha256.Size {
			d.known[[sha256.Size]byte(hash)] = true
		}
		return err
	})
}

// byBusiness reports whether the business wrote an unsure message. Where neither id is known, a message to the recipient of the
// conversation's answers is the business's. An id from a new conversation may be the customer's: if both ids are known, the customer wrote,
// so that no customer waits in vain.
func (d *delivery) byBusiness(item *arrivedItem) bool {
	writer, reader := d.known[businessDigest(item, item.Address)], d.known[businessDigest(item, item.otherIDs().Business)]
	c := d.byKey[item.key]
	switch {
	case d.sent[item.messageKey()] != nil:
		return true
	case writer || reader:
		return !reader
	}
	return c != nil && c.address == item.otherIDs().Business
}

// businessDigest is the hash that is kept of a business's id on a channel, among the hashes of deleted messages. It reveals nothing.
func businessDigest(item *arrivedItem, id string) [sha256.Size]byte {
	return sha256.Sum256([]byte("business\n" + item.key.channelID + "\n" + id))
}
