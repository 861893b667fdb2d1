package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// States of a conversation.
const (
	StateAssistant = "assistant" // the assistant answers, except during the pause after an echo of a person's message
	StateHuman     = "human"     // a person has taken the conversation over; the assistant is silent
	StateClosed    = "closed"    // the customer has blocked the channel; the next text, or a part sent again, opens it
)

// States of a turn.
const (
	TurnAwaiting       = "awaiting"        // running: its request is stored, its answer isn't
	TurnAnswered       = "answered"        // its answer is stored as outbound messages
	TurnSuperseded     = "superseded"      // the next turn answers its texts together with newer ones
	TurnDiscarded      = "discarded"       // a person took the conversation over, or the customer blocked the channel
	TurnNeedsAttention = "needs_attention" // stands, and may end that by itself or by the customer's next text, see [Standing]
	TurnDead           = "dead"            // stands until [Queue.Retry]
)

// States of an outbound message.
const (
	OutboundPending         = "pending"          // not sent yet
	OutboundSending         = "sending"          // committed before the platform is called
	OutboundSent            = "sent"             // the platform has accepted it
	OutboundFailed          = "failed"           // not delivered; only [Queue.Resend] sends it again
	OutboundDeliveryUnknown = "delivery_unknown" // the platform was called without a usable result; only [Queue.Resend] sends it again
	OutboundDiscarded       = "discarded"        // taken back before it was sent
)

// Authors of a message.
const (
	AuthorCustomer  = "customer"
	AuthorAssistant = "assistant"
	AuthorHuman     = "human"
)

// Kinds of a message.
const (
	KindText  = "text"
	KindEvent = "event" // a message without text, such as an image; Text is its short name ("image")
	// KindTemplate is a message to the customer that is sent as a template; Text is its text with the variables filled in.
	KindTemplate = "template"
)

// Lease is a worker's claim on a conversation. Token is the fencing token; Until is by the database's clock.
type Lease struct {
	ConversationID, OrgID, ChannelID, CustomerRef string
	Token                                         int64
	Attempts                                      int64 // of the conversation, failed in a row before this lease
	Until                                         time.Time
	// TakenOver: the lease before this one ran out, because its worker died or stalled.
	TakenOver bool
	// Paces are those for parts that the holder marks as sending, which sets them.
	Paces Paces
	// Call is the model call for which the holder begins or ends a turn, which sets it. Nil means none.
	Call *Call

	reading *reading // of the transaction that leased it, nil for none
}

// Work is the state of a leased conversation.
type Work struct {
	Conversation Conversation
	Channel      store.Channel
	Agent        *store.Agent // nil when the channel has none
	Suspended    bool         // whether the organization is suspended
	HasOrgModels bool         // whether the organization has exceptions from the catalog of models
	// BudgetVersion counts the changes of the organization's budgets. 0 means that it never had one.
	BudgetVersion int64
	Turn          *Turn // the running turn, nil when there is none
	// Outbound are the pending and sending parts, in the order to send them, people's first. A part that is sending when the lease is new was left by
	// a worker that died: its delivery is unknown.
	Outbound []Outbound
	// Waiting are the open messages, in order of platform time, then arrival; empty while their quiet window lasts or the assistant is
	// silent. Those of
	// a running turn are not among them. They are texts, and of [KindEvent] such as need a notice or a person.
	Waiting []Message
	// WaitingSince is when the first of Waiting was stored, or 0; ReadAt is when Work was read. Both are epoch milliseconds by the
	// database's clock.
	WaitingSince, ReadAt int64
	// History is the conversation before, both directions, oldest first, without Waiting and unsent messages.
	History []Message
	// RecentReplies counts the replies of the assistant in the conversation in the last 10 minutes (loop guard).
	RecentReplies int
}

