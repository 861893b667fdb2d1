package media

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
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

// The columns of files that customers sent, and of files that people sent, read alike.
const (
	fileColumns = `SELECT f.id, f.org_id, f.message_id, f.kind, f.state, f.code, f.about, f.media_type, f.bytes, f.pieces FROM media f`
	sentColumns = `SELECT f.id, f.org_id, coalesce(f.outbound_id, ''), f.kind, 'stored', '', f.name, f.media_type, f.bytes, f.pieces
		FROM sent_files f`
)

// scanFile scans fileColumns, or sentColumns if sent.
func scanFile(ring *vault.Ring, sent bool) func(store.Row) (File, error) {
	return func(row store.Row) (f File, err error) {
		var sealed []byte
		f.sent = sent
		if err = row.Scan(&f.ID, &f.orgID, &f.MessageID, &f.Kind, &f.State, &f.Code, &sealed, &f.MediaType, &f.Bytes, &f.pieces); err != nil {
			return f, err
		}
		if !sent {
			if a, err := openAbout(ring, f.orgID, f.ID, sealed); err == nil {
				f.Name = a.Name
			}
		} else if name, err := ring.Open(sealed, vault.SentFileName(f.orgID, f.ID)); err == nil {
			f.Name = string(name)
		}
		return f, nil
	}
}

var (
	listSizes      = store.ListSizes{100, 10, 1}
	filesOfMessage = listSizes.Statement(fileColumns+` WHERE f.message_id IN {list} AND f.org_id = $1 ORDER BY f.message_id, f.position`, 1, 1)
	sentOfMessage  = listSizes.Statement(sentColumns+` WHERE f.outbound_id IN {list} AND f.org_id = $1`, 1, 1)
)

// OfMessages returns the files of an organization's messages that came from customers, and of messages that people sent, by the messages' ids,
// each message's in order.
func OfMessages(ctx context.Context, db *store.DB, ring *vault.Ring, orgID string, came, sent []string) (map[string][]File, error) {
	files := map[string][]File{}
	read := func(scan func(store.Row) (File, error), texts store.ListStatement, messageIDs []string) error {
		return store.EachPadded(listSizes, messageIDs, func(size int, piece []string) error {
			found, err := store.ReadRows(ctx, db, "list files", scan, texts[size], store.Arguments(piece, any(orgID))...)
			for i := range found {
				files[found[i].MessageID] = append(files[found[i].MessageID], found[i])
			}
			return err
		})
	}
	err := read(scanFile(ring, false), filesOfMessage, came)
	if err == nil {
		err = read(scanFile(ring, true), sentOfMessage, sent)
	}
	return files, err
}

