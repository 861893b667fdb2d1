package knowledge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// batchChunks is the number of chunks of one transaction, which lasts about 5 ms.
	batchChunks = 12
	// batchTries is how often a batch is tried before its document fails; the pause before the second try is firstRetry, then
	// doubles, with jitter.
	batchTries = 5
	firstRetry = time.Second
	// maxReadTime bounds the time for which an upload is parsed, without the pauses in which others are.
	maxReadTime = 5 * time.Second
	// failWait bounds the write that marks a document as failed.
	failWait = 5 * time.Second
	// interruptedAfter is how long after its last write an ingesting document counts as interrupted, because its process has
	// ended. It is longer than all tries of a batch.
	interruptedAfter = 2 * time.Minute
)

// Reasons of failed documents.
const (
	reasonInterrupted = "The service stopped while the document was being ingested. Delete it and upload it again."
	reasonStore       = "The service could not store the whole document. Delete it and upload it again."
)

// Ingest stores an upload and returns its document. A small document is ready; the rest of a large one is written in the background, and
// [Library.Document] shows the progress. limit is the number of bytes of the organization's plan; below 0 means unlimited.
//
// Errors: [ErrMediaType], [ErrTooLarge], [ErrNoText], [ErrSlow], [ErrBusy], [ErrClosed], and the errors of [store.Documents.Create]. After
// an error nothing is stored.
func (l *Library) Ingest(ctx context.Context, actor string, upload Upload, limit int64) (store.Document, error) {
	if limit >= 0 && int64(len(upload.Content)) > limit {
		return store.Document{}, store.ErrLimit
	}
	chunks, err := l.read(ctx, &upload)
	if err != nil {
		return store.Document{}, err
	}
	document := store.Document{
		ID: store.NewID("doc"), OrgID: upload.OrgID, KnowledgeBaseID: upload.KnowledgeBaseID, Name: upload.Name,
		MediaType: string(upload.MediaType), Bytes: int64(len(upload.Content)), ChunksTotal: int64(len(chunks)),
	}
	first, rest := chunks[:min(batchChunks, len(chunks))], chunks[min(batchChunks, len(chunks)):]
	leave := func() {}
	if len(rest) > 0 {
		if leave, err = l.enter(upload.OrgID); err != nil {
			return store.Document{}, err
		}
	}
	if err := l.db.Documents.Create(ctx, actor, document, first, limit); err != nil {
		leave()
		return store.Document{}, err
	}
	if len(rest) > 0 {
		go func() {
			defer leave()
			l.ingest(document.OrgID, document.ID, int64(len(first)), rest)
		}()
	}
	return l.Document(ctx, document.OrgID, document.KnowledgeBaseID, document.ID)
}

// read parses an upload into chunks when it is its organization's turn. It ends soon after ctx. Parsing gives way to other organizations'
// uploads, and ends with [ErrSlow] after readTime.
func (l *Library) read(ctx context.Context, upload *Upload) ([]store.Chunk, error) {
	if err := l.readers.Enter(ctx, upload.OrgID); err != nil {
		return nil, busy(err)
	}
	reading := true
	defer func() {
		if reading {
			l.readers.Leave(upload.OrgID)
		}
	}()
	var taken time.Duration
	began := time.Now()
	return upload.chunks(func() error {
		if taken += time.Since(began); taken > l.readTime {
			return ErrSlow
		}
		err := l.readers.Pass(ctx, upload.OrgID)
		reading = err == nil
		began = time.Now()
		return err
	})
}

// busy returns ErrBusy for a line that is full, and other errors as they are.
func busy(err error) error {
	if errors.Is(err, dispatch.ErrBusy) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// ingest writes the chunks from a position on.
func (l *Library) ingest(orgID, id string, from int64, chunks []store.Chunk) {
	for len(chunks) > 0 {
		batch := chunks[:min(batchChunks, len(chunks))]
		err := l.write(orgID, id, from, batch)
		switch {
		case errors.Is(err, store.ErrNotFound): // deleted meanwhile
			return
		case err != nil:
			l.fail(orgID, id, err)
			return
		}
		from += int64(len(batch))
		chunks = chunks[len(batch):]
	}
}

// write writes one batch, and tries again when the store fails.
func (l *Library) write(orgID, id string, from int64, batch []store.Chunk) (err error) {
	wait := firstRetry
	for range batchTries {
		err = l.paced(l.life, func() error { return l.db.Documents.AppendChunks(l.life, orgID, id, from, batch) })
		if err == nil || errors.Is(err, store.ErrNotFound) || l.life.Err() != nil {
			return err
		}
		_ = repeat.Pause(l.life, wait/2+repeat.Jitter(wait/2))
		wait *= 2
	}
	return err
}

// fail marks a document as failed. When that can't be written either, the document soon counts as interrupted.
func (l *Library) fail(orgID, id string, cause error) {
	reason := reasonStore
	if l.life.Err() != nil {
		reason = reasonInterrupted
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.life), failWait)
	defer cancel()
	err := l.db.Documents.Fail(ctx, orgID, id, reason)
	l.logger.WarnContext(ctx, "a document was not ingested", "document", id, "cause", cause, "error", err)
}

// Document reads a document of an organization's knowledge base, or [store.ErrNotFound].
func (l *Library) Document(ctx context.Context, orgID, baseID, id string) (store.Document, error) {
	document, err := l.db.Documents.ByID(ctx, orgID, baseID, id)
	l.noteInterruption(&document)
	return document, err
}

// Documents reads a page of the documents of an organization's knowledge base, oldest first.
func (l *Library) Documents(ctx context.Context, orgID, baseID string, page store.Page) ([]store.Document, error) {
	documents, err := l.db.Documents.List(ctx, orgID, baseID, page)
	for i := range documents {
		l.noteInterruption(&documents[i])
	}
	return documents, err
}

// noteInterruption returns a document as failed if the process of its ingestion has ended. The row stays unchanged, because searches find
// only ready documents.
func (l *Library) noteInterruption(document *store.Document) {
	if document.State == store.DocumentIngesting && l.now().UnixMilli()-document.UpdatedAt > interruptedAfter.Milliseconds() {
		document.State, document.Reason = store.DocumentFailed, reasonInterrupted
	}
}
