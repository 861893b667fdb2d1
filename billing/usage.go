package billing

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// usagePause is the time between two updates of the sums by one process. Several processes together update them up to twice as often.
	usagePause = 30 * time.Second
	// usageLag is the age of a call without a charge when it is counted, in milliseconds. Such calls have no numbers, so each must be committed
	// when it is passed. No transaction lives as long.
	usageLag = 15_000
	// usageLease is the time in milliseconds after which another process may continue the update of a process that died.
	usageLease = 120_000
	// usageCalls is the number of calls that one read sums up, and usageRows the number of rows from which a transaction is written.
	usageCalls, usageRows = 2000, 100
	// usageOrganizations is the number of organizations that one read looks for new calls of.
	usageOrganizations = 250
	// usageMinutes is the number of minutes for which the calls of a minute are kept.
	usageMinutes = 120

	dayMillis, minuteMillis = 86_400_000, 60_000
)

// Figures are sums of calls.
type Figures struct {
	// Calls have ended. Answered and ClientGone are parts of them, and the others failed.
	Calls, Answered, ClientGone                  int64
	PromptTokens, CompletionTokens, CachedTokens int64
	ChargedMicros, RefundedMicros, CostMicros    int64
	// UnknownCosts is the number of calls of unknown cost, because their endpoints have no price of the operator. CostMicros is without them.
	UnknownCosts int64
}

// Margin returns the charges without refunds and costs.
func (f *Figures) Margin() int64 { return f.ChargedMicros - f.RefundedMicros - f.CostMicros }

const figureColumns = `calls, answered, client_gone, prompt_tokens, completion_tokens, cached_tokens, charged_micros, refunded_micros,
		cost_micros, unknown_costs`

// fields returns pointers to the figures in the order of figureColumns.
func (f *Figures) fields() []*int64 {
	return []*int64{
		&f.Calls, &f.Answered, &f.ClientGone, &f.PromptTokens, &f.CompletionTokens, &f.CachedTokens, &f.ChargedMicros, &f.RefundedMicros,
		&f.CostMicros, &f.UnknownCosts,
	}
}

// Add adds more figures.
func (f *Figures) Add(more *Figures) {
	others := more.fields()
	for i, field := range f.fields() {
		*field += *others[i]
	}
}

// UsageSums keeps the sums of calls by day in step with the calls. Calls don't wait for it. It counts each call, each failed attempt and each
// refund once: the figures and the position up to which they count are written in one transaction, which requires the lease of
// usage_progress. A day's figures never change after its calls are counted, whatever deletes calls later.
type UsageSums struct {
	db *store.DB
	// lag and pause are usageLag and usagePause, in milliseconds, except in tests.
	lag, pause int64
}

// NewUsageSums returns the sums of a database. One goroutine may use them.
func NewUsageSums(db *store.DB) *UsageSums {
	return &UsageSums{db: db, lag: usageLag, pause: usagePause.Milliseconds() / 2}
}

// StartUsageSums runs [UsageSums.Update] immediately and about every 30 s, until the task is stopped.
func StartUsageSums(db *store.DB, logger *slog.Logger) *repeat.Task {
	u := NewUsageSums(db)
	return repeat.Start(usagePause, func(ctx context.Context) {
		if err := u.Update(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, errUsageLost) {
			logger.ErrorContext(ctx, "counting the usage of organizations failed; the next try continues it", "error", err)
		}
	})
}

// errUsageLost means that another process counts.
var errUsageLost = errors.New("another process counts the usage")

// Update counts what ended since the last update, in small transactions, unless another process does or has just done it. It pauses after each
// transaction for as long as the transaction took, so that calls have at least half of the writer.
func (u *UsageSums) Update(ctx context.Context) error {
	now, err := u.db.Now(ctx)
	if err != nil {
		return err
	}
	run := &usageRun{UsageSums: u, owner: store.NewID("own"), now: now, until: now - u.lag}
	run.clear()
	if begun, err := run.begin(ctx); err != nil || !begun {
		return err
	}
	for after := ""; ; {
		through, err := store.ReadRow(ctx, u.db, "look for new calls", store.ScanValue[sql.NullString], selectUsagePage, after, usageOrganizations)
		if err != nil {
			return err
		}
		if !through.Valid {
			return run.write(ctx, true)
		}
		scan := store.Into(func(w *usageWallet) []any {
			return []any{&w.id.OrgID, &w.id.Env, &w.seq, &w.endedAt, &w.last, &w.free, &w.stale}
		})
		wallets, err := store.ReadRows(
			ctx, u.db, "look for new calls", scan, selectUsageWallets, after, through.String, run.until, now/dayMillis)
		if err != nil {
			return err
		}
		for i := range wallets {
			if err := run.count(ctx, &wallets[i]); err != nil {
				return err
			}
		}
		after = through.String
	}
}

