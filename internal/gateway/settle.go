package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/providers"
)

// auditActor is the gateway's name in the audit log.
const auditActor = "gateway"

// completionID returns the public id of the answer, which shares the sortable part of the call's id.
func (c *call) completionID() string { return "chatcmpl-" + c.id[len("call_"):] }

// complete settles a complete answer. It returns a Result only after the commit.
func (c *call) complete() (*Result, error) {
	usage, source := c.usage()
	settled, err := c.settle(OutcomeCompleted, usage, source, nil)
	if err != nil {
		f := &Failure{
			Outcome: OutcomeInternalError, Message: "The answer could not be recorded and was not charged.", Cause: err,
		}
		if c.claim != nil { // settleLater continues the charge
			f.Message = "The answer could not be recorded yet. Send the same request with the same Idempotency-Key again: " +
				"it gets the answer and is charged once."
		}
		return nil, f
	}
	return &Result{
		ID: c.completionID(), Created: c.started.Unix(), Model: c.model.ID,
		Text: c.wholeText(), FinishReason: c.finish, Usage: usage,
		ChargedMicros: settled.ChargedMicros, BYOK: c.req.BYOK,
	}, nil
}

func (c *call) wholeText() string {
	if c.sink != nil {
		return ""
	}
	return c.delivered.text.String()
}

// fail ends a call without a whole answer and returns f. A call that failed during its preparation holds nothing, or has a hold of unknown
// outcome, which end voids. Any other is settled by docs/billing.md#what-each-ending-costs, whether its vendor, its client or the process's exit
// broke it.
func (c *call) fail(f *Failure) error {
	_ = c.endEarly() // the settlement decides the client's result, so nothing may be written before
	if !c.prepared {
		c.observe(f.Outcome, billing.Usage{}, billing.UsageNone, billing.Settled{})
		return f
	}
	usage, source := billing.Usage{}, billing.UsageNone
	switch {
	case f.Outcome == OutcomeClientGone && c.answered.Load():
		usage, source = c.usage()
	case c.isReported() && !c.firstTextAt.IsZero(): // before its first text a failed call is free
		usage, source = c.reported.Bounded(), billing.UsageProvider
	}
	if _, err := c.settle(f.Outcome, usage, source, f); err != nil {
		c.Logger.Error("a failed call could not be settled", "call", c.id, "request_id", c.req.RequestID, "error", err)
	}
	return f
}

// report keeps the largest count of each field over all reports, because some vendors count as they go and some end with zeros.
// It ignores a report that is impossible for the model's window. If the vendor's window is larger than the configured one, the
// prompt may have as many tokens as were held for it. Parts above their whole are dropped.
func (c *call) report(u *providers.Usage) {
	window := c.model.ContextWindow
	if u.PromptTokens < 0 || u.PromptTokens > max(window, c.prompt.bound()) || u.CompletionTokens < 0 || u.CompletionTokens > window {
		return
	}
	if u.CompletionTokens > 0 && u.CompletionTokens >= c.reported.CompletionTokens {
		c.uncounted = 0
	}
	c.reported.PromptTokens = max(c.reported.PromptTokens, u.PromptTokens)
	c.reported.CompletionTokens = max(c.reported.CompletionTokens, u.CompletionTokens)
	cached, written, long := u.CachedPromptTokens, u.CacheWriteTokens, u.LongCacheWriteTokens
	if min(cached, written, long) >= 0 && max(cached, written, long) <= u.PromptTokens && cached+written+long <= u.PromptTokens {
		c.reported.CachedPromptTokens = max(c.reported.CachedPromptTokens, cached)
		c.reported.CacheWriteTokens = max(c.reported.CacheWriteTokens, written)
		c.reported.LongCacheWriteTokens = max(c.reported.LongCacheWriteTokens, long)
	}
	if u.ReasoningTokens <= u.CompletionTokens {
		c.reported.ReasoningTokens = max(c.reported.ReasoningTokens, u.ReasoningTokens)
	}
}

// isReported reports whether the vendor counted the call. No prompt has 0 tokens.
func (c *call) isReported() bool { return c.reported.PromptTokens > 0 }

