package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	tripsRowName = "latency of each round trip, C=1: sqlite, postgres, redis"
	// tripsShare: one connection shows its median in a part of a slice, and there are many variants.
	tripsShare = 3
)

// tripsHouse is one line of the row: a place, and what is asked there.
type tripsHouse struct {
	house

	product *product
	served  *books
	// medians are the median latencies of each round in µs.
	medians map[variant][]float64
}

// trip is a round trip, as the difference between two variants.
type trip struct {
	name          string
	with, without variant
}

var trips = []trip{{"key lookup", keyed, proxied}, {"window", counted, keyed}, {"hold and settle", paid, free}}

// runTrips measures what single steps add to the latency of one request at a time: the key's lookup, the window, and
// hold and settlement with both commits. All places are served in the same rounds.
func (b *bench) runTrips(ctx context.Context) (err error) {
	all := []*tripsHouse{
		{house: house{name: "sqlite", engine: store.SQLite}},
		{house: house{name: "postgres", engine: store.Postgres}},
		{house: house{name: "postgres and redis", engine: store.Postgres, redis: true}},
	}
	all = slices.DeleteFunc(all, func(h *tripsHouse) bool { return h.absent() != "" })
	defer func() {
		for _, h := range all {
			if h.product != nil {
				err = h.product.end(err)
			}
		}
	}()
	for _, h := range all {
		if h.product, err = h.open(ctx, b.binary); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		start, err := h.product.balance(ctx)
		if err != nil {
			return err
		}
		h.served, h.medians = &books{startMicros: start}, map[variant][]float64{}
	}
	for round := range b.rounds + 1 { // the first one warms up
		for _, h := range all {
			if err := h.round(ctx, b.slice/tripsShare, round > 0); err != nil {
				return fmt.Errorf("%s, %s: %w", tripsRowName, h.name, err)
			}
		}
	}
	reportTrips(all)
	for _, h := range all {
		if err := h.served.check(ctx, h.product); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		h.served.report()
	}
	return nil
}

func (h *tripsHouse) round(ctx context.Context, slice time.Duration, counts bool) error {
	for _, v := range []variant{proxied, keyed, counted, free, paid} {
		f, err := load(ctx, h.product, new(servers), row{connections: 1}, v, slice)
		if err != nil {
			return err
		}
		h.served.add(v, f)
		if counts {
			slices.Sort(f.latency)
			h.medians[v] = append(h.medians[v], float64(f.latency[len(f.latency)/2].Nanoseconds())/1000)
		}
	}
	return nil
}

func reportTrips(all []*tripsHouse) {
	fmt.Printf("\n%s\n  medians in µs; in brackets the ratio to reverse_proxy\n  %-20s %14s", tripsRowName, "place", proxied)
	for _, t := range trips {
		fmt.Printf(" %18s", t.name)
	}
	fmt.Println()
	for _, h := range all {
		base := median(slices.Clone(h.medians[proxied]))
		fmt.Printf("  %-20s %14.0f", h.name, base)
		for _, t := range trips {
			added := make([]float64, len(h.medians[t.with]))
			for i := range added {
				added[i] = h.medians[t.with][i] - h.medians[t.without][i]
			}
			micros := median(added)
			fmt.Printf(" %18s", fmt.Sprintf("%.0f (%.2f)", micros, micros/base))
		}
		fmt.Println()
	}
}
