package api

import (
	"context"
	"fmt"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// transactionObject is a transaction of a wallet as the API shows it.
type transactionObject struct {
	ID            string  `json:"id"`
	At            string  `json:"at"            format:"date-time"`
	Kind          string  `json:"kind"          enum:"credit,charge,adjustment,refund"`
	AmountMicros  string  `json:"amountMicros"  doc:"What the wallet got, or with a minus gave, in millionths of the currency unit"`
	BalanceMicros string  `json:"balanceMicros" doc:"What the wallet had right after it"`
	CallID        *string `json:"callId"        doc:"The model call that was charged or refunded"`
	Reference     *string `json:"reference"     doc:"The operator's reference, such as that of a payment"`
	Reason        *string `json:"reason"        doc:"Why the operator adjusted the wallet"`
}

func showTransaction(e *billing.Entry) transactionObject {
	shown := transactionObject{
		ID: e.ID, At: endpoint.Timestamp(e.At), Kind: transactionKind(e.Kind),
		AmountMicros: billing.FormatMicros(e.AmountMicros), BalanceMicros: billing.FormatMicros(e.BalanceMicros),
	}
	switch e.Kind {
	case billing.EntryCharge:
		shown.CallID = endpoint.TextOrNull(e.Ref)
	case billing.EntryRefund:
		shown.CallID, shown.Reference = endpoint.TextOrNull(e.Ref), endpoint.TextOrNull(e.Note)
	default:
		if e.Ref != e.ID { // it was given none
			shown.Reference = endpoint.TextOrNull(e.Ref)
		}
		shown.Reason = endpoint.TextOrNull(e.Note)
	}
	return shown
}

// transactionKind is what the command line calls it, too.
func transactionKind(kind billing.EntryKind) string {
	switch kind {
	case billing.EntryTopUp:
		return "credit"
	case billing.EntryAdjust:
		return "adjustment"
	default:
		return string(kind)
	}
}

func (g *wallet) listTransactions(_ context.Context, principal *identity.Principal, in *struct{ HistoryQuery }) (*endpoint.Stream, error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	stretch, err := in.stretch()
	if err != nil {
		return nil, err
	}
	return tableBody(in.HistoryQuery, stretch, table[billing.Entry, transactionObject]{
		name: "transactions-" + string(wallet.Env),
		read: func(ctx context.Context, stretch billing.Stretch) ([]billing.Entry, error) {
			entries, err := g.Wallets.Entries(ctx, wallet, stretch)
			if err != nil {
				return nil, handlers.Internal(fmt.Errorf("reading transactions: %w", err))
			}
			return entries, nil
		},
		place:   func(row *billing.Entry) billing.Place { return row.Place() },
		show:    showTransaction,
		columns: []string{"id", "at", "kind", "amountMicros", "balanceMicros", "callId", "reference", "reason"},
		cells: func(t *transactionObject) []string {
			return []string{
				t.ID, t.At, t.Kind, t.AmountMicros, t.BalanceMicros, csvText(t.CallID), csvText(t.Reference), csvText(t.Reason),
			}
		},
	}), nil
}
