package api

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// spendDays is how many days GET /wallet/spend is about when the client doesn't say.
	spendDays = 30
	// maxSpendDays is how many days it is about at most: each is a read of its own.
	maxSpendDays = 92
)

// spendObject is the answer of GET /wallet/spend.
type spendObject struct {
	Environment store.Env  `json:"environment" enum:"live,test"`
	From        string     `json:"from"        format:"date" doc:"The first UTC day"`
	To          string     `json:"to"          format:"date" doc:"The last UTC day"`
	Data        []daySpend `json:"data"        nullable:"false" doc:"Oldest day first, then by model; days and models without calls are left out"`
}

// daySpend is what the calls to one model that began on one UTC day cost. Refunds are not subtracted.
type daySpend struct {
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

// days are the first and the last day that the query is about.
func (q spendQuery) days(now time.Time) (from, to time.Time, err error) {
	const day = 24 * time.Hour
	to = now.UTC().Truncate(day)
	if q.To != "" {
		if to, err = readDay("to", q.To); err != nil {
			return from, to, err
		}
	}
	from = to.AddDate(0, 0, 1-spendDays)
	if q.From != "" {
		if from, err = readDay("from", q.From); err != nil {
			return from, to, err
		}
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

func (g *wallet) spend(ctx context.Context, principal *identity.Principal, in *spendQuery) (*endpoint.JSON[spendObject], error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	from, to, err := in.days(g.Now())
	if err != nil {
		return nil, err
	}
	spend := spendObject{Environment: wallet.Env, From: from.Format(dayLayout), To: to.Format(dayLayout), Data: []daySpend{}}
	for day := from; !day.After(to); day = day.AddDate(0, 0, 1) {
		models, err := g.Wallets.Spend(ctx, wallet, day.UnixMilli(), day.AddDate(0, 0, 1).UnixMilli())
		if err != nil {
			return nil, handlers.Internal(fmt.Errorf("summing up the calls of a day: %w", err))
		}
		for _, model := range models {
			spend.Data = append(spend.Data, daySpend{
				Day: day.Format(dayLayout), Model: model.Model, Calls: model.Calls, PromptTokens: model.PromptTokens,
				CompletionTokens: model.CompletionTokens, ChargedMicros: billing.FormatMicros(model.ChargedMicros),
			})
		}
	}
	return endpoint.Answer(spend), nil
}
