package writer

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// noted is an operation that notes what happens to it.
type noted struct {
	notes  []string
	faulty bool
}

func (n *noted) Undo() { n.notes = append(n.notes, "undone") }

// notingKind applies noted operations; one that is faulty fails its group.
type notingKind struct{}

var errFaulty = errors.New("faulty")

func (notingKind) Name() string { return "noted" }

func (notingKind) Apply(_ context.Context, _ driver.Tx, ops []Op) (faults []error) {
	faults = make([]error, len(ops))
	for i, op := range ops {
		op := op.(*noted) //nolint:forcetypeassert // nothing else is sent
		op.notes = append(op.notes, "applied")
		if op.faulty {
			faults[i] = errFaulty
		}
	}
	return faults
}

// endingEngine commits with an error.
type endingEngine struct {
	slowEngine

	ends error
}

type endingTransaction struct {
	slowTransaction

	ends error
}

func (e *endingEngine) Begin(ctx context.Context) (driver.Transaction, error) {
	return &endingTransaction{slowTransaction{ctx: ctx}, e.ends}, nil
}

func (t *endingTransaction) Commit(context.Context) error { return t.ends }

// TestUndo guarantees that what an operation kept in memory is taken back whenever its transaction is known to have failed, before it is
// applied again, and never otherwise.
func TestUndo(t *testing.T) {
	t.Parallel()
	errCommit := errors.New("refused")
	for name, test := range map[string]struct {
		commit, want  error
		faulty        bool
		notes, others []string
	}{
		"written":         {notes: []string{"applied"}, others: []string{"applied"}},
		"one is faulty":   {faulty: true, want: errFaulty, notes: []string{"applied", "undone", "applied", "undone"}, others: []string{"applied", "undone", "applied"}},
		"refused COMMIT":  {commit: errCommit, want: errCommit, notes: []string{"applied", "undone"}, others: []string{"applied", "undone"}},
		"unknown outcome": {commit: driver.ErrCommitUnknown, want: driver.ErrCommitUnknown, notes: []string{"applied"}, others: []string{"applied"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := mustNew(&endingEngine{ends: test.commit}, Options{Kinds: []Kind{notingKind{}}, Logger: slog.New(slog.DiscardHandler)})
			op, other := &noted{faulty: test.faulty}, &noted{}
			writes := []*PendingWrite{w.Submit(notingKind{}, op), w.Submit(notingKind{}, other)}
			go w.Run()
			defer func() { require.NoError(t, w.Close(context.Background())) }()
			for _, write := range writes {
				<-write.Done()
			}
			require.ErrorIs(t, writes[0].Err(), test.want)
			require.Equal(t, test.notes, op.notes)
			require.Equal(t, test.others, other.notes)
		})
	}
}
