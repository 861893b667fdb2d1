package tests

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestNodesShareWallets guarantees that several nodes are one bank: what one node books holds on the next, without
// sticky sessions, and in one order, however the database's clock is set.
func TestNodesShareWallets(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.Postgres, up)
	setClock := storetest.PostgresClock(t, d.location)
	c := startCluster(t, d, clusterNodes, 0)
	t.Run("no debt", func(t *testing.T) { requireNoDebt(t, c, up) })
	t.Run("one key, two nodes", func(t *testing.T) { requireOneRunEach(t, c, up) })
	t.Run("the operator's interface", func(t *testing.T) { requireOneOperator(t, c, up) })
	t.Run("a clock that is set", func(t *testing.T) { requireOrderedStatement(t, c, up, setClock) })
	for _, recent := range []string{"0", "1m", "1h", "25h"} {
		c.nodes[0].svc(t, "doctor", "--recent", recent)
	}
}

// requireOneOperator requires that a credit through the operator's interface of one node is spent on another, and that a suspension on one
// holds at the next request on the others, while a stream that runs is answered to its end and charged.
func requireOneOperator(t *testing.T, c *cluster, up *upstream) {
	t.Helper()
	key := c.nodes[0].operatorsKey(t)
	operator := func(node int) operatorsInterface { return operatorsInterface{c.nodes[node].SideURL, key} }
	org := "/organizations/" + operator(0).ask(t, http.StatusCreated, http.MethodPost, "/organizations", `{"name":"Three nodes"}`)["id"].(string)
	as := func(node int, key any) *client { return c.node(node).withKey(key.(string)) }
	shop := operator(1).ask(t, http.StatusCreated, http.MethodPost, org+"/api-keys", `{}`)["key"]
	operator(2).ask(t, http.StatusCreated, http.MethodPost, org+"/wallet/credits", `{"amountMicros":"1000000","reference":"inv-1"}`)
	s := up.script(replying)
	require.Positive(t, requireAnswered(t, as(1, shop).chat(t, prompt(modelStd, s.Mark, false)), modelStd, false).charged(t))
	more, stream := newGate(t), make(chan answer, 1)
	slow := up.script(func(call *upstreamCall) { call.answerInTwo("We have ", more, "sencha.") })
	go func() {
		a, _ := as(0, shop).tryChat(prompt(modelStd, slow.Mark, true))
		stream <- a
	}()
	require.Eventually(t, func() bool { return more.waiting.Load() == 1 }, time.Minute, time.Millisecond)
	for round := range 5 {
		operator(round%3).ask(t, http.StatusOK, http.MethodPost, org+"/suspend", `{"reason":"unpaid"}`)
		for node := range 3 {
			refused, err := as(node, shop).tryChat(prompt(modelStd, s.Mark, false))
			require.NoError(t, err)
			require.Equal(t, http.StatusPaymentRequired, refused.Status)
			require.Contains(t, string(refused.Body), "organization_suspended")
		}
		if round == 0 {
			more.open()
			require.Positive(t, requireAnswered(t, <-stream, modelStd, true).charged(t))
		}
		operator((round+1)%3).ask(t, http.StatusOK, http.MethodPost, org+"/resume", `{}`)
		require.Positive(t, requireAnswered(t, as(round%3, shop).chat(t, prompt(modelStd, s.Mark, false)), modelStd, false).charged(t))
	}
}

