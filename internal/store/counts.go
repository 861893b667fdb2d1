package store

import "context"

// Counts is how many of the resources that an operator makes are stored, over all organizations.
type Counts struct {
	Organizations, Suspended int64
	// Users are those who have a password; Invited are still to set one.
	Users, Invited int64
	// Keys are the API keys that are not revoked.
	Keys, Agents, ProviderKeys, KnowledgeBases int64
	// Channels are those in all states, Pending and NeedReauth those that receive nothing or can't send.
	Channels, Pending, NeedReauth int64
}

const selectCounts = `SELECT
	(SELECT count(*) FROM organizations), (SELECT count(*) FROM organizations WHERE suspended_at IS NOT NULL),
	(SELECT count(*) FROM users), (SELECT count(*) FROM invitations),
	(SELECT count(*) FROM api_keys WHERE revoked_at IS NULL), (SELECT count(*) FROM agents),
	(SELECT count(*) FROM provider_keys), (SELECT count(*) FROM knowledge_bases),
	(SELECT count(*) FROM channels), (SELECT count(*) FROM channels WHERE state = '` + ChannelPending + `'),
	(SELECT count(*) FROM channels WHERE state = '` + ChannelNeedsReauth + `')`

// Counts counts them. It reads the tables from end to end: it is for people, not for requests.
func (db *DB) Counts(ctx context.Context) (Counts, error) {
	return ReadRow(ctx, db, "count what is stored", func(row Row) (c Counts, err error) {
		err = row.Scan(&c.Organizations, &c.Suspended, &c.Users, &c.Invited, &c.Keys, &c.Agents, &c.ProviderKeys, &c.KnowledgeBases,
			&c.Channels, &c.Pending, &c.NeedReauth)
		return c, err
	}, selectCounts)
}
