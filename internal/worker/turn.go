package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// maxRecentReplies bounds the answers of an assistant in one conversation within the ten minutes that
	// [inbox.Work.RecentReplies] counts. A person who types and reads gets a reply every half minute at most; a customer who is
	// faster for so long is another bot.
	maxRecentReplies = 20
	// maxHalvings is enough to drop a full history.
	maxHalvings = 8
)

// turn answers the waiting texts, if any. The queue decides whether the assistant may: while a person has the conversation, no
// text waits, and begun turns and answers are refused.
func (p *pass) turn(ctx context.Context) (wait time.Duration, err error) {
	switch {
	case p.work.Turn == nil && len(p.work.Waiting) == 0:
		return 0, nil
	case p.stopping():
		p.turnEnded(endedReleased)
		return 0, nil
	}
	if opening := p.opening(); !opening.IsZero() {
		return p.untilOpening(ctx, opening)
	}
	if p.wordless() {
		wait, err = p.answerWordless(ctx)
	} else {
		wait, err = p.tryTurn(ctx)
	}
	if over(err) {
		p.turnEnded(endedDiscarded)
		return 0, nil
	}
	return wait, err
}

// tryTurn calls the model for the turn that was running when its worker ended, or for a new one of all waiting texts.
func (p *pass) tryTurn(ctx context.Context) (wait time.Duration, err error) {
	turn := p.work.Turn
	if err := p.countRequests(ctx); err != nil {
		return 0, err
	}
	if code := p.obstacle(); code != "" {
		return 0, p.stand(ctx, turn, code, nil)
	}
	ctx, end := p.traceTurn(ctx)
	defer end()
	if turn == nil {
		if turn, err = p.begin(ctx); err != nil {
			return 0, err
		}
	}
	if turn.Forgotten {
		return 0, p.giveWay(ctx, turn.ID, inbox.Interruption{Person: true})
	}
	if turn.Attempts >= maxTries { // each try ended its worker
		return 0, p.dead(ctx, turn, codes.InternalError)
	}
	request, err := decodeRequest(turn.Request)
	if err != nil {
		p.Logger.ErrorContext(ctx, "a turn's stored request can't be read", "turn", turn.ID, "error", err)
		return 0, p.dead(ctx, turn, codes.Unreadable)
	}
	if request.Person != "" {
		return 0, p.handOver(ctx, turn.ID, request.Person)
	}
	return p.ask(ctx, turn, request)
}

// readable returns the waiting texts that could be opened. The others belong to the turn, too, but can't be shown to a model.
func (p *pass) readable() []inbox.Message {
	return slices.DeleteFunc(slices.Clone(p.work.Waiting), func(m inbox.Message) bool { return m.Unreadable })
}

// readableTexts returns what the customer has written of it.
func (p *pass) readableTexts() []inbox.Message {
	return slices.DeleteFunc(p.readable(), func(m inbox.Message) bool { return !isText(m) })
}

// obstacle returns the code that keeps the assistant from answering, "" for none. No model is called for it.
func (p *pass) obstacle() string {
	switch {
	case p.work.Turn == nil && len(p.readable()) == 0:
		return codes.Unreadable
	case p.tooOld():
		return codes.TooOld
	case p.work.Suspended:
		return codes.Suspended
	case p.work.Agent == nil:
		return codes.NoAgent
	case p.work.Channel.State != store.ChannelActive:
		return codes.NeedsReauth
	case p.work.RecentReplies >= maxRecentReplies:
		return codes.LoopGuard
	}
	if _, known := p.Gateway.Model(p.work.Agent.Model); !known && p.work.Turn == nil {
		return codes.UnsupportedModel
	}
	return ""
}

// begin makes a turn of all waiting texts.
func (p *pass) begin(ctx context.Context) (*inbox.Turn, error) {
	agent := p.work.Agent
	if p.asksForPerson() {
		return p.beginWith(ctx, &storedRequest{Person: inbox.HandoverWords})
	}
	model, known := p.Gateway.Model(agent.Model)
	if !known {
		return nil, fmt.Errorf("the model %q left the catalog", agent.Model)
	}
	snippets, err := p.searchDocuments(ctx, agent)
	if err != nil {
		return nil, err
	}
	return p.beginWith(ctx, newRequest(agent, model, prompt{History: p.work.History, Waiting: p.readable(), Knowledge: snippets}))
}

