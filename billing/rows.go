package billing

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var (
	selectWallets = listSizes.Statement(`SELECT org_id, env, balance_micros, held_micros, seq, moved_at, recall_until, kept_bytes,
			claim_micros FROM wallets WHERE (org_id, env) IN ({list}) ORDER BY org_id, env`, 2, 0)
	selectHolds = listSizes.Statement(`WITH wanted (org_id, env, id) AS ({list}) SELECT h.id, h.org_id, h.env, amount_micros, expires_at,
			budgets FROM wanted CROSS JOIN holds h WHERE h.org_id = wanted.org_id AND h.env = wanted.env AND h.id = wanted.id`, 3, 0)
	selectEnded = listSizes.Statement(`SELECT id, org_id, env, charged_micros, shortfall_micros FROM calls WHERE id IN {list}`, 1, 0)
)

const (
	selectDueHolds = `SELECT org_id, env, id FROM holds WHERE expires_at < $1 ORDER BY expires_at LIMIT $2`
	selectRefunded = `SELECT org_id, env FROM calls WHERE id = $1`
	// selectCorrected reads the amount of a posting or a charge, and the sum of its corrections and its refund.
	selectCorrected = `SELECT amount_micros, (SELECT CAST(coalesce(sum(amount_micros), 0) AS BIGINT) FROM ledger_tx
			WHERE org_id = $1 AND env = $2 AND corrects = $3 AND corrects <> '')
			+ coalesce((SELECT amount_micros FROM ledger_tx WHERE org_id = $1 AND env = $2 AND kind = 'refund' AND ref = $3), 0)
		FROM (SELECT amount_micros FROM ledger_tx WHERE id = $3 AND org_id = $1 AND env = $2
			UNION ALL SELECT -charged_micros FROM calls WHERE id = $3 AND org_id = $1 AND env = $2 AND wallet_seq IS NOT NULL) AS corrected`
	selectEntry = `SELECT id, amount_micros, balance_micros, reason, created_at, wallet_seq, corrects FROM ledger_tx
		WHERE org_id = $1 AND env = $2 AND kind = $3 AND ref = $4`
)

// queueWallets locks and reads wallets, sorted by key. The lock of a wallet also protects all rows that belong to it, until the
// transaction ends.
func queueWallets(tx store.Tx, ids []WalletID, books *books) {
	store.QueueListed(tx, listSizes, selectWallets, tx.LockRows(), ids, listWallet, func(row store.Row) error {
		var id WalletID
		var w walletRow
		err := row.Scan(&id.OrgID, &id.Env, &w.balance, &w.held, &w.seq, &w.movedAt, &w.recallUntil, &w.kept, &w.claimed)
		w.read = w.walletState
		books.wallets[id] = &w
		books.claimed = books.claimed || w.claimed > 0
		return err
	})
}

// listWallet appends the values of a wallet for a statement with a list of wallets.
func listWallet(values []any, id WalletID) []any { return append(values, id.OrgID, string(id.Env)) }

// callKey names a call with its wallet.
type callKey struct {
	wallet WalletID
	id     string
}

// queueHolds reads the holds of calls.
func queueHolds(tx store.Tx, keys []callKey, books *books) {
	arguments := func(values []any, key callKey) []any { return append(listWallet(values, key.wallet), key.id) }
	store.QueueListed(tx, listSizes, selectHolds, "", keys, arguments, func(row store.Row) error {
		hold := &holdRow{stored: true, open: true}
		err := row.Scan(&hold.id, &hold.wallet.OrgID, &hold.wallet.Env, &hold.amount, &hold.expiresAt, &hold.budgets)
		books.holds[hold.id] = hold
		return err
	})
}

// queueEnded reads the calls that have ended.
func queueEnded(tx store.Tx, keys []callKey, books *books) {
	arguments := func(values []any, key callKey) []any { return append(values, key.id) }
	store.QueueListed(tx, listSizes, selectEnded, "", keys, arguments, func(row store.Row) error {
		var id string
		var call callFigures
		err := row.Scan(&id, &call.wallet.OrgID, &call.wallet.Env, &call.settled.ChargedMicros, &call.settled.ShortfallMicros)
		books.calls[id] = call
		return err
	})
}

