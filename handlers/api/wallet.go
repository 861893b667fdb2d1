package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Wallets reads wallets and their history, as [billing.Book] does. A wallet that never had a transaction is empty.
type Wallets interface {
	Wallet(ctx context.Context, id billing.WalletID) (billing.Wallet, error)
	Entries(ctx context.Context, id billing.WalletID, stretch billing.Stretch) ([]billing.Entry, error)
	Calls(ctx context.Context, id billing.WalletID, stretch billing.Stretch) ([]billing.EndedCall, error)
	Call(ctx context.Context, id billing.WalletID, callID string) (billing.EndedCall, error)
	Spend(ctx context.Context, id billing.WalletID, from, until int64) ([]billing.Spend, error)
	Statements(ctx context.Context, id billing.WalletID, before string, rows int) ([]billing.Statement, error)
	Statement(ctx context.Context, id billing.WalletID, month string) (*billing.Statement, error)
	UsageEvents(ctx context.Context, id billing.WalletID, after billing.UsageCursor, rows int) ([]billing.UsageEvent, error)
	Postings(ctx context.Context, id billing.WalletID, from, through int64) ([]billing.Entry, error)
}

// WalletObject is the answer of GET /wallet. Amounts are decimal strings of micros.
type WalletObject struct {
	Environment   store.Env `json:"environment"   enum:"live,test" doc:"Whose wallet it is: a test key never spends live credits"`
	BalanceMicros string    `json:"balanceMicros" doc:"What the wallet has, in millionths of the currency unit"`
	HeldMicros    string    `json:"heldMicros"    doc:"What of it is reserved for running calls"`
}

// The operations on the wallet.
var (
	GetWallet = operation(operated("wallet:read", testKeys(members("getWallet", "GET /wallet", identity.WalletRead,
		"Get the balance of a wallet"))), (*Deps).getWallet)
	ListTransactions = operationOf(operated("wallet:read", tableOf[TransactionObject](testKeys(members(
		"listTransactions", "GET /wallet/transactions", identity.WalletRead,
		"List what went into the wallet and out of it, newest first")))), (*Deps).listTransactions)
	ListCalls = operationOf(operated("wallet:read", tableOf[CallObject](testKeys(members("listCalls", "GET /wallet/calls", identity.WalletRead,
		"List the model calls that have ended and what each cost, newest first")))), (*Deps).listCalls)
	GetSpend = operation(testKeys(members("getSpend", "GET /wallet/spend", identity.WalletRead,
		"Get what calls cost, by model and day")), (*Deps).getSpend)
)

// WalletQuery selects one of the organization's wallets. It is exported for huma, see [endpoint.PathID].
type WalletQuery struct {
	Environment store.Env `query:"environment" enum:"live,test" doc:"For login sessions: live when it is absent. A key has one environment"` //nolint:lll // a struct tag can't be broken
}

// wallet returns the id of the selected wallet. An API key may read only the wallet that it spends from.
func (q WalletQuery) wallet(principal *identity.Principal) (billing.WalletID, error) {
	id := billing.WalletID{OrgID: principal.OrgID, Env: principal.Env}
	switch {
	case q.Environment == "" || q.Environment == principal.Env:
	case principal.KeyID != "":
		return id, handlers.InvalidRequest("environment", "environment must be %s, like the API key's.", principal.Env)
	default:
		id.Env = q.Environment
	}
	return id, nil
}

func (d *Deps) getWallet(ctx context.Context, principal *identity.Principal, in *struct{ WalletQuery }) (*WalletObject, error) {
	id, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	wallet, err := d.Wallets.Wallet(ctx, id)
	return &WalletObject{id.Env, billing.FormatMicros(wallet.BalanceMicros), billing.FormatMicros(wallet.HeldMicros)}, err
}

// dayLayout is how a UTC day is written in queries and answers (RFC 3339 full-date).
const dayLayout = time.DateOnly

// HistoryQuery are the parameters of a wallet's lists. It is exported for huma, see [endpoint.PathID].
type HistoryQuery struct {
	WalletQuery
	endpoint.PageQuery
	TableQuery

	From string `query:"from" format:"date" doc:"The first UTC day, as 2026-11-01"`
	To   string `query:"to"   format:"date" doc:"The last UTC day"`
}

