package inbox

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// codeNotice is the code of answered turns whose answer is the channel's notice for messages without text.
const codeNotice = "media_notice"

// noticePause is for how long a customer who got the notice isn't sent it again.
const noticePause = 15 * time.Minute

// SayNotice ends the wait of a leased conversation's messages without text. The parts are the channel's notice for such messages: they are
// stored as pending messages of the assistant and returned. If the customer got a notice within the last 15 minutes, nothing is sent and the
// messages stand with [codes.Media]. Without parts nothing is sent. When another message has arrived meanwhile, all go on waiting. It returns
// [ErrHandedOver], [ErrLeaseLost], or a wrapped error of the store.
func (q *Queue) SayNotice(ctx context.Context, lease Lease, messageIDs, parts []string) ([]Outbound, error) {
	op := &noticeOp{
		leased: leased{lease: lease}, turnID: store.NewID("trn"), messageIDs: messageIDs, parts: q.sealParts(lease.OrgID, parts),
	}
	if err := q.do(ctx, "send a notice", op); err != nil {
		return nil, err
	}
	if !op.said {
		return nil, nil
	}
	return assistantParts(op.turnID, op.parts, op.at), nil
}

type noticeOp struct {
	leased

	turnID     string
	messageIDs []string
	parts      []outboundPart

	open   []string
	dead   bool  // another turn is dead
	before int64 // when the last notice was made, 0 for never
	said   bool
	at     int64
}

// Both look at the conversation's turns only, of which there are few.
const (
	selectDeadTurn = `SELECT id FROM turns WHERE conversation_id = $1 AND state = 'dead' LIMIT 1`
	selectNotice   = `SELECT created_at FROM turns WHERE conversation_id = $1 AND code = '` + codeNotice + `' ORDER BY id DESC LIMIT 1`
)

func (op *noticeOp) read(s *session) {
	op.dead, op.before = false, 0
	queueOpenTexts(s.tx, op.conversation(), &op.open)
	s.tx.QueueQuery(func(store.Row) error {
		op.dead = true
		return nil
	}, selectDeadTurn, op.conversation())
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.before) }, selectNotice, op.conversation())
}

func (op *noticeOp) run(_ context.Context, s *session) error {
	op.said = false
	c := op.holder(s)
	switch {
	case c == nil:
		return nil
	case c.silent(s.now):
		op.refused = ErrHandedOver
		return nil
	case len(op.open) != len(op.messageIDs) || slices.ContainsFunc(op.messageIDs, func(id string) bool { return !slices.Contains(op.open, id) }):
		return nil
	case len(op.parts) > 0 && op.before+noticePause.Milliseconds() > s.now:
		s.standOpen(c, op.turnID, codes.Media)
		return nil
	}
	turnID := sql.NullString{}
	if len(op.parts) > 0 {
		op.said = true
		turnID = sql.NullString{String: op.turnID, Valid: true}
		s.tx.Queue(1, insertTurn, op.turnID, c.orgID, c.key.channelID, c.id, "", TurnAnswered, []byte(nil), codeNotice, sql.NullInt64{},
			s.now, s.now, "")
		op.at = s.queueParts(c, turnID, AuthorAssistant, op.parts)
	}
	store.EachExact(listSizes, op.messageIDs, func(size int, piece []string) {
		s.tx.Queue(int64(len(piece)), settleMessages[size], store.Arguments(piece, turnID)...)
	})
	if !op.said && c.people.unansweredSince >= c.waitingSince.Int64 { // the wait began with them
		c.people.unansweredSince = 0
	}
	c.waitingSince, c.people.attentionTold = sql.NullInt64{}, ""
	if !op.dead {
		c.stands("")
	}
	c.touch(s.now)
	return nil
}

var settleMessages = listSizes.Statement(`UPDATE messages SET handled = TRUE, turn_id = $1 WHERE id IN {list}`, 1, 1)

// endMedia ends the attention and the standing turn of messages without text, because a person has answered.
func (s *session) endMedia(c *conversationRow) {
	if c.attention != codes.Media {
		return
	}
	c.stands("")
	s.tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE WHERE turn_id IN (
		SELECT id FROM turns WHERE conversation_id = $1 AND state = 'needs_attention' AND code = $2)`, c.id, codes.Media)
	s.tx.Queue(store.AnyRows, `UPDATE turns SET state = 'discarded', code = $2, updated_at = $3
		WHERE conversation_id = $1 AND state = 'needs_attention' AND code = $4`, c.id, codeHandedOver, s.now, codes.Media)
}