// queuePosted reads the transaction that a posting repeats, and the transaction that it corrects.
func queuePosted(tx store.Tx, p posting, books *books) {
	key := entryKey{p.kind, p.wallet, p.ref}
	tx.QueueQuery(func(row store.Row) error {
		entry := Entry{Wallet: key.wallet, Kind: key.kind, Ref: key.ref}
		if err := row.Scan(&entry.ID, &entry.AmountMicros, &entry.BalanceMicros, &entry.Note, &entry.At, &entry.Seq, &entry.Corrects); err != nil {
			return err
		}
		books.entries[key] = entry
		return nil
	}, selectEntry, key.wallet.OrgID, string(key.wallet.Env), string(key.kind), key.ref)
	undone := p.undoes()
	if undone == "" {
		return
	}
	tx.QueueQuery(func(row store.Row) error {
		c := new(corrected)
		books.corrected[correctedKey{p.wallet, undone}] = c
		return row.Scan(&c.amount, &c.sum)
	}, selectCorrected, key.wallet.OrgID, string(key.wallet.Env), undone)
}

// OpenHolds counts the holds of running calls of all wallets, without the calls that are held from tranches.
func (b *Book) OpenHolds(ctx context.Context) (count int64, err error) {
	return store.ReadRow(ctx, b.db, "count open holds", store.ScanValue[int64], `SELECT (SELECT count(*) FROM holds)
		+ (SELECT count(*) FROM running_keys WHERE reserved_micros > 0)`)
}

// listSizes are the lengths of the lists in this package's statements. Most transactions have a few calls.
var listSizes = store.ListSizes{64, 16, 8, 4, 3, 2, 1}

var (
	insertHolds   = listSizes.Statement(`INSERT INTO holds (org_id, env, id, amount_micros, expires_at, budgets) {list}`, 6, 0)
	deleteHolds   = listSizes.Statement(`DELETE FROM holds WHERE (org_id, env, id) IN ({list})`, 3, 0)
	insertEntries = listSizes.Statement(`INSERT INTO ledger_tx (id, org_id, env, wallet_seq, kind, account, ref, reason, amount_micros,
		balance_micros, created_at, audit_id, corrects) {list}`, 13, 0)
	insertCalls    = listSizes.Statement(insertCall, 27, 0)
	insertRecords  = listSizes.Statement(insertCall+` ON CONFLICT (id) DO NOTHING`, 27, 0)
	insertAttempts = listSizes.Statement(`INSERT INTO attempts (org_id, call_id, number, provider, upstream_model, failure, prompt_tokens,
		completion_tokens, cost_micros) {list} ON CONFLICT (call_id, number) DO NOTHING`, 9, 0)
)

const (
	insertCall = `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens,
		completion_tokens, cached_tokens, usage_source, ended_at, duration_ms, price_id, reserved_micros, charged_micros, shortfall_micros,
		wallet_seq, balance_micros, cache_write_tokens, long_cache_write_tokens, reasoning_tokens, cost_micros, budgets)
		{list}`
	insertPrice = `INSERT INTO prices (id, model, provider, upstream_model, answering_model, input_micros, output_micros, cached_input_micros,
		cache_write_micros, long_cache_write_micros, tiers, vendor_price) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT DO NOTHING`

	insertWallet = `INSERT INTO wallets (org_id, env) SELECT id, CAST($2 AS TEXT) FROM organizations WHERE id = $1
		ON CONFLICT DO NOTHING`
	// The statement names the values that were read, so that a writer without the lock is detected and not overwritten.
	updateWallet = `UPDATE wallets SET balance_micros = $1, held_micros = $2, seq = $3, moved_at = $4, recall_until = $5, kept_bytes = $6,
		claim_micros = $7 WHERE org_id = $8 AND env = $9 AND balance_micros = $10 AND held_micros = $11 AND seq = $12 AND kept_bytes = $13`
)

