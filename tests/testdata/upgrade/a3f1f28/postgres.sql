--
-- PostgreSQL database dump
--

\restrict e1D8k3liXjr7z032Yr2S9UWyfU5yogisUEmgGwg1T3Hq913MDrbY2SyViMkrMKV

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: chunk_lexemes(text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.chunk_lexemes(words text) RETURNS tsvector
    LANGUAGE plpgsql IMMUTABLE STRICT COST 10000 PARALLEL SAFE
    AS $$
BEGIN
	RETURN array_to_tsvector(string_to_array(words, ' '));
END $$;


--
-- Name: refuse_change(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
	RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: agent_knowledge_bases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.agent_knowledge_bases (
    agent_id text NOT NULL,
    knowledge_base_id text NOT NULL,
    org_id text NOT NULL
);


--
-- Name: agents; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.agents (
    id text NOT NULL,
    org_id text NOT NULL,
    name text NOT NULL,
    model text NOT NULL,
    instructions text NOT NULL,
    use_byok boolean NOT NULL,
    max_tokens bigint NOT NULL,
    temperature_milli bigint,
    debounce_ms bigint NOT NULL,
    debounce_max_ms bigint NOT NULL,
    supersede boolean NOT NULL,
    pause_ms bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT agents_debounce_max_ms_check CHECK ((debounce_max_ms >= 0)),
    CONSTRAINT agents_debounce_ms_check CHECK ((debounce_ms >= 0)),
    CONSTRAINT agents_max_tokens_check CHECK ((max_tokens >= 0)),
    CONSTRAINT agents_name_check CHECK ((name <> ''::text)),
    CONSTRAINT agents_pause_ms_check CHECK ((pause_ms >= 0)),
    CONSTRAINT agents_temperature_milli_check CHECK (((temperature_milli >= 0) AND (temperature_milli <= 2000)))
);


--
-- Name: api_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.api_keys (
    id text NOT NULL,
    org_id text NOT NULL,
    env text NOT NULL,
    name text NOT NULL,
    scopes text NOT NULL,
    hash bytea NOT NULL,
    hint text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    CONSTRAINT api_keys_env_check CHECK ((env = ANY (ARRAY['live'::text, 'test'::text]))),
    CONSTRAINT api_keys_hash_check CHECK ((length(hash) = 32))
);


--
-- Name: audit_log; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.audit_log (
    id text NOT NULL,
    at bigint NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    org_id text NOT NULL,
    detail text NOT NULL
);


--
-- Name: calls; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.calls (
    id text NOT NULL,
    request_id text NOT NULL,
    org_id text NOT NULL,
    env text NOT NULL,
    key_id text NOT NULL,
    model text NOT NULL,
    provider text NOT NULL,
    byok boolean NOT NULL,
    stream boolean NOT NULL,
    outcome text NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    usage_source text NOT NULL,
    charged_micros bigint NOT NULL,
    extra_micros bigint NOT NULL,
    shortfall_micros bigint NOT NULL,
    tx_id text,
    started_at bigint NOT NULL,
    duration_ms bigint NOT NULL,
    CONSTRAINT calls_cached_tokens_check CHECK ((cached_tokens >= 0)),
    CONSTRAINT calls_charged_micros_check CHECK ((charged_micros >= 0)),
    CONSTRAINT calls_check CHECK (((NOT byok) OR (charged_micros = 0))),
    CONSTRAINT calls_completion_tokens_check CHECK ((completion_tokens >= 0)),
    CONSTRAINT calls_duration_ms_check CHECK ((duration_ms >= 0)),
    CONSTRAINT calls_env_check CHECK ((env = ANY (ARRAY['live'::text, 'test'::text]))),
    CONSTRAINT calls_extra_micros_check CHECK ((extra_micros >= 0)),
    CONSTRAINT calls_prompt_tokens_check CHECK ((prompt_tokens >= 0)),
    CONSTRAINT calls_shortfall_micros_check CHECK ((shortfall_micros >= 0)),
    CONSTRAINT calls_usage_source_check CHECK ((usage_source = ANY (ARRAY['provider'::text, 'estimated'::text, 'none'::text])))
);


--
-- Name: channels; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.channels (
    id text NOT NULL,
    org_id text NOT NULL,
    type text NOT NULL,
    name text NOT NULL,
    external_id text NOT NULL,
    agent_id text,
    state text NOT NULL,
    credentials bytea,
    credentials_version bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT channels_name_check CHECK ((name <> ''::text)),
    CONSTRAINT channels_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'active'::text, 'needs_reauth'::text]))),
    CONSTRAINT channels_type_check CHECK ((type = ANY (ARRAY['bot'::text, 'social_messenger'::text, 'photo_dm'::text, 'chat_app'::text, 'localchat'::text, 'market_a'::text, 'market_b'::text, 'widget'::text])))
);


--
-- Name: chunks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.chunks (
    seq bigint NOT NULL,
    document_id text NOT NULL,
    "position" bigint NOT NULL,
    text text NOT NULL,
    words text NOT NULL,
    CONSTRAINT chunks_position_check CHECK (("position" >= 0))
)
WITH (toast_tuple_target='128');


