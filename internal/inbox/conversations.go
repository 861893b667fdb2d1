package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const conversationColumns = `SELECT id, org_id, channel_id, customer_ref, address, customer_name, state, attention, attempts,
	paused_until, last_customer_at, created_at, updated_at, blocked_at, unanswered_since, handover_reason, retried_at,
	attention_told`

// scanConversation reads conversationColumns, then further columns of the row into more. A name or an id that doesn't open is left empty,
// as if the platform hadn't sent it: the rest of the conversation is of use without it. [Queue.loadIDs] must have run.
func (q *Queue) scanConversation(row store.Row, more ...any) (c Conversation, err error) {
	var name []byte
	err = row.Scan(append([]any{
		&c.ID, &c.OrgID, &c.ChannelID, &c.CustomerRef, &c.Address, &name, &c.State, &c.Attention, &c.Attempts,
		&c.PausedUntil, &c.LastCustomerAt, &c.CreatedAt, &c.UpdatedAt, &c.BlockedAt, &c.UnansweredSince, &c.HandoverReason, &c.RetriedAt,
		&c.ReportedAttention,
	}, more...)...)
	if err != nil {
		return c, err
	}
	c.CustomerRef = q.openID("the customer's id of "+c.ID, c.CustomerRef, vault.CustomerID(c.OrgID))
	c.Address = q.openID("the customer's address of "+c.ID, c.Address, vault.CustomerID(c.OrgID))
	if name == nil {
		return c, nil
	}
	opened, err := q.ring.Open(name, vault.CustomerName(c.OrgID, c.ID))
	if err != nil {
		q.unreadable("the customer's name of "+c.ID, err)
	}
	c.CustomerName = string(opened)
	return c, nil
}

// ConversationFilter selects and orders conversations; the zero value is all, oldest first.
type ConversationFilter struct {
	ChannelID string
	State     string // assistant, human or closed
	Attention bool   // only those that need attention
	Waiting   bool   // only those that wait for a person, see [Queue.WaitingForPeople]
	Code      string // only those that need attention for this reason
	// Recent sorts by the customer's last message, the newest first. No index has that order, because it would slow down each
	// message (PostgreSQL's HOT updates): all of the organization's conversations are read and sorted.
	Recent bool
}

// laterOfOrganization selects the conversations of an organization after an id. The last condition is that of the index conversations_org.
const laterOfOrganization = `org_id = $1 AND id > $2 AND id > ''`

// Conversations reads a page of an organization's conversations. In the order Recent, a page after an unknown conversation is
// the first.
func (q *Queue) Conversations(ctx context.Context, orgID string, filter ConversationFilter, page store.Page) ([]Conversation, error) {
	ids, err := q.loadIDs(ctx, false)
	if err != nil || ids.none() {
		return nil, err
	}
	text, order := conversationColumns+` FROM conversations WHERE `+laterOfOrganization, "id"
	args := []any{orgID, page.After, page.Rows()}
	if filter.Recent {
		wrote, err := q.wroteLast(ctx, orgID, page.After)
		if err != nil {
			return nil, err
		}
		text, order = conversationColumns+` FROM conversations WHERE org_id = $1 AND (last_customer_at, id) < ($4, $2)`,
			"last_customer_at DESC, id DESC"
		args = append(args, wrote)
	}
	now, err := q.db.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("list conversations: %w", err)
	}
	text, args = filter.where(text, args, now)
	return store.ReadRows(ctx, q.db, "list conversations", func(row store.Row) (Conversation, error) {
		return q.scanConversation(row)
	}, text+` ORDER BY `+order+` LIMIT $3`, args...)
}

// where adds the filter's conditions at a time to a query of conversations.
func (f *ConversationFilter) where(text string, args []any, now int64) (conditioned string, with []any) {
	if f.Attention {
		text += " AND attention <> ''"
	}
	if f.Waiting {
		args = append(args, now)
		text += " AND " + strings.ReplaceAll(waitsForPeople, "{now}", fmt.Sprintf("$%d", len(args)))
	}
	equal := func(column, value string) string {
		if value == "" {
			return ""
		}
		args = append(args, value)
		return fmt.Sprintf(" AND %s = $%d", column, len(args))
	}
	return text + equal("channel_id", f.ChannelID) + equal("state", f.State) + equal("attention", f.Code), args
}

