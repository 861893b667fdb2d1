package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// onEachTwice runs a test with a fixture on each engine, and two workers on its database, each with connections of its own, that send
// as fast as the platforms allow. They run from start until the test ends.
func onEachTwice(t *testing.T, run func(t *testing.T, h *fixture, start func())) {
	t.Helper()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			at := storetest.Location(t, engine)
			h := build(t, storetest.OpenAt(t, at, store.Options{Kinds: kinds}))
			other := storetest.OpenAt(t, at, store.Options{Kinds: kinds})
			run(t, h, func() {
				for _, db := range []*store.DB{h.db, other} {
					ctx, stop := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					w := h.worker(func(c *Config) {
						c.DB, c.Queue, c.Platforms = db, inbox.New(db, h.ring), h.client
					})
					go func() { ended <- w.Run(ctx, patience) }()
					t.Cleanup(func() {
						stop()
						require.NoError(t, <-ended)
					})
				}
			})
		})
	}
}

// tries are how many tries to send were counted.
func (h *fixture) tries(t *testing.T) (tries int) {
	t.Helper()
	require.NoError(t, h.db.Reader().QueryRowContext(t.Context(), `SELECT sum(attempts) FROM outbound_messages`).Scan(&tries))
	return tries
}

// TestWorkersKeepThePace guarantees that a long queue of messages goes out no faster than the platform publishes, whatever many workers
// send them, that no message goes out while the platform wants a pause, and that waiting costs no message a try.
func TestWorkersKeepThePace(t *testing.T) {
	t.Parallel()
	onEachTwice(t, func(t *testing.T, h *fixture, start func()) {
		const customers, parts = 52, 2
		h.vendor.reply = func(context.Context, int, []string) (string, error) { return strings.Repeat("word ", 1500), nil }
		h.platform.Script("to-20", platformfake.TooManyFor(4*time.Second))
		for i := range customers {
			h.say(t, bot, fmt.Sprint(i), "hello")
		}
		start()
		sent := h.platform.WaitSent(t, customers*parts)
		require.Len(t, sent, customers*parts)
		require.Equal(t, platformfake.Verdict{}, h.platform.Verdict())
		require.Equal(t, 1+customers*parts, h.platform.Attempts(""))
		require.Equal(t, 1, h.tries(t), "of the message that was refused")
	})
}

// TestAPairWaitsAlone guarantees that the pause which a platform wants for one customer holds up this customer's messages and no others.
func TestAPairWaitsAlone(t *testing.T) {
	t.Parallel()
	onEachTwice(t, func(t *testing.T, h *fixture, start func()) {
		h.channel(t, acme, "1002", social.ChatApp, helper)
		for _, customer := range []string{"8491", "8492"} {
			h.deliver(t, "1002", inbox.Item{
				Kind: platforms.Event, CustomerRef: customer, Address: customer, MessageID: customer, Text: "image",
			})
			_, err := h.queue.SendAsHuman(t.Context(), "test", acme, h.conversation(t, acme, customer).ID, []string{"one", "two", "three"})
			require.NoError(t, err)
		}
		h.platform.Script("8491", platformfake.Fault{}, platformfake.TooManyForOne)
		start()
		h.platform.WaitSent(t, 4)
		require.Len(t, h.platform.SentTo("8492"), 3, "the other customer doesn't wait")
		h.platform.WaitSent(t, 6)
		require.Equal(t, platformfake.Verdict{}, h.platform.Verdict())
		require.Equal(t, 4, h.platform.Attempts("8491"))
		require.Equal(t, 1, h.tries(t))
	})
}
