package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
)

// dayLayout is how a UTC day is written in queries and answers (RFC 3339 full-date).
const dayLayout = time.DateOnly

// HistoryQuery are the parameters of a wallet's lists. It is exported for the framework, see [endpoint.PathID].
type HistoryQuery struct {
	WalletQuery
	endpoint.PageQuery
	TableQuery

	From string `query:"from" format:"date" doc:"The first UTC day, as 2026-11-01"`
	To   string `query:"to"   format:"date" doc:"The last UTC day"`
}

// stretch is what the query asks for, from its cursor on, with one row more than the client wants ([endpoint.PageQuery.page]).
func (q HistoryQuery) stretch() (stretch billing.Stretch, err error) {
	page, err := q.Page()
	if err != nil {
		return stretch, err
	}
	stretch.Rows = page.Limit
	if page.After != "" {
		if stretch.After, err = readPlace(page.After); err != nil {
			return stretch, err
		}
	}
	if q.From != "" {
		from, err := readDay("from", q.From)
		if err != nil {
			return stretch, err
		}
		stretch.From = from.UnixMilli()
	}
	if q.To != "" {
		to, err := readDay("to", q.To)
		if err != nil {
			return stretch, err
		}
		stretch.Until = to.AddDate(0, 0, 1).UnixMilli()
		if stretch.Until <= stretch.From {
			return stretch, handlers.InvalidRequest("to", "to is before from.")
		}
	}
	return stretch, nil
}

// readDay reads a day between 1970 and 9999.
func readDay(field, text string) (time.Time, error) {
	day, err := time.Parse(dayLayout, text)
	if err != nil || day.Year() <= 1970 {
		return day, handlers.InvalidRequest(field, "%s must be a day such as 2026-11-01.", field)
	}
	return day, nil
}

// placeText is a place in a form that [handlers.WellFormedID] takes.
func placeText(place billing.Place) string { return fmt.Sprintf("%d_%s", place.At, place.ID) }

func readPlace(text string) (billing.Place, error) {
	at, id, _ := strings.Cut(text, "_")
	millis, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" {
		return billing.Place{}, handlers.InvalidRequest("cursor", "cursor is not a nextCursor of this list.")
	}
	return billing.Place{At: millis, ID: id}, nil
}
