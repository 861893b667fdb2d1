-- The tables of the store, in PostgreSQL's words; function Dialect puts them into SQLite's. Rules:
--
--   - times are epoch milliseconds, money is micros (millionths of the currency unit), JSON is text;
--   - texts compare byte by byte on both engines, whatever the language of PostgreSQL's database is;
--   - each row of an organization has org_id, and each key that holds within an organization begins with it, so that the tables can be spread
--     over several databases by organization. A primary key `id` is made by this program and belongs to one organization; what else is found
--     by without knowing the organization is listed in TestKeysBeginWithTheOrganization;
--   - what must never happen is refused here (CHECK, UNIQUE, triggers), not only in Go;
--   - rows written by the hot path (holds, calls, ledger, queue) carry no foreign keys: their wallet or conversation is locked by the
--     statement that writes them, and organizations are never deleted;
--   - long texts and files stand last in their row, and a table with long rows is a {long table}.
--
-- Lines between `-- sqlite` or `-- postgres` and `-- both` are for that engine alone.

-- Organizations and what they set.

-- retention_days is for how many days conversations are kept; 0 is until somebody deletes them. low_balance_micros is the balance of the
-- live wallet below which it runs low, 0 for no bound, and low_balance_since is when it fell below, or 0. waiting_minutes is how long a
-- customer waits for an answer before people are told; 0 is never. external_id is the operator's own id of the organization, and first_plan the
-- plan that it began with. search_name is the name in small letters without marks. time_zone is the IANA name of the zone of its days and months.
-- budget_version counts the changes of its budgets; 0 means that it never had one.
CREATE TABLE organizations (
	id                 TEXT   NOT NULL PRIMARY KEY,
	name               TEXT   NOT NULL UNIQUE,
	plan               TEXT   NOT NULL,
	created_at         BIGINT NOT NULL,
	suspended_at       BIGINT,
	retention_days     BIGINT NOT NULL DEFAULT 0 CHECK (retention_days >= 0),
	low_balance_micros BIGINT NOT NULL DEFAULT 0 CHECK (low_balance_micros >= 0),
	low_balance_since  BIGINT NOT NULL DEFAULT 0,
	waiting_minutes    BIGINT NOT NULL DEFAULT 15 CHECK (waiting_minutes >= 0),
	external_id        TEXT   UNIQUE CHECK (external_id <> ''),
	first_plan         TEXT   NOT NULL DEFAULT '',
	suspension_reason  TEXT   NOT NULL DEFAULT '',
	search_name        TEXT   NOT NULL DEFAULT '',
	time_zone          TEXT   NOT NULL DEFAULT 'UTC' CHECK (time_zone <> ''),
	budget_version     BIGINT NOT NULL DEFAULT 0
) {table};
CREATE INDEX organizations_search ON organizations (search_name, id);
CREATE INDEX organizations_retention ON organizations (id) WHERE retention_days > 0;
CREATE INDEX organizations_low_balance ON organizations (id) WHERE low_balance_micros > 0;

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
CREATE INDEX audit_log_org ON audit_log (org_id, id);

-- People and keys.

-- email is in lower case; several organizations may have users with one address. password is the encoded hash. reset_by is the author of the
-- last reset of the password by a link, and reset_at its time; '' and 0 without one.
CREATE TABLE users (
	id         TEXT   NOT NULL PRIMARY KEY,
	org_id     TEXT   NOT NULL REFERENCES organizations (id),
	email      TEXT   NOT NULL CHECK (email <> ''),
	role       TEXT   NOT NULL CHECK (role IN ('member', 'administrator', 'owner')),
	password   TEXT   NOT NULL CHECK (password <> ''),
	reset_by   TEXT   NOT NULL DEFAULT '',
	reset_at   BIGINT NOT NULL DEFAULT 0,
	language   TEXT   NOT NULL DEFAULT '',
	scheme     TEXT   NOT NULL DEFAULT '',
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	UNIQUE (org_id, email),
	UNIQUE (org_id, id)
) {table};
CREATE INDEX users_email ON users (email);

-- hash is the SHA-256 of the cookie's value, client the User-Agent with which the session began. seen_at is when it was used last, to a
-- minute.
CREATE TABLE sessions (
	hash       BYTEA  NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
	user_id    TEXT   NOT NULL REFERENCES users (id),
	org_id     TEXT   NOT NULL,
	client     TEXT   NOT NULL DEFAULT '',
	created_at BIGINT NOT NULL,
	seen_at    BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
) {table};
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at);

-- A link to reset the password: hash is the SHA-256 of its token, created_by its author. A user has one at most: a new one takes the place of
-- the old.
CREATE TABLE user_links (
	hash       BYTEA  NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
	user_id    TEXT   NOT NULL,
	org_id     TEXT   NOT NULL,
	created_by TEXT   NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	UNIQUE (org_id, user_id),
	FOREIGN KEY (org_id, user_id) REFERENCES users (org_id, id)
) {table};

-- A person who was invited and has set no password yet. The id becomes the user's. An address may be invited by any number of
-- organizations, whoever has it. hash is the SHA-256 of the one-time link's token; null: the link was taken back.
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

-- How many logins failed, or are under way, in a window: subject is the SHA-256 of an e-mail address, of a client's address, or of both.
CREATE TABLE login_windows (
	subject      BYTEA  NOT NULL CHECK (length(subject) = 32),
	window_start BIGINT NOT NULL,
	count        BIGINT NOT NULL CHECK (count >= 0),
	PRIMARY KEY (subject, window_start)
) {hot table};
CREATE INDEX login_windows_start ON login_windows (window_start);

-- hash is the SHA-256 of the key. created_by is the key, user or account that made it. A revoked key gives its name back, so that a rotated
-- key can keep it; keys without a name don't collide. models are the ids of the models that it may use, a line for each; null
-- is all. A null in requests_per_minute and max_concurrent, which is for each server, is no bound.
CREATE TABLE api_keys (
	id         TEXT   NOT NULL PRIMARY KEY,
	org_id     TEXT   NOT NULL REFERENCES organizations (id),
	env        TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	name       TEXT   NOT NULL,
	scopes     TEXT   NOT NULL,
	hash       BYTEA  NOT NULL UNIQUE CHECK (length(hash) = 32),
	hint       TEXT   NOT NULL,
	created_by TEXT   NOT NULL DEFAULT '',
	created_at BIGINT NOT NULL,
	expires_at BIGINT,
	revoked_at BIGINT,
	models     TEXT,
	requests_per_minute BIGINT CHECK (requests_per_minute > 0),
	max_concurrent      BIGINT CHECK (max_concurrent > 0)
) {table};
CREATE UNIQUE INDEX api_keys_name ON api_keys (org_id, name) WHERE revoked_at IS NULL AND name <> '';
CREATE INDEX api_keys_org ON api_keys (org_id);
CREATE INDEX api_keys_hint ON api_keys (hint);

-- A code that a person gives beside the password: of a user, or of an operator, whose org_id is ''. secret is sealed; step is the time step of
-- the last code that was used. recovery has the SHA-256 of the codes for a lost device that weren't used, in hexadecimal, with spaces between.
CREATE TABLE second_factors (
	org_id     TEXT   NOT NULL,
	person_id  TEXT   NOT NULL,
	secret     BYTEA  NOT NULL,
	step       BIGINT NOT NULL,
	recovery   TEXT   NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (org_id, person_id)
) {table};

-- The people who run the service. password is '' until the one-time link was used whose SHA-256 is link_hash, and which ends at link_until.
CREATE TABLE operators (
	id          TEXT   NOT NULL PRIMARY KEY,
	email       TEXT   NOT NULL UNIQUE CHECK (email <> ''),
	role        TEXT   NOT NULL CHECK (role IN ('viewer', 'support', 'administrator')),
	password    TEXT   NOT NULL,
	disabled_at BIGINT,
	link_hash   BYTEA  UNIQUE CHECK (length(link_hash) = 32),
	link_until  BIGINT NOT NULL,
	scheme      TEXT   NOT NULL DEFAULT '',
	created_at  BIGINT NOT NULL,
	updated_at  BIGINT NOT NULL
) {table};

