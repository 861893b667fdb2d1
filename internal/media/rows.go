package media

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

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

const (
	// checkPage is how many files one read of a check covers.
	checkPage = 500
	// lateWaiting is for how long a file may wait, in milliseconds: longer than it is tried.
	lateWaiting = 8 * 24 * 60 * 60 * 1000
	// sweepLooks and sweepPause are for how long a check waits until the files of deleted messages are swept.
	sweepLooks = 15
	sweepPause = time.Second
)

// selectBroken selects the files of a page that break an invariant, of which a piece has Overhead bytes more than it is long.
var selectBroken = `SELECT f.id, CASE
		WHEN f.state = 'stored' AND (p.n <> f.pieces OR p.last <> f.pieces - 1 OR p.bytes <> f.bytes)
			THEN 'is stored with ' || f.pieces || ' pieces of ' || f.bytes || ' bytes, and has ' || p.n || ' of ' || p.bytes
		WHEN f.state = 'failed' AND p.n > 0 THEN 'has failed, and has ' || p.n || ' pieces'
		WHEN f.state = 'waiting' AND f.created_at < $3 THEN 'waits for more than eight days'
		ELSE 'belongs to a message of another organization' END
	FROM media f JOIN (
		SELECT f.id, count(p.media_id) AS n, COALESCE(max(p.position), -1) AS last,
			CAST(COALESCE(sum(length(p.body) - ` + strconv.Itoa(vault.Overhead) + `), 0) AS BIGINT) AS bytes
		FROM media f LEFT JOIN media_pieces p ON p.org_id = f.org_id AND p.media_id = f.id WHERE f.id > $1 AND f.id <= $2 GROUP BY f.id
	) AS p ON p.id = f.id
	LEFT JOIN messages m ON m.id = f.message_id
	WHERE f.message_id IS NOT NULL AND (
		f.state = 'stored' AND (p.n <> f.pieces OR p.last <> f.pieces - 1 OR p.bytes <> f.bytes)
		OR f.state = 'failed' AND p.n > 0 OR f.state = 'waiting' AND f.created_at < $3 OR m.org_id <> f.org_id)
	ORDER BY f.id`

// CheckSince looks for files that break an invariant: a stored or sent one has all of its pieces, a failed one none, none waits for longer than
// it is tried, and none outlives its message except for some seconds, for which CheckSince waits. It checks files that came from a moment on, in
// epoch milliseconds, and files without a message. 0 means all files. It writes nothing. The error is one of reading.
func CheckSince(ctx context.Context, db *store.DB, since int64) (findings []store.Finding, err error) {
	from := func(string) string { return "" }
	if since > 0 {
		from = func(prefix string) string { return store.FirstID(prefix, since) }
	}
	now, err := db.Now(ctx)
	if err == nil {
		findings, err = store.ReadFindings(ctx, db, "media", from("med"), checkPage, selectBroken, now-lateWaiting)
	}
	var sent, left []store.Finding
	if err == nil {
		sent, err = store.ReadFindings(ctx, db, "sent_files", from("fil"), checkPage, selectBrokenSent)
	}
	if err == nil {
		left, err = unswept(ctx, db)
		findings = append(append(findings, sent...), left...)
	}
	return findings, store.Wrap("check the files", err)
}

// selectBrokenSent selects the sent files of a page that break an invariant.
var selectBrokenSent = `SELECT f.id, CASE WHEN m.org_id <> f.org_id OR m.file_id IS NULL OR m.file_id <> f.id
			THEN 'belongs to a message that is not its own'
		ELSE 'was sent with ' || f.pieces || ' pieces of ' || f.bytes || ' bytes, and has ' || p.n || ' of ' || p.bytes END
	FROM sent_files f JOIN outbound_messages m ON m.id = f.outbound_id JOIN (
		SELECT f.id, count(p.file_id) AS n, COALESCE(max(p.position), -1) AS last,
			CAST(COALESCE(sum(length(p.body) - ` + strconv.Itoa(vault.Overhead) + `), 0) AS BIGINT) AS bytes
		FROM sent_files f LEFT JOIN sent_file_pieces p ON p.org_id = f.org_id AND p.file_id = f.id WHERE f.id > $1 AND f.id <= $2 GROUP BY f.id
	) AS p ON p.id = f.id
	WHERE p.n <> f.pieces OR p.last <> f.pieces - 1 OR p.bytes <> f.bytes OR m.org_id <> f.org_id OR m.file_id IS NULL OR m.file_id <> f.id
	ORDER BY f.id`

