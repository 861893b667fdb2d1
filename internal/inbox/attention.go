package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// StandingTurn is a turn that stands and isn't dead, with the facts that show whether that can end.
type StandingTurn struct {
	TurnID, OrgID, ConversationID, ChannelID string
	Code                                     string        // why it stands
	Age, Stood                               time.Duration // since it was made, and since it began to stand
	BalanceMicros                            *int64        // the wallet's free balance at the refusal; nil for other codes
	Suspended                                bool          // whether the organization is suspended now
	HasAgent                                 bool          // whether the channel has an agent now
	ChannelState                             string        // the channel's state now; "" when it was deleted
}

const (
	selectStanding = `SELECT placed.id, placed.org_id, placed.conversation_id, placed.channel_id, placed.code, placed.balance_micros,
			placed.created_at, placed.updated_at, o.suspended_at IS NOT NULL, coalesce(c.agent_id, '') <> '', coalesce(c.state, '')
		FROM (
			SELECT id, org_id, conversation_id, channel_id, code, balance_micros, created_at, updated_at,
				row_number() OVER (PARTITION BY org_id, code ORDER BY updated_at) AS place
			FROM turns WHERE ` + standing + ` AND state = 'needs_attention' AND updated_at >= $1
		) placed JOIN organizations o ON o.id = placed.org_id LEFT JOIN channels c ON c.id = placed.channel_id
		WHERE placed.place <= $3 ORDER BY placed.place, placed.updated_at LIMIT $2`
	selectDead = `SELECT id, org_id, conversation_id, channel_id, code, attempts, created_at, updated_at FROM turns
		WHERE ` + standing + ` AND state = 'dead' ORDER BY updated_at LIMIT $1`
)

// standingShare bounds the turns of one organization with one code in a read: one cause mostly holds up all of them, and when it ends
// the next ones move up. So no organization hides the turns of others, and no cause those of another.
const standingShare = 200

// StandingTurns reads turns that worker or customer may end and that have stood since newerThan or later, at most limit: for each
// organization and code the longest standing one first, then the second of each. The time is by the database's clock.
func (q *Queue) StandingTurns(ctx context.Context, newerThan time.Time, limit int) ([]StandingTurn, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("list standing turns: %w", err)
	}
	return store.ReadRows(ctx, q.db, "list standing turns", func(row store.Row) (turn StandingTurn, err error) {
		var balance sql.NullInt64
		var made, stands int64
		err = row.Scan(&turn.TurnID, &turn.OrgID, &turn.ConversationID, &turn.ChannelID, &turn.Code, &balance, &made, &stands,
			&turn.Suspended, &turn.HasAgent, &turn.ChannelState)
		if balance.Valid {
			turn.BalanceMicros = &balance.Int64
		}
		turn.Age = time.Duration(now-made) * time.Millisecond
		turn.Stood = time.Duration(now-stands) * time.Millisecond
		return turn, err
	}, selectStanding, newerThan.UnixMilli(), limit, standingShare)
}

// Resume lets a standing turn that isn't dead run again, with the request it has; without one its texts wait for a new turn. Its
// conversation is due at once. The turn counts as tried attempts times. A turn in another state is left alone. It needs no lease: a
// worker that has the conversation sees the turn when it opens it next. It returns [store.ErrNotFound] or a wrapped error of the store.
func (q *Queue) Resume(ctx context.Context, turnID string, attempts int64) error {
	err := q.do(ctx, "resume a turn", &reviveOp{turnID: turnID, from: TurnNeedsAttention, attempts: attempts})
	if errors.Is(err, ErrEnded) {
		return nil
	}
	return err
}

// DeadTurn is a turn that failed too often.
type DeadTurn struct {
	TurnID, OrgID, ConversationID, ChannelID string
	Code                                     string // the last failure
	Attempts                                 int64
	CreatedAt, UpdatedAt                     int64 // epoch milliseconds; UpdatedAt is when it died
}

