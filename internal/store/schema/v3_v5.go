package schema

import (
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// schemaV3Postgres sets when PostgreSQL vacuums. Its default, once a fifth of a table has changed, suits none of these:
//
//   - rate_windows and wallets are small and change with every request. What a HOT update leaves behind goes when its page
//     is read next; the rest, above all deleted windows, must go before the table has grown by it.
//   - holds, idempotency_keys, turns, messages and outbound_messages grow for ever and their rows end within minutes: each
//     leaves an entry in a partial index ("open", "in progress") that the next look at what is open steps over until a
//     vacuum has been there. A fifth of a year's rows is far too late.
//   - conversations are changed by each message and each lease.
//
// It takes no lock that a reader or writer waits for.
const schemaV3Postgres = `
ALTER TABLE rate_windows SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE wallets SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE holds SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
ALTER TABLE idempotency_keys SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
ALTER TABLE conversations SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
ALTER TABLE messages SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
ALTER TABLE turns SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
ALTER TABLE outbound_messages SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
`

// ddlV3 is everything migration 3 runs on an engine; SQLite needs no vacuum for space that is used again.
func ddlV3(engine driver.Engine) string {
	if engine == driver.Postgres {
		return schemaV3Postgres
	}
	return ""
}

// schemaV4 adds people: users, their login sessions and one-time links, and the windows that throttle logins,
// by the rules of [schemaV1].
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

// schemaV5 adds knowledge bases by the rules of [schemaV1]: what organizations want their assistants to know, in chunks
// that full text finds. On SQLite chunks has a rowid, because its full-text index names rows by it; on PostgreSQL its texts
// stand elsewhere, so that a search counts rows without reading them.
const schemaV5 = `
-- What rows of these tables point to, together with their organization: nothing of one belongs to another's.
CREATE UNIQUE INDEX agents_of_org ON agents (org_id, id);

CREATE TABLE knowledge_bases (
	id          TEXT   NOT NULL PRIMARY KEY,
	org_id      TEXT   NOT NULL REFERENCES organizations (id),
	name        TEXT   NOT NULL CHECK (name <> ''),
	description TEXT   NOT NULL,
	created_at  BIGINT NOT NULL,
	updated_at  BIGINT NOT NULL,
	UNIQUE (org_id, name),
	UNIQUE (org_id, id)
) {table};

-- Which bases an assistant knows. A process that doesn't know this table may delete the assistant.
CREATE TABLE agent_knowledge_bases (
	agent_id          TEXT NOT NULL,
	knowledge_base_id TEXT NOT NULL,
	org_id            TEXT NOT NULL,
	PRIMARY KEY (agent_id, knowledge_base_id),
	FOREIGN KEY (org_id, agent_id) REFERENCES agents (org_id, id) ON DELETE CASCADE,
	FOREIGN KEY (org_id, knowledge_base_id) REFERENCES knowledge_bases (org_id, id) ON DELETE CASCADE
) {table};
CREATE INDEX agent_knowledge_bases_org ON agent_knowledge_bases (org_id, agent_id);
CREATE INDEX agent_knowledge_bases_base ON agent_knowledge_bases (org_id, knowledge_base_id);

-- bytes are those of the upload, which the plan limits. The chunks of a document that is 'ingesting' come little by
-- little, each time with updated_at; only a document that is 'ready' is searched. reason says why one failed.
CREATE TABLE documents (
	id                TEXT   NOT NULL PRIMARY KEY,
	org_id            TEXT   NOT NULL,
	knowledge_base_id TEXT   NOT NULL,
	name              TEXT   NOT NULL CHECK (name <> ''),
	media_type        TEXT   NOT NULL CHECK (media_type IN ('text/plain', 'text/markdown', 'text/html')),
	bytes             BIGINT NOT NULL CHECK (bytes >= 0),
	state             TEXT   NOT NULL CHECK (state IN ('ingesting', 'ready', 'failed')),
	chunks_done       BIGINT NOT NULL CHECK (chunks_done >= 0),
	chunks_total      BIGINT NOT NULL CHECK (chunks_total >= chunks_done),
	reason            TEXT   NOT NULL,
	created_at        BIGINT NOT NULL,
	updated_at        BIGINT NOT NULL,
	UNIQUE (knowledge_base_id, name),
	FOREIGN KEY (org_id, knowledge_base_id) REFERENCES knowledge_bases (org_id, id),
	CHECK (state <> 'ready' OR chunks_done = chunks_total),
	CHECK ((state = 'failed') = (reason <> ''))
) {hot table};
CREATE INDEX documents_base ON documents (org_id, knowledge_base_id, id);
CREATE INDEX documents_bytes ON documents (org_id, bytes);

-- words are the chunk's distinct words as the index has them, with spaces between: folded, and each with the mark of its
-- base, so that a search reads nothing of other bases. internal/knowledge makes them.
CREATE TABLE chunks (
	seq         {sequence} PRIMARY KEY,
	document_id TEXT   NOT NULL REFERENCES documents (id),
	position    BIGINT NOT NULL CHECK (position >= 0),
	text        TEXT   NOT NULL,
	words       TEXT   NOT NULL,
	UNIQUE (document_id, position)
) {text table};
`

// fullTextSQLite is the index of chunks.words. A word is looked up as a whole, so it keeps no places of words.
const fullTextSQLite = `
CREATE VIRTUAL TABLE chunk_words USING fts5 (
	words, content = 'chunks', content_rowid = 'seq', detail = none, tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER chunks_insert AFTER INSERT ON chunks BEGIN
	INSERT INTO chunk_words (rowid, words) VALUES (new.seq, new.words);
END;
CREATE TRIGGER chunks_delete AFTER DELETE ON chunks BEGIN
	INSERT INTO chunk_words (chunk_words, rowid, words) VALUES ('delete', old.seq, old.words);
END;
CREATE TRIGGER chunks_no_update BEFORE UPDATE ON chunks BEGIN SELECT RAISE(ABORT, 'chunks are not changed'); END;
`

// fullTextPostgres is the index of chunks.words. The cost is what keeps the planner from making lexemes of all rows, for
// want of statistics, in place of looking into the index; in PL/pgSQL the function isn't inlined, which would lose it. New
// entries are sorted in some at a time: one by one they take several times as long, and with the default limit the
// statement that sorts them takes too long.
const fullTextPostgres = `
CREATE FUNCTION chunk_lexemes(words text) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 10000 AS $$
BEGIN
	RETURN array_to_tsvector(string_to_array(words, ' '));
END $$;
CREATE INDEX chunk_words ON chunks USING gin (chunk_lexemes(words)) WITH (fastupdate = on, gin_pending_list_limit = 64);
`

// ddlV5 is everything migration 5 runs on an engine.
func ddlV5(engine driver.Engine) string {
	sequence, textTable, fullText := "INTEGER", "STRICT", fullTextSQLite
	if engine == driver.Postgres {
		sequence, textTable, fullText = "BIGINT GENERATED ALWAYS AS IDENTITY", "WITH (toast_tuple_target = 128)", fullTextPostgres
	}
	ddl := strings.NewReplacer("{sequence}", sequence, "{text table}", textTable).Replace(schemaV5)
	return Dialect(engine, ddl) + fullText
}
