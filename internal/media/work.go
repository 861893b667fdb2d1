package media

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// errLost: another process tries the file, or its message was deleted.
var errLost = errors.New("media: the file is another process's, or its message was deleted")

// clearedPieces is how many pieces one transaction deletes.
const clearedPieces = 8

// try is a file that this process fetches.
type try struct {
	id, orgID, channelID string
	conversationID       string
	kind                 string
	about                []byte // sealed
	attempts             int64  // this one included
	leasedAt             int64  // with attempts it fences off older tries: after one that doesn't count the next has its number
	createdAt            int64  // epoch milliseconds, as leasedAt
	needs                int64  // for how many bytes it looked for room last
}

var waiting = store.NewDueWork("look for files to fetch", "media", "state = 'waiting'")

// lease leases up to a number of files of an organization to be fetched now. Other processes leave them alone for life milliseconds.
func lease(ctx context.Context, db *store.DB, orgID string, atMost int, life int64) ([]try, error) {
	return store.LeaseDue(ctx, db, waiting, `SELECT id, org_id, channel_id, conversation_id, kind, about, attempts, created_at FROM media`,
		orgID, atMost, func(row store.Row) (t try, err error) {
			err = row.Scan(&t.id, &t.orgID, &t.channelID, &t.conversationID, &t.kind, &t.about, &t.attempts, &t.createdAt)
			return t, err
		}, func(tx store.Tx, t *try) {
			t.attempts++
			t.leasedAt = tx.Now()
			tx.Queue(1, `UPDATE media SET attempts = $2, run_at = $3, updated_at = $4, code = '' WHERE id = $1`,
				t.id, t.attempts, tx.Now()+life, tx.Now())
		})
}

// exec writes to the file's row under a lock. It returns errLost if a newer try owns the file. It skips a locked row instead of waiting,
// because the lock's holder may be waiting for this transaction.
func (t *try) exec(ctx context.Context, db *store.DB, write func(ctx context.Context, tx store.Tx) error) error {
	return db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		current, err := store.Changed(ctx, tx, `SELECT id FROM media
			WHERE id = $1 AND attempts = $2 AND updated_at = $3 AND state = 'waiting' AND message_id IS NOT NULL`+store.SkipLocked(tx),
			t.id, t.attempts, t.leasedAt)
		switch {
		case err != nil:
			return err
		case !current:
			return errLost
		}
		return write(ctx, tx)
	})
}

