package schema

// schemaV24 adds the files of customers' messages, by the rules of [schemaV1].
const schemaV24 = `
-- A file of a customer's message, for package media. message_id is null after the message was deleted, whatever deleted it: what is
-- left of the file is then deleted in small transactions. about is sealed: the platform's reference, until the file was fetched, and
-- the file's name. bytes and pieces are 0 unless it is stored. While it is waiting, run_at is when it is tried next, also after a
-- process that died while it tried. code says why it failed. A process of an older version fetches nothing.
CREATE TABLE media (
	id         TEXT   NOT NULL PRIMARY KEY,
	org_id     TEXT   NOT NULL,
	channel_id TEXT   NOT NULL,
	message_id TEXT   REFERENCES messages (id) ON DELETE SET NULL,
	position   BIGINT NOT NULL CHECK (position >= 0),
	kind       TEXT   NOT NULL CHECK (kind <> ''),
	state      TEXT   NOT NULL CHECK (state IN ('waiting', 'stored', 'failed')),
	code       TEXT   NOT NULL,
	about      BYTEA  NOT NULL,
	media_type TEXT   NOT NULL,
	bytes      BIGINT NOT NULL CHECK (bytes >= 0),
	pieces     BIGINT NOT NULL CHECK (pieces >= 0),
	attempts   BIGINT NOT NULL CHECK (attempts >= 0),
	run_at     BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
) {hot table};
CREATE INDEX media_message ON media (message_id, position);
CREATE INDEX media_due ON media (org_id, run_at) WHERE state = 'waiting';
CREATE INDEX media_stored ON media (org_id, bytes) WHERE state = 'stored';

-- The pieces of a file, each of 256 KiB but the last, and sealed by itself.
CREATE TABLE media_pieces (
	media_id TEXT   NOT NULL REFERENCES media (id),
	position BIGINT NOT NULL CHECK (position >= 0),
	body     BYTEA  NOT NULL,
	PRIMARY KEY (media_id, position)
) {table};
`
