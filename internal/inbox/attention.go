package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// StandingTurn is a turn that stands and isn't dead, with the facts that show whether that can end.
type StandingTurn struct {
	TurnID, OrgID, ConversationID, ChannelID string
	Code                                     string        // why it stands
	Age, Stood                               time.Duration // since it was made, and since it began to stand
	BalanceMicros                            *int64        // the wallet's free balance, or the room of budgets, at the refusal; nil for other codes
	AgentID                                  string        // the assistant whose turn it is; may be empty
	Suspended                                bool          // whether the organization is suspended now
	HasAgent                                 bool          // whether the channel has an agent now
	ChannelState                             string        // the channel's state now; "" when it was deleted
}

const (
	// selectStanding reads the times since a moment in nanoseconds, as a [time.Duration] has them.
	selectStanding = `SELECT placed.id, placed.org_id, placed.conversation_id, placed.channel_id, placed.code,
			($4 - placed.created_at) * 1000000, ($4 - placed.updated_at) * 1000000, placed.balance_micros, placed.agent_id,
			o.suspended_at IS NOT NULL, coalesce(c.agent_id, '') <> '', coalesce(c.state, '')
		FROM (
			SELECT id, org_id, conversation_id, channel_id, code, balance_micros, agent_id, created_at, updated_at,
				row_number() OVER (PARTITION BY org_id, code ORDER BY updated_at) AS place
			FROM turns WHERE ` + standing + ` AND state = 'needs_attention' AND updated_at >= $1
		) placed JOIN organizations o ON o.id = placed.org_id LEFT JOIN channels c ON c.id = placed.channel_id
		WHERE placed.place <= $3 ORDER BY placed.place, placed.updated_at LIMIT $2`
	selectDead = `SELECT id, org_id, conversation_id, channel_id, code, attempts, created_at, updated_at FROM turns
		WHERE ` + standing + ` AND state = 'dead' ORDER BY updated_at LIMIT $1`
)

// standingShare bounds the turns of one organization with one code in a read: one cause mostly holds up all of them, and when it ends the
// next ones move up. So no organization hides the turns of others, and no cause hides another.
const standingShare = 200

// StandingTurns reads turns that worker or customer may end and that have stood since newerThan or later, up to limit: for each
// organization and code the longest standing one first, then the second of each. The time is by the database's clock.
func (q *Queue) StandingTurns(ctx context.Context, newerThan time.Time, limit int) ([]StandingTurn, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("list standing turns: %w", err)
	}
	return store.ReadRows(ctx, q.db, "list standing turns", store.ScanFields[StandingTurn](),
		selectStanding, newerThan.UnixMilli(), limit, standingShare, now)
}

