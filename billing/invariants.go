package billing

import (
	"context"
	"database/sql"
	"fmt"
)

// invariant is a sentence that is true of the books at every moment, and a search for where it isn't.
type invariant struct {
	id, text, advice string
	search           func(context.Context, *search) error
}

// invariants are those that the database alone can show.
var invariants = []invariant{
	{
		"L1", "every ledger transaction has two legs or more, sums to 0 and moves its own wallet",
		"the transaction in ledger_tx and its legs in ledger_entries; both are append-only, so somebody wrote them by hand",
		searchLegs,
	},
	{
		"L2", "all ledger entries together sum to 0",
		"the findings of L1, and legs whose transaction is missing",
		searchTotal,
	},
	{
		"L3", "a wallet's balance is the sum of its ledger entries",
		"the last transactions of the wallet against ledger_tx.balance_micros; correct the balance with wallet adjust, never by hand",
		searchBalances,
	},
	{
		"L4", "what a wallet holds is the sum of its open holds",
		"the wallet's rows in holds with status open",
		searchHeld,
	},
	{
		"L5", "a wallet holds nothing negative and never more than its balance",
		"whether the CHECK constraints of wallets are in place",
		func(ctx context.Context, s *search) error { return s.rows(ctx, overheldWallets) },
	},
	{
		"L6", "no hold stays open for two sweeps after its time is over",
		"whether a server or worker with this database is running, and its log for failed sweeps",
		func(ctx context.Context, s *search) error { return s.rows(ctx, lateHolds, s.lateBefore) },
	},
	{
		"L7", "a hold is resolved at most once, and has one charge exactly when its call was charged",
		"the hold, the call and the transaction of the same id in holds, calls and ledger_tx.ref",
		searchResolutions,
	},
	{
		"L8", "a call is charged at most its hold and what was taken above it",
		"the call in calls (charged, extra, shortfall) and its hold",
		func(ctx context.Context, s *search) error { return s.pagedRows(ctx, "calls", overchargedCalls) },
	},
	{
		"L10", "a finished idempotency key names one call of its wallet, with one charge exactly when the call was charged; " +
			"a key in progress names a call that has not ended, so that running it again can't charge twice",
		"the key of the call in idempotency_keys (call_id), the call, and its charge in ledger_tx.ref",
		func(ctx context.Context, s *search) error {
			return s.pagedRowsBy(ctx, "idempotency_keys", "call_id", brokenClaims)
		},
	},
	{
		"L14", "no idempotency key stays in progress for two sweeps after its lease is over",
		"whether a server or worker with this database is running, and its log for failed sweeps",
		func(ctx context.Context, s *search) error { return s.rows(ctx, lapsedClaims, s.lateBefore) },
	},
	{
		"L15", "what calls say they were charged is what the ledger charged",
		"the call and the transaction it names in tx_id",
		func(ctx context.Context, s *search) error { return s.pagedRows(ctx, "calls", misstatedCalls) },
	},
	{
		"L18", "every call belongs to an organization, and the calls of the worker obey L1 to L15: they are in the same " +
			"tables as those made with an API key, so the lines above cover them, too",
		"the call in calls (org_id, key_id)",
		func(ctx context.Context, s *search) error { return s.pagedRows(ctx, "calls", unownedCalls) },
	},
}

