package topup

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/payments"
)

// lister is a provider with a list that a test gives it.
type lister struct {
	scripted

	lists atomic.Int32
	list  func(ctx context.Context, since time.Time, found func(payments.Payment) bool) error
}

func (l *lister) List(ctx context.Context, since time.Time, found func(payments.Payment) bool) error {
	l.lists.Add(1)
	return l.list(ctx, since, found)
}

// TestComparison guarantees that one of several processes compares once a day, that a payment which was never delivered is booked, that one which was
// delivered isn't booked again, and that the log names the first one.
func TestComparison(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{billing.Ledger}, func(t *testing.T, db *store.DB) {
		var logged strings.Builder
		listed := &lister{list: func(_ context.Context, since time.Time, found func(payments.Payment) bool) error {
			if age := time.Since(since); age < comparedTime-time.Minute || age > comparedTime+time.Minute {
				return errors.New("the list is of another time")
			}
			for _, id := range []string{"1", "2"} {
				if !found(payments.Payment{ID: id, Kind: payments.Paid, Amount: 500, Currency: "VND", At: time.Now()}) {
					return errors.New("stopped")
				}
			}
			return nil
		}}
		p := Payments{
			Book: billing.NewBook(db), Providers: map[string]Provider{"bank": {Provider: listed}, "other": {Provider: new(scripted)}},
			Rates: map[string]Rate{"VND": {Micros: 10}}, Log: slog.New(slog.NewTextHandler(&logged, nil)),
		}
		listed.made = []payments.Payment{{ID: "1", Kind: payments.Paid, Amount: 500, Currency: "VND", At: time.Now()}}
		require.NoError(t, p.Receive(t.Context(), "bank", new(payments.Delivery)))
		var processes sync.WaitGroup
		for range 4 {
			processes.Go(func() { _ = p.compareDue(t.Context(), db, "a process") })
		}
		processes.Wait()
		require.NoError(t, p.compareDue(t.Context(), db, "a process"))
		require.EqualValues(t, 1, listed.lists.Load())
		require.Equal(t, 1, strings.Count(logged.String(), "was never delivered"))
		require.Contains(t, logged.String(), "payment=2")
		booked, err := store.ReadRow(t.Context(), db, "count", store.ScanValue[int], `SELECT count(*) FROM payments`)
		require.NoError(t, err)
		require.Equal(t, 2, booked)

		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `UPDATE marks SET at = at - $1 WHERE name = 'payments'`, comparePeriod.Milliseconds())
			return nil
		}))
		require.NoError(t, p.compareDue(t.Context(), db, "another process"))
		require.EqualValues(t, 2, listed.lists.Load(), "a day later")
		require.Equal(t, 1, strings.Count(logged.String(), "was never delivered"))
		require.Nil(t, (&Payments{Providers: map[string]Provider{"other": {Provider: new(scripted)}}}).StartComparing(db, "x"))
	})
}

// TestListThatFails guarantees that a list which hangs, panics or fails ends within its time, and that nothing is booked after it.
func TestListThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Payments{Log: slog.New(slog.DiscardHandler)}
		release := make(chan struct{})
		for name, list := range map[string]func(context.Context, time.Time, func(payments.Payment) bool) error{
			"hangs": func(_ context.Context, _ time.Time, found func(payments.Payment) bool) error {
				<-release
				require.False(t, found(payments.Payment{ID: "1"}), "the list was left behind")
				return nil
			},
			"waits": func(ctx context.Context, _ time.Time, _ func(payments.Payment) bool) error {
				<-ctx.Done()
				return ctx.Err()
			},
			"panics": func(context.Context, time.Time, func(payments.Payment) bool) error { panic("secret") },
			"fails": func(context.Context, time.Time, func(payments.Payment) bool) error {
				return errors.New("answered with 500")
			},
		} {
			begun := time.Now()
			err := p.compare(t.Context(), "bank", &lister{list: list}, begun.UnixMilli())
			require.Error(t, err, name)
			require.NotContains(t, err.Error(), "secret")
			require.LessOrEqual(t, time.Since(begun), listTime+leftBehind, name)
		}
		failing := &lister{list: func(context.Context, time.Time, func(payments.Payment) bool) error {
			return errors.New("answered with 500")
		}}
		p.Providers = map[string]Provider{"bank": {Provider: failing}}
		p.compareAll(t.Context(), 0)
		require.EqualValues(t, listTries, failing.lists.Load())
		close(release)
		synctest.Wait()
	})
}
