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

// writeHolds inserts new holds and deletes those that ended. Calls that began and ended within the batch have none.
func (b *books) writeHolds(tx store.Tx) {
	var began, ended []*holdRow
	for _, hold := range b.holds {
		switch {
		case hold.open && !hold.stored:
			began = append(began, hold)
		case hold.stored && !hold.open:
			ended = append(ended, hold)
		}
	}
	store.EachExact(listSizes, began, func(size int, chunk []*holdRow) {
		args := make([]any, 0, 5*len(chunk))
		for _, hold := range chunk {
			args = append(args, hold.wallet.OrgID, string(hold.wallet.Env), hold.id, hold.amount, hold.expiresAt)
		}
		tx.Queue(store.AnyRows, insertHolds[size], args...)
	})
	store.EachExact(listSizes, ended, func(size int, chunk []*holdRow) {
		args := make([]any, 0, 3*len(chunk))
		for _, hold := range chunk {
			args = append(args, hold.wallet.OrgID, string(hold.wallet.Env), hold.id)
		}
		tx.Queue(int64(len(chunk)), deleteHolds[size], args...)
	})
}

func (b *books) writeEntries(tx store.Tx) {
	store.EachExact(listSizes, b.newEntries, func(size int, chunk []Entry) {
		args := make([]any, 0, 12*len(chunk))
		for _, e := range chunk {
			args = append(args, e.ID, e.Wallet.OrgID, string(e.Wallet.Env), e.Seq, string(e.Kind), e.Kind.counterAccount(), e.Ref, e.Note,
				e.AmountMicros, e.BalanceMicros, e.At, e.auditID)
		}
		tx.Queue(store.AnyRows, insertEntries[size], args...)
	})
}

func (b *books) writeCalls(tx store.Tx, insert store.ListStatement, calls []callRow) {
	store.EachExact(listSizes, calls, func(size int, chunk []callRow) {
		args := make([]any, 0, 22*len(chunk))
		for _, call := range chunk {
			var price, seq, balance any
			if call.priceID != 0 {
				price = call.priceID
			}
			if call.seq > 0 {
				seq, balance = call.seq, call.balance
			}
			args = append(args, call.ID, call.RequestID, call.Wallet.OrgID, string(call.Wallet.Env), call.KeyID, call.Model,
				call.Provider, call.BYOK, call.Stream, call.Outcome, call.Usage.PromptTokens, call.Usage.CompletionTokens,
				call.Usage.CachedPromptTokens, string(call.UsageSource), call.endedAt, max(0, call.DurationMS), price, call.reserved,
				call.settled.ChargedMicros, call.settled.ShortfallMicros, seq, balance)
		}
		tx.Queue(store.AnyRows, insert[size], args...)
	})
}
