package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// growthKeys and growthCalls are the keys of an organization that a store grows by, and the paid calls that it has made.
	growthKeys, growthCalls = 10, 100
	// growthStep is how many of them are stored in one transaction.
	growthStep = 1000
	// growthAge is how long ago the copies' calls were made.
	growthAge = 40 * 24 * time.Hour
	// growthPlan is that of the organizations, and the name of the first.
	growthPlan = "grown"
	// growthConnections are those of the load beside it.
	growthConnections = 32
)

// growthSizes are the calls that the store has when it is measured.
var growthSizes = []struct {
	calls int
	name  string
}{{0, "no calls"}, {100_000, "100 k calls"}, {1_000_000, "1 M calls"}, {10_000_000, "10 M calls"}}

// doctorBar is how many seconds the doctor takes for a million calls.
var doctorBar = bar{must: 10, goal: 5}

// callBytesBar is how many bytes of the disk a call takes.
var callBytesBar = bar{must: 500, goal: 400}

// growthRow is a store that has made so many calls before, with a key for every ten and an organization for every hundred.
type growthRow struct {
	engine store.Engine
	calls  int
	size   string
}

func (r growthRow) name() string { return fmt.Sprintf("growth, %s, %s", r.engine, r.size) }

// growthRows are the rows whose name contains only, by their product. They take too long to be measured unless they are asked for.
func growthRows(only string) (all [][]growthRow) {
	if !strings.Contains(only, "growth") {
		return nil
	}
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		var rows []growthRow
		for _, size := range growthSizes {
			r := growthRow{engine, size.calls, size.name}
			if strings.Contains(r.name(), only) {
				rows = append(rows, r)
			}
		}
		if len(rows) > 0 {
			all = append(all, rows)
		}
	}
	return all
}

// runGrowth measures what a call costs, and how long the doctor takes, in stores that have grown.
func (b *bench) runGrowth(ctx context.Context, all [][]growthRow) error {
	for _, rows := range all {
		place := house{engine: rows[0].engine}
		if absent := place.absent(); absent != "" {
			fmt.Printf("\nthe rows of growth on %s are left out: %s is not set (scripts/services.sh sets it)\n", place.engine, absent)
			continue
		}
		if err := b.runGrowths(ctx, rows); err != nil {
			return fmt.Errorf("%s: %w", rows[0].name(), err)
		}
	}
	return nil
}

// runGrowths measures the rows of one product, whose store grows.
func (b *bench) runGrowths(ctx context.Context, rows []growthRow) (err error) {
	p, err := house{engine: rows[0].engine}.open(ctx, b.binary)
	if err != nil {
		return err
	}
	defer func() { err = p.end(err) }()
	servers, err := serversOf(ctx, p.place)
	if err != nil {
		return err
	}
	defer servers.close() //nolint:errcheck // it was only asked
	g, err := plant(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.db.Close()) }()
	for _, r := range rows {
		began := time.Now()
		if err := g.grow(ctx, r.calls/growthCalls); err != nil {
			return fmt.Errorf("growing: %w", err)
		}
		fmt.Fprintf(os.Stderr, "%s: stored in %.0f s\n", r.name(), time.Since(began).Seconds())
		load := row{name: r.name(), connections: growthConnections, variants: []variant{stock, free, paid}}
		if _, err := b.measure(ctx, p, servers, []row{load}); err != nil {
			return err
		}
		if err := g.report(ctx, p, r, b.sheet); err != nil {
			return err
		}
	}
	return nil
}

// growth is a store that is filled with copies of one organization, which made its calls through the product. A copy has all rows
// of the original, its books included, with ids of its own.
type growth struct {
	engine store.Engine
	db     *sql.DB
	org    string
	copies int
	tables []copiedTable
	// callBytes is what each call of the last copies takes on the disk.
	callBytes float64
}

// copiedTable is a table of an organization and the statement that copies its rows: $1 is the organization, $2 and $3 are the first
// copy's number and the last's.
type copiedTable struct{ name, statement string }

// copiedIDs are the columns with ids that are a copy's own.
var copiedIDs = []string{"id", "org_id", "key_id", "audit_id", "target"}

// plant makes the organization that is copied.
func plant(ctx context.Context, p *product) (g *growth, err error) {
	g = &growth{engine: p.place.location.Engine}
	org, key, err := p.organization(ctx, growthPlan)
	if err != nil {
		return nil, err
	}
	g.org = org
	keys := []string{key}
	for len(keys) < growthKeys {
		var made struct{ Key string }
		if err := p.command(ctx, &made, "key", "create", "--org", org); err != nil {
			return nil, err
		}
		keys = append(keys, made.Key)
	}
	for i := range growthCalls {
		c, err := dial(p.address, request(p.address, "/v1/chat/completions", keys[i%len(keys)], prompt, paid, false))
		if err != nil {
			return nil, err
		}
		_, err = c.ask(paid, false)
		if err := errors.Join(err, c.conn.Close()); err != nil {
			return nil, err
		}
	}
	// Package store has registered both drivers.
	driver, dsn := "sqlite", "file:"+p.place.location.DSN+"?_pragma=busy_timeout(60000)&_txlock=immediate"
	if g.engine == store.Postgres {
		driver, dsn = "pgx", p.place.location.DSN
	}
	if g.db, err = sql.Open(driver, dsn); err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	g.db.SetMaxOpenConns(1)
	if err := g.prepare(ctx); err != nil {
		return nil, errors.Join(err, g.db.Close())
	}
	return g, nil
}

