package billing

import "time"

// Period is how often the spending of a budget begins again. Periods follow the calendar in the organization's time zone. A week
// begins on Monday.
type Period string

// The periods.
const (
	PeriodDay   Period = "day"
	PeriodWeek  Period = "week"
	PeriodMonth Period = "month"
	PeriodTotal Period = "total" // it never ends
)

// bounds returns the beginning and the end of the period that contains a moment, in epoch milliseconds: begin <= now < end.
func (p Period) bounds(now int64, zone *time.Location) (begin, end int64) {
	local := time.UnixMilli(now).In(zone)
	year, month, day := local.Date()
	weekday := (int(local.Weekday()) + 6) % 7 // since Monday
	// The period before is among the candidates, because a clock that is set back may show the day before again.
	for i := -1; end <= now; i++ {
		begin = end
		switch p {
		case PeriodMonth:
			end = beginOfDay(year, month+time.Month(i), 1, zone)
		case PeriodWeek:
			end = beginOfDay(year, month, day-weekday+7*i, zone)
		default:
			end = beginOfDay(year, month, day+i, zone)
		}
	}
	return begin, end
}

// beginOfDay returns the first moment at which clocks of a zone show a day, or a later one if they skip the day.
func beginOfDay(year int, month time.Month, day int, zone *time.Location) int64 {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	year, month, day = midnight.Date()
	// Offsets are from -12 to 14 hours, so a change of the clock that could matter is between these moments.
	_, before := midnight.Add(-15 * time.Hour).In(zone).Zone()
	_, after := midnight.Add(13 * time.Hour).In(zone).Zone()
	first := midnight.Add(-time.Duration(max(before, after)) * time.Second).In(zone)
	for _, candidate := range []time.Time{first, midnight.Add(-time.Duration(min(before, after)) * time.Second).In(zone)} {
		y, m, d := candidate.Date()
		if y == year && m == month && d == day && candidate.Hour() == 0 && candidate.Minute() == 0 && candidate.Second() == 0 {
			return candidate.UnixMilli()
		}
	}
	_, change := first.ZoneBounds() // which skips midnight
	return change.UnixMilli()
}

// follow returns the period of a budget at a moment. begins is the end of the budget's last period, or the creation of the budget. A change of
// the zone counts from the next period on, which may be shorter or longer than a calendar's.
func (p Period) follow(begins, now int64, zoneName string) (begin, end int64) {
	if p == PeriodTotal {
		return begins, 0
	}
	zone, err := time.LoadLocation(zoneName)
	if err != nil {
		zone = time.UTC // of a newer program
	}
	begin, end = p.bounds(max(begins, now), zone)
	return max(begin, begins), end
}
