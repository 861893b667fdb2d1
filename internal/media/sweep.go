package media

import (
	"context"
	"fmt"
	"sync"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// sweepPage is how many files one read of a sweep covers.
const sweepPage = 50

// sweeping lets a process sweep once at a time: a worker has two reasons to, and two sweeps would delete the same files.
var sweeping sync.Mutex

// Sweep deletes the files whose messages were deleted, or never came, in small transactions. Any number of processes may sweep at once. The
// error ends the sweep; what was deleted stays deleted.
func Sweep(ctx context.Context, db *store.DB) (deleted int, err error) {
	sweeping.Lock()
	defer sweeping.Unlock()
	for {
		ids, err := store.ReadRows(ctx, db, "look for files of deleted messages", store.ScanValue[string],
			`SELECT id FROM media WHERE message_id IS NULL ORDER BY position LIMIT $1`, sweepPage)
		if err != nil {
			return deleted, fmt.Errorf("delete files: %w", err)
		}
		for _, id := range ids {
			if err := remove(ctx, db, id); err != nil {
				return deleted, fmt.Errorf("delete a file: %w", err)
			}
			deleted++
		}
		if len(ids) < sweepPage {
			sent, err := sweepSent(ctx, db)
			return deleted + sent, err
		}
	}
}

// remove deletes a file without a message: its pieces, some in each transaction, and with the last of them the row.
func remove(ctx context.Context, db *store.DB, id string) error {
	for pieces := clearedPieces; pieces == clearedPieces; {
		err := db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
			pieces = 0
			owner, err := store.QueryValues[string](ctx, tx, `SELECT org_id FROM media WHERE id = $1 AND message_id IS NULL`+tx.LockRows(), id)
			if err != nil || len(owner) == 0 {
				return err // another process was faster
			}
			pieces, err = deletePieces(ctx, tx, owner[0], id)
			if err == nil && pieces < clearedPieces {
				makeRoom(tx, "media", id)
				tx.Queue(store.AnyRows, `DELETE FROM media WHERE id = $1`, id)
			}
			return err
		})
		if err != nil {
			return err
		}
		if pieces == clearedPieces {
			failpoint.Hit(failpoint.AfterSweptPieces)
		}
	}
	return nil
}
