// Package worker runs the assistants: it leases a due conversation, calls the model once for all waiting texts, and sends the answer part
// by part.
//
// The path of a conversation: lease → open → settle the work of a dead worker → send pending parts → call the model under the turn's id →
// store the answer → send it → release.
//
// Invariants:
//   - One lease, one goroutine. Every write carries the lease's token; a worker that has lost its lease writes nothing more.
//   - The request is stored before the model is called and never changes after an answer exists: however often a turn is
//     repeated, it is charged once.
//   - A message is committed as sending before its platform is called. A send that breaks off after that is delivery_unknown,
//     and never repeated.
//   - Messages of a conversation are sent in order; if a part fails, the later parts of its answer fail with it.
//   - Every retry is bounded and jittered; a cause that waiting doesn't resolve stalls the turn with a code until it is gone.
//   - No organization has more than half of the places. Places that get free go to the organizations with the fewest leases in all workers,
//     and none stays free while another organization has work.
//
// Rows belong to package inbox, the price of a call to package gateway, vendors' APIs to package platforms, metrics and
// configuration to package caddymodule.
package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// DefaultConcurrency is how many conversations one worker has at a time unless the operator configures another number.
	DefaultConcurrency = 32
	// DefaultLease is how long a conversation stays with a worker that stopped renewing, and so the customer's additional wait
	// after a worker was killed.
	DefaultLease = time.Minute
	// storeWait bounds every wait for the store.
	storeWait = 10 * time.Second
	// actor is the worker's name in the audit log.
	actor = "worker"
)

// Causes that end a conversation's context before its work is done.
var (
	errStopping  = errors.New("the worker is stopping and its grace period is over")
	errLeaseLost = errors.New("the conversation's lease is lost")
)

// Queue is implemented by [inbox.Queue]. In tests a queue fails between two steps, or runs on the clock of a bubble.
type Queue interface { //nolint:interfacebloat // a conversation has as many steps
	// By these a worker gets conversations, renews and returns them, and finds new work.
	Lease(ctx context.Context, free inbox.Places, life time.Duration) ([]inbox.Lease, error)
	Claim(ctx context.Context, orgID, conversationID string, life time.Duration) (inbox.Lease, error)
	Renew(ctx context.Context, lease inbox.Lease, life time.Duration) (inbox.Lease, error)
	Release(ctx context.Context, lease inbox.Lease) error
	Backoff(ctx context.Context, lease inbox.Lease, wait time.Duration) error
	Postpone(ctx context.Context, lease inbox.Lease, wait time.Duration) error
	StandingTurns(ctx context.Context, newerThan time.Time, limit int) ([]inbox.StandingTurn, error)
	Resume(ctx context.Context, turnID string, attempts int64) error
	Reconnected(ctx context.Context, limit int) (woken int, err error)
	SkipUnknown(ctx context.Context, known func(channelType string) bool) (added []string, err error)
	Wait(ctx context.Context, idle time.Duration) error
	Committed() <-chan struct{}

	// By these a turn goes from waiting messages to its end.
	Enqueue(ctx context.Context, arrivals []inbox.Arrival) error
	Reply(ctx context.Context, orgID, channelID, platformMessageID string) (inbox.Reply, error)
	Open(ctx context.Context, lease inbox.Lease, history int) (inbox.Work, error)
	OpenLeased(ctx context.Context, lease inbox.Lease, history int) (inbox.Work, error)
	RecentRequests(ctx context.Context, lease inbox.Lease) (turns int, err error)
	Unanswered(ctx context.Context, lease inbox.Lease) (sent int, err error)
	Interruptions(ctx context.Context, turns []inbox.RunningTurn) (map[string]inbox.Interruption, error)
	BeginCall(ctx context.Context, lease inbox.Lease, turn inbox.Turn, messageIDs []string) error
	GiveWay(ctx context.Context, lease inbox.Lease, turnID string) error
	Stand(ctx context.Context, lease inbox.Lease, standing inbox.Standing) error
	Answer(ctx context.Context, lease inbox.Lease, turnID string, parts []string, sendFirst bool) ([]inbox.Outbound, error)
	AnswerAndHandOver(ctx context.Context, lease inbox.Lease, turnID, reason string, parts []string, sendFirst bool) ([]inbox.Outbound, error)
	Propose(ctx context.Context, lease inbox.Lease, turnID string, parts []string) error
	SayClosed(ctx context.Context, lease inbox.Lease, parts []string, opening time.Time) ([]inbox.Outbound, error)
	SayNotice(ctx context.Context, lease inbox.Lease, messageIDs, parts []string) ([]inbox.Outbound, error)

	// By these a part goes from its answer to its end.
	Sending(ctx context.Context, lease inbox.Lease, outboundID string) error
	Unmark(ctx context.Context, lease inbox.Lease, called string) error
	Sent(ctx context.Context, lease inbox.Lease, outboundID, platformMessageID, next string) error
	SentAndRelease(ctx context.Context, lease inbox.Lease, outboundID, platformMessageID string) error
	SendFailed(ctx context.Context, lease inbox.Lease, outboundID, state, code string, o inbox.SendFailure) error
}

