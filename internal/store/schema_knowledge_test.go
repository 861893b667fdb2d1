package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// knowledgeRows fills the tables of the fifth version for two organizations.
func knowledgeRows(t *testing.T, db *store.DB) {
	t.Helper()
	for _, org := range []string{"org_1", "org_2"} {
		createOrganization(t, db, org)
		createAgent(t, db, org, "agt_of_"+org)
		createBase(t, db, org, "kb_of_"+org)
	}
	require.NoError(t, db.Documents.Create(t.Context(), "cli", document("doc_1", 1), chunks("a"), -1))
	require.NoError(t, db.Agents.Update(t.Context(), "cli", "org_1", "agt_of_org_1", func(agent *store.Agent) error {
		agent.KnowledgeBaseIDs = []string{"kb_of_org_1"}
		return nil
	}))
}

func createBase(t *testing.T, db *store.DB, orgID, id string) {
	t.Helper()
	require.NoError(t, db.KnowledgeBases.Create(t.Context(), "cli", store.KnowledgeBase{ID: id, OrgID: orgID, Name: "name of " + id}))
}

// document is one of kb_of_org_1.
func document(id string, chunks int64) store.Document {
	return store.Document{
		ID: id, OrgID: "org_1", KnowledgeBaseID: "kb_of_org_1", Name: "name of " + id, MediaType: "text/plain", Bytes: 5, ChunksTotal: chunks,
	}
}

// chunks have one word each.
func chunks(words ...string) (chunks []store.Chunk) {
	for _, word := range words {
		chunks = append(chunks, store.Chunk{Text: "text of " + word, Words: []string{word}})
	}
	return chunks
}

// What must never stand in the tables of knowledge is refused by them, whatever the code above does.
func TestConstraintsOfKnowledge(t *testing.T) {
	t.Parallel()
	const (
		base  = `INSERT INTO knowledge_bases (id, org_id, name, description, created_at, updated_at) `
		known = `INSERT INTO agent_knowledge_bases (agent_id, knowledge_base_id, org_id) `
		doc   = `INSERT INTO documents (id, org_id, knowledge_base_id, name, media_type, bytes, state, chunks_done, chunks_total, reason, created_at, updated_at) `
		chunk = `INSERT INTO chunks (org_id, document_id, position, text, words) `
	)
	refused := []string{
		`UPDATE knowledge_bases SET name = ''`,
		`UPDATE knowledge_bases SET org_id = 'org_none'`,
		base + `VALUES ('kb_2', 'org_1', 'name of kb_of_org_1', '', 1, 1)`,
		`DELETE FROM knowledge_bases WHERE id = 'kb_of_org_1'`, // it has a document
		known + `VALUES ('agt_of_org_1', 'kb_of_org_2', 'org_1')`,
		known + `VALUES ('agt_of_org_1', 'kb_of_org_2', 'org_2')`,
		known + `VALUES ('agt_of_org_2', 'kb_of_org_1', 'org_1')`,
		known + `VALUES ('agt_of_org_1', 'kb_of_org_1', 'org_1')`, // twice
		doc + `VALUES ('doc_2', 'org_1', 'kb_of_org_2', 'n', 'text/plain', 1, 'ready', 0, 0, '', 1, 1)`,
		doc + `VALUES ('doc_2', 'org_2', 'kb_of_org_1', 'n', 'text/plain', 1, 'ready', 0, 0, '', 1, 1)`,
		doc + `VALUES ('doc_2', 'org_1', 'kb_of_org_1', 'name of doc_1', 'text/plain', 1, 'ready', 0, 0, '', 1, 1)`,
		doc + `VALUES ('doc_2', 'org_1', 'kb_of_org_1', '', 'text/plain', 1, 'ready', 0, 0, '', 1, 1)`,
		`UPDATE documents SET media_type = 'application/pdf'`,
		`UPDATE documents SET bytes = -1`,
		`UPDATE documents SET state = 'lost'`,
		`UPDATE documents SET chunks_done = -1, state = 'ingesting'`,
		`UPDATE documents SET chunks_done = chunks_total + 1, state = 'ingesting'`,
		`UPDATE documents SET chunks_done = 0`,  // and ready
		`UPDATE documents SET state = 'failed'`, // without a reason
		`UPDATE documents SET reason = 'x'`,     // and not failed
		`DELETE FROM documents`,                 // it has chunks
		chunk + `VALUES ('org_1', 'doc_none', 0, 'x', 'x')`,
		chunk + `VALUES ('org_2', 'doc_1', 1, 'x', 'x')`, // another organization's document
		chunk + `VALUES ('org_1', 'doc_1', 0, 'x', 'x')`, // the position
		chunk + `VALUES ('org_1', 'doc_1', -1, 'x', 'x')`,
	}
	accepted := []string{
		doc + `VALUES ('doc_2', 'org_2', 'kb_of_org_2', 'name of doc_1', 'text/html', 0, 'failed', 0, 9, 'because', 1, 1)`,
		chunk + `VALUES ('org_2', 'doc_2', 0, '', '')`,
		known + `VALUES ('agt_of_org_2', 'kb_of_org_2', 'org_2')`,
		`DELETE FROM agents WHERE id = 'agt_of_org_1'`, // as a process does that knows no knowledge
	}
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		knowledgeRows(t, db)
		for _, statement := range refused {
			require.Error(t, tryWrite(db, statement), statement)
		}
		for _, statement := range accepted {
			require.NoError(t, tryWrite(db, statement), statement)
		}
		var known int
		require.NoError(t, db.Reader().QueryRowContext(t.Context(),
			`SELECT count(*) FROM agent_knowledge_bases WHERE org_id = 'org_1'`).Scan(&known))
		require.Zero(t, known)
	})
}

