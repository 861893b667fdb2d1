package store

// MaxQueued is the bound of the write queue, for the tests.
const MaxQueued = maxQueued

// HoldTurn takes the turn to write to a SQLite file until release is called.
func HoldTurn(path string) (release func() error, err error) {
	turns, err := openTurnstile(path)
	if err != nil {
		return nil, err
	}
	turns.take(nil)
	return turns.close, nil
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
