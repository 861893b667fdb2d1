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
	// reportedAttention is the last attention for which an event was written since the last answer. The same attention again, such as with
	// each try in an outage, writes none.
	reportedAttention string
	handoverReason    string // why a person has the conversation, or had it last; "" if none ever had
	// retriedAt is when a person last had what stood answered again, or 0; epoch milliseconds.
	retriedAt int64
	// closedUntil is until when the customer has a notice that the business is closed; epoch milliseconds.
	closedUntil int64
	// unknownSince is when a message to the customer last became [OutboundDeliveryUnknown] that no person has acknowledged yet, or 0; epoch
	// milliseconds. Another attention may hide this one, which shows again when that ends.
	unknownSince int64
}

// startWait records that the customer waits for an answer, unless a person has blocked them.
func (c *conversationRow) startWait(now int64) {
	if c.people.unansweredSince == 0 && c.blockedAt == 0 {
		c.people.unansweredSince = now
	}
}

// answered records that the customer was answered. since is when the first text arrived that the answer was not for, or 0.
func (c *conversationRow) answered(since int64) {
	c.people.unansweredSince, c.people.reportedAttention = since, ""
}

// handOver gives the conversation to people.
func (c *conversationRow) handOver(reason string) {
	c.state, c.people.handoverReason = StateHuman, reason
}

// HandOver gives an organization's conversation to a person: unsent answers are discarded, and the customer waits for the person.
// The customer's texts, also later ones, are not answered until [Queue.HandBack]. It returns [store.ErrNotFound],
// [ErrConversationClosed], or a wrapped error of the store.
func (q *Queue) HandOver(ctx context.Context, actor, orgID, id string) error {
	var unsent bool // a part of an answer has not been sent
	return q.do(ctx, "hand over", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		switch c.state {
		case StateClosed:
			return refusal{ErrConversationClosed}
		case StateHuman:
			return nil
		}
		c.handOver(HandoverPerson)
		s.discard(c, codeHandedOver)
		if unsent {
			c.startWait(s.now)
		}
		s.audit(c, actor, "hand_over")
		return nil
	}, readInto([]any{&unsent}, `SELECT EXISTS (SELECT 1 FROM outbound_messages WHERE `+unsentOf+` AND author = 'assistant')`, id)))
}

// HandBack gives an organization's conversation back to the assistant, which answers in one reply the customer's texts since the
// last message of the business; older than 24 hours, they stand with [codes.TooOld]. HandBack also ends a pause. It returns
// [store.ErrNotFound], [ErrConversationClosed], or a wrapped error of the store.
func (q *Queue) HandBack(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "hand back", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		if c.state == StateClosed {
			return refusal{ErrConversationClosed}
		}
		if !c.silent(s.now) {
			return nil
		}
		c.state, c.pausedUntil, c.people.reportedAttention = StateAssistant, 0, ""
		c.markUpdated(s.now)
		s.audit(c, actor, "hand_back")
		return s.giveBack(c)
	}))
}

// codeBlockedByPerson is the code of what ends because a person blocks a customer.
const codeBlockedByPerson = "blocked"

// Block makes the assistant silent for the customer of an organization's conversation until [Queue.Unblock], even if the conversation is given
// back: unsent answers are discarded, and later texts of the customer are stored and not answered, so that they cost nothing. A person may
// still write. It returns [store.ErrNotFound] or a wrapped error of the store.
func (q *Queue) Block(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "block a customer", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		if c.blockedAt == 0 {
			c.blockedAt = s.now
			c.answered(0)
			s.silence(c, codeBlockedByPerson)
			s.audit(c, actor, "block")
		}
		return nil
	}))
}

// Unblock ends a [Queue.Block]: the assistant may answer the customer's later texts. It returns [store.ErrNotFound] or a wrapped error of
// the store.
func (q *Queue) Unblock(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "unblock a customer", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		if c.blockedAt != 0 {
			c.blockedAt = 0
			c.markUpdated(s.now)
			s.audit(c, actor, "unblock")
		}
		return nil
	}))
}

// queueEvents writes the events that follow from the row's changes.
func (c *conversationRow) queueEvents(tx store.Tx) {
	event := store.Event{OrgID: c.orgID, ConversationID: c.id, ChannelID: c.key.channelID}
	if c.state == StateHuman && c.stored.state != StateHuman {
		event.Type, event.Reason = store.EventHandover, c.people.handoverReason
		store.QueueEvent(tx, &event)
	}
	shown := c.attention == OutboundDeliveryUnknown && c.people.unknownSince == c.storedPeople.unknownSince // not for the first time
	if c.attention != "" && c.attention != c.stored.attention && c.attention != c.people.reportedAttention && !shown {
		c.people.reportedAttention = c.attention
		event.Type, event.Reason, event.Code = store.EventAttention, "", c.attention
		store.QueueEvent(tx, &event)
	}
}

// waitsForPeople is the condition of the index conversations_unanswered, and behind it, because an index has no clock, that a pause lasts
// at the time {now}.
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

// MaxLongWaits is the most that [Queue.LongWaits] counts to, of customers in the queue and of customers who wait for people.
const MaxLongWaits = 10_000

// LongWait is an organization with the number of its customers who have waited for long.
type LongWait struct {
	OrgID, Name string
	Customers   int64
}

// LongWaits counts the customers who have had no answer since before a moment, by organization, the most customers first. It counts to
// [MaxLongWaits].
func (q *Queue) LongWaits(ctx context.Context, before int64) ([]LongWait, error) {
	return store.ReadRows(ctx, q.db, "count long waits", store.ScanFields[LongWait](), countLongWaits, before, MaxLongWaits)
}

const countLongWaits = `SELECT o.id, o.name, count(*) FROM (
		SELECT id, org_id FROM (SELECT id, org_id FROM conversations WHERE run_at IS NOT NULL AND unanswered_since > 0 AND unanswered_since < $1
			LIMIT $2) AS queued
		UNION SELECT id, org_id FROM (SELECT id, org_id FROM conversations WHERE (attention <> '' OR (unanswered_since > 0 AND
			(state = 'human' OR paused_until > 0))) AND unanswered_since > 0 AND unanswered_since < $1 LIMIT $2) AS unanswered
	) AS waiting JOIN organizations o ON o.id = waiting.org_id GROUP BY o.id, o.name ORDER BY 3 DESC, 1`
