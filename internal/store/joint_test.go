package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// carrier is an operation that carries one of items, nil for none, and fails then if it is told to.
type carrier struct {
	carries *insert
	fault   error
}

func (c *carrier) Joins() store.Kind {
	if c.carries == nil {
		return nil
	}
	return &items{name: "items"}
}

// carriers hands all operations that aren't its own to items, in one call.
type carriers struct{ items *items }

func (carriers) Name() string { return "carriers" }

func (k carriers) Apply(ctx context.Context, tx store.Tx, ops []store.Op) []error {
	var others []store.Op
	var fault error
	for _, op := range ops {
		own, ok := op.(*carrier)
		switch {
		case !ok:
			others = append(others, op)
		case own.carries != nil:
			others, fault = append(others, own.carries), errors.Join(fault, own.fault)
		}
	}
	errs := make([]error, len(ops))
	for i := range errs {
		errs[i] = fault
	}
	if len(others) > 0 {
		for i, err := range k.items.Apply(ctx, tx, others) {
			errs[i%len(errs)] = errors.Join(fault, err)
		}
	}
	return errs
}

// TestJointOperations: operations that others carry are applied with all of their kind in the transaction, by the carriers' kind. What fails
// with them runs again, and is apart then.
func TestJointOperations(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		carrier *carrier
		want    [2]int64 // calls of Apply of items by the writer and by the carriers
		rows    int
		err     error
	}{
		"nothing is carried":  {&carrier{}, [2]int64{1, 0}, 2, nil},
		"one is carried":      {&carrier{carries: &insert{ID: 3}}, [2]int64{0, 1}, 3, nil},
		"the carrier is lost": {&carrier{carries: &insert{ID: 3}, fault: broken}, [2]int64{2, 2}, 2, broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone, carried := &items{name: "items"}, &items{name: "items"}
			db := storetest.Open(t, store.SQLite, alone, carriers{carried})
			db.Unhurried()
			createItems(t, db)
			atGate := closeGate(t, db)
			writes := []*store.PendingWrite{
				db.Submit(alone, &insert{ID: 1}), db.Submit(carriers{}, test.carrier), db.Submit(alone, &insert{ID: 2}),
			}
			require.NoError(t, atGate.open())
			for _, write := range writes {
				<-write.Done()
			}
			require.NoError(t, writes[0].Err())
			require.NoError(t, writes[2].Err())
			require.ErrorIs(t, writes[1].Err(), test.err)
			require.Equal(t, test.rows, countItems(t, db))
			require.Equal(t, test.want, [2]int64{alone.calls.Load(), carried.calls.Load()})
		})
	}
}
