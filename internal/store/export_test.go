package store

// MaxQueued is the bound of the write queue, for the tests.
const MaxQueued = maxQueued

// HoldTurn takes the turn to write to a SQLite file and never gives it back.
func HoldTurn(path string) error {
	turns, err := openTurnstile(path)
	if err != nil {
		return err
	}
	turns.take(nil)
	return nil
}

// Abandoned reports that Close has run out of time.
func (db *DB) Abandoned() bool {
	select {
	case <-db.writer.abandoned:
		return true
	default:
		return false
	}
}