// Resume lets a standing turn that isn't dead run again, with the request it has; without one its texts wait for a new turn. Its
// conversation is immediately due. The turn counts as tried attempts times. A turn in another state is left alone. It needs no lease: a
// worker that has the conversation finds the turn when it opens it next. It returns [store.ErrNotFound] or a wrapped error of the store.
func (q *Queue) Resume(ctx context.Context, turnID string, attempts int64) error {
	err := q.revive(ctx, "resume a turn", turnID, TurnNeedsAttention, attempts, "")
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

// DeadTurns reads up to limit dead turns of all organizations, the longest dead first.
func (q *Queue) DeadTurns(ctx context.Context, limit int) ([]DeadTurn, error) {
	return store.ReadRows(ctx, q.db, "list dead turns", store.ScanFields[DeadTurn](), selectDead, limit)
}

// Retry lets a dead turn run again, as [Queue.Resume] does, and writes it into the audit log. It returns
// [store.ErrNotFound] when there is no such turn, [ErrEnded] when it isn't dead, [ErrHandedOver] while a human has the
// conversation, or a wrapped error of the store.
func (q *Queue) Retry(ctx context.Context, actor, turnID string) error {
	return q.revive(ctx, "retry a turn", turnID, TurnDead, 0, actor)
}

// revive lets a turn in a state run again, as tried attempts times. An actor is written into the audit log.
func (q *Queue) revive(ctx context.Context, doing, turnID, from string, attempts int64, actor string) error {
	return q.do(ctx, doing, &operation{
		find: func(ctx context.Context, tx store.Tx) (id string, err error) { // it never changes
			err = tx.Query(ctx, func(row store.Row) error { return row.Scan(&id) }, `SELECT conversation_id FROM turns WHERE id = $1`, turnID)
			return id, err
		},
		run: func(s *session, c *conversationRow) error {
			if c == nil {
				return refusal{store.ErrNotFound}
			}
			turn := standingTurn{ID: turnID}
			var state string
			err := s.query("read a turn", func(row store.Row) error { return row.Scan(&state, &turn.Asks) },
				`SELECT state, request IS NOT NULL FROM turns WHERE id = $1`, turnID)
			switch {
			case err != nil:
				return err
			case state != from:
				return refusal{ErrEnded}
			case c.silent(s.now):
				return refusal{ErrHandedOver}
			}
			if err := s.revive(c, turn, attempts); err != nil {
				return err
			}
			if actor != "" {
				c.people.retriedAt = s.now
				store.QueueAudit(s.tx, store.AuditEntry{
					At: s.now, Actor: actor, Action: "turn.retry", Target: turnID, OrgID: c.orgID, Detail: c.id,
				})
			}
			return nil
		},
	})
}

// revive lets a standing turn run if nothing else in the conversation waits for an answer; otherwise its texts join the waiting ones,
// so that all are answered in order. It counts as tried attempts times.
func (s *session) revive(c *conversationRow, turn standingTurn, attempts int64) error {
	others := false
	err := s.value("look for other turns", &others, `SELECT
		EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled)
		OR EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state IN ('awaiting', 'needs_attention') AND id <> $2)`,
		c.id, turn.ID)
	if err != nil {
		return err
	}
	state := TurnAwaiting
	if !others && turn.Asks {
		c.turnID = turn.ID
	} else {
		state = TurnSuperseded
		s.reopenStanding(c)
		s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id = $1`, turn.ID)
	}
	s.tx.Queue(1, `UPDATE turns SET state = $2, code = '', balance_micros = NULL, attempts = $4, updated_at = $3
		WHERE id = $1`, turn.ID, state, s.now, attempts)
	c.attempts = 0
	c.setAttention("")
	c.runBy(s.now)
	c.markUpdated(s.now)
	return nil
}

// selectReconnected reads the conversations in which parts wait for a channel that is active again.
const selectReconnected = `SELECT DISTINCT v.id FROM conversations v CROSS JOIN outbound_messages o
	JOIN channels c ON c.id = v.channel_id WHERE v.run_at > $1 AND o.conversation_id = v.id AND o.created_at >= v.unsent_since
		AND o.state = 'pending' AND o.code = 'channel_needs_reauth' AND c.state = 'active' LIMIT CAST($2 AS BIGINT)`

// Reconnected makes conversations due in which parts wait for a channel that is active again, up to limit, and returns their
// number. The error is a wrapped one of the store.
func (q *Queue) Reconnected(ctx context.Context, limit int) (woken int, err error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("look for reconnected channels: %w", err)
	}
	ids, err := store.ReadRows(ctx, q.db, "look for reconnected channels", store.ScanValue[string], selectReconnected, now, limit)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		wake := &operation{conversation: id, run: func(s *session, c *conversationRow) error {
			if c != nil {
				c.runBy(s.now)
			}
			return nil
		}}
		if err := q.do(ctx, "wake a conversation", wake); err != nil {
			return woken, err
		}
		woken++
	}
	return woken, nil
}

// codeDismissed is the code of a turn that a person has dismissed.
const codeDismissed = "dismissed"

// RetryStanding lets the standing turns of an organization's conversation run again, oldest first, as [Queue.Retry] does for one, except
// turns with a draft, which a person sends or discards. code selects turns with this code; empty means all. It returns [store.ErrNotFound],
// [ErrEnded] if no turn stands, [ErrHandedOver] while the assistant may not answer there, or a wrapped error of the store.
func (q *Queue) RetryStanding(ctx context.Context, actor, orgID, id, code string) error {
	return q.do(ctx, "retry what stands", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		turns, err := s.standingTurns(c)
		turns, _ = partition(turns, code)
		_, turns = partition(turns, codes.Draft)
		switch {
		case err != nil:
			return err
		case len(turns) == 0:
			return refusal{ErrEnded}
		case c.silent(s.now):
			return refusal{ErrHandedOver}
		}
		c.people.retriedAt = s.now
		for _, turn := range turns {
			if err := s.revive(c, turn, 0); err != nil {
				return err
			}
		}
		s.audit(c, actor, "retry")
		return nil
	}))
}

// Dismiss ends the standing turns of an organization's conversation without an answer, and its attention: a person has acknowledged that
// customers weren't answered or messages not delivered. Running turns and pending messages continue. code selects turns with this code;
// empty means all. It returns [store.ErrNotFound], [ErrEnded] if there is nothing to dismiss, or a wrapped error of the store.
func (q *Queue) Dismiss(ctx context.Context, actor, orgID, id, code string) error {
	return q.do(ctx, "dismiss what stands", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		turns, err := s.standingTurns(c)
		if err != nil {
			return err
		}
		turns, others := partition(turns, code)
		unknown := c.people.unknownSince != 0 && (code == "" || code == OutboundDeliveryUnknown)
		shown := unknown || c.attention != "" && (code == "" || code == c.attention)
		if len(turns) == 0 && !shown {
			return refusal{ErrEnded}
		}
		for _, turn := range turns {
			s.dismissTurn(turn.ID, codeDismissed)
		}
		if unknown {
			c.people.unknownSince = 0
		}
		if code == "" || code == c.attention {
			c.setAttention(newestCode(others))
		}
		c.markUpdated(s.now)
		s.audit(c, actor, "dismiss")
		if c.attention != "" {
			return nil
		}
		c.people.reportedAttention = ""
		return s.countUnanswered(c) // a person has decided that the standing texts need no answer
	}))
}

// dismissTurn ends a standing turn without an answer.
func (s *session) dismissTurn(id, code string) {
	s.tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE WHERE turn_id = $1`, id)
	s.tx.Queue(1, `UPDATE turns SET state = 'discarded', code = $2, updated_at = $3 WHERE id = $1`, id, code, s.now)
}

// ForEachStanding applies [Queue.RetryStanding] or [Queue.Dismiss] to a page of the conversations that [Queue.Conversations] lists with the
// filter and Attention, in order of id, each in a transaction of its own. It returns how many were changed and, when there may be more, the
// last conversation of the page; conversations that act refuses are passed over. After an error the conversations before it stay changed.
func (q *Queue) ForEachStanding(
	ctx context.Context, actor, orgID string, filter ConversationFilter, page store.Page,
	act func(ctx context.Context, actor, orgID, id, code string) error,
) (changed int, last string, err error) {
	filter.Attention, filter.Recent = true, false
	now, err := q.db.Now(ctx)
	if err != nil {
		return 0, "", fmt.Errorf("list standing conversations: %w", err)
	}
	text, args := filter.where(`SELECT id FROM conversations WHERE `+laterOfOrganization, []any{orgID, page.After, page.Rows()}, now)
	ids, err := store.ReadRows(ctx, q.db, "list standing conversations", store.ScanValue[string], text+` ORDER BY id LIMIT $3`, args...)
	if err != nil {
		return 0, "", err
	}
	for _, id := range ids {
		switch err := act(ctx, actor, orgID, id, filter.Code); {
		case err == nil:
			changed++
		case !errors.Is(err, ErrEnded) && !errors.Is(err, ErrHandedOver) && !errors.Is(err, store.ErrNotFound):
			return changed, "", err
		}
	}
	if len(ids) == page.Rows() {
		last = ids[len(ids)-1]
	}
	return changed, last, nil
}

// standingTurn is a turn that stands.
type standingTurn struct {
	ID, Code string
	Asks     bool // its request is stored
}

// standingTurns reads the conversation's standing turns, oldest first.
func (s *session) standingTurns(c *conversationRow) ([]standingTurn, error) {
	return store.QueryRows(s.ctx, s.tx, store.ScanFields[standingTurn](),
		`SELECT id, code, request IS NOT NULL FROM turns WHERE conversation_id = $1 AND `+standing+` ORDER BY id`, c.id)
}

// partition splits turns into the turns that stand with a code, all if it is empty, and the others.
func partition(turns []standingTurn, code string) (with, without []standingTurn) {
	for _, turn := range turns {
		if code == "" || code == turn.Code {
			with = append(with, turn)
		} else {
			without = append(without, turn)
		}
	}
	return with, without
}

// newestCode returns the reason why the newest of the turns stands. Without turns it is empty.
func newestCode(turns []standingTurn) string {
	if len(turns) == 0 {
		return ""
	}
	return turns[len(turns)-1].Code
}

// Depth is the amount of open work, for metrics and health.
type Depth struct {
	Due       int64 // conversations that wait for a worker
	Leased    int64 // conversations that are leased
	Dead      int64 // turns that failed too often
	Attention int64 // turns that need attention
	// OldestDue is how long the longest waiting conversation has been due.
	OldestDue time.Duration
}

// standing repeats the condition of the index of such turns: SQLite uses an index only for the same words.
const standing = `state IN ('needs_attention', 'dead')`

const selectDepth = `SELECT
	(SELECT count(*) FROM conversations WHERE run_at <= $1 AND lease_until < $1),
	(SELECT count(*) FROM conversations WHERE run_at IS NOT NULL AND lease_until >= $1),
	(SELECT count(*) FROM turns WHERE ` + standing + ` AND state = 'dead'),
	(SELECT count(*) FROM turns WHERE ` + standing + ` AND state = 'needs_attention'),
	coalesce($1 - (SELECT min(run_at) FROM conversations WHERE run_at <= $1 AND lease_until < $1), 0) * 1000000`

// Depth reads the queue's depth. It reads only conversations with work and standing turns.
func (q *Queue) Depth(ctx context.Context) (Depth, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return Depth{}, err
	}
	return store.ReadRow(ctx, q.db, "read the queue's depth", store.ScanFields[Depth](), selectDepth, now)
}

