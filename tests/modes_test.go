package tests

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

// said is the delivery of a text that the customer wrote some time ago.
func (s sender) said(text string, ago time.Duration) delivery {
	arguments, at := encodedArguments(s, freshID(), text), time.Now().Add(-ago)
	arguments[4], arguments[5] = at.UnixMilli(), at.Unix()
	return s.sign(fmt.Sprintf(messageBodies[s.Type], arguments...))
}

// TestMaximumAge guarantees that a message which is older than its channel allows isn't answered late: people see why it stands, and it is
// answered when one of them wants it, charged once.
func TestMaximumAge(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, bot.Type)
		changed := b.call(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"maxAgeMinutes": 60}, http.StatusOK)
		require.EqualValues(t, 60, changed["maxAgeMinutes"])
		late, early := l.from(1), l.from(2)
		requireQueued(t, c.deliver(t, late.said("old?", 2*time.Hour)), 1)
		c.await("the old message to stand", patience, func() bool {
			all := b.conversations(t, l)
			return len(all) == 1 && all[0].Attention == "message_too_old"
		})
		requireQueued(t, c.deliver(t, early.said("young?", 10*time.Minute)), 1)
		require.Equal(t, []string{"Re: young?"}, c.awaitSent(early, 1))
		require.Empty(t, c.sentTo(late))

		waiting := b.call(t, http.MethodGet, "/conversations?waiting=true&code=message_too_old", nil, http.StatusOK)["data"].([]any)
		require.Len(t, waiting, 1)
		b.post(t, "/conversations/"+waiting[0].(map[string]any)["id"].(string)+"/retry", nil, http.StatusOK)
		require.Equal(t, []string{"Re: old?"}, c.awaitSent(late, 1))
		b.awaitCalls(t, 2)
		c.svc(t, "doctor")
	})
}
