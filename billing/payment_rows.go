package billing

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	paymentColumns = `provider, id, pay_id, org_id, state, reason, amount, currency, micros, reference, account, paid_at, created_at, updated_at,
		refunded, disputes, taken_micros, entry_id, decided_by, note, text`
	selectPayments       = `SELECT ` + paymentColumns + ` FROM payments`
	selectPayment        = selectPayments + ` WHERE provider = $1 AND id = $2`
	waitingPayments      = `state IN ('unmatched', 'held')`
	countWaitingPayments = `SELECT count(*) FROM payments WHERE ` + waitingPayments + ` AND reason <> '` + ReasonRefundFirst + `' AND created_at < $1`
	selectTwin           = `SELECT provider FROM payments WHERE reference = $1 AND account = $2 AND amount = $3 AND state <> 'duplicate'
		AND reference <> '' AND NOT (provider = $4 AND id = $5)`
	selectOpenCode         = `SELECT code FROM payment_codes WHERE org_id = $1 AND amount = 0 ORDER BY created_at, code LIMIT 1`
	countCodes             = `SELECT count(*) FROM payment_codes WHERE org_id = $1 AND created_at > $2`
	insertCode             = `INSERT INTO payment_codes (code, org_id, amount, currency, created_by, created_at) VALUES ($1, $2, $3, $4, $5, $6)`
	selectPaidOrganization = `SELECT org_id FROM payments WHERE provider = $1 AND id = $2`
	selectOrganization     = `SELECT suspended_at IS NOT NULL FROM organizations WHERE id = $1`
	insertPayment          = `INSERT INTO payments (` + paymentColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`
	// The condition repeats the values that were read, because a payment without an organization has no lock.
	updatePayment = `UPDATE payments SET org_id = $3, state = $4, reason = $5, amount = $6, currency = $7, micros = $8, reference = $9, account = $10,
		paid_at = $11, updated_at = $12, refunded = $13, disputes = $14, taken_micros = $15, entry_id = $16, decided_by = $17, note = $18, text = $19
		WHERE provider = $1 AND id = $2 AND state = $20 AND reason = $21 AND org_id = $22 AND refunded = $23 AND disputes = $24`
)

var scanPayment = store.ScanFields[Payment]()

// selectCodes reads the codes of a list.
var selectCodes = listSizes.Statement(`SELECT code, org_id, amount, currency FROM payment_codes WHERE code IN {list}`, 1, 0)

// find finds the wallet of a payment: that of the payment if it is known, or else of its code. The first code in the text counts.
func (op *payOp) find(ctx context.Context, tx store.Tx) error {
	op.price, op.suspended = 0, false
	if op.decision == "" {
		op.wallet = WalletID{}
		read := func(row store.Row) error { return row.Scan(&op.wallet.OrgID) }
		if err := tx.Query(ctx, read, selectPaidOrganization, op.Provider, op.ID); err != nil {
			return fmt.Errorf("read whose a payment is: %w", err)
		}
		if op.wallet.OrgID == "" {
			if err := op.findCode(ctx, tx); err != nil {
				return err
			}
		}
	}
	if op.wallet.OrgID == "" {
		return nil
	}
	op.wallet.Env = store.Live
	read := func(row store.Row) error { return row.Scan(&op.suspended) }
	return store.Wrap("read the organization of a payment", tx.Query(ctx, read, selectOrganization, op.wallet.OrgID))
}

func (op *payOp) findCode(ctx context.Context, tx store.Tx) error {
	first := len(op.Codes)
	store.QueueListed(tx, listSizes, selectCodes, "", op.Codes, func(values []any, code string) []any { return append(values, code) },
		func(row store.Row) error {
			var code, org, currency string
			var price int64
			err := row.Scan(&code, &org, &price, &currency)
			if place := slices.Index(op.Codes, code); err == nil && place < first {
				first, op.wallet.OrgID, op.price, op.priceIn = place, org, price, currency
			}
			return err
		})
	return store.Wrap("read the codes of a payment", tx.Flush(ctx))
}

// queuePayment reads a payment, and whether another provider has delivered its transfer before.
func queuePayment(tx store.Tx, op *payOp, books *books) {
	tx.QueueQuery(func(row store.Row) error {
		payment, err := scanPayment(row)
		books.payments[op.key()] = &paymentRow{Payment: payment, read: payment, stored: true}
		return err
	}, selectPayment, op.Provider, op.ID)
	if op.wallet.OrgID != "" { // a person may have credited it by hand, with this reference
		queuePosted(tx, posting{kind: EntryTopUp, wallet: op.wallet, ref: (&Payment{Provider: op.Provider, ID: op.ID}).ref("pay")}, books)
	}
	op.twin = ""
	if op.Reference != "" {
		tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.twin) }, selectTwin, op.Reference, op.Account, op.Amount, op.Provider, op.ID)
	}
}

// writePayments writes the payments that were decided.
func (b *books) writePayments(tx store.Tx) {
	compare := func(x, y paymentKey) int {
		return cmp.Or(strings.Compare(x.provider, y.provider), strings.Compare(x.id, y.id))
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.payments), compare) {
		p := b.payments[key]
		switch {
		case p.Payment == p.read:
		case !p.stored:
			tx.Queue(1, insertPayment, p.Provider, p.ID, p.PayID, p.OrgID, string(p.State), p.Reason, p.Amount, p.Currency, p.Micros, p.Reference,
				p.Account, p.PaidAt, p.CreatedAt, p.UpdatedAt, p.Refunded, p.Disputes, p.TakenMicros, p.EntryID, p.DecidedBy, p.Note, p.Text)
		default:
			tx.Queue(1, updatePayment, p.Provider, p.ID, p.OrgID, string(p.State), p.Reason, p.Amount, p.Currency, p.Micros, p.Reference, p.Account,
				p.PaidAt, p.UpdatedAt, p.Refunded, p.Disputes, p.TakenMicros, p.EntryID, p.DecidedBy, p.Note, p.Text,
				string(p.read.State), p.read.Reason, p.read.OrgID, p.read.Refunded, p.read.Disputes)
		}
	}
}
