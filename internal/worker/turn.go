package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// maxRecentReplies bounds the replies of an assistant in one conversation within the ten minutes that [inbox.Work.RecentReplies]
	// counts. A person who types and reads gets no more than a reply every half minute; a customer who is faster during all that time is
	// another bot.
	maxRecentReplies = 20
	// maxHalvings is enough to drop a full history.
	maxHalvings = 8
)

// turn runs a turn for the waiting texts, if any. The queue decides whether the assistant may: while a person has the conversation, no text
// waits, and the end of a begun turn is refused.
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
	if p.work.Turn == nil && len(p.work.Waiting) <= mostWordless && !slices.ContainsFunc(p.work.Waiting, isText) {
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
		return 0, p.stand(ctx, turn, inbox.Standing{Code: code})
	}
	ctx, end := p.traceTurn(ctx)
	defer end()
	if turn == nil {
		return p.tryNewTurn(ctx)
	}
	if turn.Forgotten {
		return 0, p.giveWay(ctx, turn.ID, inbox.Interruption{Person: true})
	}
	if turn.Attempts >= maxTries { // each try ended its worker
		return 0, p.stand(ctx, turn, inbox.Standing{Code: codes.InternalError, Final: true})
	}
	request, err := decodeRequest(turn.Request)
	if err != nil {
		p.Logger.ErrorContext(ctx, "a turn's stored request can't be read", "turn", turn.ID, "error", err)
		return 0, p.stand(ctx, turn, inbox.Standing{Code: codes.Unreadable, Final: true})
	}
	if request.Person != "" {
		return 0, p.handOver(ctx, turn.ID, request.Person)
	}
	return p.ask(ctx, turn, request)
}

// tryNewTurn calls the model for a turn of all waiting texts, which begins together with the call's hold.
func (p *pass) tryNewTurn(ctx context.Context) (wait time.Duration, err error) {
	agent := p.work.Agent
	words := agent.HandoverWords // the words of customers that the agent leaves to people
	if len(words) > 0 && slices.ContainsFunc(p.readableTexts(), func(m inbox.Message) bool { return knowledge.Says(m.Text, words) }) {
		return 0, p.handOver(ctx, "", inbox.HandoverWords)
	}
	model, known := p.Gateway.Model(agent.Model)
	if !known {
		return 0, fmt.Errorf("the model %q left the catalog", agent.Model)
	}
	snippets, err := p.searchDocuments(ctx, agent)
	if err != nil {
		return 0, err
	}
	request := newRequest(agent, model, prompt{History: p.work.History, Waiting: p.readable(), Knowledge: snippets})
	turn := p.newTurn()
	p.live.joins(turn.ID, p.work.Waiting)
	if p.lease.Attempts > 0 { // the turn counts the tries that end their worker, which may be before its call is held
		if err := p.beginAlone(ctx, turn, request); err != nil {
			return 0, err
		}
	}
	return p.ask(ctx, turn, request)
}

// readable returns the waiting texts that could be opened. The others also belong to the turn, but can't be shown to a model.
func (p *pass) readable() []inbox.Message {
	return slices.DeleteFunc(slices.Clone(p.work.Waiting), func(m inbox.Message) bool { return m.Unreadable })
}

// readableTexts returns the customer's texts among them.
func (p *pass) readableTexts() []inbox.Message {
	return slices.DeleteFunc(p.readable(), func(m inbox.Message) bool { return !isText(m) })
}

// obstacle returns the code that keeps the assistant from answering, or none. No model is called in that case.
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

// newTurn returns a turn that has not begun.
func (p *pass) newTurn() *inbox.Turn {
	return &inbox.Turn{ID: store.NewID("trn"), AgentID: p.work.Agent.ID}
}

// beginAlone begins a turn without a call.
func (p *pass) beginAlone(ctx context.Context, turn *inbox.Turn, request *storedRequest) error {
	ctx, cancel := storing(ctx)
	defer cancel()
	return p.beginCall(ctx, turn, request, nil)
}

