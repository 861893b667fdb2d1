package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

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
			return k.db.Exec(ctx, func(_ context.Context, tx store.Tx) error {
				tx.Queue(1, `INSERT INTO sent_file_pieces (org_id, file_id, position, body) VALUES ($1, $2, $3, $4)`, orgID, f.ID, position, sealed)
				return nil
			})
		})
	}
	if err != nil {
		return File{}, fmt.Errorf("store a file: %w", err)
	}
	return f, nil
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

const sentColumns = `SELECT f.id, f.org_id, coalesce(f.outbound_id, ''), f.kind, f.name, f.media_type, f.bytes, f.pieces FROM sent_files f`

func scanSent(ring *vault.Ring) func(store.Row) (File, error) {
	return func(row store.Row) (f File, err error) {
		var name []byte
		f.sent, f.State = true, Stored
		if err = row.Scan(&f.ID, &f.orgID, &f.MessageID, &f.Kind, &name, &f.MediaType, &f.Bytes, &f.pieces); err != nil {
			return f, err
		}
		if opened, err := ring.Open(name, vault.SentFileName(f.orgID, f.ID)); err == nil {
			f.Name = string(opened)
		}
		return f, nil
	}
}

var sentOfEither = listSizes.Statement(sentColumns+` WHERE f.outbound_id IN {list} AND f.org_id = $1`, 1, 1)

// OfSent returns the files of an organization's outgoing messages, by the messages' ids.
func OfSent(ctx context.Context, db *store.DB, ring *vault.Ring, orgID string, outboundIDs []string) (map[string][]File, error) {
	return ofEither(ctx, db, scanSent(ring), sentOfEither, orgID, outboundIDs)
}

// ToSend reads a whole file that is sent now. The error is [store.ErrNotFound], one of the store, or of the vault.
func ToSend(ctx context.Context, db *store.DB, ring *vault.Ring, orgID, id string) (platforms.File, error) {
	f, err := store.ReadRow(ctx, db, "read a file to send", scanSent(ring), sentColumns+` WHERE f.id = $1 AND f.org_id = $2`, id, orgID)
	if err != nil {
		return platforms.File{}, err
	}
	content := bytes.NewBuffer(make([]byte, 0, f.Bytes))
	if err := f.WriteTo(ctx, db, ring, content); err != nil {
		return platforms.File{}, err
	}
	return platforms.File{Kind: f.Kind, Name: f.Name, MediaType: f.MediaType, Content: content.Bytes()}, nil
}
