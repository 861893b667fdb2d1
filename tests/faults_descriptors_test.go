package tests

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// firstFreeDescriptor is the number that the next file or connection of the process would have.
func (p *process) firstFreeDescriptor() (n uint64) {
	p.t.Helper()
	for ; ; n++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", p.cmd.Process.Pid, n)); err != nil {
			require.ErrorIs(p.t, err, os.ErrNotExist)
			return n
		}
	}
}

// TestNoFreeDescriptors guarantees that a process which may open no further file goes on with those that it has: requests
// over connections that are open are served, what needs a new connection to a provider or to PostgreSQL is refused and
// costs nothing, and a client that connects meanwhile waits and is served once descriptors are free. The process neither
// ends nor asks for the next connection all the time.
func TestNoFreeDescriptors(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		const funds, calls = 1_000_000, 20
		c := p.operator().customer(t, funds)
		c.ownKey(t, "own", "sk-own-key-of-the-customer")
		s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
		paid := 0
		chat := func() (served bool) {
			a := p.as(c).chat(t, prompt(modelStd, s.Mark, false))
			if a.Status != http.StatusOK {
				requireError(t, a, "internal_error")
				return false
			}
			requireCompletion(t, a, modelStd)
			paid++
			return true
		}
		elsewhere := func() answer {
			return p.as(c).chat(t, prompt(modelKeyed, s.Mark, false), "X-Svc-Use-Byok", "true")
		}
		for range calls { // every connection that a call needs is there
			require.True(t, chat())
		}
		raise := p.limit(unix.RLIMIT_NOFILE, p.firstFreeDescriptor())

		late := &client{http: &http.Client{Transport: &http.Transport{}}, base: p.BaseURL, key: c.Key}
		t.Cleanup(late.http.CloseIdleConnections)
		answers := make(chan answer, 1)
		go func() {
			a, err := late.tryChat(prompt(modelStd, s.Mark, false))
			failOn(t, err)
			answers <- a
		}()
		p.await("a connection that can't be accepted", patience, func() bool {
			chat()
			return strings.Contains(p.log.String(), "too many open files")
		})
		p.await("calls to be served", patience, func() bool { return chat() && paid >= 2*calls })
		p.await("a call that needs a new connection to its provider", patience, func() bool {
			refused := elsewhere()
			code := parseError(t, refused.Body).Code
			requireError(t, refused, code)
			return code == "provider_error" // or internal_error, when PostgreSQL needs one as well
		})
		require.Empty(t, answers, "a new connection was accepted")
		require.Less(t, strings.Count(p.log.String(), "too many open files"), 200, "the process spins")

		raise()
		requireCompletion(t, <-answers, modelStd)
		requireCompletion(t, elsewhere(), modelKeyed)
		p.await("every call to be on record", patience, func() bool { return c.completed(t) == paid+2 && c.wallet(t).HeldMicros == 0 })
		require.EqualValues(t, funds-(paid+1)*usualCharge, c.wallet(t).BalanceMicros, "what the client saw is what was charged")
	})
}

// completed is how many of the customer's calls were answered whole.
func (c *customer) completed(t testing.TB) (n int) {
	t.Helper()
	for _, call := range c.calls(t) {
		n += count(call.Outcome == "completed")
	}
	return n
}
