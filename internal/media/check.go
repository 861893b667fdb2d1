package media

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

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
	now, err := db.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("check the files: %w", err)
	}
	from := func(string) string { return "" }
	if since > 0 {
		from = func(prefix string) string { return store.FirstID(prefix, since) }
	}
	findings, err = store.ReadFindings(ctx, db, "media", from("med"), checkPage, selectBroken, now-lateWaiting)
	var sent, left []store.Finding
	if err == nil {
		sent, err = store.ReadFindings(ctx, db, "sent_files", from("fil"), checkPage, selectBrokenSent)
	}
	if err == nil {
		left, err = unswept(ctx, db)
		findings = append(append(findings, sent...), left...)
	}
	if err != nil {
		return nil, fmt.Errorf("check the files: %w", err)
	}
	return findings, nil
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
	if err != nil {
		return deleted, fmt.Errorf("delete files: %w", err)
	}
	return deleted, nil
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
