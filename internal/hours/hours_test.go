package hours

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"", "Local", "localtime", "posixrules", "posix/Asia/Tokyo", "right/Asia/Tokyo", "Mars/Olympus", "../etc/passwd"} {
		_, err := Parse(zone, []string{"mon 08:00-09:00"})
		require.ErrorIs(t, err, ErrZone, zone)
	}
	for line, problem := range map[string]string{
		"": "must be", "mon": "must be", "08:00-09:00": "must be", "monday 08:00-09:00": "must be", "mon-x 08:00-09:00": "must be",
		"mon 8:00-9:00": "must be", "mon 08:00": "must be", "mon 08:60-09:00": "must be", "mon 08:00-24:01": "must be", "mon 0a:00-09:00": "must be",
		"mon 08:00 - 09:00": "must be", "mon\n08:00-09:00": "must be", "mon " + strings.Repeat(" ", 200) + "08:00-09:00": "must be",
		"mon 09:00-09:00": "ends before", "mon 22:00-02:00": "ends before",
	} {
		_, err := Parse("UTC", []string{"mon 08:00-09:00", line})
		var fault *LineError
		require.ErrorAs(t, err, &fault, line)
		require.Equal(t, 1, fault.Line)
		require.Contains(t, fault.Error(), problem, line)
	}
	_, err := Parse("UTC", make([]string, MostLines+1))
	require.ErrorContains(t, err, "one too many")
}

func TestAt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		zone, lines string
		moment      string // RFC 3339
		open        bool
		change      string
	}{
		// 2026-11-23 is a Monday.
		{"UTC", "mon-fri 08:00-17:30", "2026-11-23T08:00:00Z", true, "2026-11-23T08:00:00Z"},
		{"UTC", "mon-fri 08:00-17:30", "2026-11-23T17:29:59Z", true, "2026-11-23T08:00:00Z"},
		{"UTC", "mon-fri 08:00-17:30", "2026-11-23T17:30:00Z", false, "2026-11-24T08:00:00Z"},
		{"UTC", "mon-fri 08:00-17:30", "2026-11-27T20:00:00Z", false, "2026-11-30T08:00:00Z"},
		{"Asia/Ho_Chi_Minh", "mon-fri 08:00-17:30", "2026-11-23T00:59:00Z", false, "2026-11-23T01:00:00Z"},
		{"Asia/Ho_Chi_Minh", "mon-fri 08:00-17:30", "2026-11-23T01:00:00Z", true, "2026-11-23T01:00:00Z"},
		{"UTC", "MON 08:00-12:00|Mon 13:00-17:00", "2026-11-23T12:30:00Z", false, "2026-11-23T13:00:00Z"},
		{"UTC", "mon 08:00-12:00|mon 11:00-17:00|mon 17:00-18:00", "2026-11-23T17:30:00Z", true, "2026-11-23T08:00:00Z"},
		{"UTC", "fri 18:00-24:00|sat 00:00-02:00", "2026-11-28T01:00:00Z", true, "2026-11-27T18:00:00Z"},
		{"UTC", "sat-mon 10:00-12:00", "2026-11-24T10:00:00Z", false, "2026-11-28T10:00:00Z"},
		{"UTC", "mon wed 10:00-12:00", "2026-11-24T10:00:00Z", false, "2026-11-25T10:00:00Z"},
		{"UTC", "", "2026-11-24T10:00:00Z", false, "0001-01-01T00:00:00Z"},
		// In spring 02:30 doesn't exist there, and in autumn 02:30 is twice.
		{"Europe/Berlin", "sun 08:00-12:00", "2026-03-29T06:00:00Z", true, "2026-03-29T06:00:00Z"},
		{"Europe/Berlin", "sun 08:00-12:00", "2026-03-28T12:00:00Z", false, "2026-03-29T06:00:00Z"},
		{"Europe/Berlin", "sun 08:00-12:00", "2026-10-25T06:59:59Z", false, "2026-10-25T07:00:00Z"},
	} {
		var lines []string
		if test.lines != "" {
			lines = strings.Split(test.lines, "|")
		}
		h, err := Parse(test.zone, lines)
		require.NoError(t, err)
		moment, err := time.Parse(time.RFC3339, test.moment)
		require.NoError(t, err)
		open, change := h.At(moment)
		require.Equal(t, test.open, open, test)
		require.Equal(t, test.change, change.UTC().Format(time.RFC3339), test)
	}
}

// A line that names its days many times costs no more than one that names them once: hours are read for each answer.
func TestDaysCountOnce(t *testing.T) {
	t.Parallel()
	h, err := Parse("UTC", slices.Repeat([]string{strings.Repeat("mon-sun ", 23) + "08:00-09:00"}, MostLines))
	require.NoError(t, err)
	require.Len(t, h.spans(time.Now()), 2*daysAround+1)
	for day := range h.week {
		require.Len(t, h.week[day], 1)
	}
}

// A business that is never closed has been open for longer than any message is old that is answered.
func TestAlwaysOpen(t *testing.T) {
	t.Parallel()
	h, err := Parse("Europe/Berlin", []string{"mon-sun 00:00-24:00"})
	require.NoError(t, err)
	moment := time.Date(2026, 3, 29, 2, 30, 0, 0, time.UTC)
	open, since := h.At(moment)
	require.True(t, open)
	require.Greater(t, moment.Sub(since), 7*24*time.Hour)
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lines, moment string
		open          bool
		change        string
	}{
		{"mon-fri 09:00-12:00", "2026-11-23T08:59:59Z", false, "2026-11-23T09:00:00Z"},
		{"mon-fri 09:00-12:00", "2026-11-23T09:00:00Z", true, "2026-11-23T12:00:00Z"},
		{"mon-fri 09:00-12:00", "2026-11-27T12:00:00Z", false, "2026-11-30T09:00:00Z"},
		{"mon 20:00-24:00|tue 00:00-02:00", "2026-11-23T21:00:00Z", true, "2026-11-24T02:00:00Z"},
		{"mon-sun 00:00-24:00", "2026-11-23T21:00:00Z", true, "2026-12-09T00:00:00Z"}, // never
		{"", "2026-11-23T21:00:00Z", false, "0001-01-01T00:00:00Z"},
	} {
		h, err := Parse("UTC", slices.DeleteFunc(strings.Split(test.lines, "|"), func(line string) bool { return line == "" }))
		require.NoError(t, err)
		moment, err := time.Parse(time.RFC3339, test.moment)
		require.NoError(t, err)
		open, change := h.Next(moment)
		require.Equal(t, test.open, open, test.moment)
		require.Equal(t, test.change, change.Format(time.RFC3339), test.moment)
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	parse := func(line string) *Hours {
		h, err := Parse("UTC", []string{line})
		require.NoError(t, err)
		return h
	}
	for other, overlaps := range map[string]bool{
		"mon 12:00-13:00": false, "mon 08:00-09:00": false, "sat 09:00-12:00": false, "mon 11:59-13:00": true, "fri-sun 00:00-24:00": true,
		"tue 10:00-10:01": true,
	} {
		require.Equal(t, overlaps, Overlap(parse("mon-fri 09:00-12:00"), parse(other)), other)
		require.Equal(t, overlaps, Overlap(parse(other), parse("mon-fri 09:00-12:00")), other)
	}
}
