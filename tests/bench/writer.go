package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// writerInterval is the pause after each write: a worker waits for the model and the platform between two.
	writerInterval = 20 * time.Millisecond
	// writerCustomers is how many conversations the writer answers in turns.
	writerCustomers = 100
	// requestBytes is the size of a turn's stored request: instructions and some history.
	requestBytes = 2000
)

// writerOrder names where the second process writes.
type writerOrder struct{ Database, OrgID, ChannelID string }

// writerTurn are the writes of a worker for one answer, in their order (docs/architecture.md).
type writerTurn struct {
	queue *inbox.Queue
	route store.Route
	n     int // of the answer

	lease   inbox.Lease
	waiting []string // ids of the texts to answer
	turnID  string
	part    inbox.Outbound
}

// runWriter is the second process: it answers conversations with the worker's own writes through the store, with a pause
// after each, until its input ends. Then it prints how long each write took, in nanoseconds. What a platform would
// deliver in between is written, too, but not measured: the worker doesn't wait for it.
func runWriter(ctx context.Context, in io.Reader, out io.Writer) error {
	input := json.NewDecoder(in)
	var order writerOrder
	if err := input.Decode(&order); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	location, err := store.ParseLocation(store.SQLite, order.Database)
	if err != nil {
		return fmt.Errorf("finding the database: %w", err)
	}
	db, err := store.Open(ctx, location, store.Options{Kinds: []store.Kind{inbox.Kind}})
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close(ctx) //nolint:errcheck // every write has been waited for
	ring, err := vault.ParseRing(os.Getenv(masterKeyVariable))
	if err != nil {
		return fmt.Errorf("reading the master key: %w", err)
	}
	ended := make(chan struct{})
	go func() { // the program ends with it at the latest
		defer close(ended)
		_, _ = io.Copy(io.Discard, input.Buffered())
		_, _ = io.Copy(io.Discard, in)
	}()
	output := json.NewEncoder(out)
	if err := output.Encode(true); err != nil {
		return fmt.Errorf("saying that it is ready: %w", err)
	}
	turn := &writerTurn{queue: inbox.New(db, ring), route: store.Route{
		ChannelID: order.ChannelID, OrgID: order.OrgID, Type: "social_messenger", State: store.ChannelActive,
	}}
	writes, err := turn.run(ctx, ended)
	if err != nil {
		return err
	}
	if err := output.Encode(writes); err != nil {
		return fmt.Errorf("saying how long the writes took: %w", err)
	}
	return nil
}

// run answers until the end is wanted, and always finishes the answer it is at; what comes after the end isn't measured.
func (t *writerTurn) run(ctx context.Context, ended <-chan struct{}) (took []time.Duration, err error) {
	over := func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	for !over() {
		t.n++
		if err := t.arrive(ctx); err != nil {
			return nil, fmt.Errorf("delivering: %w", err)
		}
		for i, write := range []func(context.Context) error{t.take, t.begin, t.answer, t.sent, t.release} {
			if i == 1 {
				if err := t.read(ctx); err != nil {
					return nil, err
				}
			}
			select {
			case <-ended:
			case <-time.After(writerInterval):
			}
			measured, began := !over(), time.Now()
			if err := write(ctx); err != nil {
				return nil, err
			}
			if measured {
				took = append(took, time.Since(began))
			}
		}
	}
	return took, nil
}

func (t *writerTurn) arrive(ctx context.Context) error {
	customer := strconv.Itoa(t.n % writerCustomers)
	return t.queue.Enqueue(ctx, []inbox.Arrival{{Route: t.route, Items: []inbox.Item{{
		Kind: platforms.Text, CustomerRef: customer, Address: customer, MessageID: store.NewID("mid"),
		Text: "Hello, do you have this in size M? I would take two of them.",
	}}}})
}

func (t *writerTurn) take(ctx context.Context) error {
	leases, err := t.queue.Lease(ctx, inbox.Places{Free: 1}, time.Minute)
	if err != nil {
		return err
	}
	if len(leases) != 1 {
		return fmt.Errorf("%d conversations are due instead of one", len(leases))
	}
	t.lease = leases[0]
	return nil
}

// read finds out what waits in the conversation. It is no write.
func (t *writerTurn) read(ctx context.Context) error {
	work, err := t.queue.Open(ctx, t.lease, 10)
	if err != nil {
		return err
	}
	t.waiting = t.waiting[:0]
	for _, message := range work.Waiting {
		t.waiting = append(t.waiting, message.ID)
	}
	return nil
}

func (t *writerTurn) begin(ctx context.Context) error {
	t.turnID = store.NewID("trn")
	return t.queue.BeginCall(ctx, t.lease, inbox.Turn{ID: t.turnID, AgentID: "agt_bench", Request: make([]byte, requestBytes)}, t.waiting)
}

func (t *writerTurn) answer(ctx context.Context) error {
	parts, err := t.queue.Answer(ctx, t.lease, t.turnID, []string{"Yes, we have. Shall I put two of them aside for you?"}, true)
	if err != nil {
		return err
	}
	t.part = parts[0]
	return nil
}

func (t *writerTurn) sent(ctx context.Context) error {
	return t.queue.Sent(ctx, t.lease, t.part.ID, store.NewID("mid"), "")
}

func (t *writerTurn) release(ctx context.Context) error { return t.queue.Release(ctx, t.lease) }
