package dashboard

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
)

const walletPath = root + "/wallet"

type walletData struct {
	// Environment is the shown wallet's, Other the address of the other one.
	Environment, Other string
	Wallet             *api.WalletObject
	Spend              *api.SpendObject
	// Plot is nil when it can't be drawn now.
	Plot *plot
	// Days selects the days of the plot.
	Days         form
	Transactions []api.TransactionObject
	Pager        pager
	// Calls and the files are addresses.
	Calls, TransactionsFile, CallsFile string
}

type callsData struct {
	Environment, Other string
	Calls              []api.CallObject
	Pager              pager
	// File and Wallet are addresses.
	File, Wallet string
}

func walletPage() page {
	return page{
		path: walletPath, template: "wallet", title: "Wallet",
		show: showWallet,
		relays: []relay{
			{method: http.MethodGet, name: "transactions.csv", ask: tableFile("/wallet/transactions")},
			{method: http.MethodGet, name: "calls.csv", ask: tableFile("/wallet/calls")},
		},
	}
}

// environment returns the wallet's environment in the address.
func (req *pageRequest) environment() string { return cmp.Or(req.query("environment"), "live") }

// walletAddress returns an address of the dashboard for a wallet.
func walletAddress(path, environment string) string {
	if environment == "live" {
		return path
	}
	return path + "?environment=" + url.QueryEscape(environment)
}

// otherWallet returns the address of the page for the other wallet.
func (req *pageRequest) otherWallet() string {
	if req.environment() == "live" {
		return walletAddress(req.r.URL.Path, "test")
	}
	return req.r.URL.Path
}

// tableFile requests a list as CSV.
func tableFile(path string) func(req *pageRequest) (*http.Request, error) {
	return func(req *pageRequest) (*http.Request, error) {
		query := url.Values{"environment": {req.environment()}, "format": {"csv"}}
		r, err := req.apiRequest(http.MethodGet, path, query, nil)
		if err == nil {
			r.Header.Set("Accept", "text/csv")
		}
		return r, err
	}
}

func showWallet(req *pageRequest) (any, error) {
	environment := req.environment()
	shown := walletData{
		Environment: environment, Other: req.otherWallet(), Calls: walletAddress(walletPath+"/calls", environment),
		TransactionsFile: walletAddress(walletPath+"/transactions.csv", environment), CallsFile: walletAddress(walletPath+"/calls.csv", environment),
	}
	var err error
	if shown.Wallet, err = ask(req, api.GetWallet, values{"environment": environment}); err != nil {
		return nil, err
	}
	if err := req.askSpend(&shown); err != nil {
		return nil, err
	}
	in := req.cursor()
	in["environment"], in["limit"] = environment, "20"
	transactions, err := askTable[api.TransactionObject](req, api.ListTransactions, in)
	if err != nil {
		return nil, err
	}
	shown.Transactions, shown.Pager = transactions.Data, req.pager(transactions.NextCursor)
	return shown, nil
}

// askSpend reads the data of the plot. Refused days are an error of the form, with the plot of the usual days.
func (req *pageRequest) askSpend(shown *walletData) error {
	spent, err := ask(req, api.GetSpend, values{"environment": shown.Environment, "from": req.query("from"), "to": req.query("to")})
	var refused *handlers.Error
	if err != nil {
		refused = handlers.AsError(err)
		if refused.Field != "from" && refused.Field != "to" {
			refused = nil
		} else {
			spent, err = ask(req, api.GetSpend, values{"environment": shown.Environment})
		}
	}
	if shown.Plot, err = req.plotOf(spent, err); err != nil {
		return err
	}
	if shown.Spend = spent; spent == nil {
		shown.Spend = new(api.SpendObject)
	}
	shown.Days = req.form(daysForm(shown, req.query("from"), req.query("to")))
	if refused != nil {
		refuseForm(&shown.Days, refused)
	}
	return nil
}

// plotOf returns the plot of spent, which was read with err. A page without a plot is still useful, so every error except the
// session's end is logged and gives no plot.
func (req *pageRequest) plotOf(spent *api.SpendObject, err error) (*plot, error) {
	if err != nil && handlers.AsError(err).Code.Status() == http.StatusUnauthorized {
		return nil, err
	}
	if err != nil {
		req.d.config.Logger.Error("the dashboard shows a page without its plot", "page", req.page.path, "error", err)
		return nil, nil //nolint:nilnil // no plot is what the page shows
	}
	drawn := newPlot(spent)
	return &drawn, nil
}

func daysForm(shown *walletData, from, to string) form {
	return form{
		ID: "wallet-days", Action: walletPath, Submit: "Show", Get: true, Fields: []field{
			{Name: "environment", Kind: hiddenField, Value: shown.Environment},
			{
				Name: "from", Kind: dateField, Label: "First day", Value: cmp.Or(from, shown.Spend.From), Required: true,
				Hint: "Days are those of UTC, at most 92.",
			},
			{Name: "to", Kind: dateField, Label: "Last day", Value: cmp.Or(to, shown.Spend.To), Required: true},
		},
	}
}

func callsPage() page {
	return page{
		path: walletPath + "/calls", template: "calls", title: "Model calls", section: walletPath,
		show: func(req *pageRequest) (any, error) {
			environment := req.environment()
			in := req.cursor()
			in["environment"] = environment
			calls, err := askTable[api.CallObject](req, api.ListCalls, in)
			if err != nil {
				return nil, err
			}
			return callsData{
				Environment: environment, Other: req.otherWallet(), Calls: calls.Data, Pager: req.pager(calls.NextCursor),
				File: walletAddress(walletPath+"/calls.csv", environment), Wallet: walletAddress(walletPath, environment),
			}, nil
		},
	}
}

type overviewData struct {
	Wallet *api.WalletObject
	// Plot shows the last 30 days; nil when it can't be drawn now.
	Plot *plot
	// Channels are those that need attention.
	Channels []*api.ChannelObject
	// Waiting are conversations that wait for a person; More reports that there are others.
	Waiting []*api.ConversationObject
	More    bool
	// Agents is 0 or 1: whether there are assistants, for the first steps.
	Agents, AllChannels int
}

func overviewPage() page {
	return page{path: root, template: "overview", title: "Overview", show: showOverview}
}

func showOverview(req *pageRequest) (any, error) {
	wallet, err := ask(req, api.GetWallet, nil)
	if err != nil {
		return nil, err
	}
	shown := overviewData{Wallet: wallet}
	spent, err := ask(req, api.GetSpend, nil)
	if shown.Plot, err = req.plotOf(spent, err); err != nil {
		return nil, err
	}
	channels, err := everything(req, api.ListChannels)
	if err != nil {
		return nil, err
	}
	shown.AllChannels = len(channels)
	for i := range channels {
		if !channelWorks(&channels[i]) {
			shown.Channels = append(shown.Channels, &channels[i])
		}
	}
	agents, err := ask(req, api.ListAgents, values{"limit": "1"})
	if err != nil {
		return nil, err
	}
	shown.Agents = len(agents.Data)
	waiting, err := ask(req, api.ListConversations, values{"limit": "10", "waiting": "true", "order": "recent"})
	if err != nil {
		return nil, err
	}
	for i := range waiting.Data {
		shown.Waiting = append(shown.Waiting, &waiting.Data[i])
	}
	shown.More = waiting.NextCursor != nil
	return shown, nil
}