-- As sessions. second_factor_at is when the operator last gave a code, or 0.
CREATE TABLE operator_sessions (
	hash             BYTEA  NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
	operator_id      TEXT   NOT NULL REFERENCES operators (id),
	client           TEXT   NOT NULL,
	created_at       BIGINT NOT NULL,
	seen_at          BIGINT NOT NULL,
	expires_at       BIGINT NOT NULL,
	second_factor_at BIGINT NOT NULL
) {table};
CREATE INDEX operator_sessions_operator ON operator_sessions (operator_id);
CREATE INDEX operator_sessions_expiry ON operator_sessions (expires_at);

-- The keys of the service's operators, as api_keys. used_at is when a key was used last, to a minute.
CREATE TABLE operator_keys (
	id         TEXT   NOT NULL PRIMARY KEY,
	name       TEXT   NOT NULL CHECK (name <> ''),
	scopes     TEXT   NOT NULL,
	hash       BYTEA  NOT NULL UNIQUE CHECK (length(hash) = 32),
	hint       TEXT   NOT NULL,
	created_by TEXT   NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT,
	revoked_at BIGINT,
	used_at    BIGINT
) {table};
CREATE UNIQUE INDEX operator_keys_name ON operator_keys (name) WHERE revoked_at IS NULL;

-- A request of an operator's key with an Idempotency-Key: hash is the SHA-256 of both, fingerprint of the request. status is its answer's, 0
-- while it runs, and answer the sealed body. A row counts until the moment until, which is near while it runs: its process may have ended.
CREATE TABLE operator_requests (
	hash        BYTEA  NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
	fingerprint BYTEA  NOT NULL CHECK (length(fingerprint) = 32),
	status      BIGINT NOT NULL CHECK (status >= 0),
	until       BIGINT NOT NULL,
	answer      BYTEA
) {long table};
CREATE INDEX operator_requests_until ON operator_requests (until);

CREATE TABLE provider_keys (
	org_id     TEXT   NOT NULL REFERENCES organizations (id),
	provider   TEXT   NOT NULL,
	sealed     BYTEA  NOT NULL,
	hint       TEXT   NOT NULL,
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (org_id, provider)
) {table};

-- The requests of a minute that count for an organization, or for an API key with a bound of its own: org_id has the id of either.
CREATE TABLE rate_windows (
	org_id       TEXT   NOT NULL,
	window_start BIGINT NOT NULL,
	count        BIGINT NOT NULL CHECK (count >= 0),
	PRIMARY KEY (org_id, window_start)
) {hot table};
CREATE INDEX rate_windows_start ON rate_windows (window_start);

-- Money. Package billing owns every statement on these tables.

-- The projection of the ledger that carries the guards: no debt, and nothing promised twice. seq is the number of the last charge or
-- posting, which are numbered without a gap, and moved_at its time. Until recall_until no process may keep credits that it doesn't use.
-- kept_bytes are the answers in kept_answers. claim_micros is what refunded and disputed payments took back beyond the free balance: the next
-- credit pays it first.
CREATE TABLE wallets (
	org_id         TEXT   NOT NULL REFERENCES organizations (id),
	env            TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	balance_micros BIGINT NOT NULL DEFAULT 0 CHECK (balance_micros >= 0),
	held_micros    BIGINT NOT NULL DEFAULT 0 CHECK (held_micros >= 0),
	seq            BIGINT NOT NULL DEFAULT 0 CHECK (seq >= 0),
	moved_at       BIGINT NOT NULL DEFAULT 0,
	recall_until   BIGINT NOT NULL DEFAULT 0,
	kept_bytes     BIGINT NOT NULL DEFAULT 0 CHECK (kept_bytes >= 0),
	claim_micros   BIGINT NOT NULL DEFAULT 0 CHECK (claim_micros >= 0),
	PRIMARY KEY (org_id, env),
	CHECK (held_micros <= balance_micros)
) {hot table};

-- What is reserved for a running call without an Idempotency-Key; id is the call's. The row ends with its call. budgets are the numbers of the
-- rows in budget_spend in which the amount is also reserved, with spaces between.
CREATE TABLE holds (
	org_id        TEXT   NOT NULL,
	env           TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	id            TEXT   NOT NULL,
	amount_micros BIGINT NOT NULL CHECK (amount_micros > 0),
	expires_at    BIGINT NOT NULL,
	budgets       TEXT   NOT NULL DEFAULT '',
	PRIMARY KEY (org_id, env, id)
) {hot table};

-- A part of a wallet that one process holds, to hold the amounts of its calls from it without writing. left_micros count as held. spare:
-- some of it may be unused. The row ends when nothing is left or its lease is over; that fences its process. budgets are as in holds.
CREATE TABLE tranches (
	org_id      TEXT    NOT NULL,
	env         TEXT    NOT NULL CHECK (env IN ('live', 'test')),
	id          TEXT    NOT NULL,
	owner       TEXT    NOT NULL,
	left_micros BIGINT  NOT NULL CHECK (left_micros >= 0),
	spare       BOOLEAN NOT NULL,
	lease_until BIGINT  NOT NULL,
	budgets     TEXT    NOT NULL DEFAULT '',
	PRIMARY KEY (org_id, env, id)
) {hot table};

-- A budget limits what some calls may spend of a wallet in a period. owner_id is the API key or the assistant whose calls count, '' if all calls
-- of the organization in its environment count. thresholds are the percentages of the limit that an event reports, rising, with spaces between.
-- Rows of budgets change only under the lock of the wallet.
CREATE TABLE budgets (
	id           TEXT   NOT NULL PRIMARY KEY,
	org_id       TEXT   NOT NULL REFERENCES organizations (id),
	env          TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	owner_kind   TEXT   NOT NULL CHECK (owner_kind IN ('organization', 'api_key', 'assistant')),
	owner_id     TEXT   NOT NULL,
	name         TEXT   NOT NULL CHECK (name <> ''),
	period       TEXT   NOT NULL CHECK (period IN ('day', 'week', 'month', 'total')),
	limit_micros BIGINT NOT NULL CHECK (limit_micros >= 0),
	thresholds   TEXT   NOT NULL,
	created_at   BIGINT NOT NULL,
	ended_at     BIGINT,
	CHECK ((owner_kind = 'organization') = (owner_id = ''))
) {table};
CREATE UNIQUE INDEX budgets_open ON budgets (org_id, env, owner_kind, owner_id, period) WHERE ended_at IS NULL;

-- A temporary rise of a budget's limit. past: it had ended when the budget was changed last, so that calls need not read it.
CREATE TABLE budget_rises (
	id            TEXT    NOT NULL PRIMARY KEY,
	org_id        TEXT    NOT NULL REFERENCES organizations (id),
	budget_id     TEXT    NOT NULL,
	amount_micros BIGINT  NOT NULL CHECK (amount_micros > 0),
	ends_at       BIGINT  NOT NULL,
	reason        TEXT    NOT NULL CHECK (reason <> ''),
	created_by    TEXT    NOT NULL,
	created_at    BIGINT  NOT NULL,
	past          BOOLEAN NOT NULL DEFAULT FALSE
) {table};
CREATE INDEX budget_rises_budget ON budget_rises (org_id, budget_id) WHERE NOT past;

