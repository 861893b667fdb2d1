package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caddy-svc/caddy-svc/tests/abuse"
)

const (
	// abuseRounds are how often the bystander is measured alone and under attack, in turns.
	abuseRounds = 3
	// abuseLasts is how many slices each of these measurements lasts: 15 s of the usual ones.
	abuseLasts = 10
	// abusePause lets the product close an attack's connections before the bystander is measured alone again.
	abusePause = 2 * time.Second
	// memoryLooks is how often the product's memory is read.
	memoryLooks = 20 * time.Millisecond
)

var (
	// abuseBar is the 99th percentile of the bystander's work under attack to that of the same work alone.
	abuseBar = bar{must: 3, goal: 2}
	// abuseTime replaces abuseBar where the product does what the attacker asks for: the 99th percentile under attack, in milliseconds.
	abuseTime = bar{must: 500, goal: 100}
	// abuseMemory is the product's resident memory over that of the idle product, in MiB. workMemory replaces it as abuseTime does.
	abuseMemory = bar{must: 400, goal: 200}
	workMemory  = bar{must: 300, goal: 150}
)

var errFelt = errors.New("an attack was felt by another tenant, or took too much memory")

// force is how hard an attack is. The attackers share the machine's processors with the product, which attackers of a real
// server don't; so they go at a pace that leaves the machine to the product, unless their rate is the attack: credentials
// are guessed as fast as they are answered by so many workers.
func force(attack string) *abuse.Siege {
	return map[string]*abuse.Siege{
		"slow bodies":                    {Connections: 2000, PerSecond: 500},
		"idle connections":               {Connections: 10_000, PerSecond: 1000},
		"hostile JSON":                   {Workers: 4, PerSecond: 20},
		"wrong credentials":              {Workers: 8, Connections: 100},
		"prompts that are hard to count": {Workers: 4, PerSecond: 10, Connections: 10},
		"slow readers":                   {Connections: 500, PerSecond: 200},
		"unread lists":                   {Connections: 100, Workers: 4, PerSecond: 50},
		"unread streams":                 {Connections: 800, Workers: 4, PerSecond: 200},
		"unread replays":                 {Connections: 400, Workers: 1, PerSecond: 200},
		"unread files":                   {Connections: 900, Workers: 8, PerSecond: 200},
		"visitors' lists":                {Connections: 400, Workers: 16, PerSecond: 200},
		"half-sent headers":              {Connections: 7000, PerSecond: 1000},
		"documents that are hard to cut": {Connections: 8, Workers: 8},
		"searches":                       {Connections: 200, Workers: 48},
		"many changes":                   {Connections: 10, Workers: 8},
		"own deliveries":                 {Connections: 4, Workers: 4},
		"deliveries for many channels":   {Connections: 20, Workers: 4},
		"test events":                    {Connections: 100, Workers: 8},
		"questions to platforms":         {Connections: 200, Workers: 16},
		"guesses from many addresses":    {Connections: 500, Workers: 250},
	}[attack]
}

func abuseRowName(a abuse.Attack) string { return "abuse, " + a.Name }

// abuseRows are the attacks whose row's name contains only. They take as long as all others together: they are measured when they are asked
// for, as make soak does.
func abuseRows(only string) (rows []abuse.Attack) {
	if !strings.Contains(only, "abuse") {
		return nil
	}
	for _, attack := range abuse.Attacks() {
		if strings.Contains(abuseRowName(attack), only) {
			rows = append(rows, attack)
		}
	}
	return rows
}

