package schema

import (
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// schemaV1 is the first version of the tables, in PostgreSQL's words; [Dialect] puts it into SQLite's. Rules:
//
//   - times are epoch milliseconds, money is micros (millionths of the currency unit), JSON is text;
//   - what must never happen is refused here (CHECK, UNIQUE, triggers), not only in Go;
//   - expand only: a later version adds tables, columns and indexes and never changes or drops what an older
//     binary still reads, because old and new processes share a database during a roll-out;
//   - rows written by the hot path (holds, calls, ledger) carry no foreign keys: their wallet is locked by the
//     statement that writes them, and organizations are never deleted.
//
// Package billing owns every statement on the money tables.
const schemaV1 = `
CREATE TABLE organizations (
	id           TEXT   NOT NULL PRIMARY KEY,
	name         TEXT   NOT NULL UNIQUE,
	plan         TEXT   NOT NULL,
	created_at   BIGINT NOT NULL,
	suspended_at BIGINT
) {table};

CREATE TABLE api_keys (
	id         TEXT   NOT NULL PRIMARY KEY,
	org_id     TEXT   NOT NULL REFERENCES organizations (id),
	env        TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	name       TEXT   NOT NULL,
	scopes     TEXT   NOT NULL,
	hash       BYTEA  NOT NULL UNIQUE CHECK (length(hash) = 32),
	hint       TEXT   NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT,
	revoked_at BIGINT
) {table};
-- A revoked key gives its name back, so that a rotated key can keep it; keys without a name don't collide.
CREATE UNIQUE INDEX api_keys_name ON api_keys (org_id, name) WHERE revoked_at IS NULL AND name <> '';
CREATE INDEX api_keys_org ON api_keys (org_id);

CREATE TABLE provider_keys (
	org_id     TEXT   NOT NULL REFERENCES organizations (id),
	provider   TEXT   NOT NULL,
	sealed     BYTEA  NOT NULL,
	hint       TEXT   NOT NULL,
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (org_id, provider)
) {table};

CREATE TABLE org_models (
	org_id  TEXT    NOT NULL REFERENCES organizations (id),
	model   TEXT    NOT NULL,
	enabled BOOLEAN NOT NULL,
	PRIMARY KEY (org_id, model)
) {table};

CREATE TABLE audit_log (
	id     TEXT   NOT NULL PRIMARY KEY,
	at     BIGINT NOT NULL,
	actor  TEXT   NOT NULL,
	action TEXT   NOT NULL,
	target TEXT   NOT NULL,
	org_id TEXT   NOT NULL,
	detail TEXT   NOT NULL
) {table};

CREATE TABLE rate_windows (
	org_id       TEXT   NOT NULL,
	window_start BIGINT NOT NULL,
	count        BIGINT NOT NULL CHECK (count >= 0),
	PRIMARY KEY (org_id, window_start)
) {hot table};
CREATE INDEX rate_windows_start ON rate_windows (window_start);

-- The projection of the ledger that carries the guards: no debt, and nothing promised twice.
CREATE TABLE wallets (
	org_id         TEXT   NOT NULL REFERENCES organizations (id),
	env            TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	balance_micros BIGINT NOT NULL DEFAULT 0 CHECK (balance_micros >= 0),
	held_micros    BIGINT NOT NULL DEFAULT 0 CHECK (held_micros >= 0),
	PRIMARY KEY (org_id, env),
	CHECK (held_micros <= balance_micros)
) {hot table};

-- id is the call's id. The only legal change is away from 'open', once.
CREATE TABLE holds (
	id                 TEXT   NOT NULL PRIMARY KEY,
	org_id             TEXT   NOT NULL,
	env                TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	amount_micros      BIGINT NOT NULL CHECK (amount_micros > 0),
	status             TEXT   NOT NULL CHECK (status IN ('open', 'settled', 'voided', 'expired')),
	model              TEXT   NOT NULL,
	price_input        BIGINT NOT NULL CHECK (price_input >= 0),
	price_output       BIGINT NOT NULL CHECK (price_output >= 0),
	price_cached_input BIGINT NOT NULL,
	created_at         BIGINT NOT NULL,
	expires_at         BIGINT NOT NULL,
	resolved_at        BIGINT,
	CHECK ((status = 'open') = (resolved_at IS NULL))
) {hot table};
CREATE INDEX holds_open ON holds (expires_at) WHERE status = 'open';

-- ref makes a transaction idempotent: the call's id for a charge or refund, the operator's reference for the others.
-- balance_micros is the wallet's balance right after it.
CREATE TABLE ledger_tx (
	id             TEXT   NOT NULL PRIMARY KEY,
	org_id         TEXT   NOT NULL,
	env            TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	kind           TEXT   NOT NULL CHECK (kind IN ('topup', 'charge', 'adjust', 'refund')),
	ref            TEXT   NOT NULL CHECK (ref <> ''),
	reason         TEXT   NOT NULL,
	balance_micros BIGINT NOT NULL CHECK (balance_micros >= 0),
	created_at     BIGINT NOT NULL,
	UNIQUE (kind, org_id, env, ref)
) {table};
CREATE INDEX ledger_tx_wallet ON ledger_tx (org_id, env, created_at);

-- Two or more legs a transaction, sum 0; seq 0 is the wallet's. Accounts: org:<id>:<env>, sys:cash, sys:revenue, sys:loss.
CREATE TABLE ledger_entries (
	tx_id         TEXT   NOT NULL,
	seq           BIGINT NOT NULL CHECK (seq >= 0),
	account       TEXT   NOT NULL,
	amount_micros BIGINT NOT NULL CHECK (amount_micros <> 0),
	PRIMARY KEY (tx_id, seq)
) {table};

-- One row for each call that was settled or voided. started_at is of the gateway's clock, tx_id null when nothing was charged.
CREATE TABLE calls (
	id                TEXT    NOT NULL PRIMARY KEY,
	request_id        TEXT    NOT NULL,
	org_id            TEXT    NOT NULL,
	env               TEXT    NOT NULL CHECK (env IN ('live', 'test')),
	key_id            TEXT    NOT NULL,
	model             TEXT    NOT NULL,
	provider          TEXT    NOT NULL,
	byok              BOOLEAN NOT NULL,
	stream            BOOLEAN NOT NULL,
	outcome           TEXT    NOT NULL,
	prompt_tokens     BIGINT  NOT NULL CHECK (prompt_tokens >= 0),
	completion_tokens BIGINT  NOT NULL CHECK (completion_tokens >= 0),
	cached_tokens     BIGINT  NOT NULL CHECK (cached_tokens >= 0),
	usage_source      TEXT    NOT NULL CHECK (usage_source IN ('provider', 'estimated', 'none')),
	charged_micros    BIGINT  NOT NULL CHECK (charged_micros >= 0),
	extra_micros      BIGINT  NOT NULL CHECK (extra_micros >= 0),
	shortfall_micros  BIGINT  NOT NULL CHECK (shortfall_micros >= 0),
	tx_id             TEXT,
	started_at        BIGINT  NOT NULL,
	duration_ms       BIGINT  NOT NULL CHECK (duration_ms >= 0),
	CHECK (NOT byok OR charged_micros = 0)
) {table};
CREATE INDEX calls_wallet ON calls (org_id, env, started_at);

-- key_hash is the SHA-256 of the client's Idempotency-Key, response the sealed transcript, or null for one that is too
-- large. A row counts until lease_until while in progress (the moment its call's hold expires), until expires_at when done.
CREATE TABLE idempotency_keys (
	org_id      TEXT   NOT NULL,
	env         TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	key_hash    BYTEA  NOT NULL CHECK (length(key_hash) = 32),
	fingerprint BYTEA  NOT NULL CHECK (length(fingerprint) = 32),
	state       TEXT   NOT NULL CHECK (state IN ('in_progress', 'done')),
	call_id     TEXT   NOT NULL CHECK (call_id <> ''),
	lease_until BIGINT NOT NULL,
	response    BYTEA,
	created_at  BIGINT NOT NULL,
	finished_at BIGINT,
	expires_at  BIGINT NOT NULL,
	PRIMARY KEY (org_id, env, key_hash),
	CHECK ((state = 'done') = (finished_at IS NOT NULL)),
	CHECK (state = 'done' OR response IS NULL)
) {hot table};
CREATE INDEX idempotency_keys_leases ON idempotency_keys (lease_until) WHERE state = 'in_progress';
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at) WHERE state = 'done';
-- A call has one key.
CREATE UNIQUE INDEX idempotency_keys_call ON idempotency_keys (call_id);
`

// appendOnlySQLite refuses to change or delete rows of {name}. REPLACE fires it too, because connections set
// recursive_triggers.
const appendOnlySQLite = `
CREATE TRIGGER {name}_no_update BEFORE UPDATE ON {name} BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END;
CREATE TRIGGER {name}_no_delete BEFORE DELETE ON {name} BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END;
`

// appendOnlyPostgres refuses to change, delete or truncate rows of {name}, even when a statement would touch none.
const appendOnlyPostgres = `
CREATE TRIGGER {name}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {name}
	FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
`

// refuseChangePostgres is the function that the append-only triggers call.
const refuseChangePostgres = `
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
`

// appendOnlyTables can only grow: the books.
var appendOnlyTables = [...]string{"ledger_tx", "ledger_entries"}

// ddlV1 is everything migration 1 runs on an engine.
func ddlV1(engine driver.Engine) string {
	var ddl strings.Builder
	ddl.WriteString(Dialect(engine, schemaV1))
	trigger := appendOnlySQLite
	if engine == driver.Postgres {
		ddl.WriteString(refuseChangePostgres)
		trigger = appendOnlyPostgres
	}
	for _, table := range appendOnlyTables {
		ddl.WriteString(strings.ReplaceAll(trigger, "{name}", table))
	}
	return ddl.String()
}

// Dialect puts DDL that was written in PostgreSQL's words into the engine's. On SQLite tables are STRICT, so that
// both engines refuse a value of the wrong type, and WITHOUT ROWID, which saves one B-tree for each text key. On
// PostgreSQL rows that are updated again and again leave room on their page for the new version.
func Dialect(engine driver.Engine, ddl string) string {
	if engine == driver.Postgres {
		return strings.NewReplacer(" {table}", "", " {hot table}", " WITH (fillfactor = 50)").Replace(ddl)
	}
	return strings.NewReplacer(
		"BIGINT", "INTEGER", "BYTEA", "BLOB", "BOOLEAN", "INTEGER",
		"{table}", "STRICT, WITHOUT ROWID", "{hot table}", "STRICT, WITHOUT ROWID",
	).Replace(ddl)
}
