package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The operator's operations on figures.
var (
	ListUsage = operationOf(tableOf[UsageObject](service("listUsage", "GET /usage", "usage:read",
		"List what calls used, were charged and cost, by organization, model, vendor, key or day")), (*Deps).listUsage)
	GetOverview = operation(service("getOverview", "GET /overview", "usage:read",
		"Get the service's figures at a glance: organizations, calls, charges, margin, who waits and whose wallet ends"), (*Deps).getOverview)
	FindOrganization = operation(service("find", "GET /search", "organizations:read",
		"Find the organization of a name, an id, a key's first characters, a channel or a call"), (*Deps).find)

	ListOrganizationUsage = operationOf(tableOf[UsageObject](operators("listOrganizationUsage", "GET /wallet/usage", "usage:read",
		"List what the calls of an organization used, were charged and cost, by model, vendor, key or day")), (*Deps).listOrganizationUsage)
	GetSummary = operation(operators("getSummary", "GET /summary", "usage:read",
		"Get an organization's figures at a glance: wallet, charges, margin and how calls ended"), (*Deps).getSummary)
)

// UsageQuery selects figures. It is exported for huma, see [endpoint.PathID].
type UsageQuery struct {
	HistoryQuery

	By    billing.UsageBy `query:"by" enum:"organization,model,vendor,key,day" default:"day" doc:"What a row is about; day when absent"`
	Model string          `query:"model" maxLength:"200" doc:"Only this model"`
}

// UsageFigures are sums of calls. It is exported for huma, see [endpoint.PathID].
type UsageFigures struct {
	Calls              int64  `json:"calls"`
	Answered           int64  `json:"answered"`
	ClientGone         int64  `json:"clientGone"         doc:"Calls whose client left before the end of the answer"`
	Failed             int64  `json:"failed"`
	PromptTokens       int64  `json:"promptTokens"`
	CachedPromptTokens int64  `json:"cachedPromptTokens" doc:"The part of promptTokens that the vendor read from its cache"`
	CompletionTokens   int64  `json:"completionTokens"`
	ChargedMicros      string `json:"chargedMicros"      doc:"In millionths of the currency unit"`
	RefundedMicros     string `json:"refundedMicros"     doc:"Refunds count when they are given"`
	CostMicros         string `json:"costMicros"         doc:"The operator's cost by the costs of the configuration, also of failed attempts"`
	MarginMicros       string `json:"marginMicros"       doc:"chargedMicros without refundedMicros and costMicros"`
	UnknownCosts       int64  `json:"unknownCosts"       doc:"Calls at endpoints without a cost in the configuration. They are missing in costMicros"`
}

func showFigures(f *billing.Figures) UsageFigures {
	return UsageFigures{
		Calls: f.Calls, Answered: f.Answered, ClientGone: f.ClientGone, Failed: f.Calls - f.Answered - f.ClientGone, PromptTokens: f.PromptTokens,
		CachedPromptTokens: f.CachedTokens, CompletionTokens: f.CompletionTokens, ChargedMicros: billing.FormatMicros(f.ChargedMicros),
		RefundedMicros: billing.FormatMicros(f.RefundedMicros), CostMicros: billing.FormatMicros(f.CostMicros),
		MarginMicros: billing.FormatMicros(f.Margin()), UnknownCosts: f.UnknownCosts,
	}
}

// UsageObject are the figures of an organization, a model, a vendor, a key or a day.
type UsageObject struct {
	ID   string  `json:"id"   doc:"The id of the organization or of the key (empty: calls without a key), the model, the vendor, or the UTC day"`
	Name *string `json:"name" doc:"Of the organization or of the key"`

	UsageFigures

	CountedThrough *string `json:"countedThrough" format:"date-time" doc:"Calls that ended until then are counted; null: none yet"`
}

// usageRow is a row of usage with its position in the list.
type usageRow struct {
	billing.UsageRow

	position int64
	through  int64
}

func (d *Deps) listUsage(
	ctx context.Context, principal *identity.Principal, in *struct {
		UsageQuery

		OrgID string `query:"orgId" doc:"Only this organization; required by key"`
	},
) (*endpoint.Stream, error) {
	if in.OrgID != "" {
		var err error
		if principal, err = d.Operator(ctx, *principal, in.OrgID); err != nil {
			return nil, err
		}
	}
	return d.usage(principal, &in.UsageQuery)
}

func (d *Deps) listOrganizationUsage(_ context.Context, principal *identity.Principal, in *struct{ UsageQuery }) (*endpoint.Stream, error) {
	return d.usage(principal, &in.UsageQuery)
}

