// Package hours computes when a business is open. Hours are written by people, one line for some days of the week and a time:
//
//	mon-fri 08:00-17:30
//	sat sun 09:00-12:00
//
// Days are mon, tue, wed, thu, fri, sat and sun, single or as a range. Times are of a day in the business's time zone; 24:00 is its end, so
// that a business which is open beyond midnight writes two lines. Lines that overlap or touch are one time. The package has no channels and
// no store.
package hours

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // hosts and containers may have no time zones of their own
)

const (
	// MostLines bounds the lines of one business.
	MostLines = 50
	// mostLine bounds a line in bytes.
	mostLine = 200
	// daysAround is how far times are computed around a moment: every line comes back within a week, and a line that a change of the clock
	// skips within two.
	daysAround = 15
)

// Hours are the opening hours of a business.
type Hours struct {
	zone *time.Location
	week [7][]interval // by [time.Weekday]
}

// interval is a time of a day, in minutes since midnight.
type interval struct{ from, to int }

// LineError is the fault of a line.
type LineError struct {
	Line    int // from 0
	Problem string
}

// Error implements error.
func (e *LineError) Error() string { return fmt.Sprintf("line %d %s", e.Line+1, e.Problem) }

// ErrZone means that there is no such time zone.
var ErrZone = errors.New("there is no such time zone")

// Zone returns the time zone with an IANA name, the same on every machine. It returns [ErrZone] if there is none.
func Zone(name string) (*time.Location, error) {
	location, err := time.LoadLocation(name)
	// Some names are no time zone's: they mean something on some machines only, or something else on each.
	ofHost := name == "Local" || name == "localtime" || strings.HasPrefix(name, "posix") || strings.HasPrefix(name, "right/")
	if err != nil || name == "" || ofHost {
		return nil, ErrZone
	}
	return location, nil
}

// Parse reads opening hours. It returns [ErrZone], or a [*LineError] for the first faulty line.
func Parse(zone string, lines []string) (*Hours, error) {
	location, err := Zone(zone)
	if err != nil {
		return nil, err
	}
	h := &Hours{zone: location}
	if len(lines) > MostLines {
		return nil, &LineError{MostLines, fmt.Sprintf("is one too many: at most %d", MostLines)}
	}
	for i, line := range lines {
		if problem := h.add(line); problem != "" {
			return nil, &LineError{i, problem}
		}
	}
	return h, nil
}

const form = `must be days and a time, such as "mon-fri 08:00-17:30"`

// add adds a line, or returns its fault.
func (h *Hours) add(line string) (problem string) {
	words := strings.Fields(line)
	if len(words) < 2 || len(line) > mostLine || strings.ContainsAny(line, "\r\n") {
		return form
	}
	from, to, _ := strings.Cut(words[len(words)-1], "-")
	begin, isBegin := minuteOf(from)
	end, isEnd := minuteOf(to)
	if !isBegin || !isEnd {
		return form
	}
	open := interval{begin, end}
	if open.to <= open.from {
		return "ends before it begins; write a time beyond midnight as two lines, until 24:00 and from 00:00"
	}
	for _, word := range words[:len(words)-1] {
		days, ok := daysOf(word)
		if !ok {
			return form
		}
		for _, day := range days {
			if !slices.Contains(h.week[day], open) { // a line may name a day many times
				h.week[day] = append(h.week[day], open)
			}
		}
	}
	return ""
}

// minuteOf reads HH:MM, up to 24:00.
func minuteOf(text string) (minute int, ok bool) {
	hour, rest, _ := strings.Cut(text, ":")
	hours, noHour := strconv.ParseUint(hour, 10, 8)
	minutes, noMinute := strconv.ParseUint(rest, 10, 8)
	minute = 60*int(hours) + int(minutes)
	ok = len(hour) == 2 && len(rest) == 2 && noHour == nil && noMinute == nil && minutes < 60 && minute <= 24*60
	return minute, ok
}

var names = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// daysOf reads a day, or a range of days, which may go beyond saturday.
func daysOf(word string) (days []int, ok bool) {
	first, last, isRange := strings.Cut(strings.ToLower(word), "-")
	day := slices.Index(names[:], first)
	if !isRange {
		return []int{day}, day >= 0
	}
	end := slices.Index(names[:], last)
	if day < 0 || end < 0 {
		return nil, false
	}
	for ; day != end; day = (day + 1) % len(names) {
		days = append(days, day)
	}
	return append(days, end), true
}

// At reports whether the business is open at a moment. change is since when, or when it opens next; zero for a business without a line,
// which never opens.
func (h *Hours) At(moment time.Time) (open bool, change time.Time) {
	open, s := h.spanAt(moment)
	return open, s.from
}

// Next reports whether a moment is within the hours, and when that changes next, at most 15 days later. The change is zero if there are no hours.
func (h *Hours) Next(moment time.Time) (open bool, change time.Time) {
	open, s := h.spanAt(moment)
	if open {
		return true, s.to
	}
	return false, s.from
}

// spanAt reports whether the business is open at a moment, and until when and since when, or when it is open next.
func (h *Hours) spanAt(moment time.Time) (open bool, around span) {
	for _, s := range h.spans(moment) {
		if moment.Before(s.to) {
			return !moment.Before(s.from), s
		}
	}
	return false, span{}
}

// Overlap reports whether two hours of one time zone have a time of the week in common.
func Overlap(a, b *Hours) bool {
	for day := range a.week {
		for _, one := range a.week[day] {
			for _, other := range b.week[day] {
				if one.from < other.to && other.from < one.to {
					return true
				}
			}
		}
	}
	return false
}

// span is a time in which the business is open, to excluded.
type span struct{ from, to time.Time }

// spans returns the times around a moment, in order. Times that touch are one.
func (h *Hours) spans(moment time.Time) []span {
	var all []span
	year, month, day := moment.In(h.zone).Date()
	for offset := -daysAround; offset <= daysAround; offset++ {
		noon := time.Date(year, month, day+offset, 12, 0, 0, 0, h.zone) // at noon no clock is changed
		for _, open := range h.week[noon.Weekday()] {
			at := func(minute int) time.Time { return time.Date(year, month, day+offset, 0, minute, 0, 0, h.zone) }
			all = append(all, span{at(open.from), at(open.to)})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	merged := all[:0]
	for _, s := range all {
		if last := len(merged) - 1; last >= 0 && !s.from.After(merged[last].to) {
			if s.to.After(merged[last].to) {
				merged[last].to = s.to
			}
			continue
		}
		if s.to.After(s.from) {
			merged = append(merged, s)
		}
	}
	return merged
}
