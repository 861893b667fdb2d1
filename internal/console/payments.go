package console

import (
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

const paymentsPath = root + "/payments"

// matchMove credits a payment that waits. Its row has the form.
var matchMove = &move{
	op: api.MatchPayment, submit: "Credit it", done: "The payment was credited.",
	form: ui.FormOf(api.MatchPayment, ui.Form{ID: "match", Submit: "Match…"},
		ui.Field{Name: "id", Kind: ui.HiddenField}, ui.Field{Name: "orgId", Label: "Id of the organization"}),
	change: func(req *request, in values) (int64, error) {
		payment, err := site.Ask(req, api.GetPayment, values{"id": in["id"]})
		if err != nil {
			return 0, err
		}
		req.orgID, _ = in["orgId"].(string)
		return strconv.ParseInt(payment.CreditMicros, 10, 64)
	},
}

var ignoreForm = ui.FormOf(api.IgnorePayment, ui.Form{
	ID: "ignore", Submit: "Ignore", Danger: true, Confirm: "Ignore this payment? It will never be credited.",
}, ui.Field{Name: "id", Kind: ui.HiddenField},
	ui.Field{Name: "reason", Label: "Reason, for the audit log", Hint: "An ignored payment is never credited."})

var paymentsPage = page{
	Path: paymentsPath, Template: "payments", Title: "Payments", Show: showPayments,
	Actions: append(moneyActions([]*move{matchMove}), simple("ignore", api.IgnorePayment, ignoreForm, "The payment is ignored.")),
}

// paymentStates are the words for states and reasons of payments.
var paymentStates = map[string]text.Text{
	"waiting": "Wait for you", "credited": "Credited", "unmatched": "Unmatched", "held": "Held", "duplicate": "Duplicate", "ignored": "Ignored",
	"no_code": "no code in its text", "amount": "not the price of its package", "unreadable": "not readable", "currency": "no rate for its currency",
	"limit": "above the limit", "suspended": "the organization is suspended", "test": "a test",
	"same_transfer": "another provider delivered this transfer",
	"refund_first":  "only its refund has come so far", "refused": "the ledger refused it", "person": "decided by a person",
}

// shownPayment is a row of the page with its forms, which only a payment that waits has.
type shownPayment struct {
	api.ReceivedPayment

	StateText, ReasonText string
	Match, Ignore         *ui.Form
}

type paymentsData struct {
	Filter   ui.Form
	Payments []shownPayment
	Pager    ui.Pager
}

func showPayments(req *request) (any, error) {
	in := req.parameters("state", "cursor")
	if _, chosen := req.R.URL.Query()["state"]; !chosen {
		in["state"] = "waiting"
	}
	in["limit"] = "100"
	list := site.Read(req, api.ListPayments, in)
	options := []ui.Option{{Label: "All"}}
	for _, state := range []string{"waiting", "credited", "unmatched", "held", "duplicate", "ignored"} {
		options = append(options, ui.Option{Value: state, Label: paymentStates[state]})
	}
	state, _ := in["state"].(string)
	filter := ui.Form{ID: "payments-filter", Action: paymentsPath, Submit: "Show", Get: true, Fields: []ui.Field{
		{Name: "state", Kind: ui.SelectField, Label: "State", Options: ui.Choices(options, state)},
	}}
	shown := paymentsData{Filter: req.Form(filter), Pager: req.Pager(list.NextCursor)}
	for i := range list.Data {
		row := shownPayment{ReceivedPayment: list.Data[i], StateText: req.Say.T(paymentStates[list.Data[i].State])}
		if row.Reason != nil {
			row.ReasonText = req.Say.T(paymentStates[*row.Reason])
		}
		waits := (row.State == "unmatched" || row.State == "held") && (row.Reason == nil || *row.Reason != "refund_first")
		if waits && req.may("wallet:write") {
			row.Match, row.Ignore = req.rowForm(matchMove.form, row.ReceivedPayment), req.rowForm(ignoreForm, row.ReceivedPayment)
		}
		shown.Payments = append(shown.Payments, row)
	}
	return shown, nil
}

// rowForm returns a form for one payment.
func (req *request) rowForm(f ui.Form, payment api.ReceivedPayment) *ui.Form {
	f = f.Of(req.Path()+"/"+f.ID, payment)
	f.ID += "-" + payment.ID
	return new(req.Form(f))
}