// Gateway is implemented by [gateway.Gateway].
type Gateway interface {
	Call(ctx context.Context, req *gateway.Request, sink gateway.Sink) (*gateway.Result, error)
	FreeBalance(ctx context.Context, orgID string, env store.Env) (micros int64, err error)
	BudgetRoom(ctx context.Context, orgID, agentID string, env store.Env) (micros int64, err error)
	Model(id string) (*gateway.Model, bool)
}

// Platforms are the methods of [messaging.Set] that the worker calls.
type Platforms interface {
	Find(channelType string) (t messaging.ChannelType, ok bool)
	Split(channelType, text string, plain bool) []string
	Refreshable(t platforms.Type) bool
	Send(ctx context.Context, out platforms.Outgoing) (messageID string, err error)
	SendFile(ctx context.Context, out platforms.Outgoing, file platforms.File) (messageID string, err error)
	Refresh(ctx context.Context, channel *platforms.Channel) (platforms.Credentials, error)
	Signals(t platforms.Type) bool
	Signal(ctx context.Context, signal platforms.Signal) error
	ReadsThreads(t platforms.Type) bool
	ReadThread(ctx context.Context, thread platforms.Thread) ([]platforms.Inbound, error)
}

// Knowledge is implemented by [knowledge.Library].
type Knowledge interface {
	Search(ctx context.Context, orgID string, baseIDs []string, query string, n int) ([]knowledge.Snippet, error)
}

// Config configures a [Worker]. Queue, DB, Ring, Gateway, Platforms and Knowledge are required.
type Config struct {
	// Queue holds the conversations.
	Queue Queue
	// DB has the channels. Ring opens and seals their credentials.
	DB   *store.DB
	Ring *vault.Ring
	// Gateway calls the models.
	Gateway Gateway
	// Platforms sends the messages.
	Platforms Platforms
	// Knowledge searches the documents of agents that have some.
	Knowledge Knowledge
	// Concurrency is how many conversations are worked on at a time. 0 means [DefaultConcurrency].
	Concurrency int
	// Lease is the life of a lease between two renewals. 0 means [DefaultLease].
	Lease time.Duration
	// Exit is closed when the process ends, after which [Worker.AnswerNow] begins nothing more; nil never is. [Worker.Run] ends
	// by its context.
	Exit <-chan struct{}
	// Tracer makes the spans of [Worker.Run]; nil traces nothing. Its provider's ids should come from package tracing. What
	// [Worker.AnswerNow] does is traced below its caller's span.
	Tracer trace.Tracer
	// Observer counts; nil counts nothing.
	Observer Observer
	// Logger gets faults, never a customer's text; nil discards them.
	Logger *slog.Logger
	// Now is the clock of tokens' expiries. Nil means [time.Now].
	Now func() time.Time
}

// Worker runs the assistants. It holds only the running work; everything else is in the store.
type Worker struct {
	Config
	refreshes *dispatch.Turns // by channel
	watches   watches
	signals   signals
	// files holds a token for each file in memory.
	files chan struct{}
}