const (
	brokenTransactions = `SELECT t.id, count(e.seq) || ' legs, sum ' || coalesce(sum(e.amount_micros), 0)
			|| ', of its wallet ' || coalesce(sum(CASE WHEN e.account = 'org:' || t.org_id || ':' || t.env THEN 1 ELSE 0 END), 0)
		FROM ledger_tx t LEFT JOIN ledger_entries e ON e.tx_id = t.id
		WHERE t.id > $1 AND t.id <= $2
		GROUP BY t.id, t.org_id, t.env
		HAVING count(e.seq) < 2 OR coalesce(sum(e.amount_micros), 0) <> 0
			OR sum(CASE WHEN e.seq = 0 AND e.account = 'org:' || t.org_id || ':' || t.env THEN 1 ELSE 0 END) <> 1
			OR sum(CASE WHEN substr(e.account, 1, 4) = 'org:' THEN 1 ELSE 0 END) <> 1`
	orphanedLegs = `SELECT e.tx_id, 'a leg of ' || e.amount_micros || ' without its transaction' FROM ledger_entries e
		WHERE e.tx_id > $1 AND e.tx_id <= $2 AND NOT EXISTS (SELECT 1 FROM ledger_tx t WHERE t.id = e.tx_id)`
	sumOfLegs = `SELECT CAST(coalesce(sum(amount_micros), 0) AS BIGINT) FROM ledger_entries
		WHERE tx_id > $1 AND tx_id <= $2`

	heldMismatch = `SELECT subject, detail FROM (
		SELECT w.org_id || ':' || w.env AS subject,
			'holds ' || w.held_micros || ', open holds sum ' || coalesce(h.micros, 0) AS detail
		FROM wallets w LEFT JOIN (
			SELECT org_id, env, sum(amount_micros) AS micros FROM holds WHERE status = 'open' GROUP BY org_id, env
		) h ON h.org_id = w.org_id AND h.env = w.env
		WHERE w.held_micros <> coalesce(h.micros, 0)
		UNION ALL
		SELECT h.id, 'open without a wallet' FROM holds h WHERE h.status = 'open'
			AND NOT EXISTS (SELECT 1 FROM wallets w WHERE w.org_id = h.org_id AND w.env = h.env)
		) AS findings`
	overheldWallets = `SELECT org_id || ':' || env, 'balance ' || balance_micros || ', held ' || held_micros
		FROM wallets WHERE held_micros < 0 OR held_micros > balance_micros`
	lateHolds = `SELECT id, 'open, expired at ' || expires_at FROM holds
		WHERE status = 'open' AND expires_at < $1 ORDER BY expires_at`

	// A call that came after its hold expired has a row, too, with nothing charged.
	brokenResolutions = `SELECT h.id, h.status || ', call charged ' || coalesce(CAST(c.charged_micros AS TEXT), 'none')
			|| ', charge ' || coalesce(t.id, 'none')
		FROM holds h
		LEFT JOIN calls c ON c.id = h.id
		LEFT JOIN ledger_tx t ON t.kind = 'charge' AND t.org_id = h.org_id AND t.env = h.env AND t.ref = h.id
		WHERE h.id > $1 AND h.id <= $2 AND (
			(h.status = 'open' AND c.id IS NOT NULL)
			OR (h.status IN ('settled', 'voided') AND c.id IS NULL)
			OR (h.status <> 'settled' AND t.id IS NOT NULL)
			OR (h.status = 'settled' AND (coalesce(c.charged_micros, 0) > 0) <> (t.id IS NOT NULL)))`
	// The kind as an expression keeps SQLite from reading all charges for each page by their own index.
	chargesWithoutCall = `SELECT t.id, 'charge for ' || t.ref || ', which has no settled hold or whose call does not name it'
		FROM ledger_tx t
		WHERE t.id > $1 AND t.id <= $2 AND t.kind || '' = 'charge' AND NOT EXISTS (
			SELECT 1 FROM calls c JOIN holds h ON h.id = c.id
			WHERE c.id = t.ref AND c.tx_id = t.id AND h.status = 'settled'
				AND h.org_id = t.org_id AND h.env = t.env AND c.org_id = t.org_id AND c.env = t.env)`
	overchargedCalls = `SELECT c.id, 'charged ' || c.charged_micros || ', of it extra ' || c.extra_micros
			|| ', held ' || coalesce(h.amount_micros, 0)
		FROM calls c LEFT JOIN holds h ON h.id = c.id
		WHERE c.id > $1 AND c.id <= $2 AND (c.charged_micros < 0 OR c.extra_micros < 0 OR c.shortfall_micros < 0
			OR c.charged_micros > coalesce(h.amount_micros, 0) + c.extra_micros
			OR (c.extra_micros > 0 AND c.charged_micros <> coalesce(h.amount_micros, 0) + c.extra_micros))`
	misstatedCalls = `SELECT c.id, 'charged ' || c.charged_micros || ', ledger ' || coalesce(-e.amount_micros, 0)
			|| ' in ' || coalesce(c.tx_id, 'none')
		FROM calls c
		LEFT JOIN ledger_tx t ON t.id = c.tx_id AND t.kind = 'charge' AND t.ref = c.id
		LEFT JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
			AND e.account = 'org:' || c.org_id || ':' || c.env
		WHERE c.id > $1 AND c.id <= $2
			AND (c.charged_micros <> coalesce(-e.amount_micros, 0) OR (c.charged_micros = 0 AND c.tx_id IS NOT NULL))`
	unownedCalls = `SELECT c.id, 'its organization ' || c.org_id || ' does not exist' FROM calls c
		WHERE c.id > $1 AND c.id <= $2 AND NOT EXISTS (SELECT 1 FROM organizations o WHERE o.id = c.org_id)`

	brokenClaims = `SELECT k.call_id, 'its key is ' || k.state || ', call charged '
			|| coalesce(CAST(c.charged_micros AS TEXT), 'none') || ', charge ' || coalesce(t.id, 'none')
		FROM idempotency_keys k
		LEFT JOIN calls c ON c.id = k.call_id AND c.org_id = k.org_id AND c.env = k.env
		LEFT JOIN ledger_tx t ON t.kind = 'charge' AND t.org_id = k.org_id AND t.env = k.env AND t.ref = k.call_id
		WHERE k.call_id > $1 AND k.call_id <= $2 AND (
			(k.state = 'done' AND (c.id IS NULL OR (c.charged_micros > 0) <> (t.id IS NOT NULL)))
			OR (k.state = 'in_progress' AND (c.id IS NOT NULL OR t.id IS NOT NULL)))`
	lapsedClaims = `SELECT call_id, 'its key is in progress, leased until ' || lease_until FROM idempotency_keys
		WHERE state = 'in_progress' AND lease_until < $1 ORDER BY lease_until`
)

