package schema

// schemaV17 adds what people are told of, by the rules of [schemaV1].
const schemaV17 = `
-- The address of an organization's own system that is told of events. events is a list of types with a space before and after
-- each. secret signs, sealed; old_secret signs as well until old_secret_until, after the secret was replaced. reason says why it was
-- disabled; '' is a person's wish. failing_since is the first failed try since the last delivery, or 0.
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
	updated_at       BIGINT NOT NULL
) {table};
CREATE INDEX event_endpoints_org ON event_endpoints (org_id, id);

-- An event on its way to an endpoint; written in the transaction of what it tells of. payload is the body that is sent. run_at is
-- when it is tried next, also after a process that died while it tried; outcome and status are of the last try.
CREATE TABLE event_deliveries (
	event_id    TEXT   NOT NULL,
	endpoint_id TEXT   NOT NULL,
	org_id      TEXT   NOT NULL,
	type        TEXT   NOT NULL,
	payload     TEXT   NOT NULL,
	state       TEXT   NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
	attempts    BIGINT NOT NULL CHECK (attempts >= 0),
	run_at      BIGINT NOT NULL,
	outcome     TEXT   NOT NULL,
	status      BIGINT NOT NULL,
	created_at  BIGINT NOT NULL,
	updated_at  BIGINT NOT NULL,
	PRIMARY KEY (event_id, endpoint_id)
) {hot table};
CREATE INDEX event_deliveries_due ON event_deliveries (org_id, run_at) WHERE state = 'pending';
CREATE INDEX event_deliveries_endpoint ON event_deliveries (endpoint_id, event_id);
CREATE INDEX event_deliveries_age ON event_deliveries (created_at);

-- The balance of the live wallet, in micros, below which it runs low; 0 is no bound. low_balance_since is when it fell below, or 0.
ALTER TABLE organizations ADD COLUMN low_balance_micros BIGINT NOT NULL DEFAULT 0 CHECK (low_balance_micros >= 0);
ALTER TABLE organizations ADD COLUMN low_balance_since BIGINT NOT NULL DEFAULT 0;
CREATE INDEX organizations_low_balance ON organizations (id) WHERE low_balance_micros > 0;
-- For how many minutes a customer waits for an answer before people are told; 0 is never.
ALTER TABLE organizations ADD COLUMN waiting_minutes BIGINT NOT NULL DEFAULT 15 CHECK (waiting_minutes >= 0);

-- The end of the channel's token that people were told of, in epoch milliseconds, or 0.
ALTER TABLE channels ADD COLUMN expiry_told BIGINT NOT NULL DEFAULT 0;

-- unanswered_since is when the first of the customer's texts arrived that nothing was answered to, or 0; waiting_told is its value that
-- people were told of. attention_told is the attention that they were told of since the last answer.
-- handover_reason is why a person has the conversation, or had it last.
ALTER TABLE conversations ADD COLUMN unanswered_since BIGINT NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN waiting_told BIGINT NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN attention_told TEXT NOT NULL DEFAULT '';
ALTER TABLE conversations ADD COLUMN handover_reason TEXT NOT NULL DEFAULT '';
`

// indexesV18 are the ways to an organization's conversations whose customers wait: those that people weren't told of, and those that wait
// for a person.
func indexesV18() []lateIndex {
	return []lateIndex{
		{
			name: "conversations_untold", table: "conversations",
			rows: "(org_id, unanswered_since) WHERE unanswered_since > 0 AND unanswered_since <> waiting_told",
		},
		{name: "conversations_people", table: "conversations", rows: "(org_id) WHERE attention <> '' OR (state = 'human' AND unanswered_since > 0)"},
	}
}