// New returns a worker that is idle until [Worker.Run] or [Worker.AnswerNow].
func New(cfg Config) *Worker {
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	cfg.Lease = cmp.Or(cfg.Lease, DefaultLease)
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Worker{Config: cfg, refreshes: dispatch.NewTurns(refreshBounds), files: make(chan struct{}, filesAtOnce)}
}

// Run works until ctx ends. After that it leases nothing new and calls no model; running model calls and sends have grace to end. What
// still runs after that is cancelled, and every lease is given back, so that another worker continues immediately. Run returns when all of
// its goroutines have ended. Faults of the store are logged and tried again.
func (w *Worker) Run(ctx context.Context, grace time.Duration) error {
	if err := w.skipMissing(ctx); err != nil {
		w.Logger.ErrorContext(ctx, "channels without a platform will be found when they are due", "error", err)
	}
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	var loops sync.WaitGroup
	loops.Go(func() { w.resumeLoop(ctx) })
	loops.Go(func() { w.renewalLoop(ctx, work) })
	d := newDispatcher(work, w, ctx.Done())
	d.run(ctx)
	graceOver := time.AfterFunc(grace, func() { cut(errStopping) })
	defer graceOver.Stop()
	d.running.Wait()
	w.signals.running.Wait()
	loops.Wait()
	return nil
}

// skipMissing leaves the conversations of platforms that this program doesn't contain to other workers, and logs each of their types once.
func (w *Worker) skipMissing(ctx context.Context) error {
	bounded, cancel := storing(ctx)
	defer cancel()
	missing, err := w.Queue.SkipUnknown(bounded, func(channelType string) bool {
		_, known := w.Platforms.Find(channelType)
		return known
	})
	for _, channelType := range missing {
		w.Logger.WarnContext(ctx, "this program doesn't contain the platform of some channels: they wait until it is built in",
			"type", channelType)
	}
	return err
}

// storing returns the context of one read or write of the store. It outlives the pass's context: what happened outside has to
// be recorded, and the lease's token decides whether it still may.
func storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), storeWait, errStoreSlow)
}

var errStoreSlow = errors.New("the store took longer than 10 s")

// Observer counts the worker's results. Its methods are called from many goroutines and must not block.
type Observer interface {
	// Leased counts leased conversations.
	Leased(n int)
	// LeaseLost counts leases that ran out while the worker had their conversations.
	LeaseLost()
	// TurnBegan observes how long the first of a turn's texts has waited for it, on a channel of a type. The agent's quiet window
	// is part of that, as are tries that failed before.
	TurnBegan(channelType string, waited time.Duration)
	// Answered observes how long the first of the texts that an answer is for has waited until the platform had taken its first part.
	Answered(channelType string, waited time.Duration)
	// TurnEnded counts passes over a turn by how they ended: "answered", "handed_over", "superseded", "discarded", "retried",
	// "postponed", "closed", "notice", "released", or "attention_" or "dead_" with the code.
	TurnEnded(outcome string)
	// Sent counts tries to send by type of channel and outcome: "sent", or the class of the platform's error
	// ([platforms.Class]).
	Sent(channelType, outcome string)
	// Refreshed counts calls that refresh a channel's token, by type of channel and outcome: "refreshed", or the class of the
	// platform's error.
	Refreshed(channelType, outcome string)
}

type unobserved struct{}

func (unobserved) Leased(int)                      {}
func (unobserved) LeaseLost()                      {}
func (unobserved) TurnBegan(string, time.Duration) {}
func (unobserved) Answered(string, time.Duration)  {}
func (unobserved) TurnEnded(string)                {}
func (unobserved) Sent(string, string)             {}
func (unobserved) Refreshed(string, string)        {}

// Outcomes of passes over a turn, for [Observer.TurnEnded].
const (
	endedAnswered   = "answered"
	endedHandedOver = "handed_over"
	endedSuperseded = "superseded"
	endedDiscarded  = "discarded"
	endedRetried    = "retried"
	endedPostponed  = "postponed"
	endedClosed     = "closed"
	endedNotice     = "notice"
	endedReleased   = "released"
	endedAttention  = "attention_"
	endedDead       = "dead_"
)
