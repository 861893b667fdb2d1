package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// invariant is a sentence that is true of the books at every moment, and a search for where it isn't.
type invariant struct {
	id, text, advice string
	search           func(context.Context, *search) error
}

// invariants are those that the database alone can show.
var invariants = []invariant{
	{
		"L1", "every ledger transaction has two legs or more, sums to 0 and moves its own wallet; of a charge, which is one row, both are implied",
		"the transaction in ledger_tx and its legs in ledger_entries; both are append-only, so somebody wrote them by hand",
		searchLegs,
	},
	{
		"L2", "all ledger entries together sum to 0",
		"the findings of L1, and legs whose transaction is missing",
		searchTotal,
	},
	{
		"L3", "a wallet's balance is the sum of its ledger entries and charges",
		"the last transactions of the wallet against balance_micros in ledger_tx and calls; correct the balance with wallet adjust, " +
			"never by hand",
		searchBalances,
	},
	{
		"L4", "what a wallet holds is the sum of its open holds and of what its tranches hold",
		"the wallet's rows in holds with status open, and in tranches with another status than ended",
		searchHeld,
	},
	{
		"L5", "a wallet holds nothing negative and never more than its balance",
		"whether the CHECK constraints of wallets are in place",
		func(ctx context.Context, s *search) error { return s.rows(ctx, overheldWallets) },
	},
	{
		"L6", "no hold stays open, and no tranche has not ended, two sweeps after its time is over",
		"whether a server or worker with this database is running, and its log for failed sweeps",
		func(ctx context.Context, s *search) error { return s.rows(ctx, lateHolds, s.lateBefore) },
	},
	{
		"L7", "a hold is resolved at most once, and has one charge exactly when its call was charged; " +
			"a charge has a hold, or a tranche of its wallet",
		"the hold and the call of the same id in holds and calls (charged_at, tranche_id), and for a charge of an older version ledger_tx.ref",
		searchResolutions,
	},
	{
		"L8", "a call is charged at most what was held for it and what was taken above that, " +
			"and a tranche that has ended is what its calls were charged from it and what it gave back",
		"the call in calls (charged, extra, shortfall) and its hold, or tranche_id and granted_micros; the tranche in tranches",
		searchCharges,
	},
	{
		"L10", "a finished idempotency key names one call of its wallet, with one charge exactly when the call was charged; " +
			"a key in progress names a call that has not ended, so that running it again can't charge twice",
		"the key of the call in idempotency_keys (call_id), the call, and for a charge of an older version ledger_tx.ref",
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
		"the call (charged_micros, balance_micros, charged_at) and, for a charge of an older version, the transaction that tx_id names",
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
			'holds ' || w.held_micros || ', holds and tranches sum ' || coalesce(h.micros, 0) AS detail
		FROM wallets w LEFT JOIN (
			SELECT org_id, env, sum(micros) AS micros FROM (
				SELECT org_id, env, amount_micros AS micros FROM holds WHERE status = 'open'
				UNION ALL
				SELECT org_id, env, taken_micros - drawn_micros - returned_micros FROM tranches WHERE status <> 'ended'
			) AS holding GROUP BY org_id, env
		) h ON h.org_id = w.org_id AND h.env = w.env
		WHERE w.held_micros <> coalesce(h.micros, 0)
		UNION ALL
		SELECT h.id, 'open without a wallet' FROM holds h WHERE h.status = 'open'
			AND NOT EXISTS (SELECT 1 FROM wallets w WHERE w.org_id = h.org_id AND w.env = h.env)
		UNION ALL
		SELECT t.id, t.status || ' without a wallet' FROM tranches t WHERE t.status <> 'ended'
			AND NOT EXISTS (SELECT 1 FROM wallets w WHERE w.org_id = t.org_id AND w.env = t.env)
		) AS findings`
	overheldWallets = `SELECT org_id || ':' || env, 'balance ' || balance_micros || ', held ' || held_micros
		FROM wallets WHERE held_micros < 0 OR held_micros > balance_micros`
	lateHolds = `SELECT id, 'open, expired at ' || expires_at FROM holds WHERE status = 'open' AND expires_at < $1
		UNION ALL
		SELECT id, status || ', leased until ' || lease_until FROM tranches WHERE status <> 'ended' AND lease_until < $1`

	// A call that came after its hold expired has a row, too, with nothing charged. A charge is the call's row when it has a time, else
	// a transaction of its own.
	brokenResolutions = `SELECT h.id, h.status || ', call charged ' || coalesce(CAST(c.charged_micros AS TEXT), 'none')
			|| ', charge ' || coalesce(t.id, c.tx_id, 'none')
		FROM holds h
		LEFT JOIN calls c ON c.id = h.id
		LEFT JOIN ledger_tx t ON t.kind = 'charge' AND t.org_id = h.org_id AND t.env = h.env AND t.ref = h.id
		WHERE h.id > $1 AND h.id <= $2 AND (
			(h.status = 'open' AND c.id IS NOT NULL)
			OR (h.status IN ('settled', 'voided') AND c.id IS NULL)
			OR (h.status <> 'settled' AND (t.id IS NOT NULL OR c.charged_at IS NOT NULL))
			OR (t.id IS NOT NULL AND c.charged_at IS NOT NULL)
			OR (h.status = 'settled' AND (coalesce(c.charged_micros, 0) > 0) <> (t.id IS NOT NULL OR c.charged_at IS NOT NULL)))`
	unheldCharges = `SELECT c.id, 'its charge has no settled hold and no tranche' FROM calls c
		LEFT JOIN holds h ON h.id = c.id LEFT JOIN tranches r ON r.id = c.tranche_id
		WHERE c.id > $1 AND c.id <= $2 AND c.charged_at IS NOT NULL AND NOT (
			(h.id IS NOT NULL AND h.status = 'settled' AND h.org_id = c.org_id AND h.env = c.env AND c.tranche_id IS NULL)
			OR (h.id IS NULL AND r.id IS NOT NULL AND r.org_id = c.org_id AND r.env = c.env))`
	// The kind as an expression keeps SQLite from reading all charges for each page by their own index.
	chargesWithoutCall = `SELECT t.id, 'charge for ' || t.ref || ', which has no settled hold and no tranche, or whose call does not name it'
		FROM ledger_tx t
		WHERE t.id > $1 AND t.id <= $2 AND t.kind || '' = 'charge' AND NOT EXISTS (
			SELECT 1 FROM calls c LEFT JOIN holds h ON h.id = c.id LEFT JOIN tranches r ON r.id = c.tranche_id
			WHERE c.id = t.ref AND c.tx_id = t.id AND c.charged_at IS NULL AND c.org_id = t.org_id AND c.env = t.env
				AND ((h.status = 'settled' AND h.org_id = t.org_id AND h.env = t.env AND c.tranche_id IS NULL)
					OR (h.id IS NULL AND r.org_id = t.org_id AND r.env = t.env)))`
	overchargedCalls = `SELECT c.id, 'charged ' || c.charged_micros || ', of it extra ' || c.extra_micros
			|| ', held ' || coalesce(h.amount_micros, c.granted_micros, 0)
		FROM calls c LEFT JOIN holds h ON h.id = c.id
		WHERE c.id > $1 AND c.id <= $2 AND (c.charged_micros < 0 OR c.extra_micros < 0 OR c.shortfall_micros < 0
			OR c.charged_micros > coalesce(h.amount_micros, c.granted_micros, 0) + c.extra_micros
			OR (c.tranche_id IS NULL AND c.extra_micros > 0 AND c.charged_micros <> coalesce(h.amount_micros, 0) + c.extra_micros)
			OR (c.tranche_id IS NULL) <> (c.granted_micros IS NULL))`
	drawnByCalls = `SELECT tranche_id, CAST(sum(charged_micros - extra_micros) AS BIGINT) FROM calls
		WHERE id > $1 AND id <= $2 AND tranche_id IS NOT NULL GROUP BY tranche_id`
	endedTranches  = `SELECT id, drawn_micros FROM tranches WHERE id > $1 AND id <= $2 AND ended_at < $3`
	misstatedCalls = `SELECT c.id, 'charged ' || c.charged_micros || ', ledger ' || coalesce(-e.amount_micros, 0)
			|| ' in ' || coalesce(c.tx_id, 'none') || ', balance ' || coalesce(CAST(c.balance_micros AS TEXT), 'none')
			|| ' at ' || coalesce(CAST(c.charged_at AS TEXT), 'none')
		FROM calls c
		LEFT JOIN ledger_tx t ON t.id = c.tx_id AND t.kind = 'charge' AND t.ref = c.id
		LEFT JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
			AND e.account = 'org:' || c.org_id || ':' || c.env
		WHERE c.id > $1 AND c.id <= $2 AND (
			(c.charged_at IS NULL AND c.charged_micros <> coalesce(-e.amount_micros, 0))
			OR (c.charged_at IS NOT NULL AND (c.charged_micros = 0 OR c.tx_id IS NULL))
			OR (c.charged_at IS NULL) <> (c.balance_micros IS NULL)
			OR c.balance_micros < 0
			OR (c.charged_micros = 0 AND c.tx_id IS NOT NULL))`
	unownedCalls = `SELECT c.id, 'its organization ' || c.org_id || ' does not exist' FROM calls c
		WHERE c.id > $1 AND c.id <= $2 AND NOT EXISTS (SELECT 1 FROM organizations o WHERE o.id = c.org_id)`

	brokenClaims = `SELECT k.call_id, 'its key is ' || k.state || ', call charged '
			|| coalesce(CAST(c.charged_micros AS TEXT), 'none') || ', charge ' || coalesce(t.id, c.tx_id, 'none')
		FROM idempotency_keys k
		LEFT JOIN calls c ON c.id = k.call_id AND c.org_id = k.org_id AND c.env = k.env
		LEFT JOIN ledger_tx t ON t.kind = 'charge' AND t.org_id = k.org_id AND t.env = k.env AND t.ref = k.call_id
		WHERE k.call_id > $1 AND k.call_id <= $2 AND (
			(k.state = 'done' AND (c.id IS NULL OR (c.charged_micros > 0) <> (t.id IS NOT NULL OR c.charged_at IS NOT NULL)))
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

// searchCharges sums what calls were charged from tranches while it reads them. A tranche that had ended before it began is no longer
// charged, so its calls are all there.
func searchCharges(ctx context.Context, s *search) error {
	drawn := map[string]int64{}
	err := s.pages(ctx, "calls", "id", func(ctx context.Context, after, through string) error {
		page := map[string]int64{}
		err := s.rows(ctx, overchargedCalls, after, through)
		if err == nil {
			err = s.amounts(ctx, page, drawnByCalls, after, through)
		}
		if err != nil {
			return err // before anything is added, because a page that takes too long is read again
		}
		for id, micros := range page {
			drawn[id] += micros
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.pages(ctx, "tranches", "id", func(ctx context.Context, after, through string) error {
		ended := map[string]int64{}
		if err := s.amounts(ctx, ended, endedTranches, after, through, s.now-quietAfterMS); err != nil {
			return err
		}
		for _, id := range slices.Sorted(maps.Keys(ended)) {
			if ended[id] != drawn[id] {
				s.add(id, fmt.Sprintf("drawn %d, its calls were charged %d from it", ended[id], drawn[id]))
			}
		}
		return nil
	})
}

// amounts adds the rows (id, micros) of a statement to sums.
func (s *search) amounts(ctx context.Context, sums map[string]int64, query string, args ...any) error {
	return s.read(ctx, func(rows *sql.Rows) error {
		var id string
		var micros int64
		err := rows.Scan(&id, &micros)
		sums[id] += micros
		return err
	}, query, args...)
}

func searchHeld(ctx context.Context, s *search) error { return s.rows(ctx, heldMismatch) }

func searchResolutions(ctx context.Context, s *search) error {
	if err := s.pagedRows(ctx, "holds", brokenResolutions); err != nil {
		return err
	}
	if err := s.pagedRows(ctx, "calls", unheldCharges); err != nil {
		return err
	}
	return s.pagedRows(ctx, "ledger_tx", chargesWithoutCall)
}

const (
	unownedTransactions = `SELECT t.id, 'its wallet ' || t.org_id || ':' || t.env || ' does not exist' FROM ledger_tx t
		WHERE t.id > $1 AND t.id <= $2
			AND NOT EXISTS (SELECT 1 FROM wallets w WHERE w.org_id = t.org_id AND w.env = t.env)`
	allWallets = `SELECT org_id, env FROM wallets WHERE org_id > $1 AND org_id <= $2`
	// Wallets whose balance isn't the sum of all that moved it.
	unbalancedWallets = `SELECT w.org_id, w.env FROM wallets w WHERE w.org_id > $1 AND w.org_id <= $2 AND w.balance_micros <>
		(SELECT coalesce(sum(e.amount_micros), 0) FROM ledger_tx t JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
			WHERE t.org_id = w.org_id AND t.env = w.env)
		- (SELECT coalesce(sum(c.charged_micros), 0) FROM calls c
			WHERE c.org_id = w.org_id AND c.env = w.env AND c.charged_at IS NOT NULL)`
	// Wallets that something moved since $3, or whose balance isn't the one that their last transaction left.
	movedWallets = `SELECT org_id, env FROM (SELECT w.org_id, w.env, w.balance_micros, (SELECT max(at) FROM (
			SELECT max(created_at) AS at FROM ledger_tx t WHERE t.org_id = w.org_id AND t.env = w.env
			UNION ALL SELECT max(charged_at) FROM calls c WHERE c.org_id = w.org_id AND c.env = w.env AND c.charged_at IS NOT NULL
		) AS moments) AS moved_at FROM wallets w WHERE w.org_id > $1 AND w.org_id <= $2) AS w
		WHERE moved_at >= $3 OR balance_micros <> (SELECT CASE count(*) WHEN 0 THEN 0 WHEN 1 THEN max(left_micros) ELSE -1 END FROM (
			SELECT t.balance_micros AS left_micros FROM ledger_tx t WHERE t.org_id = w.org_id AND t.env = w.env AND t.created_at = w.moved_at
			UNION ALL SELECT c.balance_micros FROM calls c WHERE c.org_id = w.org_id AND c.env = w.env AND c.charged_at = w.moved_at
		) AS last)`

	newestTransaction = `SELECT max(at) FROM (
			SELECT max(created_at) AS at FROM ledger_tx WHERE org_id = $1 AND env = $2 AND created_at < $3
			UNION ALL SELECT max(charged_at) FROM calls WHERE org_id = $1 AND env = $2 AND charged_at < $3
		) AS newest`
	transactionsAt = `SELECT t.balance_micros, e.amount_micros FROM ledger_tx t JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
			WHERE t.org_id = $1 AND t.env = $2 AND t.created_at = $3
		UNION ALL SELECT balance_micros, -charged_micros FROM calls WHERE org_id = $1 AND env = $2 AND charged_at = $3`
	nextTransactions = `SELECT max(at) FROM (SELECT at FROM (
			SELECT at FROM (SELECT created_at AS at FROM ledger_tx
				WHERE org_id = $1 AND env = $2 AND created_at > $3 ORDER BY created_at LIMIT $4) AS booked
			UNION ALL
			SELECT charged_at FROM (SELECT charged_at FROM calls
				WHERE org_id = $1 AND env = $2 AND charged_at > $3 ORDER BY charged_at LIMIT $4) AS charged
		) AS next ORDER BY at LIMIT $4) AS page`
	sumOfPeriod = `SELECT CAST(coalesce(sum(micros), 0) AS BIGINT) FROM (
			SELECT e.amount_micros AS micros FROM ledger_tx t JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
				WHERE t.org_id = $1 AND t.env = $2 AND t.created_at > $3 AND t.created_at <= $4
			UNION ALL
			SELECT -charged_micros FROM calls WHERE org_id = $1 AND env = $2 AND charged_at > $3 AND charged_at <= $4
		) AS moved`
	balanceAndRest = `SELECT w.balance_micros, (SELECT CAST(coalesce(sum(e.amount_micros), 0) AS BIGINT)
			FROM ledger_tx t JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
			WHERE t.org_id = w.org_id AND t.env = w.env AND t.created_at > $3)
			- (SELECT CAST(coalesce(sum(c.charged_micros), 0) AS BIGINT) FROM calls c
			WHERE c.org_id = w.org_id AND c.env = w.env AND c.charged_at > $3)
		FROM wallets w WHERE w.org_id = $1 AND w.env = $2`
)

// quietAfterMS is the age from which a part of the ledger can't grow: created_at is a transaction's beginning, and none stays
// open nearly that long.
const quietAfterMS = 60_000

func searchBalances(ctx context.Context, s *search) error {
	err := s.pages(ctx, "wallets", "org_id", func(ctx context.Context, after, through string) error {
		wallets, err := s.suspectWallets(ctx, after, through)
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

// suspectWallets returns those wallets of a page whose balance one statement doesn't prove. Where a wallet has moved too often for
// that, they are all of the page.
func (s *search) suspectWallets(ctx context.Context, after, through string) ([]WalletID, error) {
	query, args := unbalancedWallets, []any{after, through}
	if s.since > 0 {
		query, args = movedWallets, append(args, s.since)
	}
	wallets, err := s.wallets(ctx, query, args...)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return s.wallets(ctx, allWallets, after, through)
	}
	return wallets, err
}

// wallets reads the wallets that a statement finds.
func (s *search) wallets(ctx context.Context, query string, args ...any) (all []WalletID, err error) {
	err = s.read(ctx, func(rows *sql.Rows) error {
		var id WalletID
		err := rows.Scan(&id.OrgID, &id.Env)
		all = append(all, id)
		return err
	}, query, args...)
	return all, err
}

// opening returns what is left of a wallet after the last moment before the check begins, and that moment. Several transactions of one
// moment are a chain, of which each begins with the balance that another has left: the last one's balance is none's beginning.
func (s *search) opening(ctx context.Context, id WalletID) (balance, at int64, err error) {
	for before := s.since; before > 0; before = at {
		var last sql.NullInt64
		if err := s.value(ctx, &last, newestTransaction, id.OrgID, id.Env, before); err != nil || !last.Valid {
			return 0, 0, err
		}
		at = last.Int64
		ends := map[int64]int{} // how many transactions end with a balance, less those that begin with it
		err := s.read(ctx, func(rows *sql.Rows) error {
			var balance, micros int64
			err := rows.Scan(&balance, &micros)
			ends[balance]++
			ends[balance-micros]--
			return err
		}, transactionsAt, id.OrgID, id.Env, at)
		if err != nil {
			return 0, 0, err
		}
		maps.DeleteFunc(ends, func(_ int64, n int) bool { return n <= 0 })
		for balance = range ends {
			if len(ends) == 1 && ends[balance] == 1 {
				return balance, at, nil
			}
		}
		if len(ends) > 0 {
			s.add(id.OrgID+":"+string(id.Env), fmt.Sprintf("the balances of its transactions at %d don't follow from each other", at))
		} // else they moved nothing together, and the balance before them is as good
	}
	return 0, 0, nil
}

// searchBalance compares one wallet with its entries while it may be in use. The part that can't change is summed in short
// reads; the rest and the balance come from one statement, so from one moment.
func (s *search) searchBalance(ctx context.Context, id WalletID) error {
	var newest sql.NullInt64
	if err := s.value(ctx, &newest, newestTransaction, id.OrgID, id.Env, int64(math.MaxInt64)); err != nil {
		return err
	}
	entries, summedTo, err := s.opening(ctx, id)
	if err != nil {
		return err
	}
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
	err = s.read(ctx, func(rows *sql.Rows) error { return rows.Scan(&balance, &rest) },
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
