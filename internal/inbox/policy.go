package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Ending is what ends the standing of a turn or a part.
type Ending string

// The endings.
const (
	EndsWithCause  Ending = "cause"    // the worker looks every few seconds whether the cause is gone
	EndsInTime     Ending = "time"     // the worker tries again, with growing pauses
	EndsByText     Ending = "text"     // the customer's next text is answered together with those that stand
	EndsByPerson   Ending = "person"   // a person sends something else, or the same again; so does the customer's next text
	EndsByOperator Ending = "operator" // nothing but [Queue.Retry]
)

// Audience is who is told that something stands: the organization by the conversation's attention, the operator by the log, the
// metrics and the list of dead turns, too.
type Audience string

// The audiences.
const (
	TellOrganization Audience = "organization"
	TellOperator     Audience = "operator"
)

// standingLife is how long the worker tries to end a standing: a later answer is of no use.
const standingLife = 24 * time.Hour

// Policy is what happens to turns and parts that stand with a code.
type Policy struct {
	Ends Ending
	// For is for how long, from when the turn or the part was made, the worker ends the standing by itself; 0 if it never does.
	For  time.Duration
	Told Audience
}

// The codes of standing turns and parts, beside those of the contract's errors.
const (
	CodeNoAgent    = "no_agent"
	CodeLoopGuard  = "loop_guard"
	CodeEmpty      = "empty_answer"
	CodeUnreadable = "unreadable_message"
	CodeTooOld     = "message_too_old"
	CodeDraft      = "draft_waiting" // nothing failed: the turn has a [Draft]
	CodeMedia      = "media_message" // the customer wrote no text, and the channel has no notice for that
	CodeKeyReused  = "key_reused"
	CodeNotKept    = "not_kept"
	CodeSendFailed = "send_failed"
	// CodeTemplatePaused and CodeTemplateRefused: the platform doesn't take the template for some hours, or not like this.
	CodeTemplatePaused  = "template_paused"
	CodeTemplateRefused = "template_refused"
)

// Policies are the policies of all codes. docs/channels.md has the same table; a test compares them.
var Policies = map[string]Policy{
	string(errcode.InsufficientCredits):   {EndsWithCause, standingLife, TellOrganization},
	string(errcode.OrganizationSuspended): {EndsWithCause, standingLife, TellOrganization},
	CodeNoAgent:                           {EndsWithCause, standingLife, TellOrganization},
	string(errcode.ChannelNeedsReauth):    {EndsWithCause, standingLife, TellOrganization},
	CodeLoopGuard:                         {EndsInTime, standingLife, TellOrganization},
	string(errcode.ProviderError):         {EndsInTime, standingLife, TellOperator},
	string(errcode.ProviderOverloaded):    {EndsInTime, standingLife, TellOperator},
	string(errcode.ProviderTimeout):       {EndsInTime, standingLife, TellOperator},
	string(errcode.InternalError):         {EndsInTime, standingLife, TellOperator},
	CodeSendFailed:                        {EndsInTime, standingLife, TellOrganization},
	string(errcode.UnsupportedModel):      {EndsByText, 0, TellOrganization},
	string(errcode.ContextTooLong):        {EndsByText, 0, TellOrganization},
	CodeEmpty:                             {EndsByText, 0, TellOrganization},
	CodeUnreadable:                        {EndsByText, 0, TellOrganization},
	CodeTooOld:                            {EndsByText, 0, TellOrganization},
	CodeDraft:                             {EndsByPerson, 0, TellOrganization},
	CodeMedia:                             {EndsByPerson, 0, TellOrganization},
	string(errcode.TemplateRequired):      {EndsByPerson, 0, TellOrganization},
	CodeTemplatePaused:                    {EndsByPerson, 0, TellOrganization},
	CodeTemplateRefused:                   {EndsByPerson, 0, TellOrganization},
	CodeKeyReused:                         {EndsByOperator, 0, TellOperator},
	CodeNotKept:                           {EndsByOperator, 0, TellOperator},
}