// wroteLast returns when a conversation's customer wrote last; the end of time for an unknown one.
func (q *Queue) wroteLast(ctx context.Context, orgID, id string) (int64, error) {
	if id == "" {
		return math.MaxInt64, nil
	}
	at, err := store.ReadRow(ctx, q.db, "read a conversation", store.ScanValue[int64],
		`SELECT last_customer_at FROM conversations WHERE id = $1 AND org_id = $2`, id, orgID)
	if errors.Is(err, store.ErrNotFound) {
		return math.MaxInt64, nil
	}
	return at, err
}

// Conversation reads an organization's conversation, or [store.ErrNotFound].
func (q *Queue) Conversation(ctx context.Context, orgID, id string) (Conversation, error) {
	if _, err := q.loadIDs(ctx, false); err != nil {
		return Conversation{}, err
	}
	return q.conversation(ctx, `id = $1 AND org_id = $2`, id, orgID)
}

// conversation reads the conversation under a condition. [Queue.loadIDs] must have run.
func (q *Queue) conversation(ctx context.Context, condition string, args ...any) (Conversation, error) {
	return store.ReadRow(ctx, q.db, "read a conversation", func(row store.Row) (Conversation, error) {
		return q.scanConversation(row)
	}, conversationColumns+` FROM conversations WHERE `+condition, args...)
}

// Messages reads a page of an organization's conversation, both directions, in the order in which they were stored, with the
// delivery of every outgoing part. A page also ends with [maxPageText], so only an empty one is surely the last. It returns
// [store.ErrNotFound] when the organization has no such conversation; a page after
// an unknown message is the first.
func (q *Queue) Messages(ctx context.Context, orgID, conversationID string, page store.Page) ([]Message, error) {
	return q.messages(ctx, orgID, conversationID, page, Message{}, `(%[1]s, id) > ($2, $3) ORDER BY %[1]s, id LIMIT $4`, Message.before)
}

// LatestMessages is [Queue.Messages] from the end: the newest message first. page.After is the message before which the page
// begins; an unknown one is the end.
func (q *Queue) LatestMessages(ctx context.Context, orgID, conversationID string, page store.Page) ([]Message, error) {
	end := Message{placedAt: math.MaxInt64}
	return q.messages(ctx, orgID, conversationID, page, end, `(%[1]s, id) < ($2, $3) ORDER BY %[1]s DESC, id DESC LIMIT $4`,
		func(a, b Message) int { return b.before(a) })
}

// withFiles adds the files of messages.
func (q *Queue) withFiles(ctx context.Context, orgID string, all []Message) ([]Message, error) {
	var came, went []string
	for i := range all {
		switch m := &all[i]; {
		case m.State == "":
			came = append(came, m.ID)
		case m.Kind == KindEvent:
			went = append(went, m.ID)
		}
	}
	files, err := media.OfMessages(ctx, q.db, q.ring, orgID, came, went)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Files = files[all[i].ID]
	}
	return all, nil
}

// File reads a file of an organization's conversation, or returns [store.ErrNotFound].
func (q *Queue) File(ctx context.Context, orgID, conversationID, id string) (media.File, error) {
	return media.Find(ctx, q.db, q.ring, orgID, conversationID, id)
}

// WriteFile writes the content of a stored file, as [media.File.WriteTo].
func (q *Queue) WriteFile(ctx context.Context, file *media.File, w io.Writer) error {
	return file.WriteTo(ctx, q.db, q.ring, w)
}

// maxPageText is the length of the texts in bytes with which a page of messages ends, though not before its second message. A
// customer's message may have some MB.
const maxPageText = 1 << 20

// errPageFull ends the reading of a page.
var errPageFull = errors.New("the page has enough text")

// messages reads a page of a conversation in an order, or less with [maxPageText]. part is the condition on the messages behind a place and
// the same order; %[1]s in it is the column with a message's place. first is the place at which the order begins.
func (q *Queue) messages(
	ctx context.Context, orgID, conversationID string, page store.Page, first Message, part string, order func(a, b Message) int,
) ([]Message, error) {
	if _, err := q.Conversation(ctx, orgID, conversationID); err != nil {
		return nil, err
	}
	from, err := q.place(ctx, conversationID, page.After, first)
	if err != nil {
		return nil, err
	}
	var all []Message
	var ends []string // the last messages of directions that were not read to their end
	for _, direction := range []struct {
		columns, place string
		aad            func(orgID, messageID string) vault.AAD
	}{{inboundColumns, "received_at", vault.InboundBody}, {outboundColumns, "created_at", vault.OutboundBody}} {
		read, full, err := readDirection(ctx, q, q.scanMessage(direction.aad),
			`SELECT `+direction.columns+` WHERE conversation_id = $1 AND `+fmt.Sprintf(part, direction.place),
			conversationID, from.placedAt, from.ID, page.Rows())
		if err != nil {
			return nil, err
		}
		if all = append(all, read...); full {
			ends = append(ends, read[len(read)-1].ID)
		}
	}
	slices.SortFunc(all, order)
	all = all[:min(len(all), page.Rows())]
	for _, id := range ends { // behind it there may be messages of its direction between the other's
		all = upTo(all, id)
	}
	return q.withFiles(ctx, orgID, all)
}