// usage returns the usage of a call that is charged for its prompt and all delivered text. It estimates tokens that the vendor didn't count by the
// bytes of their text, because settlements don't wait for a count of ours. The whole answer is never estimated above the limit that the vendor
// got.
func (c *call) usage() (billing.Usage, billing.UsageSource) {
	usage, source := c.reported.Bounded(), billing.UsageProvider
	if !c.isReported() {
		usage.PromptTokens, source = c.prompt.estimate(), billing.UsageEstimated
	}
	if c.uncounted > 0 {
		estimate := min(usage.CompletionTokens+tokensOfBytes(c.uncounted), c.upstream.MaxTokens)
		usage.CompletionTokens, source = max(usage.CompletionTokens, estimate), billing.UsageEstimated
	}
	return usage, source
}

// settle charges a call that holds something, and nothing else does. f is the failure for its client, nil after a whole answer. It waits for the
// commit. If that doesn't come in time the call counts as failed and the settlement goes on in the background: without an Idempotency-Key as a
// void, because a repeated request is a new call and charged; with one unchanged, because a repeated request gets this answer.
func (c *call) settle(outcome Outcome, usage billing.Usage, source billing.UsageSource, f *Failure) (billing.Settled, error) {
	s := c.settlement(c.record(outcome, usage, source))
	turn := c.req.Turn
	interrupted := turn != nil && f != nil && errors.Is(f.Cause, ErrInterrupted)
	s.Void = source == billing.UsageNone || turn != nil && f != nil && !interrupted // the turn will be tried again
	c.keep(&s, usage, f)
	commit := c.commit
	switch {
	case turn != nil && f == nil:
		commit = c.withTurn(func(commit Commit) error { return turn.End(c.wholeText(), commit) })
	case interrupted && !s.Void:
		commit = c.withTurn(turn.Cut)
	}
	settled, err := commit(s)
	if err != nil {
		if c.claim == nil {
			s = c.void(s)
		}
		if !c.resolved {
			c.settleLater(s)
		}
		c.observe(OutcomeInternalError, usage, source, billing.Settled{})
		return billing.Settled{}, err
	}
	c.resolved = true
	c.observe(outcome, usage, source, settled)
	return settled, nil
}

// settlement returns the end of the call, without the decision on its key.
func (c *call) settlement(record billing.Call) billing.Settlement {
	s := billing.Settlement{Call: record, ReservedMicros: c.held, Budgets: c.budgets, Attempts: c.tries.failed, VendorPrice: c.vendorPrice()}
	if !c.req.BYOK {
		s.Price = *c.price
	}
	return s
}

// vendorPrice returns the operator's own price at the current endpoint. The operator pays nothing for a call with another key.
func (c *call) vendorPrice() billing.Price {
	if c.req.BYOK {
		return billing.Price{}
	}
	return c.endpoint.Cost
}

// commit writes s. It doesn't wait for the record of a call without money and key.
func (c *call) commit(s billing.Settlement) (billing.Settled, error) {
	if s.ReservedMicros == 0 && s.Claim == nil {
		_, _ = c.Book.Record(s) // the row is only information: the answer is good without it
		return billing.Settled{}, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), settleWait, errors.New("the settlement took longer than 5 s"))
	defer cancel()
	settled, err := c.Book.Settle(ctx, s)
	if err != nil {
		return billing.Settled{}, fmt.Errorf("settling the call: %w", err)
	}
	failpoint.Hit(failpoint.AfterCommitBeforeWrite)
	return settled, nil
}

// withTurn writes a settlement in the transaction that ends the turn. After an error nothing settles the call later: if the
// commit is unknown, the call may have been charged for an answer that is stored; otherwise the turn's next call releases the
// hold.
func (c *call) withTurn(end func(Commit) error) func(billing.Settlement) (billing.Settled, error) {
	return func(s billing.Settlement) (settled billing.Settled, err error) {
		c.resolved = true
		if s.ReservedMicros == 0 {
			_ = end(nil) // the worker decides about the turn
			return c.commit(s)
		}
		done := false
		err = end(func(ctx context.Context, step billing.Companion) (err error) {
			s.With = step
			if settled, err = c.Book.Settle(ctx, s); err == nil {
				done = true
				failpoint.Hit(failpoint.AfterCommitBeforeWrite)
			}
			return err
		})
		if done {
			return settled, nil
		}
		return settled, fmt.Errorf("ending the turn: %w", err)
	}
}

// void returns s without a charge and with the key free again.
func (c *call) void(s billing.Settlement) billing.Settlement {
	s.Claim = c.claim
	return voided(s)
}

