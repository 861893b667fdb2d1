package ui

import (
	"fmt"
	"strings"
	"time"
)

// Plot is a series of values, or several, over the same steps, such as days.
type Plot struct {
	// ID is the id of the picture; its title and sentence have ids that begin with it.
	ID string
	// Title names the figure. Sentence describes the plot: the sum, the highest value.
	Title, Sentence string
	// Step is the heading of the table's first column, Steps its rows, oldest first.
	Step  string
	Steps []string
	// Series are the bars of each step, stacked in this order. Values of a series are as many as Steps.
	Series []Series
	// Format writes a value for people, and Name a step.
	Format func(int64) string
	Name   func(string) string
}

// mostDays limits the days of a plot.
const mostDays = 366

// Days returns the days from first to last, such as 2026-11-21, for a plot's steps. Malformed days have none.
func Days(first, last string) (days []string) {
	at, err := time.Parse(time.DateOnly, first)
	for day := first; err == nil && day <= last && len(days) < mostDays; day = at.Format(time.DateOnly) {
		days = append(days, day)
		at = at.AddDate(0, 0, 1)
	}
	return days
}

// Series are the values of one thing.
type Series struct {
	Name   string
	Values []int64
	// Colour is that of --plot-N.
	Colour int
}

// The size of a plot, in its own units.
const (
	plotWidth  = 720
	plotHeight = 220
	plotLeft   = 64
	plotTop    = 14
	plotBottom = 28
	plotBase   = plotHeight - plotBottom
	plotRoom   = plotBase - plotTop
	// PlotColours is the number of colours. Further series share the last.
	PlotColours = 6
	// mostLabels is the highest number of labels below a plot.
	mostLabels = 6
)

// Drawing is the data of the template "plot".
type Drawing struct {
	Plot

	Width, Height, Left, Base int
	Bars                      []Bar
	// Ticks are the horizontal lines, Labels the names of some steps.
	Ticks, Labels []Mark
	// Rows is the table, a row for each step with any value.
	Rows []Row
}

// Bar is a rectangle of a plot.
type Bar struct {
	X, Y, Width, Height, Value int64
	Colour                     int
	Step, Series, Text         string
}

// Mark is a text at a place. A narrow plot has no room for Middle marks.
type Mark struct {
	At     int64
	Text   string
	Middle bool
}

// Row is a row of a plot's table.
type Row struct {
	Step   string
	Values []string
}

// Draw returns the plot's drawing.
func (p Plot) Draw() *Drawing {
	d := &Drawing{Plot: p, Width: plotWidth, Height: plotHeight, Left: plotLeft, Base: plotBase}
	most := p.most()
	for _, part := range []int64{0, most / 2, most} {
		if part > 0 || len(d.Ticks) == 0 {
			d.Ticks = append(d.Ticks, Mark{At: plotBase - scaled(part, most), Text: p.Format(part)})
		}
	}
	slot := max((plotWidth-plotLeft)/int64(max(len(p.Steps), 1)), 1)
	every := max((len(p.Steps)+mostLabels-1)/mostLabels, 1)
	for i, step := range p.Steps {
		if i%every == 0 {
			d.Labels = append(d.Labels, Mark{At: plotLeft + slot*int64(i) + slot/2, Text: p.Name(step), Middle: i > 0 && i+every < len(p.Steps)})
		}
		d.addStep(i, step, plotLeft+slot*int64(i), slot, most)
	}
	return d
}

// addStep adds a row of the table and the bars of the step.
func (d *Drawing) addStep(i int, step string, x, slot, most int64) {
	row, some, below := Row{Step: d.Name(step)}, false, int64(0)
	for _, series := range d.Series {
		value := series.Values[i]
		row.Values = append(row.Values, d.Format(value))
		if value <= 0 {
			continue
		}
		some = true
		bottom, top := scaled(below, most), scaled(below+value, most)
		below += value
		d.Bars = append(d.Bars, Bar{
			X: x, Width: max(slot-slot/4, 1), Y: plotBase - max(top, bottom+1), Height: max(top-bottom, 1), //nolint:mnd // a gap of a quarter
			Colour: min(series.Colour, PlotColours-1), Value: value, Step: step, Series: series.Name,
			Text: d.Name(step) + ", " + series.Name + ": " + d.Format(value),
		})
	}
	if some {
		d.Rows = append(d.Rows, row)
	}
}

// most returns the top of the scale, at least 1.
func (p Plot) most() int64 {
	most := int64(1)
	for i := range p.Steps {
		sum := int64(0)
		for _, series := range p.Series {
			sum += max(series.Values[i], 0)
			most = max(most, sum)
		}
	}
	return most
}

// scaled returns the height of an amount. It divides first where the product could overflow.
func scaled(amount, most int64) int64 {
	if most > 1<<53 {
		return max(amount, 0) / (most / plotRoom)
	}
	return max(amount, 0) * plotRoom / most
}

// Spark is a small line without a scale.
type Spark struct {
	Points string
	// Label is the sentence for screen readers.
	Label string
}

// The size of a spark, in its own units.
const (
	sparkWidth  = 96
	sparkHeight = 20
)

// NewSpark returns the line of values, with a sentence about them.
func NewSpark(label string, values []int64) *Spark {
	most := int64(1)
	for _, value := range values {
		most = max(most, value)
	}
	var points strings.Builder
	for i, value := range values {
		height := scaled(value, most) * (sparkHeight - 2) / plotRoom
		fmt.Fprintf(&points, "%d,%d ", i*sparkWidth/max(len(values)-1, 1), sparkHeight-1-height)
	}
	return &Spark{Points: points.String(), Label: label}
}
