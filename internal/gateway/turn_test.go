package gateway_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

var errTurn = errors.New("the turn can't go on")

// turnStep is a step of a turn that writes nothing.
type turnStep struct {
	replaced string
	lost     bool
	refused  error
}

func (turnStep) Kind() store.Kind                { return turnSteps{} }
func (s turnStep) Ruling() (string, bool, error) { return s.replaced, s.lost, s.refused }

type turnSteps struct{}

func (turnSteps) Name() string                                        { return "turn steps" }
func (turnSteps) Apply(context.Context, store.Tx, []store.Op) []error { return nil }

// playedTurn is a turn as a worker plays it. It notes its calls.
type playedTurn struct {
	begin, end turnStep
	// unsure is returned after the commit at the turn's beginning, and stops in place of that at its end.
	unsure, stops error

	calls []string
	texts []string
	cuts  int
}

func (p *playedTurn) of(r *gateway.Request) {
	commit := func(ctx context.Context, commit gateway.Commit, step turnStep) error {
		if commit == nil {
			return nil
		}
		return commit(ctx, step)
	}
	r.Turn = &gateway.Turn{
		Begin: func(ctx context.Context, callID string, write gateway.Commit) error {
			p.calls = append(p.calls, callID)
			return errors.Join(commit(ctx, write, p.begin), p.unsure)
		},
		End: func(text string, write gateway.Commit) error {
			p.texts = append(p.texts, text)
			if p.stops != nil {
				return p.stops
			}
			return commit(context.Background(), write, p.end)
		},
		Cut: func(write gateway.Commit) error {
			p.cuts++
			return commit(context.Background(), write, p.end)
		},
	}
}

func (f *fixture) held(t *testing.T) int64 {
	t.Helper()
	state, err := f.book.Wallet(t.Context(), wallet())
	require.NoError(t, err)
	return state.HeldMicros
}

// TestTurn: a turn's call is held when the turn begins and charged when it ends, which the turn decides.
func TestTurn(t *testing.T) {
	t.Parallel()
	var f *fixture
	var turn playedTurn
	f = setup(t, &script{steps: append([]step{{do: func() { require.Positive(t, f.held(t)) }}}, answered()...)})
	result, err := f.Call(t.Context(), request(turn.of), nil)
	require.NoError(t, err)
	require.Equal(t, "one two", result.Text)
	require.EqualValues(t, 50, result.ChargedMicros)
	require.Equal(t, []string{"one two"}, turn.texts)
	require.Len(t, turn.calls, 1)
	require.EqualValues(t, 50, f.spent(t))

	_, err = f.Call(t.Context(), request(turn.of), newClient())
	require.NoError(t, err)
	require.Equal(t, []string{"one two", ""}, turn.texts, "a sink has the text")
	require.EqualValues(t, 100, f.spent(t))
}

// TestTurnThatDoesNotEnd: when the answer isn't stored, or nobody knows whether it is, the call is neither charged nor given up. The turn's
// next call takes its place.
func TestTurnThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	for name, turn := range map[string]*playedTurn{
		"before its end": {stops: errTurn}, "at its end": {end: turnStep{refused: errTurn}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, &script{steps: answered()})
			_, err := f.Call(t.Context(), request(turn.of), nil)
			requireFailure(t, err, gateway.OutcomeInternalError)
			require.ErrorIs(t, err, errTurn)
			require.NoError(t, f.calls.Wait(t.Context()))
			require.Positive(t, f.held(t))
			next := &playedTurn{begin: turnStep{replaced: turn.calls[0]}}
			_, err = f.Call(t.Context(), request(next.of), nil)
			require.NoError(t, err)
			require.EqualValues(t, 50, f.spent(t))
		})
	}
}

// TestTurnThatDoesNotBegin: then no vendor is asked, and nothing is held.
func TestTurnThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	turn := &playedTurn{begin: turnStep{refused: errTurn}}
	_, err := f.Call(t.Context(), request(turn.of), nil)
	requireFailure(t, err, gateway.OutcomeInternalError)
	require.ErrorIs(t, err, errTurn)
	require.Empty(t, f.script.seen())
	require.Empty(t, turn.texts)
	require.Zero(t, f.spent(t))
}