// prepare waits until the organization's calls are settled and its tranches have been given back, and reads its tables.
func (g *growth) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for open := 1; open > 0; {
		err := g.db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM tranches WHERE org_id = $1)
			+ (SELECT count(*) FROM wallets WHERE org_id = $1 AND held_micros > 0)`, g.org).Scan(&open)
		if err != nil {
			return fmt.Errorf("waiting for the end of the tranches: %w", err)
		}
		<-time.After(50 * time.Millisecond)
	}
	for _, table := range []string{"organizations", "wallets", "api_keys", "audit_log", "ledger_tx", "calls"} {
		statement, err := g.copying(ctx, table)
		if err != nil {
			return err
		}
		g.tables = append(g.tables, copiedTable{table, statement})
	}
	return nil
}

// copying returns the statement that copies an organization's rows of a table.
func (g *growth) copying(ctx context.Context, table string) (string, error) {
	columns, err := g.columns(ctx, table)
	if err != nil {
		return "", err
	}
	// The number stands for the first characters of an id, so that a copy's ids come together, as those of a day do.
	id := `substr(%[1]s, 1, instr(%[1]s, '_')) || printf('%%09d', n) || substr(%[1]s, instr(%[1]s, '_') + 10)`
	hash, numbers := `randomblob(32)`, `WITH RECURSIVE numbers (n) AS (SELECT $2 UNION ALL SELECT n + 1 FROM numbers WHERE n < $3)`
	if g.engine == store.Postgres {
		id = `substr(%[1]s, 1, strpos(%[1]s, '_')) || lpad(n::text, 9, '0') || substr(%[1]s, strpos(%[1]s, '_') + 10)`
		hash, numbers = `sha256(convert_to(id || n::text, 'UTF8'))`, `WITH numbers (n) AS (SELECT generate_series($2::bigint, $3::bigint))`
	}
	values := slices.Clone(columns)
	for i, column := range columns {
		switch {
		case table == "organizations" && column == "name":
			values[i] = `name || n`
		case slices.Contains(copiedIDs, column):
			values[i] = fmt.Sprintf(id, column)
		case strings.HasSuffix(column, "_at"):
			values[i] = fmt.Sprintf("%s - %d", column, growthAge.Milliseconds())
		case column == "hash":
			values[i] = hash
		}
	}
	source := table + ` WHERE org_id = $1`
	if table == "organizations" {
		source = table + ` WHERE id = $1`
	}
	return fmt.Sprintf(`%s INSERT INTO %s (%s) SELECT %s FROM numbers, %s`,
		numbers, table, strings.Join(columns, ", "), strings.Join(values, ", "), source), nil
}

// columns returns the names of a table's columns.
func (g *growth) columns(ctx context.Context, table string) (names []string, err error) {
	catalog := `SELECT name FROM pragma_table_info($1)`
	if g.engine == store.Postgres {
		catalog = `SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position`
	}
	rows, err := g.db.QueryContext(ctx, catalog, table)
	if err != nil {
		return nil, fmt.Errorf("reading the columns of %s: %w", table, err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("reading the columns of %s: %w", table, err)
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// grow copies the organization until there are so many copies.
func (g *growth) grow(ctx context.Context, copies int) error {
	first := g.copies
	before, err := g.size(ctx)
	if err != nil {
		return err
	}
	for g.copies < copies {
		if err := g.copy(ctx, min(g.copies+growthStep, copies)); err != nil {
			return err
		}
	}
	if g.engine == store.Postgres { // where autovacuum does it; the product asks SQLite to count nothing
		if _, err := g.db.ExecContext(ctx, `ANALYZE`); err != nil {
			return fmt.Errorf("counting for the planner: %w", err)
		}
	}
	after, err := g.size(ctx)
	g.callBytes = float64(after-before) / float64(max(1, (copies-first)*growthCalls))
	return err
}

// copy stores the next copies, up to the last one's number.
func (g *growth) copy(ctx context.Context, last int) error {
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	for _, table := range g.tables {
		if _, err := tx.ExecContext(ctx, table.statement, g.org, g.copies+1, last); err != nil {
			return errors.Join(fmt.Errorf("copying %s: %w", table.name, err), tx.Rollback())
		}
	}
	g.copies = last
	return tx.Commit()
}

// size returns how many bytes calls take on the disk, with their indexes.
func (g *growth) size(ctx context.Context) (bytes int64, err error) {
	question := `SELECT CAST(sum(pgsize) AS BIGINT) FROM dbstat WHERE aggregate = 1 AND name IN (SELECT name FROM sqlite_master WHERE tbl_name = 'calls')`
	if g.engine == store.Postgres {
		question = `SELECT pg_total_relation_size('calls')`
	}
	if err := g.db.QueryRowContext(ctx, question).Scan(&bytes); err != nil {
		return 0, fmt.Errorf("reading the size of calls: %w", err)
	}
	return bytes, nil
}

// report prints what the store takes, and how long the doctor reads it.
func (g *growth) report(ctx context.Context, p *product, r growthRow, to *sheet) error {
	began := time.Now()
	if err := p.doctor(ctx); err != nil {
		return err
	}
	whole := time.Since(began)
	began = time.Now()
	if err := p.command(ctx, nil, "doctor", "--recent", "25h"); err != nil {
		return err
	}
	recent := time.Since(began)
	memory, err := p.resident()
	if err != nil {
		return err
	}
	fmt.Printf("  memory of the node %d MiB; doctor %.1f s, what is new alone %.1f s", memory>>10, whole.Seconds(), recent.Seconds())
	if r.calls > 0 {
		fmt.Printf("; doctor, seconds per million calls %s; bytes per call %s",
			to.judge(r.name(), "doctor", "seconds per million calls", whole.Seconds()*1e6/float64(r.calls), doctorBar, true),
			to.judge(r.name(), "calls", "bytes", g.callBytes, callBytesBar, true))
	}
	fmt.Println()
	return nil
}
