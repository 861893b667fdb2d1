package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Standing ends a running turn, or one that is made for waiting texts, without an answer.
type Standing struct {
	// TurnID is the turn, or "" for one that is made of AgentID and MessageIDs.
	TurnID, AgentID string
	MessageIDs      []string
	// Code is why; it selects the policy, see [codes.Reason].
	Code string
	// BalanceMicros is the wallet's free balance, nil when that doesn't matter.
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
	policy := codes.Of(s.Code)
	if s.Final || policy.Ends == codes.ByOperator || policy.Ends == codes.InTime && age >= policy.For {
		return TurnDead
	}
	return TurnNeedsAttention
}

// Stand lets a turn stand: it gets no answer until its policy ([codes.Reason]) or an operator ends that, and the conversation shows the code. What
// worker and customer end is listed by [Queue.StandingTurns] and ended by [Queue.Resume] or the customer's next text, which is answered
// together with the turn's; when that has arrived already, they wait with it and no turn stands. What only an operator ends is listed by
// [Queue.DeadTurns] and ended by [Queue.Retry]; later texts get their own answer. Errors are those of [Queue.BeginTurn],
// [ErrEnded] for a turn that isn't running, and [ErrInvalid] without a code.
func (q *Queue) Stand(ctx context.Context, lease Lease, standing Standing) error {
	if standing.Code == "" {
		return fmt.Errorf("let a turn stand: %w: it needs a code", ErrInvalid)
	}
	var balance sql.NullInt64
	if standing.BalanceMicros != nil {
		balance = sql.NullInt64{Int64: *standing.BalanceMicros, Valid: true}
	}
	if standing.TurnID == "" {
		return q.begin(ctx, &beginOp{
			turnOp: turnOp{leased: leased{lease: lease}, turnID: store.NewID("trn")}, agentID: standing.AgentID, messageIDs: standing.MessageIDs,
			state: standing.state(0), code: standing.Code, balance: balance,
		})
	}
	return q.do(ctx, "let a turn stand", &standOp{
		turnOp: turnOp{leased: leased{lease: lease}, turnID: standing.TurnID}, standing: standing, balance: balance,
	})
}

type standOp struct {
	turnOp

	standing Standing
	balance  sql.NullInt64
	newer    []string
}

func (op *standOp) read(s *session) {
	op.turnOp.read(s)
	queueOpenTexts(s.tx, op.conversation(), &op.newer)
}

func (op *standOp) run(_ context.Context, s *session) error {
	c := op.asking(s)
	if c == nil {
		return nil
	}
	state := op.standing.state(time.Duration(s.now-op.createdAt) * time.Millisecond)
	op.end(s, state, op.standing.Code, op.balance)
	c.attention = op.standing.Code
	c.touch(s.now)
	if state == TurnNeedsAttention && len(op.newer) > 0 {
		takeUp(s.tx, c.id, s.now) // otherwise newer ones could be answered first
	}
	return nil
}
