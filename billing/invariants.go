package billing

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// invariant is a statement that is always true of the ledger, with a search for violations.
type invariant struct {
	id, text, advice string
	search           func(context.Context, *search) error
}

func rule(id, text, advice string, search func(context.Context, *search) error) invariant {
	return invariant{id, text, advice, search}
}

// paged returns a search that runs a statement for each page of a table.
func paged(table, statement string) func(context.Context, *search) error {
	return func(ctx context.Context, s *search) error { return s.pagedRows(ctx, table, statement) }
}

// invariants are the invariants that the database alone can show.
var invariants = []invariant{
	rule("L4", "what a wallet holds is what its running calls and its tranches have reserved",
		"the wallet's rows in holds, in running_keys (reserved_micros) and in tranches (left_micros)",
		func(ctx context.Context, s *search) error { return s.rows(ctx, heldMismatch) }),
	rule("L5", "a wallet holds nothing negative and never more than its balance",
		"whether the CHECK constraints of wallets are in place",
		func(ctx context.Context, s *search) error { return s.rows(ctx, overheldWallets) }),
	rule("L6", "no hold, no key in progress and no tranche outlives its time by two sweeps",
		"whether a server or worker with this database is running, and its log for failed sweeps",
		func(ctx context.Context, s *search) error { return s.rows(ctx, lateReservations, s.lateBefore) }),
	rule("L10", "no call that has ended has a hold or a key in progress, and a finished key names a call of its wallet and, "+
		"where an answer is kept, that answer",
		"the call in holds, running_keys and idempotency_keys (call_id), kept_answers and calls", searchKeys),
	rule("P1", "what a call was charged, and what it cost the operator, is together its tokens by its price, and it ended in the past",
		"the call in calls, its price in prices, and the price of its model in the configuration; a wrong charge is given back with wallet refund",
		searchCosts),
	rule("P2", "no call was charged more than was reserved for it",
		"whether the CHECK constraints of calls are in place; the call in calls", paged("calls", overchargedCalls)),
	rule("P3", "every call is of an organization with a wallet, and its key is of that organization and environment",
		"the call in calls (org_id, env, key_id) and its key in api_keys; calls of assistants and members have no key",
		paged("calls", misownedCalls)),
	rule("P4", "the charges and postings of a wallet are numbered without a gap, each balance follows from the one before, "+
		"and the last is the wallet's",
		"the wallet's rows in calls and ledger_tx by wallet_seq, from the number that is named on; "+
			"correct a balance with wallet adjust, never by hand", searchStatements),
	rule("P5", "a refund is of a call of its wallet, and not more than that was charged",
		"the refund in ledger_tx (ref is the call), and the call in calls", paged("ledger_tx", wrongRefunds)),
	rule("P6", "a posting is booked against the account of its kind: credits and reversals sys:cash, adjustments sys:loss, refunds sys:revenue",
		"the posting in ledger_tx (kind, account, amount_micros)", paged("ledger_tx", misbookedPostings)),
	rule("P7", "every posting has its row in the audit log",
		"the posting in ledger_tx (audit_id), and audit_log: somebody may have written one of them by hand",
		paged("ledger_tx", unauditedPostings)),
	rule("P8", "a completed call for which credits were reserved was charged, or cost the operator",
		"the call in calls (outcome, tokens, charged_micros, shortfall_micros)", paged("calls", unchargedCalls)),
	rule("P9", "the parts of a call's tokens are within their whole, a call that nobody counted has no tokens, and a price is as it was written",
		"the call in calls (the columns of tokens, usage_source); the price in prices, which somebody may have changed by hand",
		searchParts),
	rule("P10", "a failed attempt is of a call of its organization, and the attempts of a call are numbered without a gap",
		"the attempts of the call in attempts, and the call in calls", paged("attempts", straysOfAttempts)),
	rule("M1", "the claim on a wallet is what payments took back of it beyond its reversals, and nothing is free beside it",
		"the wallet's claim_micros, balance_micros and held_micros, its payments (taken_micros), and its reversals in ledger_tx",
		paged("wallets", wrongClaims)),
	rule("M2", "a credited payment has its credit, with its amount and reference, no other payment has one, and no provider's credit is without one",
		"the payment in payments (entry_id), and the credit in ledger_tx with the reference pay:PROVIDER:ID", searchPayments),
	rule("K1", "the bytes of a wallet's kept answers are those of its finished keys",
		"the wallet's rows in idempotency_keys (kept_bytes) and wallets (kept_bytes)", paged("wallets", miscountedAnswers)),
	rule("B1", "what is reserved in a budget is what running calls and tranches have reserved in it",
		"the wallet's rows in budget_spend (reserved_micros), holds, running_keys and tranches (budgets)", searchReserved),
	rule("B2", "what a budget has spent in a period is the charges of the calls that are counted in it",
		"the wallet's rows in budget_spend (spent_micros, first_seq, last_seq) and calls (budgets, charged_micros)", searchSpent),
	rule("B3", "no budget has spent and reserved more than the limit that admitted it",
		"whether the CHECK constraints of budget_spend are in place", paged("wallets", overspentPeriods)),
	rule("S1", "a closed month is as it was written, and its sums are those of its charges and postings",
		"the wallet's row in statements, and its rows in calls and ledger_tx with the month's numbers: somebody has changed one of them by hand",
		searchClosedMonths),
	rule("S2", "the closed months of a wallet follow each other without a gap, in time and in numbers",
		"the wallet's rows in statements by month, which somebody may have deleted by hand",
		func(ctx context.Context, s *search) error { return s.searchMonths(ctx, (*closedMonth).joins) }),
	rule("S3", "the opening balance of a closed month, with what it got and without what it gave, is its closing balance, and both are the wallet's",
		"the wallet's row in statements, and its rows in calls and ledger_tx with first_seq - 1 and last_seq",
		func(ctx context.Context, s *search) error { return s.searchMonths(ctx, (*closedMonth).balances) }),
	rule("U1", "the usage of today and yesterday is that of the calls which are counted in it",
		"the wallet's calls, and its rows in usage_days and usage_wallets; a clock that was set back hides calls without a charge from the usage",
		searchUsage),
}