// searchDocuments searches the agent's documents for the waiting texts. A failed search ends the try: an answer without the documents
// could be wrong.
func (p *pass) searchDocuments(ctx context.Context, agent *store.Agent) ([]knowledge.Snippet, error) {
	if len(agent.KnowledgeBaseIDs) == 0 {
		return nil, nil
	}
	var query strings.Builder
	for _, m := range p.readableTexts() {
		query.WriteString(m.Text)
		query.WriteByte('\n')
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	snippets, err := p.Knowledge.Search(ctx, p.lease.OrgID, agent.KnowledgeBaseIDs, query.String(), knowledge.PromptSnippets)
	return snippets, store.Wrap("searching the agent's documents", err)
}

func (p *pass) waitingIDs() []string {
	return store.Column(p.work.Waiting, func(m inbox.Message) string { return m.ID })
}

// answer ends the turn with the model's answer, in one transaction with the call's settlement. Newer messages may discard it, once, if the
// agent is set so. Without an error the call is settled.
func (p *pass) answer(ctx context.Context, turn *inbox.Turn, request *storedRequest, text string) (end ending, err error) {
	text, reason := p.lastWords(request, text)
	if text == "" && reason == "" {
		return ends(p.stand(ctx, turn, inbox.Standing{Code: codes.EmptyAnswer}))
	}
	drafts := p.work.Channel.Answers.Drafts
	if drafts && reason == "" {
		return ends(p.propose(ctx, turn, text))
	}
	p.lease.Call.Supersede = p.work.Agent.Supersede && !p.superseded && !p.stopping()
	var parts []string
	if text != "" && !drafts { // last words aren't sent by themselves there
		parts = p.split(text)
	}
	p.makeReady(ctx)
	if err := p.lookForPeople(ctx); err != nil {
		return ends(err)
	}
	rows, personFirst, err := p.store(ctx, turn, reason, parts)
	switch {
	case errors.Is(err, inbox.ErrDraftMode): // since the conversation was opened
		return ends(p.propose(ctx, turn, text))
	case errors.Is(err, inbox.ErrSuperseded):
		return func() (time.Duration, error) { return p.again(ctx) }, nil
	case err != nil:
		return ends(err)
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
		return ends(nil)
	}
	return func() (time.Duration, error) { return p.send(ctx, rows, true) }, nil
}

// split cuts an answer into messages. After a worker's death it leaves the Markdown as the model wrote it, because rendering this answer may have
// ended that worker.
func (p *pass) split(text string) []string {
	return p.Platforms.Split(p.work.Channel.Type, text, p.lease.TakenOver)
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

// store stores the answer, with which the conversation is handed over for the reason, unless that is empty. Its first part is marked as
// sending in the same commit when it can be sent now. It insists: the vendor has answered, and would be asked again. Rows of an unconfirmed
// commit are pending again, for the next pass: its platform was not called. personFirst: a person's message waits, which is sent before the
// answer.
func (p *pass) store(ctx context.Context, turn *inbox.Turn, reason string, parts []string) (rows []inbox.Outbound, personFirst bool, err error) {
	sendFirst := ctx.Err() == nil && p.refusal(inbox.AuthorAssistant, false) == nil
	uncertain := false
	err = insist(ctx, func(ctx context.Context) (err error) {
		rows, err = p.storeAnswer(ctx, turn.ID, reason, parts, sendFirst)
		uncertain = uncertain || unconfirmed(err)
		return err
	})
	if p.tooEarly(err) {
		return rows, false, nil
	}
	if err != nil {
		if sendFirst && uncertain {
			p.unmark(ctx, "")
		}
		if uncertain && errors.Is(err, inbox.ErrEnded) { // by the commit that was not confirmed
			return nil, true, nil
		}
		return nil, false, fmt.Errorf("storing the answer: %w", err)
	}
	return rows, sendFirst && len(rows) > 0 && rows[0].State == inbox.OutboundPending, nil
}

// stand lets the turn stand; without a turn that has begun the waiting texts become one.
func (p *pass) stand(ctx context.Context, turn *inbox.Turn, standing inbox.Standing) error {
	if turn != nil && turn.State != "" {
		standing.TurnID, standing.AgentID = turn.ID, turn.AgentID
	} else {
		standing.MessageIDs = p.waitingIDs()
		if p.work.Agent != nil {
			standing.AgentID = p.work.Agent.ID
		}
	}
	if p.failsAgain(&standing) {
		return p.handOver(ctx, standing.TurnID, inbox.HandoverFailures)
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := p.Queue.Stand(ctx, p.lease, standing); err != nil {
		return fmt.Errorf("letting a turn stand: %w", err)
	}
	outcome := endedAttention
	if standing.Final {
		outcome = endedDead
	}
	p.turnEnded(outcome + standing.Code)
	return nil
}

// tooOld reports whether the customer wrote, or a person had what stood tried again, longer ago than the channel's limit. Only the time
// since the business opened counts.
func (p *pass) tooOld() bool {
	most := time.Duration(p.work.Channel.Answers.MaxAgeMinutes) * time.Minute
	c := &p.work.Conversation
	if most == 0 || p.waited(max(c.LastCustomerAt, c.RetriedAt)) <= most {
		return false
	}
	open, since := p.openNow()
	return open && (since.IsZero() || p.waited(since.UnixMilli()) > most)
}

// unsendable returns the code of a part that must not be sent, or none. Of an answer that has become too old nothing is sent, but a begun
// answer is sent to its end, and so is a part that a person has sent again.
func (p *pass) unsendable(row *inbox.Outbound) string {
	switch {
	case row.Unreadable:
		return codes.Unreadable
	case row.Author == inbox.AuthorAssistant && row.Part == 0 && row.Resends == 0 && p.tooOld():
		return codes.TooOld
	}
	return ""
}
