package store

import (
	"log/slog"
	"time"
)

// calmAfter is how long nothing must have been refused until the writer counts as well again.
const calmAfter = 10 * time.Second

// refusalLog logs that operations are refused as one condition: a line when it begins and one when it is over. The metric
// counts them meanwhile. The zero value but for the logger is ready; it belongs to one goroutine.
type refusalLog struct {
	logger      *slog.Logger
	began, last time.Time // of the refusals, zero while there are none
	refused     int
}

// note is called after each transaction, with how many operations were refused since the one before, and how long the next
// one is expected to take.
func (l *refusalLog) note(now time.Time, refused int, expected time.Duration) {
	switch {
	case refused > 0:
		if l.began.IsZero() {
			l.began = now
			l.logger.Warn("writes are refused: more wait than the store can do in time",
				"refused", refused, "transaction_expected", expected)
		}
		l.last = now
		l.refused += refused
	case !l.began.IsZero() && now.Sub(l.last) >= calmAfter:
		l.logger.Warn("all writes are served again", "refused", l.refused, "during", l.last.Sub(l.began))
		l.began, l.refused = time.Time{}, 0
	}
}
