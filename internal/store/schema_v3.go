package store

// schemaV3Postgres says when PostgreSQL cleans up. Its default, once a fifth of a table has changed, suits none of these:
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
func ddlV3(engine Engine) string {
	if engine == Postgres {
		return schemaV3Postgres
	}
	return ""
}