// rows returns the wallet and the rows of it to read, calls or transactions: from the query's cursor on, and one more than the client's
// limit ([endpoint.PageQuery.Page]).
func (q HistoryQuery) rows(principal *identity.Principal, calls bool) (wallet billing.WalletID, stretch billing.Stretch, err error) {
	if wallet, err = q.wallet(principal); err != nil {
		return wallet, stretch, err
	}
	page, err := q.Page()
	if err != nil {
		return wallet, stretch, err
	}
	stretch.Rows = page.Limit
	if page.After != "" {
		if stretch.After, err = readPlace(page.After, calls); err != nil {
			return wallet, stretch, err
		}
	}
	from, err := readDay("from", q.From, time.UnixMilli(0))
	if err != nil {
		return wallet, stretch, err
	}
	stretch.From = from.UnixMilli()
	if q.To != "" {
		to, err := readDay("to", q.To, from)
		if err != nil {
			return wallet, stretch, err
		}
		stretch.Until = to.AddDate(0, 0, 1).UnixMilli()
		if stretch.Until <= stretch.From {
			return wallet, stretch, handlers.InvalidRequest("to", "to is before from.")
		}
	}
	return wallet, stretch, nil
}

// readDay reads a day between 1970 and 9999. An empty text means usual.
func readDay(field, text string, usual time.Time) (time.Time, error) {
	if text == "" {
		return usual, nil
	}
	day, err := time.Parse(dayLayout, text)
	if err != nil || day.Year() <= 1970 {
		return day, handlers.InvalidRequest(field, "%s must be a day such as 2026-11-01.", field)
	}
	return day, nil
}

// placeText returns a place as text that [handlers.WellFormedID] accepts.
func placeText(place billing.Place) string {
	if place.Seq > 0 {
		return strconv.FormatInt(place.Seq, 10)
	}
	return fmt.Sprintf("%d_%s", place.At, place.ID)
}

// readPlace reads a place in the list of calls, or in that of transactions.
func readPlace(text string, calls bool) (billing.Place, error) {
	first, id, _ := strings.Cut(text, "_")
	number, err := strconv.ParseInt(first, 10, 64)
	switch {
	case err != nil || number <= 0 || calls != (id != ""):
		return billing.Place{}, handlers.InvalidRequest("cursor", "cursor is not a nextCursor of this list.")
	case calls:
		return billing.Place{At: number, ID: id}, nil
	}
	return billing.Place{Seq: number}, nil
}

// TransactionObject is a transaction as the API shows it. It is exported for huma, see [endpoint.PathID].
type TransactionObject struct {
	ID            string  `json:"id"`
	At            string  `json:"at"            format:"date-time"`
	Kind          string  `json:"kind"          enum:"credit,charge,adjustment,refund,reversal" doc:"reversal: of a refunded or disputed payment"`
	AmountMicros  string  `json:"amountMicros"  doc:"What the wallet got, or with a minus gave, in millionths of the currency unit"`
	BalanceMicros string  `json:"balanceMicros" doc:"What the wallet had right after it"`
	CallID        *string `json:"callId"        doc:"The model call that was charged or refunded"`
	Reference     *string `json:"reference"     doc:"The operator's reference, such as that of a payment"`
	Reason        *string `json:"reason"        doc:"Why the operator adjusted the wallet"`
	Corrects      *string `json:"corrects"      doc:"The transaction that an adjustment corrects"`
}

func showTransaction(e *billing.Entry) TransactionObject {
	shown := TransactionObject{
		ID: e.ID, At: endpoint.Timestamp(e.At), Kind: e.Kind.Public(),
		AmountMicros: billing.FormatMicros(e.AmountMicros), BalanceMicros: billing.FormatMicros(e.BalanceMicros),
	}
	switch e.Kind {
	case billing.EntryCharge:
		shown.CallID = endpoint.OrNull(e.Ref)
	case billing.EntryRefund:
		shown.CallID, shown.Reference = endpoint.OrNull(e.Ref), endpoint.OrNull(e.Note)
	default:
		shown.Reference, shown.Reason = endpoint.OrNull(e.Ref), endpoint.OrNull(e.Note)
		shown.Corrects = endpoint.OrNull(e.Corrects)
	}
	return shown
}