// Find reads a file of an organization's conversation, or [store.ErrNotFound].
func Find(ctx context.Context, db *store.DB, ring *vault.Ring, orgID, conversationID, id string) (File, error) {
	f, err := store.ReadRow(ctx, db, "read a file", scanFile(ring, false),
		fileColumns+` JOIN messages m ON m.id = f.message_id WHERE f.id = $1 AND f.org_id = $2 AND m.conversation_id = $3`,
		id, orgID, conversationID)
	if errors.Is(err, store.ErrNotFound) {
		return store.ReadRow(ctx, db, "read a sent file", scanFile(ring, true),
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

// keptFor is for how long a file may wait for its message, in milliseconds: it is stored within seconds.
const keptFor = 10 * 60 * 1000

// ErrFull means that the organization has [OrgBytes].
var ErrFull = errors.New("media: the organization's files have too many bytes")

// ErrBusy means that the organization, or the process, is storing as many files as it may at a time. It passes within seconds.
var ErrBusy = errors.New("media: too many files are being stored")

// Keeper stores the files that people send: in a process [places] at a time, and [orgPlaces] of one organization.
type Keeper struct {
	db   *store.DB
	ring *vault.Ring
	// pieces spaces the writes of pieces: 8 MiB in one transaction would delay settlements and messages.
	pieces dispatch.Slot
	// turns bounds the files that are stored at a time. None waits.
	turns *dispatch.Turns
}

// NewKeeper returns a keeper of one database.
func NewKeeper(db *store.DB, ring *vault.Ring) *Keeper {
	turns := dispatch.NewTurns(dispatch.Bounds{Places: places, Each: orgPlaces})
	return &Keeper{db: db, ring: ring, pieces: make(dispatch.Slot, 1), turns: turns}
}

// Upload is a file that a person sends, as [Describe] has recognized it.
type Upload struct {
	Name, Kind, MediaType string
	Content               []byte
}

// Describe recognizes a file by its content. Its name becomes one without path and control characters, with an extension if the type has one.
func Describe(name string, content []byte) Upload {
	mediaType, err := typeOf("file", content[:min(len(content), sniffedBytes)])
	if err != nil {
		mediaType = unknownType
	}
	kind := platforms.FileOther
	switch family, _, _ := strings.Cut(mediaType, "/"); family {
	case "image", "audio", "video":
		kind = family
	}
	return Upload{Name: fileName(name, kind, mediaType), Kind: kind, MediaType: mediaType, Content: content}
}

// extensions are the file name extensions of known types.
var extensions = map[string]string{
	"image/jpeg": ".jpg", "image/png": ".png", "image/gif": ".gif", "image/webp": ".webp", "audio/ogg": ".ogg", "audio/mpeg": ".mp3",
	"audio/wav": ".wav", "video/mp4": ".mp4", "video/webm": ".webm", "application/pdf": ".pdf",
}

// fileName returns the last element of a name as a receiver may store it.
func fileName(name, kind, mediaType string) string {
	name = strings.ToValidUTF8(name, "")
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, name)
	name = strings.Trim(name, " .")
	for len(name) > platforms.MaxName-len(".webp") {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	if name == "" {
		name = kind
	}
	if !strings.Contains(name, ".") {
		name += extensions[mediaType]
	}
	return name
}

// Keep stores a file that a person sends, piece by piece, and returns it. It has no message yet: [Attach] gives it one, within ten minutes. The
// error is [ErrFull], [ErrBusy], or one of the store.
func (k *Keeper) Keep(ctx context.Context, orgID string, u *Upload) (File, error) {
	if k.turns.Enter(ctx, orgID) != nil {
		return File{}, ErrBusy
	}
	defer k.turns.Leave(orgID)
	f := File{
		ID: store.NewID("fil"), Kind: u.Kind, State: Stored, Name: u.Name, MediaType: u.MediaType, Bytes: int64(len(u.Content)),
		orgID: orgID, pieces: int64((len(u.Content) + PieceBytes - 1) / PieceBytes), sent: true,
	}
	err := k.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		stored, err := spaceOf(ctx, tx, orgID)
		if err != nil {
			return err
		}
		if stored+counted(f.Bytes) > OrgBytes {
			return ErrFull
		}
		tx.Queue(1, `INSERT INTO sent_files (id, org_id, outbound_id, kind, name, media_type, bytes, pieces, expires_at, created_at)
			VALUES ($1, $2, NULL, $3, $4, $5, $6, $7, $8, $9)`, f.ID, orgID, f.Kind, k.ring.Seal([]byte(f.Name), vault.SentFileName(orgID, f.ID)),
			f.MediaType, f.Bytes, f.pieces, tx.Now()+keptFor, tx.Now())
		return nil
	})
	for position := int64(0); err == nil && position < f.pieces; position++ {
		begin := position * PieceBytes
		sealed := k.ring.Seal(u.Content[begin:min(begin+PieceBytes, f.Bytes)], vault.SentFilePiece(orgID, f.ID, position))
		err = k.pieces.Write(ctx, longestPace, func() error {
			return k.db.ExecQueued(ctx, func(tx store.Tx) {
				tx.Queue(1, `INSERT INTO sent_file_pieces (org_id, file_id, position, body) VALUES ($1, $2, $3, $4)`, orgID, f.ID, position, sealed)
			})
		})
	}
	return f, store.Wrap("store a file", err)
}

// Attach gives a file to its message, which the transaction has written. The transaction fails when the file is gone.
func Attach(tx store.Tx, orgID, id, outboundID string) {
	tx.Queue(1, `UPDATE sent_files SET outbound_id = $3, expires_at = 0 WHERE id = $1 AND org_id = $2 AND outbound_id IS NULL`,
		id, orgID, outboundID)
}

// DropSent removes the file from a message when its content is deleted, as the deletion of the message would.
func DropSent(tx store.Tx, outboundID string) {
	tx.Queue(store.AnyRows, `UPDATE sent_files SET outbound_id = NULL WHERE outbound_id = $1`, outboundID)
}

// ToSend reads a whole file that is sent now. The error is [store.ErrNotFound], one of the store, or of the vault.
func ToSend(ctx context.Context, db *store.DB, ring *vault.Ring, orgID, id string) (platforms.File, error) {
	f, err := store.ReadRow(ctx, db, "read a file to send", scanFile(ring, true), sentColumns+` WHERE f.id = $1 AND f.org_id = $2`, id, orgID)
	if err != nil {
		return platforms.File{}, err
	}
	content := bytes.NewBuffer(make([]byte, 0, f.Bytes))
	if err := f.WriteTo(ctx, db, ring, content); err != nil {
		return platforms.File{}, err
	}
	return platforms.File{Kind: f.Kind, Name: f.Name, MediaType: f.MediaType, Content: content.Bytes()}, nil
}
