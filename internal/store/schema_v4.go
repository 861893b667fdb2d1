package store

// schemaV4 adds people: users, their login sessions and one-time links, and the windows that throttle logins
// (notes/reliability.md S29, S30), by the rules of [schemaV1].
const schemaV4 = `
-- email is in lower case; a user belongs to one organization. password is the encoded hash, '' until a link was used.
CREATE TABLE users (
	id         TEXT   NOT NULL PRIMARY KEY,
	org_id     TEXT   NOT NULL REFERENCES organizations (id),
	email      TEXT   NOT NULL UNIQUE CHECK (email <> ''),
	role       TEXT   NOT NULL CHECK (role IN ('member', 'administrator', 'owner')),
	password   TEXT   NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
) {table};
CREATE INDEX users_org ON users (org_id, id);

-- hash is the SHA-256 of the cookie's value. seen_at is when the session was used last, to a minute.
CREATE TABLE sessions (
	hash       BYTEA  NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
	user_id    TEXT   NOT NULL REFERENCES users (id),
	org_id     TEXT   NOT NULL,
	created_at BIGINT NOT NULL,
	seen_at    BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
) {table};
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at);

-- hash is the SHA-256 of the link's token. A user has one link at most: a new one takes the place of the old.
CREATE TABLE user_links (
	hash       BYTEA  NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
	user_id    TEXT   NOT NULL UNIQUE REFERENCES users (id),
	org_id     TEXT   NOT NULL,
	purpose    TEXT   NOT NULL CHECK (purpose IN ('invite', 'reset')),
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
) {table};

-- How many logins failed, or are under way, in a window: subject is the SHA-256 of an e-mail address, of a client's
-- address, or of both.
CREATE TABLE login_windows (
	subject      BYTEA  NOT NULL CHECK (length(subject) = 32),
	window_start BIGINT NOT NULL,
	count        BIGINT NOT NULL CHECK (count >= 0),
	PRIMARY KEY (subject, window_start)
) {hot table};
CREATE INDEX login_windows_start ON login_windows (window_start);
`

// indexesV4 are the indexes that version 4 adds to older tables.
func indexesV4() []lateIndex {
	return []lateIndex{{name: "audit_log_org", table: "audit_log", rows: "(org_id, id)"}}
}