func (d *Deps) listTransactions(_ context.Context, principal *identity.Principal, in *struct{ HistoryQuery }) (*endpoint.Stream, error) {
	wallet, stretch, err := in.rows(principal, false)
	if err != nil {
		return nil, err
	}
	return tableBody(d.Bodies, in.HistoryQuery, stretch, table[billing.Entry, TransactionObject]{
		name: "transactions-" + string(wallet.Env),
		read: func(ctx context.Context, stretch billing.Stretch) ([]billing.Entry, billing.Place, error) {
			entries, err := d.Wallets.Entries(ctx, wallet, stretch)
			return entries, billing.Place{}, err
		},
		place: func(row *billing.Entry) billing.Place { return row.Place() },
		show:  showTransaction,
	}), nil
}

// CallObject is a model call that has ended, as the API shows it.
type CallObject struct {
	ID                        string  `json:"id"`
	At                        string  `json:"at"                        format:"date-time" doc:"When it ended: the time of its charge"`
	DurationMS                int64   `json:"durationMs"`
	Model                     string  `json:"model"`
	Outcome                   string  `json:"outcome"                   doc:"completed, or why it ended otherwise"`
	PromptTokens              int64   `json:"promptTokens"`
	CachedPromptTokens        int64   `json:"cachedPromptTokens"        doc:"Those of promptTokens that the provider had kept"`
	CacheWriteTokens          int64   `json:"cacheWriteTokens"          doc:"The part of promptTokens that the provider wrote to its cache"`
	LongCacheWriteTokens      int64   `json:"longCacheWriteTokens"      doc:"The part of promptTokens that the provider wrote to its cache for an hour or longer"` //nolint:lll // a struct tag can't be broken
	CompletionTokens          int64   `json:"completionTokens"`
	ReasoningTokens           int64   `json:"reasoningTokens"           doc:"The part of completionTokens that is hidden"`
	UsageSource               string  `json:"usageSource"               enum:"provider,estimated,none" doc:"Who counted the tokens: the provider, or we, because it reported none or impossible ones"` //nolint:lll // a struct tag can't be broken
	InputPriceMicros          string  `json:"inputPriceMicros"          doc:"The price of a million prompt tokens, 0 for a call that couldn't cost anything"`                                          //nolint:lll // a struct tag can't be broken
	CachedPriceMicros         string  `json:"cachedPriceMicros"         doc:"The price of a million cachedPromptTokens"`
	CacheWritePriceMicros     string  `json:"cacheWritePriceMicros"     doc:"The price of a million cacheWriteTokens"`
	LongCacheWritePriceMicros string  `json:"longCacheWritePriceMicros" doc:"The price of a million longCacheWriteTokens"`
	OutputPriceMicros         string  `json:"outputPriceMicros"         doc:"The price of a million completion tokens"`
	ReservedMicros            string  `json:"reservedMicros"            doc:"What was reserved for it, the most that it could be charged"`
	ChargedMicros             string  `json:"chargedMicros"             doc:"What was taken from the wallet, in millionths of the currency unit"`
	BYOK                      bool    `json:"byok"                      doc:"It was made with the organization's own provider key"`
	Stream                    bool    `json:"stream"`
	KeyID                     *string `json:"keyId"                     doc:"The API key it was made with; null: an agent answered a customer, or a member made it"` //nolint:lll // a struct tag can't be broken
	RequestID                 *string `json:"requestId"                 doc:"The HTTP request it was made for"`
	AgentID                   *string `json:"agentId"                   doc:"The agent that answered a customer; null when that isn't known any more, too"` //nolint:lll // a struct tag can't be broken
	ConversationID            *string `json:"conversationId"            doc:"The conversation it was an answer in"`
}

// placedCall is a call with the conversation of its turn.
type placedCall struct {
	billing.EndedCall

	turn inbox.TurnPlace
}