--
-- Name: chunks_seq_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.chunks ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.chunks_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: conversations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.conversations (
    id text NOT NULL,
    org_id text NOT NULL,
    channel_id text NOT NULL,
    customer_ref text NOT NULL,
    address text NOT NULL,
    customer_name bytea,
    state text NOT NULL,
    attention text NOT NULL,
    run_at bigint,
    waiting_since bigint,
    lease_until bigint NOT NULL,
    lease_token bigint NOT NULL,
    attempts bigint NOT NULL,
    paused_until bigint NOT NULL,
    last_customer_at bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT conversations_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT conversations_customer_ref_check CHECK ((customer_ref <> ''::text)),
    CONSTRAINT conversations_state_check CHECK ((state = ANY (ARRAY['assistant'::text, 'human'::text, 'closed'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000');


--
-- Name: documents; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.documents (
    id text NOT NULL,
    org_id text NOT NULL,
    knowledge_base_id text NOT NULL,
    name text NOT NULL,
    media_type text NOT NULL,
    bytes bigint NOT NULL,
    state text NOT NULL,
    chunks_done bigint NOT NULL,
    chunks_total bigint NOT NULL,
    reason text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT documents_bytes_check CHECK ((bytes >= 0)),
    CONSTRAINT documents_check CHECK ((chunks_total >= chunks_done)),
    CONSTRAINT documents_check1 CHECK (((state <> 'ready'::text) OR (chunks_done = chunks_total))),
    CONSTRAINT documents_check2 CHECK (((state = 'failed'::text) = (reason <> ''::text))),
    CONSTRAINT documents_chunks_done_check CHECK ((chunks_done >= 0)),
    CONSTRAINT documents_media_type_check CHECK ((media_type = ANY (ARRAY['text/plain'::text, 'text/markdown'::text, 'text/html'::text]))),
    CONSTRAINT documents_name_check CHECK ((name <> ''::text)),
    CONSTRAINT documents_state_check CHECK ((state = ANY (ARRAY['ingesting'::text, 'ready'::text, 'failed'::text])))
)
WITH (fillfactor='50');


--
-- Name: holds; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.holds (
    id text NOT NULL,
    org_id text NOT NULL,
    env text NOT NULL,
    amount_micros bigint NOT NULL,
    status text NOT NULL,
    model text NOT NULL,
    price_input bigint NOT NULL,
    price_output bigint NOT NULL,
    price_cached_input bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    resolved_at bigint,
    CONSTRAINT holds_amount_micros_check CHECK ((amount_micros > 0)),
    CONSTRAINT holds_check CHECK (((status = 'open'::text) = (resolved_at IS NULL))),
    CONSTRAINT holds_env_check CHECK ((env = ANY (ARRAY['live'::text, 'test'::text]))),
    CONSTRAINT holds_price_input_check CHECK ((price_input >= 0)),
    CONSTRAINT holds_price_output_check CHECK ((price_output >= 0)),
    CONSTRAINT holds_status_check CHECK ((status = ANY (ARRAY['open'::text, 'settled'::text, 'voided'::text, 'expired'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='10000');


--
-- Name: idempotency_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.idempotency_keys (
    org_id text NOT NULL,
    env text NOT NULL,
    key_hash bytea NOT NULL,
    fingerprint bytea NOT NULL,
    state text NOT NULL,
    call_id text NOT NULL,
    lease_until bigint NOT NULL,
    response bytea,
    created_at bigint NOT NULL,
    finished_at bigint,
    expires_at bigint NOT NULL,
    CONSTRAINT idempotency_keys_call_id_check CHECK ((call_id <> ''::text)),
    CONSTRAINT idempotency_keys_check CHECK (((state = 'done'::text) = (finished_at IS NOT NULL))),
    CONSTRAINT idempotency_keys_check1 CHECK (((state = 'done'::text) OR (response IS NULL))),
    CONSTRAINT idempotency_keys_env_check CHECK ((env = ANY (ARRAY['live'::text, 'test'::text]))),
    CONSTRAINT idempotency_keys_fingerprint_check CHECK ((length(fingerprint) = 32)),
    CONSTRAINT idempotency_keys_key_hash_check CHECK ((length(key_hash) = 32)),
    CONSTRAINT idempotency_keys_state_check CHECK ((state = ANY (ARRAY['in_progress'::text, 'done'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='10000');


--
-- Name: knowledge_bases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.knowledge_bases (
    id text NOT NULL,
    org_id text NOT NULL,
    name text NOT NULL,
    description text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT knowledge_bases_name_check CHECK ((name <> ''::text))
);


--
-- Name: ledger_entries; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.ledger_entries (
    tx_id text NOT NULL,
    seq bigint NOT NULL,
    account text NOT NULL,
    amount_micros bigint NOT NULL,
    CONSTRAINT ledger_entries_amount_micros_check CHECK ((amount_micros <> 0)),
    CONSTRAINT ledger_entries_seq_check CHECK ((seq >= 0))
);


--
-- Name: ledger_tx; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.ledger_tx (
    id text NOT NULL,
    org_id text NOT NULL,
    env text NOT NULL,
    kind text NOT NULL,
    ref text NOT NULL,
    reason text NOT NULL,
    balance_micros bigint NOT NULL,
    created_at bigint NOT NULL,
    CONSTRAINT ledger_tx_balance_micros_check CHECK ((balance_micros >= 0)),
    CONSTRAINT ledger_tx_env_check CHECK ((env = ANY (ARRAY['live'::text, 'test'::text]))),
    CONSTRAINT ledger_tx_kind_check CHECK ((kind = ANY (ARRAY['topup'::text, 'charge'::text, 'adjust'::text, 'refund'::text]))),
    CONSTRAINT ledger_tx_ref_check CHECK ((ref <> ''::text))
);


--
-- Name: login_windows; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.login_windows (
    subject bytea NOT NULL,
    window_start bigint NOT NULL,
    count bigint NOT NULL,
    CONSTRAINT login_windows_count_check CHECK ((count >= 0)),
    CONSTRAINT login_windows_subject_check CHECK ((length(subject) = 32))
)
WITH (fillfactor='50');


--
-- Name: messages; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.messages (
    id text NOT NULL,
    org_id text NOT NULL,
    channel_id text NOT NULL,
    conversation_id text NOT NULL,
    platform_message_id text NOT NULL,
    author text NOT NULL,
    kind text NOT NULL,
    body bytea NOT NULL,
    turn_id text,
    handled boolean NOT NULL,
    sent_at bigint NOT NULL,
    received_at bigint NOT NULL,
    CONSTRAINT messages_author_check CHECK ((author = ANY (ARRAY['customer'::text, 'human'::text]))),
    CONSTRAINT messages_kind_check CHECK ((kind = ANY (ARRAY['text'::text, 'event'::text]))),
    CONSTRAINT messages_platform_message_id_check CHECK ((platform_message_id <> ''::text))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='10000');


--
-- Name: org_models; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.org_models (
    org_id text NOT NULL,
    model text NOT NULL,
    enabled boolean NOT NULL
);


--
-- Name: organizations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.organizations (
    id text NOT NULL,
    name text NOT NULL,
    plan text NOT NULL,
    created_at bigint NOT NULL,
    suspended_at bigint,
    retention_days bigint DEFAULT 0 NOT NULL,
    CONSTRAINT organizations_retention_days_check CHECK ((retention_days >= 0))
);


--
-- Name: outbound_messages; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.outbound_messages (
    id text NOT NULL,
    org_id text NOT NULL,
    channel_id text NOT NULL,
    conversation_id text NOT NULL,
    turn_id text,
    part bigint NOT NULL,
    author text NOT NULL,
    body bytea NOT NULL,
    state text NOT NULL,
    code text NOT NULL,
    platform_message_id text NOT NULL,
    attempts bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT outbound_messages_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT outbound_messages_author_check CHECK ((author = ANY (ARRAY['assistant'::text, 'human'::text]))),
    CONSTRAINT outbound_messages_check CHECK (((author = 'assistant'::text) = (turn_id IS NOT NULL))),
    CONSTRAINT outbound_messages_check1 CHECK (((state <> 'sent'::text) OR (code = ''::text))),
    CONSTRAINT outbound_messages_part_check CHECK ((part >= 0)),
    CONSTRAINT outbound_messages_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'sending'::text, 'sent'::text, 'failed'::text, 'delivery_unknown'::text, 'discarded'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='10000');


--
-- Name: provider_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.provider_keys (
    org_id text NOT NULL,
    provider text NOT NULL,
    sealed bytea NOT NULL,
    hint text NOT NULL,
    updated_at bigint NOT NULL
);


--
-- Name: rate_windows; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.rate_windows (
    org_id text NOT NULL,
    window_start bigint NOT NULL,
    count bigint NOT NULL,
    CONSTRAINT rate_windows_count_check CHECK ((count >= 0))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');


--
-- Name: schema_versions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.schema_versions (
    id integer NOT NULL,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone DEFAULT now() NOT NULL
);


--
-- Name: schema_versions_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.schema_versions ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.schema_versions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: sessions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.sessions (
    hash bytea NOT NULL,
    user_id text NOT NULL,
    org_id text NOT NULL,
    created_at bigint NOT NULL,
    seen_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT sessions_hash_check CHECK ((length(hash) = 32))
);


--
-- Name: turns; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.turns (
    id text NOT NULL,
    org_id text NOT NULL,
    channel_id text NOT NULL,
    conversation_id text NOT NULL,
    agent_id text NOT NULL,
    state text NOT NULL,
    request bytea,
    code text NOT NULL,
    balance_micros bigint,
    attempts bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT turns_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT turns_state_check CHECK ((state = ANY (ARRAY['asking'::text, 'answered'::text, 'superseded'::text, 'discarded'::text, 'needs_attention'::text, 'dead'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='10000');


--
-- Name: user_links; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.user_links (
    hash bytea NOT NULL,
    user_id text NOT NULL,
    org_id text NOT NULL,
    purpose text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT user_links_hash_check CHECK ((length(hash) = 32)),
    CONSTRAINT user_links_purpose_check CHECK ((purpose = ANY (ARRAY['invite'::text, 'reset'::text])))
);


--
-- Name: users; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.users (
    id text NOT NULL,
    org_id text NOT NULL,
    email text NOT NULL,
    role text NOT NULL,
    password text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT users_email_check CHECK ((email <> ''::text)),
    CONSTRAINT users_role_check CHECK ((role = ANY (ARRAY['member'::text, 'administrator'::text, 'owner'::text])))
);


--
-- Name: wallets; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.wallets (
    org_id text NOT NULL,
    env text NOT NULL,
    balance_micros bigint DEFAULT 0 NOT NULL,
    held_micros bigint DEFAULT 0 NOT NULL,
    CONSTRAINT wallets_balance_micros_check CHECK ((balance_micros >= 0)),
    CONSTRAINT wallets_check CHECK ((held_micros <= balance_micros)),
    CONSTRAINT wallets_env_check CHECK ((env = ANY (ARRAY['live'::text, 'test'::text]))),
    CONSTRAINT wallets_held_micros_check CHECK ((held_micros >= 0))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');


--
-- Name: widget_settings; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.widget_settings (
    channel_id text NOT NULL,
    origins text NOT NULL,
    daily_spend_micros bigint,
    requests_per_minute bigint NOT NULL,
    CONSTRAINT widget_settings_daily_spend_micros_check CHECK ((daily_spend_micros >= 0)),
    CONSTRAINT widget_settings_requests_per_minute_check CHECK ((requests_per_minute > 0))
);


--
-- Data for Name: agent_knowledge_bases; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.agent_knowledge_bases VALUES ('agt_06h03bd41pv131jm4kp771rrk0', 'kb_06h03bdkihqvr1gev8e8m9esfc', 'org_06h03bd3i9ss36e4n8idorev08');


--
-- Data for Name: agents; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.agents VALUES ('agt_06h03bd41pv131jm4kp771rrk0', 'org_06h03bd3i9ss36e4n8idorev08', 'Mai', 'acme/std', 'You are Mai. script-3-', false, 0, NULL, 0, 0, false, 0, 1795324486670, 1795324490987);
INSERT INTO public.agents VALUES ('agt_06h03beli1vjfc74gcg45s8nhk', 'org_06h03beldpv1505chob0m80png', 'Mai', 'acme/std', 'You are Mai. script-3-', false, 0, NULL, 0, 0, false, 0, 1795324499344, 1795324499344);


--
-- Data for Name: api_keys; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.api_keys VALUES ('key_06h03bd3r1q4v6gegdht3n6v3g', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'models:read chat:write wallet:read', '\x28abd56ccdd8fcfc653041672ed64d7a66ca54912811be0b66cf4ea8975e417f', 'ck_live_X0H6…', 1795324486616, NULL, NULL);
INSERT INTO public.api_keys VALUES ('key_06h03bd3uho1597hlq1v23vqeg', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'models:read chat:write wallet:read agents:read agents:write channels:read channels:write conversations:read conversations:write', '\xfe1c03034500e18f47a6e1128e73d986629f68f1d19d3c57fd9d6a8c8a9388c1', 'ck_live_ZMF8…', 1795324486644, NULL, NULL);
INSERT INTO public.api_keys VALUES ('key_06h03bd42poh9eo809jdabd9e0', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'models:read chat:write api_keys:read api_keys:write provider_keys:read provider_keys:write agents:read agents:write knowledge_bases:read knowledge_bases:write channels:read channels:write conversations:read conversations:write wallet:read wallet:write', '\x0f30a46e45fb2b904df54dea9e31a4cd117beb02839d5586d4c3883f4dc78c73', 'ck_live_sBTF…', 1795324486678, NULL, NULL);
INSERT INTO public.api_keys VALUES ('key_06h03bd451rm9b9if46cda1amg', 'org_06h03bd3i9ss36e4n8idorev08', 'test', '', 'models:read chat:write wallet:read', '\xf23c3c10a33b25487fdeb22f816198462fc3d8dc490440cc2a0ab303c7f8a192', 'ck_test_miNn…', 1795324486696, NULL, NULL);
INSERT INTO public.api_keys VALUES ('key_06h03bd45ppcve6e3rc41puj2g', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'models:read chat:write wallet:read', '\x8152a9bea3764af3ad64d20acd6bd62ae9b2940a6b01dd140a7be3cf1545a025', 'ck_live_xqf8…', 1795324486702, NULL, 1795324486704);
INSERT INTO public.api_keys VALUES ('key_06h03bd6l1o1l4eporedlgujak', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'past', 'models:read chat:write', '\x37ae6b21d7bf1f641a5b136ab7b858f4c28334a7e86476af3b63b6edfee828f4', 'ck_live_gYBd…', 1795324487336, 1577836800000, NULL);
INSERT INTO public.api_keys VALUES ('key_06h03beiept713p2ntfhrl7vjk', 'org_06h03bd3i9ss36e4n8idorev08', 'test', '', 'models:read chat:write wallet:read', '\xa263bebff40687cf06dc71da600f4a350d261259b741d12f74cc6ba25db84e4c', 'ck_test_BFux…', 1795324498550, NULL, NULL);
INSERT INTO public.api_keys VALUES ('key_06h03beledo1rfgajrrcmigckc', 'org_06h03beldpv1505chob0m80png', 'live', '', 'models:read chat:write wallet:read', '\xe6d7a3d2fc735742361daccf30b4ab23f22923a5ed58ead51f541269a46875d1', 'ck_live_1Hmh…', 1795324499315, NULL, NULL);
INSERT INTO public.api_keys VALUES ('key_06h03belfhqprc3g9i2tkq71o8', 'org_06h03beldpv1505chob0m80png', 'live', '', 'models:read chat:write wallet:read agents:read agents:write channels:read channels:write conversations:read conversations:write', '\xff1b17af6b937d05322f50d9ba1333aea33c16e44f77730707dc4dd1b56bdffb', 'ck_live_rfTw…', 1795324499324, NULL, NULL);
INSERT INTO public.api_keys VALUES ('key_06h03bers5t690h4bhhlptd6lc', 'org_06h03bd3i9ss36e4n8idorev08', 'test', '', 'models:read chat:write wallet:read', '\xcae1f89dc6870727b58423236e22362a71fa79bd529eb3c258ee8b2c1580aef6', 'ck_test_nOU6…', 1795324500961, NULL, NULL);


--
-- Data for Name: audit_log; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.audit_log VALUES ('aud_06h03bd3i9tsd4b5jl6ffmbe68', 1795324486562, 'tests', 'organization.create', 'org_06h03bd3i9ss36e4n8idorev08', 'org_06h03bd3i9ss36e4n8idorev08', 'Customer 3');
INSERT INTO public.audit_log VALUES ('aud_06h03bd3p9umfb285a9v4hukmc', 1795324486601, 'tests', 'wallet.credit', 'txn_06h03bd3p9u5h3g6fr7hqil0qs', 'org_06h03bd3i9ss36e4n8idorev08', '1000000 micros to live, ref txn_06h03bd3p9u5h3g6fr7hqil0qs');
INSERT INTO public.audit_log VALUES ('aud_06h03bd3r1rop1ebuo7qhs7bf0', 1795324486617, 'tests', 'api_key.create', 'key_06h03bd3r1q4v6gegdht3n6v3g', 'org_06h03bd3i9ss36e4n8idorev08', 'live: models:read chat:write wallet:read');
INSERT INTO public.audit_log VALUES ('aud_06h03bd3uhonvf1kfcfhvf9kp8', 1795324486644, 'tests', 'api_key.create', 'key_06h03bd3uho1597hlq1v23vqeg', 'org_06h03bd3i9ss36e4n8idorev08', 'live: models:read chat:write wallet:read agents:read agents:write channels:read channels:write conversations:read conversations:write');
INSERT INTO public.audit_log VALUES ('aud_06h03bd41pvor1n4um7kubis5s', 1795324486671, 'key_06h03bd3uho1597hlq1v23vqeg', 'agent.create', 'agt_06h03bd41pv131jm4kp771rrk0', 'org_06h03bd3i9ss36e4n8idorev08', 'Mai');
INSERT INTO public.audit_log VALUES ('aud_06h03bd42pp6j1bdsppgqghcjc', 1795324486678, 'tests', 'api_key.create', 'key_06h03bd42poh9eo809jdabd9e0', 'org_06h03bd3i9ss36e4n8idorev08', 'live: models:read chat:write api_keys:read api_keys:write provider_keys:read provider_keys:write agents:read agents:write knowledge_bases:read knowledge_bases:write channels:read channels:write conversations:read conversations:write wallet:read wallet:write');
INSERT INTO public.audit_log VALUES ('aud_06h03bd435s5d85vtf1hko5od0', 1795324486680, 'tests', 'wallet.credit', 'txn_06h03bd435rrb19bgma21b3c0o', 'org_06h03bd3i9ss36e4n8idorev08', '5000 micros to test, ref txn_06h03bd435rrb19bgma21b3c0o');
INSERT INTO public.audit_log VALUES ('aud_06h03bd445v61dmk25l4snjrjo', 1795324486689, 'tests', 'wallet.adjust', 'txn_06h03bd445ujh95616hig6jj0c', 'org_06h03bd3i9ss36e4n8idorev08', '-1000 micros to live, ref txn_06h03bd445ujh95616hig6jj0c: a correction');
INSERT INTO public.audit_log VALUES ('aud_06h03bd451sl5dsstucf6h8k8o', 1795324486698, 'tests', 'api_key.create', 'key_06h03bd451rm9b9if46cda1amg', 'org_06h03bd3i9ss36e4n8idorev08', 'test: models:read chat:write wallet:read');
INSERT INTO public.audit_log VALUES ('aud_06h03bd45pqidf0ihs7e5p2at4', 1795324486702, 'tests', 'api_key.create', 'key_06h03bd45ppcve6e3rc41puj2g', 'org_06h03bd3i9ss36e4n8idorev08', 'live: models:read chat:write wallet:read');
INSERT INTO public.audit_log VALUES ('aud_06h03bd465rmr5hnjgb734i36s', 1795324486704, 'tests', 'api_key.revoke', 'key_06h03bd45ppcve6e3rc41puj2g', 'org_06h03bd3i9ss36e4n8idorev08', '');
INSERT INTO public.audit_log VALUES ('aud_06h03bd6l1pnv6maqi9hbcnbto', 1795324487337, 'cli:root', 'api_key.create', 'key_06h03bd6l1o1l4eporedlgujak', 'org_06h03bd3i9ss36e4n8idorev08', 'live: models:read chat:write');
INSERT INTO public.audit_log VALUES ('aud_06h03bd6vdtej7fihcmh7euf3g', 1795324487419, 'tests', 'provider_key.put', 'own', 'org_06h03bd3i9ss36e4n8idorev08', '');
INSERT INTO public.audit_log VALUES ('aud_06h03bdaqluqf6nlosatf8mqg0', 1795324488407, 'cli:root', 'org_model.set', 'acme/small', 'org_06h03bd3i9ss36e4n8idorev08', 'enabled=false');
INSERT INTO public.audit_log VALUES ('aud_06h03bde05oft6m3c7mt582p7c', 1795324489216, 'cli:root', 'user.invite', 'usr_06h03bddv1upj7tgvv1633f9go', 'org_06h03bd3i9ss36e4n8idorev08', 'owner: lan@example.com');
INSERT INTO public.audit_log VALUES ('aud_06h03bdg59q1j8bq4f5n5bf3dc', 1795324489761, 'usr_06h03bddv1upj7tgvv1633f9go', 'user.set_password', 'usr_06h03bddv1upj7tgvv1633f9go', 'org_06h03bd3i9ss36e4n8idorev08', 'invite');
INSERT INTO public.audit_log VALUES ('aud_06h03bdk3tvqj8c3a9etjiu1rs', 1795324490783, 'cli:root', 'user.invite', 'usr_06h03bdk2trmv82lh8lrjvo03o', 'org_06h03bd3i9ss36e4n8idorev08', 'member: mai@example.com');
INSERT INTO public.audit_log VALUES ('aud_06h03bdkihsdfa4e1h7bb6509o', 1795324490901, 'key_06h03bd42poh9eo809jdabd9e0', 'knowledge_base.create', 'kb_06h03bdkihqvr1gev8e8m9esfc', 'org_06h03bd3i9ss36e4n8idorev08', 'Delivery');
INSERT INTO public.audit_log VALUES ('aud_06h03bdkn5th520jie5ob7jto0', 1795324490936, 'key_06h03bd42poh9eo809jdabd9e0', 'document.create', 'doc_06h03bdkmtri3ekms9o64u4qeo', 'org_06h03bd3i9ss36e4n8idorev08', 'Delivery times');
INSERT INTO public.audit_log VALUES ('aud_06h03bdkrdstrdhkuovogp35c4', 1795324490970, 'key_06h03bd42poh9eo809jdabd9e0', 'document.create', 'doc_06h03bdkr9s8bbrddm87vqrlj0', 'org_06h03bd3i9ss36e4n8idorev08', 'Trà');
INSERT INTO public.audit_log VALUES ('aud_06h03bdktls71d523ai93qj6p8', 1795324490987, 'key_06h03bd42poh9eo809jdabd9e0', 'agent.update', 'agt_06h03bd41pv131jm4kp771rrk0', 'org_06h03bd3i9ss36e4n8idorev08', 'Mai');
INSERT INTO public.audit_log VALUES ('aud_06h03bdojlpt1f0jj18t2ahaf8', 1795324491932, 'cli:root', 'channel.create', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'org_06h03bd3i9ss36e4n8idorev08', 'bot');
INSERT INTO public.audit_log VALUES ('aud_06h03bdt9lrr3bmer5mg3o5rak', 1795324493131, 'cli:root', 'channel.create', 'chn_06h03bdt89pr7e8lhh8il3pi00', 'org_06h03bd3i9ss36e4n8idorev08', 'social_messenger 947000002');
INSERT INTO public.audit_log VALUES ('aud_06h03be0p1rc13cpqrad6042ek', 1795324494023, 'cli:root', 'channel.create', 'chn_06h03be0nhuev4pofrp90b4a18', 'org_06h03bd3i9ss36e4n8idorev08', 'photo_dm 947000003');
INSERT INTO public.audit_log VALUES ('aud_06h03be3ipvp15agmvs2bisnjc', 1795324494742, 'cli:root', 'channel.create', 'chn_06h03be3idofj0ia0db02tl0mc', 'org_06h03bd3i9ss36e4n8idorev08', 'chat_app 947000004');
INSERT INTO public.audit_log VALUES ('aud_06h03be7vpvs513qi5vnghpik4', 1795324495870, 'cli:root', 'channel.create', 'chn_06h03be7v5o9b9nr8uses0bdbo', 'org_06h03bd3i9ss36e4n8idorev08', 'localchat 947000005');
INSERT INTO public.audit_log VALUES ('aud_06h03bec5pord5rcasivbmj6uo', 1795324496938, 'cli:root', 'channel.create', 'chn_06h03bec4lsfdae78b11v2van0', 'org_06h03bd3i9ss36e4n8idorev08', 'market_a 947000006');
INSERT INTO public.audit_log VALUES ('aud_06h03beha9tlv96upceb89f19g', 1795324498257, 'cli:root', 'channel.create', 'chn_06h03beh81vcd9b0565kr5tlmo', 'org_06h03bd3i9ss36e4n8idorev08', 'market_b 947000007');
INSERT INTO public.audit_log VALUES ('aud_06h03bei25thn3s6e2t9o4ffi8', 1795324498449, 'key_06h03bd42poh9eo809jdabd9e0', 'channel.create', 'chn_06h03bei1hs3has32f9dnv298g', 'org_06h03bd3i9ss36e4n8idorev08', 'widget');
INSERT INTO public.audit_log VALUES ('aud_06h03bei4doon670epqeogno9k', 1795324498466, 'key_06h03bd42poh9eo809jdabd9e0', 'channel.update', 'chn_06h03bei1hs3has32f9dnv298g', 'org_06h03bd3i9ss36e4n8idorev08', 'widget');
INSERT INTO public.audit_log VALUES ('aud_06h03beiett9b30p9q8irsjtn4', 1795324498552, 'tests', 'api_key.create', 'key_06h03beiept713p2ntfhrl7vjk', 'org_06h03bd3i9ss36e4n8idorev08', 'test: models:read chat:write wallet:read');
INSERT INTO public.audit_log VALUES ('aud_06h03beldto8n35j95lnec70sk', 1795324499313, 'tests', 'organization.create', 'org_06h03beldpv1505chob0m80png', 'org_06h03beldpv1505chob0m80png', 'Customer 4');
INSERT INTO public.audit_log VALUES ('aud_06h03beledpelc30dak3vko060', 1795324499315, 'tests', 'api_key.create', 'key_06h03beledo1rfgajrrcmigckc', 'org_06h03beldpv1505chob0m80png', 'live: models:read chat:write wallet:read');
INSERT INTO public.audit_log VALUES ('aud_06h03belfhsc50dff2i9nnjnns', 1795324499325, 'tests', 'api_key.create', 'key_06h03belfhqprc3g9i2tkq71o8', 'org_06h03beldpv1505chob0m80png', 'live: models:read chat:write wallet:read agents:read agents:write channels:read channels:write conversations:read conversations:write');
INSERT INTO public.audit_log VALUES ('aud_06h03beli5oh16i03p7smpudb8', 1795324499345, 'key_06h03belfhqprc3g9i2tkq71o8', 'agent.create', 'agt_06h03beli1vjfc74gcg45s8nhk', 'org_06h03beldpv1505chob0m80png', 'Mai');
INSERT INTO public.audit_log VALUES ('aud_06h03beop5ugnd8dnjdfcmju50', 1795324500169, 'cli:root', 'channel.create', 'chn_06h03beontp75dguu2qja4q6mc', 'org_06h03beldpv1505chob0m80png', 'bot');
INSERT INTO public.audit_log VALUES ('aud_06h03berjttl93460mb14gosqs', 1795324500895, 'key_06h03bd42poh9eo809jdabd9e0', 'conversation.send', 'cnv_06h03bdp01r5j84pmav3lp4mdo', 'org_06h03bd3i9ss36e4n8idorev08', '');
INSERT INTO public.audit_log VALUES ('aud_06h03bers9o3t47u065osbu0u8', 1795324500962, 'tests', 'api_key.create', 'key_06h03bers5t690h4bhhlptd6lc', 'org_06h03bd3i9ss36e4n8idorev08', 'test: models:read chat:write wallet:read');


--
-- Data for Name: calls; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.calls VALUES ('call_06h03bdpg5tcn7qkioi6kdo20o', 'trn_06h03bdpe9sfdcbelta3lt9alg', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03bdpj1pd742dvg2m0g8gek', 1795324492161, 20);
INSERT INTO public.calls VALUES ('call_06h03bdts9t4r7ob036e04p86k', 'trn_06h03bdtqht516j2537qne8r8c', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03bdttdqj32e50lueurk5t0', 1795324493282, 5);
INSERT INTO public.calls VALUES ('call_06h03be19dv55a3ermpo2vo6oo', 'trn_06h03be18lq1p453rfq0ncjd90', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03be1a9pon36oghbo8vn7fk', 1795324494155, 5);
INSERT INTO public.calls VALUES ('call_06h03be3u1rrp3el292f77clas', 'trn_06h03be3thp4b6fea46vocquus', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03be3vlvc12kk8mms6hgulg', 1795324494832, 12);
INSERT INTO public.calls VALUES ('call_06h03be8ipv91ds1kadfvh9dhc', 'trn_06h03be8hlr9te6su22nru8go8', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03be8ltuhj0fqf6li319f0g', 1795324496022, 23);
INSERT INTO public.calls VALUES ('call_06h03beckppbv1r0p80a1ceils', 'trn_06h03beckhq1nasto6qs5rkvis', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03becm1o0970707q090nr1k', 1795324497062, 6);
INSERT INTO public.calls VALUES ('call_06h03behnho4t5mg4s9ijddqls', 'trn_06h03behmtsrj5m4t33v5ap1t8', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03beholtt5dj3ot05jvhlho', 1795324498364, 6);
INSERT INTO public.calls VALUES ('call_06h03bei59qbp50puujeu537qc', 'req_06h03bei55ql31m94tjfu5mc0o', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'key_06h03bd42poh9eo809jdabd9e0', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03bei6dv3jacai6c29d2oq0', 1795324498474, 8);
INSERT INTO public.calls VALUES ('call_06h03bei7lup54l8iagi16lb4g', 'req_06h03bei7hsgv2bdc10ugciccc', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'key_06h03bd42poh9eo809jdabd9e0', 'acme/std', 'acme', false, true, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03bei9hs59c33vehu9q5ojg', 1795324498493, 13);
INSERT INTO public.calls VALUES ('call_06h03beiatt2n36bu7plsg8ueg', 'req_06h03beia9uv1aiamngoasrtq0', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'key_06h03bd42poh9eo809jdabd9e0', 'own/std', 'own', true, false, 'completed', 11, 7, 0, 'provider', 0, 0, 0, NULL, 1795324498519, 18);
INSERT INTO public.calls VALUES ('call_06h03bekg1q2l9h6619vu17jdo', 'trn_06h03bekdlqu57g1ste3l0pqqk', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03bekhpv1pac6l8el4oe48o', 1795324499072, 13);
INSERT INTO public.calls VALUES ('call_06h03bekolui73faflfj087p6g', 'trn_06h03beknhqbv1jvjgoe19d4gg', 'org_06h03bd3i9ss36e4n8idorev08', 'live', '', 'acme/std', 'acme', false, false, 'completed', 11, 7, 0, 'provider', 25, 0, 0, 'txn_06h03bel6dr3peearkkt1jm5l8', 1795324499141, 94);


--
-- Data for Name: channels; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.channels VALUES ('chn_06h03bdoilv4f5vio1bg1c6kg0', 'org_06h03bd3i9ss36e4n8idorev08', 'bot', 'bot 1', '', 'agt_06h03bd41pv131jm4kp771rrk0', 'active', '\x01097c12bcad89fb5358c0d95c42114121ea5c97b7147d062a89c9216f8948a3b0ee5c86675e5bd95c6e751fc10799f73dd2033c4d8db622436efa36fca6b756bb9ad33b625a513b01ab7187070fa988aece9d3e63431c0bcb3d4ad2fe45e404130ba64d141de5ba0e47', 1, 1795324491932, 1795324491932);
INSERT INTO public.channels VALUES ('chn_06h03bdt89pr7e8lhh8il3pi00', 'org_06h03bd3i9ss36e4n8idorev08', 'social_messenger', 'social_messenger 2', '947000002', 'agt_06h03bd41pv131jm4kp771rrk0', 'active', '\x01097c12bcad89fb5354fe030aca1607585fb880b8d20e8715c8407fb2691228c5a7e5878997416801ca2296831409aef620b965e0abf5fb8b3367f4e077a228df8fe2a8e3b4a65c5e7eeecaf0bff60d', 1, 1795324493131, 1795324493131);
INSERT INTO public.channels VALUES ('chn_06h03be0nhuev4pofrp90b4a18', 'org_06h03bd3i9ss36e4n8idorev08', 'photo_dm', 'photo_dm 3', '947000003', 'agt_06h03bd41pv131jm4kp771rrk0', 'active', '\x01097c12bcad89fb53c27cf8b9b1479ff0f50f95f6d3bd8c545d48887294a6c457dd32d3338e6362a619a5eac8e33ca9d7720b83ede0219d7f22a29969c0888548afccc1fb1c2a2b', 1, 1795324494023, 1795324494023);
INSERT INTO public.channels VALUES ('chn_06h03be3idofj0ia0db02tl0mc', 'org_06h03bd3i9ss36e4n8idorev08', 'chat_app', 'chat_app 4', '947000004', 'agt_06h03bd41pv131jm4kp771rrk0', 'active', '\x01097c12bcad89fb53fa2a7f135164137d39242adb8043bb9e02f3d4ab2b573f3b5de226a92c8b9839419181e54513baec68cd867397d5a7da37da5e89ed122b37eb9d49253d3e40', 1, 1795324494742, 1795324494742);
INSERT INTO public.channels VALUES ('chn_06h03be7v5o9b9nr8uses0bdbo', 'org_06h03bd3i9ss36e4n8idorev08', 'localchat', 'localchat 5', '947000005', 'agt_06h03bd41pv131jm4kp771rrk0', 'active', '\x01097c12bcad89fb53642e948c1b782c62e334e768537e4c8ed619ec47ef8de80b64ff06494668ad461ca353a94a34a3656878a1d000c5a22fd4d60c8bc7339fc477418fd282d3d818bd7a1d9a5a0e6c206c815a6da9692a1d5307065653a27c10d70a8f', 1, 1795324495870, 1795324495870);
INSERT INTO public.channels VALUES ('chn_06h03bec4lsfdae78b11v2van0', 'org_06h03bd3i9ss36e4n8idorev08', 'market_a', 'market_a 6', '947000006', 'agt_06h03bd41pv131jm4kp771rrk0', 'active', '\x01097c12bcad89fb53c0fc5c798d8e855393859311ab2bd34d24545347e9ff365e9faea42c2e0de88ff24fa85c6ff813102ff61a388a06deec5ee9d3e8f046be49a3189b0e4847e75d4e4598ad41cc61627f60daf0f7886049c78e9bc5a452c9abafbb26b5', 1, 1795324496938, 1795324496938);
INSERT INTO public.channels VALUES ('chn_06h03beh81vcd9b0565kr5tlmo', 'org_06h03bd3i9ss36e4n8idorev08', 'market_b', 'market_b 7', '947000007', 'agt_06h03bd41pv131jm4kp771rrk0', 'active', '\x01097c12bcad89fb53253859dba71375a4fb15ad4136c6f96f875f73bec0fbef5bcd2aff1b2629fe135c7b89c8c729add4a2f294d70b2ddc88bbea1b051f5b8e35a0201e478f78b75969b798b5d3ec6149e941abda62a93b6148e138d95269745a3de1e482', 1, 1795324498257, 1795324498257);
INSERT INTO public.channels VALUES ('chn_06h03bei1hs3has32f9dnv298g', 'org_06h03bd3i9ss36e4n8idorev08', 'widget', 'Shop site', '', 'agt_06h03bd41pv131jm4kp771rrk0', 'active', NULL, 1, 1795324498448, 1795324498466);
INSERT INTO public.channels VALUES ('chn_06h03beontp75dguu2qja4q6mc', 'org_06h03beldpv1505chob0m80png', 'bot', 'bot 8', '', 'agt_06h03beli1vjfc74gcg45s8nhk', 'active', '\x01097c12bcad89fb532351aca4308d192356bba49ad28c7055478d936dd12c9806003045656fa5008e584718696af67bc827f350a9f1026ae1c653863e5b4b54d566ac7e9e45041aa4891e52529eb1f49fa49dc9e9835b4f6c9229fd56c64c96e3cc863be0dc63b6387f0a', 1, 1795324500169, 1795324500169);


--
-- Data for Name: chunks; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.chunks OVERRIDING SYSTEM VALUE VALUES (1, 'doc_06h03bdkmtri3ekms9o64u4qeo', 0, '# Delivery

We deliver every day but Sunday, from 8 to 18 o''clock.', '02wmmdelivery 02wmmwe 02wmmdeliver 02wmmevery 02wmmday 02wmmbut 02wmmsunday 02wmmfrom 02wmm8 02wmmto 02wmm18 02wmmo 02wmmclock');
INSERT INTO public.chunks OVERRIDING SYSTEM VALUE VALUES (2, 'doc_06h03bdkr9s8bbrddm87vqrlj0', 0, 'Trà xanh giá 40.000 đồng.', '02wmmtra 02wmmxanh 02wmmgia 02wmm40 02wmm000 02wmmdong');


--
-- Data for Name: conversations; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.conversations VALUES ('cnv_06h03be151v371cq8ts2g6bjq0', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be0nhuev4pofrp90b4a18', '1030000001', '1030000001', NULL, 'assistant', '', NULL, NULL, 0, 1, 0, 0, 1795324494118, 1795324494120, 1795324494169);
INSERT INTO public.conversations VALUES ('cnv_06h03be8ehrhd8g10arqpk9d74', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be7v5o9b9nr8uses0bdbo', '1050000001', '1050000001', NULL, 'assistant', '', NULL, NULL, 0, 1, 0, 0, 1795324495984, 1795324495987, 1795324496060);
INSERT INTO public.conversations VALUES ('cnv_06h03bdtl5v3156k65m6ihv118', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdt89pr7e8lhh8il3pi00', '1020000001', '1020000001', NULL, 'assistant', '', NULL, NULL, 0, 1, 0, 0, 1795324493221, 1795324493225, 1795324493311);
INSERT INTO public.conversations VALUES ('cnv_06h03be3s1t5b3p0qe26k8tgkc', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be3idofj0ia0db02tl0mc', '1040000001', '1040000001', '\x01097c12bcad89fb539721cb3b310ea01ef789e91b3e47802a10596353610640e57e2a82da4be60e', 'assistant', '', NULL, NULL, 0, 1, 0, 0, 1795324494000, 1795324494816, 1795324494868);
INSERT INTO public.conversations VALUES ('cnv_06h03becfptd5e3f19e8kpjsvg', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bec4lsfdae78b11v2van0', '1060000001', '1060000001', '\x01097c12bcad89fb53a87dc16875197c683c4ec2a5ee8e9b4fb6d88fb642cb16ceb4191f0129202afc32', 'assistant', '', NULL, NULL, 0, 1, 0, 0, 1795324497000, 1795324497022, 1795324497092);
INSERT INTO public.conversations VALUES ('cnv_06h03bdp01r5j84pmav3lp4mdo', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', '1010000001', '1010000001', '\x01097c12bcad89fb53354fb252729c9b9cddaa13c0a82867c098b4d709651d213d1b7aa076ca56fc', 'assistant', '', 1795324500895, NULL, 0, 1, 0, 0, 1795324492000, 1795324492025, 1795324500895);
INSERT INTO public.conversations VALUES ('cnv_06h03bekk1sdt6cdjdk2gm8jqg', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', '1010000011', '1010000011', '\x01097c12bcad89fb5307c109648c33a821852bdd0ef52e95aaeed9c6150cbe197fd4fc1392c3a2ff', 'assistant', 'delivery_unknown', NULL, NULL, 0, 1, 0, 0, 1795324499000, 1795324499104, 1795324499313);
INSERT INTO public.conversations VALUES ('cnv_06h03behk1ue19j9d13rjhh10o', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03beh81vcd9b0565kr5tlmo', '1070000001', '1070000001', NULL, 'assistant', '', NULL, NULL, 0, 1, 0, 0, 1795324498332, 1795324498335, 1795324498389);
INSERT INTO public.conversations VALUES ('cnv_06h03bekb5rvdf5rt3hfuftr1k', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', '1010000010', '1010000010', '\x01097c12bcad89fb53b9e2e72178641e0adb4698c90947b09c2062756efe923ec7addbdacba614fb', 'closed', 'customer_blocked', NULL, NULL, 0, 1, 0, 0, 1795324499000, 1795324499033, 1795324499108);
INSERT INTO public.conversations VALUES ('cnv_06h03bep81vcfc87atf4ijo4gk', 'org_06h03beldpv1505chob0m80png', 'chn_06h03beontp75dguu2qja4q6mc', '1080000001', '1080000001', '\x01097c12bcad89fb537f376a7a1a75d996aecb59a0c1f06ac1951ac37aad07c6b393725ade611a65', 'assistant', 'insufficient_credits', NULL, NULL, 0, 1, 0, 0, 1795324500000, 1795324500288, 1795324500697);
INSERT INTO public.conversations VALUES ('cnv_06h03bergdpardr5hu9tqa6ff0', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', '1010000002', '1010000002', '\x01097c12bcad89fb53f3e2e0dd70ff52ce58cca748ba3a14622ecdbc5462ecc3041757f4deda642d', 'assistant', '', 1795324500866, 1795324500866, 0, 0, 0, 0, 1795324500000, 1795324500866, 1795324500866);


--
-- Data for Name: documents; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.documents VALUES ('doc_06h03bdkmtri3ekms9o64u4qeo', 'org_06h03bd3i9ss36e4n8idorev08', 'kb_06h03bdkihqvr1gev8e8m9esfc', 'Delivery times', 'text/markdown', 66, 'ready', 1, 1, '', 1795324490936, 1795324490936);
INSERT INTO public.documents VALUES ('doc_06h03bdkr9s8bbrddm87vqrlj0', 'org_06h03bd3i9ss36e4n8idorev08', 'kb_06h03bdkihqvr1gev8e8m9esfc', 'Trà', 'text/markdown', 30, 'ready', 1, 1, '', 1795324490970, 1795324490970);


--
-- Data for Name: holds; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.holds VALUES ('call_06h03bdpg5tcn7qkioi6kdo20o', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8251, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324492163, 1795324582163, 1795324492183);
INSERT INTO public.holds VALUES ('call_06h03bdts9t4r7ob036e04p86k', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8251, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324493283, 1795324583283, 1795324493289);
INSERT INTO public.holds VALUES ('call_06h03be19dv55a3ermpo2vo6oo', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8251, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324494156, 1795324584156, 1795324494161);
INSERT INTO public.holds VALUES ('call_06h03be3u1rrp3el292f77clas', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8251, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324494833, 1795324584833, 1795324494845);
INSERT INTO public.holds VALUES ('call_06h03be8ipv91ds1kadfvh9dhc', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8251, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324496025, 1795324586025, 1795324496046);
INSERT INTO public.holds VALUES ('call_06h03beckppbv1r0p80a1ceils', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8251, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324497062, 1795324587062, 1795324497071);
INSERT INTO public.holds VALUES ('call_06h03behnho4t5mg4s9ijddqls', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8251, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324498365, 1795324588365, 1795324498372);
INSERT INTO public.holds VALUES ('call_06h03bei59qbp50puujeu537qc', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8221, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324498475, 1795324588475, 1795324498482);
INSERT INTO public.holds VALUES ('call_06h03bei7lup54l8iagi16lb4g', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8221, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324498498, 1795324588498, 1795324498507);
INSERT INTO public.holds VALUES ('call_06h03bekg1q2l9h6619vu17jdo', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8251, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324499075, 1795324589075, 1795324499086);
INSERT INTO public.holds VALUES ('call_06h03bekolui73faflfj087p6g', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8251, 'settled', 'acme/std', 1000000, 2000000, 500000, 1795324499199, 1795324589199, 1795324499239);
INSERT INTO public.holds VALUES ('call_06h03berltt650ihtv640i361s', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8225, 'open', 'acme/std', 1000000, 2000000, 500000, 1795324500936, 1795324590936, NULL);
INSERT INTO public.holds VALUES ('call_06h03berm5ue38q6aeicdpv6f8', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 8225, 'open', 'acme/std', 1000000, 2000000, 500000, 1795324500939, 1795324590939, NULL);


--
-- Data for Name: idempotency_keys; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\x1bd451c05bed69e492dbd198be6ae79b37afafd00e76a4b2fddc0ac96824d494', '\x83d83f8df448c03687c0d64a8d67ba30aadfb7d1292d19704f2dbdcbd3665a0a', 'done', 'call_06h03bdpg5tcn7qkioi6kdo20o', 1795324582163, '\x01097c12bcad89fb53c152d74379283da6fbd18558783e570983a4b52578cd3974d09cd19fed1cce2e0cdbf6153253a2f66d5465ecfc69f325dac98a2d26dd76d05defcb55cbc056c9fbf69bce0cac20154b7d5b5d20348922660cd6de4b5343008a513e2bd68256d39cdd0e55b6fc285c72fbfec49f4d996e1969f39cfe6c55d93c198b5f1a374a4421f37b270477e688145d3f1c2c0680c0a4f667a0f09b1b31b68879dab70f3e6c4f9114b16ae28e315bbb5a', 1795324492163, 1795324492183, 1797916492183);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\xdf86c4e8b67ce8797d87b83efef27362b0e75bfa7f7cfa9221e2f065c473482b', '\x83d83f8df448c03687c0d64a8d67ba30aadfb7d1292d19704f2dbdcbd3665a0a', 'done', 'call_06h03bdts9t4r7ob036e04p86k', 1795324583283, '\x01097c12bcad89fb5345c452c081aea3c06e8ea37e28e0b8b9a502fd32ca2bce624190c6f72d63f277205e8eb0290926218bd1f26d9b642cf20df6f36983abd0f641c9bd99d91f93fea1f06df0080012c79b0b635f42551df8aa32c98bc705322a0a4296ff7849521f56ef7157e909e2cf738eedf7b9a293db1c52adcf12760394c2328f180eb2f679fa70983532ad4ab82ed68f47f10b4743836afc83cff3d67ed6e2aa9ea6fcc7e60757bc6e7645304f802abe', 1795324493283, 1795324493289, 1797916493289);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\xdc3be210701dbe12a7286ea924f4a1bfaed2b5613c8944eefd67e69696632737', '\x83d83f8df448c03687c0d64a8d67ba30aadfb7d1292d19704f2dbdcbd3665a0a', 'done', 'call_06h03be19dv55a3ermpo2vo6oo', 1795324584156, '\x01097c12bcad89fb5324edd2875fdb2b205f506cfb063c1c0e80b5044f052df736f400398187ef1c832398facee727b53c1ced348cb892e0ef734e34710a33fdb0db09501c62524281033226a27def093addfb85582e8295a447eb025d2d8dad3b923014e8d0d08d27a4f68cec5a7f4e72343434ec1388e5087569ceee6b603fa4282fa7ca2841f8019184e5c5e8186fcd1aad1ec4637df40d8183b4d6a565b3534cd56d8169a9d9f860a204ceae0f0168d91917', 1795324494156, 1795324494161, 1797916494161);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\x9b91350f9e5e982769388d6568864419cf5e587f8b1854bfc19a087f59f894ef', '\x83d83f8df448c03687c0d64a8d67ba30aadfb7d1292d19704f2dbdcbd3665a0a', 'done', 'call_06h03be3u1rrp3el292f77clas', 1795324584833, '\x01097c12bcad89fb530cbf638e28a223a76e5d6259ec30b1d0f494136743398c9235c615518911a2f273112180666c94df067fae8057cf16a28d06e529f07b3a69ccf959cb15495cfc5880e441c31ca19392995028b0ba49cc2ffce7525fa3a924aa2429a083d2b826d5a7085424411e5dec10dff2e11a80bf4dd9b3ee617df89a1b7de0e2971c0457982fb82350d6dc11b3a856173dd813b8bdbb644f3c124ca6cdd33fab9c4ac41c0f24ee5dd1cbb30f134952', 1795324494833, 1795324494845, 1797916494845);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\xb22b109a4223f3a204c57164440bcb506568ef66b623f12db5af250add6a254d', '\x83d83f8df448c03687c0d64a8d67ba30aadfb7d1292d19704f2dbdcbd3665a0a', 'done', 'call_06h03be8ipv91ds1kadfvh9dhc', 1795324586025, '\x01097c12bcad89fb53ebeb56a0298f8a221ca6a96e2d63e2fa1ab0a38686bbcc01c99c0d3ff66b05e44b852578791da272fa6eadb4098f3a57e8f96e27db49f49044def28c71fc43113b5d04208277dbea542860c3c038af677c7e1d6d40a133e1f5adf3dd91749ad48b902df317099189a701e000c68d811409020c6e50630b1498d2b5e3924b4a4134308670b031bf1645cc4e4a6da6cc21d038267080f59bacfd9a467f7b39d3262ad9db796ce776acf53934', 1795324496025, 1795324496046, 1797916496046);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\x94478ebd7bc844664a85dfa716b37d4fae369d522281e9c5992204096c3b8bbb', '\x83d83f8df448c03687c0d64a8d67ba30aadfb7d1292d19704f2dbdcbd3665a0a', 'done', 'call_06h03beckppbv1r0p80a1ceils', 1795324587062, '\x01097c12bcad89fb530fa5e67be00fa85278ed38f697a48942c963b9116332ebce93ab743db26ef98cc8e75141646d1c8f19e6754095ef294481cdf0cf826b8ce17800d15ee39c516be0fe28552b7ca81de2fc8f9bd818c35685eae4f9f0b54ba3f6d5183fe4057ecc29df6bf84ae588b06595e5eaa388042c4a81a088b90c5baede0ccfd37e93b37051e222128574354ffa245e65ea90e9f3b80e7d75ccfdf2983e8669b81091deda15477171691176f5ab97e8', 1795324497062, 1795324497071, 1797916497071);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\x56bd2b86e3a653ad171f3ced09f9b2372e44fd3f310c7cfc28c1cbb0b75f1790', '\x83d83f8df448c03687c0d64a8d67ba30aadfb7d1292d19704f2dbdcbd3665a0a', 'done', 'call_06h03behnho4t5mg4s9ijddqls', 1795324588365, '\x01097c12bcad89fb53456497d64bb2a6cd08da48739d30010de06e38298e060ffd983167012c61ed8ec651ad8cb1aa80866247803b6ccae79930a9138c897373383124629349c230477e58b035db035b044d69386b6bfe4a7d2cb95d1d5f7c5ac86a2e98fdebbca138d1e2d9dac6a8f683f18ec77ea5499e9e0a22239ab29c6ad8d006e3c1c0c4af525e384be6a5963f38ab2024a3bde94a8eb29029e0ba615caa2a9aaa996a99a7136ae6c39fbb9abdffea10fa', 1795324498365, 1795324498372, 1797916498372);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\x92d7f03bea180f00d11de0443ec62d9836e7fc1943f8a9e00c7828d6380d6975', '\x83d83f8df448c03687c0d64a8d67ba30aadfb7d1292d19704f2dbdcbd3665a0a', 'done', 'call_06h03bekg1q2l9h6619vu17jdo', 1795324589075, '\x01097c12bcad89fb532e6e0a89b21e8b0d38b9e7f80978b77c5ee78d1881d31f95030efcbbb2db6405f1d34b2508d6e696b70b9ecfef126d0f5c3830cfbad34e71fc411f8922aa647eb99ebfc1dbce8a77b0c728a76ce78be2d3afd9964e3559cf68219ee136813154d951a6178da5a94d4bc0588efdfa4b00d8ebcfe01de66536c39996372b495755f24396d870f60f10752ba834ebaea885431551d96542853a5a8b4b671b1c7352280f087cdb1c586f517e03', 1795324499075, 1795324499086, 1797916499086);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\x79f076abdd19a752db7267bfff2f9022161d120dea919fdaca2ffdfc24ca8c96', '\x34e1ad6c7c9d4d7b401d21178ffc966773a0cfc2929c4a2e50c48c9b0d9f7353', 'done', 'call_06h03bei59qbp50puujeu537qc', 1795324588475, '\x01097c12bcad89fb53d108dd9116e3bed31284d5cd67ea46b1fed2d1e6a65cd7d4922d756aff6ac1aafba5579eecbce2ab0b27714d2989cdd566bd087dd5171f32f0a470c52febb741d74c1bf1949841a8ce6c7afa6df11210c1acfdba164edeb429b08ca69325c42d7dbfef9187ff9cf41aa4f142d6903b1958709d951382eeabdd8e40289513f3dbc8b023a0bc9d38ca7df3fe9c58cd1cdedc366455b8782dbf6cdd36f4f64afb3c8e8d733aa43511c4a37fd2f424c7da029c84411d300f', 1795324498475, 1795324498482, 1795410898482);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\x6d352c7ce6636105e937864bcedc5f7fae4ef4cab0f401569b558647cd5b301f', '\x32479fd79cbb3f380771f2a8a5afcec904cc15e39bda3659e9551f0baf762c88', 'done', 'call_06h03bei7lup54l8iagi16lb4g', 1795324588498, '\x01097c12bcad89fb5374ae4a43a90a3ac95a858f113fbb1e824f0a5311afcb1cffcf2552252a612848a90f04da0765fea580584ff1edf8605c67ff5ea645855cbc0b6800409736f9a362ab5c567b144facfecc840d0cf3532c5a4d614baa2e6e13d71d501fb318f18eca3d1a0ac1a33085a36272ca74946b82f2d82ec4ed7df24ef1984a522bb9d8e533803c2342e41e416fa53c1f85cc531da61e84bcb68ca151c1c7ff4fcef502b94d8329f98a7be390093e4f5e7e0a50ef3c274a13cde7', 1795324498498, 1795324498507, 1795410898507);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\xce342c401b889364d85ecf413e1d1df82b4f9f431efff558aa0d201af0a2dead', '\xc23af6eb014b9fa23b6d86d2ae5fb97414e3e9bc3155a76121dac49761685316', 'done', 'call_06h03beiatt2n36bu7plsg8ueg', 1795324588520, '\x01097c12bcad89fb538ab8036f9fca4f330cb65d3416442c4e88f3e1f883c1f3e8719d360ab780d649fb5399bc044d59002d2d9d1126852da3158864a31c521161f7b0e2f91d14489bf490b2ea00e4313f450337477d2c291c5be876b54170c5bb720c1ba92be6a5a496e29021dc3a77da68af16480fc0d754bc8b3f5466aff5cba4f194bbe726b2b2a7f74aed9105213518f9e98fd2986e2abe5c7178dccef7584d0720a8f444731734e776ef0124d42c3651fd4318ec60902a4a06ca9703', 1795324498520, 1795324498541, 1795410898541);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\xfe1c9db0c7583825bb188b9abb5b9ac8c9948dd2fb4047f37aaeb7f4611c19fb', '\x83d83f8df448c03687c0d64a8d67ba30aadfb7d1292d19704f2dbdcbd3665a0a', 'done', 'call_06h03bekolui73faflfj087p6g', 1795324589199, '\x01097c12bcad89fb532fcc83dbc6558ee492ab484a7a2e624843284fae48bd349704b1a1aa98d6c74b36bf43dace04a7286103527dca2e69df3072a7dc9063145a7198979b57ba6c05356b4c9f1efe39e54e41f7dca00fa3b9589a7cf5a6d0dc63270abaa7352054d944fad82760a5e3dd8806dedd233c7fe787584c39d9b9960f0fee5475a240fc9d5b2009eb3da463ac36269f056246792159eb094cc27f64063e89951bd752774bcd7f0a0e42f94f76898879', 1795324499199, 1795324499239, 1797916499239);
INSERT INTO public.idempotency_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', '\x378bfce5cda2599a6cda399f1cacef861e4e575ec794744dcf0e55e9c4780633', '\x283eb090e1756bf85a64029c3ce7b7ac1050397e75d5529ee46836db975aea2c', 'in_progress', 'call_06h03berm5ue38q6aeicdpv6f8', 1795324590939, NULL, 1795324500939, NULL, 1795324590939);


--
-- Data for Name: knowledge_bases; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.knowledge_bases VALUES ('kb_06h03bdkihqvr1gev8e8m9esfc', 'org_06h03bd3i9ss36e4n8idorev08', 'Delivery', 'When and where', 1795324490900, 1795324490900);


--
-- Data for Name: ledger_entries; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.ledger_entries VALUES ('txn_06h03bd3p9u5h3g6fr7hqil0qs', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', 1000000);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bd3p9u5h3g6fr7hqil0qs', 1, 'sys:cash', -1000000);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bd435rrb19bgma21b3c0o', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:test', 5000);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bd435rrb19bgma21b3c0o', 1, 'sys:cash', -5000);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bd445ujh95616hig6jj0c', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -1000);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bd445ujh95616hig6jj0c', 1, 'sys:loss', 1000);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bdpj1pd742dvg2m0g8gek', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bdpj1pd742dvg2m0g8gek', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bdttdqj32e50lueurk5t0', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bdttdqj32e50lueurk5t0', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03be1a9pon36oghbo8vn7fk', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03be1a9pon36oghbo8vn7fk', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03be3vlvc12kk8mms6hgulg', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03be3vlvc12kk8mms6hgulg', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03be8ltuhj0fqf6li319f0g', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03be8ltuhj0fqf6li319f0g', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03becm1o0970707q090nr1k', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03becm1o0970707q090nr1k', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03beholtt5dj3ot05jvhlho', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03beholtt5dj3ot05jvhlho', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bei6dv3jacai6c29d2oq0', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bei6dv3jacai6c29d2oq0', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bei9hs59c33vehu9q5ojg', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bei9hs59c33vehu9q5ojg', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bekhpv1pac6l8el4oe48o', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bekhpv1pac6l8el4oe48o', 1, 'sys:revenue', 25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bel6dr3peearkkt1jm5l8', 0, 'org:org_06h03bd3i9ss36e4n8idorev08:live', -25);
INSERT INTO public.ledger_entries VALUES ('txn_06h03bel6dr3peearkkt1jm5l8', 1, 'sys:revenue', 25);


--
-- Data for Name: ledger_tx; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.ledger_tx VALUES ('txn_06h03bd3p9u5h3g6fr7hqil0qs', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'topup', 'txn_06h03bd3p9u5h3g6fr7hqil0qs', '', 1000000, 1795324486601);
INSERT INTO public.ledger_tx VALUES ('txn_06h03bd435rrb19bgma21b3c0o', 'org_06h03bd3i9ss36e4n8idorev08', 'test', 'topup', 'txn_06h03bd435rrb19bgma21b3c0o', '', 5000, 1795324486680);
INSERT INTO public.ledger_tx VALUES ('txn_06h03bd445ujh95616hig6jj0c', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'adjust', 'txn_06h03bd445ujh95616hig6jj0c', 'a correction', 999000, 1795324486689);
INSERT INTO public.ledger_tx VALUES ('txn_06h03bdpj1pd742dvg2m0g8gek', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03bdpg5tcn7qkioi6kdo20o', '', 998975, 1795324492183);
INSERT INTO public.ledger_tx VALUES ('txn_06h03bdttdqj32e50lueurk5t0', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03bdts9t4r7ob036e04p86k', '', 998950, 1795324493289);
INSERT INTO public.ledger_tx VALUES ('txn_06h03be1a9pon36oghbo8vn7fk', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03be19dv55a3ermpo2vo6oo', '', 998925, 1795324494161);
INSERT INTO public.ledger_tx VALUES ('txn_06h03be3vlvc12kk8mms6hgulg', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03be3u1rrp3el292f77clas', '', 998900, 1795324494845);
INSERT INTO public.ledger_tx VALUES ('txn_06h03be8ltuhj0fqf6li319f0g', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03be8ipv91ds1kadfvh9dhc', '', 998875, 1795324496046);
INSERT INTO public.ledger_tx VALUES ('txn_06h03becm1o0970707q090nr1k', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03beckppbv1r0p80a1ceils', '', 998850, 1795324497071);
INSERT INTO public.ledger_tx VALUES ('txn_06h03beholtt5dj3ot05jvhlho', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03behnho4t5mg4s9ijddqls', '', 998825, 1795324498372);
INSERT INTO public.ledger_tx VALUES ('txn_06h03bei6dv3jacai6c29d2oq0', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03bei59qbp50puujeu537qc', '', 998800, 1795324498482);
INSERT INTO public.ledger_tx VALUES ('txn_06h03bei9hs59c33vehu9q5ojg', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03bei7lup54l8iagi16lb4g', '', 998775, 1795324498507);
INSERT INTO public.ledger_tx VALUES ('txn_06h03bekhpv1pac6l8el4oe48o', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03bekg1q2l9h6619vu17jdo', '', 998750, 1795324499086);
INSERT INTO public.ledger_tx VALUES ('txn_06h03bel6dr3peearkkt1jm5l8', 'org_06h03bd3i9ss36e4n8idorev08', 'live', 'charge', 'call_06h03bekolui73faflfj087p6g', '', 998725, 1795324499239);


--
-- Data for Name: login_windows; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: messages; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.messages VALUES ('msg_06h03bdov1t45471mjp4e05t5k', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bdp01r5j84pmav3lp4mdo', '1010000001:1000012', 'customer', 'text', '\x01097c12bcad89fb530e90b084992df82436544351b6aa408d29ca8aa8da72949cc71e0c701728384d28', 'trn_06h03bdpe9sfdcbelta3lt9alg', false, 1795324492000, 1795324492025);
INSERT INTO public.messages VALUES ('msg_06h03bdtl5p0nfdll72oq8q0kg', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdt89pr7e8lhh8il3pi00', 'cnv_06h03bdtl5v3156k65m6ihv118', 'm_1000013', 'customer', 'text', '\x01097c12bcad89fb539a0a2481008727215f5b84f18bf3ed49aa28facabf305d7a20f8f7845c6c3be857', 'trn_06h03bdtqht516j2537qne8r8c', false, 1795324493221, 1795324493225);
INSERT INTO public.messages VALUES ('msg_06h03be151ptp6k11ir5osbe2s', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be0nhuev4pofrp90b4a18', 'cnv_06h03be151v371cq8ts2g6bjq0', 'p_1000014', 'customer', 'text', '\x01097c12bcad89fb53bbc2e4a724d83fd52ee459329ed8c05666c8a5ef868a48b60c4444b2a84a576b55', 'trn_06h03be18lq1p453rfq0ncjd90', false, 1795324494118, 1795324494120);
INSERT INTO public.messages VALUES ('msg_06h03be3s1pfn6domk86vfbi58', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be3idofj0ia0db02tl0mc', 'cnv_06h03be3s1t5b3p0qe26k8tgkc', 'wamid.1000015', 'customer', 'text', '\x01097c12bcad89fb53c077ba28790d1aee9ec01ea9cf6570d161c4f1245aeb226e0e6e6af7685f4ef2f3', 'trn_06h03be3thp4b6fea46vocquus', false, 1795324494000, 1795324494816);
INSERT INTO public.messages VALUES ('msg_06h03be8edt2hd5ng4bsj8o5v0', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be7v5o9b9nr8uses0bdbo', 'cnv_06h03be8ehrhd8g10arqpk9d74', '1000016', 'customer', 'text', '\x01097c12bcad89fb53b158326df779cb609376a95885856807cc6c5c5f023fccec59a4090a5cfadad74a', 'trn_06h03be8hlr9te6su22nru8go8', false, 1795324495984, 1795324495987);
INSERT INTO public.messages VALUES ('msg_06h03becfporr3s6g8k78me368', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bec4lsfdae78b11v2van0', 'cnv_06h03becfptd5e3f19e8kpjsvg', '1000017', 'customer', 'text', '\x01097c12bcad89fb53416eb5c411256d7c0a7bb53645bb411bf4923af091d46e46da7c42d3db9b151e55', 'trn_06h03beckhq1nasto6qs5rkvis', false, 1795324497000, 1795324497022);
INSERT INTO public.messages VALUES ('msg_06h03behjtpsb890cgr7ba05os', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03beh81vcd9b0565kr5tlmo', 'cnv_06h03behk1ue19j9d13rjhh10o', '1000018', 'customer', 'text', '\x01097c12bcad89fb5330893dab61fd39c111283e345b22cef3bf1133809028c8dce6ad6bef2be821935b', 'trn_06h03behmtsrj5m4t33v5ap1t8', false, 1795324498332, 1795324498335);
INSERT INTO public.messages VALUES ('msg_06h03bekb1ulp1ri4dhpec3cj4', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bekb5rvdf5rt3hfuftr1k', '1010000010:1000019', 'customer', 'text', '\x01097c12bcad89fb53ed2bbbf62f82081cfd2c9743652cca52cd728c0eefb6dcb007b6eed7313f0f2e27', 'trn_06h03bekdlqu57g1ste3l0pqqk', false, 1795324499000, 1795324499033);
INSERT INTO public.messages VALUES ('msg_06h03bekjttej1usc25g4cco4k', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bekk1sdt6cdjdk2gm8jqg', '1010000011:1000020', 'customer', 'text', '\x01097c12bcad89fb53de34af89762496bc194bcb67bf3fe793ac21fd32493d803f431d7a37a1265517a6', 'trn_06h03beknhqbv1jvjgoe19d4gg', false, 1795324499000, 1795324499104);
INSERT INTO public.messages VALUES ('msg_06h03bep7tuet7bohpheiu1h3c', 'org_06h03beldpv1505chob0m80png', 'chn_06h03beontp75dguu2qja4q6mc', 'cnv_06h03bep81vcfc87atf4ijo4gk', '1080000001:1000021', 'customer', 'text', '\x01097c12bcad89fb53706efca73adf46771ff62d3b4102f6d014a28342a6774802d2ed2c6ba7249bf1db33d4259339942d575cb8f8', 'trn_06h03bepehqsj4b8ouc9urjf2s', false, 1795324500000, 1795324500288);
INSERT INTO public.messages VALUES ('msg_06h03berg9pvhbvfu29s409pbs', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bergdpardr5hu9tqa6ff0', '1010000002:1000022', 'customer', 'text', '\x01097c12bcad89fb53dbe9c392d5c5e146fd1e0de58e4b3986e9adefa8f91813a6898c2c48d33249f83f3079a9d33590d72da96df254c5132045b69eef9e', NULL, false, 1795324500000, 1795324500866);


--
-- Data for Name: org_models; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.org_models VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'acme/small', false);


--
-- Data for Name: organizations; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.organizations VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'Customer 3', 'open', 1795324486546, NULL, 0);
INSERT INTO public.organizations VALUES ('org_06h03beldpv1505chob0m80png', 'Customer 4', 'open', 1795324499310, NULL, 0);


--
-- Data for Name: outbound_messages; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.outbound_messages VALUES ('msg_06h03bdpklsqn7ad6k4en4t368', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bdp01r5j84pmav3lp4mdo', 'trn_06h03bdpe9sfdcbelta3lt9alg', 0, 'assistant', '\x01097c12bcad89fb532f269afe21dff47d703423d9c24f104016be23407ad31711488d7b4be9ad6b4557b0af41a3', 'sent', '', '1010000001:2', 0, 1795324492198, 1795324492218);
INSERT INTO public.outbound_messages VALUES ('msg_06h03bdtutokf1jlfbu8nmk034', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdt89pr7e8lhh8il3pi00', 'cnv_06h03bdtl5v3156k65m6ihv118', 'trn_06h03bdtqht516j2537qne8r8c', 0, 'assistant', '\x01097c12bcad89fb534ce26b1e633dc1b2c202333ecc5c9449766040098a51ff8a9120aee9827cac97303c488adf', 'sent', '', 'm_4', 0, 1795324493303, 1795324493311);
INSERT INTO public.outbound_messages VALUES ('msg_06h03be1ahsfd85m81qq4e35m0', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be0nhuev4pofrp90b4a18', 'cnv_06h03be151v371cq8ts2g6bjq0', 'trn_06h03be18lq1p453rfq0ncjd90', 0, 'assistant', '\x01097c12bcad89fb53f17e9d9c80f287ab16248c9c254aae672f4d98af48aeda772dab2549a9fcdd0f4961bf4710', 'sent', '', 'm_6', 0, 1795324494164, 1795324494169);
INSERT INTO public.outbound_messages VALUES ('msg_06h03be40pre11hkug6qc1r45o', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be3idofj0ia0db02tl0mc', 'cnv_06h03be3s1t5b3p0qe26k8tgkc', 'trn_06h03be3thp4b6fea46vocquus', 0, 'assistant', '\x01097c12bcad89fb537d613538a00badad379f4dcb26288e41f7395cbd66a8e4b39eb2555a47d2f022c8d9526309', 'sent', '', 'wamid.8', 0, 1795324494854, 1795324494868);
INSERT INTO public.outbound_messages VALUES ('msg_06h03be8mptul2i709svdje8tk', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be7v5o9b9nr8uses0bdbo', 'cnv_06h03be8ehrhd8g10arqpk9d74', 'trn_06h03be8hlr9te6su22nru8go8', 0, 'assistant', '\x01097c12bcad89fb53dc75f2739b9adcc4bac5c349b6c787154effc2c5d8adf1a97b24b18bec306f5c8e24012767', 'sent', '', 'm_10', 0, 1795324496055, 1795324496060);
INSERT INTO public.outbound_messages VALUES ('msg_06h03becn5v6bb3utahaa5kdnk', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bec4lsfdae78b11v2van0', 'cnv_06h03becfptd5e3f19e8kpjsvg', 'trn_06h03beckhq1nasto6qs5rkvis', 0, 'assistant', '\x01097c12bcad89fb53c05b2209a50cfcd72975f89669aa1e56018fa35cf7b65ba137a55b34aa3eba563c7d97a56b', 'sent', '', '2302748948493112', 0, 1795324497082, 1795324497092);
INSERT INTO public.outbound_messages VALUES ('msg_06h03behp9v79dcogm25tbuhk8', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03beh81vcd9b0565kr5tlmo', 'cnv_06h03behk1ue19j9d13rjhh10o', 'trn_06h03behmtsrj5m4t33v5ap1t8', 0, 'assistant', '\x01097c12bcad89fb53de07a78159be4c1db4e82ef004f6e53df37b00078af91a9b78b432d0d48fb4a65c1ad45e01', 'sent', '', 'm_14', 0, 1795324498379, 1795324498389);
INSERT INTO public.outbound_messages VALUES ('msg_06h03bekiluqhc1obefule7294', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bekb5rvdf5rt3hfuftr1k', 'trn_06h03bekdlqu57g1ste3l0pqqk', 0, 'assistant', '\x01097c12bcad89fb53de4fb581f221e040a9d761f60afded28568f5fc50546aab7b6fbf968426c93c212148fc802', 'failed', 'customer_blocked', '', 1, 1795324499094, 1795324499108);
INSERT INTO public.outbound_messages VALUES ('msg_06h03belahrch2239j7272fb8o', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bekk1sdt6cdjdk2gm8jqg', 'trn_06h03beknhqbv1jvjgoe19d4gg', 0, 'assistant', '\x01097c12bcad89fb534a58b280ee66eec5e595734763f5f10f4542ed42252cdc41a91e3a9c20f618c3f105665494', 'delivery_unknown', 'delivery_unknown', '', 1, 1795324499286, 1795324499313);
INSERT INTO public.outbound_messages VALUES ('msg_06h03berjdv1l33vgoobc9h5kg', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bdp01r5j84pmav3lp4mdo', NULL, 0, 'human', '\x01097c12bcad89fb53e346888f4722656a69d38d49f963f4314808a02180e6f13bd06e9476f98b6e8d25e677012d184837a62b', 'pending', '', '', 0, 1795324500895, 1795324500895);


--
-- Data for Name: provider_keys; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.provider_keys VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'own', '\x01097c12bcad89fb5326de43fdc4f754a6707ffe04cd6cbd5bd3e83d16e1df168ec772e10f0b9c42096c6c5f436e96563f9fa34821798a6027e4c93ea20309', '…omer', 1795324487419);


--
-- Data for Name: rate_windows; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: schema_versions; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.schema_versions VALUES (1, 0, true, '2026-11-22 05:14:41.399461');
INSERT INTO public.schema_versions VALUES (2, 1, true, '2026-11-22 05:14:41.440376');
INSERT INTO public.schema_versions VALUES (3, 2, true, '2026-11-22 05:14:41.843815');
INSERT INTO public.schema_versions VALUES (4, 3, true, '2026-11-22 05:14:42.138056');
INSERT INTO public.schema_versions VALUES (5, 4, true, '2026-11-22 05:14:42.154097');
INSERT INTO public.schema_versions VALUES (6, 5, true, '2026-11-22 05:14:42.340167');
INSERT INTO public.schema_versions VALUES (7, 6, true, '2026-11-22 05:14:42.49646');
INSERT INTO public.schema_versions VALUES (8, 7, true, '2026-11-22 05:14:42.536429');


--
-- Data for Name: sessions; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.sessions VALUES ('\x30311eac460cc0ffa0af6f1985b6b2d24a0677e6ddac2bc3b9d4d10ca803f949', 'usr_06h03bddv1upj7tgvv1633f9go', 'org_06h03bd3i9ss36e4n8idorev08', 1795324489761, 1795324489761, 1795929289761);


--
-- Data for Name: turns; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.turns VALUES ('trn_06h03bdpe9sfdcbelta3lt9alg', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bdp01r5j84pmav3lp4mdo', 'agt_06h03bd41pv131jm4kp771rrk0', 'answered', '\x01097c12bcad89fb53995739a29aafac62e32253a722619b5b6bb90fdac68a53880a4811b40b9230d6ce13c40db06960fe7979cfee0f173e3b1bd4aac2c38aee24b02e4d61a8486a0bd230348252e6b02fa59b3251b53c28a5fb4521748674e1596c98b469b2c10df1d3507d901f7c70145d7d29425f6791628ac09b6f56263551147f41dcbc96ba38bc918812e710d4996e471e8d7d7a591f79454272e02fbd4d0c1ebbafcae797c7f9551aa8290bdfe485e8eeffa05dc5aa', '', NULL, 0, 1795324492147, 1795324492198);
INSERT INTO public.turns VALUES ('trn_06h03bdtqht516j2537qne8r8c', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdt89pr7e8lhh8il3pi00', 'cnv_06h03bdtl5v3156k65m6ihv118', 'agt_06h03bd41pv131jm4kp771rrk0', 'answered', '\x01097c12bcad89fb53f00f598c971bbab44d334e07c003cc34d5906f677e07ed2168af4b088e7b3aa66ac596cb0375a174071d7da7d7d5d9475ffc05932512682d92011c3d45a40e9d618ae66abd4375b70c727793196180f4e9251e5591f1dc1b358dbe759c7cf9fd35f36514dd07cf15fd0bdc1c77a1d46992830df0f255239133beb8dcfc7d4966a22e5af2ef97bc9274e26838a7902f2cf84deff57d6a4e63c6b159859235b1f7cff7baf808810079c4e8649b8c9f92fe', '', NULL, 0, 1795324493270, 1795324493303);
INSERT INTO public.turns VALUES ('trn_06h03be18lq1p453rfq0ncjd90', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be0nhuev4pofrp90b4a18', 'cnv_06h03be151v371cq8ts2g6bjq0', 'agt_06h03bd41pv131jm4kp771rrk0', 'answered', '\x01097c12bcad89fb53668b21cb2dc79ad43801ee93b3ee11e81ea16df39e5171ded8176f9abf0b742a65192c5ef04546e3bdf620942cc238d5ebf7fa37067279ef3b6e6bbbc19c73282deff63f1cd21383c2617f39ad8bf97ab4d4c4b3f2e272393d66d1fce57784f706aeecb12685faae1b35ca4403cacb21fdc072f62f1c3874bfc9c539963959830eb662b4e7d25c00f24a51f678c43a7516146699032fb628559398bfb44dc72a54734c5d3e896c2d3f37323eaff8a76d', '', NULL, 0, 1795324494150, 1795324494164);
INSERT INTO public.turns VALUES ('trn_06h03be3thp4b6fea46vocquus', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be3idofj0ia0db02tl0mc', 'cnv_06h03be3s1t5b3p0qe26k8tgkc', 'agt_06h03bd41pv131jm4kp771rrk0', 'answered', '\x01097c12bcad89fb53ffec0092628a548922e43e8ab24a6185ab40775629ed6534ee677ffe0e23f88d86950ebd6687fd76347286a45e7d52ec6575622ea7c0cae3fa83e0853d93c8b5117c7d88bb4172ff14e29746a42d815885b73464ab1f4219d89b94caedb65f131bd4102eac5850d96c809f15a8911cdda0fbfd743da15c7a8a1d51711b72505227764dfbebdfff460b14b0d25426919092c93fa93ae38e612e5e2fbde2d2769f029920c55f0ae56c74c2d38a054e9f35', '', NULL, 0, 1795324494828, 1795324494854);
INSERT INTO public.turns VALUES ('trn_06h03be8hlr9te6su22nru8go8', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03be7v5o9b9nr8uses0bdbo', 'cnv_06h03be8ehrhd8g10arqpk9d74', 'agt_06h03bd41pv131jm4kp771rrk0', 'answered', '\x01097c12bcad89fb53aa5de2c8e140b2b6156f939def10ab438baa878690325baee6138c1e6fad17147907773b4ce2ab35deb9406a1040cb90b37f19776f5642a149ff59446579d6357dd5a5f6b4f960e64f6d5f79db8cc30147b36d99aeae7ce6b6fad16748393ad10fc0396936dab48cbcfcb5c0fffe851f78e71e2fe08285cb49738f78739a8d3d991aebc25145ae8dbb9f0e7f919060a841f1ee8d20b49eba3dbdab3a9896539299e78fe83f2b41345d366af42aabe751', '', NULL, 0, 1795324496014, 1795324496055);
INSERT INTO public.turns VALUES ('trn_06h03beckhq1nasto6qs5rkvis', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bec4lsfdae78b11v2van0', 'cnv_06h03becfptd5e3f19e8kpjsvg', 'agt_06h03bd41pv131jm4kp771rrk0', 'answered', '\x01097c12bcad89fb531f0fe2d8443db2c805952dd4cea75e45098620817b541b01d915f0fde06c1e7bfa5480ac50e0d2f740de32fcfb566a5d0f40bf7b49bde96130ddd0be2c9908b589296760dc67f1197547b0457a62db33c2032937a18dcc9b95474a07f690001ba8693d012e9814e93bf25bbed3e50b007a3dd66063e89191845a12ca32cc38f8e1650fdfda0438538a25ce7468d439b2d0e200fcd03a103f5c2a3483341f238e2450d6fd6b1316383c2d06c4c218ec62', '', NULL, 0, 1795324497060, 1795324497082);
INSERT INTO public.turns VALUES ('trn_06h03behmtsrj5m4t33v5ap1t8', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03beh81vcd9b0565kr5tlmo', 'cnv_06h03behk1ue19j9d13rjhh10o', 'agt_06h03bd41pv131jm4kp771rrk0', 'answered', '\x01097c12bcad89fb533674eb182f73a08e17abde7706a9154af1bc26da5ef45d728ba7d3ed06367919994139b5c7c7adb1632b9dace9cadf46a580a0d9959866e5f45fabcaa9567eacddcb4a8a2760eeae5f649c99147c1681373fae8b9b216c4fe4bfb1a247ae971d5ffc4e0adbd7536a0d40a124364686773629c3a185f886fcd874412b7ec056f220ae491d1a28752767656a4740ae468a664cbd074043e808ac907ea7d0600d6f7a4ce6a5d66c28bd14df7ebef1d3cbfa', '', NULL, 0, 1795324498360, 1795324498379);
INSERT INTO public.turns VALUES ('trn_06h03bekdlqu57g1ste3l0pqqk', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bekb5rvdf5rt3hfuftr1k', 'agt_06h03bd41pv131jm4kp771rrk0', 'answered', '\x01097c12bcad89fb536e16174fc54112fa86017f2d7110f089ed52fc3788eca9c053476f670c1ef1c718943c49f1f8faa7581f23dcafa506c6eabf6c1ed3aef6298569dd22b53b3b2d9de9b878b91df290b283a92bbc74ebec73982368fe59cd27d3f423175eebf1568343aa9319d460e1e8f06331b1b855f1bd399269cb6046d60f5e5d9bbe76dc86a425910be46ff9553ba313c5014417600c6953e84fbda08cdc636e297546c6c5534bb40f900239c3bd501e46d636a248', '', NULL, 0, 1795324499056, 1795324499094);
INSERT INTO public.turns VALUES ('trn_06h03beknhqbv1jvjgoe19d4gg', 'org_06h03bd3i9ss36e4n8idorev08', 'chn_06h03bdoilv4f5vio1bg1c6kg0', 'cnv_06h03bekk1sdt6cdjdk2gm8jqg', 'agt_06h03bd41pv131jm4kp771rrk0', 'answered', '\x01097c12bcad89fb532a8251126b34ba340d55c952341b6fe7a2e0c7397c0296a4cae6107f98ab8ca944361c50ca141a144595aad9159bb74962035ba111f5c0121b07e769a3170397d613bf9af81f4b9f7d6c8317a69b76d4d4053618bc0f9188b66b549ae5738c244ffdbe47892edb76091cdd85c85aa405fd2cd44a2390d089ecb54b01ceebe1cfd36a098c5cac2d6ccbf0975dda83abe8d585d9824ab2869b2b844249b10841a80b5b15a407005b7d1dceafe8cbfe82bb', '', NULL, 0, 1795324499139, 1795324499286);
INSERT INTO public.turns VALUES ('trn_06h03bepehqsj4b8ouc9urjf2s', 'org_06h03beldpv1505chob0m80png', 'chn_06h03beontp75dguu2qja4q6mc', 'cnv_06h03bep81vcfc87atf4ijo4gk', 'agt_06h03beli1vjfc74gcg45s8nhk', 'needs_attention', '\x01097c12bcad89fb538438f2e2a670a3232c84b02572e11a9bbe8e4c8a59eea3517cb18913484646eb1777051e2b28921533a4354b97c9dc736d250187772bdb4d9da8902c0f9fd489c4b975becb529d9e23ba3c7e8283d5b3c8b38e5f43890b692cbec0afc08d4dae7e22a2c031571cddce1ab9b0cb4d3b4c97071880f12078e2bfdcb2a2932a4f6541d035f5866416c038e89d4336f8da3f78e50e31d45e39774ff75ece530607c2467df4b70d43718571882d056415c1392e1c3e31a9abb9c3a2a4b1', 'insufficient_credits', 0, 0, 1795324500340, 1795324500697);


--
-- Data for Name: user_links; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.user_links VALUES ('\x7f05d5d379c38503211897425d701a3c6c55214c4d2f6cbce311dcfa81588b6e', 'usr_06h03bdk2trmv82lh8lrjvo03o', 'org_06h03bd3i9ss36e4n8idorev08', 'invite', 1795324490783, 1795929290783);


--
-- Data for Name: users; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.users VALUES ('usr_06h03bddv1upj7tgvv1633f9go', 'org_06h03bd3i9ss36e4n8idorev08', 'lan@example.com', 'owner', '$argon2id$v=19$m=19456,t=2,p=1$5iEbz8OcKJJdc9lBVgMnWQ$27cDKt9XAUmeGjss8CZbWvPbIvQ9s2E8zgTdv4KtTcw', 1795324489216, 1795324489761);
INSERT INTO public.users VALUES ('usr_06h03bdk2trmv82lh8lrjvo03o', 'org_06h03bd3i9ss36e4n8idorev08', 'mai@example.com', 'member', '', 1795324490783, 1795324490783);


--
-- Data for Name: wallets; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.wallets VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'test', 5000, 0);
INSERT INTO public.wallets VALUES ('org_06h03bd3i9ss36e4n8idorev08', 'live', 998725, 16450);


--
-- Data for Name: widget_settings; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.widget_settings VALUES ('chn_06h03bei1hs3has32f9dnv298g', '["https://shop.example"]', NULL, 30);


--
-- Name: chunks_seq_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.chunks_seq_seq', 2, true);


--
-- Name: schema_versions_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.schema_versions_id_seq', 8, true);


--
-- Name: agent_knowledge_bases agent_knowledge_bases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.agent_knowledge_bases
    ADD CONSTRAINT agent_knowledge_bases_pkey PRIMARY KEY (agent_id, knowledge_base_id);


--
-- Name: agents agents_org_id_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.agents
    ADD CONSTRAINT agents_org_id_name_key UNIQUE (org_id, name);


--
-- Name: agents agents_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.agents
    ADD CONSTRAINT agents_pkey PRIMARY KEY (id);


--
-- Name: api_keys api_keys_hash_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_hash_key UNIQUE (hash);


--
-- Name: api_keys api_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);


--
-- Name: audit_log audit_log_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (id);


--
-- Name: calls calls_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.calls
    ADD CONSTRAINT calls_pkey PRIMARY KEY (id);


--
-- Name: channels channels_org_id_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_org_id_name_key UNIQUE (org_id, name);


--
-- Name: channels channels_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_pkey PRIMARY KEY (id);


--
-- Name: chunks chunks_document_id_position_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_document_id_position_key UNIQUE (document_id, "position");


--
-- Name: chunks chunks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pkey PRIMARY KEY (seq);


--
-- Name: conversations conversations_channel_id_customer_ref_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_channel_id_customer_ref_key UNIQUE (channel_id, customer_ref);


--
-- Name: conversations conversations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_pkey PRIMARY KEY (id);


--
-- Name: documents documents_knowledge_base_id_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_knowledge_base_id_name_key UNIQUE (knowledge_base_id, name);


--
-- Name: documents documents_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (id);


--
-- Name: holds holds_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.holds
    ADD CONSTRAINT holds_pkey PRIMARY KEY (id);


--
-- Name: idempotency_keys idempotency_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (org_id, env, key_hash);


--
-- Name: knowledge_bases knowledge_bases_org_id_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.knowledge_bases
    ADD CONSTRAINT knowledge_bases_org_id_id_key UNIQUE (org_id, id);


--
-- Name: knowledge_bases knowledge_bases_org_id_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.knowledge_bases
    ADD CONSTRAINT knowledge_bases_org_id_name_key UNIQUE (org_id, name);


--
-- Name: knowledge_bases knowledge_bases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.knowledge_bases
    ADD CONSTRAINT knowledge_bases_pkey PRIMARY KEY (id);


--
-- Name: ledger_entries ledger_entries_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ledger_entries
    ADD CONSTRAINT ledger_entries_pkey PRIMARY KEY (tx_id, seq);


--
-- Name: ledger_tx ledger_tx_kind_org_id_env_ref_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ledger_tx
    ADD CONSTRAINT ledger_tx_kind_org_id_env_ref_key UNIQUE (kind, org_id, env, ref);


--
-- Name: ledger_tx ledger_tx_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ledger_tx
    ADD CONSTRAINT ledger_tx_pkey PRIMARY KEY (id);


--
-- Name: login_windows login_windows_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.login_windows
    ADD CONSTRAINT login_windows_pkey PRIMARY KEY (subject, window_start);


--
-- Name: messages messages_channel_id_platform_message_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.messages
    ADD CONSTRAINT messages_channel_id_platform_message_id_key UNIQUE (channel_id, platform_message_id);


--
-- Name: messages messages_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (id);


--
-- Name: org_models org_models_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.org_models
    ADD CONSTRAINT org_models_pkey PRIMARY KEY (org_id, model);


--
-- Name: organizations organizations_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organizations
    ADD CONSTRAINT organizations_name_key UNIQUE (name);


--
-- Name: organizations organizations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organizations
    ADD CONSTRAINT organizations_pkey PRIMARY KEY (id);


--
-- Name: outbound_messages outbound_messages_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.outbound_messages
    ADD CONSTRAINT outbound_messages_pkey PRIMARY KEY (id);


--
-- Name: provider_keys provider_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.provider_keys
    ADD CONSTRAINT provider_keys_pkey PRIMARY KEY (org_id, provider);


--
-- Name: rate_windows rate_windows_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.rate_windows
    ADD CONSTRAINT rate_windows_pkey PRIMARY KEY (org_id, window_start);


--
-- Name: schema_versions schema_versions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.schema_versions
    ADD CONSTRAINT schema_versions_pkey PRIMARY KEY (id);


--
-- Name: sessions sessions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (hash);


--
-- Name: turns turns_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (id);


--
-- Name: user_links user_links_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.user_links
    ADD CONSTRAINT user_links_pkey PRIMARY KEY (hash);


--
-- Name: user_links user_links_user_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.user_links
    ADD CONSTRAINT user_links_user_id_key UNIQUE (user_id);


--
-- Name: users users_email_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_email_key UNIQUE (email);


--
-- Name: users users_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);


--
-- Name: wallets wallets_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.wallets
    ADD CONSTRAINT wallets_pkey PRIMARY KEY (org_id, env);


--
-- Name: widget_settings widget_settings_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.widget_settings
    ADD CONSTRAINT widget_settings_pkey PRIMARY KEY (channel_id);


--
-- Name: agent_knowledge_bases_base; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX agent_knowledge_bases_base ON public.agent_knowledge_bases USING btree (org_id, knowledge_base_id);


--
-- Name: agent_knowledge_bases_org; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX agent_knowledge_bases_org ON public.agent_knowledge_bases USING btree (org_id, agent_id);


--
-- Name: agents_of_org; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX agents_of_org ON public.agents USING btree (org_id, id);


--
-- Name: api_keys_name; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX api_keys_name ON public.api_keys USING btree (org_id, name) WHERE ((revoked_at IS NULL) AND (name <> ''::text));


--
-- Name: api_keys_org; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX api_keys_org ON public.api_keys USING btree (org_id);


--
-- Name: audit_log_org; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX audit_log_org ON public.audit_log USING btree (org_id, id);


--
-- Name: calls_turn; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX calls_turn ON public.calls USING btree (request_id) WHERE (key_id = ''::text);


--
-- Name: calls_wallet; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX calls_wallet ON public.calls USING btree (org_id, env, started_at);


--
-- Name: channels_agent; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX channels_agent ON public.channels USING btree (agent_id) WHERE (agent_id IS NOT NULL);


--
-- Name: channels_external; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX channels_external ON public.channels USING btree (type, external_id) WHERE (external_id <> ''::text);


--
-- Name: chunk_words; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX chunk_words ON public.chunks USING gin (public.chunk_lexemes(words)) WITH (fastupdate='on', gin_pending_list_limit='64');


--
-- Name: conversations_due; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX conversations_due ON public.conversations USING btree (run_at) WHERE (run_at IS NOT NULL);


--
-- Name: conversations_org; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX conversations_org ON public.conversations USING btree (org_id, id);


--
-- Name: documents_base; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX documents_base ON public.documents USING btree (org_id, knowledge_base_id, id);


--
-- Name: documents_bytes; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX documents_bytes ON public.documents USING btree (org_id, bytes);


--
-- Name: holds_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX holds_open ON public.holds USING btree (expires_at) WHERE (status = 'open'::text);


--
-- Name: idempotency_keys_call; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX idempotency_keys_call ON public.idempotency_keys USING btree (call_id);


--
-- Name: idempotency_keys_expiry; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_keys_expiry ON public.idempotency_keys USING btree (expires_at) WHERE (state = 'done'::text);


--
-- Name: idempotency_keys_leases; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_keys_leases ON public.idempotency_keys USING btree (lease_until) WHERE (state = 'in_progress'::text);


--
-- Name: ledger_tx_wallet; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ledger_tx_wallet ON public.ledger_tx USING btree (org_id, env, created_at);


--
-- Name: login_windows_start; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX login_windows_start ON public.login_windows USING btree (window_start);


--
-- Name: messages_conversation; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX messages_conversation ON public.messages USING btree (conversation_id, received_at, id);


--
-- Name: messages_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX messages_open ON public.messages USING btree (conversation_id) WHERE ((turn_id IS NULL) AND (NOT handled));


--
-- Name: messages_turn; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX messages_turn ON public.messages USING btree (turn_id) WHERE (turn_id IS NOT NULL);


--
-- Name: organizations_retention; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX organizations_retention ON public.organizations USING btree (id) WHERE (retention_days > 0);


--
-- Name: outbound_messages_conversation; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX outbound_messages_conversation ON public.outbound_messages USING btree (conversation_id, created_at, id);


--
-- Name: outbound_messages_open; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX outbound_messages_open ON public.outbound_messages USING btree (conversation_id) WHERE (state = ANY (ARRAY['pending'::text, 'sending'::text]));


--
-- Name: outbound_messages_part; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX outbound_messages_part ON public.outbound_messages USING btree (turn_id, part) WHERE (turn_id IS NOT NULL);


--
-- Name: outbound_messages_platform; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX outbound_messages_platform ON public.outbound_messages USING btree (channel_id, platform_message_id) WHERE (platform_message_id <> ''::text);


--
-- Name: rate_windows_start; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX rate_windows_start ON public.rate_windows USING btree (window_start);


--
-- Name: sessions_expiry; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX sessions_expiry ON public.sessions USING btree (expires_at);


--
-- Name: sessions_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX sessions_user ON public.sessions USING btree (user_id);


--
-- Name: turns_asking; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX turns_asking ON public.turns USING btree (conversation_id) WHERE (state = 'asking'::text);


--
-- Name: turns_attention; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX turns_attention ON public.turns USING btree (updated_at) WHERE (state = ANY (ARRAY['needs_attention'::text, 'dead'::text]));


--
-- Name: turns_channel; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX turns_channel ON public.turns USING btree (channel_id, created_at);


--
-- Name: turns_conversation; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX turns_conversation ON public.turns USING btree (conversation_id, id);


--
-- Name: users_org; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX users_org ON public.users USING btree (org_id, id);


--
-- Name: ledger_entries ledger_entries_append_only; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER ledger_entries_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.ledger_entries FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();


--
-- Name: ledger_tx ledger_tx_append_only; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER ledger_tx_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.ledger_tx FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();


--
-- Name: agent_knowledge_bases agent_knowledge_bases_org_id_agent_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.agent_knowledge_bases
    ADD CONSTRAINT agent_knowledge_bases_org_id_agent_id_fkey FOREIGN KEY (org_id, agent_id) REFERENCES public.agents(org_id, id) ON DELETE CASCADE;


--
-- Name: agent_knowledge_bases agent_knowledge_bases_org_id_knowledge_base_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.agent_knowledge_bases
    ADD CONSTRAINT agent_knowledge_bases_org_id_knowledge_base_id_fkey FOREIGN KEY (org_id, knowledge_base_id) REFERENCES public.knowledge_bases(org_id, id) ON DELETE CASCADE;


--
-- Name: agents agents_org_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.agents
    ADD CONSTRAINT agents_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.organizations(id);


--
-- Name: api_keys api_keys_org_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.organizations(id);


--
-- Name: channels channels_org_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.organizations(id);


--
-- Name: chunks chunks_document_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id);


--
-- Name: conversations conversations_channel_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_channel_id_fkey FOREIGN KEY (channel_id) REFERENCES public.channels(id);


--
-- Name: documents documents_org_id_knowledge_base_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_org_id_knowledge_base_id_fkey FOREIGN KEY (org_id, knowledge_base_id) REFERENCES public.knowledge_bases(org_id, id);


--
-- Name: knowledge_bases knowledge_bases_org_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.knowledge_bases
    ADD CONSTRAINT knowledge_bases_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.organizations(id);


--
-- Name: org_models org_models_org_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.org_models
    ADD CONSTRAINT org_models_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.organizations(id);


--
-- Name: provider_keys provider_keys_org_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.provider_keys
    ADD CONSTRAINT provider_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.organizations(id);


--
-- Name: sessions sessions_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: user_links user_links_user_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.user_links
    ADD CONSTRAINT user_links_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id);


--
-- Name: users users_org_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.organizations(id);


--
-- Name: wallets wallets_org_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.wallets
    ADD CONSTRAINT wallets_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.organizations(id);


--
-- Name: widget_settings widget_settings_channel_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.widget_settings
    ADD CONSTRAINT widget_settings_channel_id_fkey FOREIGN KEY (channel_id) REFERENCES public.channels(id) ON DELETE CASCADE;


--
-- PostgreSQL database dump complete
--

\unrestrict e1D8k3liXjr7z032Yr2S9UWyfU5yogisUEmgGwg1T3Hq913MDrbY2SyViMkrMKV

