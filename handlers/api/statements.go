package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The operations on statements.
var (
	ListStatements = operation(operated("wallet:read", testKeys(members("listStatements", "GET /wallet/statements", identity.WalletRead,
		"List the wallet's monthly statements, the month in progress first"))), (*Deps).listStatements)
	GetStatement = operationOf(operated("wallet:read", fileOf[StatementDetail](testKeys(members("getStatement",
		"GET /wallet/statements/{month}", identity.WalletRead, "Get the statement of a month, which may be in progress")))), (*Deps).getStatement)
)

// StatementObject is the statement of a month in a list. It is exported for huma, see [endpoint.PathID].
type StatementObject struct {
	Month             string    `json:"month"             doc:"A calendar month in timeZone, as 2026-10"`
	Environment       store.Env `json:"environment"       enum:"live,test"`
	TimeZone          string    `json:"timeZone"          doc:"A change of the organization's zone counts from the month in progress on"`
	From              string    `json:"from"              format:"date-time"`
	To                string    `json:"to"                format:"date-time" doc:"The end, which is the beginning of the next month"`
	Closed            bool      `json:"closed"            doc:"The month has ended: its statement never changes. Later refunds and corrections are in later months"`                         //nolint:lll // a struct tag can't be broken
	OpeningMicros     string    `json:"openingMicros"     doc:"The closing balance of the month before, in millionths of the currency unit. With the next five amounts it is closingMicros"` //nolint:lll // a struct tag can't be broken
	CreditsMicros     string    `json:"creditsMicros"`
	ChargesMicros     string    `json:"chargesMicros"     doc:"With a minus"`
	RefundsMicros     string    `json:"refundsMicros"     doc:"Also of calls of earlier months"`
	CorrectionsMicros string    `json:"correctionsMicros" doc:"Adjustments by the operator"`
	ReversalsMicros   string    `json:"reversalsMicros"   doc:"Payments that were refunded or disputed, with a minus, and won disputes"`
	ClosingMicros     string    `json:"closingMicros"     doc:"The balance at the end, or now"`
	Calls             int64     `json:"calls"             doc:"Calls that were charged"`
}

// ChargeObject is the sum of charges in a statement. It is exported for huma, see [endpoint.PathID].
type ChargeObject struct {
	Model            string  `json:"model"`
	KeyID            *string `json:"keyId"            doc:"The API key of the calls; null for agents and members"`
	AgentID          *string `json:"agentId"          doc:"The agent that answered; null for members, and if its conversation was deleted before the month ended"` //nolint:lll // a struct tag can't be broken
	Calls            int64   `json:"calls"`
	PromptTokens     int64   `json:"promptTokens"`
	CompletionTokens int64   `json:"completionTokens"`
	AmountMicros     string  `json:"amountMicros"     doc:"With a minus"`
}

// StatementDetail is a whole statement. It is exported for huma, see [endpoint.PathID].
type StatementDetail struct {
	StatementObject

	Charges          []ChargeObject      `json:"charges"          nullable:"false" doc:"By model, key and agent. Their sum is chargesMicros"`
	Transactions     []TransactionObject `json:"transactions"     nullable:"false" doc:"Credits, refunds and adjustments, oldest first, the first 1,000; the CSV has all"` //nolint:lll // a struct tag can't be broken
	MoreTransactions bool                `json:"moreTransactions" doc:"There are more than transactions has"`
	Hash             *string             `json:"hash"             doc:"The SHA-256 with which a closed month was frozen, in hexadecimal digits"`
}

func showStatement(env store.Env, s *billing.Statement) StatementObject {
	return StatementObject{
		Month: s.Month, Environment: env, TimeZone: s.Zone, From: endpoint.Timestamp(s.BeginsAt), To: endpoint.Timestamp(s.EndsAt),
		Closed: s.Closed(), OpeningMicros: billing.FormatMicros(s.OpeningMicros), CreditsMicros: billing.FormatMicros(s.CreditMicros),
		ChargesMicros: billing.FormatMicros(-s.ChargeMicros), RefundsMicros: billing.FormatMicros(s.RefundMicros),
		CorrectionsMicros: billing.FormatMicros(s.AdjustMicros), ReversalsMicros: billing.FormatMicros(s.ReversalMicros),
		ClosingMicros: billing.FormatMicros(s.ClosingMicros), Calls: s.Calls,
	}
}

