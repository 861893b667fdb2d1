package billing

import (
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// listSizes are the lengths of the lists in this package's statements. Most transactions carry a few calls.
var listSizes = store.ListSizes{64, 16, 8, 4, 3, 2, 1}

var (
	insertHolds = listSizes.Statement(`INSERT INTO holds (id, org_id, env, amount_micros, status, model,
		price_input, price_output, price_cached_input, created_at, expires_at, resolved_at) {list}`, 12, 0)
	insertTxs = listSizes.Statement(`INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at) {list}`, 8, 0)
	// Two rows for each transaction.
	insertEntries = listSizes.Build(func(rows int) string {
		return `INSERT INTO ledger_entries (tx_id, seq, account, amount_micros) ` + store.ParameterRows(2*rows, 4, 0)
	})
	insertCalls   = listSizes.Statement(insertCall, 24, 0)
	insertRecords = listSizes.Statement(insertCall+` ON CONFLICT (id) DO NOTHING`, 24, 0)
	// The guard is in the statement: only an open hold can be resolved, once.
	resolveHolds = listSizes.Statement(`UPDATE holds SET status = $1, resolved_at = $2 WHERE status = 'open' AND id IN {list}`, 1, 2)
)

const (
	insertCall = `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream,
		outcome, prompt_tokens, completion_tokens, cached_tokens, usage_source, charged_micros, extra_micros,
		shortfall_micros, tx_id, started_at, duration_ms, tranche_id, granted_micros, balance_micros, charged_at) {list}`

	insertWallet = `INSERT INTO wallets (org_id, env) SELECT id, CAST($2 AS TEXT) FROM organizations WHERE id = $1
		ON CONFLICT DO NOTHING`
	// The wallet must be as it was read, so that a writer without the lock is detected and not overwritten.
	updateWallet = `UPDATE wallets SET balance_micros = $1, held_micros = $2
		WHERE org_id = $3 AND env = $4 AND balance_micros = $5 AND held_micros = $6`
)

// write queues what the batch decided. Inserts need no count: they write all of their rows or fail.
func (b *books) write(tx store.Tx) {
	b.writeWallets(tx)
	b.writeHolds(tx)
	b.writeTranches(tx)
	b.writeClaims(tx)
	b.writeEntries(tx)
	writeCalls(tx, insertCalls, b.newCalls)
	writeCalls(tx, insertRecords, b.records)
	for _, audit := range b.audits {
		store.QueueAudit(tx, audit)
	}
}

// writeWallets updates each wallet once, whatever the batch did with it.
func (b *books) writeWallets(tx store.Tx) {
	ids := make([]WalletID, 0, len(b.wallets))
	for id, wallet := range b.wallets {
		if wallet.changed() {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, WalletID.compare)
	for _, id := range ids {
		wallet := b.wallets[id]
		tx.Queue(1, updateWallet, wallet.balance, wallet.held,
			id.OrgID, string(id.Env), wallet.readBalance, wallet.readHeld)
	}
}

// writeHolds inserts new holds, in the state the batch left them, and resolves stored ones.
func (b *books) writeHolds(tx store.Tx) {
	store.EachExact(listSizes, b.newHolds, func(size int, chunk []*holdRow) {
		args := make([]any, 0, 12*len(chunk))
		for _, hold := range chunk {
			var resolvedAt any
			if hold.status != holdOpen {
				resolvedAt = b.now
			}
			args = append(args, hold.id, hold.wallet.OrgID, string(hold.wallet.Env), hold.amount, string(hold.status),
				hold.model, hold.price.Input, hold.price.Output, hold.price.CachedInput, b.now, hold.expiresAt, resolvedAt)
		}
		tx.Queue(store.AnyRows, insertHolds[size], args...)
	})

	resolved := map[holdStatus][]string{}
	for id, hold := range b.holds {
		if hold.readStatus == holdOpen && hold.status != holdOpen {
			resolved[hold.status] = append(resolved[hold.status], id)
		}
	}
	for _, status := range []holdStatus{holdSettled, holdVoided, holdExpired} {
		store.EachExact(listSizes, resolved[status], func(size int, chunk []string) {
			tx.Queue(int64(len(chunk)), resolveHolds[size], store.Arguments(chunk, string(status), b.now)...)
		})
	}
}

// writeEntries writes each transaction but the charges, which are rows of calls, with its two legs: what the wallet gets, its counter
// account gives.
func (b *books) writeEntries(tx store.Tx) {
	store.EachExact(listSizes, b.newEntries, func(size int, chunk []Entry) {
		txs, legs := make([]any, 0, 8*len(chunk)), make([]any, 0, 8*len(chunk))
		for _, entry := range chunk {
			txs = append(txs, entry.ID, entry.Wallet.OrgID, string(entry.Wallet.Env), string(entry.Kind),
				entry.Ref, entry.Note, entry.BalanceMicros, entry.At)
			legs = append(legs, entry.ID, int64(0), entry.Wallet.account(), entry.AmountMicros,
				entry.ID, int64(1), entry.Kind.counterAccount(), -entry.AmountMicros)
		}
		tx.Queue(store.AnyRows, insertTxs[size], txs...)
		tx.Queue(store.AnyRows, insertEntries[size], legs...)
	})
}

func writeCalls(tx store.Tx, insert store.ListStatement, calls []callRow) {
	store.EachExact(listSizes, calls, func(size int, chunk []callRow) {
		args := make([]any, 0, 24*len(chunk))
		for _, call := range chunk {
			var txID, tranche, granted, balance, chargedAt any
			if call.txID != "" {
				txID, balance, chargedAt = call.txID, call.balance, call.chargedAt
			}
			if call.tranche != "" {
				tranche, granted = call.tranche, call.granted
			}
			args = append(args, call.ID, call.RequestID, call.Wallet.OrgID, string(call.Wallet.Env), call.KeyID, call.Model,
				call.Provider, call.BYOK, call.Stream, call.Outcome, call.Usage.PromptTokens, call.Usage.CompletionTokens,
				call.Usage.CachedPromptTokens, string(call.UsageSource), call.settled.ChargedMicros,
				call.settled.ExtraMicros, call.settled.ShortfallMicros, txID, call.StartedAt, max(0, call.DurationMS),
				tranche, granted, balance, chargedAt)
		}
		tx.Queue(store.AnyRows, insert[size], args...)
	})
}
