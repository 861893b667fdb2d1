package billing

import (
	"maps"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// listSizes are the lengths of the lists in this package's statements. Most transactions carry a few calls.
var listSizes = store.ListSizes{64, 16, 8, 4, 3, 2, 1}

var (
	insertHolds   = listSizes.Statement(`INSERT INTO holds (org_id, env, id, amount_micros, expires_at) {list}`, 5, 0)
	deleteHolds   = listSizes.Statement(`DELETE FROM holds WHERE (org_id, env, id) IN ({list})`, 3, 0)
	insertEntries = listSizes.Statement(`INSERT INTO ledger_tx (id, org_id, env, wallet_seq, kind, account, ref, reason, amount_micros,
		balance_micros, created_at, audit_id) {list}`, 12, 0)
	insertCalls   = listSizes.Statement(insertCall, 22, 0)
	insertRecords = listSizes.Statement(insertCall+` ON CONFLICT (id) DO NOTHING`, 22, 0)
)

const (
	insertCall = `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens,
		completion_tokens, cached_tokens, usage_source, ended_at, duration_ms, price_id, reserved_micros, charged_micros, shortfall_micros,
		wallet_seq, balance_micros) {list}`
	insertPrice = `INSERT INTO prices (id, model, input_micros, output_micros, cached_input_micros) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT DO NOTHING`

	insertWallet = `INSERT INTO wallets (org_id, env) SELECT id, CAST($2 AS TEXT) FROM organizations WHERE id = $1
		ON CONFLICT DO NOTHING`
	// The wallet must be as it was read, so that a writer without the lock is detected and not overwritten.
	updateWallet = `UPDATE wallets SET balance_micros = $1, held_micros = $2, seq = $3, moved_at = $4, recall_until = $5, kept_bytes = $6
		WHERE org_id = $7 AND env = $8 AND balance_micros = $9 AND held_micros = $10 AND seq = $11 AND kept_bytes = $12`
)

// write queues what the batch decided. Inserts need no count: they write all of their rows or fail.
func (b *books) write(tx store.Tx) {
	b.writeWallets(tx)
	b.writeHolds(tx)
	b.writeTranches(tx)
	b.writeClaims(tx)
	b.writeEntries(tx)
	for _, id := range slices.Sorted(maps.Keys(b.newPrices)) {
		price := b.newPrices[id]
		tx.Queue(store.AnyRows, insertPrice, id, price.model, price.Input, price.Output, price.cachedInput())
	}
	b.writeCalls(tx, insertCalls, b.newCalls)
	b.writeCalls(tx, insertRecords, b.records)
	for _, audit := range b.audits {
		store.QueueAudit(tx, audit)
	}
}

// writeWallets updates each wallet once, whatever the batch did with it.
func (b *books) writeWallets(tx store.Tx) {
	ids := make([]WalletID, 0, len(b.wallets))
	for id, wallet := range b.wallets {
		if wallet.walletState != wallet.read {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, WalletID.compare)
	for _, id := range ids {
		w := b.wallets[id]
		tx.Queue(1, updateWallet, w.balance, w.held, w.seq, w.movedAt, w.recallUntil, w.kept,
			id.OrgID, string(id.Env), w.read.balance, w.read.held, w.read.seq, w.read.kept)
	}
}

// writeHolds deletes the holds that ended, then inserts new ones. Calls that began and ended within the batch have none.
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
		return append(values, h.wallet.OrgID, string(h.wallet.Env), h.id, h.amount, h.expiresAt)
	})
}

func (b *books) writeEntries(tx store.Tx) {
	store.QueueList(tx, listSizes, insertEntries, false, b.newEntries, func(values []any, e Entry) []any {
		return append(values, e.ID, e.Wallet.OrgID, string(e.Wallet.Env), e.Seq, string(e.Kind), entryKinds[e.Kind].account, e.Ref, e.Note,
			e.AmountMicros, e.BalanceMicros, e.At, e.auditID)
	})
}

func (b *books) writeCalls(tx store.Tx, insert store.ListStatement, calls []callRow) {
	store.QueueList(tx, listSizes, insert, false, calls, func(values []any, c callRow) []any {
		var price, seq, balance any
		if c.priceID != 0 {
			price = c.priceID
		}
		if c.seq > 0 {
			seq, balance = c.seq, c.balance
		}
		return append(values, c.ID, c.RequestID, c.Wallet.OrgID, string(c.Wallet.Env), c.KeyID, c.Model, c.Provider, c.BYOK, c.Stream, c.Outcome,
			c.Usage.PromptTokens, c.Usage.CompletionTokens, c.Usage.CachedPromptTokens, string(c.UsageSource), c.endedAt, max(0, c.DurationMS),
			price, c.reserved, c.settled.ChargedMicros, c.settled.ShortfallMicros, seq, balance)
	})
}
