package inbox

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ruling is what a step decides about its call, when it has been applied.
type ruling struct {
	replaced string
	refused  error
	lost     bool
}

var errUncommitted = errors.New("the commit is lost")

// with returns the lease with a call whose steps are committed as the ledger does, and the ruling of the last one.
func (q *inboxTest) with(lease Lease, callID string) (Lease, *ruling) {
	last := &ruling{}
	lease.Call = &Call{ID: callID, Commit: func(ctx context.Context, step Step) error {
		err := q.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
			return step.Kind().Apply(ctx, tx, []store.Op{step})[0]
		})
		last.replaced, last.lost, last.refused = step.Ruling()
		return errors.Join(err, last.refused)
	}}
	return lease, last
}

// beginning begins a turn for everything that waits, with a call.
func (q *inboxTest) beginning(t testing.TB, lease Lease, callID string) (turn Turn, last *ruling) {
	t.Helper()
	waiting := idsOf(q.open(t, lease).Waiting)
	turn = Turn{ID: store.NewID("trn"), AgentID: "agt_chn_1", Request: []byte("request")}
	lease, last = q.with(lease, callID)
	require.NoError(t, q.BeginCall(context.Background(), lease, turn, waiting))
	return turn, last
}

// TestCallsOfATurn: a turn has one call at a time, and says which one has its place.
func TestCallsOfATurn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turn, last := q.beginning(t, lease, "call_1")
		require.Equal(t, ruling{}, *last)
		one, last := q.with(lease, "call_1")
		waiting := []string{q.value(t, `SELECT id FROM messages`)}
		require.NoError(t, q.BeginCall(ctx, one, turn, waiting), "a repetition")
		require.Equal(t, ruling{}, *last)
		require.NoError(t, q.BeginCall(ctx, one, Turn{ID: turn.ID}, nil), "the hold is tried again")
		require.Equal(t, ruling{}, *last)
		two, last := q.with(lease, "call_2")
		require.ErrorIs(t, q.BeginCall(ctx, two, Turn{ID: store.NewID("trn")}, waiting), ErrEnded, "another turn")
		require.ErrorIs(t, last.refused, ErrEnded)
		require.NoError(t, q.BeginCall(ctx, two, Turn{ID: turn.ID, Request: []byte("shorter")}, nil))
		require.Equal(t, ruling{replaced: "call_1"}, *last)
		require.Equal(t, "call_2", q.value(t, `SELECT call_id FROM turns`))
		require.Equal(t, "shorter", string(q.open(t, lease).Turn.Request))

		one, last = q.with(lease, "call_1")
		_, err := q.Answer(ctx, one, turn.ID, []string{"late"}, false)
		require.NoError(t, err)
		require.True(t, last.lost)
		q.healthy(t)
	})
}

