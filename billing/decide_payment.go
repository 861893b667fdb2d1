package billing

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// paymentKey names a payment.
type paymentKey struct{ provider, id string }

// paymentRow is a payment as read, and as the batch leaves it.
type paymentRow struct {
	Payment

	read   Payment
	stored bool
}

// waits reports whether a person must decide.
func (p *paymentRow) waits() bool { return p.State == PaymentUnmatched || p.State == PaymentHeld }

// pay decides a delivery about a payment, or a decision of a person.
func (b *books) pay(op *payOp) (Payment, error) {
	row := b.payments[op.key()]
	if row == nil {
		row = &paymentRow{Payment: Payment{
			Provider: op.Provider, ID: op.ID, PayID: store.NewID("pay"), State: PaymentHeld, Reason: ReasonRefundFirst, Currency: op.Currency,
			Disputes: "{}", PaidAt: op.PaidAt, CreatedAt: b.now,
		}}
	}
	if of := row.OrgID; of != "" && op.decision == "" && b.wallets[WalletID{of, store.Live}] == nil {
		return Payment{}, fmt.Errorf("%w: a person has matched the payment at this moment", store.ErrBusy)
	}
	before := row.Payment
	var err error
	switch {
	case op.decision != "":
		err = b.decidePayment(op, row)
	case op.Kind == PaymentPaid:
		err = b.paid(op, row)
	default:
		err = b.takeBack(op, row)
	}
	if err != nil {
		row.Payment = before
		return Payment{}, err
	}
	if row.Payment != row.read {
		row.UpdatedAt = b.now
		b.payments[op.key()] = row
	}
	return row.Payment, nil
}

// paid decides the delivery of money that has arrived. Only the first one of a payment changes anything.
func (b *books) paid(op *payOp, row *paymentRow) error {
	if row.Reason != ReasonRefundFirst {
		return nil
	}
	row.Amount, row.Currency, row.Micros, row.Text = op.Amount, op.Currency, op.Micros, op.Text
	row.Reference, row.Account, row.PaidAt, row.OrgID = op.Reference, op.Account, op.PaidAt, op.wallet.OrgID
	switch {
	case op.Reason == ReasonTest:
		// A test transfer repeats a sample's reference, which must hide no other transfer.
		row.State, row.Reason, row.Reference = PaymentIgnored, op.Reason, ""
	case op.twin != "":
		row.State, row.Reason = PaymentDuplicate, ReasonTwin
	case op.Reason != "":
		row.State, row.Reason = PaymentHeld, op.Reason
	case op.wallet.OrgID == "":
		row.State, row.Reason = PaymentUnmatched, ReasonNoCode
	case op.suspended:
		row.State, row.Reason = PaymentHeld, ReasonSuspended
	case op.price > 0 && (op.price != op.Amount || op.priceIn != op.Currency):
		row.State, row.Reason = PaymentUnmatched, ReasonAmount
	default:
		err := b.creditPayment(row, "payment:"+op.Provider)
		if !errors.Is(err, ErrRefReused) && !errors.Is(err, ErrOverflow) {
			return err
		}
		row.State, row.Reason = PaymentHeld, ReasonRefused
	}
	return nil
}

// decidePayment applies a person's decision.
func (b *books) decidePayment(op *payOp, row *paymentRow) error {
	switch {
	case !row.stored:
		return fmt.Errorf("payment %s of %s: %w", op.ID, op.Provider, store.ErrNotFound)
	case !row.waits() || row.Reason == ReasonRefundFirst:
		return ErrPaymentDecided
	}
	row.DecidedBy = op.actor
	if op.decision == PaymentIgnored {
		row.State, row.Reason, row.Note = PaymentIgnored, ReasonPerson, op.note
		b.audits = append(b.audits, store.AuditEntry{
			ID: store.NewID("aud"), At: b.now, Actor: op.actor, Action: "payment.ignore", Target: row.PayID, OrgID: row.OrgID,
			Detail: fmt.Sprintf("%d %s, %s: %s", row.Amount, row.Currency, row.ref("pay"), op.note),
		})
		return nil
	}
	if row.Micros == 0 {
		return fmt.Errorf("%w: the payment has no credits by the present rates; credit its worth by hand, and ignore it", ErrInvalid)
	}
	row.OrgID = op.wallet.OrgID
	return b.creditPayment(row, op.actor)
}

