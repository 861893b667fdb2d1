package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// MaxBytes bounds a file.
	MaxBytes = 8 << 20
	// PieceBytes is the size of each piece but the last.
	PieceBytes = 256 << 10
	// OrgBytes bounds the stored files of an organization, except files that are stored at the same moment.
	OrgBytes = 1 << 30
	// customerShare is which part of an organization's bytes one customer may have: the oldest files make room for newer ones of the same
	// customer, so that none fills the space of all others.
	customerShare = 8
	// LeastBytes is as how many a smaller file counts, so that an organization can't have any number of them.
	LeastBytes = 64 << 10
)

// States of a file.
const (
	Waiting = "waiting" // to be fetched
	Stored  = "stored"
	Failed  = "failed" // it is not fetched any more; its code says why
)

// Codes of failed files. CodeStorageFull is also that of files that wait for room.
const (
	CodeTooLarge    = "media_too_large"    // it has more than [MaxBytes]
	CodeType        = "media_type"         // what came is no file of its kind
	CodeExpired     = "media_expired"      // the platform has no such file any more
	CodeRefused     = "media_refused"      // its address is none that may be called
	CodeUnavailable = "media_unavailable"  // it could not be fetched for too long
	CodeStorageFull = "media_storage_full" // the organization has [OrgBytes]
	CodeReplaced    = "media_replaced"     // it was stored, and made room for a newer one of the same customer
)

// Row is the row of a file that arrives.
type Row struct {
	id, kind string
	about    []byte // sealed
}

// about is the sealed data of a file besides its pieces.
type about struct {
	// Reference is empty when the file is no longer fetched.
	Reference string `json:"reference,omitempty"`
	Name      string `json:"name,omitempty"`
}

func (a about) seal(ring *vault.Ring, orgID, id string) []byte {
	plain, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("media: texts can't be written as JSON: %v", err))
	}
	return ring.Seal(plain, vault.MediaAbout(orgID, id))
}

func openAbout(ring *vault.Ring, orgID, id string, sealed []byte) (a about, err error) {
	plain, err := ring.Open(sealed, vault.MediaAbout(orgID, id))
	if err == nil {
		err = json.Unmarshal(plain, &a)
	}
	return a, err
}

// Rows seals the references of a message's files.
func Rows(ring *vault.Ring, orgID string, references []platforms.Attachment) []Row {
	rows := make([]Row, 0, len(references))
	for _, r := range references {
		id := store.NewID("med")
		rows = append(rows, Row{id: id, kind: r.Kind, about: about{r.Reference, r.Name}.seal(ring, orgID, id)})
	}
	return rows
}

// Queue writes the rows of a message's files, to be fetched immediately, in the transaction that writes the message.
func Queue(tx store.Tx, orgID, channelID, conversationID, messageID string, rows []Row) {
	for i := range rows {
		tx.Queue(store.AnyRows, `INSERT INTO media (id, org_id, channel_id, message_id, position, kind, state, code, about, media_type, bytes,
				pieces, attempts, run_at, created_at, updated_at, conversation_id)
			VALUES ($1, $2, $3, $4, $5, $6, 'waiting', '', $7, '', 0, 0, 0, $8, $8, $8, $9)`,
			rows[i].id, orgID, channelID, messageID, int64(i), rows[i].kind, rows[i].about, tx.Now(), conversationID)
	}
}

// Drop removes the files from a message when its text is deleted, as the deletion of the message would.
func Drop(tx store.Tx, messageID string) {
	tx.Queue(store.AnyRows, `UPDATE media SET message_id = NULL WHERE message_id = $1`, messageID)
}

// File is a file of a message. One that a person sent is always stored. Its tags are for the export of a conversation, which has no content.
type File struct {
	ID        string `json:"id"`
	MessageID string `json:"-"`
	Kind      string `json:"kind"`               // image, audio, video, sticker or file
	State     string `json:"state"`              // [Waiting], [Stored] or [Failed]
	Code      string `json:"code,omitzero"`      // of a failed one, or [CodeStorageFull] of one that waits for room; "" for others
	Name      string `json:"name,omitzero"`      // "" if it has none, or it doesn't open
	MediaType string `json:"mediaType,omitzero"` // of a stored one: by its content, application/octet-stream if that says nothing
	Bytes     int64  `json:"bytes,omitzero"`     // of a stored one

	orgID  string
	pieces int64
	sent   bool // a person sent it
}