-- A period of a budget in which something was reserved, numbered within its wallet. ends_at is 0 for a period without an end. most_micros is the
-- highest limit, rises included, by which an amount was admitted. told is the highest threshold of which an event was made, in percent. The
-- charges that are counted have numbers above first_seq in the wallet, up to last_seq. refused_at is the time of the first call that was refused
-- since the last change of the amounts or of the budget, 0 for none.
CREATE TABLE budget_spend (
	org_id          TEXT   NOT NULL,
	env             TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	number          BIGINT NOT NULL CHECK (number > 0),
	budget_id       TEXT   NOT NULL,
	period_start    BIGINT NOT NULL,
	ends_at         BIGINT NOT NULL,
	reserved_micros BIGINT NOT NULL CHECK (reserved_micros >= 0),
	spent_micros    BIGINT NOT NULL CHECK (spent_micros >= 0),
	most_micros     BIGINT NOT NULL CHECK (most_micros >= 0),
	told            BIGINT NOT NULL,
	first_seq       BIGINT NOT NULL,
	last_seq        BIGINT NOT NULL,
	refused_at      BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (org_id, env, number),
	UNIQUE (org_id, budget_id, period_start),
	CHECK (reserved_micros <= most_micros - spent_micros)
) {hot table};

-- The price of a model's million tokens for calls that one endpoint answered: id is a digest of the other columns. A price is written with its
-- first call and never changes. The endpoint is a provider and its name of the model, and answering_model is the provider's name of the model
-- that answered, '' if it gave none. tiers is the JSON of the rates for calls with more prompt tokens, and vendor_price of the operator's own
-- price at the endpoint; both are '' for none.
CREATE TABLE prices (
	id                      BIGINT NOT NULL PRIMARY KEY,
	model                   TEXT   NOT NULL,
	provider                TEXT   NOT NULL,
	upstream_model          TEXT   NOT NULL,
	answering_model         TEXT   NOT NULL,
	input_micros            BIGINT NOT NULL CHECK (input_micros >= 0),
	output_micros           BIGINT NOT NULL CHECK (output_micros >= 0),
	cached_input_micros     BIGINT NOT NULL CHECK (cached_input_micros >= 0),
	cache_write_micros      BIGINT NOT NULL CHECK (cache_write_micros >= 0),
	long_cache_write_micros BIGINT NOT NULL CHECK (long_cache_write_micros >= 0),
	tiers                   TEXT   NOT NULL,
	vendor_price            TEXT   NOT NULL
) {table};

-- Postings: what moves a wallet beside charges. The wallet gets amount_micros, and account gives them. ref makes a posting idempotent: the
-- call's id for a refund, the operator's reference for the others. balance_micros is the wallet's balance right after it, audit_id its row
-- in audit_log, and corrects the id of the posting or the charge that an adjustment corrects, '' for none. A reversal follows from a refund or
-- a dispute of a payment.
CREATE TABLE ledger_tx (
	id             TEXT   NOT NULL PRIMARY KEY,
	org_id         TEXT   NOT NULL,
	env            TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	wallet_seq     BIGINT NOT NULL CHECK (wallet_seq > 0),
	kind           TEXT   NOT NULL CHECK (kind IN ('topup', 'adjust', 'refund', 'reversal')),
	account        TEXT   NOT NULL CHECK (account IN ('sys:cash', 'sys:loss', 'sys:revenue')),
	ref            TEXT   NOT NULL CHECK (ref <> ''),
	reason         TEXT   NOT NULL,
	amount_micros  BIGINT NOT NULL CHECK (amount_micros <> 0),
	balance_micros BIGINT NOT NULL CHECK (balance_micros >= 0),
	created_at     BIGINT NOT NULL,
	audit_id       TEXT   NOT NULL,
	corrects       TEXT   NOT NULL DEFAULT '',
	UNIQUE (org_id, env, wallet_seq),
	UNIQUE (org_id, env, kind, ref)
) {table};
CREATE INDEX ledger_tx_corrects ON ledger_tx (org_id, env, corrects) WHERE corrects <> '';

-- A code by which a payment finds its organization, whenever it comes and how often. amount is the price of a package in the smallest unit of the
-- currency, which must be paid exactly; 0 is any amount.
CREATE TABLE payment_codes (
	code       TEXT   NOT NULL PRIMARY KEY,
	org_id     TEXT   NOT NULL REFERENCES organizations (id),
	amount     BIGINT NOT NULL CHECK (amount >= 0),
	currency   TEXT   NOT NULL,
	created_by TEXT   NOT NULL,
	created_at BIGINT NOT NULL
) {table};
CREATE INDEX payment_codes_org ON payment_codes (org_id, created_at);

-- What providers of payments have delivered, each payment once; org_id is '' until it is known whose it is. amount is in the smallest unit of the
-- currency, and micros are its credits. taken is what was refunded and is disputed of the amount, and taken_micros what of the credits was taken
-- back for it, claims included. text is the text of the transfer, as its bank sent it. entry_id is the credit. pay_id is our own id, id the provider's.
-- note is the reason of the person who ignored it.
CREATE TABLE payments (
	provider     TEXT   NOT NULL,
	id           TEXT   NOT NULL,
	pay_id       TEXT   NOT NULL UNIQUE,
	org_id       TEXT   NOT NULL,
	state        TEXT   NOT NULL CHECK (state IN ('credited', 'unmatched', 'held', 'duplicate', 'ignored')),
	reason       TEXT   NOT NULL,
	amount       BIGINT NOT NULL CHECK (amount >= 0),
	currency     TEXT   NOT NULL,
	micros       BIGINT NOT NULL CHECK (micros >= 0),
	reference    TEXT   NOT NULL,
	account      TEXT   NOT NULL,
	paid_at      BIGINT NOT NULL,
	created_at   BIGINT NOT NULL,
	updated_at   BIGINT NOT NULL,
	refunded     BIGINT NOT NULL CHECK (refunded >= 0),
	disputes     TEXT   NOT NULL,
	taken_micros BIGINT NOT NULL CHECK (taken_micros >= 0 AND taken_micros <= micros),
	entry_id     TEXT   NOT NULL,
	decided_by   TEXT   NOT NULL,
	note         TEXT   NOT NULL,
	text         TEXT   NOT NULL,
	PRIMARY KEY (provider, id),
	CHECK (state <> 'credited' OR org_id <> '' AND entry_id <> '')
) {table};
CREATE UNIQUE INDEX payments_transfer ON payments (reference, account, amount) WHERE reference <> '' AND state <> 'duplicate';
CREATE INDEX payments_org ON payments (org_id, pay_id);
CREATE INDEX payments_open ON payments (pay_id) WHERE state IN ('unmatched', 'held');