type statementsQuery struct {
	WalletQuery
	endpoint.PageQuery
}

func (d *Deps) listStatements(ctx context.Context, principal *identity.Principal, in *statementsQuery) (*pageOf[StatementObject], error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	list := func(ctx context.Context, _ string, page store.Page) ([]billing.Statement, error) {
		return d.Wallets.Statements(ctx, wallet, strings.ReplaceAll(page.After, "_", "-"), page.Limit)
	}
	return listRows(ctx, principal, in.PageQuery, list, func(s *billing.Statement) string { return strings.ReplaceAll(s.Month, "-", "_") },
		func(s *billing.Statement) StatementObject { return showStatement(wallet.Env, s) })
}

type statementQuery struct {
	WalletQuery

	Month  string `path:"month"   doc:"As 2026-10"`
	Format string `query:"format" enum:"json,csv" doc:"csv: a row for each posting and each sum of charges, as a file; so does Accept: text/csv"`
}

// statement is a statement with its charges and its first postings.
type statement struct {
	*billing.Statement

	wallet   billing.WalletID
	sums     []billing.ChargeSum
	postings []billing.Entry
}

func (d *Deps) readStatement(ctx context.Context, wallet billing.WalletID, month string) (*statement, error) {
	s := &statement{wallet: wallet}
	_, err := time.Parse("2006-01", month)
	if err != nil {
		return nil, handlers.NotFound("The wallet has no statement of this month.")
	}
	if s.Statement, err = d.Wallets.Statement(ctx, wallet, month); err != nil {
		return nil, unlessMissing(err, "The wallet has no statement of this month.")
	}
	s.sums, err = s.Sums()
	if err == nil {
		s.postings, err = d.Wallets.Postings(ctx, wallet, s.FirstSeq, s.LastSeq)
	}
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading a statement: %w", err))
	}
	return s, nil
}

func showCharge(c *billing.ChargeSum) ChargeObject {
	return ChargeObject{
		Model: c.Model, KeyID: endpoint.OrNull(c.KeyID), AgentID: endpoint.OrNull(c.AgentID), Calls: c.Calls,
		PromptTokens: c.PromptTokens, CompletionTokens: c.CompletionTokens, AmountMicros: billing.FormatMicros(-c.Micros),
	}
}

func (s *statement) show() *StatementDetail {
	shown := &StatementDetail{
		StatementObject: showStatement(s.wallet.Env, s.Statement), Charges: showAll(s.sums, showCharge),
		Transactions: showAll(s.postings, showTransaction), MoreTransactions: int64(len(s.postings)) < s.LastSeq-s.FirstSeq+1-s.Calls,
	}
	if s.Closed() {
		shown.Hash = new(hex.EncodeToString(s.Hash[:]))
	}
	return shown
}

