package archive

import "strings"

// allTables are the tables an archive holds, in an order in which each row finds the rows its foreign keys name. A
// column is text unless it names another type. TestArchivesHoldTheWholeSchema compares the list, and that of what archives
// leave out, with the catalogue of both engines, so that a new table or column can't be forgotten.
var allTables = [...]struct{ name, columns string }{
	{"organizations", "id name plan created_at:int suspended_at:int retention_days:int low_balance_micros:int " +
		"low_balance_since:int waiting_minutes:int"},
	{"users", "id org_id email role password created_at:int updated_at:int reset_by reset_at:int"},
	{"user_links", "hash:bytes user_id org_id created_at:int expires_at:int created_by"},
	{"invitations", "id org_id email role hash:bytes created_at:int updated_at:int expires_at:int"},
	{"api_keys", "id org_id env name scopes hash:bytes hint created_at:int expires_at:int revoked_at:int created_by"},
	{"provider_keys", "org_id provider sealed:bytes hint updated_at:int"},
	{"org_models", "org_id model enabled:bool"},
	{"audit_log", "id at:int actor action target org_id detail"},
	{"rate_windows", "org_id window_start:int count:int"},
	{"wallets", "org_id env balance_micros:int held_micros:int seq:int moved_at:int recall_until:int kept_bytes:int"},
	{"holds", "org_id env id amount_micros:int expires_at:int"},
	{"tranches", "org_id env id owner left_micros:int spare:bool lease_until:int"},
	{"prices", "id:int model input_micros:int output_micros:int cached_input_micros:int"},
	{"ledger_tx", "id org_id env wallet_seq:int kind account ref reason amount_micros:int balance_micros:int created_at:int audit_id"},
	{"calls", "id request_id org_id env key_id model provider byok:bool stream:bool outcome prompt_tokens:int " +
		"completion_tokens:int cached_tokens:int usage_source ended_at:int duration_ms:int price_id:int reserved_micros:int " +
		"charged_micros:int shortfall_micros:int wallet_seq:int balance_micros:int"},
	{"running_keys", "org_id env key_hash:bytes fingerprint:bytes call_id reserved_micros:int expires_at:int"},
	{"idempotency_keys", "org_id env key_hash:bytes fingerprint:bytes call_id kept_bytes:int until:int"},
	{"kept_answers", "org_id env call_id response:bytes"},
	{"agents", "id org_id name model instructions use_byok:bool max_tokens:int temperature_milli:int debounce_ms:int " +
		"debounce_max_ms:int supersede:bool pause_ms:int created_at:int updated_at:int handover:bool handover_words handover_reply " +
		"typing:bool"},
	{"knowledge_bases", "id org_id name description created_at:int updated_at:int"},
	{"agent_knowledge_bases", "org_id agent_id knowledge_base_id"},
	{"documents", "id org_id knowledge_base_id name media_type bytes:int state chunks_done:int chunks_total:int reason " +
		"created_at:int updated_at:int"},
	{"chunks", "org_id document_id position:int text words"},
	{"channels", "id org_id type name external_id agent_id state credentials:bytes credentials_version:int " +
		"created_at:int updated_at:int lost_external_id expiry_told:int max_age_minutes:int drafts:bool " +
		"opening_hours time_zone closed_notice media_notice"},
	{"widget_settings", "org_id channel_id origins daily_spend_micros:int requests_per_minute:int"},
	{"channel_paces", "org_id channel_id paced_until:int queued_until:int closed_until:int"},
	{"id_keys", "number:int sealed:bytes"},
	{"conversations", "id org_id channel_id customer_ref address customer_name:bytes state attention run_at:int " +
		"waiting_since:int lease_until:int lease_token:int attempts:int paused_until:int last_customer_at:int " +
		"created_at:int updated_at:int blocked_at:int unanswered_since:int waiting_told:int attention_told handover_reason paced_until:int " +
		"retried_at:int closed_until:int doubt_since:int turn_id unsent_since:int"},
	{"customer_aliases", "org_id channel_id alias conversation_id"},
	{"messages", "id org_id channel_id conversation_id platform_message_id author kind body:bytes turn_id handled:bool " +
		"sent_at:int received_at:int edited:bool"},
	{"media", "id org_id channel_id message_id position:int kind state code about:bytes media_type bytes:int pieces:int attempts:int " +
		"run_at:int created_at:int updated_at:int conversation_id"},
	{"media_pieces", "org_id media_id position:int body:bytes"},
	{"turns", "id org_id channel_id conversation_id agent_id state request:bytes code balance_micros:int attempts:int " +
		"created_at:int updated_at:int draft:bytes call_id widget_id"},
	{"outbound_messages", "id org_id channel_id conversation_id turn_id part:int author body:bytes state code " +
		"platform_message_id attempts:int created_at:int updated_at:int resends:int template:bytes file_id"},
	{"sent_files", "id org_id outbound_id kind name:bytes media_type bytes:int pieces:int expires_at:int created_at:int"},
	{"sent_file_pieces", "org_id file_id position:int body:bytes"},
	{"message_keys", "org_id key_hash:bytes fingerprint:bytes message_ids created_at:int"},
	{"message_tombstones", "hash:bytes org_id expires_at:int"},
	{"deleted_turns", "id org_id channel_id created_at:int call_id"},
	{"event_endpoints", "id org_id url events secret:bytes old_secret:bytes old_secret_until:int state reason failing_since:int " +
		"created_at:int updated_at:int"},
	{"event_deliveries", "event_id endpoint_id org_id type payload state attempts:int run_at:int outcome status:int " +
		"created_at:int updated_at:int"},
}

// columnType is how a column's values stand in an archive.
type columnType string

const (
	textColumn  columnType = "text"  // a JSON string
	intColumn   columnType = "int"   // a JSON number without fraction, of 64 bits
	boolColumn  columnType = "bool"  // true or false on either engine
	bytesColumn columnType = "bytes" // a JSON string of base64
)

type column struct {
	name string
	kind columnType
}

// table is a table with the columns that an archive has.
type table struct {
	name    string
	columns []column
}

// tableAt is the table at a place of [allTables].
func tableAt(place int) table {
	table := table{name: allTables[place].name}
	for word := range strings.FieldsSeq(allTables[place].columns) {
		name, kind, typed := strings.Cut(word, ":")
		if !typed {
			kind = string(textColumn)
		}
		table.columns = append(table.columns, column{name, columnType(kind)})
	}
	return table
}

func (t table) columnNames() []string {
	names := make([]string, len(t.columns))
	for i, column := range t.columns {
		names[i] = column.name
	}
	return names
}