-- One row for each call that has ended, by the database's clock at ended_at. price_id and reserved_micros are null and 0 for a call that
-- couldn't cost anything; a free call whose operator pays has a price_id. Its cost, of its tokens by its price, is charged_micros and
-- shortfall_micros together. A charge went from the wallet to sys:revenue: wallet_seq is its number there and balance_micros the balance right
-- after it; both are null when nothing was charged. The three columns of tokens at the end are parts of the tokens, null for 0. cost_micros is
-- the operator's cost at the endpoint that answered, by the vendor_price of the price. It is null if the cost is unknown. budgets are the numbers
-- of the rows in budget_spend in which the charge is counted, as in holds, and null for none.
CREATE TABLE calls (
	id                      TEXT    NOT NULL PRIMARY KEY,
	request_id              TEXT    NOT NULL,
	org_id                  TEXT    NOT NULL,
	env                     TEXT    NOT NULL CHECK (env IN ('live', 'test')),
	key_id                  TEXT    NOT NULL,
	model                   TEXT    NOT NULL,
	provider                TEXT    NOT NULL,
	byok                    BOOLEAN NOT NULL,
	stream                  BOOLEAN NOT NULL,
	outcome                 TEXT    NOT NULL,
	prompt_tokens           BIGINT  NOT NULL CHECK (prompt_tokens >= 0),
	completion_tokens       BIGINT  NOT NULL CHECK (completion_tokens >= 0),
	cached_tokens           BIGINT  NOT NULL CHECK (cached_tokens >= 0),
	usage_source            TEXT    NOT NULL CHECK (usage_source IN ('provider', 'estimated', 'none')),
	ended_at                BIGINT  NOT NULL,
	duration_ms             BIGINT  NOT NULL CHECK (duration_ms >= 0),
	price_id                BIGINT,
	reserved_micros         BIGINT  NOT NULL CHECK (reserved_micros >= 0),
	charged_micros          BIGINT  NOT NULL CHECK (charged_micros >= 0),
	shortfall_micros        BIGINT  NOT NULL CHECK (shortfall_micros >= 0),
	wallet_seq              BIGINT  CHECK (wallet_seq > 0),
	balance_micros          BIGINT  CHECK (balance_micros >= 0),
	cache_write_tokens      BIGINT  CHECK (cache_write_tokens > 0),
	long_cache_write_tokens BIGINT  CHECK (long_cache_write_tokens > 0),
	reasoning_tokens        BIGINT  CHECK (reasoning_tokens > 0),
	cost_micros             BIGINT  CHECK (cost_micros >= 0),
	budgets                 TEXT    CHECK (budgets <> ''),
	CHECK (charged_micros <= reserved_micros),
	CHECK (NOT byok OR reserved_micros = 0),
	CHECK ((charged_micros > 0) = (wallet_seq IS NOT NULL) AND (wallet_seq IS NULL) = (balance_micros IS NULL))
) {table};
-- A charged call is found by its number, which follows time, and any other by its end.
CREATE INDEX calls_uncharged ON calls (org_id, env, ended_at) WHERE wallet_seq IS NULL;
CREATE UNIQUE INDEX calls_charges ON calls (org_id, env, wallet_seq) WHERE wallet_seq IS NOT NULL;

-- The failed tries of a call at other endpoints, numbered from 1. A row is written with its call. failure is the reason, the tokens are those
-- that the endpoint reported, and cost_micros is the operator's cost, null if it is unknown.
CREATE TABLE attempts (
	org_id            TEXT   NOT NULL,
	call_id           TEXT   NOT NULL,
	number            BIGINT NOT NULL CHECK (number > 0),
	provider          TEXT   NOT NULL,
	upstream_model    TEXT   NOT NULL,
	failure           TEXT   NOT NULL,
	prompt_tokens     BIGINT NOT NULL CHECK (prompt_tokens >= 0),
	completion_tokens BIGINT NOT NULL CHECK (completion_tokens >= 0),
	cost_micros       BIGINT CHECK (cost_micros >= 0),
	PRIMARY KEY (call_id, number)
) {table};

-- An Idempotency-Key while its call runs, with what is reserved for the call; key_hash is the SHA-256 of the client's key. The row ends with
-- its call, so the table is small: a hash may be on any page, and a batch of calls changes few. budgets are as in holds.
CREATE TABLE running_keys (
	org_id          TEXT   NOT NULL,
	env             TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	key_hash        BYTEA  NOT NULL CHECK (length(key_hash) = 32),
	fingerprint     BYTEA  NOT NULL CHECK (length(fingerprint) = 32),
	call_id         TEXT   NOT NULL CHECK (call_id <> ''),
	reserved_micros BIGINT NOT NULL CHECK (reserved_micros >= 0),
	expires_at      BIGINT NOT NULL,
	budgets         TEXT   NOT NULL DEFAULT '',
	PRIMARY KEY (org_id, env, key_hash)
) {hot table};

-- An Idempotency-Key after its call. A row counts until the moment until. kept_bytes is the length of its answer in kept_answers, 0 for one
-- that isn't kept. No key is here and in running_keys.
CREATE TABLE idempotency_keys (
	org_id      TEXT   NOT NULL,
	env         TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	key_hash    BYTEA  NOT NULL CHECK (length(key_hash) = 32),
	fingerprint BYTEA  NOT NULL CHECK (length(fingerprint) = 32),
	call_id     TEXT   NOT NULL CHECK (call_id <> ''),
	kept_bytes  BIGINT NOT NULL CHECK (kept_bytes >= 0),
	until       BIGINT NOT NULL,
	PRIMARY KEY (org_id, env, key_hash)
) {table};
CREATE INDEX idempotency_keys_until ON idempotency_keys (until);

-- The sealed answers of calls with an Idempotency-Key.
CREATE TABLE kept_answers (
	org_id   TEXT  NOT NULL,
	env      TEXT  NOT NULL CHECK (env IN ('live', 'test')),
	call_id  TEXT  NOT NULL,
	response BYTEA NOT NULL,
	PRIMARY KEY (org_id, env, call_id)
) {long table};

-- The closed months of a wallet. A month is the range of numbers first_seq to last_seq, empty if last_seq is the number before. zone is the
-- organization's time zone when the month was closed, in which it began at begins_at, when the month before ended, and ended at ends_at. calls
-- counts the charges, charge_micros is their sum, and charges are the sums by model, key and agent as JSON. hash is the SHA-256 of all of
-- these and of the postings in the range.
CREATE TABLE statements (
	org_id          TEXT   NOT NULL,
	env             TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	month           TEXT   NOT NULL CHECK (length(month) = 7),
	zone            TEXT   NOT NULL,
	begins_at       BIGINT NOT NULL,
	ends_at         BIGINT NOT NULL CHECK (ends_at > begins_at),
	first_seq       BIGINT NOT NULL CHECK (first_seq > 0),
	last_seq        BIGINT NOT NULL CHECK (last_seq >= first_seq - 1),
	opening_micros  BIGINT NOT NULL CHECK (opening_micros >= 0),
	credit_micros   BIGINT NOT NULL CHECK (credit_micros >= 0),
	charge_micros   BIGINT NOT NULL CHECK (charge_micros >= 0),
	refund_micros   BIGINT NOT NULL CHECK (refund_micros >= 0),
	adjust_micros   BIGINT NOT NULL,
	reversal_micros BIGINT NOT NULL,
	closing_micros  BIGINT NOT NULL CHECK (closing_micros >= 0),
	calls           BIGINT NOT NULL CHECK (calls >= 0),
	charges         TEXT   NOT NULL,
	hash            BYTEA  NOT NULL CHECK (length(hash) = 32),
	PRIMARY KEY (org_id, env, month)
) {table};

-- Sums of calls, which package billing's UsageSums keeps behind the calls. A day is a UTC day, in days since 1970.

-- calls ended on the day; answered and client_gone are parts of them. A refund counts on its own day, for the model and the key of its call.
-- cost_micros is the operator's cost, also of failed attempts, which count for the endpoint that failed. The cost of unknown_costs of the
-- calls is unknown and not in it. upstream_model is '' for calls without a price.
CREATE TABLE usage_days (
	org_id            TEXT   NOT NULL,
	env               TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	day               BIGINT NOT NULL,
	model             TEXT   NOT NULL,
	provider          TEXT   NOT NULL,
	upstream_model    TEXT   NOT NULL,
	key_id            TEXT   NOT NULL,
	calls             BIGINT NOT NULL,
	answered          BIGINT NOT NULL,
	client_gone       BIGINT NOT NULL,
	prompt_tokens     BIGINT NOT NULL,
	completion_tokens BIGINT NOT NULL,
	cached_tokens     BIGINT NOT NULL,
	charged_micros    BIGINT NOT NULL,
	refunded_micros   BIGINT NOT NULL,
	cost_micros       BIGINT NOT NULL,
	unknown_costs     BIGINT NOT NULL,
	PRIMARY KEY (org_id, env, day, model, provider, upstream_model, key_id)
) {hot table};

