package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Codes of turns that the queue itself ends.
const (
	codeHandedOver = "handed_over"
	// codeNotice is the code of turns that were answered with the channel's notice for messages without text.
	codeNotice = "media_notice"
	// codeClosed is the code of answered turns that answer no message: their parts say that the business is closed.
	codeClosed = "closed"
)

// noticePause is the time after a notice in which the customer isn't sent another one.
const noticePause = 15 * time.Minute

// BeginCall starts the turn of waiting texts, and stores its request, sealed, before the model is called. The call is the lease's, and its
// hold is written in the same transaction. Without texts the turn is running, and the call replaces the turn's last one; a request that
// isn't nil replaces the stored one, unless that is forgotten ([Turn.Forgotten]). BeginCall may be repeated with the same turn and call. It
// returns [ErrHandedOver] if the assistant has nothing to answer here or one of the texts needs no answer, [ErrEnded] if another turn is
// running or this one isn't, [ErrLeaseLost], or a wrapped error of the store or the hold.
func (q *Queue) BeginCall(ctx context.Context, lease Lease, turn Turn, messageIDs []string) error {
	request := q.ring.Seal(turn.Request, vault.TurnRequest(lease.OrgID, turn.ID))
	if len(messageIDs) > 0 {
		return q.begin(ctx, lease, messageIDs, newTurn{id: turn.ID, agentID: turn.AgentID, request: request, state: TurnAwaiting})
	}
	if turn.Request == nil {
		request = nil
	}
	var replaced string
	op := onTurn(lease, turn.ID, func(s *session, _ *conversationRow, t *turnRow) error {
		if t.call != lease.callID() {
			replaced = t.call
			s.tx.Queue(1, `UPDATE turns SET call_id = $2, updated_at = $3 WHERE id = $1`, t.id, lease.callID(), s.now)
		}
		if request != nil {
			s.tx.Queue(store.AnyRows, `UPDATE turns SET request = $2 WHERE id = $1 AND request IS NOT NULL`, t.id, request)
		}
		return nil
	}, func(*session) { replaced = "" })
	op.ruling = func(refused error) (string, bool, error) { return replaced, false, refused }
	return q.do(ctx, "begin a call", op)
}

// callID returns the id of the call that the holder begins or ends. Empty means none.
func (l *Lease) callID() string {
	if l.Call == nil {
		return ""
	}
	return l.Call.ID
}

// newTurn is a turn as it is inserted.
type newTurn struct {
	id, agentID string
	request     []byte // sealed, nil for none
	state, code string
	balance     sql.NullInt64
	call        string
}

// insertTurn inserts a turn of a conversation.
func (s *session) insertTurn(c *conversationRow, t *newTurn, at int64) {
	s.tx.Queue(store.AnyRows, `INSERT INTO turns (id, org_id, channel_id, conversation_id, agent_id, state, request, code,
		balance_micros, attempts, created_at, updated_at, call_id, widget_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $10, $11, (SELECT id FROM channels WHERE id = $3 AND type = 'widget'))`,
		t.id, c.orgID, c.key.channelID, c.id, t.agentID, t.state, t.request, t.code, t.balance, at, t.call)
}

// runningTurn selects the running turn of a conversation $1 from the turns.
const runningTurn = `turns WHERE id = (SELECT turn_id FROM conversations WHERE id = $1) AND state = 'awaiting'`

var bindMessages = listSizes.Statement(`UPDATE messages SET turn_id = $1 WHERE id IN {list}`, 1, 1)