// creditPayment credits a payment, and books its earlier refunds and disputes.
func (b *books) creditPayment(row *paymentRow, actor string) error {
	wallet := WalletID{row.OrgID, store.Live}
	entry, err := b.post(posting{kind: EntryTopUp, wallet: wallet, micros: row.Micros, ref: row.ref("pay"), actor: actor})
	if err != nil {
		return err
	}
	row.State, row.Reason, row.EntryID = PaymentCredited, "", entry.ID
	b.events = append(b.events, &store.Event{
		OrgID: row.OrgID, Type: store.EventWalletCredited, TransactionID: entry.ID, AmountMicros: FormatMicros(row.Micros),
		BalanceMicros: FormatMicros(entry.BalanceMicros),
	})
	return b.settleTaken(row)
}

// ref returns the reference of a posting for the payment.
func (p *Payment) ref(what string) string { return what + ":" + p.Provider + ":" + p.ID }

// payClaims pays the claims on wallets from their free credits. Calls protect no credits from a refund: the rest of a hold is taken when its
// call ends.
func (b *books) payClaims() error {
	if !b.claimed {
		return nil
	}
	for id, wallet := range b.wallets {
		micros := min(wallet.claimed, wallet.free())
		if micros == 0 {
			continue
		}
		_, err := b.post(posting{
			kind: EntryReversal, wallet: id, micros: -micros, ref: fmt.Sprintf("claim:%d", wallet.seq), actor: "system",
			note: "a payment that was taken back before",
		})
		if err != nil {
			return err
		}
		wallet.claimed -= micros
	}
	return nil
}

// takeBack decides the delivery of a refund or a dispute. Before the payment itself is known it is only noted.
func (b *books) takeBack(op *payOp, row *paymentRow) error {
	disputes := map[string]int64{}
	if err := json.Unmarshal([]byte(row.Disputes), &disputes); err != nil {
		return fmt.Errorf("the disputes of payment %s of %s: %w", row.ID, row.Provider, err)
	}
	switch op.Kind {
	case PaymentRefunded:
		row.Refunded = max(row.Refunded, op.Amount)
	case PaymentDisputed:
		if _, known := disputes[op.Dispute]; !known {
			disputes[op.Dispute] = op.Amount
		}
	case PaymentDisputeWon:
		disputes[op.Dispute] = 0 // kept, so that a late delivery of the dispute changes nothing
	case PaymentPaid:
	}
	text, _ := json.Marshal(disputes) //nolint:errchkjson // a map of texts and numbers
	row.Disputes = string(text)
	if row.State != PaymentCredited {
		return nil
	}
	return b.settleTaken(row)
}

// settleTaken makes TakenMicros of a credited payment equal to its refunds and open disputes. More is posted as far as the wallet has free credits,
// and the rest is a claim. Less, after a dispute was won, first reduces the claim, and the rest is given back.
func (b *books) settleTaken(row *paymentRow) error {
	var disputes map[string]int64
	if err := json.Unmarshal([]byte(row.Disputes), &disputes); err != nil {
		return fmt.Errorf("the disputes of payment %s of %s: %w", row.ID, row.Provider, err)
	}
	gone := min(row.Refunded, row.Amount)
	for _, amount := range disputes {
		gone += min(amount, row.Amount-gone)
	}
	wanted := share(row.Micros, gone, row.Amount)
	id := WalletID{row.OrgID, store.Live}
	wallet := b.wallets[id]
	change := wanted - row.TakenMicros
	if change == 0 {
		return nil
	}
	post := -min(change, wallet.free())
	if change < 0 {
		post = -change - min(-change, wallet.claimed)
	}
	if post != 0 {
		_, err := b.post(posting{
			kind: EntryReversal, wallet: id, micros: post, note: "the payment was refunded, disputed, or given back",
			actor: "payment:" + row.Provider,
			ref:   fmt.Sprintf("%s:%d:%d", row.ref("taken"), wanted, wallet.seq),
		})
		if err != nil {
			return err
		}
	}
	wallet.claimed += change + post
	b.claimed = true
	row.TakenMicros = wanted
	return nil
}
