package console

import (
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// move is a change of a wallet. Its form leads to a page that shows the balance before and after, with the form that does it.
type move struct {
	op   api.Operation
	form ui.Form
	// submit is the text of the second button, done the notice afterwards.
	submit, done text.Text
	// change returns the amount that the wallet gets, for the confirmation, and completes the input of the operation.
	change func(req *request, in values) (micros int64, err error)
}

var (
	amountField    = ui.Field{Name: "amountMicros", Label: "Amount", Micros: true, Required: true}
	referenceField = ui.Field{Name: "reference", Label: "Reference", Hint: "The same reference never moves money twice."}
)

// moves are the changes of wallets. Their forms stand on the page of an organization.
var moves = []*move{
	{
		op: api.CreditWallet, submit: "Add credit", done: "The wallet has the credit.", change: amountIn,
		form: ui.FormOf(api.CreditWallet, ui.Form{ID: "credit", Submit: "Add credit…"}, amountField, referenceField),
	},
	{
		op: api.AdjustWallet, submit: "Take back", done: "The wallet was corrected.", change: taken,
		form: ui.FormOf(api.AdjustWallet, ui.Form{ID: "take", Submit: "Take back…", Danger: true}, amountField, referenceField,
			ui.Field{Name: "reason", Label: "Reason", Hint: "The organization can read it."}),
	},
	{
		op: api.AdjustWallet, submit: "Undo", done: "The credit was undone.", change: taken,
		form: ui.FormOf(api.AdjustWallet, ui.Form{ID: "undo", Submit: "Undo…"},
			ui.Field{Name: "amountMicros", Kind: ui.HiddenField, Micros: true}, ui.Field{Name: "reference", Kind: ui.HiddenField},
			ui.Field{Name: "reason", Kind: ui.HiddenField}, ui.Field{Name: "corrects", Kind: ui.HiddenField}),
	},
	{
		op: api.RefundCall, submit: "Refund", done: "The call was refunded.", change: func(req *request, _ values) (int64, error) {
			return amountIn(req, values{"amountMicros": req.Sent.Text("charged")}) // only shown: the operation reads the charge
		},
		form: ui.FormOf(api.RefundCall, ui.Form{ID: "refund", Submit: "Refund…", Fields: []ui.Field{{Name: "charged", Kind: ui.HiddenField}}},
			ui.Field{Name: "id", Kind: ui.HiddenField}),
	},
}

// amountIn returns the amount of a form.
func amountIn(_ *request, in values) (micros int64, err error) {
	amount, _ := in["amountMicros"].(string)
	if micros, err = strconv.ParseInt(amount, 10, 64); err != nil || micros <= 0 {
		err = handlers.InvalidRequest("amountMicros", "Enter an amount above 0.")
	}
	return micros, err
}

// fieldMissing is the error of a field that the second step would refuse.
const fieldMissing text.Text = "Fill in this field."

// taken turns the amount of a form into a negative one.
func taken(req *request, in values) (int64, error) {
	micros, err := amountIn(req, in)
	in["amountMicros"] = strconv.FormatInt(-micros, 10)
	return -micros, err
}

// confirmation shows the wallet before and after a move.
type confirmation struct {
	// Name is the organization's, if the page is about several.
	Name string
	// Now and After are balances, Amount is the difference, in micros.
	Now, Amount, After string
	Below              bool
	Form               ui.Form
}

// moneyActions are both steps of each move.
func moneyActions(moves []*move) (actions []action) {
	for _, m := range moves {
		actions = append(actions,
			action{Verb: m.form.ID, Form: m.form.ID, Do: func(req *request) (string, error) {
				_, err := req.confirm(m)
				return "", err
			}},
			action{Verb: m.form.ID + "-confirmed", Form: m.form.ID + "-confirm", Done: m.done, Do: func(req *request) (string, error) {
				in, err := req.confirm(m)
				if err == nil {
					err = req.proveForMoney()
				}
				if err == nil {
					_, err = req.Ask(m.op, in)
				}
				return req.Path(), err
			}},
		)
	}
	return actions
}

// confirm reads the form of a move and sets the confirmation.
func (req *request) confirm(m *move) (values, error) {
	in, err := m.form.Read(req.Sent, values{})
	if err != nil {
		return nil, err
	}
	for _, one := range m.form.Fields {
		if one.Required && req.Sent.Text(one.Name) == "" {
			return nil, handlers.InvalidRequest(one.Name, "%s", fieldMissing)
		}
	}
	amount, err := m.change(req, in)
	if err != nil {
		return nil, err
	}
	wallet, err := site.Ask(req, api.GetWallet, nil)
	if err != nil {
		return nil, err
	}
	name := ""
	if req.orgID != "" {
		organization, err := site.Ask(req, api.ReadOrganization, nil)
		if err != nil {
			return nil, err
		}
		name = organization.Name
	}
	now, err := strconv.ParseInt(wallet.BalanceMicros, 10, 64)
	if err != nil {
		return nil, err
	}
	f := ui.Form{ID: m.form.ID + "-confirm", Action: req.Path() + "/" + m.form.ID + "-confirmed", Submit: m.submit, Danger: m.form.Danger}
	for _, one := range m.form.Fields {
		f.Fields = append(f.Fields, ui.Field{Name: one.Name, Kind: ui.HiddenField, Value: req.Sent.Text(one.Name)})
	}
	if !req.session.Fresh(identity.MoneyFactorLifetime) {
		f.Fields = append(f.Fields, codeField)
	}
	req.Once = &confirmation{
		Name: name, Now: wallet.BalanceMicros, Amount: strconv.FormatInt(amount, 10), After: strconv.FormatInt(now+amount, 10),
		Below: now+amount < 0, Form: f,
	}
	return in, nil
}

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
	in := req.listed("state")
	if _, chosen := req.R.URL.Query()["state"]; !chosen {
		in["state"] = "waiting"
	}
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