const (
	heldMismatch = `SELECT subject, detail FROM (
		SELECT coalesce(w.org_id || ':' || w.env, r.org_id || ':' || r.env) AS subject,
			CASE WHEN w.org_id IS NULL THEN 'no wallet' ELSE 'holds ' || w.held_micros END
				|| ', reserved ' || coalesce(r.micros, 0) AS detail,
			coalesce(w.held_micros, 0) AS held, coalesce(r.micros, 0) AS reserved
		FROM wallets w FULL JOIN (
			SELECT org_id, env, sum(micros) AS micros FROM (
				SELECT org_id, env, amount_micros AS micros FROM holds
				UNION ALL SELECT org_id, env, reserved_micros FROM running_keys
				UNION ALL SELECT org_id, env, left_micros FROM tranches
			) AS reservations GROUP BY org_id, env
		) r ON r.org_id = w.org_id AND r.env = w.env) AS wallets WHERE held <> reserved`
	overheldWallets = `SELECT org_id || ':' || env, 'balance ' || balance_micros || ', held ' || held_micros
		FROM wallets WHERE held_micros < 0 OR held_micros > balance_micros`
	lateReservations = `SELECT id, 'a hold that expired at ' || expires_at FROM holds WHERE expires_at < $1
		UNION ALL SELECT id, 'a tranche leased until ' || lease_until FROM tranches WHERE lease_until < $1
		UNION ALL SELECT call_id, 'a key in progress until ' || expires_at FROM running_keys WHERE expires_at < $1`

	endedHolds = `SELECT h.id, 'it has ended and has a hold' FROM holds h JOIN calls c ON c.id = h.id
		UNION ALL SELECT r.call_id, 'it has ended and its key is in progress' FROM running_keys r JOIN calls c ON c.id = r.call_id
		UNION ALL SELECT r.call_id, 'its key is in progress and finished by ' || k.call_id FROM running_keys r
			JOIN idempotency_keys k ON k.org_id = r.org_id AND k.env = r.env AND k.key_hash = r.key_hash`
	keysOfCalls = `SELECT k.org_id, k.env, k.key_hash, k.call_id, c.id IS NOT NULL, coalesce(length(a.response), 0) = k.kept_bytes
		FROM idempotency_keys k
		LEFT JOIN calls c ON c.id = k.call_id AND c.org_id = k.org_id AND c.env = k.env
		LEFT JOIN kept_answers a ON a.org_id = k.org_id AND a.env = k.env AND a.call_id = k.call_id
		WHERE (k.org_id, k.env, k.key_hash) > ($1, $2, $3) ORDER BY k.org_id, k.env, k.key_hash LIMIT $4`

	costsOfCalls = `SELECT c.id, c.prompt_tokens, c.completion_tokens, c.cached_tokens, coalesce(c.cache_write_tokens, 0),
			coalesce(c.long_cache_write_tokens, 0), c.charged_micros, c.shortfall_micros, c.ended_at, c.price_id,
			c.cost_micros, p.id IS NOT NULL, coalesce(p.vendor_price, ''), ` + ratesOrZero + `
		FROM calls c LEFT JOIN prices p ON p.id = c.price_id AND p.model = c.model AND p.provider = c.provider
		WHERE c.id > $1 AND c.id <= $2`
	overchargedCalls = `SELECT id, 'charged ' || charged_micros || ', reserved ' || reserved_micros FROM calls
		WHERE id > $1 AND id <= $2 AND charged_micros > reserved_micros`
	misownedCalls = `SELECT c.id, CASE WHEN o.id IS NULL THEN 'its organization ' || c.org_id || ' does not exist'
			WHEN c.reserved_micros > 0 AND w.org_id IS NULL THEN 'it was charged to a wallet that does not exist'
			ELSE 'its key ' || c.key_id || ' is not of ' || c.org_id || ':' || c.env END
		FROM calls c LEFT JOIN organizations o ON o.id = c.org_id
		LEFT JOIN wallets w ON w.org_id = c.org_id AND w.env = c.env
		LEFT JOIN api_keys k ON k.id = c.key_id AND k.org_id = c.org_id AND k.env = c.env
		WHERE c.id > $1 AND c.id <= $2
			AND (o.id IS NULL OR (c.reserved_micros > 0 AND w.org_id IS NULL) OR (c.key_id <> '' AND k.id IS NULL))`
	unchargedCalls = `SELECT id, 'completed, reserved ' || reserved_micros || ', ' || prompt_tokens || ' and ' || completion_tokens
			|| ' tokens for nothing' FROM calls
		WHERE id > $1 AND id <= $2 AND outcome = 'completed' AND reserved_micros > 0 AND charged_micros = 0 AND shortfall_micros = 0
			AND NOT EXISTS (SELECT 1 FROM prices p WHERE p.id = price_id AND prompt_tokens > 0 AND completion_tokens = 0
				AND 0 IN (p.input_micros, p.cached_input_micros, p.cache_write_micros, p.long_cache_write_micros))`
	uncountedParts = `SELECT id, prompt_tokens || ' tokens, ' || cached_tokens || ' cached, ' || coalesce(cache_write_tokens, 0) || ' and '
			|| coalesce(long_cache_write_tokens, 0) || ' written; ' || completion_tokens || ' tokens, ' || coalesce(reasoning_tokens, 0)
			|| ' hidden; counted by ' || usage_source FROM calls
		WHERE id > $1 AND id <= $2 AND (coalesce(reasoning_tokens, 0) > completion_tokens
			OR usage_source = 'none' AND (prompt_tokens > 0 OR completion_tokens > 0)
			OR CASE WHEN cached_tokens > prompt_tokens THEN TRUE
				WHEN coalesce(cache_write_tokens, 0) > prompt_tokens - cached_tokens THEN TRUE
				ELSE coalesce(long_cache_write_tokens, 0) > prompt_tokens - cached_tokens - coalesce(cache_write_tokens, 0) END)`
	allPrices        = `SELECT id, model, provider, upstream_model, answering_model, vendor_price, ` + ratesOrZero + ` FROM prices p`
	straysOfAttempts = `SELECT a.call_id, CASE WHEN count(c.id) = 0 THEN 'it has attempts and no row in its organization'
			ELSE 'it has ' || count(*) || ' attempts, the last with number ' || max(a.number) END
		FROM attempts a LEFT JOIN calls c ON c.id = a.call_id AND c.org_id = a.org_id WHERE a.call_id > $1 AND a.call_id <= $2
		GROUP BY a.call_id HAVING count(c.id) < count(*) OR count(*) <> max(a.number)`

	wrongRefunds = `SELECT t.id, CASE WHEN c.id IS NULL THEN 'call ' || t.ref || ' is not of its wallet'
			ELSE 'it gives back ' || t.amount_micros || ' of ' || c.charged_micros END
		FROM ledger_tx t LEFT JOIN calls c ON c.id = t.ref AND c.org_id = t.org_id AND c.env = t.env
		WHERE t.id > $1 AND t.id <= $2 AND t.kind = 'refund' AND (c.id IS NULL OR t.amount_micros > c.charged_micros)`
	misbookedPostings = `SELECT id, kind || ' of ' || amount_micros || ' against ' || account FROM ledger_tx
		WHERE id > $1 AND id <= $2
			AND (account <> CASE kind WHEN 'topup' THEN 'sys:cash' WHEN 'reversal' THEN 'sys:cash'
				WHEN 'adjust' THEN 'sys:loss' ELSE 'sys:revenue' END
				OR (kind NOT IN ('adjust', 'reversal') AND amount_micros < 0))`
	unauditedPostings = `SELECT t.id, 'its row ' || t.audit_id || ' in the audit log is missing, or names something else'
		FROM ledger_tx t LEFT JOIN audit_log a ON a.id = t.audit_id AND a.target = t.id AND a.org_id = t.org_id
		WHERE t.id > $1 AND t.id <= $2 AND a.id IS NULL`
	wrongClaims = `SELECT org_id || ':' || env, 'claims ' || claim_micros || ', payments took back ' || taken || ', reversals are ' || reversed
		FROM (SELECT org_id, env, claim_micros, CASE env WHEN 'live' THEN (SELECT coalesce(sum(p.taken_micros), 0) FROM payments p
				WHERE p.org_id = w.org_id) ELSE 0 END AS taken,
			(SELECT coalesce(sum(t.amount_micros), 0) FROM ledger_tx t
				WHERE t.org_id = w.org_id AND t.env = w.env AND t.kind = 'reversal') AS reversed
			FROM wallets w WHERE w.org_id > $1 AND w.org_id <= $2) AS claims WHERE claim_micros <> taken + reversed
		UNION ALL SELECT org_id || ':' || env, 'claims ' || claim_micros || ', and ' || balance_micros - held_micros || ' are free' FROM wallets
		WHERE org_id > $1 AND org_id <= $2 AND claim_micros > 0 AND balance_micros > held_micros`
	paymentsWithoutCredit = `SELECT p.pay_id, p.state || ', with ' || p.micros || ' micros and the credit ' || p.entry_id
		FROM payments p LEFT JOIN ledger_tx t ON t.id = p.entry_id AND t.org_id = p.org_id AND t.env = 'live' AND t.kind = 'topup'
			AND t.ref = 'pay:' || p.provider || ':' || p.id AND t.amount_micros = p.micros
		WHERE p.pay_id > $1 AND p.pay_id <= $2 AND (p.state = 'credited' AND t.id IS NULL OR p.state <> 'credited' AND p.entry_id <> '')`
	creditsWithoutPayment = `SELECT t.id, 'the credit ' || t.ref || ' has no payment' FROM ledger_tx t
			JOIN audit_log a ON a.id = t.audit_id AND a.actor LIKE 'payment:%'
		WHERE t.id > $1 AND t.id <= $2 AND t.kind = 'topup' AND NOT EXISTS (SELECT 1 FROM payments p
			WHERE p.provider = substr(a.actor, 9) AND p.id = substr(t.ref, length(a.actor) - 2) AND p.entry_id = t.id)`
	miscountedAnswers = `SELECT subject, 'counts ' || counted || ' bytes, keys have ' || kept FROM (
			SELECT w.org_id || ':' || w.env AS subject, w.kept_bytes AS counted, (SELECT coalesce(sum(k.kept_bytes), 0)
				FROM idempotency_keys k WHERE k.org_id = w.org_id AND k.env = w.env) AS kept
			FROM wallets w WHERE w.org_id > $1 AND w.org_id <= $2) AS answers WHERE counted <> kept`
)