// write queues the decisions of the batch. Inserts need no count, because they write all of their rows or fail.
func (b *books) write(tx store.Tx) {
	b.writeWallets(tx)
	b.writePeriods(tx)
	b.writeHolds(tx)
	b.writeTranches(tx)
	b.writeClaims(tx)
	store.QueueList(tx, listSizes, insertEntries, false, b.newEntries, func(values []any, e Entry) []any {
		return append(values, e.ID, e.Wallet.OrgID, string(e.Wallet.Env), e.Seq, string(e.Kind), entryKinds[e.Kind].account, e.Ref, e.Note,
			e.AmountMicros, e.BalanceMicros, e.At, e.auditID, e.Corrects)
	})
	for _, id := range slices.Sorted(maps.Keys(b.newPrices)) {
		row := b.newPrices[id]
		steps := row.price.steps()
		base := steps[0]
		tx.Queue(store.AnyRows, insertPrice, id, row.model, row.provider, row.upstream, row.answering, base.Input, base.Output, base.CachedInput,
			base.CacheWrite, base.LongCacheWrite, stepsText(steps[1:]), row.vendorText())
	}
	b.writeCalls(tx, insertCalls, b.newCalls)
	b.writeCalls(tx, insertRecords, b.records)
	b.writePayments(tx)
	for _, audit := range b.audits {
		store.QueueAudit(tx, audit)
	}
	for _, event := range b.events {
		store.QueueEvent(tx, event)
	}
}

// writeWallets updates each changed wallet once.
func (b *books) writeWallets(tx store.Tx) {
	for _, id := range slices.SortedFunc(maps.Keys(b.wallets), WalletID.compare) {
		w := b.wallets[id]
		if w.walletState == w.read {
			continue
		}
		tx.Queue(1, updateWallet, w.balance, w.held, w.seq, w.movedAt, w.recallUntil, w.kept, w.claimed,
			id.OrgID, string(id.Env), w.read.balance, w.read.held, w.read.seq, w.read.kept)
	}
}

// writeHolds deletes the ended holds, then inserts new ones. Calls that began and ended within the batch have none.
func (b *books) writeHolds(tx store.Tx) {
	var began, ended []*holdRow
	for _, hold := range b.holds {
		if hold.open && (!hold.stored || hold.renewed) {
			began = append(began, hold)
		}
		if hold.stored && (!hold.open || hold.renewed) {
			ended = append(ended, hold)
		}
	}
	store.QueueList(tx, listSizes, deleteHolds, true, ended, func(values []any, h *holdRow) []any {
		return append(values, h.wallet.OrgID, string(h.wallet.Env), h.id)
	})
	store.QueueList(tx, listSizes, insertHolds, false, began, func(values []any, h *holdRow) []any {
		return append(values, h.wallet.OrgID, string(h.wallet.Env), h.id, h.amount, h.expiresAt, h.budgets)
	})
}

func (b *books) writeCalls(tx store.Tx, insert store.ListStatement, calls []callRow) {
	store.QueueList(tx, listSizes, insert, false, calls, func(values []any, c callRow) []any {
		var seq, balance, budgets any
		if c.seq > 0 {
			seq, balance = c.seq, c.balance
		}
		if c.budgets != "" {
			budgets = c.budgets
		}
		call, usage := &c.Call, &c.Call.Usage
		return append(values, call.ID, call.RequestID, call.Wallet.OrgID, string(call.Wallet.Env), call.KeyID, call.Model, call.Provider, call.BYOK,
			call.Stream, call.Outcome, usage.PromptTokens, usage.CompletionTokens, usage.CachedPromptTokens, string(call.UsageSource), c.endedAt,
			max(0, call.DurationMS), orNull(c.priceID), c.reserved, c.settled.ChargedMicros, c.settled.ShortfallMicros, seq, balance,
			orNull(usage.CacheWriteTokens), orNull(usage.LongCacheWriteTokens), orNull(usage.ReasoningTokens), c.cost, budgets)
	})
	var attempts []attemptRow
	for i := range calls {
		call := &calls[i].Call
		for n := range min(len(calls[i].Attempts), MaxAttempts) {
			attempts = append(attempts, attemptRow{&calls[i].Attempts[n], call.Wallet.OrgID, call.ID, n + 1})
		}
	}
	store.QueueList(tx, listSizes, insertAttempts, false, attempts, func(values []any, a attemptRow) []any {
		return append(values, a.orgID, a.callID, a.number, a.Provider, a.UpstreamModel, a.Failure, a.Usage.PromptTokens, a.Usage.CompletionTokens,
			vendorCost(&a.VendorPrice, a.Usage))
	})
}

