package inbox

import (
	"cmp"
	"crypto/sha256"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var (
	selectAliases = listSizes.Statement(`SELECT org_id, channel_id, alias, conversation_id FROM customer_aliases
		WHERE (org_id, channel_id, alias) IN ({list})`, 3, 0)
	insertAlias = `INSERT INTO customer_aliases (org_id, channel_id, alias, conversation_id) VALUES ($1, $2, $3, $4)
		ON CONFLICT (org_id, channel_id, alias) DO UPDATE SET conversation_id = excluded.conversation_id`
)

// aliasKey is the key of a conversation that begins while the platform names the customer by the other id alone.
func (i *arrivedItem) aliasKey() conversationKey {
	return conversationKey{i.key.orgID, i.key.channelID, i.alias()}
}

// uniteKeys gives the items of one customer one key, if an item of the batch has both ids.
func uniteKeys(ops []*enqueueOp) {
	var keys map[conversationKey]conversationKey
	for _, op := range ops {
		for _, item := range op.items {
			item.key.customerRef = item.CustomerRef // of a batch that had others
			if item.alias() != "" && item.alias() != item.CustomerRef {
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

// namedByAlias returns the keys by which the conversations of customers with several ids may be found.
func (d *delivery) namedByAlias() (keys []conversationKey) {
	for item := range d.items() {
		if item.alias() != "" {
			keys = append(keys, item.key, item.aliasKey())
		}
	}
	return keys
}

func (d *delivery) queueAliases(keys []conversationKey) {
	for size, piece := range store.Padded(listSizes, keys) {
		d.s.tx.QueueQuery(func(row store.Row) error {
			var key conversationKey
			var id string
			err := row.Scan(&key.orgID, &key.channelID, &key.customerRef, &id)
			d.aliases[key] = id
			return err
		}, selectAliases[size], conversationKeyArgs(piece)...)
	}
}

// resolveAliases finds the conversations of customers by any of their ids. A customer who is named by the other id alone may have begun a
// conversation with it before both were known: what is known now counts.
func (d *delivery) resolveAliases() {
	for item := range d.items() {
		if item.alias() == "" {
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
		if item.alias() == "" || c == nil || d.s.rows[c.id] == nil {
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

// attribute turns messages of which the platform doesn't say who wrote them into echoes if the business did, and learns the ids of
// businesses. Otherwise the assistant would answer its own shop.
func (d *delivery) attribute() {
	for _, item := range d.withBusiness() {
		if item.Unsure && d.byBusiness(item) {
			item.becomeEcho()
		}
		if hash := businessDigest(item, item.business()); !d.businesses[hash] {
			d.businesses[hash] = true
			d.learned = append(d.learned, tombstoneRow{item.key.orgID, hash})
		}
	}
}

// withBusiness returns the arrivals that name the business's side.
func (d *delivery) withBusiness() (items []*arrivedItem) {
	for item := range d.items() {
		if item.business() != "" {
			items = append(items, item)
		}
	}
	return items
}

// queueBusinesses reads which ids of the arrivals are known to be the business's.
func (d *delivery) queueBusinesses() {
	var hashes [][sha256.Size]byte
	for _, item := range d.withBusiness() {
		hashes = append(hashes, businessDigest(item, item.business()))
		if item.Unsure {
			hashes = append(hashes, businessDigest(item, item.Address))
		}
	}
	for size, piece := range store.Padded(listSizes, hashes) {
		args := make([]any, len(piece))
		for i := range piece {
			args[i] = piece[i][:]
		}
		d.s.tx.QueueQuery(func(row store.Row) error {
			hash, err := store.ScanValue[[]byte](row)
			if len(hash) == sha256.Size {
				d.businesses[[sha256.Size]byte(hash)] = true
			}
			return err
		}, selectTombstones[size], args...)
	}
}

// byBusiness reports whether the business wrote an unsure message. Where nothing is known, a message to whom the conversation's answers go
// is the business's. An id that was learned from such a message of a new conversation may be the customer's: if both ids are known, the
// customer wrote, so that nobody waits in vain.
func (d *delivery) byBusiness(item *arrivedItem) bool {
	writer, reader := d.businesses[businessDigest(item, item.Address)], d.businesses[businessDigest(item, item.business())]
	c := d.byKey[item.key]
	switch {
	case d.sent[item.messageKey()] != nil:
		return true
	case writer || reader:
		return !reader
	}
	return c != nil && c.address == item.business()
}

// becomeEcho makes a customer's message one of the business.
func (i *arrivedItem) becomeEcho() {
	if i.Kind == Media {
		i.Text, i.Media = "", i.Text
	}
	i.Kind, i.Unsure, i.CustomerName = HumanEcho, false, ""
	i.Address, i.Other = i.business(), &OtherIDs{Alias: i.alias(), Business: i.Address}
}

// businessDigest is the hash that is kept of a business's id on a channel, among those of deleted messages. It reveals nothing.
func businessDigest(item *arrivedItem, id string) [sha256.Size]byte {
	return sha256.Sum256([]byte("business\n" + item.key.channelID + "\n" + id))
}
