package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ask calls the model for the turn, with less history when the vendor finds it too long, and handles the outcome.
func (p *pass) ask(ctx context.Context, turn *inbox.Turn, request *storedRequest) (wait time.Duration, err error) {
	for halvings := 0; ; halvings++ {
		end, failure := p.call(ctx, turn, request)
		switch {
		case end != nil:
			return end()
		case failure.Outcome != gateway.OutcomeContextTooLong && failure.Outcome != gateway.OutcomeRequestTooLarge:
			return p.failed(ctx, turn, request, failure)
		case halvings == maxHalvings, !request.halve():
			return 0, p.stand(ctx, turn, inbox.Standing{Code: codes.ContextTooLong})
		}
		turn.Request = nil // the shorter one is stored with the next call
	}
}

// ending is how the pass goes on when a turn has ended, or can't begin.
type ending func() (wait time.Duration, err error)

// ends is the ending of a pass that has nothing more to do.
func ends(err error) (ending, error) { return func() (time.Duration, error) { return 0, err }, err }

// call calls the gateway once. The turn begins with the call's hold and ends with its settlement; without an ending the call has failed.
// When a person takes the conversation or writes in it, the call ends immediately.
func (p *pass) call(ctx context.Context, turn *inbox.Turn, request *storedRequest) (end ending, failure *gateway.Failure) {
	held, watch, unwatch := p.untilInterrupted(ctx, turn.ID)
	defer unwatch() // after a panic, too
	stopSignal := func() {}
	defer func() { stopSignal() }()
	req := p.gatewayRequest(turn, request)
	var id string
	var refused error
	req.Turn = &gateway.Turn{
		Begin: func(ctx context.Context, callID string, commit gateway.Commit) error {
			again := id == callID
			id, refused = callID, p.beginCall(ctx, turn, request, inboxCall(callID, commit))
			if refused == nil && !again {
				watch()
				stopSignal = p.signal(held)
			}
			return refused
		},
		End: func(text string, commit gateway.Commit) (err error) {
			if req.Stream {
				text = p.live.sink.whole.String()
			}
			p.lease.Call = inboxCall(id, commit)
			defer func() { p.lease.Call = nil }()
			end, err = p.answer(ctx, turn, request, text)
			return err
		},
		Cut: func(commit gateway.Commit) error {
			p.lease.Call = inboxCall(id, commit)
			defer func() { p.lease.Call = nil }()
			err := p.giveWay(ctx, turn.ID, inbox.Interruption{}) // an ended turn, too: its call's charge goes with the look at it
			end, _ = ends(err)
			return err
		},
	}
	var sink gateway.Sink
	if req.Stream {
		sink = p.live.sink
	}
	_, err := p.Gateway.Call(held, req, sink)
	seen := unwatch()
	switch {
	case end != nil:
		if err == nil && sink != nil {
			p.live.sink.end()
		}
		return end, nil
	case over(refused), errors.Is(refused, inbox.ErrLeaseLost):
		end, _ = ends(refused)
		return end, nil
	case seen.Ended, seen.Person:
		return func() (time.Duration, error) { return 0, p.giveWay(ctx, turn.ID, seen) }, nil
	}
	failure, ok := errors.AsType[*gateway.Failure](err)
	if !ok {
		failure = &gateway.Failure{Outcome: gateway.OutcomeInternalError, Cause: err}
	}
	return nil, failure
}

// gatewayRequest returns the call of a turn. It is streamed to the visitor who waits for it.
func (p *pass) gatewayRequest(turn *inbox.Turn, request *storedRequest) *gateway.Request {
	req := request.call(p.lease.OrgID, turn.ID)
	req.Conversation = p.lease.ConversationID
	req.AllModels, req.BudgetVersion, req.AgentID = !p.work.HasOrgModels, p.work.BudgetVersion, turn.AgentID
	p.work.HasOrgModels = true // a later call reads them: the model may be taken away meanwhile
	if p.live != nil && p.live.turnID == turn.ID && !p.work.Channel.Answers.Drafts {
		req.Stream = true
		p.live.sink.marked = request.MayHandOver
	}
	return req
}

// inboxCall returns the queue's form of a call.
func inboxCall(id string, commit gateway.Commit) *inbox.Call {
	call := &inbox.Call{ID: id}
	if commit != nil {
		call.Commit = func(ctx context.Context, step inbox.Step) error { return commit(ctx, step) }
	}
	return call
}