// Conversation is one customer on one channel. Times are epoch milliseconds; 0 means never.
type Conversation struct {
	ID, OrgID, ChannelID, CustomerRef, Address, CustomerName string
	State                                                    string // assistant | human | closed
	Attention                                                string // the code that needs attention, or ""
	Attempts                                                 int64  // failed in a row
	PausedUntil, LastCustomerAt, CreatedAt, UpdatedAt        int64
	BlockedAt                                                int64 // when a person has blocked the customer
	// UnansweredSince is when the first of the customer's texts arrived to which neither the assistant nor a person has really sent an
	// answer, or 0.
	UnansweredSince int64
	HandoverReason  string // why a person has the conversation, or had it last; "" if none ever had
	RetriedAt       int64  // when a person last had what stood answered again, or 0
	// ReportedAttention is the last attention since the customer was last answered, or "".
	ReportedAttention string
}

// silent reports whether the assistant must not write at a time.
func (c *Conversation) silent(now int64) bool {
	return silent(c.State, c.PausedUntil, c.BlockedAt, now)
}

// Message is one line of a conversation, in either direction. Its tags are for [Queue.Export].
type Message struct {
	ID     string `json:"id"`
	Author string `json:"author"` // customer | assistant | human
	Kind   string `json:"kind"`   // text | event | template
	Text   string `json:"text"`
	State  string `json:"state,omitzero"`  // of the delivery, "" for what came in
	Code   string `json:"code,omitzero"`   // the reason of a failure, or ""
	TurnID string `json:"turnId,omitzero"` // the turn that answers it or that it is part of, or ""
	// PlatformMessageID is empty until the platform has accepted the message.
	PlatformMessageID string `json:"platformMessageId,omitzero"`
	At                int64  `json:"-"`               // the platform's time of an incoming message, else when it was written; epoch milliseconds
	Handled           bool   `json:"-"`               // incoming, and needs no answer
	Edited            bool   `json:"edited,omitzero"` // incoming, and its sender has changed it
	Unreadable        bool   `json:"-"`               // Text is [UnreadableText]
	// Files are the files that the customer sent with it, or that a person sent, where messages are listed.
	Files []media.File `json:"files,omitzero"`

	placedAt int64 // when it was stored, which is its position in the conversation
}

// before orders messages by their positions in the conversation.
func (m Message) before(other Message) int {
	return cmp.Or(cmp.Compare(m.placedAt, other.placedAt), cmp.Compare(m.ID, other.ID))
}

// Turn is one answer of an assistant in progress.
type Turn struct {
	ID, AgentID string
	Request     []byte // as it was given to [Queue.BeginTurn]; nil if it doesn't open or is forgotten
	// Forgotten: the request was deleted, because its sender has taken back a message in it. [Queue.GiveWay] lets the texts wait again.
	Forgotten   bool `db:"-"`
	State, Code string
	Attempts    int64
	CreatedAt   int64 // epoch milliseconds
}

// Outbound is a part of an answer, or of a person's message, on its way to the platform.
type Outbound struct {
	ID, TurnID, Author, Text, State string
	Part, Attempts                  int64
	CreatedAt                       int64 // epoch milliseconds
	Since                           int64 // when the first of the texts arrived that it answers, epoch milliseconds; 0 for what people write
	Resends                         int64 // how often a person had it sent again; Attempts begin anew each time
	Unreadable                      bool  // it doesn't open, so that Text is empty
	// Template is the template that was passed to [Queue.SendTemplate]. A text has no template.
	Template []byte
	// FileID is the file to send. It is empty for a text or a template. Text is then its kind.
	FileID string
}

// Mark names this try to send the part, for platforms that repeat it in their reports; see [Item].
func (o *Outbound) Mark() string { return markOf(o.ID, o.Resends, o.Attempts) }

// markOf distinguishes the tries: a report of the first must not end the second.
func markOf(id string, resends, attempts int64) string {
	if resends > 0 {
		id += "." + strconv.FormatInt(resends, 10)
	}
	return id + "." + strconv.FormatInt(attempts, 10)
}

const (
	// LoopWindow is how far back [Work.RecentReplies] looks.
	LoopWindow = 10 * time.Minute
	// maxWaiting bounds the texts that are read for one turn, the newest. A turn with this number of texts also includes the earlier ones:
	// a flood isn't answered line by line, and leftover texts would make the conversation due again immediately, for ever.
	maxWaiting = 1000
)