// attemptRow is a row of attempts.
type attemptRow struct {
	*Attempt

	orgID, callID string
	number        int
}

// orNull returns a number, or null in place of 0. PostgreSQL stores null without bytes.
func orNull(number int64) any {
	if number == 0 {
		return nil
	}
	return number
}

var (
	selectRunning = listSizes.Rows(`WITH wanted (i, org_id, env, key_hash) AS ({list})
		SELECT i, fingerprint, call_id, reserved_micros, expires_at, budgets FROM wanted CROSS JOIN running_keys k`+isWanted, wantedTypes...)
	selectFinished = listSizes.Rows(`WITH wanted (i, org_id, env, key_hash) AS ({list})
		SELECT i, fingerprint, call_id, kept_bytes, until, '' FROM wanted CROSS JOIN idempotency_keys k`+isWanted, wantedTypes...)
	wantedTypes = []string{"bigint", "text", "text", "bytea"}

	insertRunning = listSizes.Statement(`INSERT INTO running_keys (org_id, env, key_hash, fingerprint, call_id, reserved_micros, expires_at, budgets)
		{list}`, 8, 0)
	insertFinished = listSizes.Statement(`INSERT INTO idempotency_keys (org_id, env, key_hash, fingerprint, call_id, kept_bytes, until) {list}`,
		7, 0)
	insertAnswers = listSizes.Statement(`INSERT INTO kept_answers (org_id, env, call_id, response) {list}`, 4, 0)
)

const (
	isWanted = ` WHERE k.org_id = wanted.org_id AND k.env = wanted.env AND k.key_hash = wanted.key_hash`

	selectDueRunning  = `SELECT org_id, env, key_hash FROM running_keys WHERE expires_at < $1 ORDER BY expires_at LIMIT $2`
	selectDueFinished = `SELECT org_id, env, key_hash FROM idempotency_keys WHERE until < $1 ORDER BY until LIMIT $2`

	// A row is deleted only if it still belongs to the call that was read.
	deleteRunning  = `DELETE FROM running_keys WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND call_id = $4`
	deleteFinished = `DELETE FROM idempotency_keys WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND call_id = $4`
	deleteAnswer   = `DELETE FROM kept_answers WHERE org_id = $1 AND env = $2 AND call_id = $3`
)

// queueClaims reads claims in progress or, with done, claims of calls that have ended. The lock of their wallets protects both.
func queueClaims(tx store.Tx, done bool, keys []claimKey, books *books) {
	if len(keys) == 0 {
		return
	}
	numbers, orgs := make([]int64, len(keys)), make([]string, len(keys))
	envs, hashes := make([]string, len(keys)), make([][]byte, len(keys))
	for i, key := range keys {
		numbers[i], orgs[i], envs[i], hashes[i] = int64(i), key.wallet.OrgID, string(key.wallet.Env), keys[i].hash[:]
	}
	statement := selectRunning
	if done {
		statement = selectFinished
	}
	statement.QueueLookup(tx, func(row store.Row) error {
		claim := &claimRow{claimState: claimState{done: done}}
		amount := &claim.reserved
		if done {
			amount = &claim.kept
		}
		var i int
		var fingerprint []byte
		if err := row.Scan(&i, &fingerprint, &claim.callID, amount, &claim.until, &claim.budgets); err != nil {
			return err
		}
		copy(claim.fingerprint[:], fingerprint)
		claim.key, claim.read = keys[i], claim.claimState
		books.claims[keys[i]] = claim
		return nil
	}, numbers, orgs, envs, hashes)
}

