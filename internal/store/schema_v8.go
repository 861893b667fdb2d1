package store

// schemaV8 adds invitations that claim no e-mail address, the authors of API keys and of password resets, what became of
// claims to an external id, and what is left of deleted messages, by the rules of [schemaV1].
const schemaV8 = `
-- A person who was invited and has set no password yet. The id becomes the user's. An address may be invited by any number
-- of organizations, whoever has it. hash is the SHA-256 of the one-time link's token; null: the link was taken back.
-- Processes of older versions keep such a person as a user with the password ''.
CREATE TABLE invitations (
	id         TEXT   NOT NULL PRIMARY KEY,
	org_id     TEXT   NOT NULL REFERENCES organizations (id),
	email      TEXT   NOT NULL CHECK (email <> ''),
	role       TEXT   NOT NULL CHECK (role IN ('member', 'administrator', 'owner')),
	hash       BYTEA  UNIQUE CHECK (length(hash) = 32),
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	UNIQUE (org_id, email)
) {table};
CREATE INDEX invitations_org ON invitations (org_id, id);
CREATE INDEX invitations_expiry ON invitations (expires_at);

-- The author of the link; '' of a link that an older process made.
ALTER TABLE user_links ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
-- The author of the last reset of the password by a link, and its time; '' and 0 without one.
ALTER TABLE users ADD COLUMN reset_by TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN reset_at BIGINT NOT NULL DEFAULT 0;
-- The User-Agent with which the session began.
ALTER TABLE sessions ADD COLUMN client TEXT NOT NULL DEFAULT '';

-- The key, user or account that made the key; '' of a key that an older process made.
ALTER TABLE api_keys ADD COLUMN created_by TEXT NOT NULL DEFAULT '';

-- The external id that a pending channel lost to an organization for which the platform confirmed it.
ALTER TABLE channels ADD COLUMN lost_external_id TEXT NOT NULL DEFAULT '';

-- Messages of deleted conversations, which the platform may deliver again: hash is the SHA-256 of the id of the channel, a
-- line feed and the platform's id of the message.
CREATE TABLE message_tombstones (
	hash       BYTEA  NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
	expires_at BIGINT NOT NULL
) {table};
CREATE INDEX message_tombstones_expiry ON message_tombstones (expires_at);
`