func showCall(c *placedCall) CallObject {
	rates := c.Price.Rates(c.Usage.PromptTokens)
	shown := CallObject{
		ID: c.ID, At: endpoint.Timestamp(c.EndedAt), DurationMS: c.DurationMS, Model: c.Model, Outcome: c.Outcome,
		PromptTokens: c.Usage.PromptTokens, CachedPromptTokens: c.Usage.CachedPromptTokens, CacheWriteTokens: c.Usage.CacheWriteTokens,
		LongCacheWriteTokens: c.Usage.LongCacheWriteTokens, CompletionTokens: c.Usage.CompletionTokens,
		ReasoningTokens: c.Usage.ReasoningTokens, UsageSource: string(c.UsageSource), InputPriceMicros: billing.FormatMicros(rates.Input),
		CachedPriceMicros: billing.FormatMicros(rates.CachedInput), CacheWritePriceMicros: billing.FormatMicros(rates.CacheWrite),
		LongCacheWritePriceMicros: billing.FormatMicros(rates.LongCacheWrite), OutputPriceMicros: billing.FormatMicros(rates.Output),
		ReservedMicros: billing.FormatMicros(c.ReservedMicros), ChargedMicros: billing.FormatMicros(c.ChargedMicros),
		BYOK: c.BYOK, Stream: c.Stream, KeyID: endpoint.OrNull(c.KeyID),
		AgentID: endpoint.OrNull(c.turn.AgentID), ConversationID: endpoint.OrNull(c.turn.ConversationID),
	}
	if !isTurn(c.RequestID) {
		shown.RequestID = endpoint.OrNull(c.RequestID)
	}
	return shown
}

// isTurn reports whether a call was made for a turn of a conversation and not for an HTTP request.
func isTurn(requestID string) bool { return strings.HasPrefix(requestID, "trn_") }

// CallQuery selects calls. It is exported for huma, see [endpoint.PathID].
type CallQuery struct {
	HistoryQuery

	KeyID   string `query:"keyId"   maxLength:"100" doc:"Only calls with this API key. A page of selected calls ends after 5,000 calls were looked at; its nextCursor goes on"` //nolint:lll // a struct tag can't be broken
	AgentID string `query:"agentId" maxLength:"100" doc:"Only answers of this agent to customers, as long as their conversations are kept"`
	Model   string `query:"model"   maxLength:"200" doc:"Only calls of this model"`
	Outcome string `query:"outcome" maxLength:"100" doc:"Only calls that ended so, such as completed"`
}

// selects reports whether the query selects a call, apart from its agent.
func (q *CallQuery) selects(c *billing.EndedCall) bool {
	return (q.KeyID == "" || q.KeyID == c.KeyID) && (q.Model == "" || q.Model == c.Model) && (q.Outcome == "" || q.Outcome == c.Outcome) &&
		(q.AgentID == "" || isTurn(c.RequestID))
}

// selectionReads is the largest number of reads, of [billing.MaxHistoryRows] calls each, for a page of selected calls. No index has the calls of
// a key or a model, because each call would have to write it.
const selectionReads = 5

// selectedCalls reads the calls of a stretch that a query selects. If it has looked at many calls and found too few, next is the place from which
// to read on.
func (d *Deps) selectedCalls(
	ctx context.Context, wallet billing.WalletID, stretch billing.Stretch, q *CallQuery,
) (calls []placedCall, next billing.Place, err error) {
	wanted, reads := stretch.Rows, 1
	if q.KeyID != "" || q.AgentID != "" || q.Model != "" || q.Outcome != "" {
		stretch.Rows, reads = billing.MaxHistoryRows, selectionReads
	}
	for range reads {
		read, err := d.Wallets.Calls(ctx, wallet, stretch)
		if err != nil {
			return nil, next, handlers.Internal(fmt.Errorf("reading calls: %w", err))
		}
		last := len(read) < billing.MaxHistoryRows
		if !last {
			next = read[len(read)-1].Place()
		}
		read = slices.DeleteFunc(read, func(c billing.EndedCall) bool { return !q.selects(&c) })
		if q.AgentID == "" && wanted > 0 {
			read = read[:min(len(read), wanted-len(calls))]
		}
		placed, err := d.placedCalls(ctx, wallet, read)
		if err != nil {
			return nil, next, err
		}
		for i := range placed {
			if q.AgentID != "" && placed[i].turn.AgentID != q.AgentID {
				continue
			}
			if calls = append(calls, placed[i]); len(calls) == wanted {
				return calls, billing.Place{}, nil
			}
		}
		if last || reads == 1 {
			return calls, billing.Place{}, nil
		}
		stretch.After = next
	}
	return calls, next, nil
}

// placedCalls returns calls with the conversations of their turns.
func (d *Deps) placedCalls(ctx context.Context, wallet billing.WalletID, calls []billing.EndedCall) ([]placedCall, error) {
	placed := make([]placedCall, len(calls))
	var turns []string
	for i := range calls {
		placed[i].EndedCall = calls[i]
		if isTurn(calls[i].RequestID) {
			turns = append(turns, calls[i].RequestID)
		}
	}
	places, err := d.Conversations.TurnPlaces(ctx, wallet.OrgID, turns)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the turns of calls: %w", err))
	}
	for i := range placed {
		placed[i].turn = places[placed[i].RequestID]
	}
	return placed, nil
}