// searchKeys reads all keys even in a recent check, because they are kept only for days and have no order by time.
func searchKeys(ctx context.Context, s *search) error {
	if err := s.rows(ctx, endedHolds); err != nil {
		return err
	}
	last := claimKey{}
	return store.ReadPages(ctx, s.pageRows, func(rows int) (more bool, err error) {
		found, read, key := len(s.findings), 0, last
		err = s.read(ctx, func(row store.Row) error {
			var hash []byte
			var call string
			var ended, kept bool
			if err := row.Scan(&key.wallet.OrgID, &key.wallet.Env, &hash, &call, &ended, &kept); err != nil {
				return err
			}
			copy(key.hash[:], hash)
			read++
			switch {
			case !ended:
				s.add(call, "its key is finished, and it has no row in its wallet")
			case !kept:
				s.add(call, "its kept answer is not of the length that its key says")
			}
			return nil
		}, keysOfCalls, last.wallet.OrgID, string(last.wallet.Env), last.hash[:], rows)
		if err != nil {
			s.findings = s.findings[:found]
			return false, err
		}
		last = key
		return read == rows && !s.full(), nil
	})
}

// searchPayments compares payments with their credits, in both directions. A person may have booked a credit with any reference.
func searchPayments(ctx context.Context, s *search) error {
	if err := s.pagedRows(ctx, "payments", paymentsWithoutCredit); err != nil {
		return err
	}
	return s.pagedRows(ctx, "ledger_tx", creditsWithoutPayment)
}