// clear deletes the pieces that a try before has left.
func (t *try) clear(ctx context.Context, db *store.DB) error {
	for deleted := clearedPieces; deleted == clearedPieces; {
		err := t.exec(ctx, db, func(ctx context.Context, tx store.Tx) (err error) {
			deleted, err = receivedFiles.deletePieces(ctx, tx, t.orgID, t.id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// add stores a piece.
func (t *try) add(ctx context.Context, db *store.DB, ring *vault.Ring, position int64, plain []byte) error {
	sealed := ring.Seal(plain, vault.MediaPiece(t.orgID, t.id, position))
	err := t.exec(ctx, db, func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, `INSERT INTO media_pieces (org_id, media_id, position, body) VALUES ($1, $2, $3, $4)`,
			t.orgID, t.id, position, sealed)
		return nil
	})
	if err == nil {
		failpoint.Hit(failpoint.AfterPiece)
	}
	return err
}

// selectStored sums up the space of an organization's files, see [counted]. [LeastBytes] bounds how many rows it reads.
var selectStored = `SELECT CAST(COALESCE(sum(CASE WHEN bytes < ` + least + ` THEN ` + least + ` ELSE bytes END), 0) AS BIGINT)
	FROM (SELECT bytes FROM media WHERE org_id = $1 AND state = 'stored' UNION ALL SELECT bytes FROM sent_files WHERE org_id = $1) AS files`

// spaceOf returns the space of an organization's files.
func spaceOf(ctx context.Context, tx store.Tx, orgID string) (stored int64, err error) {
	err = tx.Query(ctx, func(row store.Row) error { return row.Scan(&stored) }, selectStored, orgID)
	return stored, err
}

// selectCustomers sums up the space of a customer's stored files.
var selectCustomers = `SELECT CAST(COALESCE(sum(CASE WHEN bytes < ` + least + ` THEN ` + least + ` ELSE bytes END), 0) AS BIGINT)
	FROM media WHERE conversation_id = $1 AND state = 'stored' AND message_id IS NOT NULL`

var least = strconv.Itoa(LeastBytes)

// counted returns how many bytes of its organization's space a file needs.
func counted(bytes int64) int64 { return max(bytes, LeastBytes) }

// replace deletes the oldest stored files of the try's customer until a new one of the given size is within the customer's share of limit,
// a few in each transaction. In the conversation a failed file with [CodeReplaced] replaces each; the sweep deletes the content.
func (t *try) replace(ctx context.Context, db *store.DB, ring *vault.Ring, bytes, limit int64) error {
	for {
		stored, err := store.ReadRow(ctx, db, "sum up a customer's files", store.ScanValue[int64], selectCustomers, t.conversationID)
		if err != nil {
			return err
		}
		over := stored + counted(bytes) - limit/customerShare
		if over <= 0 || stored == 0 {
			return nil
		}
		if err := db.Exec(ctx, func(ctx context.Context, tx store.Tx) error { return t.replaceSome(ctx, tx, ring, over) }); err != nil {
			return err
		}
	}
}

// replaceSome replaces the oldest stored files of the customer, of over bytes together or a little more. A file that another process has
// replaced or lost its message since ends the transaction.
func (t *try) replaceSome(ctx context.Context, tx store.Tx, ring *vault.Ring, over int64) error {
	type old struct {
		id    string
		about []byte
	}
	var oldest []old
	err := tx.Query(ctx, func(row store.Row) error {
		var o old
		var bytes int64
		err := row.Scan(&o.id, &o.about, &bytes)
		if over > 0 {
			oldest = append(oldest, o)
		}
		over -= counted(bytes)
		return err
	}, `SELECT id, about, bytes FROM media WHERE conversation_id = $1 AND state = 'stored' AND message_id IS NOT NULL
		ORDER BY created_at, id LIMIT $2`, t.conversationID, clearedPieces)
	for _, o := range oldest {
		a, unopened := openAbout(ring, t.orgID, o.id, o.about)
		if unopened != nil {
			a = about{} // its name is lost
		}
		id := store.NewID("med")
		tx.Queue(1, `INSERT INTO media (id, org_id, channel_id, message_id, position, kind, state, code, about, media_type, bytes,
				pieces, attempts, run_at, created_at, updated_at, conversation_id)
			SELECT $2, org_id, channel_id, message_id, position, kind, 'failed', $3, $4, '', 0, 0, attempts, run_at, created_at, $5, conversation_id
			FROM media WHERE id = $1`, o.id, id, CodeReplaced, about{Name: a.Name}.seal(ring, t.orgID, id), tx.Now())
	}
	for _, o := range oldest { // the messages are locked first, as their deletion does
		tx.Queue(1, `UPDATE media SET message_id = NULL, updated_at = $2 WHERE id = $1 AND message_id IS NOT NULL`, o.id, tx.Now())
	}
	return err
}

// finish makes the file stored, or fails with ErrFull.
func (t *try) finish(ctx context.Context, db *store.DB, about []byte, mediaType string, bytes, pieces, limit int64) error {
	err := t.exec(ctx, db, func(ctx context.Context, tx store.Tx) error {
		stored, err := spaceOf(ctx, tx, t.orgID)
		if err != nil {
			return err
		}
		if t.needs = counted(bytes); stored+t.needs > limit {
			return ErrFull
		}
		tx.Queue(1, `UPDATE media SET state = 'stored', about = $2, media_type = $3, bytes = $4, pieces = $5, updated_at = $6 WHERE id = $1`,
			t.id, about, mediaType, bytes, pieces, tx.Now())
		if failpoint.Enabled() {
			if err := tx.Flush(ctx); err != nil {
				return err
			}
			failpoint.Hit(failpoint.BeforeFileCommit)
		}
		return nil
	})
	if err == nil {
		failpoint.Hit(failpoint.AfterFileCommit)
	}
	return err
}

// fail ends the file, of which no piece is left.
func (t *try) fail(ctx context.Context, db *store.DB, about []byte, code string) error {
	return t.exec(ctx, db, func(_ context.Context, tx store.Tx) error {
		tx.Queue(1, `UPDATE media SET state = 'failed', code = $2, about = $3, updated_at = $4 WHERE id = $1`, t.id, code, about, tx.Now())
		return nil
	})
}

// awaitRoom lets the file, of which no piece is left, be tried again when files are deleted, or after fullPause; immediately if files were
// deleted since it found no room, which woke only files that waited already. The try doesn't count.
func (t *try) awaitRoom(ctx context.Context, db *store.DB, limit int64) error {
	return t.exec(ctx, db, func(ctx context.Context, tx store.Tx) error {
		stored, err := spaceOf(ctx, tx, t.orgID)
		if err != nil {
			return err
		}
		wait := repeat.Around(fullPause).Milliseconds()
		if stored+t.needs <= limit {
			wait = 0
		}
		tx.Queue(1, `UPDATE media SET attempts = $2, run_at = $3, updated_at = $4, code = $5 WHERE id = $1`,
			t.id, t.attempts-1, tx.Now()+wait, tx.Now(), CodeStorageFull)
		return nil
	})
}

// awaitingRoom selects the oldest files of an organization that wait for room and aren't due yet. No process has one of them: a lease
// clears the code. {file} is the table of a deleted file with the id $1.
const awaitingRoom = `SELECT id FROM media WHERE org_id = (SELECT org_id FROM {file} WHERE id = $1) AND state = 'waiting'
	AND code = '` + CodeStorageFull + `' AND run_at > $2 ORDER BY run_at LIMIT $3`

// makeRoom has some files tried again that wait for room, because the file of a table is about to be deleted.
func makeRoom(tx store.Tx, table, id string) {
	waiting := strings.Replace(awaitingRoom, "{file}", table, 1) + store.SkipLocked(tx)
	tx.Queue(store.AnyRows, `UPDATE media SET run_at = $2 WHERE id IN (`+waiting+`)`, id, tx.Now(), clearedPieces)
}

// renew keeps other processes away for another life milliseconds.
func (t *try) renew(ctx context.Context, db *store.DB, life int64) error {
	return t.exec(ctx, db, func(_ context.Context, tx store.Tx) error {
		tx.Queue(1, `UPDATE media SET run_at = $2 WHERE id = $1`, t.id, tx.Now()+life)
		return nil
	})
}

// again lets the file be tried again after wait milliseconds. counted is whether the try that ends counts.
func (t *try) again(ctx context.Context, db *store.DB, wait int64, counted bool) error {
	attempts := t.attempts
	if !counted {
		attempts--
	}
	return t.exec(ctx, db, func(_ context.Context, tx store.Tx) error {
		tx.Queue(1, `UPDATE media SET attempts = $2, run_at = $3, updated_at = $4 WHERE id = $1`, t.id, attempts, tx.Now()+wait, tx.Now())
		return nil
	})
}