// voided returns s without a charge and without a kept answer, so the key of its claim is free again. The call's client received
// an error, even if the answer was good.
func voided(s billing.Settlement) billing.Settlement {
	s.Void, s.Keep, s.Response = true, false, nil
	s.Call.Outcome = string(OutcomeInternalError)
	return s
}

// record returns the call's row.
func (c *call) record(outcome Outcome, usage billing.Usage, source billing.UsageSource) billing.Call {
	return billing.Call{
		ID: c.id, KeyID: c.req.KeyID, Model: c.model.ID, Provider: c.provider.Name, RequestID: c.req.RequestID,
		Wallet: c.wallet(), BYOK: c.req.BYOK, Stream: c.req.Stream, Usage: usage, UsageSource: source,
		Outcome: string(outcome), DurationMS: c.Now().Sub(c.started).Milliseconds(),
		UpstreamModel: c.upstream.Model, AnsweringModel: c.answering,
	}
}

// settleLater continues a settlement that didn't commit while its client waited.
func (c *call) settleLater(s billing.Settlement) {
	c.resolved = true
	c.Observer.SettleLate()
	if s.ReservedMicros > 0 || s.Claim != nil {
		// The call counts as running until its late settlement has ended.
		late := &lateCall{settlement: s, until: c.started.Add(c.holdLife()), leave: c.leave}
		c.leave = nil
		c.late.add(c.cut, late)
	}
}

// settleAgain writes a settlement that may already be committed. In that case the first figures remain. So a void may find a
// charge, which is refunded, because the client received an error.
func (g *Gateway) settleAgain(ctx context.Context, l *lateCall) error {
	s := &l.settlement
	settled, err := g.Book.Settle(ctx, *s)
	if err != nil {
		return err
	}
	g.Observer.SettledLate(s.Call.Model, settled)
	if !s.Void || settled.ChargedMicros == 0 {
		return nil
	}
	_, err = g.Book.Refund(ctx, auditActor, s.Call.ID, "the answer was reported as failed before its charge was known")
	return err
}

// end runs after every call, also after a panic. It hands a hold that is or may still be open over to be voided, and reports that the call no
// longer uses the store.
func (c *call) end() {
	c.endSpan(OutcomeInternalError, billing.Usage{}, billing.UsageNone) // only after a panic is the span still open
	if (c.held > 0 || c.claimed) && !c.resolved {
		c.settleLater(c.void(c.settlement(c.record(OutcomeInternalError, billing.Usage{}, billing.UsageNone))))
	}
	if c.leave != nil {
		c.leave()
	}
}

// observe reports the end of the call to the metrics.
func (c *call) observe(outcome Outcome, usage billing.Usage, source billing.UsageSource, settled billing.Settled) {
	e := Ended{
		Outcome: outcome, Stream: c.req.Stream, BYOK: c.req.BYOK, Usage: usage, UsageSource: source, Settled: settled,
	}
	if c.model != nil {
		e.Model, e.Provider, e.VendorModel = c.model.ID, c.provider.Name, c.upstream.Model
	}
	if !c.upstreamAt.IsZero() {
		e.Upstream = c.upstreamEnd.Sub(c.upstreamAt)
	}
	if !c.firstTextAt.IsZero() {
		e.FirstText = c.firstTextAt.Sub(c.upstreamAt)
	}
	c.Observer.CallEnded(e)
	c.endSpan(outcome, usage, source)
}

// bytesPerToken is the rough ratio for uncounted text. Most languages have more bytes per token.
const bytesPerToken = 3

// tokensOfBytes estimates the tokens of a text by its length.
func tokensOfBytes(n int64) int64 { return (n + bytesPerToken - 1) / bytesPerToken }

// delivered is the text of an answer so far.
type delivered struct {
	// keep is the number of bytes of the text that are kept. A piece beyond it is only counted.
	keep  int
	text  strings.Builder
	bytes int64
}

func (d *delivered) add(event *providers.Event) {
	size := event.AnswerLen()
	d.bytes += int64(size)
	if d.text.Len()+size <= d.keep {
		d.text.WriteString(event.Answer())
	}
}