// beginWith makes a turn of all waiting texts, with a request.
func (p *pass) beginWith(ctx context.Context, asked *storedRequest) (*inbox.Turn, error) {
	asked.Since, asked.First = p.work.WaitingSince, p.work.Waiting[0].PlatformMessageID
	request, err := asked.encode()
	if err != nil {
		return nil, err
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	id, err := p.Turns.BeginTurn(ctx, p.lease, p.work.Agent.ID, p.waitingIDs(), request)
	if err != nil {
		return nil, fmt.Errorf("beginning a turn: %w", err)
	}
	p.live.begun(id, p.work.Waiting)
	p.traceJoined(p.work.Waiting)
	p.Observer.TurnBegan(p.work.Channel.Type, p.waited(asked.Since))
	return &inbox.Turn{ID: id, AgentID: p.work.Agent.ID, Request: request}, nil
}

// searchDocuments searches the agent's documents for the waiting texts. A failed search ends the try: an answer without the documents
// could be wrong.
func (p *pass) searchDocuments(ctx context.Context, agent *store.Agent) ([]knowledge.Snippet, error) {
	if len(agent.KnowledgeBaseIDs) == 0 {
		return nil, nil
	}
	var asked strings.Builder
	for _, m := range p.readableTexts() {
		asked.WriteString(m.Text)
		asked.WriteByte('\n')
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	snippets, err := p.Knowledge.Search(ctx, p.lease.OrgID, agent.KnowledgeBaseIDs, asked.String(), knowledge.PromptSnippets)
	if err != nil {
		return nil, fmt.Errorf("searching the agent's documents: %w", err)
	}
	return snippets, nil
}

func (p *pass) waitingIDs() []string {
	ids := make([]string, len(p.work.Waiting))
	for i, m := range p.work.Waiting {
		ids[i] = m.ID
	}
	return ids
}

// ask calls the model under the turn's id, with less history when the vendor finds it too long, and handles the outcome.
func (p *pass) ask(ctx context.Context, turn *inbox.Turn, request *storedRequest) (wait time.Duration, err error) {
	for range maxHalvings + 1 {
		result, failure, seen := p.call(ctx, turn, request)
		switch {
		case failure == nil:
			return p.answer(ctx, turn, request, result.Text)
		case seen.Ended || seen.Person:
			return 0, p.giveWay(ctx, turn.ID, seen)
		case failure.Replayed || !tooLong(failure.Outcome):
			return p.failed(ctx, turn, request, failure)
		case !request.halve():
			return 0, p.stand(ctx, turn, codes.ContextTooLong, nil)
		}
		if err := p.storeRequest(ctx, turn, request); err != nil {
			return 0, err
		}
	}
	return 0, p.stand(ctx, turn, codes.ContextTooLong, nil)
}

// tooLong reports whether a shorter request may be answered.
func tooLong(outcome gateway.Outcome) bool {
	return outcome == gateway.OutcomeContextTooLong || outcome == gateway.OutcomeRequestTooLarge
}

// call calls the gateway once; its errors are Failures. When a person takes the conversation or writes in it, the call ends at once,
// and seen is why.
func (p *pass) call(
	ctx context.Context, turn *inbox.Turn, request *storedRequest,
) (result *gateway.Result, failure *gateway.Failure, seen inbox.Interruption) {
	ctx, stop := p.untilInterrupted(ctx, turn.ID)
	defer func() { seen = stop() }() // after a panic, too
	defer p.signal(ctx)()
	result, failure = p.callGateway(ctx, turn, request)
	return result, failure, seen
}

func (p *pass) callGateway(ctx context.Context, turn *inbox.Turn, request *storedRequest) (*gateway.Result, *gateway.Failure) {
	var result *gateway.Result
	var err error
	call := request.call(p.lease.OrgID, turn.ID)
	call.AllModels = !p.work.HasOrgModels
	p.work.HasOrgModels = true // a later call reads them: the model may be taken away meanwhile
	if p.live.waitsFor(turn.ID) && !p.work.Channel.Answers.Drafts {
		call.Stream = true
		p.live.sink.marked = request.MayHandOver
		if result, err = p.Gateway.Call(ctx, call, p.live.sink); err == nil {
			p.live.sink.end()
			result.Text = p.live.sink.whole.String()
		}
	} else {
		result, err = p.Gateway.Call(ctx, call, nil)
	}
	if err == nil {
		return result, nil
	}
	failure, ok := errors.AsType[*gateway.Failure](err)
	if !ok {
		failure = &gateway.Failure{Outcome: gateway.OutcomeInternalError, Cause: err}
	}
	return nil, failure
}

func (p *pass) storeRequest(ctx context.Context, turn *inbox.Turn, request *storedRequest) error {
	encoded, err := request.encode()
	if err != nil {
		return err
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := p.Queue.StoreRequest(ctx, p.lease, turn.ID, encoded); err != nil {
		return fmt.Errorf("storing a shorter request: %w", err)
	}
	return nil
}

// failed handles a call that gave no answer.
func (p *pass) failed(
	ctx context.Context, turn *inbox.Turn, request *storedRequest, failure *gateway.Failure,
) (wait time.Duration, err error) {
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
	case gateway.OutcomeInsufficientCredits:
		return p.outOfFunds(ctx, turn, request)
	case gateway.OutcomeUnsupportedModel:
		return 0, p.stand(ctx, turn, code, nil)
	case gateway.OutcomeNotKept, gateway.OutcomeKeyReused:
		return 0, p.dead(ctx, turn, code)
	case gateway.OutcomeExiting:
		if p.stopping() {
			p.turnEnded(endedReleased)
			return 0, nil
		}
	default:
	}
	switch {
	case failure.Replayed, failure.NoRetry:
		// A replayed failure is the turn's kept answer, so another try replays it again. A vendor's permanent error is treated alike.
		return 0, p.dead(ctx, turn, code)
	case turn.Attempts+1 < maxTries:
		p.turnEnded(endedRetried)
		return backoff(turn.Attempts, failure.RetryAfter), nil
	}
	return 0, p.stand(ctx, turn, code, nil)
}

// postponement returns the pause after a call that never began, because this process or the store is overloaded; 0 for any
// other. Such a try isn't counted: otherwise none would be left when the load is over.
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

// outOfFunds stalls a turn until the wallet has more than it has now. The refusal and the balance are read one after the other,
// and a top-up may come between: so the model is called once more after the balance was read, and the smaller of the balances
// around that refusal counts.
func (p *pass) outOfFunds(ctx context.Context, turn *inbox.Turn, request *storedRequest) (wait time.Duration, err error) {
	before, err := p.freeBalance(ctx)
	if err != nil {
		return 0, err
	}
	result, failure, seen := p.call(ctx, turn, request)
	switch {
	case failure == nil:
		return p.answer(ctx, turn, request, result.Text)
	case seen.Ended || seen.Person:
		return 0, p.giveWay(ctx, turn.ID, seen)
	case failure.Outcome != gateway.OutcomeInsufficientCredits:
		return p.failed(ctx, turn, request, failure)
	}
	after, err := p.freeBalance(ctx)
	if err != nil {
		return 0, err
	}
	balance := min(before, after)
	return 0, p.stand(ctx, turn, codes.InsufficientCredits, &balance)
}

func (p *pass) freeBalance(ctx context.Context) (int64, error) {
	ctx, cancel := storing(ctx)
	defer cancel()
	return p.Gateway.FreeBalance(ctx, p.lease.OrgID, store.Live)
}

// answer stores the model's answer and sends it. Newer messages may discard it, once, if the agent is set so.
func (p *pass) answer(
	ctx context.Context, turn *inbox.Turn, request *storedRequest, text string,
) (wait time.Duration, err error) {
	text, reason := p.lastWords(request, text)
	if text == "" && reason == "" {
		return 0, p.stand(ctx, turn, codes.EmptyAnswer, nil)
	}
	drafts := p.work.Channel.Answers.Drafts
	if drafts && reason == "" {
		return 0, p.propose(ctx, turn, text)
	}
	if p.work.Agent.Supersede && !p.superseded && !p.stopping() {
		newer, err := p.supersede(ctx, turn)
		if err != nil {
			return 0, err
		}
		if newer {
			return p.again(ctx)
		}
	}
	var parts []string
	if text != "" && !drafts { // last words aren't sent by themselves there
		parts = p.split(text)
	}
	p.makeReady(ctx)
	if err := p.lookForPeople(ctx); err != nil {
		return 0, err
	}
	rows, personFirst, err := p.store(ctx, turn, reason, parts)
	switch {
	case errors.Is(err, inbox.ErrDraftMode): // since the conversation was opened
		return 0, p.propose(ctx, turn, text)
	case err != nil:
		return 0, err
	}
	if reason == "" {
		p.turnEnded(endedAnswered)
	} else {
		p.turnEnded(endedHandedOver)
	}
	for i := range rows {
		rows[i].Since = request.Since
	}
	if personFirst { // in the next pass, which is due at once
		return 0, nil
	}
	return p.send(ctx, rows, true)
}

// split cuts an answer into messages. After a worker's death it leaves the Markdown as the model wrote it, because rendering this answer may have
// ended that worker.
func (p *pass) split(text string) []string {
	return p.Platforms.Split(p.work.Channel.Type, text, p.lease.TakenOver)
}

func (p *pass) supersede(ctx context.Context, turn *inbox.Turn) (newer bool, err error) {
	ctx, cancel := storing(ctx)
	defer cancel()
	newer, err = p.Queue.Supersede(ctx, p.lease, turn.ID)
	if err != nil {
		return false, fmt.Errorf("looking for newer messages: %w", err)
	}
	return newer, nil
}

// again reads the conversation and begins another turn, after an answer was discarded.
func (p *pass) again(ctx context.Context) (wait time.Duration, err error) {
	p.superseded = true
	p.turnEnded(endedSuperseded)
	if err := p.open(ctx); err != nil {
		return 0, err
	}
	if len(p.work.Waiting) == 0 {
		return 0, nil
	}
	return p.tryTurn(ctx)
}

// store stores the answer, with which the conversation is handed over for the reason, "" for none. Its first part is marked as sending in
// the same commit when it can be sent now. After a doubt it is pending again: its platform was not called. personFirst: a person's message
// waits, which is sent before the answer.
func (p *pass) store(
	ctx context.Context, turn *inbox.Turn, reason string, parts []string,
) (rows []inbox.Outbound, personFirst bool, err error) {
	sendFirst := ctx.Err() == nil && p.refusal(inbox.AuthorAssistant, false) == nil
	bounded, cancel := storing(ctx)
	defer cancel()
	rows, err = p.storeAnswer(bounded, turn.ID, reason, parts, sendFirst)
	if p.tooEarly(err) {
		return rows, false, nil
	}
	if err != nil {
		if sendFirst && inDoubt(err) {
			p.unmark(ctx, "")
		}
		return nil, false, fmt.Errorf("storing the answer: %w", err)
	}
	return rows, sendFirst && len(rows) > 0 && rows[0].State == inbox.OutboundPending, nil
}

// stand lets the turn stand with a code; without a turn the waiting texts become one.
func (p *pass) stand(ctx context.Context, turn *inbox.Turn, code string, balance *int64) error {
	standing := inbox.Standing{Code: code, BalanceMicros: balance}
	if turn != nil {
		standing.TurnID, standing.AgentID = turn.ID, turn.AgentID
	} else {
		standing.MessageIDs = p.waitingIDs()
		if p.work.Agent != nil {
			standing.AgentID = p.work.Agent.ID
		}
	}
	return p.storeStanding(ctx, standing, endedAttention)
}

// dead lets a turn stand that no further try can answer: only an operator can revive it.
func (p *pass) dead(ctx context.Context, turn *inbox.Turn, code string) error {
	return p.storeStanding(ctx, inbox.Standing{TurnID: turn.ID, AgentID: turn.AgentID, Code: code, Final: true}, endedDead)
}

func (p *pass) storeStanding(ctx context.Context, standing inbox.Standing, outcome string) error {
	if p.failsAgain(&standing) {
		return p.handOver(ctx, standing.TurnID, inbox.HandoverFailures)
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := p.Queue.Stand(ctx, p.lease, standing); err != nil {
		return fmt.Errorf("letting a turn stand: %w", err)
	}
	p.turnEnded(outcome + standing.Code)
	return nil
}
