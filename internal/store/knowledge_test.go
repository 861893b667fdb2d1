package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func TestKnowledgeBases(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		createOrganization(t, db, "org_1")
		createOrganization(t, db, "org_2")
		base := store.KnowledgeBase{ID: "kb_1", OrgID: "org_1", Name: "Sách", Description: "all", CreatedAt: 5}
		require.NoError(t, db.KnowledgeBases.Create(ctx, "key_1", base))
		base.UpdatedAt = 5
		read, err := db.KnowledgeBases.ByID(ctx, "org_1", "kb_1")
		require.NoError(t, err)
		require.Equal(t, base, read)
		_, err = db.KnowledgeBases.ByID(ctx, "org_2", "kb_1")
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorIs(t, db.KnowledgeBases.Create(ctx, "cli", store.KnowledgeBase{ID: "kb_2", OrgID: "org_1", Name: "Sách"}), store.ErrConflict)
		require.ErrorIs(t, db.KnowledgeBases.Create(ctx, "cli", store.KnowledgeBase{ID: "kb_2", OrgID: "org_0", Name: "x"}), store.ErrNotFound)
		require.NoError(t, db.KnowledgeBases.Create(ctx, "cli", store.KnowledgeBase{ID: "kb_2", OrgID: "org_2", Name: "Sách"}))
		createBase(t, db, "org_1", "kb_3")

		name, description := "name of kb_3", "none"
		require.ErrorIs(t, db.KnowledgeBases.Update(ctx, "cli", "org_1", "kb_1", store.KnowledgeBaseChange{Name: &name}), store.ErrConflict)
		require.ErrorIs(t, db.KnowledgeBases.Update(ctx, "cli", "org_2", "kb_1", store.KnowledgeBaseChange{}), store.ErrNotFound)
		require.NoError(t, db.KnowledgeBases.Update(ctx, "cli", "org_1", "kb_1", store.KnowledgeBaseChange{}))
		read, err = db.KnowledgeBases.ByID(ctx, "org_1", "kb_1")
		require.NoError(t, err)
		require.Equal(t, base, read, "nothing changed")
		require.NoError(t, db.KnowledgeBases.Update(ctx, "cli", "org_1", "kb_1", store.KnowledgeBaseChange{Description: &description}))
		bases, err := db.KnowledgeBases.List(ctx, "org_1", store.Page{})
		require.NoError(t, err)
		require.Len(t, bases, 2)
		require.Equal(t, "Sách", bases[0].Name)
		require.Equal(t, "none", bases[0].Description)
		require.Greater(t, bases[0].UpdatedAt, int64(5))
		bases, err = db.KnowledgeBases.List(ctx, "org_1", store.Page{After: "kb_1", Limit: 1})
		require.NoError(t, err)
		require.Equal(t, "kb_3", bases[0].ID)

		_, err = db.KnowledgeBases.DeleteEmpty(ctx, "cli", "org_2", "kb_1")
		require.ErrorIs(t, err, store.ErrNotFound)
		deleted, err := db.KnowledgeBases.DeleteEmpty(ctx, "cli", "org_1", "kb_1")
		require.NoError(t, err)
		require.True(t, deleted)
		_, err = db.KnowledgeBases.DeleteEmpty(ctx, "cli", "org_1", "kb_1")
		require.ErrorIs(t, err, store.ErrNotFound)
		require.Equal(t, []string{
			"cli organization.create org_1", "cli organization.create org_2", "key_1 knowledge_base.create kb_1", "cli knowledge_base.create kb_2",
			"cli knowledge_base.create kb_3", "cli knowledge_base.update kb_1", "cli knowledge_base.delete kb_1",
		}, actions(t, db))
	})
}

