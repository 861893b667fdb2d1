package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// measure runs all rows in interleaved rounds, prints them, and returns what was served.
func (b *bench) measure(ctx context.Context, p *product, s *servers, all []row) (*books, error) {
	if p.stock == nil && len(all) > 0 {
		if err := p.startStock(ctx, b.stock); err != nil {
			return nil, err
		}
	}
	start, err := p.balance(ctx)
	if err != nil {
		return nil, err
	}
	served := &books{startMicros: start}
	for _, line := range all {
		results := make(map[variant][]figures)
		// The first round warms connections, caches and the database up.
		for round := range b.rounds + 1 {
			for _, v := range line.variants {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				f, err := load(ctx, p, s, line, v, b.slice)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", line.name, v, err)
				}
				served.add(v, f)
				if round > 0 {
					results[v] = append(results[v], f)
				}
			}
		}
		line.report(results, b.sheet)
		for _, v := range line.variants[1:] {
			err := b.profile(ctx, p, line.name, v, func() error {
				f, err := load(ctx, p, s, line, v, b.slice)
				served.add(v, f)
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return served, nil
}

// load runs one variant of a row for a while.
func load(ctx context.Context, p *product, s *servers, r row, v variant, slice time.Duration) (figures, error) {
	if v == stock {
		p = p.stock
	}
	clients := make([]*client, r.connections)
	for i := range clients {
		c, err := dial(p.address, p.request(v, r))
		if err != nil {
			return figures{}, err
		}
		if v == paidOnce {
			c.renew = renewKey(c.request)
		}
		clients[i] = c
		defer c.conn.Close() //nolint:revive // all of them are needed until the end
	}
	over, cancel := context.WithTimeout(ctx, slice)
	defer cancel()
	used, err := startMeter(ctx, p, s)
	if err != nil {
		return figures{}, err
	}
	began := time.Now()
	parts := make([]figures, len(clients))
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() { parts[i] = loop(over, c, v, r) })
	}
	group.Wait()
	total := figures{elapsed: time.Since(began)}
	if total.cpu, total.servers, err = used.read(ctx); err != nil {
		return figures{}, err
	}
	for _, part := range parts {
		total.answers += part.answers
		total.charged += part.charged
		total.tokens += part.tokens
		total.latency = append(total.latency, part.latency...)
		total.failures = append(total.failures, part.failures...)
	}
	if len(total.failures) > 0 {
		return figures{}, fmt.Errorf("%d requests failed, the first with: %s", len(total.failures), total.failures[0])
	}
	return total, nil
}

// meter reads what the product and its servers use.
type meter struct {
	product         *product
	servers         *servers
	before, outside time.Duration
}

func startMeter(ctx context.Context, p *product, s *servers) (m meter, err error) {
	m = meter{product: p, servers: s}
	m.before, m.outside, err = m.read(ctx)
	return m, err
}

// read answers what was used since the start.
func (m meter) read(ctx context.Context) (product, servers time.Duration, err error) {
	if product, err = m.product.cpu(); err != nil {
		return 0, 0, err
	}
	servers, err = m.servers.cpu(ctx)
	return product - m.before, servers - m.outside, err
}

func loop(ctx context.Context, c *client, v variant, r row) (f figures) {
	for ctx.Err() == nil {
		began := time.Now()
		said, err := c.ask(v, r.stream)
		if err != nil {
			f.failures = append(f.failures, err.Error())
			return f
		}
		if r.first {
			f.latency = append(f.latency, c.began.Sub(began))
		} else {
			f.latency = append(f.latency, time.Since(began))
		}
		f.answers++
		f.charged += said.chargedMicros
		f.tokens += said.tokens
	}
	return f
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// percentile of the latencies of all rounds, in milliseconds.
func percentile(rounds []figures, p float64) float64 {
	var all []time.Duration
	for _, f := range rounds {
		all = append(all, f.latency...)
	}
	slices.Sort(all)
	return float64(all[int(p*float64(len(all)-1))].Microseconds()) / 1000
}

func each(rounds []figures, of func(figures) float64) []float64 {
	values := make([]float64, len(rounds))
	for i, f := range rounds {
		values[i] = of(f)
	}
	return values
}

// report prints a row: absolute figures for orientation, ratios of the same round for the record.
func (r row) report(results map[variant][]figures, to *sheet) {
	reportHead(r.name+", gc_floor "+gcFloor(), "ratio to "+string(r.variants[0]))
	base := results[r.variants[0]]
	for _, v := range r.variants {
		rounds := results[v]
		reportFigures(v, rounds)
		if v == r.variants[0] {
			fmt.Println()
			continue
		}
		cpu, rate, first := make([]float64, len(rounds)), make([]float64, len(rounds)), make([]float64, len(rounds))
		for i := range rounds {
			cpu[i] = rounds[i].cpuPerAnswer() / base[i].cpuPerAnswer()
			rate[i] = rounds[i].rate() / base[i].rate()
			first[i] = percentile(rounds[i:i+1], .5) / percentile(base[i:i+1], .5)
		}
		fmt.Printf("   cpu %s  rate %s", to.judge(r.name, v, "CPU", median(cpu), r.cpu[v], true),
			to.judge(r.name, v, "answers/s", median(rate), r.rate[v], false))
		if bound, ok := r.latency[v]; ok {
			fmt.Printf("  p50 %s", to.judge(r.name, v, "p50", median(first), bound, true))
		}
		fmt.Println()
	}
}

func reportHead(row, ratio string) {
	fmt.Printf("\n%s\n  %-20s %10s %10s %10s %10s %10s   %s\n", row, "variant", "cpu µs", "servers µs", "answers/s", "p50 ms", "p99 ms", ratio)
}

func reportFigures(v variant, rounds []figures) {
	fmt.Printf("  %-20s %10.0f %10.0f %10.0f %10.2f %10.2f", v, median(each(rounds, figures.cpuPerAnswer)),
		median(each(rounds, figures.serversPerAnswer)), median(each(rounds, figures.rate)), percentile(rounds, .5), percentile(rounds, .99))
}