// The statements of Open. LIMIT has an expression, because SQLite plans a statement with LIMIT $2 again for every value that is bound.
const (
	selectAsking = `SELECT id, agent_id, request, state, code, attempts, created_at FROM ` + runningTurn
	selectUnsent = `SELECT id, turn_id, author, body, state, part, attempts, created_at, resends, template, file_id,
			COALESCE((SELECT min(received_at) FROM messages m WHERE m.turn_id = outbound_messages.turn_id), 0) FROM outbound_messages
		WHERE ` + unsentOf + ` ORDER BY state DESC, author DESC, created_at, id`
	selectWaiting = `SELECT ` + inboundColumns + ` WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled
		ORDER BY sent_at DESC, received_at DESC, id DESC LIMIT CAST($2 AS BIGINT)`
	selectEarlier = `SELECT ` + inboundColumns + ` WHERE conversation_id = $1 AND (handled OR turn_id <> $2)
		ORDER BY received_at DESC, id DESC LIMIT CAST($3 AS BIGINT)`
	selectDelivered = `SELECT ` + outboundColumns + ` WHERE conversation_id = $1 AND state IN ('sent', 'delivery_unknown')
		ORDER BY created_at DESC, id DESC LIMIT CAST($2 AS BIGINT)`
	// selectOpened reads, beside the conversation, which of the other reads would find something: of a new customer none would.
	selectOpened = openedColumns + `EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND (handled OR turn_id IS NOT NULL))` + openedRow

	openedColumns = conversationColumns + `, lease_token, lease_until, run_at,
		EXISTS (SELECT 1 FROM organizations o WHERE o.id = conversations.org_id AND o.suspended_at IS NOT NULL),
		EXISTS (SELECT 1 FROM org_models m WHERE m.org_id = conversations.org_id),
		coalesce((SELECT o.budget_version FROM organizations o WHERE o.id = conversations.org_id), 0),
		EXISTS (SELECT 1 FROM turns WHERE id = conversations.turn_id AND state = 'awaiting'),
		EXISTS (SELECT 1 FROM outbound_messages WHERE ` + unsentOf + `), `
	openedRow = ` OR EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1),
		(SELECT count(*) FROM outbound_messages WHERE conversation_id = $1 AND created_at >= $3 AND author = 'assistant' AND part = 0)
		FROM conversations WHERE id = $1 AND org_id = $2`
)

// leasedTexts bounds the waiting texts that the transaction of a lease reads of a conversation. When that number waits, [Queue.Open] reads.
const leasedTexts = 8

// The statements by which the transaction of a lease reads a conversation. Their cost doesn't grow with the texts that wait. An earlier
// message is looked for among the oldest leasedTexts only: while fewer texts wait, one of these is an earlier message if there is any.
var (
	selectLeased = openedColumns + `EXISTS (SELECT 1 FROM (SELECT handled, turn_id FROM messages WHERE conversation_id = $1
		ORDER BY received_at, id LIMIT ` + strconv.Itoa(leasedTexts) + `) AS oldest WHERE handled OR turn_id IS NOT NULL)` + openedRow
	selectLeasedTexts = `SELECT ` + inboundColumns + ` WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled
		LIMIT ` + strconv.Itoa(leasedTexts)
)

// reading is a leased conversation without its running turn, unsent parts and earlier messages.
type reading struct {
	work         Work
	channel      *store.ChannelAgent
	waiting      []Message     // in any order
	token, until int64         // of the lease
	runAt        sql.NullInt64 // later than work.ReadAt while the quiet window lasts
	// asking, unsent, earlier: there is a running turn, an unsent part, an earlier message.
	asking, unsent, earlier bool
	failed                  bool // something could not be read
}

