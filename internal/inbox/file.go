package inbox

import (
	"context"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/media"
)

// SendFile stores a file of 1 to [media.MaxBytes] bytes, queues it as a message that a member of the organization sends to a customer, and
// returns the message as it is listed. key is that of [Queue.SendKeyed], nil for none: its repetition sends nothing. Errors are those of
// [Queue.SendKeyed], [media.ErrFull], [media.ErrBusy], and [ErrInvalid] for a file of another size.
func (q *Queue) SendFile(
	ctx context.Context, actor, orgID, conversationID string, file *media.Upload, key *SendKey,
) (sent []Message, replayed bool, err error) {
	if len(file.Content) == 0 || len(file.Content) > media.MaxBytes {
		return nil, false, fmt.Errorf("send a file: %w: it has %d bytes", ErrInvalid, len(file.Content))
	}
	kept, err := q.files.Keep(ctx, orgID, file)
	if err != nil {
		return nil, false, err
	}
	op := humanOp{ownOp: ownOp{actor: actor, orgID: orgID, id: conversationID}, parts: q.sealParts(orgID, []string{file.Kind})}
	op.parts[0].fileID = kept.ID
	sent, replayed, err = q.sendAsHuman(ctx, op, key)
	if err == nil && !replayed {
		sent[0].Files = []media.File{kept}
	}
	return sent, replayed, err
}
