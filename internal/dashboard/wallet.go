package dashboard

import (
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const walletPath = root + "/wallet"

type walletData struct {
	// Environment is the environment of the wallet.
	Environment string
	Figures     []ui.Figure
	Spend       *api.SpendObject
	// Plot is nil if the spend can't be read now.
	Plot *spending
	// Days selects the days of the plot.
	Days         form
	Transactions []api.TransactionObject
	Pager        ui.Pager
	// TopUp is the form of payments, nil if the person can't begin one, and Payments are the last ones.
	TopUp    *form
	Payments []api.PaymentObject
	// Calls and the files are addresses.
	Calls, Statements, TransactionsFile, CallsFile string
}

type callsData struct {
	Environment string
	Calls       []api.CallObject
	Pager       ui.Pager
	Filter      form
	// Filtered reports whether the address selects calls.
	Filtered bool
	// File and Wallet are addresses.
	File, Wallet string
}

var topUpForm = ui.FormOf(api.CreateTopUp, form{ID: "top-up", Submit: "Show how to pay"},
	field{Name: "via", Kind: ui.SelectField, Label: "Way to pay"},
	field{Name: "amount", Kind: ui.NumberField, Label: "Amount", Hint: "In the smallest unit of the currency, such as dong."})

// begunTopUp is a payment to make, with the code that a bank's app scans.
type begunTopUp struct {
	*api.TopUpObject

	Picture template.HTML
}

// beginTopUp begins a payment. Its page is shown once; the payment itself doesn't end with the page.
func beginTopUp(req *pageRequest) (string, error) {
	made, err := site.AskForm(req, api.CreateTopUp, topUpForm, values{})
	if err != nil {
		return "", err
	}
	begun := &begunTopUp{TopUpObject: made}
	if made.Transfer != nil {
		begun.Picture = template.HTML(made.Transfer.SVG) //nolint:gosec // the service has drawn it
	}
	return req.Reveal(begun, nil)
}

// readPayments adds the form of payments if the service has a way to pay, and the last payments.
func (req *pageRequest) readPayments(shown *walletData) {
	var options []option
	for _, way := range site.Read(req, api.GetTopUpWays, nil).Data {
		options = append(options, named(way.Via, way.Label))
	}
	if len(options) == 0 {
		return
	}
	if req.session.Administers() {
		shown.TopUp = new(req.Form(topUpForm.With("via", options).Of(walletPath+"/top-up", nil)))
	}
	shown.Payments = site.Read(req, api.ListWalletPayments, values{"limit": "10"}).Data
}

var walletPage = page{
	Path: walletPath, Template: "wallet", Title: "Wallet & usage", Show: showWallet,
	Actions: []action{{Verb: "top-up", Form: "top-up", Do: beginTopUp}},
	Relays: []relay{
		{Method: http.MethodGet, Name: "transactions.csv", Do: tableFile("/wallet/transactions")},
		{Method: http.MethodGet, Name: "calls.csv", Do: tableFile("/wallet/calls")},
	},
}

// environment returns the wallet's environment in the address.
func (req *pageRequest) environment() string { return cmp.Or(req.Query("environment"), "live") }

// walletAddress returns an address of the dashboard for a wallet.
func walletAddress(path, environment string) string {
	if environment == "live" {
		return path
	}
	return path + "?environment=" + url.QueryEscape(environment)
}

// tableFile requests a list as CSV.
func tableFile(path string) func(req *pageRequest) error {
	return func(req *pageRequest) error {
		query := url.Values{"environment": {req.environment()}, "format": {"csv"}}
		return req.pass(http.MethodGet, path+"?"+query.Encode(), "text/csv", nil)
	}
}

func showWallet(req *pageRequest) (any, error) {
	environment := req.environment()
	shown := walletData{
		Environment: environment, Calls: walletAddress(walletPath+"/calls", environment),
		Statements:       walletAddress(statementsPath, environment),
		TransactionsFile: walletAddress(walletPath+"/transactions.csv", environment), CallsFile: walletAddress(walletPath+"/calls.csv", environment),
	}
	wallet := site.Read(req, api.GetWallet, values{"environment": environment})
	shown.Figures = []ui.Figure{
		req.balance(wallet, ""), {
			ID: "held", Label: req.Say.T("Reserved for running calls"), Icon: "loader-circle",
			Value: req.Say.Amount(wallet.HeldMicros), Micros: wallet.HeldMicros,
		},
	}
	if err := req.askSpend(&shown); err != nil {
		return nil, err
	}
	if environment == "live" {
		req.readPayments(&shown)
	}
	in := req.Cursor()
	in["environment"], in["limit"] = environment, "20"
	transactions := site.ReadTable[api.TransactionObject](req, api.ListTransactions, in)
	shown.Transactions, shown.Pager = transactions.Data, req.Pager(transactions.NextCursor)
	return shown, nil
}

// balance is the card of a wallet's balance.
func (req *pageRequest) balance(wallet *api.WalletObject, path string) ui.Figure {
	return ui.Figure{
		ID: "balance", Label: req.Say.T("Balance"), Icon: "wallet", Path: path,
		Value: req.Say.Amount(wallet.BalanceMicros), Micros: wallet.BalanceMicros,
	}
}

// askSpend reads the data of the plot. Refused days are an error of the form, with the plot of the usual days.
func (req *pageRequest) askSpend(shown *walletData) error {
	spent, err := site.Ask(req, api.GetSpend, values{"environment": shown.Environment, "from": req.Query("from"), "to": req.Query("to")})
	refused := refusedDays(err)
	if refused != nil {
		spent, err = site.Ask(req, api.GetSpend, values{"environment": shown.Environment})
	}
	if shown.Plot, err = req.plotOf(spent, err); err != nil {
		return err
	}
	if shown.Spend = spent; spent == nil {
		shown.Spend = new(api.SpendObject)
	}
	shown.Days = req.Form(form{ID: "wallet-days", Action: walletPath, Submit: "Show", Get: true, Fields: []field{
		{Name: "environment", Kind: ui.HiddenField, Value: shown.Environment},
		{
			Name: "from", Kind: ui.DateField, Label: "First day", Value: cmp.Or(req.Query("from"), shown.Spend.From), Required: true,
			Hint: "Days are those of UTC, at most 92.",
		},
		{Name: "to", Kind: ui.DateField, Label: "Last day", Value: cmp.Or(req.Query("to"), shown.Spend.To), Required: true},
	}})
	if refused != nil {
		shown.Days.Refuse(req.Translated(refused))
	}
	return nil
}

// refusedDays returns the refusal of the days that a form selects. It returns nil for other errors.
func refusedDays(err error) *handlers.Error {
	if refused, ok := errors.AsType[*handlers.Error](err); ok && (refused.Field == "from" || refused.Field == "to") {
		return refused
	}
	return nil
}

// plotOf returns the plot of spent, which was read with err. A page without a plot is still useful, so every error except the
// session's end is logged and gives no plot.
func (req *pageRequest) plotOf(spent *api.SpendObject, err error) (*spending, error) {
	if err != nil && handlers.AsError(err).Code.Status() == http.StatusUnauthorized {
		return nil, err
	}
	if err != nil {
		req.Site.Logger.Error("the dashboard shows a page without its plot", "page", req.R.Pattern, "error", err)
		return nil, nil //nolint:nilnil // no plot is what the page shows
	}
	return newSpending(req.Say, spent), nil
}

var callsPage = page{
	Path: walletPath + "/calls", Template: "calls", Title: "Calls",
	Show: func(req *pageRequest) (any, error) {
		environment := req.environment()
		in := req.Cursor()
		in["environment"] = environment
		filter := req.callFilter(in)
		calls, err := site.AskTable[api.CallObject](req, api.ListCalls, in)
		if refused := refusedDays(err); refused != nil {
			filter.Refuse(req.Translated(refused))
			calls = &endpoint.ListObject[api.CallObject]{}
		} else if err != nil {
			return nil, err
		}
		return callsData{
			Environment: environment, Calls: calls.Data, Pager: req.Pager(calls.NextCursor), Filter: filter,
			Filtered: slices.ContainsFunc(filter.Fields, func(f field) bool { return f.Kind != ui.HiddenField && req.Query(f.Name) != "" }),
			File:     walletAddress(walletPath+"/calls.csv", environment), Wallet: walletAddress(walletPath, environment),
		}, nil
	},
}

// callers reads the API keys and assistants as options of selects. Members get no keys.
func (req *pageRequest) callers() (keys, agents []option) {
	if req.session.Administers() {
		keys = optionsOf(req, api.ListAPIKeys, "All", func(key api.APIKeyObject) option { return named(key.ID, keyName(&key)) })
	}
	return keys, req.agentOptions("All")
}

// callFilter returns the form that selects calls by the address, and adds the selection to the input of their list.
func (req *pageRequest) callFilter(in values) form {
	keys, agents := req.callers()
	filter := form{ID: "calls-filter", Action: walletPath + "/calls", Submit: "Filter", Get: true, Fields: []field{
		{Name: "keyId", Kind: ui.SelectField, Label: "API key", Options: keys},
		{Name: "agentId", Kind: ui.SelectField, Label: "Assistant", Options: agents},
		{Name: "model", Label: "Model"},
		{Name: "outcome", Label: "Ended"},
		{Name: "from", Kind: ui.DateField, Label: "First day"},
		{Name: "to", Kind: ui.DateField, Label: "Last day"},
	}}
	for i := range filter.Fields {
		one := &filter.Fields[i]
		one.Value = req.Query(one.Name)
		one.Options, in[one.Name] = ui.Choices(one.Options, one.Value), one.Value
	}
	if keys == nil {
		filter = filter.Without("keyId")
	}
	filter.Fields = append(filter.Fields, field{Name: "environment", Kind: ui.HiddenField, Value: req.environment()})
	return req.Form(filter)
}

type overviewData struct {
	Figures []ui.Figure
	// Plot shows the last 30 days. It is nil if the spend can't be read now.
	Plot *spending
	// Channels are the channels that need attention.
	Channels []*api.ChannelObject
	// Waiting are conversations that wait for a person. More reports whether there are others.
	Waiting []*api.ConversationObject
	More    bool
	// Budgets are those nearest to their limits.
	Budgets []budgetRow
	// Agents is 1 if there are assistants, else 0.
	Agents, AllChannels int
}

// mostBudgets is the number of budgets on the overview.
const mostBudgets = 6

func showOverview(req *pageRequest) (any, error) {
	shown := overviewData{Figures: []ui.Figure{req.balance(site.Read(req, api.GetWallet, nil), walletPath)}}
	spent, err := site.Ask(req, api.GetSpend, nil)
	if shown.Plot, err = req.plotOf(spent, err); err != nil {
		return nil, err
	}
	if shown.Plot != nil {
		shown.Figures = append(shown.Figures, ui.Figure{
			Label: req.Say.T("Spent on models"), Icon: "receipt", Path: walletPath, Value: req.Say.Amount(shown.Plot.Total), Micros: shown.Plot.Total,
			Note: req.Say.Tf("since %s", req.Say.Day(shown.Plot.First)),
		})
	}
	budgets, channels := req.budgets("live"), everything(req, api.ListChannels)
	shown.Budgets = budgets[:min(mostBudgets, len(budgets))]
	shown.AllChannels = len(channels)
	for i := range channels {
		if !channelWorks(&channels[i]) {
			shown.Channels = append(shown.Channels, &channels[i])
		}
	}
	shown.Agents = len(site.Read(req, api.ListAgents, values{"limit": "1"}).Data)
	waiting := site.Read(req, api.ListConversations, values{"limit": "10", "waiting": "true", "order": "recent"})
	for i := range waiting.Data {
		shown.Waiting = append(shown.Waiting, &waiting.Data[i])
	}
	shown.More = waiting.NextCursor != nil
	return shown, nil
}

// spending is the plot of the charges by model.
type spending struct {
	Plot *ui.Drawing
	// Models are the sums by model, the largest first.
	Models []modelSum
	// Total is the sum of all models, in micros.
	Total       string
	First, Last string
}

// modelSum is the cost of all calls to a model.
type modelSum struct {
	Model  string
	Calls  int64
	Micros string
	Colour int

	micros int64
}

// newSpending returns the plot of s, with a series for each model. Malformed amounts count as 0, and malformed days are left out.
func newSpending(say *ui.Printer, s *api.SpendObject) *spending {
	made := &spending{Models: sumModels(s.Data), First: s.From, Last: s.To}
	p := ui.Plot{
		ID: "spend-plot", Title: say.T("Spent on models"), Step: say.T("Day"), Name: say.Day,
		Format: say.Decimal, Steps: ui.Days(s.From, s.To),
	}
	total := int64(0)
	for i := range made.Models {
		model := &made.Models[i]
		model.Colour = min(i, ui.PlotColours-1)
		total += model.micros
		p.Series = append(p.Series, ui.Series{Name: model.Model, Colour: model.Colour, Values: make([]int64, len(p.Steps))})
	}
	for _, one := range s.Data {
		day, known := slices.BinarySearch(p.Steps, one.Day)
		if model := slices.IndexFunc(made.Models, func(sum modelSum) bool { return sum.Model == one.Model }); known {
			p.Series[model].Values[day] += micros(one.ChargedMicros)
		}
	}
	made.Total = strconv.FormatInt(total, 10)
	p.Sentence = say.Tf("%s from %s to %s. The table below has the figures.", say.Amount(made.Total), say.Day(s.From), say.Day(s.To))
	made.Plot = p.Draw()
	return made
}

func sumModels(all []api.DaySpend) []modelSum {
	var sums []modelSum
	for _, one := range all {
		at := slices.IndexFunc(sums, func(known modelSum) bool { return known.Model == one.Model })
		if at < 0 {
			at = len(sums)
			sums = append(sums, modelSum{Model: one.Model})
		}
		sums[at].Calls += one.Calls
		sums[at].micros += micros(one.ChargedMicros)
		sums[at].Micros = strconv.FormatInt(sums[at].micros, 10)
	}
	slices.SortStableFunc(sums, func(a, b modelSum) int {
		return cmp.Or(cmp.Compare(b.micros, a.micros), cmp.Compare(a.Model, b.Model))
	})
	return sums
}

func micros(text string) int64 {
	amount, _ := strconv.ParseInt(text, 10, 64)
	return amount
}