-- usage_days of all organizations together.
CREATE TABLE usage_totals (
	env               TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	day               BIGINT NOT NULL,
	model             TEXT   NOT NULL,
	provider          TEXT   NOT NULL,
	upstream_model    TEXT   NOT NULL,
	calls             BIGINT NOT NULL,
	answered          BIGINT NOT NULL,
	client_gone       BIGINT NOT NULL,
	prompt_tokens     BIGINT NOT NULL,
	completion_tokens BIGINT NOT NULL,
	cached_tokens     BIGINT NOT NULL,
	charged_micros    BIGINT NOT NULL,
	refunded_micros   BIGINT NOT NULL,
	cost_micros       BIGINT NOT NULL,
	unknown_costs     BIGINT NOT NULL,
	PRIMARY KEY (env, day, model, provider, upstream_model)
) {hot table};

-- The calls of all organizations that ended in a minute, in minutes since 1970, for two hours.
CREATE TABLE usage_minutes (
	minute BIGINT NOT NULL PRIMARY KEY,
	calls  BIGINT NOT NULL
) {hot table};

-- What of a wallet is counted: charges and postings through the number seq, and other calls through the moment ended_at. spent_micros are the
-- charges of the day spent_day and the seven days before it.
CREATE TABLE usage_wallets (
	org_id       TEXT   NOT NULL,
	env          TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	seq          BIGINT NOT NULL,
	ended_at     BIGINT NOT NULL,
	spent_day    BIGINT NOT NULL,
	spent_micros BIGINT NOT NULL,
	PRIMARY KEY (org_id, env)
) {hot table};

-- One row. Only the process that is its owner counts, until lease_until. All calls that ended through the moment through are counted.
CREATE TABLE usage_progress (
	id          BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
	owner       TEXT   NOT NULL,
	lease_until BIGINT NOT NULL,
	through     BIGINT NOT NULL
) {hot table};

-- The common order of the usage events of all wallets: each row is a range of the numbers of one wallet, after_seq < number <= through_seq. The
-- ranges of a wallet follow each other. Rows are written when an operator reads events and finds the end.
CREATE TABLE usage_segments (
	number      BIGINT NOT NULL PRIMARY KEY CHECK (number > 0),
	org_id      TEXT   NOT NULL,
	env         TEXT   NOT NULL CHECK (env IN ('live', 'test')),
	after_seq   BIGINT NOT NULL CHECK (after_seq >= 0),
	through_seq BIGINT NOT NULL CHECK (through_seq > after_seq),
	UNIQUE (org_id, env, after_seq)
) {table};

-- Assistants and what they know.

-- handover is whether the assistant may hand conversations over to people, handover_words the customers' words for which it always does, one
-- a line, and handover_reply what it says where the model has said nothing. typing: customers are shown that their messages were read, and
-- that an answer is being written.
CREATE TABLE agents (
	id                TEXT    NOT NULL PRIMARY KEY,
	org_id            TEXT    NOT NULL REFERENCES organizations (id),
	name              TEXT    NOT NULL CHECK (name <> ''),
	model             TEXT    NOT NULL,
	use_byok          BOOLEAN NOT NULL,
	max_tokens        BIGINT  NOT NULL CHECK (max_tokens >= 0),
	temperature_milli BIGINT  CHECK (temperature_milli BETWEEN 0 AND 2000),
	debounce_ms       BIGINT  NOT NULL CHECK (debounce_ms >= 0),
	debounce_max_ms   BIGINT  NOT NULL CHECK (debounce_max_ms >= 0),
	supersede         BOOLEAN NOT NULL,
	pause_ms          BIGINT  NOT NULL CHECK (pause_ms >= 0),
	typing            BOOLEAN NOT NULL DEFAULT FALSE,
	handover          BOOLEAN NOT NULL DEFAULT FALSE,
	created_at        BIGINT  NOT NULL,
	updated_at        BIGINT  NOT NULL,
	handover_words    TEXT    NOT NULL DEFAULT '',
	handover_reply    TEXT    NOT NULL DEFAULT '',
	instructions      TEXT    NOT NULL,
	UNIQUE (org_id, name),
	UNIQUE (org_id, id)
) {long table};

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

-- Which bases an assistant knows.
CREATE TABLE agent_knowledge_bases (
	org_id            TEXT NOT NULL,
	agent_id          TEXT NOT NULL,
	knowledge_base_id TEXT NOT NULL,
	PRIMARY KEY (org_id, agent_id, knowledge_base_id),
	FOREIGN KEY (org_id, agent_id) REFERENCES agents (org_id, id) ON DELETE CASCADE,
	FOREIGN KEY (org_id, knowledge_base_id) REFERENCES knowledge_bases (org_id, id) ON DELETE CASCADE
) {table};
CREATE INDEX agent_knowledge_bases_base ON agent_knowledge_bases (org_id, knowledge_base_id);

-- bytes are those of the upload, which the plan limits. The chunks of a document that is 'ingesting' come little by little, each time with
-- updated_at; only a document that is 'ready' is searched. reason says why one failed.
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
	UNIQUE (org_id, knowledge_base_id, name),
	UNIQUE (org_id, id),
	FOREIGN KEY (org_id, knowledge_base_id) REFERENCES knowledge_bases (org_id, id),
	CHECK (state <> 'ready' OR chunks_done = chunks_total),
	CHECK ((state = 'failed') = (reason <> ''))
) {hot table};
CREATE INDEX documents_base ON documents (org_id, knowledge_base_id, id);
CREATE INDEX documents_bytes ON documents (org_id, bytes);

-- words are the chunk's distinct words as the index has them, with spaces between: folded, and each with the mark of its base, so that a
-- search reads nothing of other bases. internal/knowledge makes them. On PostgreSQL the texts stand elsewhere, so that a search counts rows
-- without reading them.
CREATE TABLE chunks (
-- sqlite
	seq         INTEGER PRIMARY KEY,
-- postgres
	seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
-- both
	org_id      TEXT   NOT NULL,
	document_id TEXT   NOT NULL,
	position    BIGINT NOT NULL CHECK (position >= 0),
	text        TEXT   NOT NULL,
	words       TEXT   NOT NULL,
	UNIQUE (org_id, document_id, position),
	FOREIGN KEY (org_id, document_id) REFERENCES documents (org_id, id)
-- sqlite
) STRICT;

-- A word is looked up as a whole, so the index keeps no places of words.
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
-- postgres
) WITH (toast_tuple_target = 128);

-- The cost keeps the planner from making lexemes of all rows, for want of statistics, in place of looking into the index; in PL/pgSQL the
-- function isn't inlined, which would lose it. New entries are sorted in some at a time: one by one they take several times as long, and
-- with the default limit the statement that sorts them takes too long.
CREATE FUNCTION chunk_lexemes(words text) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 10000 AS $$
BEGIN
	RETURN array_to_tsvector(string_to_array(words, ' '));
END $$;
CREATE INDEX chunk_words ON chunks USING gin (chunk_lexemes(words)) WITH (fastupdate = on, gin_pending_list_limit = 64);
-- both

-- Channels, conversations and messages. Package inbox owns every statement on conversations and what belongs to them, but for those that
-- take them away with their channel (store.Channels.Delete).