// Open reads the conversation of a lease, with up to history earlier messages. It reads without locks: every later operation is checked
// again when it is written. What doesn't open blocks nothing: waiting texts and unsent parts say so ([Message.Unreadable],
// [Outbound.Unreadable]), a running turn has no request, and the history leaves such messages out. It returns [ErrLeaseLost],
// [store.ErrNotFound] when the conversation was deleted, alone or with its channel, or a wrapped error of the store.
func (q *Queue) Open(ctx context.Context, lease Lease, history int) (Work, error) {
	if _, err := q.loadIDs(ctx, false); err != nil {
		return Work{}, err
	}
	r, err := q.read(ctx, lease)
	if err != nil {
		return Work{}, err
	}
	return q.open(ctx, lease, r, history)
}

// OpenLeased is [Queue.Open] for a conversation that [Queue.Lease] has just leased. It returns the conversation as the transaction of the
// lease read it, and reads only the history. So it doesn't notice that the lease was lost since; the next write does. Where a dead worker
// has left a turn or a part, the next step may be a call of a model or a platform: in that case, and for everything that the transaction
// could not read, OpenLeased is Open.
func (q *Queue) OpenLeased(ctx context.Context, lease Lease, history int) (Work, error) {
	r := lease.reading
	if r == nil || r.failed || r.asking || r.unsent || r.channel.Err != nil || len(r.waiting) == leasedTexts {
		return q.Open(ctx, lease, history)
	}
	return q.open(ctx, lease, r, history)
}

func (q *Queue) open(ctx context.Context, lease Lease, r *reading, history int) (work Work, err error) {
	work = r.work
	work.Channel = r.channel.Channel
	if r.channel.Agent != nil {
		agent := *r.channel.Agent // conversations of a channel share it
		work.Agent = &agent
	}
	if r.asking {
		if work.Turn, err = q.openTurn(ctx, lease); err != nil {
			return work, err
		}
	}
	if r.unsent {
		if work.Outbound, err = q.openOutbound(ctx, lease); err != nil {
			return work, err
		}
	}
	quiet := r.runAt.Valid && r.runAt.Int64 > work.ReadAt
	if !quiet && !work.Conversation.silent(work.ReadAt) && len(r.waiting) > 0 {
		work.Waiting = slices.SortedFunc(slices.Values(r.waiting), func(a, b Message) int { return cmp.Or(cmp.Compare(a.At, b.At), a.before(b)) })
		work.WaitingSince = slices.MinFunc(r.waiting, Message.before).placedAt
	}
	if r.earlier {
		work.History, err = q.openHistory(ctx, lease, history, &work)
	}
	return work, err
}

// read reads a conversation outside of a transaction. It returns [ErrLeaseLost].
func (q *Queue) read(ctx context.Context, lease Lease) (r *reading, err error) {
	r = &reading{}
	if r.work.ReadAt, err = q.db.Now(ctx); err != nil {
		return nil, err
	}
	_, err = store.ReadRow(ctx, q.db, "read", func(row store.Row) (struct{}, error) {
		return struct{}{}, r.scan(q, row)
	}, selectOpened, r.arguments(lease)...)
	switch {
	case err != nil:
		return nil, err
	case r.token != lease.Token || r.until == 0:
		return nil, ErrLeaseLost
	}
	if r.channel, err = q.readChannel(ctx, lease); err != nil {
		return nil, err
	}
	r.waiting, err = store.ReadRows(ctx, q.db, "read what waits", q.scanMessage(vault.InboundBody),
		selectWaiting, lease.ConversationID, maxWaiting)
	return r, err
}

