package inbox

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Queue is the inbox of one database. It holds no rows; any number of them, in any number of processes, may work on the same
// database. It is safe for concurrent use.
type Queue struct {
	// Log gets a warning, once a minute at most, when lists show a placeholder for a text that doesn't open. Nil discards it.
	// It must be set before the queue is used.
	Log *slog.Logger

	db   *store.DB
	ring *vault.Ring

	mu        sync.Mutex
	awoke     time.Time // when Wait last returned because of due work
	complaint time.Time // when unreadable last wrote to Log
}

// New opens the queue kept in db, which must have been opened with [Kind] among its kinds. The ring seals and opens what
// customers and assistants write; nil suffices for reads of states ([Queue.Depth], [Queue.DeadTurns]).
func New(db *store.DB, ring *vault.Ring) *Queue {
	return &Queue{db: db, ring: ring}
}

// The errors that callers distinguish with [errors.Is], besides [store.ErrNotFound] and the store's faults. None of them
// contains anything that a customer or tenant wrote.
var (
	// ErrLeaseLost: another worker has the conversation, it was given back, or it is gone. Nothing was written.
	ErrLeaseLost = errors.New("inbox: the lease is lost")
	// ErrHandedOver: a person has the conversation, or the customer has blocked the channel. The turn or the part of an answer
	// was discarded, if it was not already.
	ErrHandedOver = errors.New("inbox: the conversation was handed over")
	// ErrEnded: the turn or the message has ended, or never existed.
	ErrEnded = errors.New("inbox: the turn or message has ended")
	// ErrConversationClosed: the customer has blocked the channel, so that nothing can be sent.
	ErrConversationClosed = errors.New("inbox: the conversation is closed")
	// ErrInvalid: the caller's arguments can't be stored.
	ErrInvalid = errors.New("inbox: invalid")
)