func searchLegs(ctx context.Context, s *search) error {
	return s.pagedRows(ctx, "ledger_tx", brokenTransactions)
}

// searchTotal sums page by page. A page has all legs of its transactions, so it is complete whenever it is read.
func searchTotal(ctx context.Context, s *search) error {
	var total int64
	err := s.pages(ctx, "ledger_entries", "tx_id", func(ctx context.Context, after, through string) error {
		if err := s.rows(ctx, orphanedLegs, after, through); err != nil {
			return err
		}
		var sum int64
		if err := s.value(ctx, &sum, sumOfLegs, after, through); err != nil {
			return err
		}
		sum, err := addMicros(total, sum)
		if err == nil {
			total = sum // last, because a page that takes too long is read again
		}
		return err
	})
	if err == nil && total != 0 {
		s.add("ledger_entries", "sum "+FormatMicros(total))
	}
	return err
}

func searchHeld(ctx context.Context, s *search) error { return s.rows(ctx, heldMismatch) }

func searchResolutions(ctx context.Context, s *search) error {
	if err := s.pagedRows(ctx, "holds", brokenResolutions); err != nil {
		return err
	}
	return s.pagedRows(ctx, "ledger_tx", chargesWithoutCall)
}

const (
	unownedTransactions = `SELECT t.id, 'its wallet ' || t.org_id || ':' || t.env || ' does not exist' FROM ledger_tx t
		WHERE t.id > $1 AND t.id <= $2
			AND NOT EXISTS (SELECT 1 FROM wallets w WHERE w.org_id = t.org_id AND w.env = t.env)`
	organizationsWithWallet = `SELECT DISTINCT org_id, env FROM wallets WHERE org_id > $1 AND org_id <= $2`

	newestTransaction = `SELECT max(created_at) FROM ledger_tx WHERE org_id = $1 AND env = $2`
	nextTransactions  = `SELECT max(created_at) FROM (SELECT created_at FROM ledger_tx
		WHERE org_id = $1 AND env = $2 AND created_at > $3 ORDER BY created_at LIMIT $4) AS page`
	sumOfPeriod = `SELECT CAST(coalesce(sum(e.amount_micros), 0) AS BIGINT)
		FROM ledger_tx t JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
		WHERE t.org_id = $1 AND t.env = $2 AND t.created_at > $3 AND t.created_at <= $4`
	balanceAndRest = `SELECT w.balance_micros, (SELECT CAST(coalesce(sum(e.amount_micros), 0) AS BIGINT)
			FROM ledger_tx t JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
			WHERE t.org_id = w.org_id AND t.env = w.env AND t.created_at > $3)
		FROM wallets w WHERE w.org_id = $1 AND w.env = $2`
)

// quietAfterMS is the age from which a part of the ledger can't grow: created_at is a transaction's beginning, and none stays
// open nearly that long.
const quietAfterMS = 60_000

func searchBalances(ctx context.Context, s *search) error {
	err := s.pages(ctx, "wallets", "org_id", func(ctx context.Context, after, through string) error {
		var wallets []WalletID
		err := s.read(ctx, func(rows *sql.Rows) error {
			var id WalletID
			err := rows.Scan(&id.OrgID, &id.Env)
			wallets = append(wallets, id)
			return err
		}, organizationsWithWallet, after, through)
		for i := 0; err == nil && i < len(wallets) && !s.full(); i++ {
			err = s.searchBalance(ctx, wallets[i])
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.pagedRows(ctx, "ledger_tx", unownedTransactions)
}

// searchBalance compares one wallet with its entries while it may be in use. The part that can't change is summed in short
// reads; the rest and the balance come from one statement, so from one moment.
func (s *search) searchBalance(ctx context.Context, id WalletID) error {
	var newest sql.NullInt64
	if err := s.value(ctx, &newest, newestTransaction, id.OrgID, id.Env); err != nil {
		return err
	}
	var entries, summedTo int64
	for {
		var through sql.NullInt64
		err := s.value(ctx, &through, nextTransactions, id.OrgID, id.Env, summedTo, int64(s.pageRows))
		if err != nil {
			return err
		}
		if !through.Valid || through.Int64 > newest.Int64-quietAfterMS {
			break
		}
		var sum int64
		if err := s.value(ctx, &sum, sumOfPeriod, id.OrgID, id.Env, summedTo, through.Int64); err != nil {
			return err
		}
		if entries, err = addMicros(entries, sum); err != nil {
			return err
		}
		summedTo = through.Int64
	}
	var balance, rest int64
	err := s.read(ctx, func(rows *sql.Rows) error { return rows.Scan(&balance, &rest) },
		balanceAndRest, id.OrgID, id.Env, summedTo)
	if err != nil {
		return err
	}
	if entries, err = addMicros(entries, rest); err != nil {
		return err
	}
	if balance != entries {
		s.add(fmt.Sprintf("%s:%s", id.OrgID, id.Env), fmt.Sprintf("balance %d, entries sum %d", balance, entries))
	}
	return nil
}
