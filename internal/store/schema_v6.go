package store

// schemaV6 adds what a web widget may do, by the rules of [schemaV1].
const schemaV6 = `
-- origins is a JSON array. daily_spend_micros bounds what the answers of one UTC day cost; null is no bound.
CREATE TABLE widget_settings (
	channel_id          TEXT   NOT NULL PRIMARY KEY REFERENCES channels (id) ON DELETE CASCADE,
	origins             TEXT   NOT NULL,
	daily_spend_micros  BIGINT CHECK (daily_spend_micros >= 0),
	requests_per_minute BIGINT NOT NULL CHECK (requests_per_minute > 0)
) {table};
`

// indexesV6 are the indexes that version 6 adds to older tables: the way from a channel to what its answers cost. A turn's
// calls carry its id as the request's, and no key, so that the index has none of the many calls of /v1.
func indexesV6() []lateIndex {
	return []lateIndex{
		{name: "turns_channel", table: "turns", rows: "(channel_id, created_at)"},
		{name: "calls_turn", table: "calls", rows: "(request_id) WHERE key_id = ''"},
	}
}