// DeadTurns reads at most limit dead turns of all organizations, the longest dead first.
func (q *Queue) DeadTurns(ctx context.Context, limit int) ([]DeadTurn, error) {
	return store.ReadRows(ctx, q.db, "list dead turns", func(row store.Row) (turn DeadTurn, err error) {
		err = row.Scan(&turn.TurnID, &turn.OrgID, &turn.ConversationID, &turn.ChannelID, &turn.Code, &turn.Attempts,
			&turn.CreatedAt, &turn.UpdatedAt)
		return turn, err
	}, selectDead, limit)
}

// Retry lets a dead turn run again, as [Queue.Resume] does, and writes it into the audit log. It returns
// [store.ErrNotFound] when there is no such turn, [ErrEnded] when it isn't dead, [ErrHandedOver] while a human has the
// conversation, or a wrapped error of the store.
func (q *Queue) Retry(ctx context.Context, actor, turnID string) error {
	return q.do(ctx, "retry a turn", &reviveOp{turnID: turnID, from: TurnDead, actor: actor})
}

type reviveOp struct {
	turnID, from string
	actor        string // in the audit log; "" writes no entry
	attempts     int64

	conversationID string
	refused        error
}

func (op *reviveOp) refusal() error { return op.refused }

func (op *reviveOp) conversation() string { return op.conversationID }

// find reads the turn's conversation, which never changes.
func (op *reviveOp) find(ctx context.Context, tx store.Tx) error {
	op.conversationID = ""
	return tx.Query(ctx, func(row store.Row) error { return row.Scan(&op.conversationID) },
		`SELECT conversation_id FROM turns WHERE id = $1`, op.turnID)
}

func (op *reviveOp) run(ctx context.Context, s *session) error {
	op.refused = nil
	c := s.rows[op.conversationID]
	if c == nil || c.deleted {
		op.refused = store.ErrNotFound
		return nil
	}
	var state string
	var asks bool
	err := s.tx.Query(ctx, func(row store.Row) error { return row.Scan(&state, &asks) },
		`SELECT state, request IS NOT NULL FROM turns WHERE id = $1`, op.turnID)
	if err != nil {
		return fmt.Errorf("read a turn: %w", err)
	}
	switch {
	case state != op.from:
		op.refused = ErrEnded
		return nil
	case c.silent(s.now):
		op.refused = ErrHandedOver
		return nil
	}
	if err := revive(ctx, s, c, standingTurn{id: op.turnID, asks: asks}, op.attempts); err != nil {
		return err
	}
	if op.actor != "" {
		c.people.retriedAt = s.now
		store.QueueAudit(s.tx, store.AuditEntry{
			At: s.now, Actor: op.actor, Action: "turn.retry", Target: op.turnID, OrgID: c.orgID, Detail: c.id,
		})
	}
	return nil
}

// revive lets a standing turn run if nothing else in the conversation waits for an answer; otherwise its texts join the waiting ones,
// so that all are answered in order. It counts as tried attempts times.
func revive(ctx context.Context, s *session, c *conversationRow, turn standingTurn, attempts int64) error {
	others := false
	err := s.tx.Query(ctx, func(row store.Row) error { return row.Scan(&others) }, `SELECT
		EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled)
		OR EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state IN ('awaiting', 'needs_attention') AND id <> $2)`,
		c.id, turn.id)
	if err != nil {
		return fmt.Errorf("look for other turns: %w", err)
	}
	state := TurnAwaiting
	if !others && turn.asks {
		c.turnID = turn.id
	} else {
		state = TurnSuperseded
		takeUp(s.tx, c.id, s.now)
		s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id = $1`, turn.id)
	}
	s.tx.Queue(1, `UPDATE turns SET state = $2, code = '', balance_micros = NULL, attempts = $4, updated_at = $3
		WHERE id = $1`, turn.id, state, s.now, attempts)
	c.attempts = 0
	c.stands("")
	c.runBy(s.now)
	c.touch(s.now)
	return nil
}