// searchParts also recomputes the ids of prices.
func searchParts(ctx context.Context, s *search) error {
	if err := s.pagedRows(ctx, "calls", uncountedParts); err != nil {
		return err
	}
	return s.read(ctx, func(rows store.Row) error {
		var row priceRow
		var id int64
		var vendor, tiers string
		p := &row.price
		err := rows.Scan(&id, &row.model, &row.provider, &row.upstream, &row.answering, &vendor, &p.Input, &p.Output, &p.CachedInput, &p.CacheWrite,
			&p.LongCacheWrite, &tiers)
		if err != nil {
			return err
		}
		if err := p.readTiers(tiers); err != nil || id != row.digest(vendor) {
			s.add(fmt.Sprintf("price %d", id), "it is not as it was written for "+row.model)
		}
		return nil
	}, allPrices)
}

// searchCosts recomputes the cost of calls as they were charged.
func searchCosts(ctx context.Context, s *search) error {
	latest := s.now + clockLead // the database's clock may have been set back later
	vendors := vendorPrices{}
	return s.pages(ctx, "calls", func(ctx context.Context, after, through string) error {
		return s.read(ctx, func(rows store.Row) error {
			var id string
			var usage Usage
			var settled Settled
			var price Price
			var endedAt int64
			var priceID, stored sql.NullInt64
			var priced bool
			var tiers, vendor string
			err := rows.Scan(&id, &usage.PromptTokens, &usage.CompletionTokens, &usage.CachedPromptTokens, &usage.CacheWriteTokens,
				&usage.LongCacheWriteTokens, &settled.ChargedMicros, &settled.ShortfallMicros, &endedAt, &priceID, &stored, &priced, &vendor,
				&price.Input, &price.Output, &price.CachedInput, &price.CacheWrite, &price.LongCacheWrite, &tiers)
			if err != nil {
				return err
			}
			tiersErr := price.readTiers(tiers)
			cost, costErr := price.Cost(usage)
			vendorCost, vendorErr := vendors.cost(priced, vendor, usage)
			sum, sumErr := addMicros(settled.ChargedMicros, settled.ShortfallMicros)
			switch {
			case priceID.Valid && !priced:
				s.add(id, fmt.Sprintf("its price %d is missing, or of another model or provider", priceID.Int64))
			case tiersErr != nil || costErr != nil || sumErr != nil || cost != sum:
				s.add(id, fmt.Sprintf("charged %d, shortfall %d, cost %d", settled.ChargedMicros, settled.ShortfallMicros, cost))
			case vendorErr != nil || vendorCost != stored:
				s.add(id, fmt.Sprintf("its cost of %d is not by the operator's price, %d", stored.Int64, vendorCost.Int64))
			case endedAt > latest:
				s.add(id, fmt.Sprintf("it ended at %d, which is in the future", endedAt))
			}
			return nil
		}, costsOfCalls, after, through)
	})
}