func TestDocumentsAndChunks(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		knowledgeRows(t, db)
		long := make([]string, 130)
		for i := range long {
			long[i] = fmt.Sprintf("w%d", i)
		}
		require.NoError(t, db.Documents.Create(ctx, "cli", document("doc_2", 130), chunks(long[:100]...), -1))
		read, err := db.Documents.ByID(ctx, "org_1", "kb_of_org_1", "doc_2")
		require.NoError(t, err)
		require.Equal(t, store.DocumentIngesting, read.State)
		require.EqualValues(t, 100, read.ChunksDone)
		n, err := db.Documents.ReadyChunks(ctx, "org_1", []string{"kb_of_org_1"})
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "only of what is ready")
		require.NoError(t, db.Documents.AppendChunks(ctx, "org_1", "doc_2", 100, chunks(long[100:]...)))
		n, err = db.Documents.ReadyChunks(ctx, "org_1", []string{"kb_of_org_1", "kb_of_org_2"})
		require.NoError(t, err)
		require.EqualValues(t, 131, n)
		n, err = db.Documents.ReadyChunks(ctx, "org_2", []string{"kb_of_org_1"})
		require.NoError(t, err)
		require.Zero(t, n)

		base, err := db.KnowledgeBases.ByID(ctx, "org_1", "kb_of_org_1")
		require.NoError(t, err)
		require.EqualValues(t, 2, base.Documents)
		require.EqualValues(t, 10, base.Bytes)
		deleted, err := db.KnowledgeBases.DeleteEmpty(ctx, "cli", "org_1", "kb_of_org_1")
		require.NoError(t, err)
		require.False(t, deleted, "it has documents")

		parts := 0
		for gone := false; !gone; parts++ {
			gone, err = db.Documents.DeleteSomeChunks(ctx, "cli", "org_1", "kb_of_org_1", "doc_2")
			require.NoError(t, err)
			if !gone {
				read, err = db.Documents.ByID(ctx, "org_1", "kb_of_org_1", "doc_2")
				require.NoError(t, err)
				require.Equal(t, store.DocumentFailed, read.State)
			}
		}
		require.Equal(t, 3, parts)
		_, err = db.Documents.DeleteSomeChunks(ctx, "cli", "org_1", "kb_of_org_1", "doc_2")
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

func TestFindChunks(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		knowledgeRows(t, db)
		rows := chunks("one", "two", "three", "four")
		rows[1].Words = []string{"two", "shared", "no word", "SHOUT", ""}
		rows[2].Words = []string{"three", "shared"}
		require.NoError(t, db.Documents.Create(ctx, "cli", document("doc_2", 4), rows, -1))
		queries := []store.WordQuery{
			{{"shared"}}, {{"shared", "two"}}, {{"one"}, {"shared", "three"}}, {{"none"}}, {{"one", "two"}}, {{"shout"}}, {{"a"}, {"one"}, {"two"}, {"three"}},
		}
		counts, err := db.Chunks.Count(ctx, queries, 3)
		require.NoError(t, err)
		require.Equal(t, []int64{2, 1, 2, 0, 0, 0, 3}, counts, "at most 3")
		found, err := db.Chunks.Find(ctx, queries, 3)
		require.NoError(t, err)
		for i, seqs := range found {
			require.Len(t, seqs, int(counts[i]))
		}
		for _, bad := range []store.WordQuery{{}, {{}}, {{"a"}, {}}, {{""}}, {{"A"}}, {{"a b"}}, {{`a"`}}, {{`a'`}}, {{"à"}}, {{"a*"}}} {
			_, err := db.Chunks.Count(ctx, []store.WordQuery{bad}, 3)
			require.ErrorContains(t, err, "query 0")
			_, err = db.Chunks.Find(ctx, []store.WordQuery{{{"a"}}, bad}, 3)
			require.ErrorContains(t, err, "query 1")
		}

		read, err := db.Chunks.Read(ctx, "org_1", []string{"kb_of_org_1"}, append(found[0], found[4]...))
		require.NoError(t, err)
		require.Len(t, read, 2)
		require.Equal(t, store.FoundChunk{
			Seq: found[0][0], DocumentID: "doc_2", Document: "name of doc_2", KnowledgeBaseID: "kb_of_org_1", Position: 1, Text: "text of two",
		}, read[0])
		require.NoError(t, db.Documents.Create(ctx, "cli", document("doc_3", 2), chunks("half"), -1))
		half, err := db.Chunks.Find(ctx, []store.WordQuery{{{"half"}}}, 3)
		require.NoError(t, err)
		require.Len(t, half[0], 1)
		read, err = db.Chunks.Read(ctx, "org_1", []string{"kb_of_org_1"}, half[0])
		require.NoError(t, err)
		require.Empty(t, read, "its document isn't ready")
		for _, nobody := range []struct{ org, base string }{{"org_2", "kb_of_org_1"}, {"org_1", "kb_of_org_2"}, {"org_2", "kb_of_org_2"}} {
			read, err = db.Chunks.Read(ctx, nobody.org, []string{nobody.base}, found[0])
			require.NoError(t, err)
			require.Empty(t, read)
		}
	})
}

