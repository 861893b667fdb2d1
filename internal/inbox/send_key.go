package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// sendKeyLife is how long a [SendKey] counts.
const sendKeyLife = 24 * time.Hour

// ErrKeyReused means that the key was used with other content within the last 24 hours. The first request keeps it.
var ErrKeyReused = errors.New("inbox: the key was used with other content")

// SendKey makes the repetition of a person's message harmless: within an organization and 24 hours, messages with equal keys and
// fingerprints are one.
type SendKey struct {
	// Hash is the SHA-256 of the client's key, Fingerprint that of what is sent and where.
	Hash, Fingerprint [sha256.Size]byte
}

// SendKeyed is [Queue.SendAsHuman] with a key. When the same was sent under the key before, it sends nothing and returns those messages
// as they are now; replayed says so. It also returns [ErrKeyReused].
func (q *Queue) SendKeyed(
	ctx context.Context, actor, orgID, conversationID string, parts []string, key SendKey,
) (sent []Message, replayed bool, err error) {
	if len(parts) == 0 {
		return nil, false, fmt.Errorf("send a message: %w: it has no parts", ErrInvalid)
	}
	return q.sendAsHuman(ctx, humanOp{
		ownOp: ownOp{actor: actor, orgID: orgID, id: conversationID}, parts: q.sealParts(orgID, parts),
	}, &key)
}

// sendAsHuman sends a person's message unless its key was used; nil is none.
func (q *Queue) sendAsHuman(ctx context.Context, human humanOp, key *SendKey) (sent []Message, replayed bool, err error) {
	if key == nil {
		if err := q.do(ctx, "send a message", &human); err != nil {
			return nil, false, err
		}
		return human.messages(), false, nil
	}
	op := &keyedOp{humanOp: human, key: *key}
	for range enqueueTries { // another process may use the key at this moment
		if err = q.do(ctx, "send a message", op); !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	switch {
	case err != nil:
		return nil, false, err
	case len(op.before) == 0:
		return op.messages(), false, nil
	}
	sent, err = q.sentMessages(ctx, human.orgID, op.before)
	return sent, true, err
}

// SentUnder returns the messages that [Queue.SendKeyed] would return without sending anything, none when the key wasn't used. It
// returns [ErrKeyReused] or a wrapped error of the store.
func (q *Queue) SentUnder(ctx context.Context, orgID string, key SendKey) ([]Message, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for a message's key: %w", err)
	}
	used, err := store.ReadRows(ctx, q.db, "look for a message's key", func(row store.Row) (used keyUse, err error) {
		return used, used.scan(row)
	}, selectKey, orgID, key.Hash[:], now-sendKeyLife.Milliseconds())
	if err != nil || len(used) == 0 {
		return nil, err
	}
	if used[0].fingerprint != key.Fingerprint {
		return nil, ErrKeyReused
	}
	return q.sentMessages(ctx, orgID, used[0].messageIDs)
}

var selectSentMessages = listSizes.Statement(`SELECT `+outboundColumns+` WHERE org_id = $1 AND id IN {list}`, 1, 1)

// sentMessages reads outgoing messages in the order of their ids.
func (q *Queue) sentMessages(ctx context.Context, orgID string, ids []string) ([]Message, error) {
	if _, err := q.loadIDs(ctx, false); err != nil {
		return nil, err
	}
	var sent []placedMessage
	err := store.EachPadded(listSizes, ids, func(size int, piece []string) error {
		read, err := store.ReadRows(ctx, q.db, "read sent messages", q.scanMessage(vault.OutboundBody),
			selectSentMessages[size], store.Arguments(piece, any(orgID))...)
		sent = append(sent, read...)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(sent, placedMessage.before)
	return q.withFiles(ctx, orgID, messages(sent))
}

const selectKey = `SELECT fingerprint, message_ids FROM message_keys WHERE org_id = $1 AND key_hash = $2 AND created_at > $3`

// keyUse is what was sent under a key.
type keyUse struct {
	fingerprint [sha256.Size]byte
	messageIDs  []string
}

func (u *keyUse) scan(row store.Row) error {
	var fingerprint []byte
	var ids string
	if err := row.Scan(&fingerprint, &ids); err != nil {
		return err
	}
	u.messageIDs = strings.Fields(ids)
	if copy(u.fingerprint[:], fingerprint) != sha256.Size {
		return errors.New("a message's key has a damaged fingerprint")
	}
	return nil
}

// keyedOp sends a person's message unless its key was used.
type keyedOp struct {
	humanOp

	key    SendKey
	before []string // the ids of the messages that were sent under the key
}

func (op *keyedOp) run(ctx context.Context, s *session) error {
	op.before = nil
	if op.own(s) == nil {
		return nil
	}
	expired := s.now - sendKeyLife.Milliseconds()
	var used []keyUse
	err := s.tx.Query(ctx, func(row store.Row) error {
		used = append(used, keyUse{})
		return used[len(used)-1].scan(row)
	}, selectKey, op.orgID, op.key.Hash[:], expired)
	switch {
	case err != nil:
		return fmt.Errorf("look for a message's key: %w", err)
	case len(used) > 0 && used[0].fingerprint != op.key.Fingerprint:
		op.refused = ErrKeyReused
		return nil
	case len(used) > 0:
		op.before = used[0].messageIDs
		return nil
	}
	if err := op.humanOp.run(ctx, s); err != nil || op.refused != nil {
		return err
	}
	ids := make([]string, len(op.parts))
	for i, part := range op.parts {
		ids[i] = part.id
	}
	s.tx.Queue(store.AnyRows, `DELETE FROM message_keys WHERE org_id = $1 AND key_hash = $2 AND created_at <= $3`,
		op.orgID, op.key.Hash[:], expired)
	s.tx.Queue(store.AnyRows, `INSERT INTO message_keys (org_id, key_hash, fingerprint, message_ids, created_at)
		VALUES ($1, $2, $3, $4, $5)`, op.orgID, op.key.Hash[:], op.key.Fingerprint[:], strings.Join(ids, " "), s.now)
	return nil
}
