package billing

import (
	"context"
	"errors"
	"math"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// MaxHistoryRows limits the rows of a [Stretch].
const MaxHistoryRows = 1000

// Place is the position of a row in a list. The zero value is the position before the newest row.
type Place struct {
	// Seq is the number of an entry. Calls are identified by At, the time of their end, and ID, because only charged calls have
	// numbers.
	Seq int64
	At  int64 // epoch milliseconds
	ID  string
}

// Stretch is a part of a wallet's history, newest first. The zero value selects the newest [MaxHistoryRows] rows.
type Stretch struct {
	// After is the place of the last row that was read. The stretch continues with the next older row.
	After Place
	// From and Until limit the rows' times, From <= time < Until, in epoch milliseconds. Until 0 means no limit.
	From, Until int64
	// Rows is the largest number of rows: 1 to [MaxHistoryRows]. 0 means MaxHistoryRows.
	Rows int
}

func (s Stretch) rows() int {
	if s.Rows <= 0 {
		return MaxHistoryRows
	}
	return min(s.Rows, MaxHistoryRows)
}

// Place returns the entry's position in its wallet's statement.
func (e Entry) Place() Place { return Place{Seq: e.Seq} }

const (
	// selectEntries reads charges and postings by their own indexes, and no more rows of each than requested.
	selectEntries = `SELECT wallet_seq, id, kind, ref, reason, amount_micros, balance_micros, created_at, corrects FROM (
		SELECT wallet_seq, id, kind, ref, reason, amount_micros, balance_micros, created_at, corrects FROM (
			SELECT wallet_seq, id, kind, ref, reason, amount_micros, balance_micros, created_at, corrects FROM ledger_tx
			WHERE org_id = $1 AND env = $2 AND wallet_seq > $3 AND wallet_seq <= $4
			ORDER BY wallet_seq DESC LIMIT $5) AS booked
		UNION ALL
		SELECT wallet_seq, id, 'charge', id, '', -charged_micros, balance_micros, ended_at, '' FROM (
			SELECT wallet_seq, id, charged_micros, balance_micros, ended_at FROM calls
			WHERE org_id = $1 AND env = $2 AND wallet_seq > $3 AND wallet_seq <= $4
			ORDER BY wallet_seq DESC LIMIT $5) AS charged
	) AS history ORDER BY wallet_seq DESC LIMIT $5`
)

// seqBefore returns the number of a wallet's last charge or posting before a moment.
func (b *Book) seqBefore(ctx context.Context, id WalletID, moment int64) (int64, error) {
	return store.ReadRow(ctx, b.db, "find a moment in a statement", store.ScanValue[int64], store.SelectSeqBefore, id.OrgID, string(id.Env), moment)
}

// numbers returns the range of numbers of the charges and postings in an interval, from < number <= through. A zero since or
// until leaves that end open.
func (b *Book) numbers(ctx context.Context, id WalletID, since, until int64) (from, through int64, err error) {
	through = math.MaxInt64
	if since > 0 {
		if from, err = b.seqBefore(ctx, id, since); err != nil {
			return 0, 0, err
		}
	}
	if until > 0 {
		through, err = b.seqBefore(ctx, id, until)
	}
	return from, through, err
}

// Entries reads a stretch of a wallet's statement: its charges and postings, by their numbers. Each of its reads is limited to 2 s.
func (b *Book) Entries(ctx context.Context, id WalletID, stretch Stretch) ([]Entry, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	from, through, err := b.numbers(ctx, id, stretch.From, stretch.Until)
	if err != nil {
		return nil, err
	}
	if after := stretch.After.Seq; after > 0 {
		through = min(through, after-1)
	}
	return store.ReadRows(ctx, b.db, "list transactions", func(row store.Row) (Entry, error) { return scanPosting(row, id) },
		selectEntries, id.OrgID, string(id.Env), from, through, stretch.rows())
}

// EndedCall is the record of a model call with its charge.
type EndedCall struct {
	Call
	Settled
	// Price is the price of its tokens. The zero value means that the call could cost nothing.
	Price Price
	// ReservedMicros is the amount that was reserved for it.
	ReservedMicros int64
	// EndedAt is the time of its settlement and charge, by the database's clock, in epoch milliseconds.
	EndedAt int64
}

// Place returns the call's position in its wallet's list, which is ordered by the calls' ends. Charged calls come before others
// that ended in the same moment.
func (c *EndedCall) Place() Place { return Place{At: c.EndedAt, ID: c.ID} }

// ratesOrZero are the columns of a price p, which are missing for a call without one.
const ratesOrZero = `coalesce(p.input_micros, 0), coalesce(p.output_micros, 0), coalesce(p.cached_input_micros, 0),
			coalesce(p.cache_write_micros, 0), coalesce(p.long_cache_write_micros, 0), coalesce(p.tiers, '')`

// Charged calls are found by their numbers, others by their ends. Each call is in one of the two indexes only.
const (
	endedColumns = `id, request_id, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens, cached_tokens,
		cache_write_tokens, long_cache_write_tokens, reasoning_tokens, usage_source, price_id, reserved_micros, charged_micros, shortfall_micros,
		ended_at, duration_ms, wallet_seq `
	endedFields = `SELECT history.id, request_id, key_id, history.model, history.provider, byok, stream, outcome, prompt_tokens,
			completion_tokens, cached_tokens, coalesce(cache_write_tokens, 0), coalesce(long_cache_write_tokens, 0),
			coalesce(reasoning_tokens, 0), usage_source,
			reserved_micros, charged_micros, shortfall_micros, ended_at, duration_ms, coalesce(upstream_model, ''), coalesce(answering_model, ''),
			` + ratesOrZero
	selectEndedCalls = endedFields + ` FROM (SELECT ` + endedColumns + `FROM (SELECT ` + endedColumns + `FROM calls
				WHERE org_id = $1 AND env = $2 AND wallet_seq > $3 AND wallet_seq <= $4 ORDER BY wallet_seq DESC LIMIT $8) AS charged
			UNION ALL SELECT ` + endedColumns + `FROM (SELECT ` + endedColumns + `FROM calls
				WHERE org_id = $1 AND env = $2 AND wallet_seq IS NULL AND (ended_at, id) < ($5, $6) AND ended_at >= $7
				ORDER BY ended_at DESC, id DESC LIMIT $8) AS uncharged
		) AS history LEFT JOIN prices p ON p.id = price_id
		ORDER BY ended_at DESC, wallet_seq DESC NULLS LAST, history.id DESC LIMIT $8`
	selectEndedCall  = endedFields + ` FROM calls history LEFT JOIN prices p ON p.id = price_id WHERE history.id = $1 AND org_id = $2 AND env = $3`
	selectCallNumber = `SELECT coalesce((SELECT wallet_seq FROM calls WHERE id = $1 AND org_id = $2 AND env = $3), 0)`
)

// Calls reads a stretch of the ended calls of a wallet, including free calls. Each of its reads is limited to 2 s.
func (b *Book) Calls(ctx context.Context, id WalletID, stretch Stretch) ([]EndedCall, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	start := stretch.After
	if start == (Place{}) {
		start.At = math.MaxInt64
	}
	if stretch.Until != 0 && stretch.Until <= start.At {
		start = Place{At: stretch.Until}
	}
	from, through, err := b.numbers(ctx, id, stretch.From, 0)
	if err == nil && start.At < math.MaxInt64 {
		through, start, err = b.after(ctx, id, start)
	}
	if err != nil {
		return nil, err
	}
	return store.ReadRows(ctx, b.db, "list calls", func(row store.Row) (EndedCall, error) { return scanEndedCall(row, id) },
		selectEndedCalls, id.OrgID, string(id.Env), from, through, start.At, start.ID, stretch.From, stretch.rows())
}

// Call reads an ended call of a wallet. It returns [store.ErrNotFound] if the wallet has none with this id.
func (b *Book) Call(ctx context.Context, id WalletID, callID string) (EndedCall, error) {
	return store.ReadRow(ctx, b.db, "read a call", func(row store.Row) (EndedCall, error) { return scanEndedCall(row, id) },
		selectEndedCall, callID, id.OrgID, string(id.Env))
}

// scanEndedCall scans a call of a wallet, and the columns after it.
func scanEndedCall(row store.Row, id WalletID, more ...any) (c EndedCall, err error) {
	var tiers string
	c.Wallet = id
	err = row.Scan(append([]any{
		&c.ID, &c.RequestID, &c.KeyID, &c.Model, &c.Provider, &c.BYOK, &c.Stream, &c.Outcome,
		&c.Usage.PromptTokens, &c.Usage.CompletionTokens, &c.Usage.CachedPromptTokens, &c.Usage.CacheWriteTokens, &c.Usage.LongCacheWriteTokens,
		&c.Usage.ReasoningTokens, &c.UsageSource, &c.ReservedMicros, &c.ChargedMicros, &c.ShortfallMicros, &c.EndedAt, &c.DurationMS,
		&c.UpstreamModel, &c.AnsweringModel, &c.Price.Input, &c.Price.Output, &c.Price.CachedInput, &c.Price.CacheWrite,
		&c.Price.LongCacheWrite, &tiers,
	}, more...)...)
	return c, errors.Join(err, c.Price.readTiers(tiers))
}

// after returns the number of the next charge after a place in the list of calls, and the place after which the next call without
// a charge is found.
func (b *Book) after(ctx context.Context, id WalletID, place Place) (through int64, others Place, err error) {
	seq, err := store.ReadRow(ctx, b.db, "find a place in a list", store.ScanValue[int64], selectCallNumber, place.ID, id.OrgID, string(id.Env))
	if err != nil || seq > 0 {
		return seq - 1, Place{At: place.At + 1}, err
	}
	through, err = b.seqBefore(ctx, id, place.At)
	return through, place, err
}

// Spend is the sum of one model's calls in an interval.
type Spend struct {
	Model                          string
	Calls                          int64
	PromptTokens, CompletionTokens int64
	ChargedMicros                  int64
}

const selectSpend = `SELECT model, count(*), CAST(sum(prompt_tokens) AS BIGINT), CAST(sum(completion_tokens) AS BIGINT),
		CAST(sum(charged_micros) AS BIGINT) FROM (
			SELECT model, prompt_tokens, completion_tokens, charged_micros FROM calls
			WHERE org_id = $1 AND env = $2 AND wallet_seq > $3 AND wallet_seq <= $4
			UNION ALL SELECT model, prompt_tokens, completion_tokens, 0 FROM calls
			WHERE org_id = $1 AND env = $2 AND wallet_seq IS NULL AND ended_at >= $5 AND ended_at < $6
		) AS history GROUP BY model ORDER BY model`

// Spend sums up, by model, the calls that ended in an interval, from <= end < until in epoch milliseconds. The charges are the ones in the
// statement. It reads each call, so callers should request a day at a time, and each of its reads is limited to 2 s. Refunds are not subtracted,
// because they are transactions of their own.
func (b *Book) Spend(ctx context.Context, id WalletID, from, until int64) ([]Spend, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	after, through, err := b.numbers(ctx, id, from, until)
	if err != nil {
		return nil, err
	}
	return store.ReadRows(ctx, b.db, "sum up calls", store.ScanFields[Spend](), selectSpend, id.OrgID, string(id.Env), after, through, from, until)
}

// Wallet is the balance of an organization in one environment, in micros.
type Wallet struct {
	// BalanceMicros includes HeldMicros.
	BalanceMicros int64
	// HeldMicros is reserved for running calls: 0..BalanceMicros.
	HeldMicros int64
}

// Wallet reads a wallet. A wallet is made by its first credit; until then its balance is 0.
func (b *Book) Wallet(ctx context.Context, id WalletID) (Wallet, error) {
	if err := id.validate(); err != nil {
		return Wallet{}, err
	}
	wallet, err := store.ReadRow(ctx, b.db, "read wallet", store.ScanFields[Wallet](),
		`SELECT balance_micros, held_micros FROM wallets WHERE org_id = $1 AND env = $2`, id.OrgID, string(id.Env))
	if errors.Is(err, store.ErrNotFound) {
		return Wallet{}, nil
	}
	return wallet, err
}