// vendorPrices are the operator's prices by their stored text.
type vendorPrices map[string]*Price

// cost returns the operator's cost of a call. It is not valid if it is unknown.
func (p vendorPrices) cost(priced bool, vendor string, usage Usage) (cost sql.NullInt64, err error) {
	switch {
	case !priced || usage == (Usage{}):
		return sql.NullInt64{Valid: true}, nil
	case vendor == "":
		return cost, nil
	}
	if p[vendor] == nil {
		price := new(Price)
		if err := price.readSteps(vendor); err != nil {
			return cost, err
		}
		p[vendor] = price
	}
	cost.Valid = true
	cost.Int64, err = p[vendor].Cost(usage)
	return cost, err
}

const (
	// selectStatements reads the wallets of a page that have moved since $3, and the wallets with another balance than their last row. Each is
	// read in one moment with the largest number of its rows.
	selectStatements = `SELECT org_id, env, seq, balance_micros, newest FROM (SELECT w.org_id, w.env, w.seq, w.balance_micros, w.moved_at,
			(SELECT coalesce(max(wallet_seq), 0) FROM (
				SELECT max(wallet_seq) AS wallet_seq FROM calls c WHERE c.org_id = w.org_id AND c.env = w.env AND c.wallet_seq IS NOT NULL
				UNION ALL SELECT max(wallet_seq) FROM ledger_tx t WHERE t.org_id = w.org_id AND t.env = w.env) AS numbers) AS newest,
			coalesce((SELECT balance_micros FROM calls c WHERE c.org_id = w.org_id AND c.env = w.env AND c.wallet_seq = w.seq),
				(SELECT balance_micros FROM ledger_tx t WHERE t.org_id = w.org_id AND t.env = w.env AND t.wallet_seq = w.seq), 0) AS last
		FROM wallets w WHERE w.org_id > $1 AND w.org_id <= $2) AS w
		WHERE moved_at >= $3 OR balance_micros <> last OR seq <> newest`
	selectNumbers = `SELECT wallet_seq, amount_micros, balance_micros FROM (
			SELECT wallet_seq, -charged_micros AS amount_micros, balance_micros FROM calls
				WHERE org_id = $1 AND env = $2 AND wallet_seq > $3 AND wallet_seq <= $4
			UNION ALL SELECT wallet_seq, amount_micros, balance_micros FROM ledger_tx
				WHERE org_id = $1 AND env = $2 AND wallet_seq > $3 AND wallet_seq <= $4
		) AS numbers ORDER BY wallet_seq`
	unownedPostings = `SELECT t.id, 'its wallet ' || t.org_id || ':' || t.env || ' does not exist' FROM ledger_tx t
		WHERE t.id > $1 AND t.id <= $2 AND NOT EXISTS (SELECT 1 FROM wallets w WHERE w.org_id = t.org_id AND w.env = t.env)`
)

