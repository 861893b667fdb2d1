package store

import "context"

// TakeOverPossible reports whether [Channels.Create] refuses the channel only because a pending channel of another
// organization claims its external id, which [Channels.TakeOver] takes from there.
func (c Channels) TakeOverPossible(ctx context.Context, channel Channel) (bool, error) {
	rows, err := ReadRows(ctx, c.db, "look for a pending claim", func(row Row) (one int, err error) {
		err = row.Scan(&one)
		return one, err
	}, `SELECT 1 FROM channels WHERE type = $1 AND external_id = $2 AND external_id <> '' AND state = $3 AND org_id <> $4
		AND NOT EXISTS (SELECT 1 FROM channels WHERE org_id = $4 AND name = $5)`,
		channel.Type, channel.ExternalID, ChannelPending, channel.OrgID, channel.Name)
	return len(rows) > 0, err
}

// TakeOver is [Channels.Create] for a channel whose external id the platform has confirmed to be the
// organization's. A pending channel of another organization that claims the id loses it in the same transaction: it stays
// pending for good, with its LostExternalID, and the loss is in the audit log of its organization, without the winner's name.
// A claim that is pending no more is [ErrConflict].
func (c Channels) TakeOver(ctx context.Context, actor string, channel Channel, limit int64) error {
	return c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		var id, orgID string
		err := tx.Query(ctx, func(row Row) error { return row.Scan(&id, &orgID) },
			`UPDATE channels SET lost_external_id = external_id, external_id = '', updated_at = $5
			WHERE type = $1 AND external_id = $2 AND external_id <> '' AND state = $3 AND org_id <> $4 RETURNING id, org_id`,
			channel.Type, channel.ExternalID, ChannelPending, channel.OrgID, tx.Now())
		if err != nil {
			return err
		}
		if id != "" {
			QueueAudit(tx, AuditEntry{
				Actor: "channels", Action: "channel.lose_external_id", Target: id, OrgID: orgID,
				Detail: channel.Type + " " + channel.ExternalID + ": the platform confirmed it for another organization",
			})
		}
		return createChannel(ctx, tx, actor, channel, limit)
	})
}
