package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const (
	// loopWindow is how far back [Work.RecentReplies] looks.
	loopWindow = 10 * time.Minute
	// maxWaiting bounds the texts that are read for one turn, the newest. A turn with so many includes those before them, too:
	// a flood isn't answered line by line, and texts left over would make the conversation due at once, for ever.
	maxWaiting = 1000
)

// What Open reads of a conversation.
const (
	selectAsking = `SELECT id, agent_id, request, state, code, attempts, created_at FROM turns
		WHERE conversation_id = $1 AND state = 'asking'`
	selectUnsent = `SELECT id, turn_id, author, body, state, part, attempts FROM outbound_messages
		WHERE conversation_id = $1 AND state IN ('pending', 'sending') ORDER BY created_at, id`
	selectWaiting = `SELECT ` + inboundColumns + ` WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled
		ORDER BY sent_at DESC, received_at DESC, id DESC LIMIT $2`
	selectSaid = `SELECT ` + inboundColumns + ` WHERE conversation_id = $1 AND (handled OR turn_id <> $2)
		ORDER BY received_at DESC, id DESC LIMIT $3`
	selectDelivered = `SELECT ` + outboundColumns + ` WHERE conversation_id = $1 AND state IN ('sent', 'delivery_unknown')
		ORDER BY created_at DESC, id DESC LIMIT $2`
	// selectOpened reads, beside the conversation, which of the other reads would find something: of a new customer none would.
	selectOpened = conversationColumns + `, lease_token, lease_until, run_at,
		(SELECT suspended_at IS NOT NULL FROM organizations o WHERE o.id = conversations.org_id),
		EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state = 'asking'),
		EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1 AND state IN ('pending', 'sending')),
		EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND (handled OR turn_id IS NOT NULL))
			OR EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1),
		(SELECT count(*) FROM outbound_messages WHERE conversation_id = $1 AND created_at >= $3 AND author = 'assistant' AND part = 0)
		FROM conversations WHERE id = $1 AND org_id = $2`
)

// Open reads the conversation of a lease, with at most history earlier messages. It reads without locks: an operation that
// depends on what it saw is checked again when it is written. It returns [ErrLeaseLost], [store.ErrNotFound] when the
// conversation was deleted, alone or with its channel, or a wrapped error of the store or the vault.
func (q *Queue) Open(ctx context.Context, lease Lease, history int) (Work, error) {
	work, err := q.open(ctx, lease, history)
	if err != nil {
		return Work{}, fmt.Errorf("open a conversation: %w", err)
	}
	return work, nil
}

func (q *Queue) open(ctx context.Context, lease Lease, history int) (work Work, err error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return work, err
	}
	work.ReadAt = now
	opened, err := q.openConversation(ctx, lease, now, &work)
	if err != nil {
		return work, err
	}
	if err := q.openChannel(ctx, lease, &work); err != nil {
		return work, err
	}
	if opened.asking {
		if work.Turn, err = q.openTurn(ctx, lease); err != nil {
			return work, err
		}
	}
	if opened.unsent {
		if work.Outbound, err = q.openOutbound(ctx, lease); err != nil {
			return work, err
		}
	}
	if quiet := opened.runAt.Valid && opened.runAt.Int64 > now; !quiet {
		if err = q.openWaiting(ctx, lease, &work); err != nil {
			return work, err
		}
	}
	if opened.said {
		work.History, err = q.openHistory(ctx, lease, history, &work)
	}
	return work, err
}

// openedState is what selectOpened reads beside the conversation.
type openedState struct {
	token, until         int64
	runAt                sql.NullInt64 // later than now: the quiet window lasts
	asking, unsent, said bool
}