const (
	// maxLate limits the calls that wait for a late settlement. Further calls are left to the sweeper, which releases their hold
	// and key when they expire.
	maxLate = 4096
	// maxLateBytes limits the kept answers of waiting calls, each of which may be 1 MiB. A call with an answer above the limit is voided instead:
	// it costs nothing, and its key is free for another try as soon as the store is back.
	maxLateBytes = 64 << 20
	// lateAtOnce is the number of calls that are tried at a time: enough to share the writer's transactions.
	lateAtOnce = 64
	// firstLatePause and longestLatePause limit the pause after a round without success, with a jitter of a quarter. Because a try
	// may take 5 s, all calls are decided within 10 s after the store works again.
	firstLatePause   = 250 * time.Millisecond
	longestLatePause = 2 * time.Second
)

// lateCall is a call without a confirmed end.
type lateCall struct {
	settlement billing.Settlement
	// until is the time when the call's hold and key expire.
	until time.Time
	leave func()
}

// lateCalls settles calls after their settlements didn't commit while their clients waited. It repeats them until they succeed, the hold expires,
// or the process can't wait. One goroutine does so for all calls, and each counts as running until it ends here.
type lateCalls struct {
	// settle tries one call once, until ctx ends. It may be repeated after an error.
	settle func(ctx context.Context, l *lateCall) error
	logger *slog.Logger

	mu      sync.Mutex
	waiting []*lateCall
	// answers is the size in bytes of the kept answers of all calls that wait or are being tried.
	answers int
	running bool // whether the goroutine runs
}

// add adds a call, which leaves when its end is committed or given up. cut ends when the process can't wait.
func (q *lateCalls) add(cut context.Context, l *lateCall) {
	size := len(l.settlement.Response)
	q.mu.Lock()
	full := len(q.waiting) >= maxLate
	large := !full && q.answers+size > maxLateBytes
	if large {
		l.settlement, size = voided(l.settlement), 0
	}
	if !full {
		q.waiting = append(q.waiting, l)
		q.answers += size
	}
	start := !full && !q.running
	q.running = q.running || start
	q.mu.Unlock()
	switch {
	case full:
		q.giveUp(l, errors.New("too many calls wait for the store"))
	case large:
		q.logger.Error("the answers of calls that wait for the store take too much memory; a call is not charged", "call", l.settlement.Call.ID)
	}
	if start {
		go q.run(cut)
	}
}

// run tries round after round until no call waits.
func (q *lateCalls) run(cut context.Context) {
	pause := firstLatePause
	for {
		round := q.take(cut)
		if len(round) == 0 {
			return
		}
		if q.try(cut, round) {
			pause = firstLatePause
			continue
		}
		_ = repeat.Pause(cut, repeat.Around(pause))
		pause = min(2*pause, longestLatePause)
	}
}

// take returns the calls of the next round. If there are none, the goroutine must end.
func (q *lateCalls) take(cut context.Context) []*lateCall {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.waiting = slices.DeleteFunc(q.waiting, func(l *lateCall) bool {
		over := cut.Err() != nil || !now.Before(l.until)
		if over {
			q.answers -= len(l.settlement.Response)
			q.giveUp(l, errors.New("its time is over"))
		}
		return over
	})
	n := min(len(q.waiting), lateAtOnce)
	round := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.running = n > 0
	return round
}

// try settles a round and puts failed calls back, behind calls that were not tried yet. It reports whether another round may follow immediately,
// because the store works.
func (q *lateCalls) try(cut context.Context, round []*lateCall) (works bool) {
	ctx, cancel := context.WithTimeoutCause(cut, settleWait, errStoreSlow)
	defer cancel()
	errs := make([]error, len(round))
	var tries sync.WaitGroup
	for i, l := range round {
		tries.Go(func() { errs[i] = q.settle(ctx, l) })
	}
	tries.Wait()
	var failed []*lateCall
	var last error
	ended := 0
	for i, l := range round {
		if errs[i] == nil {
			ended += len(l.settlement.Response)
			l.leave()
			continue
		}
		failed, last = append(failed, l), errs[i]
	}
	if len(failed) > 0 {
		q.logger.Error("calls could not be settled late; they are tried again", "calls", len(failed), "error", last)
	}
	q.mu.Lock()
	q.waiting = append(q.waiting, failed...)
	q.answers -= ended
	q.mu.Unlock()
	return len(failed) < len(round)
}

// giveUp leaves a call to the sweeper.
func (q *lateCalls) giveUp(l *lateCall, why error) {
	q.logger.Error("a call was not settled; its hold expires by itself", "call", l.settlement.Call.ID, "error", why)
	l.leave()
}