// begin begins a turn for waiting texts, running or standing.
func (q *Queue) begin(ctx context.Context, lease Lease, messageIDs []string, turn newTurn) error {
	if len(messageIDs) == 0 {
		return fmt.Errorf("begin a turn: %w: it answers no message", ErrInvalid)
	}
	turn.call = lease.callID()
	var running, runningCall string
	var open []string
	op := onLease(lease, func(s *session, c *conversationRow) error {
		switch {
		case c.silent(s.now):
			return refusal{ErrHandedOver}
		case running == turn.id && runningCall == turn.call:
			return nil // a repetition
		case running != "":
			return refusal{ErrEnded}
		case !containsAll(open, messageIDs):
			return refusal{ErrHandedOver}
		}
		ids := messageIDs
		if len(ids) >= maxWaiting {
			last := len(open) - 1
			for !slices.Contains(messageIDs, open[last]) {
				last--
			}
			ids = open[:last+1]
		}
		if turn.state == TurnNeedsAttention && len(open) > len(ids) {
			return nil // newer texts arrived since, and must not be answered before these: all continue to wait
		}
		// The turn keeps its position, because only later prompts are searched for a message that its sender has
		// withdrawn.
		s.insertTurn(c, &turn, c.position(s.now))
		store.EachExact(listSizes, ids, func(size int, piece []string) {
			s.tx.Queue(int64(len(piece)), bindMessages[size], store.Arguments(piece, turn.id)...)
		})
		if len(open) == len(ids) {
			c.waitingSince = sql.NullInt64{}
		}
		if turn.state == TurnNeedsAttention {
			c.attention = turn.code
		} else {
			c.turnID = turn.id
		}
		return nil
	}, openTexts(lease.ConversationID, &open), // max, so that the row is there without a running turn
		readInto([]any{&running, &runningCall}, `SELECT coalesce(max(id), ''), coalesce(max(call_id), '') FROM `+runningTurn, lease.ConversationID))
	op.call, op.size = lease.Call, len(turn.request)
	return q.do(ctx, "begin a turn", op)
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(id string) bool { return !slices.Contains(all, id) })
}

// openTexts reads the ids of the texts that wait for a turn, in the order of [Work.Waiting].
func openTexts(conversationID string, into *[]string) func(*session) {
	return func(s *session) {
		*into = nil
		s.tx.QueueQuery(func(row store.Row) error {
			id, err := store.ScanValue[string](row)
			*into = append(*into, id)
			return err
		}, `SELECT id FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled ORDER BY sent_at, received_at, id`, conversationID)
	}
}

// turnRow is the turn of an operation as it is stored.
type turnRow struct {
	id, state string // an empty state means that there is no such turn
	call      string // the last call that was begun for it
	createdAt int64
}

// onTurn returns an operation on the running turn of a leased conversation. It is a [Step] of the lease's call. A call has ended whatever
// the queue makes of its answer, unless something else will end it. If the lease is lost while the turn runs, it gets another call. A turn
// that people have ended, or that was erased, doesn't.
func onTurn(lease Lease, turnID string, run func(s *session, c *conversationRow, t *turnRow) error, reads ...func(*session)) *operation {
	t := &turnRow{id: turnID}
	read := readInto([]any{&t.state, &t.call, &t.createdAt}, `SELECT coalesce(max(state), ''), coalesce(max(call_id), ''),
		coalesce(max(created_at), 0) FROM turns WHERE id = $1 AND conversation_id = $2`, turnID, lease.ConversationID)
	op := onLease(lease, func(s *session, c *conversationRow) error {
		switch t.state {
		case TurnAwaiting:
			return run(s, c, t)
		case TurnDiscarded:
			return refusal{ErrHandedOver}
		}
		return refusal{ErrEnded}
	}, append(reads, read)...)
	op.call = lease.Call
	op.ruling = func(refused error) (string, bool, error) {
		if errors.Is(refused, ErrDraftMode) {
			return "", false, refused
		}
		running := t.state == TurnAwaiting && errors.Is(refused, ErrLeaseLost)
		return "", t.state != "" && (running || t.call != lease.callID()), nil
	}
	return op
}

// turnEnd is the end of a running turn.
type turnEnd struct {
	state, code string
	balance     sql.NullInt64
	parts       []outboundPart // the answer, or the assistant's last words
	draft       []byte         // sealed
	handover    string         // the reason for which the conversation goes to people; empty means that it doesn't
}

