package knowledge

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// long is a text of n+1 chunks, with "needle" in the last.
func long(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "Paragraph %d. %s\n\n", i, strings.Repeat("some words of it ", 57))
	}
	return text.String() + "The needle is at the end."
}

func upload(name, content string) Upload {
	return Upload{OrgID: acme, KnowledgeBaseID: shop, Name: name, MediaType: PlainText, Content: content}
}

// stored counts the chunks in the database.
func stored(t *testing.T, l *Library) (n int) {
	t.Helper()
	require.NoError(t, l.db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM chunks`).Scan(&n))
	return n
}

// indexedRows counts the rows that a word finds in the index, whatever became of their chunks.
func indexedRows(t *testing.T, l *Library, folded string) int64 {
	t.Helper()
	counts, err := l.db.Chunks.Count(t.Context(), []store.WordQuery{inAnyBase([]string{shop}, folded)}, 1_000_000)
	require.NoError(t, err)
	return counts[0]
}

// A document goes in batch by batch, is found when it is complete, and leaves nothing behind.
func TestLongDocument(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		document, err := l.Ingest(t.Context(), "key_1", upload("long", long(60)), -1)
		require.NoError(t, err)
		require.EqualValues(t, 61, document.ChunksTotal)
		require.EqualValues(t, len(long(60)), document.Bytes)
		l.running.Wait()
		document, err = l.Document(t.Context(), acme, shop, document.ID)
		require.NoError(t, err)
		require.Equal(t, store.DocumentReady, document.State)
		require.EqualValues(t, 61, document.ChunksDone)
		require.Equal(t, 61, stored(t, l))
		snippets, err := l.Search(t.Context(), acme, []string{shop}, "needle", 3)
		require.NoError(t, err)
		require.Len(t, snippets, 1)
		require.EqualValues(t, 60, snippets[0].Position)

		base, err := l.db.KnowledgeBases.ByID(t.Context(), acme, shop)
		require.NoError(t, err)
		require.EqualValues(t, 1, base.Documents)
		require.Equal(t, document.Bytes, base.Bytes)

		require.ErrorIs(t, l.DeleteDocument(t.Context(), "cli", other, shop, document.ID), store.ErrNotFound)
		require.ErrorIs(t, l.DeleteDocument(t.Context(), "cli", acme, staff, document.ID), store.ErrNotFound)
		require.NoError(t, l.DeleteDocument(t.Context(), "cli", acme, shop, document.ID))
		require.ErrorIs(t, l.DeleteDocument(t.Context(), "cli", acme, shop, document.ID), store.ErrNotFound)
		require.Zero(t, stored(t, l))
		require.Zero(t, indexedRows(t, l, "needle"))
		require.Zero(t, indexedRows(t, l, "words"))
		_, err = l.Document(t.Context(), acme, shop, document.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

func TestRefusedUploads(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		add(t, l, acme, shop, "a", PlainText, "x")
		for name, c := range map[string]struct {
			upload Upload
			limit  int64
			want   error
		}{
			"no text":        {upload("b", " \n\x00!?"), -1, ErrNoText},
			"too large":      {upload("b", strings.Repeat("a", MaxDocumentBytes+1)), -1, ErrTooLarge},
			"media type":     {Upload{OrgID: acme, KnowledgeBaseID: shop, Name: "b", MediaType: "application/pdf", Content: "x"}, -1, ErrMediaType},
			"the same name":  {upload("a", "y"), -1, store.ErrConflict},
			"another's base": {Upload{OrgID: acme, KnowledgeBaseID: alien, Name: "b", MediaType: PlainText, Content: "x"}, -1, store.ErrNotFound},
			"no base":        {Upload{OrgID: acme, KnowledgeBaseID: "kb_none", Name: "b", MediaType: PlainText, Content: long(20)}, -1, store.ErrNotFound},
			"above the plan": {upload("b", "12345"), 5, store.ErrLimit},
			"a plan of none": {upload("b", "1"), 0, store.ErrLimit},
		} {
			_, err := l.Ingest(t.Context(), "test", c.upload, c.limit)
			require.ErrorIs(t, err, c.want, name)
		}
		require.Equal(t, 1, stored(t, l))
		_, err := l.Ingest(t.Context(), "test", upload("b", "12345"), 6)
		require.NoError(t, err, "exactly the plan")
		require.NoError(t, l.Close(t.Context()))
		_, err = l.Ingest(t.Context(), "test", upload("c", long(20)), -1)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// However many come at once, through however many processes, the plan holds.
func TestPlanLimitAtOnce(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, engine)
			nodes := []*Library{library(t, storetest.OpenAt(t, location, store.Options{}))}
			for range 3 {
				nodes = append(nodes, New(storetest.OpenAt(t, location, store.Options{}), nil))
			}
			const n = 100
			errs := make(chan error, n)
			begin := make(chan struct{})
			for i := range n {
				go func() {
					<-begin
					errs <- storetest.Insist(func() error {
						_, err := nodes[i%len(nodes)].Ingest(context.Background(), "test", upload(fmt.Sprint(i), "1234567890"), 55)
						return err
					})
				}()
			}
			close(begin)
			taken := 0
			for range n {
				if err := <-errs; err != nil {
					require.ErrorIs(t, err, store.ErrLimit)
					continue
				}
				taken++
			}
			require.Equal(t, 5, taken)
		})
	}
}

// An interrupted ingestion says so, and its document is not found.
func TestInterruptedByClose(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		l.slot <- struct{}{} // the ingestion can't end before the library is closed
		document, err := l.Ingest(t.Context(), "test", upload("long", long(600)), -1)
		require.NoError(t, err)
		require.Equal(t, store.DocumentIngesting, document.State)
		require.NoError(t, l.Close(t.Context()))
		<-l.slot
		document, err = l.Document(t.Context(), acme, shop, document.ID)
		require.NoError(t, err)
		require.Equal(t, store.DocumentFailed, document.State)
		require.Equal(t, reasonInterrupted, document.Reason)
		require.Less(t, document.ChunksDone, document.ChunksTotal)
		snippets, err := l.Search(t.Context(), acme, []string{shop}, "words", 3)
		require.NoError(t, err)
		require.Empty(t, snippets)
		next := New(l.db, nil)
		require.NoError(t, next.DeleteBase(t.Context(), "test", acme, shop))
		require.Zero(t, stored(t, l))
	})
}

// A process that died in the middle left a row behind, which no process writes any more.
func TestInterruptedByACrash(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		row := store.Document{ID: "doc_1", OrgID: acme, KnowledgeBaseID: shop, Name: "half", MediaType: "text/plain", Bytes: 9, ChunksTotal: 3}
		half, err := (&Upload{KnowledgeBaseID: shop, MediaType: PlainText, Content: "needle"}).chunks(func() error { return nil })
		require.NoError(t, err)
		require.NoError(t, l.db.Documents.Create(t.Context(), "test", row, half, -1))

		document, err := l.Document(t.Context(), acme, shop, "doc_1")
		require.NoError(t, err)
		require.Equal(t, store.DocumentIngesting, document.State, "it may still be written")
		require.EqualValues(t, 1, document.ChunksDone)
		l.now = func() time.Time { return time.Now().Add(interruptedAfter + time.Second) }
		documents, err := l.Documents(t.Context(), acme, shop, store.Page{})
		require.NoError(t, err)
		require.Len(t, documents, 1)
		require.Equal(t, store.DocumentFailed, documents[0].State)
		require.Equal(t, reasonInterrupted, documents[0].Reason)
		snippets, err := l.Search(t.Context(), acme, []string{shop}, "needle", 3)
		require.NoError(t, err)
		require.Empty(t, snippets)
		require.NoError(t, l.DeleteDocument(t.Context(), "test", acme, shop, "doc_1"))
		require.Zero(t, stored(t, l))
	})
}

// batches counts the operations of the writer's transactions.
type batches struct {
	mu   sync.Mutex
	most int
	all  int
}

func (b *batches) ObserveBatch(batch store.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most = max(b.most, batch.Operations)
	b.all++
}

// Documents that are ingested and deleted at once share one place in the writer, and no one may take all of them.
func TestOneBatchAtATime(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			seen := &batches{}
			l := library(t, storetest.OpenAt(t, storetest.Location(t, engine), store.Options{Observer: seen}))
			l.slot <- struct{}{} // no ingestion can end before all have begun
			for i := range maxIngestionsPerOrg {
				_, err := l.Ingest(t.Context(), "test", upload(fmt.Sprint(i), long(200)), -1)
				require.NoError(t, err)
			}
			_, err := l.Ingest(t.Context(), "test", upload("more", long(20)), -1)
			require.ErrorIs(t, err, ErrBusy)
			_, err = l.Ingest(t.Context(), "test", upload("small", "a small one"), -1)
			require.NoError(t, err, "a small one needs no place")
			_, err = l.Ingest(t.Context(), "test", Upload{
				OrgID: other, KnowledgeBaseID: alien, Name: "theirs", MediaType: PlainText, Content: long(20),
			}, -1)
			require.NoError(t, err)
			seen.mu.Lock()
			seen.most, seen.all = 0, 0
			seen.mu.Unlock()
			<-l.slot
			l.running.Wait()
			documents, err := l.Documents(t.Context(), acme, shop, store.Page{})
			require.NoError(t, err)
			require.Len(t, documents, maxIngestionsPerOrg+1)
			var deletions sync.WaitGroup
			for _, document := range documents {
				require.Equal(t, store.DocumentReady, document.State)
				deletions.Go(func() { l.DeleteDocument(context.Background(), "test", acme, shop, document.ID) })
			}
			deletions.Wait()
			seen.mu.Lock()
			defer seen.mu.Unlock()
			require.Equal(t, 1, seen.most)
			require.GreaterOrEqual(t, seen.all, maxIngestionsPerOrg*200/deletedAtOnce)
		})
	}
}

// deletedAtOnce is what the store deletes in a transaction.
const deletedAtOnce = 50

// A document that is deleted while it is ingested is gone for good.
func TestDeletedWhileIngested(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		document, err := l.Ingest(t.Context(), "test", upload("long", long(600)), -1)
		require.NoError(t, err)
		require.NoError(t, l.DeleteDocument(t.Context(), "test", acme, shop, document.ID))
		l.running.Wait()
		require.Zero(t, stored(t, l))
		documents, err := l.Documents(t.Context(), acme, shop, store.Page{})
		require.NoError(t, err)
		require.Empty(t, documents)
	})
}

// A batch whose commit was lost sight of is not written twice.
func TestBatchWrittenTwice(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		chunks, err := (&Upload{KnowledgeBaseID: shop, MediaType: PlainText, Content: long(3)}).chunks(func() error { return nil })
		require.NoError(t, err)
		row := store.Document{ID: "doc_1", OrgID: acme, KnowledgeBaseID: shop, Name: "a", MediaType: "text/plain", ChunksTotal: 4}
		require.NoError(t, l.db.Documents.Create(t.Context(), "test", row, chunks[:1], -1))
		for range 2 {
			require.NoError(t, l.db.Documents.AppendChunks(t.Context(), acme, "doc_1", 1, chunks[1:3]))
		}
		require.ErrorIs(t, l.db.Documents.AppendChunks(t.Context(), acme, "doc_1", 0, chunks[:1]), store.ErrNotFound)
		require.ErrorIs(t, l.db.Documents.AppendChunks(t.Context(), other, "doc_1", 3, chunks[3:]), store.ErrNotFound)
		for range 2 {
			require.NoError(t, l.db.Documents.AppendChunks(t.Context(), acme, "doc_1", 3, chunks[3:]))
		}
		require.NoError(t, l.db.Documents.Fail(t.Context(), acme, "doc_1", "late"))
		document, err := l.Document(t.Context(), acme, shop, "doc_1")
		require.NoError(t, err)
		require.Equal(t, store.DocumentReady, document.State)
		require.Equal(t, 4, stored(t, l))
	})
}

func TestDeleteBase(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		for i := range 5 {
			add(t, l, acme, shop, fmt.Sprint(i), PlainText, long(i*10))
		}
		add(t, l, acme, staff, "stays", PlainText, "stays")
		require.ErrorIs(t, l.DeleteBase(t.Context(), "test", other, shop), store.ErrNotFound)
		require.NoError(t, l.DeleteBase(t.Context(), "test", acme, shop))
		require.ErrorIs(t, l.DeleteBase(t.Context(), "test", acme, shop), store.ErrNotFound)
		require.Equal(t, 1, stored(t, l))
	})
}

// The store's end ends an ingestion, and the document isn't ready.
func TestStoreGoneWhileIngesting(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.SQLite)
	db := storetest.OpenAt(t, location, store.Options{})
	l := library(t, db)
	l.slot <- struct{}{} // the ingestion can't end before the store is closed
	document, err := l.Ingest(t.Context(), "test", upload("long", long(600)), -1)
	require.NoError(t, err)
	require.NoError(t, db.Close(t.Context()))
	<-l.slot
	require.NoError(t, l.Close(t.Context()))
	again := New(storetest.OpenAt(t, location, store.Options{}), nil)
	document, err = again.Document(t.Context(), acme, shop, document.ID)
	require.NoError(t, err)
	require.NotEqual(t, store.DocumentReady, document.State)
}
