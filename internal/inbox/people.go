package inbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Why a person has a conversation.
const (
	HandoverPerson    = "person"    // one took it over
	HandoverAssistant = "assistant" // the assistant asked for one
	HandoverWords     = "words"     // the customer wrote a word that the agent leaves to people
	HandoverFailures  = "failures"  // the assistant failed to answer twice in a row
)

// peopleState is the part of a conversation's row from which events are made.
type peopleState struct {
	// unansweredSince is when the first of the customer's texts arrived to which neither the assistant nor a person has really sent an
	// answer, or 0; epoch milliseconds.
	unansweredSince int64
	// attentionTold is the last attention for which an event was written since the last answer. The same attention again, such as with
	// each try in an outage, writes none.
	attentionTold  string
	handoverReason string // why a person has the conversation, or had it last; "" if none ever had
	// retriedAt is when a person last had what stood answered again, or 0; epoch milliseconds.
	retriedAt int64
	// closedUntil is until when the customer has been told that the business is closed; epoch milliseconds.
	closedUntil int64
	// doubtSince is when a message to the customer last became [OutboundDeliveryUnknown] that no person has looked at yet, or 0; epoch
	// milliseconds. Another attention may hide this one, and gives way to it again when it ends.
	doubtSince int64
}

// asked records that the customer waits for an answer, unless a person has blocked them.
func (c *conversationRow) asked(now int64) {
	if c.people.unansweredSince == 0 && c.blockedAt == 0 {
		c.people.unansweredSince = now
	}
}

// replied records that somebody has answered the customer. since is when the first text arrived that the answer was not to, or 0.
func (c *conversationRow) replied(since int64) {
	c.people.unansweredSince, c.people.attentionTold = since, ""
}

// handOver gives the conversation to people.
func (c *conversationRow) handOver(reason string) {
	c.state, c.people.handoverReason = StateHuman, reason
}

// close ends the conversation until the customer writes again.
func (c *conversationRow) close() {
	c.state = StateClosed
	c.replied(0)
}

// queueEvents writes the events that follow from the row's changes.
func (c *conversationRow) queueEvents(tx store.Tx) {
	event := store.Event{OrgID: c.orgID, ConversationID: c.id, ChannelID: c.key.channelID}
	if c.state == StateHuman && c.stored.state != StateHuman {
		event.Type, event.Reason = store.EventHandover, c.people.handoverReason
		store.QueueEvent(tx, &event)
	}
	shown := c.attention == OutboundDeliveryUnknown && c.people.doubtSince == c.storedPeople.doubtSince // not for the first time
	if c.attention != "" && c.attention != c.stored.attention && c.attention != c.people.attentionTold && !shown {
		c.people.attentionTold = c.attention
		event.Type, event.Reason, event.Code = store.EventAttention, "", c.attention
		store.QueueEvent(tx, &event)
	}
}

// waitsForPeople is the condition of the index conversations_unanswered, and behind it, because an index knows no time, that a pause lasts at
// the time {now}.
const waitsForPeople = `(attention <> '' OR (unanswered_since > 0 AND (state = 'human' OR paused_until > 0)))
	AND (attention <> '' OR state = 'human' OR paused_until > {now})`

var countWaiting = `SELECT count(*) FROM (SELECT 1 FROM conversations WHERE org_id = $1 AND ` +
	strings.ReplaceAll(waitsForPeople, "{now}", "$3") + ` LIMIT $2) AS waiting`

// MaxWaiting is the most that [Queue.WaitingForPeople] counts to.
const MaxWaiting = 100

// WaitingForPeople counts an organization's conversations that wait for a person: because something in them needs attention, or because
// the customer has no answer and the assistant is silent, as a person has the conversation or has written in it. It counts to [MaxWaiting].
func (q *Queue) WaitingForPeople(ctx context.Context, orgID string) (int, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("count waiting conversations: %w", err)
	}
	return store.ReadRow(ctx, q.db, "count waiting conversations", store.ScanValue[int],
		countWaiting, orgID, MaxWaiting, now)
}