// endTurn ends a running turn and shows that in its conversation. It returns the time of the parts.
func (s *session) endTurn(c *conversationRow, turnID string, end turnEnd) (at int64) {
	s.tx.Queue(1, `UPDATE turns SET state = $1, code = $2, balance_micros = $3, updated_at = $4 WHERE id = $5 AND state = 'awaiting'`,
		end.state, end.code, end.balance, s.now, turnID)
	if end.draft != nil {
		s.tx.Queue(1, `UPDATE turns SET draft = $2 WHERE id = $1`, turnID, end.draft)
	}
	switch end.state {
	case TurnSuperseded: // its texts wait again
		s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id = $1`, turnID)
		return 0
	case TurnNeedsAttention, TurnDead:
		c.attention = end.code
		c.markUpdated(s.now)
		return 0
	case TurnDiscarded: // the assistant has given its texts away, and doesn't get them back
		s.tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE WHERE turn_id = $1`, turnID)
	}
	if end.handover != "" {
		s.discard(c, codeHandedOver) // before the parts are stored, so that they stay
	}
	at = s.queueParts(c, sql.NullString{String: turnID, Valid: true}, AuthorAssistant, end.parts)
	c.attempts, c.people.reportedAttention = 0, ""
	if end.handover != "" {
		c.handOver(end.handover)
		c.startWait(s.now)
	} else {
		c.setAttention("")
	}
	return at
}

// GiveWay ends a running turn without an answer because a person has written to the customer since, or the turn's request is
// forgotten ([Turn.Forgotten]): the turn's texts wait again, for a turn that includes the current messages. It returns [ErrHandedOver] if the
// turn was discarded, [ErrEnded], [ErrLeaseLost], or a wrapped error of the store.
func (q *Queue) GiveWay(ctx context.Context, lease Lease, turnID string) error {
	return q.do(ctx, "give way to a person", onTurn(lease, turnID, func(s *session, c *conversationRow, t *turnRow) error {
		s.endTurn(c, t.id, turnEnd{state: TurnSuperseded})
		return nil
	}))
}

// Standing ends a running turn, or a new turn for waiting texts, without an answer.
type Standing struct {
	// TurnID is the turn. Empty means a new turn of AgentID and MessageIDs.
	TurnID, AgentID string
	MessageIDs      []string
	// Code is the reason; it selects the policy, see [codes.Reason].
	Code string
	// BalanceMicros is the wallet's free balance, or the room of budgets. It is nil when that doesn't matter.
	BalanceMicros *int64
	// Final: another try would fail in the same way, whatever the policy says.
	Final bool
}

// Heals reports whether the standing may end without the customer or a person.
func (s *Standing) Heals() bool {
	ends := codes.Of(s.Code).Ends
	return !s.Final && (ends == codes.InTime || ends == codes.WithCause)
}

// state returns the row's state of a turn that was made some time ago: needs_attention while its standing can end by itself or by the
// customer's next text, dead when only an operator can end it.
func (s *Standing) state(age time.Duration) string {
	ends := codes.Of(s.Code).Ends
	if s.Final || ends == codes.ByOperator || ends == codes.InTime && age >= codes.Life {
		return TurnDead
	}
	return TurnNeedsAttention
}

// Stand ends a turn without an answer: it gets none until its policy ([codes.Reason]) or an operator ends that, and the conversation shows
// the code. Turns that worker and customer end are listed by [Queue.StandingTurns] and ended by [Queue.Resume] or the customer's next text,
// which is answered together with the turn's; if that has arrived already, they wait with it and no turn stands. Turns that only an
// operator ends are listed by [Queue.DeadTurns] and ended by [Queue.Retry]; later texts get their own answer. Errors are as in
// [Queue.BeginCall], also [ErrEnded] for a turn that isn't running, and [ErrInvalid] without a code.
func (q *Queue) Stand(ctx context.Context, lease Lease, standing Standing) error {
	if standing.Code == "" {
		return fmt.Errorf("let a turn stand: %w: it needs a code", ErrInvalid)
	}
	var balance sql.NullInt64
	if standing.BalanceMicros != nil {
		balance = sql.NullInt64{Int64: *standing.BalanceMicros, Valid: true}
	}
	if standing.TurnID == "" {
		return q.begin(ctx, lease, standing.MessageIDs, newTurn{
			id: store.NewID("trn"), agentID: standing.AgentID, state: standing.state(0), code: standing.Code, balance: balance,
		})
	}
	var newer []string
	return q.do(ctx, "let a turn stand", onTurn(lease, standing.TurnID, func(s *session, c *conversationRow, t *turnRow) error {
		state := standing.state(time.Duration(s.now-t.createdAt) * time.Millisecond)
		s.endTurn(c, t.id, turnEnd{state: state, code: standing.Code, balance: balance})
		if state == TurnNeedsAttention && len(newer) > 0 {
			s.reopenStanding(c) // otherwise newer ones could be answered first
		}
		return nil
	}, openTexts(lease.ConversationID, &newer)))
}

