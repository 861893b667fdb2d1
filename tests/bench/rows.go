package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// variant is one way of serving the same work.
type variant string

const (
	// stock is reverse_proxy in stock Caddy, in a process of its own: the base of all ratios.
	stock variant = "stock reverse_proxy"
	// proxied is reverse_proxy in the product's process, for other sites beside the gateway.
	proxied variant = "our reverse_proxy"
	free    variant = "no money (BYOK)"
	paid    variant = "strict money"
	// paidOnce is paid with another Idempotency-Key for each call.
	paidOnce variant = "money and key once"
	// paidCounted is paid for an organization whose requests are counted in a window; the others have no limit.
	paidCounted variant = "money and window"
	// paidBudgeted is paid for an organization with three budgets, of itself and its key.
	paidBudgeted variant = "money, three budgets"
	// paidAnthropic and paidGemini are paid with the answer of a vendor that speaks Anthropic's or Gemini's own API.
	paidAnthropic variant = "money, Anthropic's API"
	paidGemini    variant = "money, Gemini's API"
	// keyed and counted are proxied behind a key, and behind a key and a window.
	keyed   variant = "key"
	counted variant = "key and window"
)

// isCall says that the gateway answers, and not reverse_proxy.
func (v variant) isCall() bool {
	return v == free || v == paid || v == paidOnce || v == paidCounted || v == paidBudgeted || v == paidAnthropic || v == paidGemini
}

// row is one line of the figures: the same load on each variant.
type row struct {
	name        string
	connections int
	stream      bool
	first       bool      // latency is that of the first byte of the body
	long        bool      // the prompt has 200,000 bytes, in a window of 128,000 tokens
	variants    []variant // the first is the base of the ratios
	// Bars of each variant, as ratios to the base: processor time per answer, answers per second, median latency.
	cpu, rate, latency map[variant]bar
}

// bar is what a ratio must hold and what it should reach.
type bar struct{ must, goal float64 }

// house is a place and the rows that are measured there, on one product.
type house struct {
	name     string
	engine   store.Engine
	redis    bool
	single   bool // each call is held on its own: tranches are off
	rows     []row
	webhooks []webhookRow
}

func houses() []house {
	return []house{
		{name: "SQLite", engine: store.SQLite, rows: sqliteRows(), webhooks: webhookRows()},
		{
			name: "SQLite without tranches", engine: store.SQLite, single: true,
			rows: []row{{
				name: "Idempotency-Key, C=32, tranches off", connections: 32, variants: []variant{paid, paidOnce},
				cpu: map[variant]bar{paidOnce: {1.3, 1.2}},
			}},
		},
		{
			name: "PostgreSQL", engine: store.Postgres,
			rows: []row{
				postgresRow("postgres, answer, C=32", 32, paid, bar{1.5, 1.0}, stock, free, paid, paidCounted),
				postgresRow("postgres, answer, C=256", 256, paid, bar{0.8, 0.6}, stock, free, paid, paidCounted),
				postgresRow("postgres, budgets, C=32", 32, paidBudgeted, bar{1.05, 1.02}, paid, paidBudgeted),
			},
			webhooks: []webhookRow{
				{name: "postgres, webhook, C=32", connections: 32, rate: bar{0.25, 0.3}},
				{name: "postgres, webhook, C=256", connections: 256, rate: bar{0.4, 0.5}},
			},
		},
		{
			name: "PostgreSQL and Redis", engine: store.Postgres, redis: true,
			rows: []row{
				postgresRow("redis windows, answer, C=32", 32, paidCounted, bar{1.5, 1.0}, stock, paid, paidCounted),
				postgresRow("redis windows, answer, C=256", 256, paidCounted, bar{0.8, 0.6}, stock, paid, paidCounted),
			},
		},
	}
}

// postgresRow is a row with "gateway CPU with PostgreSQL holding the money": the server's own CPU is shown
// beside it and isn't part of the ratio.
func postgresRow(name string, connections int, held variant, b bar, variants ...variant) row {
	return row{name: name, connections: connections, variants: variants, cpu: map[variant]bar{held: b}}
}

