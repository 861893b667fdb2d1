package gateway

import (
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/hours"
)

// PriceRow is the price of a model from a moment on, until the next row begins.
type PriceRow struct {
	// From is the first moment. The zero time means that the row has no beginning.
	From  time.Time
	Price billing.Price
	// Hours are the hours of the week with another price. They don't overlap.
	Hours []PriceHours
}

// PriceHours is the price in some hours of the week.
type PriceHours struct {
	Hours *hours.Hours
	Price billing.Price
}

// Prices are the prices of a model over time. It is safe for concurrent use.
type Prices struct {
	rows []PriceRow
	// now is the price at the last requested moment, so that most calls compare two times.
	now atomic.Pointer[pricePeriod]
}

// pricePeriod is a time with one price, until excluded.
type pricePeriod struct {
	from, until time.Time
	price       *billing.Price
}

// NewPrices returns the prices of rows in the order of their times. The first row has no beginning.
func NewPrices(rows []PriceRow) *Prices { return &Prices{rows: rows} }

// At returns the price at a moment.
func (p *Prices) At(moment time.Time) *billing.Price {
	period := p.now.Load()
	if period == nil || moment.Before(period.from) || !moment.Before(period.until) {
		period = p.period(moment)
		p.now.Store(period)
	}
	return period.price
}

// longestPricePeriod limits the time for which a price is remembered.
const longestPricePeriod = 7 * 24 * time.Hour

// period computes the price at a moment and the time until the next change.
func (p *Prices) period(moment time.Time) *pricePeriod {
	found := &pricePeriod{from: moment, until: moment.Add(longestPricePeriod)}
	current := &p.rows[0]
	for i := range p.rows[1:] {
		row := &p.rows[1+i]
		if moment.Before(row.From) {
			found.end(row.From)
			break
		}
		current = row
	}
	found.price = &current.Price
	for i := range current.Hours {
		open, change := current.Hours[i].Hours.Next(moment)
		if open {
			found.price = &current.Hours[i].Price
		}
		if !change.IsZero() {
			found.end(change)
		}
	}
	return found
}

func (p *pricePeriod) end(change time.Time) {
	if change.Before(p.until) {
		p.until = change
	}
}

// priceAt returns the price of a call that begins at a moment.
func (m *Model) priceAt(moment time.Time) *billing.Price {
	if m.Prices == nil {
		return &m.Price
	}
	return m.Prices.At(moment)
}
