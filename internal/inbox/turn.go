package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// BeginCall starts the turn of waiting texts, and stores its request, sealed, before the model is called. The call is the lease's, whose hold
// is written in the same transaction. Without texts the turn is running, and the call takes the place of the turn's last one; a request that
// isn't nil replaces the stored one, unless that is forgotten ([Turn.Forgotten]). BeginCall may be repeated with the same turn and call. It
// returns [ErrHandedOver] when the assistant has nothing to answer here any more or one of the texts needs no answer, [ErrEnded] when another
// turn is running or this one isn't, [ErrLeaseLost], or a wrapped error of the store or the hold.
func (q *Queue) BeginCall(ctx context.Context, lease Lease, turn Turn, messageIDs []string) error {
	op := turnOp{leased: leased{lease: lease}, turnID: turn.ID}
	request := q.ring.Seal(turn.Request, vault.TurnRequest(lease.OrgID, turn.ID))
	if len(messageIDs) > 0 {
		return q.begin(ctx, &beginOp{turnOp: op, agentID: turn.AgentID, messageIDs: messageIDs, request: request, state: TurnAwaiting})
	}
	if turn.Request == nil {
		request = nil
	}
	return q.do(ctx, "begin a call", &callOp{turnOp: op, request: request})
}

func (q *Queue) begin(ctx context.Context, op *beginOp) error {
	if len(op.messageIDs) == 0 {
		return fmt.Errorf("begin a turn: %w: it answers no message", ErrInvalid)
	}
	return q.do(ctx, "begin a turn", op)
}

type beginOp struct {
	turnOp

	agentID     string
	messageIDs  []string
	request     []byte // sealed, nil none
	state, code string
	balance     sql.NullInt64

	running, runningCall string // the running turn and its call, "" for none
	open                 []string
}

// Size implements [store.Sized].
func (op *beginOp) Size() int { return len(op.request) }

// Ruling is that of [Step].
func (op *beginOp) Ruling() (replaced string, lost bool, refused error) { return "", false, op.refused }

func (op *beginOp) read(s *session) {
	op.running = ""
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.running, &op.runningCall) },
		`SELECT id, call_id FROM `+runningTurn, op.conversation())
	queueOpenTexts(s.tx, op.conversation(), &op.open)
}

// runningTurn selects the running turn of a conversation $1 from the turns.
const runningTurn = `turns WHERE id = (SELECT turn_id FROM conversations WHERE id = $1) AND state = 'awaiting'`

const insertTurn = `INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, request, code,
	balance_micros, attempts, created_at, updated_at, call_id, widget_id)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $11, $12, (SELECT id FROM channels WHERE id = $3 AND type = 'widget'))`

var bindMessages = listSizes.Statement(`UPDATE messages SET turn_id = $1 WHERE id IN {list}`, 1, 1)

func (op *beginOp) run(_ context.Context, s *session) error {
	c := op.holder(s)
	switch {
	case c == nil:
		return nil
	case c.silent(s.now):
		op.refused = ErrHandedOver
		return nil
	case op.running == op.turnID && op.runningCall == op.callID():
		return nil // a repetition
	case op.running != "":
		op.refused = ErrEnded
		return nil
	}
	for _, id := range op.messageIDs {
		if !slices.Contains(op.open, id) {
			op.refused = ErrHandedOver
			return nil
		}
	}
	ids := op.messageIDs
	if len(ids) >= maxWaiting {
		ids = op.open[:1+lastOf(op.open, ids)]
	}
	if op.state == TurnNeedsAttention && len(op.open) > len(ids) {
		return nil // newer texts arrived meanwhile, and must not be answered before these: all go on waiting
	}
	at := c.place(s.now) // a message that its sender takes back is looked for in the prompts that were made after it
	s.tx.Queue(store.AnyRows, insertTurn, op.turnID, c.orgID, c.key.channelID, c.id, op.agentID, op.state, op.request, op.code, op.balance, at, at,
		op.callID())
	store.EachExact(listSizes, ids, func(size int, piece []string) {
		s.tx.Queue(int64(len(piece)), bindMessages[size], store.Arguments(piece, op.turnID)...)
	})
	if len(op.open) == len(ids) {
		c.waitingSince = sql.NullInt64{}
	}
	if op.state == TurnNeedsAttention {
		c.attention = op.code
	} else {
		c.turnID = op.turnID
	}
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

// queueOpenTexts reads the ids of the texts that wait for a turn, in the order of [Work.Waiting].
func queueOpenTexts(tx store.Tx, conversationID string, into *[]string) {
	*into = nil
	tx.QueueQuery(func(row store.Row) error {
		id, err := store.ScanValue[string](row)
		*into = append(*into, id)
		return err
	}, `SELECT id FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled ORDER BY sent_at, received_at, id`, conversationID)
}

// turnOp is an operation on a turn that a worker has begun. It is a [Step].
type turnOp struct {
	leased

	turnID    string
	turnState string // "": there is no such turn
	turnCall  string // the last call that was begun for it
	createdAt int64
}

func (op *turnOp) read(s *session) {
	op.turnState = ""
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.turnState, &op.turnCall, &op.createdAt) },
		`SELECT state, call_id, created_at FROM turns WHERE id = $1 AND conversation_id = $2`, op.turnID, op.conversation())
}

// asking returns the conversation, or refuses and returns nil when the turn isn't running.
func (op *turnOp) asking(s *session) *conversationRow {
	c := op.holder(s)
	switch {
	case c == nil:
		return nil
	case op.turnState == TurnAwaiting:
		return c
	case op.turnState == TurnDiscarded:
		op.refused = ErrHandedOver
	default:
		op.refused = ErrEnded
	}
	return nil
}

const endTurn = `UPDATE turns SET state = $1, code = $2, balance_micros = $3, updated_at = $4 WHERE id = $5 AND state = 'awaiting'`

// end ends a running turn in a state.
func (op *turnOp) end(s *session, state, code string, balance sql.NullInt64) {
	s.tx.Queue(1, endTurn, state, code, balance, s.now, op.turnID)
}

// callOp gives a running turn another call.
type callOp struct {
	turnOp

	request  []byte // sealed, nil for the one that is stored
	replaced string
}

// Ruling is that of [Step].
func (op *callOp) Ruling() (replaced string, lost bool, refused error) {
	return op.replaced, false, op.refused
}

func (op *callOp) run(_ context.Context, s *session) error {
	op.replaced = ""
	if op.asking(s) == nil {
		return nil
	}
	if op.turnCall != op.callID() {
		op.replaced = op.turnCall
		s.tx.Queue(1, `UPDATE turns SET call_id = $2, updated_at = $3 WHERE id = $1`, op.turnID, op.callID(), s.now)
	}
	if op.request != nil {
		s.tx.Queue(store.AnyRows, `UPDATE turns SET request = $2 WHERE id = $1 AND request IS NOT NULL`, op.turnID, op.request)
	}
	return nil
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
