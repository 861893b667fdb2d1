package conditions

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// node is a process that watches.
type node struct {
	Watch

	t            *testing.T
	own, service []Condition
	asked        int
	fails        error
}

func newNode(t *testing.T, db *store.DB, name string) *node {
	t.Helper()
	n := &node{t: t}
	n.Watch = Watch{
		DB: db, Node: name, Endpoints: []string{"op_1"}, Logger: slog.New(slog.DiscardHandler),
		Own: func() []Condition { return append([]Condition(nil), n.own...) },
		Service: func(context.Context) ([]Condition, error) {
			n.asked++
			return n.service, n.fails
		},
	}
	n.lives()
	return n
}

func (n *node) lives() {
	require.NoError(n.t, n.DB.Processes.Announce(n.t.Context(), store.Process{ID: n.Node, Name: n.Node}))
}

func (n *node) ends() { require.NoError(n.t, n.DB.Processes.End(n.t.Context(), n.Node)) }

// rounds runs a number of rounds of all nodes, which run each round at the same time.
func rounds(n int, nodes ...*node) {
	for range n {
		var all sync.WaitGroup
		for _, one := range nodes {
			all.Go(func() { one.Round(context.WithoutCancel(one.t.Context())) })
		}
		all.Wait()
	}
}

// listed returns the conditions as words: kind, subject, node and text.
func listed(t *testing.T, db *store.DB) (all []string) {
	t.Helper()
	found, err := List(t.Context(), db)
	require.NoError(t, err)
	for _, c := range found {
		all = append(all, strings.Join([]string{string(c.Kind), c.Subject, c.Node, c.Text}, "|"))
	}
	return all
}

// told returns the operator's events, oldest first, as their types and bodies' texts.
func told(t *testing.T, db *store.DB) (all []string) {
	t.Helper()
	deliveries, err := db.EventDeliveries.OfEndpoint(t.Context(), "", "op_1", store.Page{})
	require.NoError(t, err)
	for _, d := range deliveries {
		_, subject, _ := strings.Cut(d.Payload, `"subject":"`)
		subject, _, _ = strings.Cut(subject, `"`)
		all = append([]string{string(d.Type) + " " + subject}, all...)
	}
	return all
}

// TestConditionsBeginAndEndOnce guarantees on both engines that each change of a condition is one event over all processes, that a condition
// begins and ends only if two rounds agree, and that its beginning outlives the process that saw it first.
func TestConditionsBeginAndEndOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		a, b := newNode(t, db, "a"), newNode(t, db, "b")
		queue := Condition{Kind: QueueWaits, Text: "waits"}
		a.own, b.own = []Condition{{Kind: VendorFailing, Subject: "v", Text: "at a"}}, []Condition{{Kind: VendorFailing, Subject: "v", Text: "at b"}}
		a.service, b.service = []Condition{queue}, []Condition{queue}
		rounds(1, a, b)
		require.Empty(t, listed(t, db), "a condition that is seen once may be gone")
		rounds(3, a, b)
		require.Equal(t, []string{"queue_waits|||waits", "vendor_failing|v|a|at a", "vendor_failing|v|b|at b"}, listed(t, db))
		require.ElementsMatch(t, []string{"condition.began ", "condition.began v"}, told(t, db))
		require.True(t, a.asked == 4 && b.asked == 0 || a.asked == 0 && b.asked == 4, "one process watches the whole service")

		a.own[0].Text = "still"
		rounds(1, a, b)
		require.Contains(t, listed(t, db), "vendor_failing|v|a|still")
		a.own = nil
		rounds(1, a, b)
		a.own = []Condition{{Kind: VendorFailing, Subject: "v", Text: "again"}}
		rounds(1, a, b)
		a.own = nil
		rounds(1, a, b)
		require.Len(t, listed(t, db), 3, "it was missed in one round only")
		rounds(1, a, b)
		require.Equal(t, []string{"queue_waits|||waits", "vendor_failing|v|b|at b"}, listed(t, db))
		require.Len(t, told(t, db), 2, "another process sees it still")

		since := func(node string) int64 {
			all, err := List(t.Context(), db)
			require.NoError(t, err)
			for _, c := range all {
				if c.Node == node {
					return c.Since
				}
			}
			return 0
		}
		first := since("b")
		b.ends() // and the process is started anew
		c := newNode(t, db, "c")
		c.own, a.service = b.own, nil // and the queue is empty now
		rounds(1, a, c)
		require.Equal(t, first, since("c"), "before the other process, which misses the dead one, ends its condition")
		rounds(1, a, c)
		require.Equal(t, []string{"vendor_failing|v|c|at b"}, listed(t, db), "the dead process's condition ends with it")
		require.Equal(t, first, since("c"))
		require.Equal(t, []string{"condition.ended "}, told(t, db)[2:])
		c.own = nil
		rounds(2, a, c)
		require.Empty(t, listed(t, db))
		require.Equal(t, []string{"condition.ended ", "condition.ended v"}, told(t, db)[2:])
	})
}

// TestConditionsOfOneNodeNeedNoOther guarantees that a store with unreadable tables of the whole service ends no condition of it and hides
// none of a process, and that a living process keeps the duty while others take the duty of a process that has ended.
func TestConditionsOfOneNodeNeedNoOther(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		a := newNode(t, db, "a")
		a.service = []Condition{{Kind: QueueWaits, Text: "waits"}}
		rounds(2, a)
		a.service, a.fails, a.own = nil, errors.New("slow"), []Condition{{Kind: StoreSlow, Text: "slow"}}
		rounds(3, a)
		require.Equal(t, []string{"queue_waits|||waits", "store_slow||a|slow"}, listed(t, db))

		b := newNode(t, db, "b")
		rounds(2, b)
		require.Zero(t, b.asked)
		a.ends()
		rounds(2, b)
		require.Equal(t, 2, b.asked)
		require.Empty(t, listed(t, db))
	})
}

// TestKindsAreComplete guarantees that each kind has a severity of the alerts and an advice, and that a kind of another version is shown.
func TestKindsAreComplete(t *testing.T) {
	t.Parallel()
	require.Len(t, Kinds(), len(kinds)-2)
	for kind := range kinds {
		shown := (&Condition{Kind: kind, Since: 1}).Show()
		require.Contains(t, []string{"critical", "warning", "info"}, shown.Severity)
		require.NotEmpty(t, shown.Action, kind)
		require.Equal(t, "1970-01-01T00:00:00.001Z", shown.Since)
	}
	require.Equal(t, "warning", (&Condition{Kind: "later"}).Show().Severity)
	merged := Merge([]Condition{{Kind: QueueWaits}, {Kind: PartDown}}, []Condition{{Kind: QueueWaits, Since: 7}, {Kind: TurnsDead, Since: 8}, {Kind: OtherModel, Node: "a", Since: 9}})
	require.Equal(t, []Condition{{Kind: PartDown}, {Kind: QueueWaits, Since: 7}, {Kind: OtherModel, Node: "a", Since: 9}}, merged)
}
