package dashboard

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const statementsPath = walletPath + "/statements"

type statementsData struct {
	Statements []statementLink
	Pager      ui.Pager
	// Wallet is an address.
	Wallet string
}

// statementLink is a statement with the addresses of its page and its file.
type statementLink struct {
	api.StatementObject

	Page, File string
}

var statementsPage = page{
	Path: statementsPath, Template: "statements", Title: "Statements",
	Show: func(req *pageRequest) (any, error) {
		environment, in := req.environment(), req.Cursor()
		in["environment"], in["limit"] = environment, "12"
		statements := site.Read(req, api.ListStatements, in)
		shown := statementsData{Pager: req.Pager(statements.NextCursor), Wallet: walletAddress(walletPath, environment)}
		for i := range statements.Data {
			path := statementsPath + "/" + url.PathEscape(statements.Data[i].Month)
			shown.Statements = append(shown.Statements, statementLink{
				statements.Data[i], walletAddress(path, environment), walletAddress(path+"/statement.csv", environment),
			})
		}
		return shown, nil
	},
}

type statementData struct {
	*api.StatementDetail

	Organization string
	// Lines are the opening balance, the sums and the closing balance.
	Lines []amountLine
	// Payers are the keys and assistants of the charges, by their place.
	Payers []string
	// File and All are addresses.
	File, All string
}

type amountLine struct {
	Label, Micros string
	Balance       bool
}

var statementPage = page{
	Path: statementsPath + "/{month}", Template: "statement", Title: "Statement", Section: statementsPath, Show: showStatement,
	Relays: []relay{{Method: http.MethodGet, Name: "statement.csv", Do: func(req *pageRequest) error {
		query := url.Values{"environment": {req.environment()}, "format": {"csv"}}
		return req.pass(http.MethodGet, "/wallet/statements/"+url.PathEscape(req.R.PathValue("month"))+"?"+query.Encode(), "text/csv", nil)
	}}},
}

func showStatement(req *pageRequest) (any, error) {
	environment, month := req.environment(), req.R.PathValue("month")
	statement := site.ReadFile[api.StatementDetail](req, api.GetStatement, values{"environment": environment, "month": month})
	organization, agents := site.Read(req, api.GetOrganization, nil), everything(req, api.ListAgents)
	say := req.Say
	shown := statementData{
		StatementDetail: statement, Organization: organization.Name, All: walletAddress(statementsPath, environment),
		File: walletAddress(statementsPath+"/"+url.PathEscape(month)+"/statement.csv", environment), Lines: []amountLine{
			{say.T("Opening balance"), statement.OpeningMicros, true},
			{say.T("Credits"), statement.CreditsMicros, false},
			{say.T("Used by calls"), statement.ChargesMicros, false},
			{say.T("Refunds"), statement.RefundsMicros, false},
			{say.T("Corrections"), statement.CorrectionsMicros, false},
			{say.T("Payments taken back"), statement.ReversalsMicros, false},
			{say.T("Closing balance"), statement.ClosingMicros, true},
		},
	}
	for i := range statement.Charges {
		c := &statement.Charges[i]
		payer := say.T("Members, and assistants that are gone")
		switch {
		case c.KeyID != nil:
			payer = *c.KeyID
		case c.AgentID != nil:
			payer = *c.AgentID
			if at := slices.IndexFunc(agents, func(a api.AgentSummaryObject) bool { return a.ID == payer }); at >= 0 {
				payer = agents[at].Name
			}
		}
		shown.Payers = append(shown.Payers, payer)
	}
	return shown, nil
}

type callData struct {
	*api.CallDetail

	Lines []callLine
	// All is an address.
	All string
}

// callLine is a line of the cost of a call with its name.
type callLine struct {
	Label string
	api.CostLineObject
}

// lineTexts are the names of the kinds of tokens.
var lineTexts = map[string]ui.Text{
	"input": "Question", "cachedInput": "Question, kept by the provider", "cacheWrite": "Question, written to the provider's cache",
	"longCacheWrite": "Question, written to the provider's cache for long", "output": "Answer",
}

var callPage = page{
	Path: walletPath + "/calls/{id}", Template: "call", Title: "Call", Section: walletPath + "/calls",
	Show: func(req *pageRequest) (any, error) {
		environment := req.environment()
		call := site.Read(req, api.GetCall, values{"environment": environment, "id": req.ID()})
		shown := callData{CallDetail: call, All: walletAddress(walletPath+"/calls", environment)}
		for _, line := range call.Lines {
			shown.Lines = append(shown.Lines, callLine{req.Say.T(lineTexts[line.Kind]), line})
		}
		return shown, nil
	},
}