// requireOrderedStatement requires that all nodes write one statement, in which each balance follows from the one before, while the clock of
// the database is set forward and back by an hour. Its pages and its table are in that order.
func requireOrderedStatement(t *testing.T, c *cluster, up *upstream, setClock func(ahead time.Duration)) {
	t.Helper()
	const atOnce, rounds, leastSteps = 60, 5, 4
	s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	customer := c.operator().customer(t, 1_000_000_000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clock sync.WaitGroup
	var steps atomic.Int64
	clock.Go(func() {
		for ; ctx.Err() == nil; steps.Add(1) {
			setClock([]time.Duration{time.Hour, 0}[steps.Load()%2])
			<-time.After(100 * time.Millisecond)
		}
	})
	calls := 0
	for round := 0; !t.Failed() && (round < rounds || steps.Load() < leastSteps); round++ {
		together(atOnce, func(i int) {
			a, err := c.node(i).as(customer).tryChat(prompt(modelStd, s.Mark, i%2 == 0))
			if failOn(t, err) && expectStatus(t, a, http.StatusOK) {
				expectWhole(t, a)
			}
		})
		calls += atOnce
	}
	cancel()
	clock.Wait()
	setClock(0)
	customer.awaitCalls(t, calls)
	customer.awaitNothingHeld(t)

	as := c.node(1).as(customer)
	statement := requirePages(t, as, "/wallet/transactions?limit=100")
	require.Len(t, statement, calls+1)
	balance := customer.wallet(t).BalanceMicros
	require.EqualValues(t, 1_000_000_000-calls*usualCharge, balance)
	for i, entry := range statement {
		require.Equal(t, strconv.FormatInt(balance, 10), entry["balanceMicros"], "row %d of %d", i, len(statement))
		amount, err := strconv.ParseInt(entry["amountMicros"], 10, 64)
		require.NoError(t, err)
		balance -= amount
		if i > 0 {
			require.LessOrEqual(t, entry["at"], statement[i-1]["at"])
		}
	}
	require.Zero(t, balance)

	table, err := csv.NewReader(bytes.NewReader(as.get(t, "/wallet/transactions?format=csv").Body)).ReadAll()
	require.NoError(t, err)
	require.Len(t, table, len(statement)+1)
	for i, row := range table[1:] {
		entry := statement[i]
		require.Equal(t, []string{entry["id"], entry["at"], entry["kind"], entry["amountMicros"], entry["balanceMicros"]}, row[:5])
	}
}

// requirePages reads a list to its end. Of its members only texts are returned.
func requirePages(t *testing.T, as *client, path string) (all []map[string]string) {
	t.Helper()
	for next := path; ; {
		var page struct {
			Data       []map[string]any `json:"data"`
			NextCursor string           `json:"nextCursor"`
		}
		a := as.get(t, next)
		require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
		require.NoError(t, json.Unmarshal(a.Body, &page))
		for _, element := range page.Data {
			texts := map[string]string{}
			for name, value := range element {
				if text, ok := value.(string); ok {
					texts[name] = text
				}
			}
			all = append(all, texts)
		}
		if page.NextCursor == "" {
			return all
		}
		next = path + "&cursor=" + page.NextCursor
	}
}

// requireNoDebt requires that of many calls through all nodes at once, in both forms, keyed or not, exactly those pass
// that the wallet can pay: each costs all that is held for it, so the last credit is spent, and no more. The others are
// 402 and reach no provider.
func requireNoDebt(t *testing.T, c *cluster, up *upstream) {
	t.Helper()
	const n, paid, output = 210, 40, 50
	s := up.script(func(call *upstreamCall) {
		call.answer(usualText, usage(promptBound(call.Body.Messages[0].Content), output))
	})
	cost := promptBound(s.Mark) + 2*output
	customer := c.operator().customer(t, paid*cost)
	var served, refused atomic.Int64
	together(n, func(i int) {
		var headers []string
		if i%4 == 0 {
			headers = []string{keyHeader, fmt.Sprintf("call-%d", i)}
		}
		a, err := c.node(i).as(customer).tryChat(prompt(modelStd, s.Mark, i%2 == 0, fmt.Sprintf(`"max_tokens":%d`, output)), headers...)
		switch {
		case !failOn(t, err):
		case a.Status == http.StatusPaymentRequired && strings.Contains(string(a.Body), `"insufficient_credits"`):
			refused.Add(1)
		case expectStatus(t, a, http.StatusOK) && expectWhole(t, a):
			served.Add(1)
		}
	})
	require.EqualValues(t, paid, served.Load())
	require.EqualValues(t, n-paid, refused.Load())
	require.Len(t, s.Calls(), paid, "requests at the provider")
	for _, call := range customer.awaitCalls(t, paid) {
		require.Equal(t, "completed", call.Outcome)
		require.Equal(t, cost, call.Charged)
		require.Zero(t, call.Shortfall)
	}
	require.Zero(t, customer.wallet(t).BalanceMicros)
	for _, node := range c.nodes {
		requireError(t, node.as(customer).chat(t, prompt(modelStd, s.Mark, false, `"max_tokens":1`)), "insufficient_credits")
	}
}

// promptBound is what is held for a prompt of one message, in tokens.
func promptBound(content string) int64 { return int64(len(content)) + 8 + 16 }

// expectWhole says whether an answer in either form is whole, for goroutines.
func expectWhole(t testing.TB, a answer) (whole bool) {
	t.Helper()
	text := string(a.Body)
	whole = a.Broken == nil && strings.Contains(text, `"charged_micros":"`) &&
		(strings.HasPrefix(text, "{") || strings.HasSuffix(text, "data: [DONE]\n\n"))
	if !whole {
		t.Errorf("an answer that is not whole: %v %s", a.Broken, a.Body)
	}
	return whole
}

// requireOneRunEach requires that a key which is sent to two nodes at the same moment runs once: one of the two answers
// is the replay of the other, whichever node got it, and a third node replays it, too.
func requireOneRunEach(t *testing.T, c *cluster, up *upstream) {
	t.Helper()
	const pairs = 30
	s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	customer := c.operator().customer(t, 1_000_000)
	answers := make([][2]answer, pairs)
	together(2*pairs, func(i int) {
		pair, which := i/2, i%2
		var err error
		answers[pair][which], err = c.node(pair+which).as(customer).tryChat(pairBody(s, pair), keyHeader, fmt.Sprintf("pair-%d", pair))
		failOn(t, err)
	})
	for pair, both := range answers {
		call := &keyedCall{key: fmt.Sprintf("pair-%d", pair), model: modelStd, body: pairBody(s, pair), stream: pair%2 == 0}
		replays := 0
		for i, a := range both {
			done := requireAnswered(t, a, modelStd, call.stream)
			if a.Header.Get(replayHeader) == "true" {
				replays++
			} else {
				call.first = done
			}
			done.RequestID = ""
			first := requireAnswered(t, both[0], modelStd, call.stream)
			first.RequestID = ""
			require.Equal(t, first, done, "answer %d of pair %d", i, pair)
		}
		require.Equal(t, 1, replays, "pair %d", pair)
		call.requireReplay(t, c.node(pair+2).as(customer), "on a third node")
	}
	require.Len(t, s.Calls(), pairs, "requests at the provider")
	customer.awaitCalls(t, pairs)
	require.EqualValues(t, 1_000_000-pairs*usualCharge, customer.wallet(t).BalanceMicros)
}

func pairBody(s *script, pair int) string {
	return prompt(modelStd, fmt.Sprintf("%s pair %d", s.Mark, pair), pair%2 == 0)
}