// usage returns the rows of one organization, or of all.
func (d *Deps) usage(principal *identity.Principal, in *UsageQuery) (*endpoint.Stream, error) {
	if in.By == "" {
		in.By = billing.UsageByDay
	}
	switch {
	case in.By == billing.UsageByKey && principal.OrgID == "":
		return nil, handlers.InvalidRequest("orgId", "orgId is required, because keys are listed for one organization.")
	case in.By == billing.UsageByOrganization && principal.OrgID != "":
		return nil, handlers.InvalidRequest("by", "by can't be organization for one organization.")
	}
	wallet, stretch, err := in.rows(principal, false)
	if err != nil {
		return nil, err
	}
	today := d.Now().UTC().Truncate(24 * time.Hour)
	if stretch.Until == 0 {
		stretch.Until = today.AddDate(0, 0, 1).UnixMilli()
	}
	if in.From == "" {
		stretch.From = time.UnixMilli(stretch.Until).AddDate(0, 0, -spendDays).UnixMilli()
	}
	query := billing.UsageQuery{By: in.By, Wallet: wallet, Model: in.Model, From: stretch.From, Until: stretch.Until}
	return tableBody(d.Bodies, in.HistoryQuery, stretch, table[usageRow, UsageObject]{
		name: "usage-" + string(in.By) + "-" + string(wallet.Env),
		read: func(ctx context.Context, stretch billing.Stretch) (rows []usageRow, _ billing.Place, err error) {
			rows, err = d.usageRows(ctx, query, stretch)
			return rows, billing.Place{}, err
		},
		place: func(row *usageRow) billing.Place { return billing.Place{Seq: row.position} },
		show:  func(row *usageRow) UsageObject { return showUsage(in.By, row) },
	}), nil
}

func (d *Deps) usageRows(ctx context.Context, query billing.UsageQuery, stretch billing.Stretch) ([]usageRow, error) {
	query.Skip, query.Rows = stretch.After.Seq, stretch.Rows
	through, err := d.Book.UsageThrough(ctx)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the state of usage: %w", err))
	}
	found, err := d.Book.Usage(ctx, query)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading usage: %w", err))
	}
	rows := make([]usageRow, len(found))
	for i := range found {
		rows[i] = usageRow{found[i], query.Skip + int64(i) + 1, min(through, query.Until)}
	}
	return rows, nil
}

func showUsage(by billing.UsageBy, row *usageRow) UsageObject {
	id, through := row.Group, row.through
	if by == billing.UsageByDay {
		days, _ := strconv.ParseInt(row.Group, 10, 64)
		end := time.Unix((days+1)*int64(24*time.Hour/time.Second), 0)
		id, through = end.AddDate(0, 0, -1).UTC().Format(dayLayout), min(through, end.UnixMilli())
	}
	return UsageObject{id, endpoint.OrNull(row.Name), showFigures(&row.Figures), endpoint.TimestampOrNull(through)}
}

// PeriodObject are the figures of the last 30 days, beside the 30 days before.
type PeriodObject struct {
	UsageFigures

	MarginPercent       *float64 `json:"marginPercent"       doc:"Of what was charged and not refunded; null when that is nothing"`
	ChargedChange       *float64 `json:"chargedChange"       doc:"By how many percent more was charged than in the 30 days before, of which the first counts as far as today is over"` //nolint:lll // a struct tag can't be broken
	MarginPercentChange *float64 `json:"marginPercentChange" doc:"By how many points marginPercent is higher than in the 30 days before"`
}

// daysOf reads the figures of the last 30 days, of one organization or of all, by day and together.
func (d *Deps) daysOf(ctx context.Context, principal *identity.Principal) (days []UsageObject, period PeriodObject, err error) {
	const day = 24 * time.Hour
	now := d.Now().UTC()
	today := now.Truncate(day)
	first := today.AddDate(0, 0, 1-spendDays)
	rows, err := d.usageRows(ctx, billing.UsageQuery{
		By: billing.UsageByDay, Wallet: billing.WalletID{OrgID: principal.OrgID, Env: store.Live}, From: first.AddDate(0, 0, -spendDays).UnixMilli(),
		Until: today.AddDate(0, 0, 1).UnixMilli(),
	}, billing.Stretch{Rows: 2 * spendDays})
	if err != nil {
		return nil, period, err
	}
	var last, before billing.Figures
	var charged float64
	days = []UsageObject{}
	for i := range rows {
		shown := showUsage(billing.UsageByDay, &rows[i])
		if shown.ID >= first.Format(dayLayout) {
			days = append(days, shown)
			last.Add(&rows[i].Figures)
			continue
		}
		weight := 1.0
		if shown.ID == first.AddDate(0, 0, -1).Format(dayLayout) {
			weight = float64(now.Sub(today)) / float64(day)
		}
		charged += weight * float64(rows[i].ChargedMicros)
		before.Add(&rows[i].Figures)
	}
	period = PeriodObject{UsageFigures: showFigures(&last), MarginPercent: marginPercent(&last)}
	if charged >= 1 {
		period.ChargedChange = rounded(100 * (float64(last.ChargedMicros)/charged - 1))
	}
	if earlier := marginPercent(&before); earlier != nil && period.MarginPercent != nil {
		period.MarginPercentChange = rounded(*period.MarginPercent - *earlier)
	}
	return days, period, nil
}