// TestTurnOfUnknownBeginning: no vendor is asked, and what may be held for the call is released.
func TestTurnOfUnknownBeginning(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	turn := &playedTurn{unsure: store.ErrCommitUnknown}
	_, err := f.Call(t.Context(), request(turn.of), nil)
	requireFailure(t, err, gateway.OutcomeInternalError)
	require.Empty(t, f.script.seen())
	require.NoError(t, f.calls.Wait(t.Context()))
	require.Zero(t, f.spent(t))
}

// TestTurnWithoutCredits begins: its worker decides what becomes of it.
func TestTurnWithoutCredits(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	_, err := f.book.Adjust(t.Context(), "test", wallet(), -credits, "test", "empty", "")
	require.NoError(t, err)
	turn := &playedTurn{}
	_, err = f.Call(t.Context(), request(turn.of), nil)
	requireFailure(t, err, gateway.OutcomeInsufficientCredits)
	require.NotEmpty(t, turn.calls)
	require.Empty(t, f.script.seen())
	require.Empty(t, turn.texts)
}

// TestTurnThatCostsNothing has steps, which it writes by itself.
func TestTurnThatCostsNothing(t *testing.T) {
	t.Parallel()
	f := setup(t, &script{steps: answered()})
	sealed := f.Ring.Seal([]byte("their-key"), vault.ProviderKey(org, "acme"))
	require.NoError(t, f.db.ProviderKeys.Put(t.Context(), "test", store.ProviderKey{OrgID: org, Provider: "acme", Sealed: sealed}))
	turn := &playedTurn{}
	result, err := f.Call(t.Context(), request(turn.of, func(r *gateway.Request) { r.BYOK = true }), nil)
	require.NoError(t, err)
	require.Zero(t, result.ChargedMicros)
	require.Len(t, turn.calls, 1)
	require.Equal(t, []string{"one two"}, turn.texts)
	require.NoError(t, f.db.Close(t.Context()))
}

// TestInterruptedTurn: an answer that people don't want any more costs what was made of it, unless another call of the turn is paid.
func TestInterruptedTurn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps       []step
		lost        bool
		cuts, spent int
	}{
		"in a text":       {steps: []step{text("one "), usage(10, 20, 0)}, cuts: 1, spent: 50},
		"of a lost lease": {steps: []step{text("one "), usage(10, 20, 0)}, lost: true, cuts: 1},
		"before a text":   {cuts: 1, spent: 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancelCause(t.Context())
			f := setup(t, &script{steps: append(test.steps, step{do: func() { interrupt(gateway.ErrInterrupted) }}, step{hang: true})})
			turn := &playedTurn{end: turnStep{lost: test.lost}}
			_, err := f.Call(ctx, request(turn.of), nil)
			requireFailure(t, err, gateway.OutcomeClientGone)
			require.Empty(t, turn.texts)
			require.Equal(t, test.cuts, turn.cuts)
			require.EqualValues(t, test.spent, f.spent(t))
			require.Zero(t, f.held(t))
		})
	}
}

// TestTurnOfAWorkerThatStops: its call is cut and costs nothing, whatever the vendor reported, and the next worker's runs.
func TestTurnOfAWorkerThatStops(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	f := setup(t, &script{steps: []step{text("one "), usage(10, 20, 0), {do: stop}, {hang: true}}})
	turn := &playedTurn{}
	_, err := f.Call(ctx, request(turn.of), nil)
	requireFailure(t, err, gateway.OutcomeExiting)
	require.Empty(t, turn.texts)
	require.Zero(t, f.spent(t))
	require.Equal(t, billing.Settled{ShortfallMicros: 50}, f.observed.settled(), "the operator's")
	f.script.steps = answered()
	_, err = f.Call(t.Context(), request(turn.of), nil)
	require.NoError(t, err)
	require.EqualValues(t, 50, f.spent(t))
}