// writeClaims deletes the rows of changed claims before it inserts new rows, so that a key may change its call.
func (b *books) writeClaims(tx store.Tx) {
	var running, finished, kept []*claimRow
	for _, claim := range slices.SortedFunc(maps.Values(b.claims), func(a, b *claimRow) int { return a.key.compare(b.key) }) {
		if claim.claimState == claim.read {
			continue
		}
		claim.delete(tx)
		switch {
		case !claim.exists():
		case !claim.done:
			running = append(running, claim)
		default:
			finished = append(finished, claim)
			if claim.kept > 0 {
				kept = append(kept, claim)
			}
		}
	}
	row := func(values []any, c *claimRow, amount int64) []any {
		return append(values, c.key.wallet.OrgID, string(c.key.wallet.Env), c.key.hash[:], c.fingerprint[:], c.callID, amount, c.until)
	}
	store.QueueList(tx, listSizes, insertRunning, false, running, func(values []any, c *claimRow) []any {
		return append(row(values, c, c.reserved), c.budgets)
	})
	store.QueueList(tx, listSizes, insertFinished, false, finished, func(values []any, c *claimRow) []any { return row(values, c, c.kept) })
	store.QueueList(tx, listSizes, insertAnswers, false, kept, func(values []any, c *claimRow) []any {
		return append(values, c.key.wallet.OrgID, string(c.key.wallet.Env), c.callID, c.response)
	})
}

// delete deletes the rows that were read for the claim.
func (c *claimRow) delete(tx store.Tx) {
	org, env := c.key.wallet.OrgID, string(c.key.wallet.Env)
	switch {
	case !c.read.exists():
	case c.read.done:
		tx.Queue(1, deleteFinished, org, env, c.key.hash[:], c.read.callID)
	default:
		tx.Queue(1, deleteRunning, org, env, c.key.hash[:], c.read.callID)
	}
	if c.read.kept > 0 {
		tx.Queue(1, deleteAnswer, org, env, c.read.callID)
	}
}

var selectTranches = listSizes.Statement(`SELECT id, org_id, env, owner, left_micros, spare, lease_until, budgets
	FROM tranches WHERE (org_id, env) IN ({list}) ORDER BY id`, 2, 0)

