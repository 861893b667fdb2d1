package inbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The quiet window ends some time after the last message, and at the latest some time after the first. It is in the
// database, so that it survives restarts.
func TestDebounce(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.route.DebounceMS, c.route.DebounceMaxMS = 3000, 8000
	c.arrive(t, textOf("ann", "1", "one"))
	for _, id := range []string{"2", "3"} {
		c.pass(2999 * time.Millisecond)
		c.idle(t)
		c.arrive(t, textOf("ann", id, id))
	}
	c.pass(2001 * time.Millisecond)
	c.idle(t)
	c.pass(time.Millisecond)
	lease := c.take(t)
	require.Len(t, c.open(t, lease).Waiting, 3, "8 s after the first")

	turnID := c.begin(t, lease)
	c.arrive(t, textOf("ann", "4", "four"))
	require.Empty(t, c.open(t, lease).Waiting, "its own window lasts")
	parts, err := c.Answer(t.Context(), lease, turnID, []string{"x"}, true)
	require.NoError(t, err)
	require.NoError(t, c.Sent(t.Context(), lease, parts[0].ID, "p1", ""))
	require.NoError(t, c.Release(t.Context(), lease))
	c.idle(t)
	c.pass(3 * time.Second)
	require.Equal(t, []string{"four"}, textsOf(c.open(t, c.take(t)).Waiting))
}

// Without a cap of its own a window moves for 30 seconds at most, or for its own length.
func TestDebounceWithoutCap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ window, want time.Duration }{{20 * time.Second, 30 * time.Second}, {40 * time.Second, 40 * time.Second}} {
		q := newClocked(t)
		q.route.DebounceMS = c.window.Milliseconds()
		q.arrive(t, textOf("ann", "1", "one"))
		q.pass(c.window - time.Second)
		q.arrive(t, textOf("ann", "2", "two"))
		q.pass(c.want - c.window + time.Second - time.Millisecond)
		q.idle(t)
		q.pass(time.Millisecond)
		q.take(t)
	}
}

// A window delays only what waits in it: nothing that is due already, and no human.
func TestDebounceDelaysNothingElse(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.arrive(t, textOf("ann", "1", "one")) // without a window: due
	c.route.DebounceMS = 3000
	c.arrive(t, textOf("ann", "2", "two"))
	lease := c.take(t)
	require.NoError(t, c.Release(t.Context(), lease))
	lease = c.take(t)
	require.Len(t, c.open(t, lease).Waiting, 2)
	c.begin(t, lease)

	c.arrive(t, textOf("bob", "3", "hi"))
	list, err := c.Conversations(t.Context(), "org_1", ConversationFilter{}, pageAll)
	require.NoError(t, err)
	_, err = c.SendAsHuman(t.Context(), "usr_1", "org_1", list[1].ID, []string{"hello Bob"})
	require.NoError(t, err)
	c.arrive(t, textOf("bob", "4", "hi again"))
	require.Equal(t, "bob", c.take(t).CustomerRef)
}
