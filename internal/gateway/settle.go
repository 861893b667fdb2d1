package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/failpoint"
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
	case c.isReported():
		usage, source = c.reported, billing.UsageProvider
	}
	if _, err := c.settle(f.Outcome, usage, source, f); err != nil {
		c.Logger.Error("a failed call could not be settled", "call", c.id, "request_id", c.req.RequestID, "error", err)
	}
	return f
}

// report keeps the largest count of each field over all reports, because some vendors count as they go and some end with zeros.
// It ignores a report that is impossible for the model's window. If the vendor's window is larger than the configured one, the
// prompt may have as many tokens as were held for it. A cached part above the whole is dropped.
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
	if u.CachedPromptTokens <= u.PromptTokens {
		c.reported.CachedPromptTokens = max(c.reported.CachedPromptTokens, u.CachedPromptTokens)
	}
}

// isReported reports whether the vendor counted the call. No prompt has 0 tokens.
func (c *call) isReported() bool { return c.reported.PromptTokens > 0 }

// usage returns the usage of a call that is charged for its prompt and all delivered text. It estimates tokens that the vendor didn't count by the
// bytes of their text, because settlements don't wait for a count of ours. The whole answer is never estimated above the limit that the vendor
// got.
func (c *call) usage() (billing.Usage, billing.UsageSource) {
	usage, source := c.reported, billing.UsageProvider
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
	s := billing.Settlement{Call: record, ReservedMicros: c.held}
	if !c.req.BYOK {
		s.Price = c.model.Price
	}
	return s
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
