package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestWithdrawnMessages guarantees that what a customer has taken back at the platform is gone here, too: it is shown to nobody, and no model
// is told of it any more. Such a delivery is accepted and queues nothing.
func TestWithdrawnMessages(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(func(call *upstreamCall) { call.answer("Thanks.", usualUsage) }), nil)
		l := b.line(t, social.PhotoDM)
		customer := l.from(1)
		requireQueued(t, c.deliver(t, customer.message("77", "my card is 4711")), 1)
		c.awaitSent(customer, 1)
		takenBack := customer.sign(fmt.Sprintf(`{"object":"instagram","entry":[{"id":"%[2]s","time":%[3]d,"messaging":[{"sender":{"id":"%[1]s"},`+
			`"recipient":{"id":"%[2]s"},"timestamp":%[3]d,"message":{"mid":"p_77","is_deleted":true}}]}]}`, customer.Customer, l.External, time.Now().UnixMilli()))
		requireQueued(t, c.deliver(t, takenBack), 0)
		by, _ := written(b.messages(t, b.conversation(t, l).ID))
		require.Equal(t, inbox.WithdrawnText, by[0].Text)
		requireQueued(t, c.deliver(t, customer.says("and now?")), 1)
		c.awaitSent(customer, 2)
		asked := b.Model.Calls()
		require.Contains(t, asked[0].Raw, "4711")
		require.NotContains(t, asked[len(asked)-1].Raw, "4711")
		require.Contains(t, asked[len(asked)-1].Raw, "and now?")
		c.svc(t, "doctor")
	})
}

// TestErasureThroughThePlatform guarantees that a customer who withdraws their consent at the local chat platform is erased.
func TestErasureThroughThePlatform(t *testing.T) {
	t.Parallel()
	c := startConnected(t, store.SQLite)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	l := b.line(t, localchat.Type)
	for n := range 2 {
		requireQueued(t, c.deliver(t, l.from(n).says("hello")), 1)
		c.awaitSent(l.from(n), 1)
	}
	withdraws := l.sign(fmt.Sprintf(`{"app_id":"%s","oa_id":"%s","user_id":"%s","user_id_by_app":"979122185046046317","event_name":"user_withdraw","timestamp":"%d"}`,
		localchatAppID, l.External, l.from(0).Customer, time.Now().UnixMilli()))
	requireQueued(t, c.deliver(t, withdraws), 0)
	left := b.conversations(t, l)
	require.Len(t, left, 1)
	require.Equal(t, l.from(1).Customer, left[0].CustomerID)
	requireQueued(t, c.deliver(t, withdraws), 0)
	c.svc(t, "doctor")
}
