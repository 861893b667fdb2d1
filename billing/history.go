package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// MaxHistoryRows bounds the rows of a [Stretch].
const MaxHistoryRows = 1000

// Place is a row's position in a wallet's history. The zero value is before the newest row.
type Place struct {
	At int64 // epoch milliseconds
	ID string
}

// Stretch is a part of a wallet's history, newest first. The zero value is the newest [MaxHistoryRows] rows.
type Stretch struct {
	// After is the place of the last row that was read; what follows is older.
	After Place
	// From and Until bound the rows' times, From <= time < Until, in epoch milliseconds. Until 0 is no bound.
	From, Until int64
	// Rows is the largest number of rows: 1 to [MaxHistoryRows], 0 for MaxHistoryRows.
	Rows int
}

// start returns the place before the stretch's first row.
func (s Stretch) start() Place {
	start := s.After
	if start == (Place{}) {
		start.At = math.MaxInt64
	}
	if s.Until != 0 && s.Until <= start.At {
		start = Place{At: s.Until}
	}
	return start
}

func (s Stretch) rows() int {
	if s.Rows <= 0 {
		return MaxHistoryRows
	}
	return min(s.Rows, MaxHistoryRows)
}

func (s Stretch) arguments(id WalletID) []any {
	start := s.start()
	return []any{id.OrgID, string(id.Env), start.At, start.ID, s.From, s.rows()}
}

// Place returns the entry's position in its wallet's history.
func (e Entry) Place() Place { return Place{At: e.At, ID: e.ID} }

// selectEntries reads both halves by their own index, no more of each than is asked for.
const selectEntries = `SELECT id, kind, ref, reason, balance_micros, created_at, amount_micros FROM (
		SELECT id, kind, ref, reason, balance_micros, created_at, amount_micros FROM (
			SELECT t.id, t.kind, t.ref, t.reason, t.balance_micros, t.created_at, e.amount_micros
			FROM ledger_tx t JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
			WHERE t.org_id = $1 AND t.env = $2 AND (t.created_at, t.id) < ($3, $4) AND t.created_at >= $5
			ORDER BY t.created_at DESC, t.id DESC LIMIT $6) AS booked
		UNION ALL
		SELECT tx_id, 'charge', id, '', balance_micros, charged_at, -charged_micros FROM (
			SELECT tx_id, id, balance_micros, charged_at, charged_micros
			FROM calls WHERE org_id = $1 AND env = $2 AND (charged_at, tx_id) < ($3, $4) AND charged_at >= $5
			ORDER BY charged_at DESC, tx_id DESC LIMIT $6) AS charged
	) AS history ORDER BY created_at DESC, id DESC LIMIT $6`

// Entries reads a stretch of a wallet's transactions, in at most 2 s.
func (b *Book) Entries(ctx context.Context, id WalletID, stretch Stretch) ([]Entry, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	return store.ReadRows(ctx, b.db, "list transactions", func(row store.Row) (entry Entry, err error) {
		entry.Wallet = id
		err = row.Scan(&entry.ID, &entry.Kind, &entry.Ref, &entry.Note, &entry.BalanceMicros, &entry.At, &entry.AmountMicros)
		return entry, err
	}, selectEntries, stretch.arguments(id)...)
}

// EndedCall is the record of a model call with its charge.
type EndedCall struct {
	Call
	Settled
}

// Place returns the call's position in its wallet's history, which is ordered by the calls' beginnings.
func (c *EndedCall) Place() Place { return Place{At: c.StartedAt, ID: c.ID} }

const selectEndedCalls = `SELECT id, request_id, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens,
		cached_tokens, usage_source, charged_micros, extra_micros, shortfall_micros, started_at, duration_ms
	FROM calls WHERE org_id = $1 AND env = $2 AND (started_at, id) < ($3, $4) AND started_at >= $5
	ORDER BY started_at DESC, id DESC LIMIT $6`

// Calls reads a stretch of the calls of a wallet, free ones included, in at most 2 s. A call is listed at its beginning, once
// it has ended.
func (b *Book) Calls(ctx context.Context, id WalletID, stretch Stretch) ([]EndedCall, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	return store.ReadRows(ctx, b.db, "list calls", func(row store.Row) (c EndedCall, err error) {
		c.Wallet = id
		err = row.Scan(&c.ID, &c.RequestID, &c.KeyID, &c.Model, &c.Provider, &c.BYOK, &c.Stream, &c.Outcome,
			&c.Usage.PromptTokens, &c.Usage.CompletionTokens, &c.Usage.CachedPromptTokens, &c.UsageSource,
			&c.ChargedMicros, &c.ExtraMicros, &c.ShortfallMicros, &c.StartedAt, &c.DurationMS)
		return c, err
	}, selectEndedCalls, stretch.arguments(id)...)
}

// Spend is the sum of one model's calls in an interval.
type Spend struct {
	Model                          string
	Calls                          int64
	PromptTokens, CompletionTokens int64
	ChargedMicros                  int64
}

const selectSpend = `SELECT model, count(*), CAST(sum(prompt_tokens) AS BIGINT), CAST(sum(completion_tokens) AS BIGINT),
		CAST(sum(charged_micros) AS BIGINT)
	FROM calls WHERE org_id = $1 AND env = $2 AND started_at >= $3 AND started_at < $4 GROUP BY model ORDER BY model`

// Spend sums up, by model, the calls that began in an interval, from <= start < until in epoch milliseconds, in at most 2 s. It
// reads each of them: ask for a day at a time. Refunds are not subtracted: they are transactions of their own.
func (b *Book) Spend(ctx context.Context, id WalletID, from, until int64) ([]Spend, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	return store.ReadRows(ctx, b.db, "sum up calls", func(row store.Row) (s Spend, err error) {
		err = row.Scan(&s.Model, &s.Calls, &s.PromptTokens, &s.CompletionTokens, &s.ChargedMicros)
		return s, err
	}, selectSpend, id.OrgID, string(id.Env), from, until)
}

// Wallet is the balance of an organization in one environment, in micros.
type Wallet struct {
	// BalanceMicros includes what is held.
	BalanceMicros int64
	// HeldMicros is reserved for calls that are running: 0..BalanceMicros.
	HeldMicros int64
}

// Wallet reads a wallet. One that was never topped up is empty: a wallet is made by its first credit.
func (b *Book) Wallet(ctx context.Context, id WalletID) (Wallet, error) {
	if err := id.validate(); err != nil {
		return Wallet{}, err
	}
	var wallet Wallet
	err := b.db.Reader().QueryRowContext(ctx,
		`SELECT balance_micros, held_micros FROM wallets WHERE org_id = $1 AND env = $2`, id.OrgID, string(id.Env),
	).Scan(&wallet.BalanceMicros, &wallet.HeldMicros)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Wallet{}, fmt.Errorf("read wallet: %w", err)
	}
	return wallet, nil
}
