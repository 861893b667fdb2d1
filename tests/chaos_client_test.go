package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// chaosClient asks one thing after the other and keeps its own book.
type chaosClient struct {
	run    *chaosRun
	number int
	random *rand.Rand
	book   []*wanted

	// down is the gateway, by number and 1, that was down the last time.
	down atomic.Int64

	// What it has seen so far.
	complete, replays, broken, left, refused atomic.Int64
}

func newChaosClient(run *chaosRun, number int) *chaosClient {
	random := rand.New(rand.NewPCG(run.seed, uint64(number))) //nolint:gosec // the same for the same seed
	return &chaosClient{run: run, number: number, random: random}
}

// wanted is one answer that a client wants: all attempts at it carry the same content, and the same key if any.
type wanted struct {
	mark, key, model string
	// script is the mark of the provider's script.
	script       string
	customer     chaosCustomer
	stream, byok bool
	maxTokens    int

	mu       sync.Mutex
	attempts []*attempt
}

// attempt is one request in the client's book.
type attempt struct {
	// altered: it carried other content than the first with this key.
	altered bool
	status  int // 0 when no head came
	// requestID, id and replayed are what the answer said of itself.
	requestID, id string
	replayed      bool
	// begun: it was a stream. code is the error's, in the body or in the stream.
	begun bool
	code  string
	// settled: the answer had a charge; complete: the client has the whole answer.
	settled, complete bool
	// left: the client went away; otherwise fault is what broke the connection, or the answer's form.
	left  bool
	fault error

	text string
	told usageAndCharge
	// kept is the whole answer of some attempts, to be checked against the contract.
	kept *answer
}

// leaving is when a client goes away: after a time, or after some events of a stream; the zero value is never.
type leaving struct {
	after  time.Duration
	events int
}

func (c *chaosClient) work(stop *atomic.Bool) {
	for n := 0; !stop.Load(); n++ {
		w := c.want(n)
		c.book = append(c.book, w)
		c.pursue(w)
	}
}

// want makes up the next thing to ask for.
func (c *chaosClient) want(n int) *wanted {
	w := &wanted{script: c.run.provider.script.Mark, mark: fmt.Sprintf("chaos-%d-%d.", c.number, n), model: modelStd, stream: c.random.IntN(2) == 0, maxTokens: 20 + c.random.IntN(40)}
	pick := c.random.IntN(100)
	for _, customer := range c.run.customers {
		if pick -= customer.weight; pick < 0 {
			w.customer = customer
			break
		}
	}
	if c.random.IntN(2) == 0 {
		w.key = "key-of-" + w.mark
	}
	if c.random.IntN(12) == 0 {
		w.model = modelFree
	}
	if w.customer.byok && (w.customer.onlyBYOK || c.random.IntN(4) == 0) {
		w.byok = true
		if c.random.IntN(2) == 0 {
			w.model = modelKeyed
		}
	}
	return w
}

// pursue asks until there is an answer, or patience ends; without a key once.
func (c *chaosClient) pursue(w *wanted) {
	if w.key != "" && c.random.IntN(10) == 0 {
		gateways := c.random.Perm(4)
		together(3, func(i int) { c.attempt(w, gateways[i]%2, false, leaving{}) })
	} else {
		c.attempt(w, c.gateway(), false, c.leaving())
	}
	if w.key == "" {
		return
	}
	for range 6 {
		if w.answered() || c.random.IntN(12) == 0 {
			break
		}
		c.attempt(w, c.gateway(), false, c.leaving())
	}
	if !w.answered() {
		return
	}
	switch c.random.IntN(8) {
	case 0, 1:
		c.attempt(w, c.gateway(), false, leaving{})
	case 2:
		c.attempt(w, c.gateway(), true, leaving{})
	}
}

func (c *chaosClient) leaving() leaving {
	switch c.random.IntN(12) {
	case 0:
		return leaving{after: time.Duration(c.random.IntN(60)) * time.Millisecond}
	case 1:
		return leaving{events: 1 + c.random.IntN(4)}
	}
	return leaving{}
}

// askAgain asks once more for what the client has a key for and no answer.
func (c *chaosClient) askAgain() {
	for _, w := range c.book {
		if w.key != "" && !w.answered() {
			c.attempt(w, c.gateway(), false, leaving{})
		}
	}
}

// answered says whether one of the attempts brought the whole answer.
func (w *wanted) answered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.attempts {
		if a.complete {
			return true
		}
	}
	return false
}

func (w *wanted) body(altered bool) string {
	content := w.script + w.mark
	if altered {
		content += " altered"
	}
	return prompt(w.model, content, w.stream, `"max_tokens":`+strconv.Itoa(w.maxTokens))
}

