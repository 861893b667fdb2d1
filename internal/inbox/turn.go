package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// BeginTurn starts the answer to waiting texts, and stores its request, sealed, before the model is called. The turn's id is
// the call's key, so that a retry is the same call. It returns [ErrHandedOver] when the assistant has nothing to answer here
// any more or one of the texts needs no answer, [ErrEnded] when a turn is running, [ErrLeaseLost], [ErrInvalid] without texts,
// or a wrapped error of the store.
func (q *Queue) BeginTurn(ctx context.Context, lease Lease, agentID string, messageIDs []string, request []byte) (turnID string, err error) {
	id := store.NewID("trn")
	op := &beginOp{
		leased: leased{lease: lease}, turnID: id, agentID: agentID, messageIDs: messageIDs,
		request: q.ring.Seal(request, vault.TurnRequest(lease.OrgID, id)), state: TurnAsking,
	}
	if err := q.begin(ctx, op); err != nil {
		return "", err
	}
	return id, nil
}

func (q *Queue) begin(ctx context.Context, op *beginOp) error {
	if len(op.messageIDs) == 0 {
		return fmt.Errorf("begin a turn: %w: it answers no message", ErrInvalid)
	}
	return q.do(ctx, "begin a turn", op)
}

type beginOp struct {
	leased

	turnID, agentID string
	messageIDs      []string
	request         []byte // sealed, nil none
	state, code     string
	balance         sql.NullInt64
}

// Size implements [store.Sized].
func (op *beginOp) Size() int { return len(op.request) }

const insertTurn = `INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, request, code,
	balance_micros, attempts, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $10)`

var bindMessages = listSizes.Statement(`UPDATE messages SET turn_id = $1 WHERE id IN {list}`, 1, 1)

func (op *beginOp) run(ctx context.Context, s *session) error {
	c := op.holder(s)
	if c == nil {
		return nil
	}
	if c.silent(s.now) {
		op.refused = ErrHandedOver
		return nil
	}
	running, err := s.runningTurn(ctx, c.id)
	if err != nil {
		return err
	}
	if running != "" {
		op.refused = ErrEnded
		return nil
	}
	open, err := s.openTexts(ctx, c.id)
	if err != nil {
		return err
	}
	for _, id := range op.messageIDs {
		if !slices.Contains(open, id) {
			op.refused = ErrHandedOver
			return nil
		}
	}
	ids := op.messageIDs
	if len(ids) >= maxWaiting {
		ids = open[:1+lastOf(open, ids)]
	}
	if op.state == TurnNeedsAttention && len(open) > len(ids) {
		return nil // newer texts arrived meanwhile, and must not be answered before these: all go on waiting
	}
	s.tx.Queue(store.AnyRows, insertTurn, op.turnID, c.orgID, c.key.channelID, c.id, op.agentID, op.state, op.request,
		op.code, op.balance, s.now)
	store.EachExact(listSizes, ids, func(size int, piece []string) {
		s.tx.Queue(int64(len(piece)), bindMessages[size], store.Arguments(piece, op.turnID)...)
	})
	if len(open) == len(ids) {
		c.waitingSince = sql.NullInt64{}
	}
	if op.state == TurnNeedsAttention {
		c.attention = op.code
	}
	c.touch(s.now)
	return nil
}

// lastOf returns the index in all of the last of ids.
func lastOf(all, ids []string) int {
	for i := len(all) - 1; i > 0; i-- {
		if slices.Contains(ids, all[i]) {
			return i
		}
	}
	return 0
}

// runningTurn returns the turn that is asking in a conversation, "" when there is none.
func (s *session) runningTurn(ctx context.Context, conversationID string) (id string, err error) {
	err = s.tx.Query(ctx, func(row store.Row) error { return row.Scan(&id) },
		`SELECT id FROM turns WHERE conversation_id = $1 AND state = 'asking'`, conversationID)
	return id, err
}

// openTexts returns the ids of the texts that wait for a turn, in the order of [Work.Waiting].
func (s *session) openTexts(ctx context.Context, conversationID string) ([]string, error) {
	return store.QueryValues[string](ctx, s.tx, `SELECT id FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled
		ORDER BY sent_at, received_at, id`, conversationID)
}

// turnOp is an operation on a turn that a worker has begun.
type turnOp struct {
	leased

	turnID string
}

// asking returns the conversation, and whether the turn is running; otherwise it refuses.
func (op *turnOp) asking(ctx context.Context, s *session) (c *conversationRow, running bool, err error) {
	if c = op.holder(s); c == nil {
		return nil, false, nil
	}
	var state string
	err = s.tx.Query(ctx, func(row store.Row) error { return row.Scan(&state) },
		`SELECT state FROM turns WHERE id = $1 AND conversation_id = $2`, op.turnID, c.id)
	if err != nil {
		return nil, false, fmt.Errorf("read a turn: %w", err)
	}
	switch state {
	case TurnAsking:
		return c, true, nil
	case TurnDiscarded:
		op.refused = ErrHandedOver
	default:
		op.refused = ErrEnded
	}
	return c, false, nil
}

const endTurn = `UPDATE turns SET state = $2, code = $3, balance_micros = $4, updated_at = $5 WHERE id = $1 AND state = 'asking'`

// end ends a running turn in a state.
func (op *turnOp) end(s *session, state, code string, balance sql.NullInt64) {
	s.tx.Queue(1, endTurn, op.turnID, state, code, balance, s.now)
}