func (d *Deps) listCalls(_ context.Context, principal *identity.Principal, in *struct{ CallQuery }) (*endpoint.Stream, error) {
	wallet, stretch, err := in.rows(principal, true)
	if err != nil {
		return nil, err
	}
	return tableBody(d.Bodies, in.HistoryQuery, stretch, table[placedCall, CallObject]{
		name: "calls-" + string(wallet.Env),
		read: func(ctx context.Context, stretch billing.Stretch) ([]placedCall, billing.Place, error) {
			return d.selectedCalls(ctx, wallet, stretch, &in.CallQuery)
		},
		place: func(row *placedCall) billing.Place { return row.Place() },
		show:  showCall,
	}), nil
}

const (
	// spendDays is the number of days of GET /wallet/spend when the client gives none.
	spendDays = 30
	// maxSpendDays is the largest number of days: each is a read of its own.
	maxSpendDays = 92
)

// SpendObject is the answer of GET /wallet/spend.
type SpendObject struct {
	Environment store.Env  `json:"environment" enum:"live,test"`
	From        string     `json:"from"        format:"date" doc:"The first UTC day"`
	To          string     `json:"to"          format:"date" doc:"The last UTC day"`
	Data        []DaySpend `json:"data"        nullable:"false" doc:"Oldest day first, then by model; days and models without calls are left out"`
}

// DaySpend is the cost of the calls to one model that ended on one UTC day. Refunds are not subtracted.
type DaySpend struct {
	Day              string `json:"day"           format:"date"`
	Model            string `json:"model"`
	Calls            int64  `json:"calls"         doc:"Also those that cost nothing"`
	PromptTokens     int64  `json:"promptTokens"`
	CompletionTokens int64  `json:"completionTokens"`
	ChargedMicros    string `json:"chargedMicros" doc:"In millionths of the currency unit"`
}

type spendQuery struct {
	WalletQuery

	From string `query:"from" format:"date" doc:"The first UTC day, as 2026-11-01; 29 days before to when it is absent"`
	To   string `query:"to"   format:"date" doc:"The last UTC day, at most 91 after the first; today when it is absent"`
}

// days returns the first and the last day of the query.
func (q spendQuery) days(now time.Time) (from, to time.Time, err error) {
	const day = 24 * time.Hour
	if to, err = readDay("to", q.To, now.UTC().Truncate(day)); err != nil {
		return from, to, err
	}
	if from, err = readDay("from", q.From, to.AddDate(0, 0, 1-spendDays)); err != nil {
		return from, to, err
	}
	switch days := to.Sub(from) / day; {
	case days < 0 && q.To == "":
		return from, to, handlers.InvalidRequest("from", "from is after today.")
	case days < 0:
		return from, to, handlers.InvalidRequest("to", "to is before from.")
	case days >= maxSpendDays:
		return from, to, handlers.InvalidRequest("from", "from and to are more than %d days.", maxSpendDays)
	}
	return from, to, nil
}

func (d *Deps) getSpend(ctx context.Context, principal *identity.Principal, in *spendQuery) (*SpendObject, error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	from, to, err := in.days(d.Now())
	if err != nil {
		return nil, err
	}
	spend := SpendObject{Environment: wallet.Env, From: from.Format(dayLayout), To: to.Format(dayLayout), Data: []DaySpend{}}
	for day := from; !day.After(to); day = day.AddDate(0, 0, 1) {
		models, err := d.Wallets.Spend(ctx, wallet, day.UnixMilli(), day.AddDate(0, 0, 1).UnixMilli())
		if err != nil {
			return nil, handlers.Internal(fmt.Errorf("summing up the calls of a day: %w", err))
		}
		for _, model := range models {
			spend.Data = append(spend.Data, DaySpend{
				Day: day.Format(dayLayout), Model: model.Model, Calls: model.Calls, PromptTokens: model.PromptTokens,
				CompletionTokens: model.CompletionTokens, ChargedMicros: billing.FormatMicros(model.ChargedMicros),
			})
		}
	}
	return &spend, nil
}