// PolicyOf returns the policy of a code. An unknown one, which another version has written, is the operator's.
func PolicyOf(code string) Policy {
	if policy, known := Policies[code]; known {
		return policy
	}
	return Policy{EndsByOperator, 0, TellOperator}
}

// AssistantFailed reports whether an assistant that stands with a code has failed by itself, rather than for want of funds, of its channel
// or of an agent.
func AssistantFailed(code string) bool {
	switch code {
	case string(errcode.ProviderError), string(errcode.InternalError), string(errcode.UnsupportedModel), string(errcode.ContextTooLong),
		CodeEmpty, CodeUnreadable, CodeKeyReused, CodeNotKept:
		return true
	}
	return false
}

// Standing ends a running turn, or one that is made for waiting texts, without an answer.
type Standing struct {
	// TurnID is the turn, or "" for one that is made of AgentID and MessageIDs.
	TurnID, AgentID string
	MessageIDs      []string
	// Code is why; it selects the [Policy].
	Code string
	// BalanceMicros is the wallet's free balance, nil when that doesn't matter.
	BalanceMicros *int64
	// Final: another try would fail in the same way, whatever the policy says.
	Final bool
}

// Heals reports whether the standing may end without the customer or a person.
func (s *Standing) Heals() bool {
	ends := PolicyOf(s.Code).Ends
	return !s.Final && (ends == EndsInTime || ends == EndsWithCause)
}

// state returns the row's state of a turn that was made some time ago: needs_attention while its standing can end by itself or by the
// customer's next text, dead when only an operator can end it.
func (s *Standing) state(age time.Duration) string {
	policy := PolicyOf(s.Code)
	if s.Final || policy.Ends == EndsByOperator || policy.Ends == EndsInTime && age >= policy.For {
		return TurnDead
	}
	return TurnNeedsAttention
}

// Stand lets a turn stand: it gets no answer until its [Policy] or an operator ends that, and the conversation shows the code. What
// worker and customer end is listed by [Queue.StandingTurns] and ended by [Queue.Resume] or the customer's next text, which is answered
// together with the turn's; when that has arrived already, they wait with it and no turn stands. What only an operator ends is listed by
// [Queue.DeadTurns] and ended by [Queue.Retry]; later texts get their own answer. Errors are those of [Queue.BeginTurn],
// [ErrEnded] for a turn that isn't running, and [ErrInvalid] without a code.
func (q *Queue) Stand(ctx context.Context, lease Lease, standing Standing) error {
	if standing.Code == "" {
		return fmt.Errorf("let a turn stand: %w: it needs a code", ErrInvalid)
	}
	var balance sql.NullInt64
	if standing.BalanceMicros != nil {
		balance = sql.NullInt64{Int64: *standing.BalanceMicros, Valid: true}
	}
	if standing.TurnID == "" {
		return q.begin(ctx, &beginOp{
			leased: leased{lease: lease}, turnID: store.NewID("trn"), agentID: standing.AgentID, messageIDs: standing.MessageIDs,
			state: standing.state(0), code: standing.Code, balance: balance,
		})
	}
	return q.do(ctx, "let a turn stand", &standOp{
		turnOp: turnOp{leased: leased{lease: lease}, turnID: standing.TurnID}, standing: standing, balance: balance,
	})
}

type standOp struct {
	turnOp

	standing Standing
	balance  sql.NullInt64
	newer    []string
}

func (op *standOp) read(s *session) {
	op.turnOp.read(s)
	queueOpenTexts(s.tx, op.conversation(), &op.newer)
}

func (op *standOp) run(_ context.Context, s *session) error {
	c := op.asking(s)
	if c == nil {
		return nil
	}
	state := op.standing.state(time.Duration(s.now-op.createdAt) * time.Millisecond)
	op.end(s, state, op.standing.Code, op.balance)
	c.attention = op.standing.Code
	c.touch(s.now)
	if state == TurnNeedsAttention && len(op.newer) > 0 {
		takeUp(s.tx, c.id, s.now) // otherwise newer ones could be answered first
	}
	return nil
}