// usageRun is one update.
type usageRun struct {
	*UsageSums

	owner      string
	now, until int64
	// The figures, calls by minute and positions that were read and aren't written.
	days    map[usageKey]*Figures
	minutes map[int64]int64
	moved   map[WalletID]usageWallet
}

// usageKey identifies a row of usage_days.
type usageKey struct {
	endpoint

	wallet       WalletID
	day          int64
	model, keyID string
}

// usageWallet is the position in the history of a wallet up to which it is counted.
type usageWallet struct {
	id           WalletID
	seq, endedAt int64
	// last is the number of the wallet's last charge or posting. free reports whether calls without a charge follow, and stale whether the
	// wallet's spending was summed up on an earlier day.
	last        int64
	free, stale bool
}

func (r *usageRun) clear() {
	r.days, r.minutes, r.moved = map[usageKey]*Figures{}, map[int64]int64{}, map[WalletID]usageWallet{}
}

// begin leases the update. It reports false if another process has the lease or has updated the sums a moment ago.
func (r *usageRun) begin(ctx context.Context) (begun bool, err error) {
	return store.Write(ctx, r.db, func(ctx context.Context, tx store.Tx) (bool, error) {
		return store.Changed(ctx, tx, `INSERT INTO usage_progress (id, owner, lease_until, through) VALUES (1, $1, $2, 0)
			ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
			WHERE usage_progress.lease_until < $3 AND usage_progress.through <= $4 RETURNING id`,
			r.owner, r.now+usageLease, r.now, r.until-r.pause)
	})
}

const (
	selectUsagePage = `SELECT max(id) FROM (SELECT id FROM organizations WHERE id > $1 ORDER BY id LIMIT $2) AS page`
	// selectUsageWallets repeats the bounds of the page, so that PostgreSQL reads only that part of each table.
	selectUsageWallets = `SELECT o.id, e.env, coalesce(u.seq, 0), coalesce(u.ended_at, 0), coalesce(w.seq, 0), EXISTS (
			SELECT 1 FROM calls c WHERE c.org_id = o.id AND c.env = e.env AND c.wallet_seq IS NULL
				AND c.ended_at > coalesce(u.ended_at, 0) AND c.ended_at < $3),
			coalesce(u.spent_micros > 0 AND u.spent_day < $4, FALSE)
		FROM organizations o CROSS JOIN (SELECT 'live' AS env UNION ALL SELECT 'test') AS e
		LEFT JOIN usage_wallets u ON u.org_id = o.id AND u.env = e.env AND u.org_id > $1 AND u.org_id <= $2
		LEFT JOIN wallets w ON w.org_id = o.id AND w.env = e.env AND w.org_id > $1 AND w.org_id <= $2
		WHERE o.id > $1 AND o.id <= $2`
)

