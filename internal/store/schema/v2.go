package schema

// schemaV2 adds what customer messages need: assistants, channels, and the queue by the rules of
// [schemaV1]. internal/inbox owns every statement on conversations, messages, turns and outbound_messages, but for those
// that take them away with their channel (store.Channels.Delete).
const schemaV2 = `
CREATE TABLE agents (
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
	UNIQUE (org_id, name)
) {table};

-- credentials are sealed; their version counts up with every change, so that a refreshed token can't overwrite a newer
-- one. state 'pending': nobody has shown yet that the external id is the organization's. code says what to mend.
CREATE TABLE channels (
	id                  TEXT   NOT NULL PRIMARY KEY,
	org_id              TEXT   NOT NULL REFERENCES organizations (id),
	type                TEXT   NOT NULL CHECK (type IN ('bot', 'social_messenger', 'photo_dm', 'chat_app', 'localchat', 'market_a', 'market_b',
		'widget')),
	name                TEXT   NOT NULL CHECK (name <> ''),
	external_id         TEXT   NOT NULL,
	agent_id            TEXT,
	state               TEXT   NOT NULL CHECK (state IN ('pending', 'active', 'needs_reauth')),
	credentials         BYTEA,
	credentials_version BIGINT NOT NULL,
	created_at          BIGINT NOT NULL,
	updated_at          BIGINT NOT NULL,
	UNIQUE (org_id, name)
) {table};
CREATE UNIQUE INDEX channels_external ON channels (type, external_id) WHERE external_id <> '';
CREATE INDEX channels_agent ON channels (agent_id) WHERE agent_id IS NOT NULL;

-- One customer on one channel, and its place in the queue: run_at is when the worker should look next (null: nothing to
-- do), lease_until until when a worker has it, lease_token the fencing token, which only grows. customer_ref is the
-- platform's name of the conversation, address where replies go. waiting_since is the arrival of the oldest message
-- that waits in a quiet window. paused_until: a human writes from the platform's own app. The foreign key, which costs
-- only a new conversation something, keeps what comes in late from outliving a channel that is being deleted.
CREATE TABLE conversations (
	id               TEXT   NOT NULL PRIMARY KEY,
	org_id           TEXT   NOT NULL,
	channel_id       TEXT   NOT NULL REFERENCES channels (id),
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
	UNIQUE (channel_id, customer_ref)
) {hot table};
CREATE INDEX conversations_due ON conversations (run_at) WHERE run_at IS NOT NULL;
CREATE INDEX conversations_org ON conversations (org_id, id);

-- What came from the platform; the unique pair is the task id, kept for good. kind 'event' is something
-- without text (an image). author 'human': somebody of the business wrote from the platform's own app. turn_id is the
-- turn that answers it; handled: nobody has to answer it any more. arrival orders messages of one platform time.
CREATE TABLE messages (
	id                  TEXT    NOT NULL PRIMARY KEY,
	org_id              TEXT    NOT NULL,
	channel_id          TEXT    NOT NULL,
	conversation_id     TEXT    NOT NULL,
	platform_message_id TEXT    NOT NULL CHECK (platform_message_id <> ''),
	author              TEXT    NOT NULL CHECK (author IN ('customer', 'human')),
	kind                TEXT    NOT NULL CHECK (kind IN ('text', 'event')),
	body                BYTEA   NOT NULL,
	turn_id             TEXT,
	handled             BOOLEAN NOT NULL,
	sent_at             BIGINT  NOT NULL,
	received_at         BIGINT  NOT NULL,
	UNIQUE (channel_id, platform_message_id)
) {hot table};
CREATE INDEX messages_conversation ON messages (conversation_id, received_at, id);
CREATE INDEX messages_open ON messages (conversation_id) WHERE turn_id IS NULL AND NOT handled;
CREATE INDEX messages_turn ON messages (turn_id) WHERE turn_id IS NOT NULL;

-- One answer of an assistant: the request is stored, sealed, before the model is called, and a retry sends the stored
-- one under the turn's id. 'answered': the outbound rows exist. code says why a turn stands or ended without an answer;
-- balance_micros is what the wallet had free when it was refused.
CREATE TABLE turns (
	id              TEXT   NOT NULL PRIMARY KEY,
	org_id          TEXT   NOT NULL,
	channel_id      TEXT   NOT NULL,
	conversation_id TEXT   NOT NULL,
	agent_id        TEXT   NOT NULL,
	state           TEXT   NOT NULL CHECK (state IN ('asking', 'answered', 'superseded', 'discarded', 'needs_attention', 'dead')),
	request         BYTEA,
	code            TEXT   NOT NULL,
	balance_micros  BIGINT,
	attempts        BIGINT NOT NULL CHECK (attempts >= 0),
	created_at      BIGINT NOT NULL,
	updated_at      BIGINT NOT NULL
) {hot table};
CREATE INDEX turns_conversation ON turns (conversation_id, id);
CREATE INDEX turns_attention ON turns (updated_at) WHERE state IN ('needs_attention', 'dead');
-- A conversation has one running turn.
CREATE UNIQUE INDEX turns_asking ON turns (conversation_id) WHERE state = 'asking';

-- What goes to the customer, part by part. author 'human' wrote through the API and has no turn. platform_message_id is
-- set once the platform has taken it.
CREATE TABLE outbound_messages (
	id                  TEXT   NOT NULL PRIMARY KEY,
	org_id              TEXT   NOT NULL,
	channel_id          TEXT   NOT NULL,
	conversation_id     TEXT   NOT NULL,
	turn_id             TEXT,
	part                BIGINT NOT NULL CHECK (part >= 0),
	author              TEXT   NOT NULL CHECK (author IN ('assistant', 'human')),
	body                BYTEA  NOT NULL,
	state               TEXT   NOT NULL CHECK (state IN ('pending', 'sending', 'sent', 'failed', 'delivery_unknown', 'discarded')),
	code                TEXT   NOT NULL,
	platform_message_id TEXT   NOT NULL,
	attempts            BIGINT NOT NULL CHECK (attempts >= 0),
	created_at          BIGINT NOT NULL,
	updated_at          BIGINT NOT NULL,
	CHECK ((author = 'assistant') = (turn_id IS NOT NULL)),
	CHECK (state <> 'sent' OR code = '')
) {hot table};
CREATE UNIQUE INDEX outbound_messages_part ON outbound_messages (turn_id, part) WHERE turn_id IS NOT NULL;
CREATE INDEX outbound_messages_conversation ON outbound_messages (conversation_id, created_at, id);
CREATE INDEX outbound_messages_open ON outbound_messages (conversation_id) WHERE state IN ('pending', 'sending');
CREATE INDEX outbound_messages_platform ON outbound_messages (channel_id, platform_message_id) WHERE platform_message_id <> '';
`
