package billing

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"
)

// zoneOf is a time zone by its name.
func zoneOf(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	require.NoError(t, err)
	return zone
}

// TestPeriodsOfTheCalendar: the periods around a moment are the calendar's in the zone, whatever its clocks do.
func TestPeriodsOfTheCalendar(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		period           Period
		zone, now        string
		begin, end       string
		length           time.Duration
		followedByLength time.Duration
	}{
		"a day": {
			period: PeriodDay, zone: "Asia/Ho_Chi_Minh", now: "2026-11-27T16:59:59Z",
			begin: "2026-11-26T17:00:00Z", end: "2026-11-27T17:00:00Z", length: 24 * time.Hour, followedByLength: 24 * time.Hour,
		},
		"its first moment": {
			period: PeriodDay, zone: "Asia/Ho_Chi_Minh", now: "2026-11-27T17:00:00Z",
			begin: "2026-11-27T17:00:00Z", end: "2026-11-28T17:00:00Z", length: 24 * time.Hour, followedByLength: 24 * time.Hour,
		},
		"a day of 23 hours": {
			period: PeriodDay, zone: "Europe/Berlin", now: "2026-03-29T12:00:00Z",
			begin: "2026-03-28T23:00:00Z", end: "2026-03-29T22:00:00Z", length: 23 * time.Hour, followedByLength: 24 * time.Hour,
		},
		"a day of 25 hours": {
			period: PeriodDay, zone: "Europe/Berlin", now: "2026-10-25T00:30:00Z",
			begin: "2026-10-24T22:00:00Z", end: "2026-10-25T23:00:00Z", length: 25 * time.Hour, followedByLength: 24 * time.Hour,
		},
		"a day before a skipped midnight": {
			period: PeriodDay, zone: "Asia/Beirut", now: "2026-03-28T12:00:00Z",
			begin: "2026-03-27T22:00:00Z", end: "2026-03-28T22:00:00Z", length: 24 * time.Hour, followedByLength: 23 * time.Hour,
		},
		"a day that begins at one o'clock": {
			period: PeriodDay, zone: "Africa/Cairo", now: "2026-04-24T00:00:00Z",
			begin: "2026-04-23T22:00:00Z", end: "2026-04-24T21:00:00Z", length: 23 * time.Hour, followedByLength: 24 * time.Hour,
		},
		"a day whose last hour comes twice": {
			period: PeriodDay, zone: "Africa/Cairo", now: "2026-10-29T21:30:00Z",
			begin: "2026-10-28T21:00:00Z", end: "2026-10-29T22:00:00Z", length: 25 * time.Hour, followedByLength: 24 * time.Hour,
		},
		"a midnight that comes twice": {
			period: PeriodDay, zone: "America/Havana", now: "2026-11-01T05:30:00Z",
			begin: "2026-11-01T04:00:00Z", end: "2026-11-02T05:00:00Z", length: 25 * time.Hour, followedByLength: 24 * time.Hour,
		},
		"a day that shows itself again": { // at 0:01 it was 23:01 of the day before again
			period: PeriodDay, zone: "America/St_Johns", now: "2010-11-07T02:35:00Z",
			begin: "2010-11-07T02:30:00Z", end: "2010-11-08T03:30:00Z", length: 25 * time.Hour, followedByLength: 24 * time.Hour,
		},
		"the day after a skipped day": {
			period: PeriodDay, zone: "Pacific/Apia", now: "2011-12-30T09:59:59Z",
			begin: "2011-12-29T10:00:00Z", end: "2011-12-30T10:00:00Z", length: 24 * time.Hour, followedByLength: 24 * time.Hour,
		},
		"a week from Monday": {
			period: PeriodWeek, zone: "UTC", now: "2026-11-29T23:59:59Z",
			begin: "2026-11-23T00:00:00Z", end: "2026-11-30T00:00:00Z", length: 7 * 24 * time.Hour, followedByLength: 7 * 24 * time.Hour,
		},
		"a week with a change of the clock": {
			period: PeriodWeek, zone: "America/New_York", now: "2026-11-01T12:00:00Z",
			begin: "2026-10-26T04:00:00Z", end: "2026-11-02T05:00:00Z", length: 169 * time.Hour, followedByLength: 168 * time.Hour,
		},
		"31 January": {
			period: PeriodMonth, zone: "UTC", now: "2026-01-31T23:00:00Z",
			begin: "2026-01-01T00:00:00Z", end: "2026-02-01T00:00:00Z", length: 31 * 24 * time.Hour, followedByLength: 28 * 24 * time.Hour,
		},
		"29 February": {
			period: PeriodMonth, zone: "UTC", now: "2028-02-29T12:00:00Z",
			begin: "2028-02-01T00:00:00Z", end: "2028-03-01T00:00:00Z", length: 29 * 24 * time.Hour, followedByLength: 31 * 24 * time.Hour,
		},
		"December": {
			period: PeriodMonth, zone: "Asia/Kathmandu", now: "2026-12-31T18:14:59Z",
			begin: "2026-11-30T18:15:00Z", end: "2026-12-31T18:15:00Z", length: 31 * 24 * time.Hour, followedByLength: 31 * 24 * time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, err := time.Parse(time.RFC3339, c.now)
			require.NoError(t, err)
			begin, end := c.period.bounds(now.UnixMilli(), zoneOf(t, c.zone))
			require.Equal(t, []string{c.begin, c.end}, []string{rfc3339(begin), rfc3339(end)})
			require.Equal(t, c.length, time.Duration(end-begin)*time.Millisecond)
			next, after := c.period.bounds(end, zoneOf(t, c.zone))
			require.Equal(t, end, next, "periods follow each other")
			require.Equal(t, c.followedByLength, time.Duration(after-next)*time.Millisecond)
		})
	}
}