// runAbuse measures each attack on a product of its own. An attack under which the bystander got another answer than the
// usual one was felt, too; all others are still measured before that is an error.
func (b *bench) runAbuse(ctx context.Context, rows []abuse.Attack) error {
	felt := false
	miss := func(name string, err error) {
		if err != nil {
			fmt.Printf("\n%s: MISSED: %v\n", name, err)
			felt = true
		}
	}
	for _, attack := range rows {
		row := &abuseRow{attack: attack, lasts: abuseLasts * b.slice, alone: make(work), under: make(work)}
		if err := row.run(ctx, b.binary); err != nil {
			miss(abuseRowName(attack), err)
		} else {
			felt = row.report(b.sheet) || felt
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if strings.Contains(worstRowName, b.only) {
		miss(worstRowName, b.runWorst(ctx))
	}
	if felt {
		return errFelt
	}
	return nil
}

// work is how long the bystander's requests took, by their kinds.
type work map[string][]time.Duration

// abuseRow is one attack and what was measured.
type abuseRow struct {
	attack abuse.Attack
	lasts  time.Duration

	alone, under work
	idle, most   int64 // resident memory in KiB
	// Processor time per second under attack.
	productCPU, attackersCPU float64
}

func (r *abuseRow) run(ctx context.Context, binary string) (err error) {
	tenants, err := startTenants(ctx, binary)
	if err != nil {
		return err
	}
	defer func() { err = tenants.product.end(err) }()
	if err := tenants.work(ctx, r.lasts/2, make(work)); err != nil { // warms up
		return err
	}
	if r.idle, err = tenants.product.resident(); err != nil {
		return err
	}
	for range abuseRounds {
		if err := tenants.work(ctx, r.lasts, r.alone); err != nil {
			return fmt.Errorf("alone: %w", err)
		}
		if err := r.besiege(ctx, tenants); err != nil {
			return err
		}
		<-time.After(abusePause)
	}
	return tenants.product.doctor(ctx)
}

// besiege measures the bystander and the product from an attack's begin to its end.
func (r *abuseRow) besiege(ctx context.Context, tenants *tenants) error {
	ctx, over := context.WithCancel(ctx)
	defer over()
	siege := force(r.attack.Name)
	siege.Target = tenants.target
	var attack sync.WaitGroup
	var attackErr, memoryErr error
	used, began := ownCPU(), time.Now()
	product, err := tenants.product.cpu()
	if err != nil {
		return err
	}
	attack.Go(func() { attackErr = r.attack.Run(ctx, siege) })
	attack.Go(func() { memoryErr = r.watch(ctx, tenants.product) })
	err = tenants.work(ctx, r.lasts, r.under)
	after, cpuErr := tenants.product.cpu()
	seconds := time.Since(began).Seconds()
	r.productCPU += (after - product).Seconds() / seconds / abuseRounds
	r.attackersCPU += (ownCPU() - used).Seconds() / seconds / abuseRounds
	over()
	attack.Wait()
	if err != nil {
		err = fmt.Errorf("under attack: %w", err)
	}
	return errors.Join(err, cpuErr, attackErr, memoryErr)
}

// watch keeps the most memory that the product takes until ctx ends.
func (r *abuseRow) watch(ctx context.Context, p *product) error {
	for {
		now, err := p.resident()
		if err != nil {
			return err
		}
		r.most = max(r.most, now)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(memoryLooks):
		}
	}
}

// ownCPU is the processor time of the bench: of attackers, bystander and vendor.
func ownCPU() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // fails for other processes only
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// report prints the row, and reports whether the attack was felt.
func (r *abuseRow) report(to *sheet) (felt bool) {
	fmt.Printf("\n%s\n  %-10s %8s %12s %12s %15s %15s   p99: the ratio, or where it works for the attacker the ms\n", abuseRowName(r.attack), "work", "n", "alone p50 ms", "alone p99 ms", "attacked p50 ms", "attacked p99 ms")
	for _, kind := range workKinds {
		alone, under := []figures{{latency: r.alone[kind]}}, []figures{{latency: r.under[kind]}}
		figure, of, what := percentile(under, .99)/percentile(alone, .99), abuseBar, "p99"
		if r.attack.Works {
			figure, of, what = percentile(under, .99), abuseTime, "p99 ms"
		}
		felt = felt || figure > of.must
		fmt.Printf("  %-10s %8d %12.2f %12.2f %15.2f %15.2f   %s\n", kind, len(r.under[kind]), percentile(alone, .5), percentile(alone, .99),
			percentile(under, .5), percentile(under, .99), to.judge(abuseRowName(r.attack), variant(kind), what, figure, of, true))
	}
	over := float64(r.most-r.idle) / 1024
	memory := abuseMemory
	if r.attack.Works {
		memory = workMemory
	}
	felt = felt || over > memory.must
	fmt.Printf("  memory: %.0f MiB idle, at most %s over it; processors: product %.2f, attackers, vendor and bystander %.2f\n",
		float64(r.idle)/1024, to.judge(abuseRowName(r.attack), "product", "MiB over idle", over, memory, true), r.productCPU, r.attackersCPU)
	return felt
}
