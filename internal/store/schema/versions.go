package schema

import (
	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// Versions returns every version of the schema, oldest first, with its number and its DDL for an engine. A new table or column
// is a new version at the end; a version that was released never changes (the rules stand in v1.go). A new table is also added to
// allTables in the package archive, for exports and imports.
func Versions(engine driver.Engine) []Version {
	return []Version{
		{Number: 1, DDL: ddlV1(engine)},
		{Number: 2, DDL: Dialect(engine, schemaV2)},
		{Number: 3, DDL: ddlV3(engine)},
		{Number: 4, DDL: Dialect(engine, schemaV4), indexes: indexesV4()},
		{Number: 5, DDL: ddlV5(engine)},
		{Number: 6, DDL: Dialect(engine, schemaV6), indexes: indexesV6()},
		{Number: 7, DDL: Dialect(engine, schemaV7)},
		{Number: 8, DDL: Dialect(engine, schemaV8)},
		{Number: 9, DDL: Dialect(engine, schemaV9)},
		versionTen(engine),
		{Number: 11, indexes: indexesV11()},
		{Number: 12, DDL: Dialect(engine, schemaV12)},
		{Number: 13, DDL: ddlV13(engine)},
		{Number: 14, indexes: indexesV14(), afterColumns: true},
		{Number: 15, DDL: Dialect(engine, schemaV15)},
		{Number: 16, DDL: Dialect(engine, schemaV16)},
		{Number: 17, DDL: Dialect(engine, schemaV17)},
		{Number: 18, indexes: indexesV18(), afterColumns: true},
		{Number: 19, DDL: Dialect(engine, schemaV19)},
		{Number: 20, DDL: Dialect(engine, schemaV20)},
		{Number: 21, DDL: Dialect(engine, schemaV21)},
		{Number: 22, DDL: Dialect(engine, schemaV22)},
		{Number: 23, DDL: Dialect(engine, schemaV23)},
		{Number: 24, DDL: Dialect(engine, schemaV24)},
		{Number: 25, DDL: Dialect(engine, schemaV25)},
		{Number: 26, DDL: Dialect(engine, schemaV26)},
		{Number: 27, DDL: Dialect(engine, schemaV27)},
		{Number: 28, DDL: Dialect(engine, schemaV28)},
		{Number: 29, DDL: Dialect(engine, schemaV29)},
		{Number: 30, DDL: Dialect(engine, schemaProcesses)},
		{Number: 31, DDL: Dialect(engine, schemaAliases)},
		{Number: 32, DDL: Dialect(engine, schemaUnanswered), indexes: unansweredIndexes(), afterColumns: true},
		{Number: 33, DDL: Dialect(engine, schemaAddresses)},
		{Number: 34, DDL: Dialect(engine, schemaEdited)},
		{Number: 35, DDL: Dialect(engine, schemaFilesOfCustomers)},
		{Number: 36, indexes: indexesOfFiles(), afterColumns: true},
		versionOfLargeRows(engine),
		{Number: 38, DDL: Dialect(engine, schemaIDKeys)},
	}
}

// Version is a version of the schema: in one transaction its DDL, then its rebuilt tables on SQLite, then its indexes on
// tables of earlier versions, as far as [indexBuilder] hasn't built them before.
type Version struct {
	Number   int64
	DDL      string
	rebuilds []rebuild
	indexes  []lateIndex
	// afterColumns: the indexes are on columns that the version before has added.
	afterColumns bool
}

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

// schemaV7 adds for how long organizations keep their conversations, by the rules of [schemaV1].
const schemaV7 = `
-- In days; 0 is until somebody deletes them.
ALTER TABLE organizations ADD COLUMN retention_days BIGINT NOT NULL DEFAULT 0 CHECK (retention_days >= 0);
CREATE INDEX organizations_retention ON organizations (id) WHERE retention_days > 0;
`

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

// typeV10 is version 10's rule for a channel's type. The five platforms that version 2 names are not all: a program may
// contain others, and a store may have channels of platforms that a program doesn't contain.
const typeV10 = `CHECK (length(type) BETWEEN 1 AND 32 AND ltrim(type, 'abcdefghijklmnopqrstuvwxyz0123456789_-') = '')`

// channelsV10 is what CREATE TABLE channels has had after its name since version 10 on SQLite: the table of version 2 with
// the column of version 8, and a rule for types that names none.
const channelsV10 = `(
	id                  TEXT   NOT NULL PRIMARY KEY,
	org_id              TEXT   NOT NULL REFERENCES organizations (id),
	type                TEXT   NOT NULL ` + typeV10 + `,
	name                TEXT   NOT NULL CHECK (name <> ''),
	external_id         TEXT   NOT NULL,
	agent_id            TEXT,
	state               TEXT   NOT NULL CHECK (state IN ('pending', 'active', 'needs_reauth')),
	credentials         BYTEA,
	credentials_version BIGINT NOT NULL,
	created_at          BIGINT NOT NULL,
	updated_at          BIGINT NOT NULL,
	lost_external_id    TEXT   NOT NULL DEFAULT '',
	UNIQUE (org_id, name)
) {table}`

// versionTen lets channels have a type of any name. Processes of older versions write and find the types that they know.
func versionTen(engine driver.Engine) Version {
	if engine == driver.Postgres {
		return Version{Number: 10, DDL: `ALTER TABLE channels DROP CONSTRAINT channels_type_check, ADD CONSTRAINT channels_type_check ` + typeV10}
	}
	return Version{Number: 10, rebuilds: []rebuild{{table: "channels", definition: Dialect(engine, channelsV10)}}}
}

// indexesV11 is the way to what is due of one organization, and to what workers have of it. All columns that a lease chooses by
// are in it, in the order in which it reads them: lease_until is 0 until a worker has the conversation.
func indexesV11() []lateIndex {
	return []lateIndex{{
		name: "conversations_ready", table: "conversations", rows: "(org_id, lease_until, run_at, id) WHERE run_at IS NOT NULL",
	}}
}

// schemaV12 adds tranches of wallets, by the rules of [schemaV1].
const schemaV12 = `
-- A part of a wallet that one process holds, to hold the amounts of its calls from it without writing. It counts as held:
-- taken_micros, less drawn_micros (charged by calls) and returned_micros (given back). A tranche that has ended stays ended, so
-- that its id fences a process whose lease ran out.
CREATE TABLE tranches (
	id              TEXT   NOT NULL PRIMARY KEY,
	org_id          TEXT   NOT NULL,
	env             TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	owner           TEXT   NOT NULL,
	status          TEXT   NOT NULL CHECK (status IN ('open', 'recalled', 'drained', 'ended')),
	taken_micros    BIGINT NOT NULL CHECK (taken_micros > 0),
	drawn_micros    BIGINT NOT NULL CHECK (drawn_micros >= 0),
	returned_micros BIGINT NOT NULL CHECK (returned_micros >= 0),
	lease_until     BIGINT NOT NULL,
	created_at      BIGINT NOT NULL,
	ended_at        BIGINT,
	CHECK (drawn_micros + returned_micros <= taken_micros),
	CHECK ((status = 'ended') = (ended_at IS NOT NULL)),
	CHECK (status <> 'ended' OR drawn_micros + returned_micros = taken_micros)
) {hot table};
CREATE INDEX tranches_live ON tranches (org_id, env) WHERE status <> 'ended';
CREATE INDEX tranches_recalled ON tranches (owner) WHERE status = 'recalled';

-- The tranche that held the call's amount, and that amount; null for a call with a hold of its own, or none.
ALTER TABLE calls ADD COLUMN tranche_id TEXT;
ALTER TABLE calls ADD COLUMN granted_micros BIGINT;
`

// schemaV13 lets the row of a call be its charge, by the rules of [schemaV1].
const schemaV13 = `
-- A charge is the row of its call: what the call cost went from its wallet to sys:revenue, in the transaction tx_id.
-- balance_micros is the wallet's balance right after it, charged_at its time on the database's clock. Both are null for a call that
-- cost nothing, and for the charge of an older process, which has rows of its own in ledger_tx and ledger_entries.
ALTER TABLE calls ADD COLUMN balance_micros BIGINT;
ALTER TABLE calls ADD COLUMN charged_at BIGINT;
`

// chargesAppendOnlySQLite and chargesAppendOnlyPostgres refuse to change or delete the row of a call that is a charge.
const (
	chargesAppendOnlySQLite = `
CREATE TRIGGER calls_no_update BEFORE UPDATE ON calls WHEN OLD.charged_at IS NOT NULL BEGIN SELECT RAISE(ABORT, 'charges are append-only'); END;
CREATE TRIGGER calls_no_delete BEFORE DELETE ON calls WHEN OLD.charged_at IS NOT NULL BEGIN SELECT RAISE(ABORT, 'charges are append-only'); END;
`
	chargesAppendOnlyPostgres = `
CREATE TRIGGER calls_append_only BEFORE UPDATE OR DELETE ON calls FOR EACH ROW WHEN (OLD.charged_at IS NOT NULL) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER calls_no_truncate BEFORE TRUNCATE ON calls FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
`
)

func ddlV13(engine driver.Engine) string {
	if engine == driver.Postgres {
		return Dialect(engine, schemaV13) + chargesAppendOnlyPostgres
	}
	return Dialect(engine, schemaV13) + chargesAppendOnlySQLite
}

// indexesV14 is the way to the charges of a wallet, for its history.
func indexesV14() []lateIndex {
	return []lateIndex{{name: "calls_charges", table: "calls", rows: "(org_id, env, charged_at) WHERE charged_at IS NOT NULL"}}
}

// schemaV15 adds what people do with messages, by the rules of [schemaV1].
const schemaV15 = `
-- How often a person had the part sent again. attempts begin anew each time.
ALTER TABLE outbound_messages ADD COLUMN resends BIGINT NOT NULL DEFAULT 0;

-- The Idempotency-Keys of messages that people sent: key_hash is the SHA-256 of the key, fingerprint that of the request, and
-- message_ids are the messages' ids, separated by spaces. A row counts for a day from created_at.
CREATE TABLE message_keys (
	org_id      TEXT   NOT NULL,
	key_hash    BYTEA  NOT NULL CHECK (length(key_hash) = 32),
	fingerprint BYTEA  NOT NULL CHECK (length(fingerprint) = 32),
	message_ids TEXT   NOT NULL CHECK (message_ids <> ''),
	created_at  BIGINT NOT NULL,
	PRIMARY KEY (org_id, key_hash)
) {table};
CREATE INDEX message_keys_age ON message_keys (created_at);
`

// schemaV16 adds what people do about customers, by the rules of [schemaV1].
const schemaV16 = `
-- When a person has blocked the customer, 0 for one who isn't blocked. A process of an older version answers them.
ALTER TABLE conversations ADD COLUMN blocked_at BIGINT NOT NULL DEFAULT 0;

-- Turns of deleted conversations whose model calls may have left an answer in idempotency_keys, or may still leave one.
CREATE TABLE erased_turns (
	id        TEXT   NOT NULL PRIMARY KEY,
	org_id    TEXT   NOT NULL,
	erased_at BIGINT NOT NULL
) {table};
CREATE INDEX erased_turns_age ON erased_turns (erased_at);
`

// schemaV19 adds how fast messages are sent, by the rules of [schemaV1].
const schemaV19 = `
-- Until when messages to the customer keep the platform's pace, for package inbox; in the past for one who may be written to at once.
ALTER TABLE conversations ADD COLUMN paced_until BIGINT NOT NULL DEFAULT 0;

-- How fast a channel sends: paced_until as in conversations, for all its customers. queued_until is when the last of those will be
-- tried that wait for their turn, and closed_until when the platform takes messages again, 0 for never closed. A channel that has
-- sent nothing has no row. A process of an older version heeds none of this.
CREATE TABLE channel_paces (
	channel_id   TEXT   NOT NULL PRIMARY KEY,
	org_id       TEXT   NOT NULL,
	paced_until  BIGINT NOT NULL,
	queued_until BIGINT NOT NULL,
	closed_until BIGINT NOT NULL
) {hot table};
`

// schemaV20 adds what people send as templates, by the rules of [schemaV1].
const schemaV20 = `
-- The template that the part is sent as, sealed; null for a text. A process of an older version sends the body as a text, which the
-- platform refuses.
ALTER TABLE outbound_messages ADD COLUMN template BYTEA;
`

// schemaV21 adds how old a message may be that is still answered, by the rules of [schemaV1].
const schemaV21 = `
-- In minutes since the customer's last message; 0 is any age. A process of an older version answers messages of any age.
ALTER TABLE channels ADD COLUMN max_age_minutes BIGINT NOT NULL DEFAULT 0 CHECK (max_age_minutes >= 0);
-- When a person last had answered again what stood in the conversation: from then on its age counts anew. 0 is never.
ALTER TABLE conversations ADD COLUMN retried_at BIGINT NOT NULL DEFAULT 0;
`

// schemaV22 adds when agents hand conversations over to people, by the rules of [schemaV1].
const schemaV22 = `
-- Whether the agent may do that; the customers' words for which it always does, one a line; and what it says where the model has said
-- nothing.
ALTER TABLE agents ADD COLUMN handover BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE agents ADD COLUMN handover_words TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN handover_reply TEXT NOT NULL DEFAULT '';
`

// schemaV23 adds answers that a person sends, by the rules of [schemaV1].
const schemaV23 = `
-- The assistant proposes, and a person sends. A process of an older version sends answers by itself.
ALTER TABLE channels ADD COLUMN drafts BOOLEAN NOT NULL DEFAULT FALSE;
-- The proposed answer, sealed, of a turn with the code 'draft_waiting', or that had it; null for others.
ALTER TABLE turns ADD COLUMN draft BYTEA;
`

// schemaV25 adds whether agents show that they write, by the rules of [schemaV1].
const schemaV25 = `
-- Customers are shown that their messages were read, and that an answer is being written.
ALTER TABLE agents ADD COLUMN typing BOOLEAN NOT NULL DEFAULT FALSE;
`

// schemaV26 adds when a business is open, by the rules of [schemaV1].
const schemaV26 = `
-- Lines for package hours; '' is always open. closed_notice is what customers are sent while it is closed, '' for nothing. A process of
-- an older version answers at any time.
ALTER TABLE channels ADD COLUMN opening_hours TEXT NOT NULL DEFAULT '';
ALTER TABLE channels ADD COLUMN time_zone TEXT NOT NULL DEFAULT '';
ALTER TABLE channels ADD COLUMN closed_notice TEXT NOT NULL DEFAULT '';
-- Until when the customer has been told that the business is closed; in the past for one who hasn't.
ALTER TABLE conversations ADD COLUMN closed_until BIGINT NOT NULL DEFAULT 0;
`

// schemaV27 adds what customers are sent who write no text, by the rules of [schemaV1].
const schemaV27 = `
-- '' for nothing: people are told instead. Messages without text wait from this version on as texts do. A worker of an older version asks the
-- model about them.
ALTER TABLE channels ADD COLUMN media_notice TEXT NOT NULL DEFAULT '';
`

// schemaV28 adds whether people have looked at a delivery that is unknown, by the rules of [schemaV1].
const schemaV28 = `
-- Since when a message of unknown delivery waits for a person to look at it, or 0.
ALTER TABLE conversations ADD COLUMN doubt_since BIGINT NOT NULL DEFAULT 0;
`

// schemaProcesses adds who uses the store, by the rules of [schemaV1].
const schemaProcesses = `
-- Servers and workers with the ids of the keys in their master_key, the first key's first. seen_at is their last sign of life. A process
-- of an older version has no row.
CREATE TABLE processes (
	id      TEXT   NOT NULL PRIMARY KEY,
	name    TEXT   NOT NULL,
	key_ids TEXT   NOT NULL,
	seen_at BIGINT NOT NULL
) {table};
`

// schemaAliases adds the other ids of customers, by the rules of [schemaV1].
const schemaAliases = `
-- Ids under which a platform may name the customer of a conversation, beside its customer_ref.
CREATE TABLE customer_aliases (
	channel_id      TEXT NOT NULL,
	alias           TEXT NOT NULL,
	conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
	PRIMARY KEY (channel_id, alias)
) {table};
CREATE INDEX customer_aliases_conversation ON customer_aliases (conversation_id);
`

// schemaUnanswered replaces the way to an organization's conversations whose customers wait for a person, by the rules of [schemaV1]: there are also
// those in which the assistant pauses. A process of an older version reads all of the organization's conversations for its number.
const schemaUnanswered = `DROP INDEX conversations_people;`

func unansweredIndexes() []lateIndex {
	return []lateIndex{{
		name: "conversations_unanswered", table: "conversations",
		rows: "(org_id) WHERE attention <> '' OR (unanswered_since > 0 AND (state = 'human' OR paused_until > 0))",
	}}
}

// schemaAddresses lets several organizations have users with one e-mail address, by the rules of [schemaV1].
const schemaAddresses = `
-- Empty for the user who has the address in email, which is unique. Of another organization's user with the same address it is the
-- address, and email the user's id. Processes of older versions don't find such users by their address.
ALTER TABLE users ADD COLUMN address TEXT NOT NULL DEFAULT '';
CREATE INDEX users_address ON users (address) WHERE address <> '';
`

// schemaEdited adds which messages their senders have changed, by the rules of [schemaV1].
const schemaEdited = `
ALTER TABLE messages ADD COLUMN edited BOOLEAN NOT NULL DEFAULT FALSE;
`

// schemaFilesOfCustomers adds whose files are kept, by the rules of [schemaV1].
const schemaFilesOfCustomers = `
-- The conversation of the file's message, '' for a file of an older process, which counts for no customer.
ALTER TABLE media ADD COLUMN conversation_id TEXT NOT NULL DEFAULT '';
`

// indexesOfFiles is the way to a customer's stored files, the oldest first.
func indexesOfFiles() []lateIndex {
	return []lateIndex{{name: "media_customer", table: "media", rows: "(conversation_id, created_at, id) WHERE state = 'stored'"}}
}

// versionOfLargeRows gives rowids to the tables on SQLite whose rows are many pages long. Without a rowid, each comparison on the way to a
// row reads the whole row that it compares: a search among 500 agents nine of them.
func versionOfLargeRows(engine driver.Engine) Version {
	if engine == driver.Postgres {
		return Version{Number: 37}
	}
	return Version{Number: 37, rebuilds: []rebuild{
		{table: "agents", definition: Dialect(engine, agentsV37)},
		{table: "media_pieces", definition: Dialect(engine, `(
	media_id TEXT   NOT NULL REFERENCES media (id),
	position BIGINT NOT NULL CHECK (position >= 0),
	body     BYTEA  NOT NULL,
	PRIMARY KEY (media_id, position)
) STRICT`)},
		{table: "sent_file_pieces", definition: Dialect(engine, `(
	file_id  TEXT   NOT NULL REFERENCES sent_files (id),
	position BIGINT NOT NULL CHECK (position >= 0),
	body     BYTEA  NOT NULL,
	PRIMARY KEY (file_id, position)
) STRICT`)},
	}}
}

const agentsV37 = `(
	id                TEXT    NOT NULL PRIMARY KEY,
	org_id            TEXT    NOT NULL REFERENCES organizations (id),
	name              TEXT    NOT NULL CHECK (name <> ''),
	model             TEXT    NOT NULL,
	instructions      TEXT    NOT NULL,
	use_byok          BOOLEAN NOT NULL,
	max_tokens        BIGINT  NOT NULL CHECK (max_tokens >= 0),
	temperature_milli BIGINT  CHECK (temperature_milli BETWEEN 0 AND 2000),
	debounce_ms       BIGINT  NOT NULL CHECK (debounce_ms >= 0),
	debounce_max_ms   BIGINT  NOT NULL CHECK (debounce_max_ms >= 0),
	supersede         BOOLEAN NOT NULL,
	pause_ms          BIGINT  NOT NULL CHECK (pause_ms >= 0),
	created_at        BIGINT  NOT NULL,
	updated_at        BIGINT  NOT NULL,
	handover          BOOLEAN NOT NULL DEFAULT FALSE,
	handover_words    TEXT    NOT NULL DEFAULT '',
	handover_reply    TEXT    NOT NULL DEFAULT '',
	typing            BOOLEAN NOT NULL DEFAULT FALSE,
	UNIQUE (org_id, name)
) STRICT`

// schemaIDKeys adds the keys under which customer_ref, address, alias and platform_message_id are sealed, by the rules of [schemaV1].
const schemaIDKeys = `
-- sealed is the secret, sealed under the master key. Keys count from 0; the first that opens seals.
CREATE TABLE id_keys (
	number BIGINT NOT NULL PRIMARY KEY CHECK (number >= 0),
	sealed BYTEA  NOT NULL
) {table};
`