// readDirection reads the messages that came, or went. full reports that it has ended with [maxPageText].
func readDirection(
	ctx context.Context, q *Queue, scan func(store.Row) (Message, error), text string, arguments ...any,
) (read []Message, full bool, err error) {
	size := 0
	err = store.EachRow(ctx, q.db, "list messages", func(row store.Row) error {
		if len(read) > 1 && size > maxPageText {
			return errPageFull
		}
		m, err := scan(row)
		size += len(m.Text)
		read = append(read, m)
		return err
	}, text, arguments...)
	if errors.Is(err, errPageFull) {
		return read, true, nil
	}
	return read, false, err
}

// upTo returns the messages up to an id, if it is among them.
func upTo(all []Message, id string) []Message {
	end := slices.IndexFunc(all, func(m Message) bool { return m.ID == id })
	return all[:cmp.Or(end+1, len(all))]
}

// place finds the position of a message in its conversation. It returns unknown if there is no such message.
func (q *Queue) place(ctx context.Context, conversationID, messageID string, unknown Message) (Message, error) {
	if messageID == "" {
		return unknown, nil
	}
	found, err := store.ReadRows(ctx, q.db, "find a message", func(row store.Row) (m Message, err error) {
		m.ID = messageID
		err = row.Scan(&m.placedAt)
		return m, err
	}, `SELECT received_at FROM messages WHERE id = $1 AND conversation_id = $2
		UNION ALL SELECT created_at FROM outbound_messages WHERE id = $1 AND conversation_id = $2`, messageID, conversationID)
	if err != nil || len(found) == 0 {
		return unknown, err
	}
	return found[0], nil
}

// Reply is the state of a customer's text and its answer.
type Reply struct {
	// MessageID and ConversationID are the text's; ReceivedAt is in epoch milliseconds.
	MessageID, ConversationID string
	ReceivedAt                int64
	// TurnID is the turn for it and TurnState the turn's state. They are empty before the turn begins.
	TurnID, TurnState string
	// Text is the text of the sent answer, or empty.
	Text string
	// handled: the text needs no answer. silent: the assistant may not write in the conversation now.
	handled, silent bool
	// claimable is the result of Claimable.
	claimable error
}

// Claimable returns what [Queue.Claim] of the conversation would have returned at the moment of the read: nil, [ErrLeased] or
// [ErrNotDue]. Waiting callers use it, because a claim is a write.
func (r *Reply) Claimable() error { return r.claimable }

// Waits reports whether the assistant may still answer the text by itself: the text waits for a turn, or its turn is running.
func (r *Reply) Waits() bool {
	return r.TurnID == "" && !r.handled && !r.silent || r.TurnState == TurnAwaiting
}

const (
	selectReply = `SELECT m.id, m.conversation_id, m.received_at, m.handled, COALESCE(m.turn_id, ''), COALESCE(t.state, ''),
			c.run_at, c.lease_until, c.attempts, c.state, c.paused_until, c.blocked_at
		FROM messages m JOIN conversations c ON c.id = m.conversation_id LEFT JOIN turns t ON t.id = m.turn_id
		WHERE m.channel_id = $1 AND m.platform_message_id = $2 AND m.org_id = $3 AND m.author = 'customer'`
	selectParts = `SELECT ` + outboundColumns + ` WHERE turn_id = $1 AND org_id = $2
		AND state IN ('pending', 'sending', 'sent', 'delivery_unknown') ORDER BY part`
)