// SayClosed lets the customer of a leased conversation wait until the business opens. The event conversation.waiting counts from the
// opening. The parts are the notice: they are stored as pending messages of the assistant and returned, once per closed
// period. Without parts no notice is sent. The customer's texts continue to wait. It returns [ErrHandedOver], [ErrLeaseLost], or a wrapped
// error of the store.
func (q *Queue) SayClosed(ctx context.Context, lease Lease, parts []string, opening time.Time) ([]Outbound, error) {
	notice := q.newNotice(lease, codeClosed, parts)
	return notice.send(ctx, q, "say that a business is closed", onLease(lease, func(s *session, c *conversationRow) error {
		notice.at = 0
		if c.silent(s.now) {
			return refusal{ErrHandedOver}
		}
		if c.people.unansweredSince > 0 {
			c.people.unansweredSince = opening.UnixMilli()
		}
		c.changed = true
		if c.people.closedUntil <= s.now && len(parts) > 0 {
			c.people.closedUntil = opening.UnixMilli()
			notice.store(s, c)
		}
		return nil
	}))
}

// SayNotice ends the wait of a leased conversation's messages without text. The parts are the channel's notice for such messages: they are
// stored as pending messages of the assistant and returned. If the customer got a notice within the last 15 minutes, nothing is sent and the
// messages stand with [codes.Media]. Without parts nothing is sent. If another message has arrived since, all continue to wait. It returns
// [ErrHandedOver], [ErrLeaseLost], or a wrapped error of the store.
func (q *Queue) SayNotice(ctx context.Context, lease Lease, messageIDs, parts []string) ([]Outbound, error) {
	var open []string
	var dead bool    // another turn is dead
	var before int64 // when the last notice was made, 0 for never
	notice := q.newNotice(lease, codeNotice, parts)
	return notice.send(ctx, q, "send a notice", onLease(lease, func(s *session, c *conversationRow) error {
		notice.at = 0
		switch {
		case c.silent(s.now):
			return refusal{ErrHandedOver}
		case len(open) != len(messageIDs) || !containsAll(open, messageIDs):
			return nil
		case len(parts) > 0 && before+noticePause.Milliseconds() > s.now:
			s.standOpen(c, notice.turnID, codes.Media)
			return nil
		}
		turnID := sql.NullString{}
		if len(parts) > 0 {
			turnID = sql.NullString{String: notice.turnID, Valid: true}
			notice.store(s, c)
		} else if c.people.unansweredSince >= c.waitingSince.Int64 { // the wait began with them
			c.people.unansweredSince = 0
		}
		store.EachExact(listSizes, messageIDs, func(size int, piece []string) {
			s.tx.Queue(int64(len(piece)), settleMessages[size], store.Arguments(piece, turnID)...)
		})
		c.waitingSince, c.people.reportedAttention = sql.NullInt64{}, ""
		if !dead {
			c.setAttention("")
		}
		c.markUpdated(s.now)
		return nil
	}, openTexts(lease.ConversationID, &open), // the others read the conversation's turns only, of which there are few
		readInto([]any{&dead}, `SELECT EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state = 'dead')`, lease.ConversationID),
		readInto([]any{&before}, `SELECT coalesce((SELECT created_at FROM turns WHERE conversation_id = $1 AND code = '`+codeNotice+`'
			ORDER BY id DESC LIMIT 1), 0)`, lease.ConversationID)))
}

var settleMessages = listSizes.Statement(`UPDATE messages SET handled = TRUE, turn_id = $1 WHERE id IN {list}`, 1, 1)

// notice is an answer that no model writes.
type notice struct {
	turnID, code string
	parts        []outboundPart
	at           int64 // when it was stored, 0 if it wasn't
}

func (q *Queue) newNotice(lease Lease, code string, parts []string) *notice {
	return &notice{turnID: store.NewID("trn"), code: code, parts: q.sealParts(lease.OrgID, parts)}
}

// store stores the notice as an answered turn with its parts.
func (n *notice) store(s *session, c *conversationRow) {
	s.insertTurn(c, &newTurn{id: n.turnID, state: TurnAnswered, code: n.code}, s.now)
	n.at = s.queueParts(c, sql.NullString{String: n.turnID, Valid: true}, AuthorAssistant, n.parts)
}

