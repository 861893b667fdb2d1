package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Queue is the inbox of one database. It holds no rows; any number of them, in any number of processes, may work on the same
// database. It is safe for concurrent use.
type Queue struct {
	// Log gets a warning, once a minute at most, when lists show a placeholder for a text that doesn't open. Nil discards it.
	// It must be set before the queue is used.
	Log *slog.Logger

	db *store.DB
	// write runs an operation in a transaction of the writer.
	write func(ctx context.Context, op store.Op) error
	ring  *vault.Ring
	files *media.Keeper
	ids   atomic.Pointer[idKeys] // nil until loadIDs has found or made a key

	mu        sync.Mutex
	awoke     time.Time // when Wait last returned because of due work
	complaint time.Time // when unreadable last wrote to Log
	skipped   []string  // channel types, see SkipUnknown; replaced, never changed
	served    string    // the organization after which the next lease begins, see due
}

// New opens the queue kept in db, which must have been opened with [Kind] among its kinds. The ring seals and opens what
// customers and assistants write; nil suffices for reads of states ([Queue.Depth], [Queue.DeadTurns]).
func New(db *store.DB, ring *vault.Ring) *Queue {
	return &Queue{
		db: db, ring: ring, files: media.NewKeeper(db, ring),
		write: func(ctx context.Context, op store.Op) error { return db.Do(ctx, Kind, op) },
	}
}

// SkipUnknown leaves conversations of channels of unknown types out of [Queue.Lease] and [Queue.Wait] from now on: this program
// doesn't contain their platforms. They stay due, for a program that does. added are the types that were not left out before. It
// reads the types of all channels.
func (q *Queue) SkipUnknown(ctx context.Context, known func(channelType string) bool) (added []string, err error) {
	types, err := q.db.Channels.Types(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for channels without a platform: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range types {
		if !known(t.Type) && !slices.Contains(q.skipped, t.Type) {
			added = append(added, t.Type)
		}
	}
	q.skipped = slices.Concat(q.skipped, added)
	return added, nil
}

// skip returns the condition that leaves skipped types out of a statement on conversations, and its arguments after args.
func (q *Queue) skip(args []any) (condition string, with []any) {
	q.mu.Lock()
	skipped := q.skipped
	q.mu.Unlock()
	if len(skipped) == 0 {
		return "", args
	}
	list := paddedList(skipped)
	unknown := " AND channel_id NOT IN (SELECT id FROM channels WHERE type IN " + store.ParameterRows(len(list), 1, len(args)) + ")"
	return unknown, store.Arguments(list, args...)
}

// paddedList repeats the last item until the list has one of a few lengths.
func paddedList[T any](items []T) []T {
	length := 1
	for length < len(items) {
		length *= 8
	}
	padded := slices.Clone(items)
	for len(padded) < length {
		padded = append(padded, items[len(items)-1])
	}
	return padded
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
	// ErrDraftMode: the channel's answers are drafts, see [Queue.Propose].
	ErrDraftMode = errors.New("inbox: the channel's answers are drafts")
	// ErrRouteChanged: the remembered route of a delivery is no longer its channel's. Nothing was stored.
	ErrRouteChanged = errors.New("inbox: the route of the channel has changed")
	// ErrInvalid: the caller's arguments can't be stored.
	ErrInvalid = errors.New("inbox: invalid")
)
