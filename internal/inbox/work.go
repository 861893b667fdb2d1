package inbox

import (
	"strconv"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
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
	Turn         *Turn        // the running turn, nil when there is none
	// Outbound are the pending and sending parts, in the order to send them, people's first. A part that is sending when the lease is new was left by
	// a worker that died: its delivery is unknown.
	Outbound []Outbound
	// Waiting are the open messages, in order of platform time, then arrival; empty while their quiet window lasts or the assistant is
	// silent. Those of
	// a running turn are not among them. They are texts, and of [KindEvent] such as need a notice or a person.
	Waiting []Message
	// WaitingSince is when the first of Waiting was stored, 0 without any; ReadAt is when Work was read. Both are epoch
	// milliseconds by the database's clock.
	WaitingSince, ReadAt int64
	// History is the conversation before, both directions, oldest first, without Waiting and what was never sent.
	History []Message
	// RecentReplies counts the answers the assistant wrote here in the last 10 minutes (loop guard).
	RecentReplies int
}

// Conversation is one customer on one channel. Times are epoch milliseconds, 0 for never.
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

// Message is one line of a conversation, in either direction.
type Message struct {
	ID                string
	Author            string // customer | assistant | human
	Kind              string // text | event | template
	Text              string
	State             string // of the delivery, "" for what came in
	Code              string // the reason of a failure, or ""
	TurnID            string // the turn that answers it or that it is part of, or ""
	PlatformMessageID string // "" until the platform has accepted it
	At                int64  // the platform's time of an incoming message, else when it was written; epoch milliseconds
	Handled           bool   // incoming, and needs no answer
	Edited            bool   // incoming, and its sender has changed it
	Unreadable        bool   // Text is [UnreadableText]
	// Files are those that the customer sent with it, or that a person sent as it, where messages are listed.
	Files []media.File
}

// Turn is one answer of an assistant in progress.
type Turn struct {
	ID, AgentID string
	Request     []byte // as it was given to [Queue.BeginTurn]; nil if it doesn't open or is forgotten
	// Forgotten: the request was deleted, because its sender has taken back a message in it. [Queue.GiveWay] lets the texts wait again.
	Forgotten   bool
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
	// Template is the template to send, as it was given to [Queue.SendTemplate]; nil for a text.
	Template []byte
	// FileID is the file to send, "" for a text or a template. Text is then its kind.
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