// walletEnd is a wallet as read, for the comparison with its rows.
type walletEnd struct {
	id                   WalletID
	seq, balance, newest int64
}

func searchStatements(ctx context.Context, s *search) error {
	err := s.pages(ctx, "wallets", func(ctx context.Context, after, through string) error {
		var page []walletEnd
		err := s.read(ctx, func(rows store.Row) error {
			var w walletEnd
			err := rows.Scan(&w.id.OrgID, &w.id.Env, &w.seq, &w.balance, &w.newest)
			page = append(page, w)
			return err
		}, selectStatements, after, through, s.since)
		for i := 0; err == nil && i < len(page) && !s.full(); i++ {
			err = s.searchStatement(ctx, page[i])
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.pagedRows(ctx, "ledger_tx", unownedPostings)
}

// searchStatement follows the balances of one wallet while it may be in use: rows with a number up to the wallet's are written and never change. A
// recent check begins with the last row before its time.
func (s *search) searchStatement(ctx context.Context, w walletEnd) error {
	subject := w.id.OrgID + ":" + string(w.id.Env)
	if w.newest > w.seq {
		s.add(subject, fmt.Sprintf("its last number is %d, and a row has %d", w.seq, w.newest))
	}
	var seq, balance int64
	if s.since > 0 {
		if err := s.value(ctx, &seq, store.SelectSeqBefore, w.id.OrgID, w.id.Env, s.since); err != nil {
			return err
		}
		seq = max(0, min(seq, w.seq)-1)
	}
	first := seq + 1
	for through := seq; through < w.seq && !s.full(); {
		after := through
		through = min(w.seq, after+int64(s.pageRows))
		err := s.read(ctx, func(rows store.Row) error {
			var number, amount, left int64
			if err := rows.Scan(&number, &amount, &left); err != nil {
				return err
			}
			switch expected, err := addMicros(balance, amount); {
			case number != seq+1:
				s.add(subject, fmt.Sprintf("number %d follows number %d", number, seq))
			case (number > first || number == 1) && (err != nil || expected != left):
				s.add(subject, fmt.Sprintf("number %d leaves %d, should be %d", number, left, expected))
			}
			seq, balance = number, left
			return nil
		}, selectNumbers, w.id.OrgID, string(w.id.Env), after, through)
		if err != nil {
			return err
		}
	}
	if seq != w.seq || balance != w.balance {
		s.add(subject, fmt.Sprintf("number %d leaves %d, its wallet has number %d and %d", seq, balance, w.seq, w.balance))
	}
	return nil
}