// count reads the new calls of a wallet.
func (r *usageRun) count(ctx context.Context, w *usageWallet) error {
	read := readerOf(r.db, "read the usage of a wallet")
	for w.seq < w.last || w.free || w.stale {
		w.stale = false
		if err := nextUsage(ctx, read, w, r.until, r.add); err != nil {
			return err
		}
		r.moved[w.id] = *w
		if len(r.days)+len(r.moved) >= usageRows {
			if err := r.write(ctx, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextUsage reads the next part of a wallet's history, not beyond a moment, and moves the position behind it.
func nextUsage(ctx context.Context, read rowReader, w *usageWallet, until int64, add func(minute int64, key usageKey, figures *Figures)) error {
	from, through := *w, int64(0)
	w.seq = min(w.seq+usageCalls, w.last)
	if w.free {
		scan := func(row store.Row) error { return row.Scan(&through) }
		if err := read(ctx, scan, selectOldCalls, w.id.OrgID, string(w.id.Env), w.endedAt, until, usageCalls); err != nil {
			return err
		}
		w.endedAt, w.free = max(w.endedAt, through), through > 0
	}
	return read(ctx, func(row store.Row) error {
		var minute int64
		var f Figures
		key := usageKey{wallet: w.id}
		err := row.Scan(store.Arguments(f.fields(), &minute, &key.model, &key.provider, &key.upstream, &key.keyID)...)
		key.day = minute * minuteMillis / dayMillis
		add(minute, key, &f)
		return err
	}, selectUsage, w.id.OrgID, string(w.id.Env), from.seq, w.seq, from.endedAt, w.endedAt)
}

const (
	ofCharged   = ` WHERE c.org_id = $1 AND c.env = $2 AND c.wallet_seq > $3 AND c.wallet_seq <= $4`
	ofUncharged = ` WHERE c.org_id = $1 AND c.env = $2 AND c.wallet_seq IS NULL AND c.ended_at > $5 AND c.ended_at <= $6`
	sumsOfCalls = `SELECT ended_at / 60000 AS minute, model, provider, key_id, price_id, count(*) AS calls, count(cost_micros) AS known,
			count(CASE outcome WHEN 'completed' THEN 1 END) AS answered, count(CASE outcome WHEN 'client_gone' THEN 1 END) AS gone,
			CAST(sum(prompt_tokens) AS BIGINT) AS prompt, CAST(sum(completion_tokens) AS BIGINT) AS completion,
			CAST(sum(cached_tokens) AS BIGINT) AS cached, CAST(sum(charged_micros) AS BIGINT) AS charged, CAST(sum(cost_micros) AS BIGINT) AS cost
		FROM calls c`
	byMinute        = ` GROUP BY ended_at / 60000, model, provider, key_id, price_id`
	costsOfAttempts = `
	UNION ALL SELECT c.ended_at / 60000, c.model, a.provider, a.upstream_model, c.key_id, 0, 0, 0, 0, 0, 0, 0, 0, coalesce(a.cost_micros, 0), 0
		FROM calls c JOIN attempts a ON a.call_id = c.id`
	// selectUsage reads a part of a wallet's history: the sums of its calls by minute, their failed attempts, and refunds. The database makes the
	// sums, because to read every call would cost a busy server a tenth of its time.
	selectUsage = `SELECT e.minute, e.model, e.provider, coalesce(p.upstream_model, ''), e.key_id, calls, answered, gone, prompt, completion, cached,
			charged, 0, coalesce(cost, 0), calls - known
		FROM (` + sumsOfCalls + ofCharged + byMinute + ` UNION ALL ` + sumsOfCalls + ofUncharged + byMinute + `) AS e
		LEFT JOIN prices p ON p.id = e.price_id` + costsOfAttempts + ofCharged + costsOfAttempts + ofUncharged + `
	UNION ALL SELECT t.created_at / 60000, c.model, c.provider, coalesce(p.upstream_model, ''), c.key_id, 0, 0, 0, 0, 0, 0, 0, t.amount_micros, 0, 0
		FROM ledger_tx t JOIN calls c ON c.id = t.ref LEFT JOIN prices p ON p.id = c.price_id
		WHERE t.org_id = $1 AND t.env = $2 AND t.wallet_seq > $3 AND t.wallet_seq <= $4 AND t.kind = 'refund'`
)

// add counts the figures of a row of selectUsage.
func (r *usageRun) add(minute int64, key usageKey, figures *Figures) {
	addFigures(r.days, key, figures)
	if figures.Calls > 0 && minute > r.now/minuteMillis-usageMinutes {
		r.minutes[minute] += figures.Calls
	}
}

// addFigures adds figures to the sums with a key.
func addFigures[K comparable](sums map[K]*Figures, key K, figures *Figures) {
	if sums[key] == nil {
		sums[key] = new(Figures)
	}
	sums[key].Add(figures)
}

var (
	insertUsageDays = listSizes.Rows(`INSERT INTO usage_days (org_id, env, day, model, provider, upstream_model, key_id, `+figureColumns+`) {list}
		ON CONFLICT (org_id, env, day, model, provider, upstream_model, key_id) DO UPDATE SET `+addedFigures("usage_days"),
		usageTypes("text", "text", "bigint", "text", "text", "text", "text")...)
	insertUsageTotals = listSizes.Rows(`INSERT INTO usage_totals (env, day, model, provider, upstream_model, `+figureColumns+`) {list}
		ON CONFLICT (env, day, model, provider, upstream_model) DO UPDATE SET `+addedFigures("usage_totals"),
		usageTypes("text", "bigint", "text", "text", "text")...)
	insertUsageMinutes = listSizes.Rows(`INSERT INTO usage_minutes (minute, calls) {list}
		ON CONFLICT (minute) DO UPDATE SET calls = usage_minutes.calls + excluded.calls`, "bigint", "bigint")
	insertUsageWallets = listSizes.Rows(`WITH moved (org_id, env, seq, ended_at, day) AS ({list})
		INSERT INTO usage_wallets (org_id, env, seq, ended_at, spent_day, spent_micros)
		SELECT org_id, env, seq, ended_at, day, (SELECT CAST(coalesce(sum(charged_micros), 0) AS BIGINT) FROM usage_days u
			WHERE u.org_id = moved.org_id AND u.env = moved.env AND u.day >= moved.day - 7 AND u.day <= moved.day)
		FROM moved WHERE TRUE
		ON CONFLICT (org_id, env) DO UPDATE SET seq = excluded.seq, ended_at = excluded.ended_at, spent_day = excluded.spent_day,
			spent_micros = excluded.spent_micros`, "text", "text", "bigint", "bigint", "bigint")
)

// addedFigures returns the assignments that add new figures to a row.
func addedFigures(table string) string {
	var columns []string
	for column := range strings.SplitSeq(figureColumns, ",") {
		column = strings.TrimSpace(column)
		columns = append(columns, column+" = "+table+"."+column+" + excluded."+column)
	}
	return strings.Join(columns, ", ")
}

// usageTypes returns the types of a key and of the figures.
func usageTypes(key ...string) []string {
	return append(key, slices.Repeat([]string{"bigint"}, len(new(Figures).fields()))...)
}

// write adds the figures to the sums, together with the positions, and pauses. The last transaction of an update ends the lease.
func (r *usageRun) write(ctx context.Context, last bool) error {
	began := time.Now()
	err := r.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		change, value := `lease_until = $2`, tx.Now()+usageLease
		if last {
			change, value = `lease_until = 0, through = $2`, r.until
			tx.Queue(store.AnyRows, `DELETE FROM usage_minutes WHERE minute < $1`, r.now/minuteMillis-usageMinutes)
		}
		owned, err := store.Changed(ctx, tx, `UPDATE usage_progress SET `+change+` WHERE id = 1 AND owner = $1 RETURNING id`, r.owner, value)
		if err != nil || !owned {
			return cmp.Or(err, errUsageLost)
		}
		totals := map[usageKey]*Figures{} // of the service
		for key, figures := range r.days {
			key.wallet.OrgID, key.keyID = "", ""
			addFigures(totals, key, figures)
		}
		insertUsageDays.Queue(tx, usageColumns(r.days, true)...)
		insertUsageTotals.Queue(tx, usageColumns(totals, false)...)
		minutes := slices.Collect(maps.Keys(r.minutes))
		insertUsageMinutes.Queue(tx, minutes, store.Column(minutes, func(minute int64) int64 { return r.minutes[minute] }))
		moved := slices.Collect(maps.Values(r.moved))
		insertUsageWallets.Queue(tx, store.Column(moved, func(w usageWallet) string { return w.id.OrgID }),
			store.Column(moved, func(w usageWallet) string { return string(w.id.Env) }),
			store.Column(moved, func(w usageWallet) int64 { return w.seq }), store.Column(moved, func(w usageWallet) int64 { return w.endedAt }),
			store.Column(moved, func(usageWallet) int64 { return r.now / dayMillis }))
		return nil
	})
	if err != nil {
		return err
	}
	r.clear()
	return repeat.Pause(ctx, time.Since(began))
}

// usageColumns returns rows column by column, with or without the organization and the key.
func usageColumns(rows map[usageKey]*Figures, whole bool) (columns []any) {
	keys := slices.Collect(maps.Keys(rows))
	add := func(of func(*usageKey) string) {
		columns = append(columns, store.Column(keys, func(key usageKey) string { return of(&key) }))
	}
	if whole {
		add(func(k *usageKey) string { return k.wallet.OrgID })
	}
	add(func(k *usageKey) string { return string(k.wallet.Env) })
	columns = append(columns, store.Column(keys, func(k usageKey) int64 { return k.day }))
	add(func(k *usageKey) string { return k.model })
	add(func(k *usageKey) string { return k.provider })
	add(func(k *usageKey) string { return k.upstream })
	if whole {
		add(func(k *usageKey) string { return k.keyID })
	}
	for i := range new(Figures).fields() {
		columns = append(columns, store.Column(keys, func(k usageKey) int64 { return *rows[k].fields()[i] }))
	}
	return columns
}
