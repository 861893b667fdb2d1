// Command bench measures the gateway against stock reverse_proxy in the same binary, in one interleaved run, and
// prints ratios (design §10). Absolute figures depend on the machine; the ratios are what counts.
//
// It is honest about its work: every answer is checked, the upstream's count must equal the answers, and the wallet
// must have lost exactly what the answers said they charged; every webhook that was acknowledged must be a row of the
// database. Otherwise it exits with 1.
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
	"time"
)

func main() {
	log.SetFlags(0)
	binary := flag.String("caddy", "dist/caddy", "the built binary (without the race detector)")
	rounds := flag.Int("rounds", 7, "interleaved rounds; medians are reported")
	slice := flag.Duration("slice", 1500*time.Millisecond, "how long each variant runs in a round")
	only := flag.String("only", "", "run only the row whose name contains this")
	ledger := flag.Bool("ledger", false, "measure the ledger alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *ledger {
		err = runLedger(ctx, *rounds, *slice)
	} else {
		err = run(ctx, *binary, *rounds, *slice, *only)
	}
	stop()
	if err != nil {
		log.Fatal("bench: ", err)
	}
}

func run(ctx context.Context, binary string, rounds int, slice time.Duration, only string) error {
	upstream, err := startUpstream()
	if err != nil {
		return fmt.Errorf("starting the upstream: %w", err)
	}
	defer upstream.stop()
	product, err := startProduct(ctx, binary, upstream.address)
	if err != nil {
		return fmt.Errorf("starting the product: %w", err)
	}
	defer product.stop()
	books, err := measure(ctx, product, rows(only), rounds, slice)
	if err != nil {
		return err
	}
	platform := &webhooks{product: product}
	if err := platform.measure(ctx, webhookRows(only), rounds, slice); err != nil {
		return err
	}
	return errors.Join(books.check(ctx, product, upstream), platform.check(ctx))
}
