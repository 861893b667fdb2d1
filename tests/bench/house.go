package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

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

// run measures the rows of the house and checks that what was counted is true.
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

// reportTables prints what a row costs in the database: the table, its indexes and what updates have left behind, by
// the rows that are there.
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
