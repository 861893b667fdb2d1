package schema

// schemaV29 adds the files that people send, by the rules of [schemaV1].
const schemaV29 = `
-- A file that a person sends to a customer, for package media. It is stored before its message, which outbound_id names from then on; null
-- after the message was deleted, whatever deleted it. A file without a message is deleted in small transactions once expires_at is over, which
-- is 0 from when it has one. name is sealed.
CREATE TABLE sent_files (
	id          TEXT   NOT NULL PRIMARY KEY,
	org_id      TEXT   NOT NULL,
	outbound_id TEXT   REFERENCES outbound_messages (id) ON DELETE SET NULL,
	kind        TEXT   NOT NULL CHECK (kind <> ''),
	name        BYTEA  NOT NULL,
	media_type  TEXT   NOT NULL CHECK (media_type <> ''),
	bytes       BIGINT NOT NULL CHECK (bytes > 0),
	pieces      BIGINT NOT NULL CHECK (pieces > 0),
	expires_at  BIGINT NOT NULL,
	created_at  BIGINT NOT NULL
) {table};
CREATE INDEX sent_files_message ON sent_files (outbound_id);
CREATE INDEX sent_files_size ON sent_files (org_id, bytes);

-- The pieces of a file, each of 256 KiB but the last, and sealed by itself.
CREATE TABLE sent_file_pieces (
	file_id  TEXT   NOT NULL REFERENCES sent_files (id),
	position BIGINT NOT NULL CHECK (position >= 0),
	body     BYTEA  NOT NULL,
	PRIMARY KEY (file_id, position)
) {table};

-- The file that a message is, null for a text or a template. A worker of an older version sends the kind of the file as a text.
ALTER TABLE outbound_messages ADD COLUMN file_id TEXT;
`
