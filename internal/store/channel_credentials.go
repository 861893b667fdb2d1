package store

import "context"

// ChannelCredentials replaces the sealed credentials of channels.
type ChannelCredentials struct{ db *DB }

// Replace swaps a channel's sealed credentials when their version is still oldVersion, and counts the
// version up; false: they were replaced meanwhile, or the channel is gone. It is for tokens that a platform refreshed:
// it leaves updated_at alone and writes no audit entry.
func (c ChannelCredentials) Replace(ctx context.Context, orgID, id string, oldVersion int64, sealed []byte) (replaced bool, err error) {
	err = c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		replaced, err = Changed(ctx, tx, `UPDATE channels SET credentials = $4, credentials_version = credentials_version + 1
			WHERE id = $1 AND org_id = $2 AND credentials_version = $3 RETURNING id`, id, orgID, oldVersion, sealed)
		return err
	})
	return replaced && err == nil, err
}

// Refuse marks a channel as in need of reauthorization, because its platform has refused the credentials of
// this version. It reports false when they were replaced meanwhile, or the channel is gone; then nothing is marked. As
// with [Channels.SetState] a pending channel stays pending.
func (c ChannelCredentials) Refuse(ctx context.Context, actor, orgID, id string, version int64) (current bool, err error) {
	err = c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		const held = ` WHERE id = $1 AND org_id = $2 AND credentials_version = $3`
		marked, err := Changed(ctx, tx, `UPDATE channels SET state = $4, updated_at = $5`+held+` AND state NOT IN ($4, $6) RETURNING id`,
			id, orgID, version, ChannelNeedsReauth, tx.Now(), ChannelPending)
		if err != nil {
			return err
		}
		if marked {
			current = true
			QueueAudit(tx, AuditEntry{Actor: actor, Action: "channel.set_state", Target: id, OrgID: orgID, Detail: ChannelNeedsReauth})
			return nil
		}
		current, err = Changed(ctx, tx, `SELECT id FROM channels`+held, id, orgID, version)
		return err
	})
	return current && err == nil, err
}

// Reseal swaps the sealed bytes of a channel's credentials for the same ones under another master
// key, and reports false when they were replaced, or the channel deleted, meanwhile. The version stays: a refresh that
// is under way has used up its old token, and must be able to store the new one.
func (c ChannelCredentials) Reseal(ctx context.Context, orgID, id string, was, sealed []byte) (replaced bool, err error) {
	err = c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		replaced, err = Changed(ctx, tx, `UPDATE channels SET credentials = $4
			WHERE id = $1 AND org_id = $2 AND credentials = $3 RETURNING id`, id, orgID, was, sealed)
		return err
	})
	return replaced && err == nil, err
}

// Each hands every channel that has credentials, of every organization, to each, in order of id. One
// that is written meanwhile may be seen before or after the change. The first error of each ends it.
func (c ChannelCredentials) Each(ctx context.Context, each func(Channel) error) error {
	var after string
	for {
		page, err := ReadRows(ctx, c.db, "list channels", scanChannel,
			channelColumns+` WHERE c.id > $1 AND c.credentials IS NOT NULL ORDER BY c.id LIMIT $2`, after, sealedPage)
		if err != nil {
			return err
		}
		for _, channel := range page {
			if err := each(channel); err != nil {
				return err
			}
			after = channel.ID
		}
		if len(page) < sealedPage {
			return nil
		}
	}
}