// Reply reads the state of a text by the platform's id, or returns [store.ErrNotFound] when it was never stored.
func (q *Queue) Reply(ctx context.Context, orgID, channelID, platformMessageID string) (Reply, error) {
	ids, err := q.loadIDs(ctx, false)
	if err != nil {
		return Reply{}, fmt.Errorf("read a reply: %w", err)
	}
	now, err := q.db.Now(ctx)
	if err != nil {
		return Reply{}, fmt.Errorf("read a reply: %w", err)
	}
	reply, err := store.ReadRow(ctx, q.db, "read a reply", func(row store.Row) (r Reply, err error) {
		var runAt sql.NullInt64
		var c Conversation
		var leaseUntil, attempts int64
		err = row.Scan(&r.MessageID, &r.ConversationID, &r.ReceivedAt, &r.handled, &r.TurnID, &r.TurnState, &runAt, &leaseUntil, &attempts,
			&c.State, &c.PausedUntil, &c.BlockedAt)
		r.silent = c.silent(now)
		r.claimable = claimable(runAt, leaseUntil, attempts, now)
		return r, err
	}, selectReply, channelID, ids.seal(platformMessageID, vault.PlatformMessageID(orgID)), orgID)
	if err != nil || reply.TurnState != TurnAnswered {
		return reply, err
	}
	parts, err := store.ReadRows(ctx, q.db, "read a reply", q.scanMessage(vault.OutboundBody), selectParts, reply.TurnID, orgID)
	reply.Text = strings.Join(store.Column(parts, func(m Message) string { return m.Text }), "\n\n")
	return reply, err
}

// ConversationOf reads a customer's conversation on a channel of an organization, or returns [store.ErrNotFound].
func (q *Queue) ConversationOf(ctx context.Context, orgID, channelID, customerRef string) (Conversation, error) {
	ids, err := q.loadIDs(ctx, false)
	if err != nil {
		return Conversation{}, err
	}
	return q.conversation(ctx, `channel_id = $1 AND customer_ref = $2 AND org_id = $3`,
		channelID, ids.seal(customerRef, vault.CustomerID(orgID)), orgID)
}

// Outgoing reads a message to the customer of an organization's conversation, or [store.ErrNotFound].
func (q *Queue) Outgoing(ctx context.Context, orgID, conversationID, messageID string) (Message, error) {
	if _, err := q.loadIDs(ctx, false); err != nil {
		return Message{}, err
	}
	return store.ReadRow(ctx, q.db, "read a message", q.scanMessage(vault.OutboundBody),
		`SELECT `+outboundColumns+` WHERE id = $1 AND conversation_id = $2 AND org_id = $3`, messageID, conversationID, orgID)
}

// The columns of a message of either direction, read alike.
const (
	inboundColumns = `id, org_id, author, kind, body, '' AS state, '' AS code, turn_id, platform_message_id,
		sent_at AS at, received_at AS placed_at, handled, edited FROM messages`
	outboundColumns = `id, org_id, author,
		CASE WHEN template IS NOT NULL THEN 'template' WHEN file_id IS NOT NULL THEN 'event' ELSE 'text' END AS kind, body, state, code, turn_id,
		platform_message_id, created_at AS at, created_at AS placed_at, FALSE AS handled, FALSE AS edited FROM outbound_messages`
)

// UnreadableText replaces a message that doesn't open: it is damaged, or its key is not in the vault's ring.
const UnreadableText = "[This message can't be decrypted.]"

// scanMessage reads and opens a message. One that doesn't open has [UnreadableText]. [Queue.loadIDs] must have run.
func (q *Queue) scanMessage(aad func(orgID, messageID string) vault.AAD) func(store.Row) (Message, error) {
	return func(row store.Row) (m Message, err error) {
		var orgID string
		var body []byte
		var turnID sql.NullString
		err = row.Scan(&m.ID, &orgID, &m.Author, &m.Kind, &body, &m.State, &m.Code, &turnID, &m.PlatformMessageID,
			&m.At, &m.placedAt, &m.Handled, &m.Edited)
		if err != nil {
			return m, err
		}
		m.TurnID = turnID.String
		m.PlatformMessageID = q.openID("the platform's id of message "+m.ID, m.PlatformMessageID, vault.PlatformMessageID(orgID))
		text, unopened := q.ring.Open(body, aad(orgID, m.ID))
		m.Text = string(text)
		if unopened != nil {
			m.Text, m.Unreadable = UnreadableText, true
			q.unreadable("message "+m.ID, unopened)
		}
		return m, nil
	}
}

// complaintPause is the shortest time between two warnings of unreadable: a page of a list may have a hundred such values, and
// a dashboard reads it every two seconds.
const complaintPause = time.Minute

// unreadable logs a warning about a value that doesn't open.
func (q *Queue) unreadable(what string, err error) {
	q.mu.Lock()
	due := q.Log != nil && time.Since(q.complaint) >= complaintPause
	if due {
		q.complaint = time.Now()
	}
	q.mu.Unlock()
	if due {
		q.Log.Warn("a sealed value can't be opened and is skipped; further ones of this minute are not logged",
			"value", what, "error", err)
	}
}