// TestWhichCallIsPaid: a call that has ended is paid unless its turn has or will get another.
func TestWhichCallIsPaid(t *testing.T) {
	t.Parallel()
	other := func(t *testing.T, q *inboxTest, _ Turn) Lease {
		q.crash(t)
		return q.take(t)
	}
	for name, test := range map[string]struct {
		// before happens while the model answers.
		before func(t *testing.T, q *inboxTest, lease Lease, turn Turn)
		err    error
		want   ruling
		state  string // of the turn
	}{
		"answered": {state: TurnAnswered},
		"a person has taken over": {
			before: func(t *testing.T, q *inboxTest, lease Lease, _ Turn) {
				require.NoError(t, q.HandOver(t.Context(), "usr_1", "org_1", lease.ConversationID))
			},
			err: ErrHandedOver, state: TurnDiscarded,
		},
		"answers have become drafts": {
			before: func(t *testing.T, q *inboxTest, _ Lease, _ Turn) { q.exec(t, `UPDATE channels SET drafts = TRUE`) },
			err:    ErrDraftMode, want: ruling{refused: ErrDraftMode}, state: TurnAwaiting,
		},
		"the lease is lost": {
			before: func(t *testing.T, q *inboxTest, _ Lease, turn Turn) { other(t, q, turn) },
			err:    ErrLeaseLost, want: ruling{lost: true}, state: TurnAwaiting,
		},
		"another worker asks again": {
			before: func(t *testing.T, q *inboxTest, _ Lease, turn Turn) {
				lease, last := q.with(other(t, q, turn), "call_2")
				require.NoError(t, q.BeginCall(t.Context(), lease, Turn{ID: turn.ID}, nil))
				require.Equal(t, ruling{replaced: "call_1"}, *last)
			},
			err: ErrLeaseLost, want: ruling{lost: true}, state: TurnAwaiting,
		},
		"another worker has answered": {
			before: func(t *testing.T, q *inboxTest, _ Lease, turn Turn) {
				lease, _ := q.with(other(t, q, turn), "call_2")
				require.NoError(t, q.BeginCall(t.Context(), lease, Turn{ID: turn.ID}, nil))
				_, err := q.Answer(t.Context(), lease, turn.ID, []string{"theirs"}, false)
				require.NoError(t, err)
			},
			err: ErrLeaseLost, want: ruling{lost: true}, state: TurnAnswered,
		},
		"a person has taken over, and the lease is lost": {
			before: func(t *testing.T, q *inboxTest, lease Lease, _ Turn) {
				require.NoError(t, q.HandOver(t.Context(), "usr_1", "org_1", lease.ConversationID))
				q.exec(t, `UPDATE conversations SET lease_token = lease_token + 1`)
			},
			err: ErrLeaseLost, state: TurnDiscarded,
		},
		"the customer was erased": {
			before: func(t *testing.T, q *inboxTest, lease Lease, _ Turn) {
				require.NoError(t, q.DeleteConversation(t.Context(), "usr_1", "org_1", lease.ConversationID))
			},
			err: ErrLeaseLost,
		},
	} {
		for sort, end := range map[string]func(q *inboxTest, lease Lease, turnID string) error{
			"answer": func(q *inboxTest, lease Lease, turnID string) error {
				_, err := q.Answer(context.Background(), lease, turnID, []string{"answer"}, true)
				return err
			},
			"last words": func(q *inboxTest, lease Lease, turnID string) error {
				_, err := q.AnswerAndHandOver(context.Background(), lease, turnID, HandoverAssistant, []string{"answer"}, true)
				return err
			},
		} {
			t.Run(name+", "+sort, func(t *testing.T) {
				t.Parallel()
				each(t, func(t *testing.T, q *inboxTest) {
					q.arrive(t, textOf("ann", "1", "one"))
					lease := q.take(t)
					turn, _ := q.beginning(t, lease, "call_1")
					if test.before != nil {
						test.before(t, q, lease, turn)
					}
					lease, last := q.with(lease, "call_1")
					require.ErrorIs(t, end(q, lease, turn.ID), test.err)
					require.Equal(t, test.want, *last)
					if test.state != "" {
						require.Equal(t, test.state, q.value(t, `SELECT state FROM turns`))
					}
				})
			})
		}
	}
}

// TestSupersededCall: an answer that newer texts discard is paid, too.
func TestSupersededCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turn, _ := q.beginning(t, lease, "call_1")
		lease, last := q.with(lease, "call_1")
		lease.Call.Supersede = true
		_, err := q.Answer(t.Context(), lease, turn.ID, []string{"answer"}, false)
		require.NoError(t, err, "no newer text waits")
		require.Equal(t, ruling{}, *last)

		q.arrive(t, textOf("ann", "2", "two"))
		turn, _ = q.beginning(t, lease, "call_2")
		q.arrive(t, textOf("ann", "3", "three"))
		lease, _ = q.with(lease, "call_2")
		_, err = q.Answer(t.Context(), lease, turn.ID, []string{"answer"}, false)
		require.NoError(t, err, "it may go out all the same")

		q.arrive(t, textOf("ann", "4", "four"))
		turn, _ = q.beginning(t, lease, "call_3")
		q.arrive(t, textOf("ann", "5", "five"))
		lease, last = q.with(lease, "call_3")
		lease.Call.Supersede = true
		_, err = q.Answer(t.Context(), lease, turn.ID, []string{"answer"}, false)
		require.ErrorIs(t, err, ErrSuperseded)
		require.Equal(t, ruling{}, *last)
	})
}

// TestCommitThatFails: its error is the step's, whatever the step had decided.
func TestCommitThatFails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turn, _ := q.beginning(t, lease, "call_1")
		lease.Call = &Call{ID: "call_1", Commit: func(context.Context, Step) error { return errUncommitted }}
		_, err := q.Answer(t.Context(), lease, turn.ID, []string{"a"}, true)
		require.ErrorIs(t, err, errUncommitted)
		require.Equal(t, TurnAwaiting, q.value(t, `SELECT state FROM turns`))
	})
}

// TestRunningTurnInOneBatch: an operation sees the turn that another one of its batch has begun.
func TestRunningTurnInOneBatch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		ids := idsOf(q.open(t, lease).Waiting)
		require.NoError(t, errors.Join(q.together(t, func(q *Queue) error {
			return q.BeginCall(context.Background(), lease, Turn{ID: store.NewID("trn"), AgentID: "agt_chn_1", Request: []byte("request")}, ids)
		}, func(batched *Queue) error {
			return batched.takeBack(context.Background(), messageKey{"org_1", "chn_1", q.messageID("1")})
		})...))
		require.Equal(t, TurnSuperseded, q.value(t, `SELECT state FROM turns`))
		q.healthy(t)
	})
}