// beginCall begins the turn, or another call of a turn that has begun.
func (p *pass) beginCall(ctx context.Context, turn *inbox.Turn, request *storedRequest, call *inbox.Call) (err error) {
	lease, begins := p.lease, inbox.Turn{ID: turn.ID, AgentID: turn.AgentID}
	lease.Call = call
	var texts []string
	if turn.State == "" {
		texts = p.waitingIDs()
		request.Since, request.First = p.work.WaitingSince, p.work.Waiting[0].PlatformMessageID
	}
	if turn.Request == nil {
		if begins.Request, err = json.Marshal(request); err != nil {
			return fmt.Errorf("encoding a turn's request: %w", err)
		}
	}
	if err := p.Queue.BeginCall(ctx, lease, begins, texts); err != nil {
		return fmt.Errorf("beginning a turn: %w", err)
	}
	if turn.Request == nil {
		turn.Request = begins.Request
	}
	if turn.State == "" {
		turn.State = inbox.TurnAwaiting
		p.traceJoined(p.work.Waiting)
		p.Observer.TurnBegan(p.work.Channel.Type, p.waited(request.Since))
	}
	return nil
}

// failed handles a call that gave no answer.
func (p *pass) failed(ctx context.Context, turn *inbox.Turn, request *storedRequest, failure *gateway.Failure) (wait time.Duration, err error) {
	if ctx.Err() != nil {
		p.turnEnded(endedReleased)
		return 0, context.Cause(ctx)
	}
	if pause := postponement(failure); pause > 0 {
		p.postponed = true
		p.turnEnded(endedPostponed)
		return pause + repeat.Jitter(pause), nil
	}
	p.Logger.WarnContext(ctx, "a turn's call failed", "turn", turn.ID, "outcome", failure.Outcome, "error", failure)
	code := string(failure.Outcome)
	switch failure.Outcome {
	case gateway.OutcomeInsufficientCredits, gateway.OutcomeBudgetExceeded:
		return p.outOfFunds(ctx, turn, request, failure.Outcome)
	case gateway.OutcomeUnsupportedModel, gateway.OutcomeInvalidRequest:
		return 0, p.stand(ctx, turn, inbox.Standing{Code: code})
	case gateway.OutcomeExiting:
		if p.stopping() {
			p.turnEnded(endedReleased)
			return 0, nil
		}
	default:
	}
	switch {
	case failure.NoRetry:
		return 0, p.stand(ctx, turn, inbox.Standing{Code: code, Final: true})
	case turn.Attempts+1 < maxTries:
		p.turnEnded(endedRetried)
		return backoff(turn.Attempts, failure.RetryAfter), nil
	}
	return 0, p.stand(ctx, turn, inbox.Standing{Code: code})
}

// postponement returns the pause after a call that never began because this process or the store is overloaded, or 0 if the call failed for
// another reason. A postponed try isn't counted: otherwise none would be left when the load is over.
func postponement(failure *gateway.Failure) time.Duration {
	switch failure.Outcome {
	case gateway.OutcomeTooManyCalls, gateway.OutcomeProviderBusy:
		return failure.RetryAfter
	case gateway.OutcomeInternalError:
		if failure.RetryAfter > 0 {
			return busyStorePause
		}
	default:
	}
	return 0
}

// outOfFunds stalls a turn until the wallet, or the budget that refused the call, has more than it has now. The refusal and the balance are read
// one after the other, and a top-up may come between: so the model is called once more after the balance was read, and the smaller of the balances
// around that refusal counts.
func (p *pass) outOfFunds(ctx context.Context, turn *inbox.Turn, request *storedRequest, refusal gateway.Outcome) (wait time.Duration, err error) {
	code := string(refusal)
	before, err := p.funds(ctx, code, turn.AgentID)
	if err != nil {
		return 0, err
	}
	end, failure := p.call(ctx, turn, request)
	switch {
	case end != nil:
		return end()
	case failure.Outcome != refusal:
		return p.failed(ctx, turn, request, failure)
	}
	after, err := p.funds(ctx, code, turn.AgentID)
	if err != nil {
		return 0, err
	}
	balance := min(before, after)
	return 0, p.stand(ctx, turn, inbox.Standing{Code: code, BalanceMicros: &balance})
}

func (p *pass) funds(ctx context.Context, code, agentID string) (int64, error) {
	ctx, cancel := storing(ctx)
	defer cancel()
	return p.Worker.funds(ctx, code, p.lease.OrgID, agentID)
}

// funds returns the rest of the funds whose lack a code names: the free balance, or the room of the budgets that count an assistant's calls.
func (w *Worker) funds(ctx context.Context, code, orgID, agentID string) (int64, error) {
	if code == codes.BudgetExceeded {
		return w.Gateway.BudgetRoom(ctx, orgID, agentID, store.Live)
	}
	return w.Gateway.FreeBalance(ctx, orgID, store.Live)
}

// watchPause is about how often a worker looks in which conversations with running model calls a person has taken over or written, in
// whatever process. Most calls take longer, and one cheap read serves all of them.
const watchPause = 250 * time.Millisecond