// The limit of documents holds, whatever the plan.
func TestMaxDocuments(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		knowledgeRows(t, db)
		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(store.MaxDocuments-1, `INSERT INTO documents (id, org_id, knowledge_base_id, name, media_type, bytes, state, chunks_done,
				chunks_total, reason, created_at, updated_at)
				WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
				SELECT CAST(i AS TEXT), 'org_1', 'kb_of_org_1', CAST(i AS TEXT), 'text/plain', 0, 'ready', 0, 0, '', 1, 1 FROM n`,
				store.MaxDocuments-1)
			return nil
		}))
		require.ErrorIs(t, db.Documents.Create(t.Context(), "cli", document("doc_2", 0), nil, -1), store.ErrLimit)
		write(t, db, `DELETE FROM documents WHERE id = '7'`)
		require.NoError(t, db.Documents.Create(t.Context(), "cli", document("doc_2", 0), nil, -1))
	})
}

func TestAgentKnowledge(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		knowledgeRows(t, db)
		createBase(t, db, "org_1", "kb_b")
		createBase(t, db, "org_1", "kb_a")
		agent := store.Agent{ID: "agt_z", OrgID: "org_1", Name: "z", Model: "a/b", KnowledgeBaseIDs: []string{"kb_b", "kb_a", "kb_b"}}
		require.NoError(t, db.Agents.Create(ctx, "cli", agent))
		read, err := db.Agents.ByID(ctx, "org_1", "agt_z")
		require.NoError(t, err)
		require.Equal(t, []string{"kb_a", "kb_b"}, read.KnowledgeBaseIDs)
		agents, err := db.Agents.List(ctx, "org_1", store.Page{})
		require.NoError(t, err)
		require.Len(t, agents, 2)
		require.Equal(t, []string{"kb_of_org_1"}, agents[0].KnowledgeBaseIDs)
		require.Equal(t, []string{"kb_a", "kb_b"}, agents[1].KnowledgeBaseIDs)

		to := func(ids ...string) func(*store.Agent) error {
			return func(agent *store.Agent) error {
				agent.KnowledgeBaseIDs = ids
				return nil
			}
		}
		for _, ids := range [][]string{{"kb_of_org_2"}, {"kb_a", "kb_none"}} {
			require.ErrorIs(t, db.Agents.Update(ctx, "cli", "org_1", "agt_z", to(ids...)), store.ErrKnowledgeBaseNotFound)
			agent.ID, agent.Name, agent.KnowledgeBaseIDs = "agt_y", "y", ids
			require.ErrorIs(t, db.Agents.Create(ctx, "cli", agent), store.ErrKnowledgeBaseNotFound)
		}
		require.NoError(t, db.Agents.Update(ctx, "cli", "org_1", "agt_z", func(agent *store.Agent) error {
			if len(agent.KnowledgeBaseIDs) != 2 {
				return errors.New("the edit doesn't see what is known")
			}
			agent.KnowledgeBaseIDs = []string{"kb_b", "kb_of_org_1"}
			return nil
		}))
		deleted, err := db.KnowledgeBases.DeleteEmpty(ctx, "cli", "org_1", "kb_b")
		require.NoError(t, err)
		require.True(t, deleted)
		read, err = db.Agents.ByID(ctx, "org_1", "agt_z")
		require.NoError(t, err)
		require.Equal(t, []string{"kb_of_org_1"}, read.KnowledgeBaseIDs)
		require.NoError(t, db.Agents.Update(ctx, "cli", "org_1", "agt_z", to()))
		require.NoError(t, db.Agents.Delete(ctx, "cli", "org_1", "agt_of_org_1"))
		agents, err = db.Agents.List(ctx, "org_1", store.Page{})
		require.NoError(t, err)
		require.Len(t, agents, 1)
		require.Empty(t, agents[0].KnowledgeBaseIDs)
	})
}

func TestOwnerOfKnowledge(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	knowledgeRows(t, db)
	for kind, id := range map[store.OwnedKind]string{store.OwnedKnowledgeBases: "kb_of_org_1", store.OwnedDocuments: "doc_1"} {
		owner, err := db.OwnerOf(t.Context(), kind, id)
		require.NoError(t, err)
		require.Equal(t, "org_1", owner)
	}
}