func sqliteRows() []row {
	return []row{
		{
			name: "answer, C=1", connections: 1, variants: []variant{stock, free, paid},
			cpu: map[variant]bar{free: {1.4, 1.0}, paid: {3.2, 2.2}},
		},
		{
			name: "answer, C=32", connections: 32, variants: []variant{stock, proxied, free, paid},
			cpu:  map[variant]bar{free: {1.1, 0.85}, paid: {1.5, 1.1}},
			rate: map[variant]bar{paid: {0.7, 0.95}},
		},
		{
			name: "answer, C=256", connections: 256, variants: []variant{stock, free, paid},
			cpu:  map[variant]bar{free: {0.8, 0.6}, paid: {0.95, 0.75}},
			rate: map[variant]bar{paid: {1.1, 1.5}},
		},
		{
			name: "budgets, C=32", connections: 32, variants: []variant{paid, paidBudgeted},
			cpu: map[variant]bar{paidBudgeted: {1.05, 1.02}},
		},
		{
			name: "200 KB prompt, C=8", connections: 8, long: true, variants: []variant{stock, free, paid},
			cpu: map[variant]bar{free: {1.4, 1.2}, paid: {1.5, 1.3}},
		},
		{
			name: "first byte of a stream, C=1", connections: 1, stream: true, first: true, variants: []variant{stock, free, paid},
			latency: map[variant]bar{free: {1.2, 1.0}, paid: {1.2, 1.0}},
		},
		{
			name: "50-chunk stream, C=64", connections: 64, stream: true, variants: []variant{stock, free, paid},
			cpu: map[variant]bar{free: {1.2, 0.95}, paid: {1.45, 1.1}},
		},
		{
			name: "anthropic, 50-chunk stream, C=64", connections: 64, stream: true, variants: []variant{paid, paidAnthropic},
			cpu: map[variant]bar{paidAnthropic: {1.1, 1.0}},
		},
		{
			name: "gemini, 50-chunk stream, C=64", connections: 64, stream: true, variants: []variant{paid, paidGemini},
			cpu: map[variant]bar{paidGemini: {1.1, 1.0}},
		},
	}
}

// chosen leaves only the rows whose name contains only.
func (h house) chosen(only string) house {
	h.rows = slices.DeleteFunc(h.rows, func(r row) bool { return !strings.Contains(r.name, only) })
	h.webhooks = slices.DeleteFunc(h.webhooks, func(r webhookRow) bool { return !strings.Contains(r.name, only) })
	return h
}

// figures are what one slice of one variant showed.
type figures struct {
	answers  int
	elapsed  time.Duration
	cpu      time.Duration // of the product
	servers  time.Duration // processor time of PostgreSQL and Redis
	latency  []time.Duration
	charged  int64
	tokens   int64
	failures []string
}

func (f figures) cpuPerAnswer() float64 {
	return float64(f.cpu.Microseconds()) / float64(max(1, f.answers))
}

func (f figures) serversPerAnswer() float64 {
	return float64(f.servers.Microseconds()) / float64(max(1, f.answers))
}

func (f figures) rate() float64 { return float64(f.answers) / f.elapsed.Seconds() }

// absent names a variable that the house needs and that is not set, "" when nothing is missing.
func (h house) absent() string {
	if h.engine == store.Postgres && os.Getenv(postgresVariable) == "" {
		return postgresVariable
	}
	if h.redis && os.Getenv(redisVariable) == "" {
		return redisVariable
	}
	return ""
}

// open starts a product at a fresh place of the house.
func (h house) open(ctx context.Context, binary string) (*product, error) {
	redis := ""
	if h.redis {
		redis = os.Getenv(redisVariable)
	}
	at, err := newPlace(ctx, h.engine, redis)
	if err != nil {
		return nil, err
	}
	if h.single {
		return startProductWith(ctx, binary, at, strings.Replace(caddyfile, "\tsvc {\n", "\tsvc {\n\t\ttranches off\n", 1))
	}
	return startProduct(ctx, binary, at)
}

// run measures the rows of the house and checks their counts against the books.
func (h house) run(ctx context.Context, b *bench) (err error) {
	product, err := h.open(ctx, b.binary)
	if err != nil {
		return err
	}
	defer func() { err = product.end(err) }()
	servers, err := serversOf(ctx, product.place)
	if err != nil {
		return err
	}
	defer servers.close() //nolint:errcheck // it was only asked
	books, err := b.measure(ctx, product, servers, h.rows)
	if err != nil {
		return err
	}
	platform := &webhooks{product: product, servers: servers}
	if err := platform.measure(ctx, b, h.webhooks); err != nil {
		return err
	}
	if err := errors.Join(books.check(ctx, product), platform.check(ctx)); err != nil {
		return err
	}
	fmt.Println()
	books.report()
	if len(h.webhooks) > 0 {
		platform.report()
	}
	if h.engine == store.Postgres {
		return reportTables(ctx, product.place)
	}
	return nil
}

// reportTables prints the bytes of each row in the database, including indexes and old versions of the row.
func reportTables(ctx context.Context, at *place) error {
	db, err := store.Open(ctx, at.location, store.Options{})
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close(ctx) //nolint:errcheck // it was only read
	fmt.Print("tables, bytes per row with indexes:")
	for _, table := range []string{"calls", "messages", "conversations"} {
		var rows, bytes int64
		err := db.Reader().QueryRowContext(ctx, "SELECT (SELECT count(*) FROM "+table+"), pg_total_relation_size($1::text::regclass)", table).Scan(&rows, &bytes)
		if err != nil {
			return fmt.Errorf("measuring the table %s: %w", table, err)
		}
		if rows > 1000 {
			fmt.Printf(" %s %d (%d rows)", table, bytes/rows, rows)
		}
	}
	fmt.Println()
	return nil
}