func (q *Queue) openConversation(ctx context.Context, lease Lease, now int64, work *Work) (o openedState, err error) {
	work.Conversation, err = store.ReadRow(ctx, q.db, "read", func(row store.Row) (Conversation, error) {
		return q.scanConversation(row, &o.token, &o.until, &o.runAt, &work.Suspended, &o.asking, &o.unsent, &o.said, &work.RecentReplies)
	}, selectOpened, lease.ConversationID, lease.OrgID, now-loopWindow.Milliseconds())
	if err == nil && (o.token != lease.Token || o.until == 0) {
		err = ErrLeaseLost
	}
	return o, err
}

func (q *Queue) openChannel(ctx context.Context, lease Lease, work *Work) (err error) {
	work.Channel, err = q.db.Channels.ByID(ctx, lease.OrgID, lease.ChannelID)
	if err != nil || work.Channel.AgentID == "" {
		return err
	}
	agent, err := q.db.Agents.ByID(ctx, lease.OrgID, work.Channel.AgentID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	work.Agent = &agent
	return err
}

func (q *Queue) openTurn(ctx context.Context, lease Lease) (*Turn, error) {
	turns, err := store.ReadRows(ctx, q.db, "read its turn", func(row store.Row) (*Turn, error) {
		turn := &Turn{}
		err := row.Scan(&turn.ID, &turn.AgentID, &turn.Request, &turn.State, &turn.Code, &turn.Attempts, &turn.CreatedAt)
		return turn, err
	}, selectAsking, lease.ConversationID)
	if err != nil || len(turns) == 0 {
		return nil, err
	}
	turn := turns[0]
	if turn.Request, err = q.ring.Open(turn.Request, vault.TurnRequest(lease.OrgID, turn.ID)); err != nil {
		return nil, fmt.Errorf("open the request of turn %s: %w", turn.ID, err)
	}
	return turn, nil
}

func (q *Queue) openOutbound(ctx context.Context, lease Lease) ([]Outbound, error) {
	return store.ReadRows(ctx, q.db, "read what is to be sent", func(row store.Row) (part Outbound, err error) {
		var turnID sql.NullString
		var body []byte
		if err := row.Scan(&part.ID, &turnID, &part.Author, &body, &part.State, &part.Part, &part.Attempts); err != nil {
			return part, err
		}
		text, err := q.ring.Open(body, vault.OutboundBody(lease.OrgID, part.ID))
		if err != nil {
			return part, fmt.Errorf("open message %s: %w", part.ID, err)
		}
		part.TurnID, part.Text = turnID.String, string(text)
		return part, nil
	}, selectUnsent, lease.ConversationID)
}

func (q *Queue) openWaiting(ctx context.Context, lease Lease, work *Work) error {
	waiting, err := store.ReadRows(ctx, q.db, "read what waits", q.scanMessage(vault.InboundBody),
		selectWaiting, lease.ConversationID, maxWaiting)
	if err != nil || len(waiting) == 0 {
		return err
	}
	slices.Reverse(waiting)
	work.Waiting = messages(waiting)
	work.WaitingSince = slices.MinFunc(waiting, placedMessage.before).placedAt
	return nil
}

// openHistory reads the last messages, without those that wait for an answer or belong to the running turn.
func (q *Queue) openHistory(ctx context.Context, lease Lease, most int, work *Work) ([]Message, error) {
	if most <= 0 {
		return nil, nil
	}
	var running string
	if work.Turn != nil {
		running = work.Turn.ID
	}
	said, err := store.ReadRows(ctx, q.db, "read what was said", q.scanMessage(vault.InboundBody),
		selectSaid, lease.ConversationID, running, most)
	if err != nil {
		return nil, err
	}
	sent, err := store.ReadRows(ctx, q.db, "read what was sent", q.scanMessage(vault.OutboundBody),
		selectDelivered, lease.ConversationID, most)
	if err != nil {
		return nil, err
	}
	all := append(said, sent...)
	slices.SortFunc(all, placedMessage.before)
	return messages(all[max(0, len(all)-most):]), nil
}

func messages(placed []placedMessage) []Message {
	all := make([]Message, len(placed))
	for i, m := range placed {
		all[i] = m.Message
	}
	return all
}