const selectStandingByCode = `SELECT code, count(*) FROM turns WHERE ` + standing + ` GROUP BY code`

// StandingByCode counts the turns that stand, of all organizations, by code; every code of [codes.All] is there.
func (q *Queue) StandingByCode(ctx context.Context) (map[string]int64, error) {
	byCode, err := store.ReadMap[string, int64](ctx, q.db, "count what stands", selectStandingByCode)
	for code := range codes.All {
		byCode[code] += 0 // so that every code is there
	}
	return byCode, err
}

// Lag is how long the conversation of an organization has been due that waits longest for a worker.
type Lag struct {
	OrgID string
	Due   time.Duration
}

// selectLags visits each organization with work once: a few look-ups in the index conversations_ready, however much waits.
var selectLags = store.WalkOrganizations("conversations", "run_at IS NOT NULL", "", "") + `
	SELECT org_id, ($1 - due_at) * 1000000 FROM (SELECT org_id, (SELECT c.run_at FROM conversations c WHERE c.org_id = walk.org_id
			AND c.lease_until BETWEEN 0 AND 0 AND c.run_at IS NOT NULL ORDER BY c.lease_until, c.run_at LIMIT 1) AS due_at
		FROM walk WHERE org_id IS NOT NULL) AS oldest
	WHERE due_at <= $1 ORDER BY due_at, org_id LIMIT CAST($2 AS BIGINT)`

// Lags returns the organizations that wait longest for a worker, up to limit, the longest first. Conversations of a dead worker don't count
// until another worker has them.
func (q *Queue) Lags(ctx context.Context, limit int) ([]Lag, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	return store.ReadRows(ctx, q.db, "read who waits longest", store.ScanFields[Lag](), selectLags, now, limit)
}
