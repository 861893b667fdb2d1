package inbox

import (
	"cmp"

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
	for _, op := range d.ops {
		for _, item := range op.items {
			if item.alias() != "" {
				keys = append(keys, item.key, item.aliasKey())
			}
		}
	}
	return keys
}

func (d *delivery) queueAliases(tx store.Tx, keys []conversationKey) {
	for size, piece := range store.Padded(listSizes, keys) {
		tx.QueueQuery(func(row store.Row) error {
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
	for _, op := range d.ops {
		for _, item := range op.items {
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
}

// writeAliases queues the customers' other ids that weren't known.
func (d *delivery) writeAliases(s *session) {
	for _, op := range d.ops {
		for _, item := range op.items {
			c := d.decided.rows[item.key]
			if item.alias() == "" || c == nil || d.rows[c.id] == nil {
				continue
			}
			for _, key := range []conversationKey{item.aliasKey(), {item.key.orgID, item.key.channelID, item.CustomerRef}} {
				if key != c.key && d.aliases[key] != c.id {
					d.aliases[key] = c.id
					s.tx.Queue(1, insertAlias, key.orgID, key.channelID, key.customerRef, c.id)
				}
			}
		}
	}
}