// attempt sends the request once, and books it.
func (c *chaosClient) attempt(w *wanted, gateway int, altered bool, leave leaving) {
	a := &attempt{altered: altered}
	c.send(w, c.run.gateways[gateway], a, leave)
	w.mu.Lock()
	if len(w.attempts)%4 != 0 && !a.replayed {
		a.kept = nil
	}
	w.attempts = append(w.attempts, a)
	w.mu.Unlock()
	switch {
	case a.complete && a.replayed:
		c.replays.Add(1)
	case a.complete:
		c.complete.Add(1)
	case a.left:
		c.left.Add(1)
	case a.status == http.StatusPaymentRequired:
		c.refused.Add(1)
	default:
		c.broken.Add(1)
	}
	if a.status == 0 && !a.left {
		c.down.Store(int64(gateway) + 1)
		betweenLooks() // don't spin
	}
}

// gateway picks one, and not the one that was down the last time.
func (c *chaosClient) gateway() int {
	pick := c.random.IntN(2)
	if c.down.Swap(0) == int64(pick)+1 {
		return 1 - pick
	}
	return pick
}

func (c *chaosClient) send(w *wanted, p *product, a *attempt, leave leaving) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var headers []string
	if w.key != "" {
		headers = append(headers, keyHeader, w.key)
	}
	if w.byok {
		headers = append(headers, byokHeader, "true")
	}
	r, err := p.as(w.customer.customer).request(ctx, http.MethodPost, chatPath, strings.NewReader(w.body(a.altered)), headers...)
	if err != nil {
		a.fault = err
		return
	}
	// With GetBody and an Idempotency-Key Go's client would send it again by itself, which no book would know of.
	r.GetBody = nil
	if leave.after > 0 {
		timer := time.AfterFunc(leave.after, cancel)
		defer timer.Stop()
	}
	response, err := p.clear.Do(r)
	if err != nil {
		a.left, a.fault = ctx.Err() != nil, err
		return
	}
	defer response.Body.Close()
	a.status, a.requestID = response.StatusCode, response.Header.Get("X-Request-Id")
	a.replayed = response.Header.Get(replayHeader) == "true"
	a.begun = strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream")
	body, err := a.read(response.Body, leave.events)
	if err == nil && a.left {
		cancel()
	}
	a.left = a.left || (err != nil && ctx.Err() != nil)
	if !a.left {
		a.fault = err
	}
	a.understand(body)
	if a.complete {
		a.kept = &answer{Status: a.status, Header: response.Header, Body: body}
	}
}

// read reads the body to its end, or up to some events.
func (a *attempt) read(body io.Reader, events int) ([]byte, error) {
	if events == 0 || !a.begun {
		return io.ReadAll(body)
	}
	var text bytes.Buffer
	reader := bufio.NewReader(body)
	for seen := 0; seen < events; {
		line, err := reader.ReadBytes('\n')
		text.Write(line)
		switch {
		case err == io.EOF: //nolint:errorlint // a bufio.Reader returns it as it is
			return text.Bytes(), nil
		case err != nil:
			return text.Bytes(), err
		case len(bytes.TrimSpace(line)) > 0:
			seen++
		}
	}
	a.left = true
	return text.Bytes(), nil
}

// told is any object of an answer: an error, a whole answer, or an event.
type told struct {
	usageAndCharge
	ID      string
	Error   *struct{ Code string }
	Choices []struct {
		Delta, Message struct{ Content string }
	}
}

// understand reads from the body what the answer reports.
func (a *attempt) understand(body []byte) {
	if !a.begun {
		a.take(body)
		a.complete = a.settled && a.fault == nil
		return
	}
	for event := range bytes.SplitSeq(body, []byte("\n\n")) {
		data, ok := bytes.CutPrefix(event, []byte("data: "))
		switch {
		case !ok || !json.Valid(data) && string(data) != "[DONE]":
			continue // cut off
		case string(data) == "[DONE]":
			a.complete = a.settled
		default:
			a.take(data)
		}
	}
}

func (a *attempt) take(object []byte) {
	var t told
	if err := json.Unmarshal(object, &t); err != nil {
		if a.fault == nil && !a.left {
			a.fault = fmt.Errorf("%d %.200s: %w", a.status, object, err)
		}
		return
	}
	if t.Error != nil {
		a.code = t.Error.Code
		return
	}
	a.id = t.ID
	for _, choice := range t.Choices {
		a.text += choice.Delta.Content + choice.Message.Content
	}
	if t.SVC.ChargedMicros != "" {
		a.settled, a.told = true, t.usageAndCharge
	}
}
