package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// ledgerHold and ledgerCharge are what each call holds and then costs, in micros.
	ledgerHold, ledgerCharge = 100, 25
	// ledgerFunds is what each organization begins with; no run can spend it.
	ledgerFunds = 1_000_000_000_000
	// manyOrgs is the other end from one hot organization.
	manyOrgs = 1000
)

// ledgerRow is one line of the table: so many callers at a time, on so many organizations.
type ledgerRow struct{ callers, orgs int }

var ledgerRows = []ledgerRow{{1, 1}, {1, manyOrgs}, {16, 1}, {16, manyOrgs}, {128, 1}, {128, manyOrgs}}

// ledgerFigures are what one slice of one way showed.
type ledgerFigures struct {
	operations int
	elapsed    time.Duration
}

func (f ledgerFigures) rate() float64 { return float64(f.operations) / f.elapsed.Seconds() }

// runLedger measures the ledger without anything around it: holds and settlements, each durable when it returns. It
// compares the writer, which lets concurrent operations share transactions, with one transaction per operation.
func runLedger(ctx context.Context, rounds int, slice time.Duration) error {
	engines := []store.Engine{store.SQLite}
	if os.Getenv(postgresVariable) != "" {
		engines = append(engines, store.Postgres)
	} else {
		fmt.Printf("PostgreSQL is left out: %s is not set (scripts/services.sh sets it)\n", postgresVariable)
	}
	for _, engine := range engines {
		if err := runLedgerOn(ctx, engine, rounds, slice); err != nil {
			return fmt.Errorf("%s: %w", engine, err)
		}
	}
	return nil
}

func runLedgerOn(ctx context.Context, engine store.Engine, rounds int, slice time.Duration) (err error) {
	bank, err := openBank(ctx, engine)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bank.close()) }()
	fmt.Printf("\nledger on %s, operations/s (a hold or a settlement, durable)\n", engine)
	fmt.Printf("  %7s %14s %12s %12s %10s %14s\n", "callers", "organizations", "batched", "alone", "ratio", "hot to many")
	served := 0
	hot := map[int]float64{}
	for _, row := range ledgerRows {
		var batched, alone []ledgerFigures
		for round := range rounds + 1 { // the first one warms up
			for _, way := range []*[]ledgerFigures{&batched, &alone} {
				books := bank.batched
				if way == &alone {
					books = bank.alone
				}
				f, err := loadLedger(ctx, bank, books, row, slice)
				if err != nil {
					return fmt.Errorf("%d callers, %d organizations: %w", row.callers, row.orgs, err)
				}
				served += f.operations / 2
				if round > 0 {
					*way = append(*way, f)
				}
			}
		}
		ratios := make([]float64, len(batched))
		for i := range batched {
			ratios[i] = batched[i].rate() / alone[i].rate()
		}
		rate := medianRate(batched)
		fmt.Printf("  %7d %14d %12.0f %12.0f %10.2f", row.callers, row.orgs, rate, medianRate(alone), median(ratios))
		if row.orgs == 1 {
			hot[row.callers] = rate
			fmt.Println()
		} else {
			fmt.Printf(" %14.2f\n", hot[row.callers]/rate)
		}
	}
	return bank.check(ctx, served)
}

func medianRate(figures []ledgerFigures) float64 {
	rates := make([]float64, len(figures))
	for i, f := range figures {
		rates[i] = f.rate()
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// ledgerBook is one way to the ledger.
type ledgerBook interface {
	Hold(ctx context.Context, hold billing.Hold) (*billing.Replay, error)
	Settle(ctx context.Context, settlement billing.Settlement) (billing.Settled, error)
}

// loadLedger lets callers hold and settle for a while; caller i uses books[i mod len].
func loadLedger(ctx context.Context, bank *bank, books []ledgerBook, row ledgerRow, slice time.Duration) (ledgerFigures, error) {
	end := time.Now().Add(slice)
	began := time.Now()
	operations, faults := make([]int, row.callers), make([]error, row.callers)
	var group sync.WaitGroup
	for i := range row.callers {
		group.Go(func() {
			for n := i; time.Now().Before(end) && ctx.Err() == nil; n += row.callers {
				if faults[i] = callLedger(ctx, books[i%len(books)], bank.orgs[n%row.orgs]); faults[i] != nil {
					return
				}
				operations[i] += 2
			}
		})
	}
	group.Wait()
	f := ledgerFigures{elapsed: time.Since(began)}
	for _, n := range operations {
		f.operations += n
	}
	return f, errors.Join(errors.Join(faults...), ctx.Err())
}

// ledgerPrice is the price by which a call's tokens cost ledgerCharge.
var ledgerPrice = billing.Price{Input: 1_000_000, Output: 2_000_000, CachedInput: -1}

// callLedger is what a call does to the ledger.
func callLedger(ctx context.Context, book ledgerBook, org bankOrg) error {
	id, wallet := store.NewID("call"), billing.WalletID{OrgID: org.id, Env: store.Live}
	_, err := book.Hold(ctx, billing.Hold{CallID: id, Wallet: wallet, AmountMicros: ledgerHold, ExpiresIn: time.Hour})
	if err != nil {
		return fmt.Errorf("holding: %w", err)
	}
	settled, err := book.Settle(ctx, billing.Settlement{
		ReservedMicros: ledgerHold, Price: ledgerPrice, Call: billing.Call{
			ID: id, KeyID: org.keyID, Model: "bench/m", Provider: "bench", RequestID: "req_" + id, Wallet: wallet,
			Usage: billing.Usage{PromptTokens: 11, CompletionTokens: 7}, UsageSource: billing.UsageProvider, Outcome: "completed",
		},
	})
	if err != nil {
		return fmt.Errorf("settling: %w", err)
	}
	if settled.ChargedMicros != ledgerCharge {
		return fmt.Errorf("charged %d instead of %d", settled.ChargedMicros, ledgerCharge)
	}
	return nil
}
