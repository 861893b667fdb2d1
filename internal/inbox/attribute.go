package inbox

import (
	"crypto/sha256"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// attribute turns messages of which the platform doesn't say who wrote them into echoes if the business did, and learns the ids of
// businesses. Otherwise the assistant would answer its own shop.
func (d *delivery) attribute() {
	for _, item := range d.withBusiness() {
		if item.Unsure && d.decided.byBusiness(item) {
			item.becomeEcho()
		}
		if hash := businessDigest(item, item.business()); !d.decided.businesses[hash] {
			d.decided.businesses[hash] = true
			d.decided.learned = append(d.decided.learned, tombstoneRow{item.key.orgID, hash})
		}
	}
}

// withBusiness returns the arrivals that name the business's side.
func (d *delivery) withBusiness() (items []*arrivedItem) {
	for _, op := range d.ops {
		for _, item := range op.items {
			if item.business() != "" {
				items = append(items, item)
			}
		}
	}
	return items
}

// queueBusinesses reads which ids of the arrivals are known to be the business's, and which unsure messages are ours.
func (d *delivery) queueBusinesses(tx store.Tx) {
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
		tx.QueueQuery(func(row store.Row) error {
			hash, err := store.ScanValue[[]byte](row)
			if len(hash) == sha256.Size {
				d.decided.businesses[[sha256.Size]byte(hash)] = true
			}
			return err
		}, selectTombstones[size], args...)
	}
	d.decided.queueSent(tx, d.messageKeys(func(item *arrivedItem) bool { return item.Unsure }))
}

// byBusiness reports whether the business wrote an unsure message. Where nothing is known, a message to whom the conversation's answers go
// is the business's. An id that was learned from such a message of a new conversation may be the customer's: if both ids are known, the
// customer wrote, so that nobody waits in vain.
func (d *decisions) byBusiness(item *arrivedItem) bool {
	writer, reader := d.businesses[businessDigest(item, item.Address)], d.businesses[businessDigest(item, item.business())]
	c := d.rows[item.key]
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
