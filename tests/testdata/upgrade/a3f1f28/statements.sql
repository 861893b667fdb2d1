-- What the build a3f1f28 asked a PostgreSQL during a rolling upgrade, each statement once. TestUpgradeKeepsOlderBuildsWorking
-- prepares them.
DELETE FROM channels WHERE id = $1;
DELETE FROM conversations WHERE id = $1;
DELETE FROM idempotency_keys
WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND call_id = $4 AND state = $5;
DELETE FROM login_windows WHERE window_start < $1;
DELETE FROM messages WHERE conversation_id = $1;
DELETE FROM outbound_messages WHERE conversation_id = $1;
DELETE FROM rate_windows WHERE ctid = ANY(ARRAY(SELECT ctid FROM rate_windows WHERE window_start < $1 FOR UPDATE SKIP LOCKED));
DELETE FROM sessions WHERE expires_at <= $1;
DELETE FROM sessions WHERE user_id = $1 AND org_id = $2;
DELETE FROM turns WHERE conversation_id = $1;
DELETE FROM user_links WHERE hash = $1 AND org_id = $2 AND expires_at > $3 RETURNING user_id;
DELETE FROM user_links WHERE user_id = $1 AND org_id = $2;
DELETE FROM users WHERE id = $1 AND org_id = $2;
INSERT INTO agents (id, org_id, name, model, instructions, use_byok, max_tokens, temperature_milli,
debounce_ms, debounce_max_ms, supersede, pause_ms, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13);
INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at, expires_at, revoked_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
INSERT INTO audit_log (id, at, actor, action, target, org_id, detail) VALUES ($1, $2, $3, $4, $5, $6, $7);
INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream,
outcome, prompt_tokens, completion_tokens, cached_tokens, usage_source, charged_micros, extra_micros,
shortfall_micros, tx_id, started_at, duration_ms) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20);
INSERT INTO channels (id, org_id, type, name, external_id, agent_id, state, credentials,
credentials_version, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $9);
INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, state,
attention, lease_until, lease_token, attempts, paused_until, last_customer_at, created_at, updated_at)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14) ON CONFLICT (channel_id, customer_ref) DO NOTHING;
INSERT INTO holds (id, org_id, env, amount_micros, status, model,
price_input, price_output, price_cached_input, created_at, expires_at, resolved_at) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12);
INSERT INTO idempotency_keys (org_id, env, key_hash, fingerprint, state, call_id,
lease_until, response, created_at, finished_at, expires_at) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11);
INSERT INTO ledger_entries (tx_id, seq, account, amount_micros) VALUES ($1,$2,$3,$4);
INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at) VALUES ($1,$2,$3,$4,$5,$6,$7,$8);
INSERT INTO login_windows (subject, window_start, count) VALUES ($1, $2, 1)
ON CONFLICT (subject, window_start) DO UPDATE SET count = login_windows.count + 1 RETURNING count;
INSERT INTO messages (id, org_id, channel_id, conversation_id, platform_message_id,
author, kind, body, handled, sent_at, received_at) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11);
INSERT INTO outbound_messages (id, org_id, channel_id, conversation_id, turn_id, part, author, body,
state, code, platform_message_id, attempts, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, '', '', 0, $10, $10);
INSERT INTO rate_windows (org_id, window_start, count) VALUES ($1, $2, $3)
ON CONFLICT (org_id, window_start) DO UPDATE SET count = rate_windows.count + excluded.count;
INSERT INTO sessions (hash, user_id, org_id, created_at, seen_at, expires_at) VALUES ($1, $2, $3, $4, $4, $5);
INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, request, code,
balance_micros, attempts, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $10);
INSERT INTO user_links (hash, user_id, org_id, purpose, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6);
INSERT INTO users (id, org_id, email, role, password, created_at, updated_at)
VALUES ($1, $2, $3, $4, '', $5, $5);
INSERT INTO wallets (org_id, env) SELECT id, CAST($2 AS TEXT) FROM organizations WHERE id = $1
ON CONFLICT DO NOTHING;
SELECT
EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled)
OR EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state IN ('asking', 'needs_attention') AND id <> $2);
SELECT
EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state = 'asking')
OR EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1 AND state IN ('pending', 'sending')),
EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled);
SELECT (SELECT count(*) FROM (SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $1::text::tsquery LIMIT 1001) AS found), (SELECT count(*) FROM (SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $2::text::tsquery LIMIT 1001) AS found);
SELECT (SELECT count(*) FROM (SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $1::text::tsquery LIMIT 1001) AS found), (SELECT count(*) FROM (SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $2::text::tsquery LIMIT 1001) AS found), (SELECT count(*) FROM (SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $3::text::tsquery LIMIT 1001) AS found), (SELECT count(*) FROM (SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $4::text::tsquery LIMIT 1001) AS found), (SELECT count(*) FROM (SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $5::text::tsquery LIMIT 1001) AS found);
SELECT 0 AS query, seq FROM (SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $1::text::tsquery LIMIT 1000) AS found0 UNION ALL SELECT 1 AS query, seq FROM (SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $2::text::tsquery LIMIT 1000) AS found1;
SELECT 1 FROM organizations LIMIT 1;
SELECT CASE WHEN EXISTS (SELECT 1 FROM conversations WHERE run_at <= $1 AND lease_until < $1) THEN $1
ELSE (SELECT min(run_at) FROM conversations WHERE run_at > $1) END;
SELECT CAST(COALESCE(sum(chunks_total), 0) AS BIGINT) FROM documents
WHERE org_id = $1 AND state = $2 AND knowledge_base_id IN ($3);
SELECT agent_id, knowledge_base_id FROM agent_knowledge_bases
WHERE org_id = $1 AND agent_id >= $2 AND agent_id <= $3 ORDER BY agent_id, knowledge_base_id;
SELECT b.id, b.org_id, b.name, b.description, b.created_at, b.updated_at, count(d.id),
CAST(COALESCE(sum(d.bytes), 0) AS BIGINT)
FROM knowledge_bases b LEFT JOIN documents d ON d.org_id = b.org_id AND d.knowledge_base_id = b.id WHERE b.id = $1 AND b.org_id = $2 GROUP BY b.id, b.org_id, b.name, b.description, b.created_at, b.updated_at ORDER BY b.id;
SELECT b.id, b.org_id, b.name, b.description, b.created_at, b.updated_at, count(d.id),
CAST(COALESCE(sum(d.bytes), 0) AS BIGINT)
FROM knowledge_bases b LEFT JOIN documents d ON d.org_id = b.org_id AND d.knowledge_base_id = b.id WHERE b.org_id = $1 AND b.id IN (
SELECT id FROM knowledge_bases WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3) GROUP BY b.id, b.org_id, b.name, b.description, b.created_at, b.updated_at ORDER BY b.id;
SELECT balance_micros, held_micros FROM wallets WHERE org_id = $1 AND env = $2;
SELECT c.id, c.org_id, c.type, c.external_id, c.state, c.credentials,
COALESCE(a.debounce_ms, 0), COALESCE(a.debounce_max_ms, 0), COALESCE(a.pause_ms, 0) FROM channels c LEFT JOIN agents a ON a.id = c.agent_id AND a.org_id = c.org_id WHERE (c.type, c.external_id) IN
(SELECT type, external_id FROM unnest($1::text[], $2::text[]) AS wanted (type, external_id)) AND c.external_id <> '';
SELECT c.id, c.org_id, c.type, c.external_id, c.state, c.credentials,
COALESCE(a.debounce_ms, 0), COALESCE(a.debounce_max_ms, 0), COALESCE(a.pause_ms, 0) FROM channels c LEFT JOIN agents a ON a.id = c.agent_id AND a.org_id = c.org_id WHERE c.id = ANY($1);
SELECT c.id, c.org_id, c.type, c.name, c.external_id, c.agent_id, c.state, c.credentials,
c.credentials_version, c.created_at, c.updated_at, w.origins, w.daily_spend_micros, w.requests_per_minute
FROM channels c LEFT JOIN widget_settings w ON w.channel_id = c.id WHERE c.id = $1 AND c.org_id = $2;
SELECT c.id, c.org_id, c.type, c.name, c.external_id, c.agent_id, c.state, c.credentials,
c.credentials_version, c.created_at, c.updated_at, w.origins, w.daily_spend_micros, w.requests_per_minute
FROM channels c LEFT JOIN widget_settings w ON w.channel_id = c.id WHERE c.org_id = $1 AND c.id > $2 ORDER BY c.id LIMIT $3;
SELECT c.id, c.org_id, w.origins, w.daily_spend_micros, w.requests_per_minute FROM channels c LEFT JOIN widget_settings w ON w.channel_id = c.id
WHERE c.id = $1 AND c.type = 'widget';
SELECT c.seq, c.document_id, d.name, d.knowledge_base_id, c.position, c.text
FROM chunks c JOIN documents d ON d.id = c.document_id
WHERE d.org_id = $1 AND d.state = $2 AND d.knowledge_base_id IN ($3) AND c.seq IN ($4) ORDER BY c.seq;
SELECT channel_id, platform_message_id FROM messages
WHERE (channel_id, platform_message_id) IN (VALUES ($1,$2));
SELECT conversation_id FROM turns WHERE id = $1;
SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = $1;
SELECT count(*) FROM outbound_messages
WHERE conversation_id = $1 AND created_at >= $2 AND author = 'assistant' AND part = 0;
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;
SELECT id FROM (
SELECT id, run_at, row_number() OVER (PARTITION BY org_id ORDER BY run_at, id) AS turn FROM (
SELECT id, org_id, run_at FROM conversations
WHERE run_at <= $1 AND lease_until < $1 ORDER BY run_at LIMIT $2
) AS candidates
) AS ranked ORDER BY turn, run_at, id LIMIT $3;
SELECT id FROM agents WHERE id = $1 AND org_id = $2 FOR UPDATE;
SELECT id FROM channels WHERE id = $1 AND org_id = $2 FOR UPDATE SKIP LOCKED;
SELECT id FROM channels WHERE id IN ($1);
SELECT id FROM conversations WHERE channel_id = $1 AND org_id = $2 LIMIT $3 FOR UPDATE SKIP LOCKED;
SELECT id FROM conversations WHERE channel_id = $1 LIMIT 1;
SELECT id FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled
ORDER BY sent_at, received_at, id;
SELECT id FROM turns WHERE conversation_id = $1 AND state = 'asking';
SELECT id FROM users WHERE id = $1 AND org_id = $2 FOR UPDATE;
SELECT id, agent_id, conversation_id FROM turns WHERE org_id = $1 AND id IN ($2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,$21,$22,$23,$24,$25,$26,$27,$28,$29,$30,$31,$32,$33,$34,$35,$36,$37,$38,$39,$40,$41,$42,$43,$44,$45,$46,$47,$48,$49,$50,$51,$52,$53,$54,$55,$56,$57,$58,$59,$60,$61,$62,$63,$64,$65);
SELECT id, agent_id, request, state, code, attempts, created_at FROM turns
WHERE conversation_id = $1 AND state = 'asking';
SELECT id, at, actor, action, target, org_id, detail FROM audit_log WHERE org_id = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3;
SELECT id, name, plan, created_at, suspended_at, retention_days FROM organizations WHERE id = $1;
SELECT id, org_id, author, 'text' AS kind, body, state, code, turn_id, platform_message_id,
created_at AS at, created_at AS placed_at, FALSE AS handled FROM outbound_messages WHERE conversation_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4;
SELECT id, org_id, author, 'text' AS kind, body, state, code, turn_id, platform_message_id,
created_at AS at, created_at AS placed_at, FALSE AS handled FROM outbound_messages WHERE conversation_id = $1 AND (created_at, id) > ($2, $3) ORDER BY created_at, id LIMIT $4;
SELECT id, org_id, author, 'text' AS kind, body, state, code, turn_id, platform_message_id,
created_at AS at, created_at AS placed_at, FALSE AS handled FROM outbound_messages WHERE conversation_id = $1 AND state IN ('sent', 'delivery_unknown')
ORDER BY created_at DESC, id DESC LIMIT $2;
SELECT id, org_id, author, kind, body, '' AS state, '' AS code, turn_id, platform_message_id,
sent_at AS at, received_at AS placed_at, handled FROM messages WHERE conversation_id = $1 AND (handled OR turn_id <> $2)
ORDER BY received_at DESC, id DESC LIMIT $3;
SELECT id, org_id, author, kind, body, '' AS state, '' AS code, turn_id, platform_message_id,
sent_at AS at, received_at AS placed_at, handled FROM messages WHERE conversation_id = $1 AND (received_at, id) < ($2, $3) ORDER BY received_at DESC, id DESC LIMIT $4;
SELECT id, org_id, author, kind, body, '' AS state, '' AS code, turn_id, platform_message_id,
sent_at AS at, received_at AS placed_at, handled FROM messages WHERE conversation_id = $1 AND (received_at, id) > ($2, $3) ORDER BY received_at, id LIMIT $4;
SELECT id, org_id, author, kind, body, '' AS state, '' AS code, turn_id, platform_message_id,
sent_at AS at, received_at AS placed_at, handled FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled
ORDER BY sent_at DESC, received_at DESC, id DESC LIMIT $2;
SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, attempts,
paused_until, last_customer_at, created_at, updated_at FROM conversations WHERE id = $1 AND org_id = $2;
SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, attempts,
paused_until, last_customer_at, created_at, updated_at FROM conversations WHERE org_id = $1 AND (last_customer_at, id) < ($4, $2) AND attention <> '' ORDER BY last_customer_at DESC, id DESC LIMIT $3;
SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, attempts,
paused_until, last_customer_at, created_at, updated_at FROM conversations WHERE org_id = $1 AND (last_customer_at, id) < ($4, $2) AND channel_id = $5 ORDER BY last_customer_at DESC, id DESC LIMIT $3;
SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, attempts,
paused_until, last_customer_at, created_at, updated_at FROM conversations WHERE org_id = $1 AND (last_customer_at, id) < ($4, $2) ORDER BY last_customer_at DESC, id DESC LIMIT $3;
SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, attempts,
paused_until, last_customer_at, created_at, updated_at FROM conversations WHERE org_id = $1 AND id > $2 AND channel_id = $4 ORDER BY id LIMIT $3;
SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, attempts,
paused_until, last_customer_at, created_at, updated_at, lease_token, lease_until, run_at FROM conversations WHERE id = $1 AND org_id = $2;
SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, run_at,
waiting_since, lease_until, lease_token, attempts, paused_until, last_customer_at, updated_at FROM conversations
WHERE (channel_id, customer_ref) IN (VALUES ($1,$2));
SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, run_at,
waiting_since, lease_until, lease_token, attempts, paused_until, last_customer_at, updated_at FROM conversations
WHERE run_at <= $1 AND lease_until < $1 AND id IN ($2) FOR UPDATE SKIP LOCKED;
SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, run_at,
waiting_since, lease_until, lease_token, attempts, paused_until, last_customer_at, updated_at FROM conversations WHERE id IN ($1) ORDER BY id FOR UPDATE;
SELECT id, org_id, email, role, password <> '', created_at, updated_at FROM users WHERE id = $1 AND org_id = $2;
SELECT id, org_id, email, role, password <> '', created_at, updated_at FROM users WHERE org_id = $1 AND (id = $2 OR role = 'owner') ORDER BY id FOR UPDATE;
SELECT id, org_id, email, role, password <> '', created_at, updated_at FROM users WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3;
SELECT id, org_id, env FROM holds WHERE status = 'open' AND expires_at < $1
ORDER BY expires_at LIMIT $2;
SELECT id, org_id, env, amount_micros, status, expires_at FROM holds WHERE id IN ($1);
SELECT id, org_id, env, charged_micros, extra_micros, shortfall_micros FROM calls
WHERE id IN ($1);
SELECT id, org_id, env, name, scopes, hash, hint, created_at, expires_at, revoked_at FROM api_keys WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3;
SELECT id, org_id, knowledge_base_id, name, media_type, bytes, state, chunks_done, chunks_total,
reason, created_at, updated_at FROM documents WHERE org_id = $1 AND knowledge_base_id = $2 AND id > $3 ORDER BY id LIMIT $4;
SELECT id, org_id, name, model, instructions, use_byok, max_tokens, temperature_milli,
debounce_ms, debounce_max_ms, supersede, pause_ms, created_at, updated_at FROM agents WHERE id = $1 AND org_id = $2;
SELECT id, org_id, name, model, instructions, use_byok, max_tokens, temperature_milli,
debounce_ms, debounce_max_ms, supersede, pause_ms, created_at, updated_at FROM agents WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3;
SELECT id, org_id, password FROM users WHERE email = $1;
SELECT id, request_id, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens,
cached_tokens, usage_source, charged_micros, extra_micros, shortfall_micros, started_at, duration_ms
FROM calls WHERE org_id = $1 AND env = $2 AND (started_at, id) < ($3, $4) AND started_at >= $5
ORDER BY started_at DESC, id DESC LIMIT $6;
SELECT id, retention_days FROM organizations WHERE retention_days > 0 AND id > $1 ORDER BY id LIMIT $2;
SELECT id, turn_id, author, body, state, part, attempts FROM outbound_messages
WHERE conversation_id = $1 AND state IN ('pending', 'sending') ORDER BY created_at, id;
SELECT k.hash, k.id, k.org_id, k.env, k.scopes, k.expires_at, k.revoked_at, o.plan, o.suspended_at,
EXISTS (SELECT 1 FROM org_models m WHERE m.org_id = k.org_id), floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM api_keys k JOIN organizations o ON o.id = k.org_id WHERE k.hash = ANY($1);
SELECT k.response, c.byok,
coalesce(c.charged_micros, 0), coalesce(c.extra_micros, 0), coalesce(c.shortfall_micros, 0)
FROM idempotency_keys k LEFT JOIN calls c ON c.id = k.call_id
WHERE k.org_id = $1 AND k.env = $2 AND k.key_hash = $3 AND k.call_id = $4 AND k.state = 'done';
SELECT l.user_id, l.org_id, l.purpose, l.expires_at, u.email
FROM user_links l JOIN users u ON u.id = l.user_id WHERE l.hash = $1;
SELECT model, count(*), CAST(sum(prompt_tokens) AS BIGINT), CAST(sum(completion_tokens) AS BIGINT),
CAST(sum(charged_micros) AS BIGINT)
FROM calls WHERE org_id = $1 AND env = $2 AND started_at >= $3 AND started_at < $4 GROUP BY model ORDER BY model;
SELECT org_id FROM conversations WHERE id = $1;
SELECT org_id FROM users WHERE id = $1;
SELECT org_id, count FROM rate_windows WHERE window_start = $1 AND org_id IN ($2);
SELECT org_id, env, balance_micros, held_micros FROM wallets
WHERE (org_id, env) IN (VALUES ($1,$2)) ORDER BY org_id, env FOR UPDATE;
SELECT org_id, env, key_hash FROM idempotency_keys
WHERE state = 'done' AND expires_at < $1 ORDER BY expires_at LIMIT $2;
SELECT org_id, env, key_hash FROM idempotency_keys
WHERE state = 'in_progress' AND call_id IN ($1,$2,$3,$4);
SELECT org_id, env, key_hash FROM idempotency_keys
WHERE state = 'in_progress' AND lease_until < $1 ORDER BY lease_until LIMIT $2;
SELECT org_id, env, key_hash, fingerprint, state, call_id, lease_until, created_at, expires_at
FROM idempotency_keys WHERE (org_id = $1 AND env = $2 AND key_hash = $3) ORDER BY org_id, env, key_hash FOR UPDATE;
SELECT org_id, model, enabled FROM org_models WHERE org_id = ANY($1);
SELECT org_id, provider, sealed, hint, updated_at FROM provider_keys WHERE org_id = $1 ORDER BY provider;
SELECT pg_notify('svc_inbox', '');
SELECT placed.id, placed.org_id, placed.conversation_id, placed.channel_id, placed.code, placed.balance_micros,
o.suspended_at IS NOT NULL, coalesce(c.agent_id, '') <> '', coalesce(c.state, '')
FROM (
SELECT id, org_id, conversation_id, channel_id, code, balance_micros, updated_at,
row_number() OVER (PARTITION BY org_id ORDER BY updated_at) AS place
FROM turns WHERE state IN ('needs_attention', 'dead') AND state = 'needs_attention' AND updated_at >= $1
) placed JOIN organizations o ON o.id = placed.org_id LEFT JOIN channels c ON c.id = placed.channel_id
WHERE placed.place <= $3 ORDER BY placed.place, placed.updated_at LIMIT $2;
SELECT sealed FROM provider_keys WHERE org_id = $1 AND provider = $2;
SELECT state FROM turns WHERE id = $1 AND conversation_id = $2;
SELECT state, request IS NOT NULL FROM turns WHERE id = $1;
SELECT suspended_at IS NOT NULL FROM organizations WHERE id = $1;
SELECT t.id, t.kind, t.ref, t.reason, t.balance_micros, t.created_at, e.amount_micros
FROM ledger_tx t JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
WHERE t.org_id = $1 AND t.env = $2 AND (t.created_at, t.id) < ($3, $4) AND t.created_at >= $5
ORDER BY t.created_at DESC, t.id DESC LIMIT $6;
SELECT turn_id, state, author, part, platform_message_id FROM outbound_messages WHERE id = $1 AND conversation_id = $2;
SELECT u.id, u.org_id, u.role, s.seen_at, s.expires_at, o.plan, o.suspended_at,
EXISTS (SELECT 1 FROM org_models m WHERE m.org_id = u.org_id)
FROM sessions s JOIN users u ON u.id = s.user_id JOIN organizations o ON o.id = u.org_id WHERE s.hash = $1;
SELECT user_id, org_id, purpose FROM user_links WHERE hash = $1;
UPDATE api_keys SET revoked_at = $3
WHERE id = $1 AND org_id = $2 AND revoked_at IS NULL RETURNING id;
UPDATE channels SET state = $3, updated_at = $4 WHERE id = $1 AND org_id = $2 RETURNING id;
UPDATE conversations SET address = $2, customer_name = $3, last_customer_at = $4, updated_at = $5 WHERE id = $1;
UPDATE conversations SET address = $2, customer_name = $3, last_customer_at = $4, updated_at = $5,
state = $6, attention = $7, run_at = $8, waiting_since = $9, lease_until = $10, lease_token = $11, attempts = $12,
paused_until = $13 WHERE id = $1;
UPDATE holds SET status = $1, resolved_at = $2 WHERE status = 'open' AND id IN ($3);
UPDATE idempotency_keys SET fingerprint = $1, state = $2, call_id = $3, lease_until = $4, response = $5,
created_at = $6, finished_at = $7, expires_at = $8
WHERE org_id = $9 AND env = $10 AND key_hash = $11 AND call_id = $12 AND state = $13;
UPDATE login_windows SET count = count - 1 WHERE subject = $1 AND window_start = $2 AND count > 0;
UPDATE messages SET turn_id = $1 WHERE id IN ($2);
UPDATE outbound_messages SET state = $2, code = $3, updated_at = $4 WHERE id = $1;
UPDATE outbound_messages SET state = 'sent', code = '', platform_message_id = $2, updated_at = $3
WHERE id = $1;
UPDATE turns SET state = $2, code = $3, balance_micros = $4, updated_at = $5 WHERE id = $1 AND state = 'asking';
UPDATE turns SET state = $2, code = '', balance_micros = NULL, attempts = 0, updated_at = $3
WHERE id = $1;
UPDATE users SET password = $3, updated_at = $4 WHERE id = $1 AND org_id = $2;
UPDATE users SET password = $4 WHERE id = $1 AND org_id = $2 AND password = $3 RETURNING id;
UPDATE users SET role = $3, updated_at = $4 WHERE id = $1 AND org_id = $2;
UPDATE wallets SET balance_micros = $1, held_micros = $2
WHERE org_id = $3 AND env = $4 AND balance_micros = $5 AND held_micros = $6;