// watches are the running model calls of a worker. The zero value has none.
type watches struct {
	mu      sync.Mutex
	running map[*watch]struct{}
	// stop ends the goroutine that looks, and returns when it has ended. It is nil if no goroutine runs.
	stop func()
}

// watch is a running model call.
type watch struct {
	turn inbox.RunningTurn
	end  context.CancelCauseFunc
	seen inbox.Interruption // guarded by watches.mu
}

// untilInterrupted returns a context that, once start was called, ends with [gateway.ErrInterrupted] when the turn has ended, or a person's
// message waits to be sent. stop must be called, and may be repeated; it returns the interruption.
func (p *pass) untilInterrupted(ctx context.Context, turnID string) (held context.Context, start func(), stop func() inbox.Interruption) {
	held, end := context.WithCancelCause(ctx)
	call := &watch{turn: inbox.RunningTurn{ConversationID: p.lease.ConversationID, TurnID: turnID}, end: end}
	return held, func() { p.beginWatch(ctx, call) }, func() inbox.Interruption {
		end(nil)
		return p.watches.finish(call)
	}
}

// beginWatch adds a call to the watches. The first one starts the goroutine that looks.
func (w *Worker) beginWatch(ctx context.Context, call *watch) {
	w.watches.mu.Lock()
	defer w.watches.mu.Unlock()
	if w.watches.running == nil {
		w.watches.running = map[*watch]struct{}{}
	}
	w.watches.running[call] = struct{}{}
	if w.watches.stop != nil {
		return
	}
	looking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var looks sync.WaitGroup
	looks.Go(func() { w.look(looking) })
	w.watches.stop = func() {
		cancel()
		looks.Wait()
	}
}

// finish removes a call, and returns its interruption. The last one ends the goroutine that looks.
func (w *watches) finish(call *watch) inbox.Interruption {
	w.mu.Lock()
	delete(w.running, call)
	seen, stop := call.seen, w.stop
	if len(w.running) > 0 {
		stop = nil
	} else {
		w.stop = nil
	}
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	return seen
}

// turns returns the turns that weren't interrupted yet.
func (w *watches) turns() (turns []inbox.RunningTurn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for call := range w.running {
		if call.seen == (inbox.Interruption{}) {
			turns = append(turns, call.turn)
		}
	}
	return turns
}

// interrupt ends calls of turns that were interrupted.
func (w *watches) interrupt(seen map[string]inbox.Interruption) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for call := range w.running {
		if interruption, interrupted := seen[call.turn.TurnID]; interrupted {
			call.seen = interruption
			call.end(gateway.ErrInterrupted)
		}
	}
}

// look looks until ctx ends whether people interrupt running calls. Faults of the store only postpone the next look: every later write is
// checked under the lease.
func (w *Worker) look(ctx context.Context) {
	for repeat.Pause(ctx, repeat.Around(watchPause)) == nil {
		turns := w.watches.turns()
		if len(turns) == 0 {
			continue
		}
		bounded, done := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
		seen, err := w.Queue.Interruptions(bounded, turns)
		done()
		if err == nil {
			w.watches.interrupt(seen)
		}
	}
}

// giveWay ends the turn of an interrupted call. The person's message is sent with the next pass, which is immediately due.
func (p *pass) giveWay(ctx context.Context, turnID string, seen inbox.Interruption) error {
	if seen.Ended {
		p.turnEnded(endedDiscarded)
		return nil
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	err := p.Queue.GiveWay(ctx, p.lease, turnID)
	switch {
	case over(err):
		p.turnEnded(endedDiscarded)
		return nil
	case err != nil:
		return fmt.Errorf("giving way to a person: %w", err)
	}
	p.turnEnded(endedSuperseded)
	return nil
}

// unmark makes the part that an unconfirmed commit may have marked as sending pending again: its platform was not called. called is a part for
// which the platform was called. Empty means none.
func (p *pass) unmark(ctx context.Context, called string) {
	err := insist(ctx, func(ctx context.Context) error { return p.Queue.Unmark(ctx, p.lease, called) })
	if err != nil && !errors.Is(err, inbox.ErrLeaseLost) {
		p.Logger.ErrorContext(ctx, "a message that was not sent may be shown as one whose delivery is unknown",
			"conversation", p.lease.ConversationID, "error", err)
	}
}

// unconfirmed reports whether a write may have happened though it returned an error.
func unconfirmed(err error) bool {
	if _, early := errors.AsType[*inbox.PacedError](err); early {
		return false
	}
	for _, certain := range []error{nil, inbox.ErrLeaseLost, inbox.ErrInvalid, inbox.ErrDraftMode, inbox.ErrSuperseded} {
		if errors.Is(err, certain) {
			return false
		}
	}
	return !over(err)
}
