package store

// schemaV9 adds the turns of deleted conversations, by the rules of [schemaV1].
const schemaV9 = `
-- Turns of a widget's conversations that were deleted on the same day or the day after: what their calls cost still counts
-- for the widget's day. A process of an older version deletes without a row.
CREATE TABLE deleted_turns (
	id         TEXT   NOT NULL PRIMARY KEY,
	org_id     TEXT   NOT NULL,
	channel_id TEXT   NOT NULL,
	created_at BIGINT NOT NULL
) {table};
CREATE INDEX deleted_turns_channel ON deleted_turns (channel_id, created_at);
CREATE INDEX deleted_turns_age ON deleted_turns (created_at);
`