-- credentials are sealed; their version counts up with every change, so that a refreshed token can't overwrite a newer one. expiry_told is
-- the end of the token that people were told of, or 0. state 'pending': nobody has shown yet that the external id is the organization's;
-- lost_external_id is one that such a channel lost to an organization for which the platform confirmed it. type names a platform that this
-- program needn't contain. max_age_minutes is how old a customer's last message may be that is still answered; 0 is any age. drafts: the
-- assistant proposes, and a person sends. opening_hours has lines for package hours, '' is always open; closed_notice and media_notice are
-- what customers are sent while the business is closed, and who write no text; '' for nothing.
CREATE TABLE channels (
	id                  TEXT    NOT NULL PRIMARY KEY,
	org_id              TEXT    NOT NULL REFERENCES organizations (id),
	type                TEXT    NOT NULL
		CHECK (length(type) BETWEEN 1 AND 32 AND ltrim(type, 'abcdefghijklmnopqrstuvwxyz0123456789_-') = ''),
	name                TEXT    NOT NULL CHECK (name <> ''),
	external_id         TEXT    NOT NULL,
	lost_external_id    TEXT    NOT NULL DEFAULT '',
	agent_id            TEXT,
	state               TEXT    NOT NULL CHECK (state IN ('pending', 'active', 'needs_reauth')),
	credentials_version BIGINT  NOT NULL,
	expiry_told         BIGINT  NOT NULL DEFAULT 0,
	max_age_minutes     BIGINT  NOT NULL DEFAULT 0 CHECK (max_age_minutes >= 0),
	drafts              BOOLEAN NOT NULL DEFAULT FALSE,
	created_at          BIGINT  NOT NULL,
	updated_at          BIGINT  NOT NULL,
	time_zone           TEXT    NOT NULL DEFAULT '',
	opening_hours       TEXT    NOT NULL DEFAULT '',
	closed_notice       TEXT    NOT NULL DEFAULT '',
	media_notice        TEXT    NOT NULL DEFAULT '',
	credentials         BYTEA,
	UNIQUE (org_id, name),
	UNIQUE (org_id, id)
) {table};
CREATE UNIQUE INDEX channels_external ON channels (type, external_id) WHERE external_id <> '';
CREATE INDEX channels_agent ON channels (agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX channels_trouble ON channels (id) WHERE state <> 'active' OR expiry_told > 0;

-- What a web widget may do. origins is a JSON array. daily_spend_micros bounds what the answers of one UTC day cost; null is no bound.
CREATE TABLE widget_settings (
	org_id              TEXT   NOT NULL,
	channel_id          TEXT   NOT NULL,
	daily_spend_micros  BIGINT CHECK (daily_spend_micros >= 0),
	requests_per_minute BIGINT NOT NULL CHECK (requests_per_minute > 0),
	origins             TEXT   NOT NULL,
	PRIMARY KEY (org_id, channel_id),
	FOREIGN KEY (org_id, channel_id) REFERENCES channels (org_id, id) ON DELETE CASCADE
) {table};

-- How fast a channel sends: paced_until as in conversations, for all its customers. queued_until is when the last of those will be tried
-- that wait for their turn, and closed_until when the platform takes messages again, 0 for never closed. A channel that has sent nothing has
-- no row.
CREATE TABLE channel_paces (
	org_id       TEXT   NOT NULL,
	channel_id   TEXT   NOT NULL,
	paced_until  BIGINT NOT NULL,
	queued_until BIGINT NOT NULL,
	closed_until BIGINT NOT NULL,
	PRIMARY KEY (org_id, channel_id)
) {hot table};

-- The keys under which platforms' ids of customers and messages are sealed (customer_ref, address, alias, platform_message_id). sealed is the
-- secret, sealed under the master key. Keys count from 0; the first that opens seals.
CREATE TABLE id_keys (
	number BIGINT NOT NULL PRIMARY KEY CHECK (number >= 0),
	sealed BYTEA  NOT NULL
) {table};

-- One customer on one channel, and its place in the queue: run_at is when the worker should look next (null: nothing to do), lease_until
-- until when a worker has it, lease_token the fencing token, which only grows. customer_ref is the platform's name of the conversation,
-- address where replies go. waiting_since is the arrival of the oldest message that waits in a quiet window. paused_until: a person writes
-- from the platform's own app. blocked_at is when a person has blocked the customer, or 0. paced_until is until when messages to the
-- customer keep the platform's pace. unanswered_since is when the first of the customer's texts arrived that nothing was answered to, or 0;
-- waiting_told is its value that people were told of. attention_told is the attention that they were told of since the last answer.
-- handover_reason is why a person has the conversation, or had it last. retried_at is when a person last had answered again what stood: from
-- then on its age counts anew. closed_until is until when the customer has been told that the business is closed. doubt_since is since when
-- a message of unknown delivery waits for a person to look at it, or 0. turn_id is the last turn that ran, or ''. No part that
-- waits to be sent or is being sent was made before unsent_since. The foreign key, which costs only a new conversation something, keeps
-- what comes in late from outliving a channel that is being deleted.
CREATE TABLE conversations (
	id               TEXT   NOT NULL PRIMARY KEY,
	org_id           TEXT   NOT NULL,
	channel_id       TEXT   NOT NULL,
	customer_ref     TEXT   NOT NULL CHECK (customer_ref <> ''),
	address          TEXT   NOT NULL,
	customer_name    BYTEA,
	state            TEXT   NOT NULL CHECK (state IN ('assistant', 'human', 'closed')),
	attention        TEXT   NOT NULL,
	run_at           BIGINT,
	waiting_since    BIGINT,
	lease_until      BIGINT NOT NULL,
	lease_token      BIGINT NOT NULL,
	attempts         BIGINT NOT NULL CHECK (attempts >= 0),
	paused_until     BIGINT NOT NULL,
	last_customer_at BIGINT NOT NULL,
	created_at       BIGINT NOT NULL,
	updated_at       BIGINT NOT NULL,
	unanswered_since BIGINT NOT NULL DEFAULT 0,
	waiting_told     BIGINT NOT NULL DEFAULT 0,
	attention_told   TEXT   NOT NULL DEFAULT '',
	handover_reason  TEXT   NOT NULL DEFAULT '',
	blocked_at       BIGINT NOT NULL DEFAULT 0,
	paced_until      BIGINT NOT NULL DEFAULT 0,
	retried_at       BIGINT NOT NULL DEFAULT 0,
	closed_until     BIGINT NOT NULL DEFAULT 0,
	doubt_since      BIGINT NOT NULL DEFAULT 0,
	turn_id          TEXT   NOT NULL DEFAULT '',
	unsent_since     BIGINT NOT NULL DEFAULT 0,
	FOREIGN KEY (org_id, channel_id) REFERENCES channels (org_id, id)
) {hot table};
-- With all that is read of the whole queue: who is due, and who waits for an answer in it.
CREATE INDEX conversations_due ON conversations (run_at, org_id, id, unanswered_since, waiting_told) WHERE run_at IS NOT NULL;
CREATE UNIQUE INDEX conversations_customer ON conversations (org_id, channel_id, customer_ref);
-- For the lists of an organization's conversations, which name the condition: PostgreSQL would look for customers in this index, too, while
-- the table is small, and keep to it.
CREATE INDEX conversations_org ON conversations (org_id, id) WHERE id > '';
-- The way to what is due of one organization, and to what workers have of it. All columns that a lease chooses by are in it, in the order in
-- which it reads them: lease_until is 0 until a worker has the conversation.
CREATE INDEX conversations_ready ON conversations (org_id, lease_until, run_at, id) WHERE run_at IS NOT NULL;
-- The ways to customers who wait: those outside of the queue that people weren't told of, and those that wait for a person.
CREATE INDEX conversations_untold ON conversations (org_id, unanswered_since)
	WHERE run_at IS NULL AND unanswered_since > 0 AND unanswered_since <> waiting_told;
CREATE INDEX conversations_unanswered ON conversations (org_id)
	WHERE attention <> '' OR (unanswered_since > 0 AND (state = 'human' OR paused_until > 0));

-- Ids under which a platform may name the customer of a conversation, beside its customer_ref.
CREATE TABLE customer_aliases (
	org_id          TEXT NOT NULL,
	channel_id      TEXT NOT NULL,
	alias           TEXT NOT NULL,
	conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
	PRIMARY KEY (org_id, channel_id, alias)
) {table};
CREATE INDEX customer_aliases_conversation ON customer_aliases (conversation_id);

-- What came from the platform; the unique pair is the task id, kept for good. kind 'event' is something without text (an image). author
-- 'human': somebody of the business wrote from the platform's own app. turn_id is the turn that answers it; handled: nobody has to answer it
-- any more. edited: its sender has changed it. It is no hot table: what changes in a message stands in an index, so its page needs no room.
CREATE TABLE messages (
	id                  TEXT    NOT NULL PRIMARY KEY,
	org_id              TEXT    NOT NULL,
	channel_id          TEXT    NOT NULL,
	conversation_id     TEXT    NOT NULL,
	platform_message_id TEXT    NOT NULL CHECK (platform_message_id <> ''),
	author              TEXT    NOT NULL CHECK (author IN ('customer', 'human')),
	kind                TEXT    NOT NULL CHECK (kind IN ('text', 'event')),
	turn_id             TEXT,
	handled             BOOLEAN NOT NULL,
	edited              BOOLEAN NOT NULL DEFAULT FALSE,
	sent_at             BIGINT  NOT NULL,
	received_at         BIGINT  NOT NULL,
	body                BYTEA   NOT NULL,
	UNIQUE (org_id, channel_id, platform_message_id)
) {table};
CREATE INDEX messages_conversation ON messages (conversation_id, received_at, id);
CREATE INDEX messages_open ON messages (conversation_id) WHERE turn_id IS NULL AND NOT handled;
CREATE INDEX messages_turn ON messages (turn_id) WHERE turn_id IS NOT NULL;

-- One answer of an assistant: the request is stored, sealed, before the model is called, and a retry sends the stored one under the turn's id.
-- 'answered': the outbound rows exist. code says why a turn stands or ended without an answer; balance_micros is what the wallet had free
-- when it was refused. draft is the proposed answer, sealed, of a turn with the code 'draft_waiting', or that had it; null for others. A
-- turn is running while it is 'awaiting' and its conversation names it, so that a conversation has one. 'awaiting' is as long as 'answered':
-- SQLite writes a long request again with each change of the row's length. call_id is the last call that was begun for the turn, the only
-- one that can have been charged; '' for none. widget_id is the channel if that is a widget, whose spend is bounded; null for others.
CREATE TABLE turns (
	id              TEXT   NOT NULL PRIMARY KEY,
	org_id          TEXT   NOT NULL,
	channel_id      TEXT   NOT NULL,
	conversation_id TEXT   NOT NULL,
	agent_id        TEXT   NOT NULL,
	state           TEXT   NOT NULL CHECK (state IN ('awaiting', 'answered', 'superseded', 'discarded', 'needs_attention', 'dead')),
	code            TEXT   NOT NULL,
	balance_micros  BIGINT,
	attempts        BIGINT NOT NULL CHECK (attempts >= 0),
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL,
	call_id         TEXT   NOT NULL DEFAULT '',
	widget_id       TEXT,
	draft           BYTEA,
	request         BYTEA
) {hot table};
CREATE INDEX turns_conversation ON turns (conversation_id, id);
CREATE INDEX turns_attention ON turns (updated_at) WHERE state IN ('needs_attention', 'dead');
CREATE INDEX turns_widget ON turns (widget_id, created_at) WHERE widget_id IS NOT NULL;

-- What goes to the customer, part by part. author 'human' wrote through the API and has no turn. platform_message_id is set once the platform
-- has taken it. attempts begin anew with each of resends: how often a person had the part sent again. template is the template that the part
-- is sent as, sealed, and file_id the file that it is; null for a text.
CREATE TABLE outbound_messages (
	id                  TEXT   NOT NULL PRIMARY KEY,
	org_id              TEXT   NOT NULL,
	channel_id          TEXT   NOT NULL,
	conversation_id     TEXT   NOT NULL,
	turn_id             TEXT,
	part                BIGINT NOT NULL CHECK (part >= 0),
	author              TEXT   NOT NULL CHECK (author IN ('assistant', 'human')),
	state               TEXT   NOT NULL CHECK (state IN ('pending', 'sending', 'sent', 'failed', 'delivery_unknown', 'discarded')),
	code                TEXT   NOT NULL,
	platform_message_id TEXT   NOT NULL,
	attempts            BIGINT NOT NULL CHECK (attempts >= 0),
	resends             BIGINT NOT NULL DEFAULT 0,
	created_at          BIGINT NOT NULL,
	updated_at          BIGINT NOT NULL,
	file_id             TEXT,
	template            BYTEA,
	body                BYTEA  NOT NULL,
	CHECK ((author = 'assistant') = (turn_id IS NOT NULL)),
	CHECK (state <> 'sent' OR code = '')
) {hot table};
CREATE UNIQUE INDEX outbound_messages_part ON outbound_messages (turn_id, part) WHERE turn_id IS NOT NULL;
CREATE INDEX outbound_messages_conversation ON outbound_messages (conversation_id, created_at, id);
CREATE INDEX outbound_messages_platform ON outbound_messages (org_id, channel_id, platform_message_id) WHERE platform_message_id <> '';

-- The Idempotency-Keys of messages that people sent: key_hash is the SHA-256 of the key, fingerprint that of the request, and message_ids are
-- the messages' ids, separated by spaces. A row counts for a day from created_at.
CREATE TABLE message_keys (
	org_id      TEXT   NOT NULL,
	key_hash    BYTEA  NOT NULL CHECK (length(key_hash) = 32),
	fingerprint BYTEA  NOT NULL CHECK (length(fingerprint) = 32),
	message_ids TEXT   NOT NULL CHECK (message_ids <> ''),
	created_at  BIGINT NOT NULL,
	PRIMARY KEY (org_id, key_hash)
) {table};
CREATE INDEX message_keys_age ON message_keys (created_at);

-- Messages of deleted conversations, which the platform may deliver again: hash is the SHA-256 of the id of the channel, a line feed and the
-- platform's id of the message.
CREATE TABLE message_tombstones (
	hash       BYTEA  NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
	org_id     TEXT   NOT NULL,
	expires_at BIGINT NOT NULL
) {table};
CREATE INDEX message_tombstones_expiry ON message_tombstones (expires_at);

-- Turns of a widget's conversations that were deleted on the same day or the day after: what their calls cost still counts for the widget's
-- day.
CREATE TABLE deleted_turns (
	id         TEXT   NOT NULL PRIMARY KEY,
	org_id     TEXT   NOT NULL,
	channel_id TEXT   NOT NULL,
	created_at BIGINT NOT NULL,
	call_id    TEXT   NOT NULL
) {table};
CREATE INDEX deleted_turns_channel ON deleted_turns (channel_id, created_at);
CREATE INDEX deleted_turns_age ON deleted_turns (created_at);

-- Files, for package media. Pieces have 256 KiB each but the last, and are sealed by themselves.

-- A file of a customer's message, of the conversation conversation_id. message_id is null after the message was deleted, whatever deleted it:
-- what is left of the file is then deleted in small transactions. about is sealed: the platform's reference, until the file was fetched, and
-- the file's name. bytes and pieces are 0 unless it is stored. While it is waiting, run_at is when it is tried next, also after a process
-- that died while it tried. code says why it failed.
CREATE TABLE media (
	id              TEXT   NOT NULL PRIMARY KEY,
	org_id          TEXT   NOT NULL,
	channel_id      TEXT   NOT NULL,
	conversation_id TEXT   NOT NULL,
	message_id      TEXT   REFERENCES messages (id) ON DELETE SET NULL,
	position        BIGINT NOT NULL CHECK (position >= 0),
	kind            TEXT   NOT NULL CHECK (kind <> ''),
	state           TEXT   NOT NULL CHECK (state IN ('waiting', 'stored', 'failed')),
	code            TEXT   NOT NULL,
	media_type      TEXT   NOT NULL,
	bytes           BIGINT NOT NULL CHECK (bytes >= 0),
	pieces          BIGINT NOT NULL CHECK (pieces >= 0),
	attempts        BIGINT NOT NULL CHECK (attempts >= 0),
	run_at          BIGINT NOT NULL,
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL,
	about           BYTEA  NOT NULL,
	UNIQUE (org_id, id)
) {hot table};
CREATE INDEX media_message ON media (message_id, position);
CREATE INDEX media_due ON media (org_id, run_at) WHERE state = 'waiting';
CREATE INDEX media_stored ON media (org_id, bytes) WHERE state = 'stored';
CREATE INDEX media_customer ON media (conversation_id, created_at, id) WHERE state = 'stored';

CREATE TABLE media_pieces (
	org_id   TEXT   NOT NULL,
	media_id TEXT   NOT NULL,
	position BIGINT NOT NULL CHECK (position >= 0),
	body     BYTEA  NOT NULL,
	PRIMARY KEY (org_id, media_id, position),
	FOREIGN KEY (org_id, media_id) REFERENCES media (org_id, id)
) {long table};

-- A file that a person sends to a customer. It is stored before its message, which outbound_id names from then on; null after the message was
-- deleted, whatever deleted it. A file without a message is deleted in small transactions once expires_at is over, which is 0 from when it
-- has one. name is sealed.
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
	created_at  BIGINT NOT NULL,
	UNIQUE (org_id, id)
) {table};
CREATE INDEX sent_files_message ON sent_files (outbound_id);
CREATE INDEX sent_files_size ON sent_files (org_id, bytes);