func (q *Queue) readChannel(ctx context.Context, lease Lease) (*store.ChannelAgent, error) {
	channel, err := q.db.Channels.ByID(ctx, lease.OrgID, lease.ChannelID)
	read := &store.ChannelAgent{Channel: channel}
	if err != nil || channel.AgentID == "" {
		return read, err
	}
	agent, err := q.db.Agents.ByID(ctx, lease.OrgID, channel.AgentID)
	switch {
	case err == nil:
		read.Agent = &agent
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	return read, nil
}

// queueReading queues the reading of a conversation in the transaction that leases it. A row that can't be scanned fails no other lease. On
// PostgreSQL a NULL that can't be scanned would: no column may be one, whatever rows of other tables are missing.
func (q *Queue) queueReading(tx store.Tx, lease Lease, channel *store.ChannelAgent) *reading {
	r := &reading{work: Work{ReadAt: tx.Now()}, channel: channel}
	tx.QueueQuery(func(row store.Row) error {
		r.note(r.scan(q, row))
		return nil
	}, selectLeased, r.arguments(lease)...)
	message := q.scanMessage(vault.InboundBody)
	tx.QueueQuery(func(row store.Row) error {
		m, err := message(row)
		r.waiting = append(r.waiting, m)
		r.note(err)
		return nil
	}, selectLeasedTexts, lease.ConversationID)
	return r
}

// note records a fault.
func (r *reading) note(err error) { r.failed = r.failed || err != nil }

// arguments returns the arguments of selectOpened and selectLeased.
func (r *reading) arguments(lease Lease) []any {
	return []any{lease.ConversationID, lease.OrgID, r.work.ReadAt - LoopWindow.Milliseconds()}
}

// scan scans their row.
func (r *reading) scan(q *Queue, row store.Row) (err error) {
	r.work.Conversation, err = q.scanConversation(row, &r.token, &r.until, &r.runAt, &r.work.Suspended, &r.work.HasOrgModels,
		&r.work.BudgetVersion, &r.asking,
		&r.unsent, &r.earlier, &r.work.RecentReplies)
	return err
}

func (q *Queue) openTurn(ctx context.Context, lease Lease) (*Turn, error) {
	turns, err := store.ReadRows(ctx, q.db, "read its turn", store.ScanFields[Turn](), selectAsking, lease.ConversationID)
	if err != nil || len(turns) == 0 {
		return nil, err
	}
	turn := &turns[0]
	if turn.Request == nil {
		turn.Forgotten = true
		return turn, nil
	}
	if turn.Request, err = q.ring.Open(turn.Request, vault.TurnRequest(lease.OrgID, turn.ID)); err != nil {
		q.unreadable("the request of turn "+turn.ID, err)
	}
	return turn, nil
}

func (q *Queue) openOutbound(ctx context.Context, lease Lease) ([]Outbound, error) {
	return store.ReadRows(ctx, q.db, "read what is to be sent", func(row store.Row) (part Outbound, err error) {
		var turnID, fileID sql.NullString
		var body, template []byte
		err = row.Scan(&part.ID, &turnID, &part.Author, &body, &part.State, &part.Part, &part.Attempts, &part.CreatedAt, &part.Resends, &template,
			&fileID, &part.Since)
		if err != nil {
			return part, err
		}
		text, err := q.ring.Open(body, vault.OutboundBody(lease.OrgID, part.ID))
		if err == nil && template != nil {
			part.Template, err = q.ring.Open(template, vault.OutboundTemplate(lease.OrgID, part.ID))
		}
		if err != nil {
			part.Unreadable = true
			q.unreadable("message "+part.ID, err)
		}
		part.TurnID, part.Text, part.FileID = turnID.String, string(text), fileID.String
		return part, nil
	}, selectUnsent, lease.ConversationID)
}

// openHistory reads the last messages, without messages that wait for an answer or belong to the running turn.
func (q *Queue) openHistory(ctx context.Context, lease Lease, most int, work *Work) ([]Message, error) {
	if most <= 0 {
		return nil, nil
	}
	var running string
	if work.Turn != nil {
		running = work.Turn.ID
	}
	earlier, err := store.ReadRows(ctx, q.db, "read earlier messages", q.scanMessage(vault.InboundBody),
		selectEarlier, lease.ConversationID, running, most)
	if err != nil {
		return nil, err
	}
	sent, err := store.ReadRows(ctx, q.db, "read what was sent", q.scanMessage(vault.OutboundBody),
		selectDelivered, lease.ConversationID, most)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(append(earlier, sent...), func(m Message) bool { return m.Unreadable })
	slices.SortFunc(all, Message.before)
	return all[max(0, len(all)-most):], nil
}