const (
	insertTranche = `INSERT INTO tranches (org_id, env, id, owner, left_micros, spare, lease_until, budgets)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
	// The statement names the value that was read, so that a writer without the lock of the wallet is detected and not overwritten.
	updateTranche = `UPDATE tranches SET left_micros = $1, spare = $2, lease_until = $3
		WHERE org_id = $4 AND env = $5 AND id = $6 AND left_micros = $7`
	deleteTranche = `DELETE FROM tranches WHERE org_id = $1 AND env = $2 AND id = $3 AND left_micros = $4`

	selectDueTranches = `SELECT DISTINCT org_id, env FROM tranches WHERE lease_until < $1 LIMIT $2`
	// One statement reads one snapshot.
	selectSpendable = `SELECT w.balance_micros - w.held_micros, (SELECT CAST(coalesce(sum(left_micros), 0) AS BIGINT)
			FROM tranches t WHERE t.org_id = w.org_id AND t.env = w.env)
		FROM wallets w WHERE w.org_id = $1 AND w.env = $2`
	selectSpare = `SELECT w.balance_micros - w.held_micros, EXISTS (SELECT 1 FROM tranches t
			WHERE t.spare AND t.org_id = w.org_id AND t.env = w.env)
		FROM wallets w WHERE w.org_id = $1 AND w.env = $2`
)

// queueTranches reads the tranches of locked wallets. Tranches change only under the lock of their wallet.
func queueTranches(tx store.Tx, wallets []WalletID, books *books) {
	store.QueueListed(tx, listSizes, selectTranches, "", wallets, listWallet, func(row store.Row) error {
		t := &trancheRow{stored: true}
		err := row.Scan(&t.id, &t.wallet.OrgID, &t.wallet.Env, &t.owner, &t.left, &t.spare, &t.leaseUntil, &t.budgets)
		if err != nil {
			return err
		}
		t.read = t.trancheState
		wallet := books.wallets[t.wallet]
		if wallet == nil {
			return fmt.Errorf("tranche %s has no wallet", t.id)
		}
		wallet.tranches = append(wallet.tranches, t)
		return nil
	})
}

func (b *books) writeTranches(tx store.Tx) {
	var changed []*trancheRow
	for _, wallet := range b.wallets {
		for _, t := range wallet.tranches {
			if t.stored && (t.ended || t.read != t.trancheState) || !t.stored && !t.ended {
				changed = append(changed, t)
			}
		}
	}
	slices.SortFunc(changed, func(a, b *trancheRow) int { return a.wallet.compare(b.wallet) })
	for _, t := range changed {
		org, env := t.wallet.OrgID, string(t.wallet.Env)
		switch {
		case !t.stored:
			tx.Queue(store.AnyRows, insertTranche, org, env, t.id, t.owner, t.left, t.spare, t.leaseUntil, t.budgets)
		case t.ended:
			tx.Queue(1, deleteTranche, org, env, t.id, t.read.left)
		default:
			tx.Queue(1, updateTranche, t.left, t.spare, t.leaseUntil, org, env, t.id, t.read.left)
		}
	}
}

// findWallets adds the wallets of operations that don't name them.
func (b *batch) findWallets(ctx context.Context, tx store.Tx) error {
	if b.sweep {
		if err := b.findDue(ctx, tx); err != nil {
			return err
		}
	}
	for _, op := range b.pays {
		if err := op.find(ctx, tx); err != nil {
			return err
		}
		if op.wallet.OrgID != "" {
			b.wallets, b.made = append(b.wallets, op.wallet), append(b.made, op.wallet)
		}
	}
	for _, op := range b.posts {
		if op.kind != EntryRefund {
			continue
		}
		found := func(row store.Row) error { return row.Scan(&op.wallet.OrgID, &op.wallet.Env) }
		if err := tx.Query(ctx, found, selectRefunded, op.ref); err != nil {
			return fmt.Errorf("read a refunded call: %w", err)
		}
		b.wallets = append(b.wallets, op.wallet) // empty for an unknown call
		b.ended = append(b.ended, callKey{op.wallet, op.ref})
	}
	return nil
}

// findDue finds the rows for a sweep, oldest first: expired holds, expired keys, and tranches without a process. It locks nothing, because all
// of them are read again under the locks of their wallets.
func (b *batch) findDue(ctx context.Context, tx store.Tx) (err error) {
	scanHold := store.Into(func(key *callKey) []any { return []any{&key.wallet.OrgID, &key.wallet.Env, &key.id} })
	if b.due, err = store.QueryRows(ctx, tx, scanHold, selectDueHolds, tx.Now(), sweepLimit); err != nil {
		return fmt.Errorf("read due holds: %w", err)
	}
	b.held = append(b.held, b.due...)
	for _, due := range b.due {
		b.wallets = append(b.wallets, due.wallet)
	}
	lapsed, err := store.QueryRows(ctx, tx, store.ScanFields[WalletID](), selectDueTranches, tx.Now(), sweepLimit)
	if err != nil {
		return fmt.Errorf("read tranches whose lease is over: %w", err)
	}
	b.wallets = append(b.wallets, lapsed...)
	b.tranched = append(b.tranched, lapsed...)
	b.backlog = len(b.due) == sweepLimit || len(lapsed) == sweepLimit
	if b.running, err = b.findDueClaims(ctx, tx, selectDueRunning, b.running); err != nil {
		return err
	}
	b.finished, err = b.findDueClaims(ctx, tx, selectDueFinished, b.finished)
	return err
}

// findDueClaims adds the expired claims to a list of claims to read.
func (b *batch) findDueClaims(ctx context.Context, tx store.Tx, text string, claims []claimKey) ([]claimKey, error) {
	keys, err := store.QueryRows(ctx, tx, func(row store.Row) (key claimKey, err error) {
		var hash []byte
		err = row.Scan(&key.wallet.OrgID, &key.wallet.Env, &hash)
		copy(key.hash[:], hash)
		return key, err
	}, text, tx.Now(), sweepLimit)
	if err != nil {
		return nil, fmt.Errorf("read keys whose time is over: %w", err)
	}
	for _, key := range keys {
		b.wallets = append(b.wallets, key.wallet)
	}
	b.backlog = b.backlog || len(keys) == sweepLimit
	return append(claims, keys...), nil
}