// The full-text index of SQLite follows its table, and says so itself.
func TestFullTextIndexIsConsistent(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	knowledgeRows(t, db)
	require.NoError(t, db.Documents.Create(t.Context(), "cli", document("doc_2", 3), chunks("a", "b", "c"), -1))
	gone, err := db.Documents.DeleteSomeChunks(t.Context(), "cli", "org_1", "kb_of_org_1", "doc_1")
	require.NoError(t, err)
	require.True(t, gone)
	write(t, db, `INSERT INTO chunk_words (chunk_words, rank) VALUES ('integrity-check', 1)`)
	require.Error(t, tryWrite(db, `UPDATE chunks SET words = 'x'`))
	write(t, db, `DROP TRIGGER chunks_delete`)
	write(t, db, `DELETE FROM chunks WHERE position = 1`)
	require.Error(t, tryWrite(db, `INSERT INTO chunk_words (chunk_words, rank) VALUES ('integrity-check', 1)`), "the check itself")
}

// The reads of knowledge use its indexes, on the engine that plans by rule and not by size.
func TestIndexesOfKnowledge(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	for text, index := range map[string]string{
		`SELECT count(*), sum(bytes) FROM documents WHERE org_id = 'o'`:                                                       "documents_bytes",
		`SELECT id FROM documents WHERE org_id = 'o' AND knowledge_base_id = 'b' AND id > 'a' ORDER BY id LIMIT 9`:            "documents_base",
		`SELECT sum(chunks_total) FROM documents WHERE org_id = 'o' AND state = 'ready' AND knowledge_base_id IN ('b')`:       "documents_base",
		`SELECT seq FROM chunks WHERE org_id = 'o' AND document_id = 'd' ORDER BY position LIMIT 50`:                          "sqlite_autoindex_chunks",
		`SELECT agent_id FROM agent_knowledge_bases WHERE org_id = 'o' AND agent_id >= 'a' AND agent_id <= 'b'`:               "USING PRIMARY KEY (org_id=? AND agent_id>? AND agent_id<?)",
		`DELETE FROM agent_knowledge_bases WHERE org_id = 'o' AND knowledge_base_id = 'b'`:                                    "agent_knowledge_bases_base",
		`SELECT rowid FROM chunk_words WHERE chunk_words MATCH '"a"' LIMIT 9`:                                                 "VIRTUAL TABLE INDEX",
		`SELECT c.text FROM chunks c JOIN documents d ON d.id = c.document_id WHERE d.state = 'ready' AND c.seq IN (1, 2, 3)`: "INTEGER PRIMARY KEY",
	} {
		plan := planOf(t, db, text)
		require.Contains(t, plan, index, text)
		require.NotContains(t, plan, "USE TEMP B-TREE", text)
	}
}

// planOf is how SQLite runs a statement.
func planOf(t *testing.T, db *store.DB, text string) string {
	t.Helper()
	rows, err := db.Reader().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text)
	require.NoError(t, err, text)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		plan.WriteString(detail + "\n")
	}
	require.NoError(t, rows.Err())
	return plan.String()
}

// PostgreSQL finds words by the index of words.
func TestFullTextIndexOfPostgres(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.Postgres)
	tx, err := db.Reader().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback() //nolint:errcheck // it only read
	_, err = tx.ExecContext(t.Context(), `SET LOCAL enable_seqscan = off`)
	require.NoError(t, err)
	rows, err := tx.QueryContext(t.Context(),
		`EXPLAIN SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $1::text::tsquery LIMIT 9`, `('a'&'b')|'c'`)
	require.NoError(t, err)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		plan.WriteString(line + "\n")
	}
	require.NoError(t, rows.Err())
	require.Contains(t, plan.String(), "Bitmap Index Scan on chunk_words")
}