// StoreRequest replaces the request of a running turn, because the model refused the first as too long. It returns
// [ErrHandedOver], [ErrEnded], [ErrLeaseLost], or a wrapped error of the store.
func (q *Queue) StoreRequest(ctx context.Context, lease Lease, turnID string, request []byte) error {
	return q.do(ctx, "store a request", &requestOp{
		turnOp:  turnOp{leased: leased{lease: lease}, turnID: turnID},
		request: q.ring.Seal(request, vault.TurnRequest(lease.OrgID, turnID)),
	})
}

type requestOp struct {
	turnOp

	request []byte
}

func (op *requestOp) run(ctx context.Context, s *session) error {
	_, running, err := op.asking(ctx, s)
	if running {
		s.tx.Queue(1, `UPDATE turns SET request = $2, updated_at = $3 WHERE id = $1`, op.turnID, op.request, s.now)
	}
	return err
}

// Supersede ends a running turn when newer texts wait, so that the next one answers all of them, and reports whether it did;
// without newer texts it changes nothing. It returns [ErrHandedOver], [ErrEnded], [ErrLeaseLost], or a wrapped error of the
// store.
func (q *Queue) Supersede(ctx context.Context, lease Lease, turnID string) (newer bool, err error) {
	op := &supersedeOp{turnOp: turnOp{leased: leased{lease: lease}, turnID: turnID}}
	if err := q.do(ctx, "supersede a turn", op); err != nil {
		return false, err
	}
	return op.newer, nil
}

type supersedeOp struct {
	turnOp

	newer bool
}

func (op *supersedeOp) run(ctx context.Context, s *session) error {
	op.newer = false
	c, running, err := op.asking(ctx, s)
	if !running {
		return err
	}
	open, err := s.openTexts(ctx, c.id)
	if err != nil || len(open) == 0 {
		return err
	}
	op.newer = true
	op.end(s, TurnSuperseded, "", sql.NullInt64{})
	s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id = $1`, op.turnID)
	return nil
}

// Attention ends a running turn, or one that is made for waiting texts (turnID ""), without an answer and without a retry:
// something outside must change first, which code names (docs/contract.md#attention). balanceMicros is the wallet's free
// balance, nil when that doesn't matter. The conversation shows the code. [Queue.Resume] takes the turn up, or the customer's
// next text is answered together with its texts; when that has arrived already, they wait with it and no turn needs attention.
// Errors are those of [Queue.BeginTurn], and [ErrEnded] for a turn that isn't running.
func (q *Queue) Attention(
	ctx context.Context, lease Lease, turnID, agentID string, messageIDs []string, code string, balanceMicros *int64,
) error {
	var balance sql.NullInt64
	if balanceMicros != nil {
		balance = sql.NullInt64{Int64: *balanceMicros, Valid: true}
	}
	if code == "" {
		return fmt.Errorf("end a turn: %w: it needs a code", ErrInvalid)
	}
	if turnID == "" {
		return q.begin(ctx, &beginOp{
			leased: leased{lease: lease}, turnID: store.NewID("trn"), agentID: agentID, messageIDs: messageIDs,
			state: TurnNeedsAttention, code: code, balance: balance,
		})
	}
	return q.do(ctx, "end a turn", &endOp{
		turnOp: turnOp{leased: leased{lease: lease}, turnID: turnID}, state: TurnNeedsAttention, code: code, balance: balance,
	})
}

// Dead ends a running turn that failed too often. Its texts stay unanswered until an operator lets it run again
// ([Queue.Retry]); later texts get their own answer. It returns [ErrHandedOver], [ErrEnded], [ErrLeaseLost], [ErrInvalid]
// without a code, or a wrapped error of the store.
func (q *Queue) Dead(ctx context.Context, lease Lease, turnID, code string) error {
	if code == "" {
		return fmt.Errorf("end a turn: %w: it needs a code", ErrInvalid)
	}
	return q.do(ctx, "end a turn", &endOp{
		turnOp: turnOp{leased: leased{lease: lease}, turnID: turnID}, state: TurnDead, code: code,
	})
}

type endOp struct {
	turnOp

	state, code string
	balance     sql.NullInt64
}

func (op *endOp) run(ctx context.Context, s *session) error {
	c, running, err := op.asking(ctx, s)
	if !running {
		return err
	}
	op.end(s, op.state, op.code, op.balance)
	c.attention = op.code
	c.touch(s.now)
	if op.state != TurnNeedsAttention {
		return nil
	}
	newer, err := s.openTexts(ctx, c.id)
	if err == nil && len(newer) > 0 {
		takeUp(s.tx, c.id, s.now) // otherwise newer ones could be answered first
	}
	return err
}

// TurnPlace is the agent and conversation of a turn.
type TurnPlace struct {
	AgentID        string // it may have been deleted
	ConversationID string
}

// selectTurnPlaces is written for one list length: a list is cut into pieces of it.
var selectTurnPlaces = listSizes.Statement(`SELECT id, agent_id, conversation_id FROM turns WHERE org_id = $1 AND id IN {list}`, 1, 1)

// TurnPlaces returns the agents and conversations of turns. Unknown ids, and those of other organizations, are left out.
func (q *Queue) TurnPlaces(ctx context.Context, orgID string, turnIDs []string) (map[string]TurnPlace, error) {
	places := make(map[string]TurnPlace, len(turnIDs))
	err := store.EachPadded(listSizes, turnIDs, func(size int, piece []string) error {
		_, err := store.ReadRows(ctx, q.db, "find turns", func(row store.Row) (struct{}, error) {
			var id string
			var place TurnPlace
			err := row.Scan(&id, &place.AgentID, &place.ConversationID)
			places[id] = place
			return struct{}{}, err
		}, selectTurnPlaces[size], store.Arguments(piece, any(orgID))...)
		return err
	})
	return places, err
}
