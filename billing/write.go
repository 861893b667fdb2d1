package billing

import (
	"context"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// listSizes are the lengths of the lists in this package's statements.
var listSizes = store.ListSizes{64, 16, 4, 1}

var (
	insertHolds = listSizes.Statement(`INSERT INTO holds (id, org_id, env, amount_micros, status, model,
		price_input, price_output, price_cached_input, created_at, expires_at, resolved_at) {list}`, 12, 0)
	insertTxs     = listSizes.Statement(`INSERT INTO ledger_tx (id, org_id, env, kind, ref, reason, balance_micros, created_at) {list}`, 8, 0)
	insertEntries = listSizes.Statement(`INSERT INTO ledger_entries (tx_id, seq, account, amount_micros) {list}`, 4, 0)
	insertCalls   = listSizes.Statement(`INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream,
		outcome, prompt_tokens, completion_tokens, cached_tokens, usage_source, charged_micros, extra_micros,
		shortfall_micros, tx_id, started_at, duration_ms) {list}`, 20, 0)
	// The guard is in the statement: only an open hold can be resolved, once.
	resolveHolds = listSizes.Statement(`UPDATE holds SET status = $1, resolved_at = $2 WHERE status = 'open' AND id IN {list}`, 1, 2)
)

const (
	insertWallet = `INSERT INTO wallets (org_id, env) SELECT id, CAST($2 AS TEXT) FROM organizations WHERE id = $1
		ON CONFLICT DO NOTHING`
	// The wallet must be as it was read, so that a writer without the lock is detected and not overwritten.
	updateWallet = `UPDATE wallets SET balance_micros = $1, held_micros = $2
		WHERE org_id = $3 AND env = $4 AND balance_micros = $5 AND held_micros = $6`
)

// write queues what the batch decided and runs it.
func (b *books) write(ctx context.Context, tx store.Tx) error {
	b.writeWallets(tx)
	b.writeHolds(tx)
	b.writeClaims(tx)
	b.writeEntries(tx)
	b.writeCalls(tx)
	for _, audit := range b.audits {
		store.QueueAudit(tx, audit)
	}
	if err := tx.Flush(ctx); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	return nil
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
		tx.Queue(int64(len(chunk)), insertHolds[size], args...)
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

// writeEntries writes each transaction with its two legs: what the wallet gets, its counter account gives.
func (b *books) writeEntries(tx store.Tx) {
	legs := make([][4]any, 0, 2*len(b.newEntries))
	store.EachExact(listSizes, b.newEntries, func(size int, chunk []Entry) {
		args := make([]any, 0, 8*len(chunk))
		for _, entry := range chunk {
			args = append(args, entry.ID, entry.Wallet.OrgID, string(entry.Wallet.Env), string(entry.Kind),
				entry.Ref, entry.Note, entry.BalanceMicros, entry.At)
			legs = append(legs,
				[4]any{entry.ID, int64(0), entry.Wallet.account(), entry.AmountMicros},
				[4]any{entry.ID, int64(1), entry.Kind.counterAccount(), -entry.AmountMicros})
		}
		tx.Queue(int64(len(chunk)), insertTxs[size], args...)
	})
	store.EachExact(listSizes, legs, func(size int, chunk [][4]any) {
		args := make([]any, 0, 4*len(chunk))
		for _, leg := range chunk {
			args = append(args, leg[:]...)
		}
		tx.Queue(int64(len(chunk)), insertEntries[size], args...)
	})
}

func (b *books) writeCalls(tx store.Tx) {
	store.EachExact(listSizes, b.newCalls, func(size int, chunk []callRow) {
		args := make([]any, 0, 20*len(chunk))
		for _, call := range chunk {
			var txID any
			if call.txID != "" {
				txID = call.txID
			}
			args = append(args, call.ID, call.RequestID, call.Wallet.OrgID, string(call.Wallet.Env), call.KeyID, call.Model,
				call.Provider, call.BYOK, call.Stream, call.Outcome, call.Usage.PromptTokens, call.Usage.CompletionTokens,
				call.Usage.CachedPromptTokens, string(call.UsageSource), call.settled.ChargedMicros,
				call.settled.ExtraMicros, call.settled.ShortfallMicros, txID, call.StartedAt, max(0, call.DurationMS))
		}
		tx.Queue(int64(len(chunk)), insertCalls[size], args...)
	})
}