// rounded returns a number with one digit after the point, as people read it.
func rounded(number float64) *float64 { return new(math.Round(10*number) / 10) }

func marginPercent(f *billing.Figures) *float64 {
	if f.ChargedMicros <= f.RefundedMicros {
		return nil
	}
	return rounded(100 * float64(f.Margin()) / float64(f.ChargedMicros-f.RefundedMicros))
}

// SpendingObject says how long a live wallet lasts.
type SpendingObject struct {
	BalanceMicros string   `json:"balanceMicros" doc:"Of the live wallet, with what is held"`
	MicrosPerDay  string   `json:"microsPerDay"  doc:"What a day was charged on average in the last week"`
	DaysLeft      *float64 `json:"daysLeft"      doc:"For how long the balance lasts; null: nothing was charged"`
}

func showSpending(s *billing.Spending) SpendingObject {
	shown := SpendingObject{BalanceMicros: billing.FormatMicros(s.BalanceMicros), MicrosPerDay: billing.FormatMicros(s.MicrosPerDay)}
	if s.MicrosPerDay > 0 {
		shown.DaysLeft = rounded(float64(s.BalanceMicros) / float64(s.MicrosPerDay))
	}
	return shown
}

// EndingWallet is the wallet of an organization that ends soon.
type EndingWallet struct {
	OrgID string `json:"orgId"`
	Name  string `json:"name"`
	Plan  string `json:"plan"`

	SpendingObject
}

// LongWait counts the customers of an organization who have waited for long.
type LongWait struct {
	OrgID     string `json:"orgId"`
	Name      string `json:"name"`
	Customers int64  `json:"customers"`
}

// OverviewObject is the answer of GET /overview.
type OverviewObject struct {
	CountedThrough   *string        `json:"countedThrough"  format:"date-time" doc:"Calls that ended until then are counted; null: none yet"`
	Organizations    int64          `json:"organizations"`
	NewOrganizations int64          `json:"newOrganizations"       doc:"Created in the last 7 days"`
	Suspended        int64          `json:"suspendedOrganizations"`
	CallsByMinute    []int64        `json:"callsByMinute"          nullable:"false" doc:"Calls that ended in each of the 60 minutes before countedThrough, oldest first"` //nolint:lll // a struct tag can't be broken
	Last30Days       PeriodObject   `json:"last30Days"             doc:"Today and the 29 days before, in the live environment"`
	Days             []UsageObject  `json:"days"                   nullable:"false" doc:"The days of last30Days on which calls ended, oldest first"`
	Waiting          int64          `json:"waitingCustomers"       doc:"Customers who have waited for longer than 15 minutes; counted up to 10,000"`
	WaitingIn        int64          `json:"waitingOrganizations"   doc:"The number of their organizations"`
	LongWaits        []LongWait     `json:"longWaits"              nullable:"false" doc:"Their organizations, the most customers first, at most 100"`
	EndingWallets    []EndingWallet `json:"endingWallets"          nullable:"false" doc:"Live wallets that last for less than a week at their present spending, the first to end first, at most 100"` //nolint:lll // a struct tag can't be broken
}

const (
	// longWait is the wait of a customer that the overview counts.
	longWait = 15 * time.Minute
	// overviewMinutes is the number of minutes of the overview, and overviewRows the largest number of its wallets, and of its waits.
	overviewMinutes, overviewRows = 60, 100
	// endingDays is the number of days for which a wallet that is not among them lasts at its present spending.
	endingDays = 7
)

