// Command bench measures the gateway against the reverse_proxy of stock Caddy in a process of its own, in one interleaved run, and
// prints ratios. Absolute figures depend on the machine; the ratios are what counts.
//
// It is honest about its work: every answer is checked, the upstream's count must equal the answers, and the wallets
// must have lost exactly what the answers said they charged; every webhook that was acknowledged must be a row of the
// database. Otherwise it exits with 1.
//
// Rows on PostgreSQL and Redis use the servers that scripts/services.sh starts, and are left out without them. The CPU
// of a row is the product's; that of the servers stands beside it and is in no ratio.
//
// The rows backlog run the product's worker beside queues of any length; every customer must have got one answer, and paid for it.
//
// The rows growth measure calls and the doctor in stores of up to ten million calls, a million keys and a hundred thousand organizations.
//
// The rows overload, on request, ask more of a slowed-down store than it can do, and the bench exits with 1 unless the product recovers in time.
//
// The rows abuse, on request, measure another tenant's work while somebody misbehaves, and the bench exits with 1 when that is felt.
//
// With -leak URL it sends calls to any gateway with OpenAI's interface whose key, in LEAK_KEY, has a budget, and prints the money spent above it.
//
// With -ledger it measures the ledger alone: what it gains that concurrent operations share transactions.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	binary := flag.String("caddy", "dist/caddy", "the built binary (without the race detector)")
	stock := flag.String("stock", "dist/caddy-stock", "the base of the ratios: stock Caddy, as ./tests/stock builds it")
	crash := flag.String("crash", "dist/caddy-crash", "the same with failpoints, for the row `overload` on SQLite")
	rounds := flag.Int("rounds", 7, "interleaved rounds; medians are reported")
	slice := flag.Duration("slice", 1500*time.Millisecond, "how long each variant runs in a round")
	only := flag.String("only", "", "run only the rows whose name contains this")
	runs := flag.Int("runs", 1, "how often everything is measured; -out shows the spread")
	out := flag.String("out", "", "write a page, a plot and a profile of each row into this folder")
	ledger := flag.Bool("ledger", false, "measure the ledger alone")
	var l leak
	flag.StringVar(&l.url, "leak", "", "measure the leak of the budget of the key in LEAK_KEY at this base URL of a gateway, such as http://localhost:8080/v1")
	flag.StringVar(&l.model, "leak-model", "", "the model of these calls")
	flag.IntVar(&l.calls, "leak-calls", 1000, "how many calls; together they must cost more than the budget")
	flag.IntVar(&l.parallel, "leak-parallel", 1000, "how many of them run at the same time")
	flag.Int64Var(&l.budget, "leak-budget", 0, "what is left of the budget, in micros")
	flag.Int64Var(&l.input, "leak-input", 0, "the price of a million prompt tokens in micros, if answers have no svc.charged_micros")
	flag.Int64Var(&l.output, "leak-output", 0, "the same of completion tokens")
	writer := flag.Bool("writer", false, "be the second process of the row `worker`; the bench starts it by itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	switch {
	case *writer:
		err = runWriter(ctx, os.Stdin, os.Stdout)
	case l.url != "":
		l.key = os.Getenv("LEAK_KEY")
		var result *leaked
		if result, err = l.run(ctx); result != nil {
			l.report(os.Stdout, result)
		}
	case *ledger:
		err = runLedger(ctx, *rounds, *slice)
	default:
		b := &bench{binary: *binary, crash: *crash, stock: *stock, rounds: *rounds, slice: *slice, only: *only, out: *out, sheet: new(sheet)}
		err = b.run(ctx, *runs)
	}
	stop()
	if err != nil {
		log.Fatal("bench: ", err)
	}
}

// bench is what is measured, and how.
type bench struct {
	binary, crash, stock string
	rounds               int
	slice                time.Duration
	only                 string
	out                  string // "": nothing is written
	sheet                *sheet
	profiles             bool // in the last run, so that profiles cost the others nothing
}

// run measures everything so many times. What was measured is written even if a row fails.
func (b *bench) run(ctx context.Context, runs int) (err error) {
	for i := range runs {
		if runs > 1 {
			fmt.Printf("\nrun %d of %d\n", i+1, runs)
		}
		b.profiles = b.out != "" && i == runs-1
		if err = b.once(ctx); err != nil {
			break
		}
	}
	if b.out != "" {
		err = errors.Join(err, b.sheet.write(b.out, os.Args[1:]))
	}
	return err
}

func (b *bench) once(ctx context.Context) error {
	only, found := b.only, false
	for _, all := range houses() {
		h := all.chosen(only)
		if len(h.rows)+len(h.webhooks) == 0 {
			continue
		}
		found = true
		if absent := h.absent(); absent != "" {
			fmt.Printf("\nthe rows of %s are left out: %s is not set (scripts/services.sh sets it)\n", h.name, absent)
			continue
		}
		if err := h.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	if strings.Contains(tripsRowName, only) {
		found = true
		if err := b.runTrips(ctx); err != nil {
			return err
		}
	}
	if strings.Contains(memoryRowName, only) {
		found = true
		if err := b.runMemory(ctx); err != nil {
			return err
		}
	}
	if strings.Contains(workerRowName, only) {
		found = true
		if err := b.runWorker(ctx); err != nil {
			return err
		}
	}
	if strings.Contains(pacedRowName, only) {
		found = true
		if err := b.runPaced(ctx); err != nil {
			return err
		}
	}
	if rows := backlogRows(only); len(rows) > 0 {
		found = true
		if err := b.runBacklog(ctx, rows); err != nil {
			return err
		}
	}
	if rows := growthRows(only); len(rows) > 0 {
		found = true
		if err := b.runGrowth(ctx, rows); err != nil {
			return err
		}
	}
	if rows := overloadRows(only); len(rows) > 0 {
		found = true
		if err := b.runOverload(ctx, rows); err != nil {
			return err
		}
	}
	if rows := abuseRows(only); len(rows) > 0 || only == worstRowName {
		found = true
		if err := b.runAbuse(ctx, rows); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no row's name contains %q", only)
	}
	return nil
}
