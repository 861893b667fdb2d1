package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

// TestWorkersKeepThePlatformsPace guarantees that two workers with a long queue send on one channel no faster than its platform
// publishes, and nothing from a 429 until the end of the pause that it asks for; the platform itself judges. Every customer is answered.
func TestWorkersKeepThePlatformsPace(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		const customers = 120
		c := prepareConnected(t, engine)
		b := c.business(t, 10_000_000, c.up.script(replying), nil)
		l := b.line(t, bot.Type)
		c.platform.Script("Re: question 40.", platformfake.TooManyFor(4*time.Second))
		together(8, func(i int) {
			for n := i; n < customers; n += 8 {
				a, err := c.tryDeliver(l.from(n).says(fmt.Sprintf("question %d.", n)))
				if failOn(t, err) && !a.accepted() {
					t.Errorf("not acknowledged: %d %s", a.Status, a.Body)
				}
			}
		})
		c.startWorker()
		c.startWorker()
		c.await("all customers to be answered", patience, func() bool { return len(c.platform.Sent()) >= customers })
		require.Equal(t, platformfake.Verdict{}, c.platform.Verdict())
		require.Equal(t, customers+1, c.platform.Attempts(""), "one message was refused, and each was delivered once")
		for n := range customers {
			require.Equal(t, []string{fmt.Sprintf("Re: question %d.", n)}, c.sentTo(l.from(n)))
		}
		c.svc(t, "doctor")
	})
}