func (d *Deps) getOverview(ctx context.Context, principal *identity.Principal, _ *struct{}) (*OverviewObject, error) {
	days, period, err := d.daysOf(ctx, principal)
	if err != nil {
		return nil, err
	}
	now := d.Now()
	through, throughErr := d.Book.UsageThrough(ctx)
	overview := OverviewObject{
		CountedThrough: endpoint.TimestampOrNull(through), Last30Days: period, Days: days, LongWaits: []LongWait{},
	}
	counts, countErr := d.DB.Organizations.Counts(ctx, now.AddDate(0, 0, -7).UnixMilli())
	overview.Organizations, overview.NewOrganizations, overview.Suspended = counts.All, counts.New, counts.Suspended
	var minutesErr error
	waits, waitErr := d.Conversations.LongWaits(ctx, now.Add(-longWait).UnixMilli())
	overview.CallsByMinute, minutesErr = d.Book.CallsByMinute(ctx, overviewMinutes)
	ending, endingErr := d.Book.EndingWallets(ctx, now.UnixMilli(), endingDays, overviewRows)
	if err := errors.Join(throughErr, countErr, waitErr, minutesErr, endingErr); err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the overview: %w", err))
	}
	overview.WaitingIn = int64(len(waits))
	for i, wait := range waits {
		overview.Waiting += wait.Customers
		if i < overviewRows {
			overview.LongWaits = append(overview.LongWaits, LongWait{wait.OrgID, wait.Name, wait.Customers})
		}
	}
	overview.EndingWallets = showAll(ending, func(e *billing.EndingWallet) EndingWallet {
		return EndingWallet{e.OrgID, e.Name, e.Plan, showSpending(&e.Spending)}
	})
	return &overview, nil
}

// OutcomeObject counts the calls that ended in one way.
type OutcomeObject struct {
	Outcome string `json:"outcome"`
	Calls   int64  `json:"calls"`
}

// SummaryObject is the answer of GET /summary. Everything is of the live environment.
type SummaryObject struct {
	SpendingObject

	Last30Days PeriodObject    `json:"last30Days" doc:"Today and the 29 days before"`
	Days       []UsageObject   `json:"days"       nullable:"false" doc:"The days of last30Days on which calls ended, oldest first"`
	Outcomes   []OutcomeObject `json:"outcomes"   nullable:"false" doc:"How calls ended in the last 24 hours, the most frequent end first: of the newest 10,000 charged calls and as many others. Calls that were refused before they began are not among them"` //nolint:lll // a struct tag can't be broken
}

func (d *Deps) getSummary(ctx context.Context, principal *identity.Principal, _ *struct{}) (*SummaryObject, error) {
	days, period, err := d.daysOf(ctx, principal)
	if err != nil {
		return nil, err
	}
	now := d.Now()
	spending, spendingErr := d.Book.Spending(ctx, principal.OrgID, now.UnixMilli())
	outcomes, outcomesErr := d.Book.Outcomes(ctx, billing.WalletID{OrgID: principal.OrgID, Env: store.Live}, now.AddDate(0, 0, -1).UnixMilli())
	if err := errors.Join(spendingErr, outcomesErr); err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the summary of an organization: %w", err))
	}
	summary := &SummaryObject{SpendingObject: showSpending(&spending), Last30Days: period, Days: days, Outcomes: []OutcomeObject{}}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		summary.Outcomes = append(summary.Outcomes, OutcomeObject{outcome, outcomes[outcome]})
	}
	slices.SortStableFunc(summary.Outcomes, func(a, b OutcomeObject) int { return int(b.Calls - a.Calls) })
	return summary, nil
}

// FoundObject is an organization, a key, a channel or a call.
type FoundObject struct {
	Kind  string `json:"kind"  enum:"organization,key,channel,call"`
	ID    string `json:"id"`
	OrgID string `json:"orgId"`
	Name  string `json:"name" doc:"Of the organization"`
}

// foundRows limits the rows of a search.
const foundRows = 20

func (d *Deps) find(
	ctx context.Context, _ *identity.Principal, in *struct {
		Q string `query:"q" maxLength:"100" doc:"The beginning of an organization's name, its id, the id or the first 12 characters of an API key, or the id of a channel or a call"` //nolint:lll // a struct tag can't be broken
	},
) (*endpoint.ListObject[FoundObject], error) {
	if in.Q == "" {
		return &pageOf[FoundObject]{Data: []FoundObject{}}, nil
	}
	found, err := d.DB.Organizations.Find(ctx, in.Q, foundRows)
	kinds := map[string]string{"organizations": "organization", "api_keys": "key", "channels": "channel", "calls": "call"}
	return onePage(found, func(f *store.Found) FoundObject { return FoundObject{kinds[f.Table], f.ID, f.OrgID, f.OrgName} }), err
}
