package knowledge

import (
	"context"
	"errors"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// DeleteDocument deletes a document, or returns [store.ErrNotFound]. A large one takes many small transactions: from the first
// one on searches don't find it, and the deletion goes on when ctx ends. When it fails later, or the library is closed, the
// document remains as failed until it is deleted again.
func (l *Library) DeleteDocument(ctx context.Context, actor, orgID, baseID, id string) error {
	some := func(ctx context.Context) (gone bool, err error) {
		err = l.paced(ctx, func() (err error) {
			gone, err = l.db.Documents.DeleteSomeChunks(ctx, actor, orgID, baseID, id)
			return err
		})
		return gone, err
	}
	gone, err := some(ctx)
	ctx = context.WithoutCancel(ctx)
	for err == nil && !gone {
		if l.life.Err() != nil {
			return ErrClosed
		}
		gone, err = some(ctx)
	}
	return err
}

// deletePage is how many documents of a base are read at a time for deletion.
const deletePage = 100

// DeleteBase deletes a knowledge base with its documents and detaches it from its agents, or returns [store.ErrNotFound]. A
// large one takes many small transactions, the last of which deletes the base: when ctx ends before, or the library is closed,
// the rest remains until it is deleted again.
func (l *Library) DeleteBase(ctx context.Context, actor, orgID, id string) error {
	for {
		deleted, err := l.db.KnowledgeBases.DeleteEmpty(ctx, actor, orgID, id)
		if err != nil || deleted {
			return err
		}
		documents, err := l.db.Documents.List(ctx, orgID, id, store.Page{Limit: deletePage})
		if err != nil {
			return err
		}
		for i := range documents {
			err := l.DeleteDocument(ctx, actor, orgID, id, documents[i].ID)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
	}
}
