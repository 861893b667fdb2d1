package dashboard

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers/api"
)

// The plot's size, in its own units.
const (
	plotWidth  = 720
	plotHeight = 220
	plotLeft   = 70
	plotTop    = 14
	plotBottom = 26
	// plotColours is how many models have a colour of their own; the others share the last one.
	plotColours = 6
)

// plot is spend as bars: one for each model on each day, stacked by day.
type plot struct {
	Width, Height int
	Left, Base    int
	Bars          []bar
	// Most is the top of the scale, in micros.
	Most        string
	First, Last string
	// Models are the sums by model, the largest first.
	Models []modelSum
	// Total is of all of them, in micros.
	Total string
}

// bar is a rectangle of a plot.
type bar struct {
	api.DaySpend

	Colour              int
	X, Y, Width, Height int64
}

// modelSum is the cost of all calls to a model.
type modelSum struct {
	Model  string
	Calls  int64
	Micros string
	Colour int

	micros int64
}

// newPlot returns the plot of s. Malformed amounts count as 0.
func newPlot(s *api.SpendObject) plot {
	p := plot{
		Width: plotWidth, Height: plotHeight, Left: plotLeft, Base: plotHeight - plotBottom, First: s.From, Last: s.To,
		Models: sumModels(s.Data),
	}
	colours := make(map[string]int)
	total := int64(0)
	for i := range p.Models {
		p.Models[i].Colour = min(i, plotColours-1)
		colours[p.Models[i].Model] = p.Models[i].Colour
		total += p.Models[i].micros
	}
	p.Total = strconv.FormatInt(total, 10)
	most := mostOfADay(s.Data)
	p.Most = strconv.FormatInt(most, 10)
	first, err := time.Parse(time.DateOnly, s.From)
	if err != nil {
		return p
	}
	slot := max((plotWidth-plotLeft)/max(daysBetween(first, s.To)+1, 1), 1)
	stacked := make(map[string]int64)
	for _, one := range s.Data {
		cost := micros(one.ChargedMicros)
		if cost == 0 {
			continue
		}
		below := stacked[one.Day]
		stacked[one.Day] = below + cost
		bottom, top := scaled(below, most), scaled(below+cost, most)
		p.Bars = append(p.Bars, bar{
			DaySpend: one, Colour: colours[one.Model], X: plotLeft + slot*daysBetween(first, one.Day), Width: max(slot-1, 1),
			Y: plotHeight - plotBottom - max(top, bottom+1), Height: max(top-bottom, 1),
		})
	}
	return p
}

// scaled returns the height of an amount. It divides first where the product could overflow.
func scaled(amount, most int64) int64 {
	const room = plotHeight - plotTop - plotBottom
	if most > 1<<53 {
		return amount / (most / room)
	}
	return amount * room / most
}

// daysBetween returns how many days a day comes after first.
func daysBetween(first time.Time, day string) int64 {
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return 0
	}
	return int64(at.Sub(first) / (24 * time.Hour))
}

// mostOfADay returns the highest sum of a day, at least 1.
func mostOfADay(all []api.DaySpend) int64 {
	sums := make(map[string]int64)
	most := int64(1)
	for _, one := range all {
		sums[one.Day] += micros(one.ChargedMicros)
		most = max(most, sums[one.Day])
	}
	return most
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
	amount, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return amount
}