// unswept returns files without a message, if they aren't deleted while it waits.
func unswept(ctx context.Context, db *store.DB) (left []store.Finding, err error) {
	for look := range sweepLooks {
		if look > 0 {
			_ = repeat.Pause(ctx, sweepPause)
		}
		var now int64
		if now, err = db.Now(ctx); err != nil {
			return nil, err
		}
		left, err = store.ReadRows(ctx, db, "look for files of deleted messages", store.ScanFinding,
			`SELECT id, 'is left of a deleted message' FROM media WHERE message_id IS NULL
				UNION ALL SELECT id, 'is left of a deleted message' FROM sent_files WHERE outbound_id IS NULL AND expires_at <= $1 LIMIT $2`,
			now, store.MostFindings)
		if err != nil || len(left) == 0 {
			break
		}
	}
	return left, err
}

// sweepPage is how many files one read of a sweep covers.
const sweepPage = 50

// sweeping lets a process sweep once at a time: a worker has two reasons to, and two sweeps would delete the same files.
var sweeping sync.Mutex

// files are the files of one direction: the table of their rows, that of their pieces with its column of the file's id, the condition on
// files without a message, and the statement that reads some files to be deleted.
type files struct{ table, pieces, id, left, sweepable string }

var (
	// receivedFiles are the files of customers. They are deleted when their message is.
	receivedFiles = files{
		"media", "media_pieces", "media_id", "message_id IS NULL",
		`SELECT id FROM media WHERE message_id IS NULL ORDER BY position LIMIT $1`,
	}
	// sentFiles are the files of people. They are also deleted if their message never came.
	sentFiles = files{
		"sent_files", "sent_file_pieces", "file_id", "outbound_id IS NULL",
		`SELECT id FROM sent_files WHERE outbound_id IS NULL AND expires_at <= $2 ORDER BY id LIMIT $1`,
	}
)

// Sweep deletes the files of messages that were deleted or never came, in small transactions. Any number of processes may sweep at the same
// time. The error ends the sweep; deleted rows stay deleted.
func Sweep(ctx context.Context, db *store.DB) (deleted int, err error) {
	sweeping.Lock()
	defer sweeping.Unlock()
	now, err := db.Now(ctx)
	if err == nil {
		deleted, err = receivedFiles.sweep(ctx, db, sweepPage)
	}
	others := 0
	if err == nil {
		others, err = sentFiles.sweep(ctx, db, sweepPage, now)
	}
	deleted += others
	return deleted, store.Wrap("delete files", err)
}

// sweep deletes the files that sweepable reads with the arguments, some at a time.
func (f files) sweep(ctx context.Context, db *store.DB, arguments ...any) (deleted int, err error) {
	for {
		ids, err := store.ReadRows(ctx, db, "look for files of deleted messages", store.ScanValue[string], f.sweepable, arguments...)
		if err != nil {
			return deleted, err
		}
		for _, id := range ids {
			if err := f.remove(ctx, db, id); err != nil {
				return deleted, err
			}
			deleted++
		}
		if len(ids) < sweepPage {
			return deleted, nil
		}
	}
}

// remove deletes a file without a message: its pieces, some in each transaction, and with the last of them the row.
func (f files) remove(ctx context.Context, db *store.DB, id string) error {
	for pieces := clearedPieces; pieces == clearedPieces; {
		err := db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
			pieces = 0
			owner, err := store.QueryValues[string](ctx, tx, `SELECT org_id FROM `+f.table+` WHERE id = $1 AND `+f.left+tx.LockRows(), id)
			if err != nil || len(owner) == 0 {
				return err // another process was faster
			}
			pieces, err = f.deletePieces(ctx, tx, owner[0], id)
			if err == nil && pieces < clearedPieces {
				makeRoom(tx, f.table, id)
				tx.Queue(store.AnyRows, `DELETE FROM `+f.table+` WHERE id = $1`, id)
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

// deletePieces deletes some pieces of a file and returns how many.
func (f files) deletePieces(ctx context.Context, tx store.Tx, orgID, id string) (deleted int, err error) {
	of := f.pieces + ` WHERE org_id = $1 AND ` + f.id + ` = $2`
	positions, err := store.QueryValues[int64](ctx, tx, `DELETE FROM `+of+` AND position IN (
		SELECT position FROM `+of+` ORDER BY position LIMIT $3) RETURNING position`, orgID, id, clearedPieces)
	return len(positions), err
}
