package inbox

import (
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Queue is the inbox of one database. It holds no rows; any number of them, in any number of processes, may work on the
// same database. All methods may be called at the same time.
type Queue struct {
	// Log gets a warning, once a minute at most, when lists show a placeholder for a text that doesn't open. Nil drops it.
	// It is set before the queue is used.
	Log *slog.Logger

	db   *store.DB
	ring *vault.Ring

	mu        sync.Mutex
	awoke     time.Time // when Wait last said that work is due
	complaint time.Time // when unreadable last wrote to Log
}

// New opens the queue kept in db, which must have been opened with [Kind] among its kinds. The ring seals and opens
// what customers and assistants say; nil is for those that only look at states ([Queue.Depth], [Queue.DeadTurns]).
func New(db *store.DB, ring *vault.Ring) *Queue {
	return &Queue{db: db, ring: ring}
}