const fileColumns = `SELECT f.id, f.org_id, f.message_id, f.kind, f.state, f.code, f.about, f.media_type, f.bytes, f.pieces FROM media f`

func scanFile(ring *vault.Ring) func(store.Row) (File, error) {
	return func(row store.Row) (f File, err error) {
		var sealed []byte
		if err = row.Scan(&f.ID, &f.orgID, &f.MessageID, &f.Kind, &f.State, &f.Code, &sealed, &f.MediaType, &f.Bytes, &f.pieces); err != nil {
			return f, err
		}
		if a, err := openAbout(ring, f.orgID, f.ID, sealed); err == nil {
			f.Name = a.Name
		}
		return f, nil
	}
}

var (
	listSizes     = store.ListSizes{100, 10, 1}
	filesOfEither = listSizes.Statement(fileColumns+` WHERE f.message_id IN {list} AND f.org_id = $1 ORDER BY f.message_id, f.position`, 1, 1)
)

// OfMessages returns the files of an organization's messages, by the messages' ids, each message's in order.
func OfMessages(ctx context.Context, db *store.DB, ring *vault.Ring, orgID string, messageIDs []string) (map[string][]File, error) {
	return ofEither(ctx, db, scanFile(ring), filesOfEither, orgID, messageIDs)
}

func ofEither(
	ctx context.Context, db *store.DB, scan func(store.Row) (File, error), texts store.ListStatement, orgID string, messageIDs []string,
) (map[string][]File, error) {
	files := map[string][]File{}
	err := store.EachPadded(listSizes, messageIDs, func(size int, piece []string) error {
		found, err := store.ReadRows(ctx, db, "list files", scan, texts[size], store.Arguments(piece, any(orgID))...)
		for i := range found {
			files[found[i].MessageID] = append(files[found[i].MessageID], found[i])
		}
		return err
	})
	return files, err
}

// Find reads a file of an organization's conversation, or [store.ErrNotFound].
func Find(ctx context.Context, db *store.DB, ring *vault.Ring, orgID, conversationID, id string) (File, error) {
	f, err := store.ReadRow(ctx, db, "read a file", scanFile(ring),
		fileColumns+` JOIN messages m ON m.id = f.message_id WHERE f.id = $1 AND f.org_id = $2 AND m.conversation_id = $3`,
		id, orgID, conversationID)
	if errors.Is(err, store.ErrNotFound) {
		return store.ReadRow(ctx, db, "read a sent file", scanSent(ring),
			sentColumns+` JOIN outbound_messages m ON m.id = f.outbound_id WHERE f.id = $1 AND f.org_id = $2 AND m.conversation_id = $3`,
			id, orgID, conversationID)
	}
	return f, err
}

// WriteTo writes the content of a stored file, piece by piece. The error is [store.ErrNotFound] if the file was deleted since, one of the
// store or the vault, or of w, which may have got a part.
func (f *File) WriteTo(ctx context.Context, db *store.DB, ring *vault.Ring, w io.Writer) error {
	text, aad := `SELECT body FROM media_pieces WHERE org_id = $1 AND media_id = $2 AND position = $3`, vault.MediaPiece
	if f.sent {
		text, aad = `SELECT body FROM sent_file_pieces WHERE org_id = $1 AND file_id = $2 AND position = $3`, vault.SentFilePiece
	}
	for position := range f.pieces {
		sealed, err := store.ReadRow(ctx, db, "read a piece of a file", store.ScanValue[[]byte], text, f.orgID, f.ID, position)
		if err != nil {
			return err
		}
		plain, err := ring.Open(sealed, aad(f.orgID, f.ID, position))
		if err != nil {
			return fmt.Errorf("open piece %d of file %s: %w", position, f.ID, err)
		}
		if _, err := w.Write(plain); err != nil {
			return fmt.Errorf("write a file: %w", err)
		}
	}
	return nil
}