func rfc3339(millis int64) string { return time.UnixMilli(millis).UTC().Format(time.RFC3339) }

// TestPeriodsLeaveNoMomentOut: in each zone and period, each moment of two years is in exactly one period, which is found from each moment in it.
func TestPeriodsLeaveNoMomentOut(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/Havana", "Asia/Beirut", "Africa/Cairo", "America/St_Johns", "Australia/Lord_Howe", "America/Asuncion",
		"Pacific/Apia", "Asia/Kathmandu",
	} {
		zone := zoneOf(t, name)
		for _, period := range []Period{PeriodDay, PeriodWeek, PeriodMonth} {
			for _, year := range []int{2010, 2011, 2026} {
				now := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
				for until := now + 366*dayMillis; now < until; {
					begin, end := period.bounds(now, zone)
					require.LessOrEqual(t, begin, now, "%s %s", name, period)
					require.Greater(t, end, now, "%s %s", name, period)
					for _, moment := range []int64{begin, (begin + end) / 2, end - 1} {
						again, to := period.bounds(moment, zone)
						require.Equal(t, []int64{begin, end}, []int64{again, to}, "%s %s %s", name, period, rfc3339(moment))
					}
					now = end
				}
			}
		}
	}
}

// TestPeriodFollows: the next period of a budget begins where the last one ended, also after a change of the zone, and a budget counts from its
// creation.
func TestPeriodFollows(t *testing.T) {
	t.Parallel()
	at := func(text string) int64 {
		moment, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return moment.UnixMilli()
	}
	for name, c := range map[string]struct {
		period      Period
		begins, now string
		zone        string
		begin, end  string
	}{
		"from the creation":            {PeriodDay, "2026-11-27T12:00:00Z", "2026-11-27T12:00:00Z", "UTC", "2026-11-27T12:00:00Z", "2026-11-28T00:00:00Z"},
		"from the end of the last one": {PeriodDay, "2026-11-28T00:00:00Z", "2026-11-28T05:00:00Z", "UTC", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"},
		"days without a call":          {PeriodDay, "2026-11-20T00:00:00Z", "2026-11-28T05:00:00Z", "UTC", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"},
		"a zone in the east": {
			PeriodDay, "2026-11-28T00:00:00Z", "2026-11-28T01:00:00Z", "Asia/Ho_Chi_Minh", "2026-11-28T00:00:00Z", "2026-11-28T17:00:00Z",
		},
		"a zone in the west": {
			PeriodDay, "2026-11-28T00:00:00Z", "2026-11-28T01:00:00Z", "America/New_York", "2026-11-28T00:00:00Z", "2026-11-28T05:00:00Z",
		},
		"a clock that was set back":   {PeriodDay, "2026-11-28T00:00:00Z", "2026-11-27T23:00:00Z", "UTC", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"},
		"a zone that nobody knows":    {PeriodMonth, "2026-11-27T12:00:00Z", "2026-11-27T12:00:00Z", "Mars/Phobos", "2026-11-27T12:00:00Z", "2026-12-01T00:00:00Z"},
		"a total that has no periods": {PeriodTotal, "2026-11-27T12:00:00Z", "2028-11-27T12:00:00Z", "UTC", "2026-11-27T12:00:00Z", "1970-01-01T00:00:00Z"},
	} {
		begin, end := c.period.follow(at(c.begins), at(c.now), c.zone)
		require.Equal(t, []string{c.begin, c.end}, []string{rfc3339(begin), rfc3339(end)}, name)
	}
}
