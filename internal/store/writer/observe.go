package writer

import (
	"log/slog"
	"time"
)

// Batch describes one transaction of the writer, for metrics.
type Batch struct {
	Operations  int           // that ended in it, well or not
	Failed      int           // of these, with an error
	Retried     int           // operations that will run again, in smaller groups or alone
	PutBack     int           // operations that time cut off
	Turn        time.Duration // waited for the turn
	Transaction time.Duration // from BEGIN to the end of COMMIT
	Refused     int           // since the transaction before, at the door or in line: they would have had to wait too long
	Expected    time.Duration // that the next transaction is expected to take, its turn included
}

// Observer observes each transaction. Who runs the transaction calls it, so it must return quickly.
type Observer interface {
	ObserveBatch(batch Batch)
}

// calmAfter is how long no operation must have been refused until the condition is over.
const calmAfter = 10 * time.Second

// refusalLog logs refused operations as one condition, with a line when it begins and one when it is over. The metric counts them. Only the logger
// must be set. The writer's mutex guards it.
type refusalLog struct {
	logger      *slog.Logger
	began, last time.Time // of the refusals, zero while there are none
	refused     int
}

// note is called after each transaction, with the number of operations refused since the last transaction and the expected duration of the next
// one.
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