// send runs the operation that may store the notice, and returns the stored parts.
func (n *notice) send(ctx context.Context, q *Queue, doing string, op *operation) ([]Outbound, error) {
	if err := q.do(ctx, doing, op); err != nil || n.at == 0 {
		return nil, err
	}
	return assistantParts(n.turnID, n.parts, n.at), nil
}

// standOpen lets the open texts of a conversation stand with a code, as a turn with an id.
func (s *session) standOpen(c *conversationRow, turnID, code string) {
	s.insertTurn(c, &newTurn{id: turnID, state: TurnNeedsAttention, code: code}, c.position(s.now))
	s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = $2 WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled`, c.id, turnID)
	c.waitingSince = sql.NullInt64{}
	c.setAttention(code)
}

// reopenStanding makes the texts of turns that need attention wait again. There are such turns only while the conversation's attention
// is set.
func (s *session) reopenStanding(c *conversationRow) {
	s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id IN (
		SELECT id FROM turns WHERE conversation_id = $1 AND state = 'needs_attention')`, c.id)
	s.tx.Queue(store.AnyRows, `UPDATE turns SET state = 'superseded', updated_at = $2
		WHERE conversation_id = $1 AND state = 'needs_attention'`, c.id, s.now)
}

// wroteIn is the condition that a person's message waits to be sent in a conversation. The conversation's id follows it.
const wroteIn = `EXISTS (SELECT 1 FROM conversations v JOIN outbound_messages o ON o.conversation_id = v.id AND o.created_at >= v.unsent_since
	WHERE o.state = 'pending' AND o.author = 'human' AND v.id = `

var selectInterrupted = listSizes.Statement(`WITH wanted (conversation_id, turn_id) AS ({list}) SELECT turn_id,
	NOT EXISTS (SELECT 1 FROM turns WHERE id = wanted.turn_id AND state = 'awaiting'), `+wroteIn+`wanted.conversation_id) FROM wanted`, 2, 0)

// Interruption says what ended the wait for a model.
type Interruption struct {
	Ended  bool // the turn isn't running: a person has the conversation, it was deleted, or the customer has blocked the channel
	Person bool // a person's message waits to be sent
}

// RunningTurn names a running turn.
type RunningTurn struct{ ConversationID, TurnID string }

// Interruptions returns the turns of a list that people have ended, or that have a newer message of a person in their conversation; by the
// turn's id. It is a cheap read, without locks.
func (q *Queue) Interruptions(ctx context.Context, turns []RunningTurn) (map[string]Interruption, error) {
	seen := make(map[string]Interruption, len(turns))
	err := store.EachPadded(listSizes, turns, func(size int, piece []RunningTurn) error {
		args := make([]any, 0, 2*len(piece))
		for _, turn := range piece {
			args = append(args, turn.ConversationID, turn.TurnID)
		}
		return store.EachRow(ctx, q.db, "look for people", func(row store.Row) error {
			var id string
			var i Interruption
			err := row.Scan(&id, &i.Ended, &i.Person)
			if i.Ended || i.Person {
				seen[id] = i
			}
			return err
		}, selectInterrupted[size], args...)
	})
	return seen, err
}

// TurnPlace is the agent and conversation of a turn.
type TurnPlace struct {
	TurnID         string
	AgentID        string // it may have been deleted
	ConversationID string
}

// selectTurnPlaces is written for one list length: a list is cut into pieces of it.
var selectTurnPlaces = listSizes.Statement(`SELECT id, agent_id, conversation_id FROM turns WHERE org_id = $1 AND id IN {list}`, 1, 1)

// TurnPlaces returns the agents and conversations of turns. Unknown ids, and ids of other organizations, are left out.
func (q *Queue) TurnPlaces(ctx context.Context, orgID string, turnIDs []string) (map[string]TurnPlace, error) {
	places := make(map[string]TurnPlace, len(turnIDs))
	err := store.EachPadded(listSizes, turnIDs, func(size int, piece []string) error {
		found, err := store.ReadRows(ctx, q.db, "find turns", store.ScanFields[TurnPlace](),
			selectTurnPlaces[size], store.Arguments(piece, any(orgID))...)
		for _, place := range found {
			places[place.TurnID] = place
		}
		return err
	})
	return places, err
}