CREATE TABLE sent_file_pieces (
	org_id   TEXT   NOT NULL,
	file_id  TEXT   NOT NULL,
	position BIGINT NOT NULL CHECK (position >= 0),
	body     BYTEA  NOT NULL,
	PRIMARY KEY (org_id, file_id, position),
	FOREIGN KEY (org_id, file_id) REFERENCES sent_files (org_id, id)
) {long table};

-- Events for organizations' own systems, and processes.

-- The address of a system that is told of events. events is a list of types with a space before and after each. secret signs, sealed;
-- old_secret signs as well until old_secret_until, after the secret was replaced. reason says why it was disabled; '' is a person's wish.
-- failing_since is the first failed try since the last delivery, or 0. usage_next is the first number in the live wallet of which no
-- usage.recorded was made, or 0 for an endpoint without that type.
CREATE TABLE event_endpoints (
	id               TEXT   NOT NULL PRIMARY KEY,
	org_id           TEXT   NOT NULL REFERENCES organizations (id),
	url              TEXT   NOT NULL CHECK (url <> ''),
	events           TEXT   NOT NULL,
	secret           BYTEA  NOT NULL,
	old_secret       BYTEA,
	old_secret_until BIGINT NOT NULL,
	state            TEXT   NOT NULL CHECK (state IN ('active', 'disabled')),
	reason           TEXT   NOT NULL,
	failing_since    BIGINT NOT NULL,
	created_at       BIGINT NOT NULL,
	updated_at       BIGINT NOT NULL,
	usage_next       BIGINT NOT NULL DEFAULT 0
) {table};
CREATE INDEX event_endpoints_org ON event_endpoints (org_id, id);
CREATE INDEX event_endpoints_usage ON event_endpoints (id) WHERE usage_next > 0;