// writeCSV writes the statement, and reads the postings that follow the first ones. If it can't, it cuts the connection.
func (s *statement) writeCSV(d *Deps, w http.ResponseWriter, r *http.Request) {
	file := newCSVFile(w, fmt.Sprintf("statement-%s-%s", s.wallet.Env, s.Month))
	file.row([]string{
		"line", "at", "id", "reference", "reason", "callId", "model", "keyId", "agentId", "calls", "promptTokens", "completionTokens",
		"amountMicros", "balanceMicros",
	})
	balance := func(line string, at, micros int64) {
		file.row([]string{line, endpoint.Timestamp(at), "", "", "", "", "", "", "", "", "", "", "", billing.FormatMicros(micros)})
	}
	balance("opening", s.BeginsAt, s.OpeningMicros)
	for i := range s.sums {
		c := showCharge(&s.sums[i])
		file.row([]string{
			"charges", "", "", "", "", "", csvText(&c.Model), csvText(c.KeyID), csvText(c.AgentID), strconv.FormatInt(c.Calls, 10),
			strconv.FormatInt(c.PromptTokens, 10), strconv.FormatInt(c.CompletionTokens, 10), c.AmountMicros, "",
		})
	}
	for page := s.postings; len(page) > 0; {
		for i := range page {
			t := showTransaction(&page[i])
			file.row([]string{
				t.Kind, t.At, t.ID, csvText(t.Reference), csvText(t.Reason), csvText(t.CallID),
				"", "", "", "", "", "", t.AmountMicros, t.BalanceMicros,
			})
		}
		if len(page) < billing.MaxHistoryRows {
			break
		}
		if !file.flush() {
			return // the client is gone
		}
		var err error
		if page, err = d.Wallets.Postings(r.Context(), s.wallet, page[len(page)-1].Seq+1, s.LastSeq); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	balance("closing", s.EndsAt, s.ClosingMicros)
	file.flush()
}

func (d *Deps) getStatement(_ context.Context, principal *identity.Principal, in *statementQuery) (*endpoint.Stream, error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	return fileOrJSON(d.Bodies, in.Format, func(ctx context.Context, asCSV bool) (any, error) {
		s, err := d.readStatement(ctx, wallet, in.Month)
		if err != nil {
			return nil, err
		}
		if asCSV {
			return endpoint.File(func(w http.ResponseWriter, r *http.Request) { s.writeCSV(d, w, r) }), nil
		}
		return endpoint.Answer(*s.show()), nil
	}), nil
}

// GetCall reads a call with the lines of its cost.
var GetCall = operation(operated("wallet:read", testKeys(members("getCall", "GET /wallet/calls/{id}", identity.WalletRead,
	"Get a model call that has ended, and why it cost what it did"))), (*Deps).getCall)

// CostLineObject is a line of the cost of a call. It is exported for huma, see [endpoint.PathID].
type CostLineObject struct {
	Kind        string `json:"kind"        enum:"input,cachedInput,cacheWrite,longCacheWrite,output"`
	Tokens      int64  `json:"tokens"`
	PriceMicros string `json:"priceMicros" doc:"The price of a million tokens when the call began"`
	Micros      string `json:"micros"      doc:"Their cost, rounded such that the lines together are costMicros"`
}

// CallDetail is a call with the lines of its cost. It is exported for huma, see [endpoint.PathID].
type CallDetail struct {
	CallObject

	Lines           []CostLineObject `json:"lines"           nullable:"false" doc:"What the tokens cost by kind; kinds without tokens are left out"`
	CostMicros      string           `json:"costMicros"      doc:"The lines together, rounded up to a whole micro"`
	UnchargedMicros string           `json:"unchargedMicros" doc:"The part of costMicros that the service bears: of a call that failed, or above reservedMicros"` //nolint:lll // a struct tag can't be broken
}

type callQuery struct {
	WalletQuery
	endpoint.PathID
}

func (d *Deps) getCall(ctx context.Context, principal *identity.Principal, in *callQuery) (*CallDetail, error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	call, err := d.Wallets.Call(ctx, wallet, in.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, d.missing(ctx, principal, store.OwnedCalls, in.ID)
	}
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading a call: %w", err))
	}
	lines, err := call.Price.Lines(call.Usage)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("explaining the cost of call %s: %w", call.ID, err))
	}
	placed, err := d.placedCalls(ctx, wallet, []billing.EndedCall{call})
	if err != nil {
		return nil, err
	}
	return &CallDetail{
		CallObject: showCall(&placed[0]), CostMicros: billing.FormatMicros(call.ChargedMicros + call.ShortfallMicros),
		UnchargedMicros: billing.FormatMicros(call.ShortfallMicros), Lines: showAll(lines, func(l *billing.CostLine) CostLineObject {
			return CostLineObject{l.Kind, l.Tokens, billing.FormatMicros(l.PriceMicros), billing.FormatMicros(l.Micros)}
		}),
	}, nil
}
