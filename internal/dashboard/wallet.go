package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
)

const walletPath = root + "/wallet"

type wallet struct {
	Environment   string `json:"environment"`
	BalanceMicros string `json:"balanceMicros"`
	HeldMicros    string `json:"heldMicros"`
}

type transaction struct {
	ID            string `json:"id"`
	At            string `json:"at"`
	Kind          string `json:"kind"`
	AmountMicros  string `json:"amountMicros"`
	BalanceMicros string `json:"balanceMicros"`
	CallID        string `json:"callId"`
	Reference     string `json:"reference"`
	Reason        string `json:"reason"`
}

type call struct {
	ID               string `json:"id"`
	At               string `json:"at"`
	DurationMS       int64  `json:"durationMs"`
	Model            string `json:"model"`
	Outcome          string `json:"outcome"`
	PromptTokens     int64  `json:"promptTokens"`
	CompletionTokens int64  `json:"completionTokens"`
	UsageSource      string `json:"usageSource"`
	ChargedMicros    string `json:"chargedMicros"`
	BYOK             bool   `json:"byok"`
	KeyID            string `json:"keyId"`
	AgentID          string `json:"agentId"`
	ConversationID   string `json:"conversationId"`
}

type walletData struct {
	// Environment is the shown wallet's, Other the address of the other one.
	Environment, Other string
	Wallet             wallet
	Spend              spend
	// Plot is nil when it can't be drawn now.
	Plot *plot
	// Days selects the days of the plot.
	Days         form
	Transactions []transaction
	Pager        pager
	// Calls and the files are addresses.
	Calls, TransactionsFile, CallsFile string
}

type callsData struct {
	Environment, Other string
	Calls              []call
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
func tableFile(path string) func(req *pageRequest) (apiRequest, error) {
	return func(req *pageRequest) (apiRequest, error) {
		query := url.Values{"environment": {req.environment()}, "format": {"csv"}}
		return apiRequest{method: http.MethodGet, path: path, query: query, accept: "text/csv"}, nil
	}
}

func showWallet(req *pageRequest) (any, error) {
	environment := req.environment()
	shown := walletData{
		Environment: environment, Other: req.otherWallet(), Calls: walletAddress(walletPath+"/calls", environment),
		TransactionsFile: walletAddress(walletPath+"/transactions.csv", environment), CallsFile: walletAddress(walletPath+"/calls.csv", environment),
	}
	if err := req.get("/wallet", url.Values{"environment": {environment}}, &shown.Wallet); err != nil {
		return nil, err
	}
	if err := req.askSpend(&shown); err != nil {
		return nil, err
	}
	query := req.cursor()
	query.Set("environment", environment)
	const rows = "20"
	query.Set("limit", rows)
	var transactions list[transaction]
	if err := req.get("/wallet/transactions", query, &transactions); err != nil {
		return nil, err
	}
	shown.Transactions, shown.Pager = transactions.Data, req.pager(transactions.NextCursor)
	return shown, nil
}

// askSpend reads the data of the plot. Days that the API refuses are an error of the form, with the plot of the usual days.
func (req *pageRequest) askSpend(shown *walletData) error {
	query := url.Values{"environment": {shown.Environment}}
	for _, name := range []string{"from", "to"} {
		if day := req.query(name); day != "" {
			query.Set(name, day)
		}
	}
	err := req.get("/wallet/spend", query, &shown.Spend)
	refused, isFault := err.(*apiError) //nolint:errorlint // get returns it as it is
	if isFault && refused.Status == http.StatusBadRequest && (refused.Field == "from" || refused.Field == "to") {
		query.Del("from")
		query.Del("to")
		err = req.get("/wallet/spend", query, &shown.Spend)
	}
	if shown.Plot, err = req.plotOf(&shown.Spend, err); err != nil {
		return err
	}
	shown.Days = req.form(daysForm(shown, req.query("from"), req.query("to")))
	if isFault {
		refuseForm(&shown.Days, refused)
	}
	return nil
}

// plotOf returns the plot of spent, which was read with err. A page without a plot is still useful, so other errors than the
// session's end give nil.
func (req *pageRequest) plotOf(spent *spend, err error) (*plot, error) {
	if refused, ok := errors.AsType[*apiError](err); ok && refused.Status == http.StatusUnauthorized {
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
			query := req.cursor()
			query.Set("environment", environment)
			var calls list[call]
			if err := req.get("/wallet/calls", query, &calls); err != nil {
				return nil, err
			}
			return callsData{
				Environment: environment, Other: req.otherWallet(), Calls: calls.Data, Pager: req.pager(calls.NextCursor),
				File: walletAddress(walletPath+"/calls.csv", environment), Wallet: walletAddress(walletPath, environment),
			}, nil
		},
	}
}