-- An event on its way to an endpoint; written in the transaction of what it tells of. payload is the body that is sent. run_at is when it is
-- tried next, also after a process that died while it tried; outcome and status are of the last try.
CREATE TABLE event_deliveries (
	event_id    TEXT   NOT NULL,
	endpoint_id TEXT   NOT NULL,
	org_id      TEXT   NOT NULL,
	type        TEXT   NOT NULL,
	state       TEXT   NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
	attempts    BIGINT NOT NULL CHECK (attempts >= 0),
	run_at      BIGINT NOT NULL,
	outcome     TEXT   NOT NULL,
	status      BIGINT NOT NULL,
	created_at  BIGINT NOT NULL,
	updated_at  BIGINT NOT NULL,
	payload     TEXT   NOT NULL,
	PRIMARY KEY (org_id, event_id, endpoint_id)
) {hot table};
CREATE INDEX event_deliveries_due ON event_deliveries (org_id, run_at) WHERE state = 'pending';
CREATE INDEX event_deliveries_endpoint ON event_deliveries (endpoint_id, event_id);
CREATE INDEX event_deliveries_age ON event_deliveries (created_at);

-- Servers and workers with the ids of the keys in their master_key, the first key's first. seen_at is their last sign of life.
CREATE TABLE processes (
	id      TEXT   NOT NULL PRIMARY KEY,
	name    TEXT   NOT NULL,
	key_ids TEXT   NOT NULL,
	seen_at BIGINT NOT NULL
) {table};

-- What the operator must know of, for package conditions. node is the name of the process that sees a condition, '' for one of the whole service;
-- since is when the first process saw it.
CREATE TABLE conditions (
	kind    TEXT   NOT NULL CHECK (kind <> ''),
	subject TEXT   NOT NULL,
	node    TEXT   NOT NULL,
	since   BIGINT NOT NULL,
	text    TEXT   NOT NULL,
	PRIMARY KEY (kind, subject, node)
) {table};

-- Runs of the doctor. report is JSON, '' until the run has ended; ended_at is 0 until then, and also after a process that died.
CREATE TABLE doctor_runs (
	id         TEXT   NOT NULL PRIMARY KEY,
	node       TEXT   NOT NULL,
	started_by TEXT   NOT NULL,
	started_at BIGINT NOT NULL,
	ended_at   BIGINT NOT NULL,
	state      TEXT   NOT NULL CHECK (state IN ('running', 'ok', 'findings', 'unfinished')),
	report     TEXT   NOT NULL
) {long table};

-- Moments that all processes share: until when a process has the duty of the conditions or of the doctor, and when the last backup was made.
CREATE TABLE marks (
	name TEXT   NOT NULL PRIMARY KEY,
	node TEXT   NOT NULL,
	at   BIGINT NOT NULL
) {hot table};

-- The books only grow. REPLACE fires the triggers, too, because SQLite's connections set recursive_triggers; PostgreSQL's also refuse a
-- statement that would touch no row.
-- sqlite
CREATE TRIGGER ledger_tx_no_update BEFORE UPDATE ON ledger_tx BEGIN SELECT RAISE(ABORT, 'ledger_tx is append-only'); END;
CREATE TRIGGER ledger_tx_no_delete BEFORE DELETE ON ledger_tx BEGIN SELECT RAISE(ABORT, 'ledger_tx is append-only'); END;
CREATE TRIGGER statements_no_update BEFORE UPDATE ON statements BEGIN SELECT RAISE(ABORT, 'statements is append-only'); END;
CREATE TRIGGER statements_no_delete BEFORE DELETE ON statements BEGIN SELECT RAISE(ABORT, 'statements is append-only'); END;
CREATE TRIGGER calls_no_update BEFORE UPDATE ON calls WHEN OLD.charged_micros > 0 BEGIN SELECT RAISE(ABORT, 'charges are append-only'); END;
CREATE TRIGGER calls_no_delete BEFORE DELETE ON calls WHEN OLD.charged_micros > 0 BEGIN SELECT RAISE(ABORT, 'charges are append-only'); END;
-- postgres
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER ledger_tx_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_tx
	FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER statements_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON statements
	FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER calls_append_only BEFORE UPDATE OR DELETE ON calls FOR EACH ROW WHEN (OLD.charged_micros > 0) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER calls_no_truncate BEFORE TRUNCATE ON calls FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- When PostgreSQL vacuums. Its default, once a fifth of a table has changed, suits none of these: rate_windows and wallets are small and
-- change with every request; of the tables that grow for ever, rows end within minutes, and each leaves an entry in a partial index ("open",
-- "in progress") that the next look at what is open steps over until a vacuum has been there; conversations are changed by each message and
-- each lease.
ALTER TABLE rate_windows SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE wallets SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE holds SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
ALTER TABLE running_keys SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
ALTER TABLE conversations SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
ALTER TABLE messages SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
ALTER TABLE turns SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
ALTER TABLE outbound_messages SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);
-- both
