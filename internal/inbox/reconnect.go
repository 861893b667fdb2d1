package inbox

import (
	"context"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// selectReconnected reads the conversations in which parts wait for a channel that is active again.
const selectReconnected = `SELECT DISTINCT v.id FROM conversations v CROSS JOIN outbound_messages o
	JOIN channels c ON c.id = v.channel_id WHERE v.run_at > $1 AND o.conversation_id = v.id AND o.created_at >= v.unsent_since
		AND o.state = 'pending' AND o.code = 'channel_needs_reauth' AND c.state = 'active' LIMIT CAST($2 AS BIGINT)`

// Reconnected makes conversations due in which parts wait for a channel that is active again, at most limit, and returns how many they
// were. The error is a wrapped one of the store.
func (q *Queue) Reconnected(ctx context.Context, limit int) (woken int, err error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("look for reconnected channels: %w", err)
	}
	ids, err := store.ReadRows(ctx, q.db, "look for reconnected channels", store.ScanValue[string], selectReconnected, now, limit)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		if err := q.do(ctx, "wake a conversation", &wakeOp{id: id}); err != nil {
			return woken, err
		}
		woken++
	}
	return woken, nil
}

type wakeOp struct{ id string }

func (op *wakeOp) refusal() error { return nil }

func (op *wakeOp) conversation() string { return op.id }

func (op *wakeOp) run(_ context.Context, s *session) error {
	if c := s.rows[op.id]; c != nil && !c.deleted {
		c.runBy(s.now)
	}
	return nil
}

// endWait ends the attention of parts that waited for their channel or their platform, when one of them was sent and no turn stands.
func (op *sentOp) endWait(ctx context.Context, s *session, c *conversationRow) error {
	if c.attention != string(errcode.ChannelNeedsReauth) && (c.attention != codes.SendFailed || op.code != codes.SendFailed) {
		return nil
	}
	stands := false
	err := s.tx.Query(ctx, func(row store.Row) error { return row.Scan(&stands) },
		`SELECT EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state = 'needs_attention')`, c.id)
	if err != nil {
		return fmt.Errorf("look for standing turns: %w", err)
	}
	if !stands {
		c.stands("")
	}
	return nil
}
