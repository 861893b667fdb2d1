package billing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// UsageEvent is a charge of a call, or its refund, for a billing system.
type UsageEvent struct {
	EndedCall

	// PriceID is the id of the price of the call.
	PriceID int64
	// AgentID and ConversationID are the place of an answer to a customer. They are empty for other calls, and after the conversation was deleted.
	AgentID, ConversationID string
	// RefundID is the id of the transaction of a refund, RefundedAt its time, and RefundedMicros its amount. Empty means a charge.
	RefundID                   string
	RefundedAt, RefundedMicros int64
	// Cursor is the place of the event.
	Cursor UsageCursor
}

// CloudEvent is a usage event as CloudEvents 1.0 has it.
type CloudEvent struct {
	SpecVersion string `json:"specversion"`
	ID          string `json:"id"`
	Source      string `json:"source"`
	Type        string `json:"type"`
	Subject     string `json:"subject"`
	Time        string `json:"time"`
	// Sequence is an extension of CloudEvents: the cursor of the event.
	Sequence    string         `json:"sequence"`
	ContentType string         `json:"datacontenttype"`
	Data        CloudEventData `json:"data"`
}

// CloudEventData are the data of a usage event. RefundedMicros is empty for a charge.
type CloudEventData struct {
	CallID               string    `json:"callId"`
	Environment          store.Env `json:"environment"`
	Model                string    `json:"model"`
	UpstreamModel        string    `json:"upstreamModel"`
	KeyID                *string   `json:"keyId"`
	AgentID              *string   `json:"agentId"`
	ConversationID       *string   `json:"conversationId"`
	PromptTokens         int64     `json:"promptTokens"`
	CachedPromptTokens   int64     `json:"cachedPromptTokens"`
	CacheWriteTokens     int64     `json:"cacheWriteTokens"`
	LongCacheWriteTokens int64     `json:"longCacheWriteTokens"`
	CompletionTokens     int64     `json:"completionTokens"`
	ReasoningTokens      int64     `json:"reasoningTokens"`
	ChargedMicros        string    `json:"chargedMicros"`
	RefundedMicros       string    `json:"refundedMicros,omitempty"`
	BYOK                 bool      `json:"byok"`
	PriceID              string    `json:"priceId"`
}

// CloudEvent returns the event from a source, which is the address of the service if it is configured.
func (e *UsageEvent) CloudEvent(source string) CloudEvent {
	event := CloudEvent{
		SpecVersion: "1.0", ID: e.ID, Source: cmp.Or(source, "caddy-svc"), Type: "svc.model.call.settled", Subject: e.Wallet.OrgID,
		Time: store.EventTime(e.EndedAt), Sequence: e.Cursor.String(), ContentType: "application/json", Data: CloudEventData{
			CallID: e.ID, Environment: e.Wallet.Env, Model: e.Model, UpstreamModel: e.UpstreamModel, KeyID: textOrNull(e.KeyID),
			AgentID: textOrNull(e.AgentID), ConversationID: textOrNull(e.ConversationID), PromptTokens: e.Usage.PromptTokens,
			CachedPromptTokens: e.Usage.CachedPromptTokens, CacheWriteTokens: e.Usage.CacheWriteTokens,
			LongCacheWriteTokens: e.Usage.LongCacheWriteTokens, CompletionTokens: e.Usage.CompletionTokens,
			ReasoningTokens: e.Usage.ReasoningTokens, ChargedMicros: FormatMicros(e.ChargedMicros), BYOK: e.BYOK,
			PriceID: strconv.FormatInt(e.PriceID, 10),
		},
	}
	if e.RefundID != "" {
		event.ID, event.Type, event.Time = e.RefundID, "svc.model.call.refunded", store.EventTime(e.RefundedAt)
		event.Data.RefundedMicros = FormatMicros(e.RefundedMicros)
	}
	return event
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// UsageBody returns the body of a [store.EventUsage]: its payload with the events, which are read anew for each try. It returns a wrapped error of
// the store.
func (b *Book) UsageBody(ctx context.Context, source string, delivery *store.EventDelivery) (string, error) {
	var body struct {
		Type      store.EventType `json:"type"`
		Timestamp string          `json:"timestamp"`
		OrgID     string          `json:"organizationId"`
		Data      struct {
			After   string       `json:"after"`
			Through string       `json:"through"`
			Events  []CloudEvent `json:"events"`
		} `json:"data"`
	}
	err := json.Unmarshal([]byte(delivery.Payload), &body)
	after, afterErr := ParseUsageCursor(body.Data.After)
	through, throughErr := ParseUsageCursor(body.Data.Through)
	if err := cmp.Or(err, afterErr, throughErr); err != nil {
		return "", fmt.Errorf("read the payload of the event %s: %w", delivery.EventID, err)
	}
	sent := usageSegment{WalletID: WalletID{delivery.OrgID, store.Live}, AfterSeq: after.Seq, ThroughSeq: through.Seq}
	events, err := b.usageEvents(ctx, sent, MaxHistoryRows)
	if err != nil {
		return "", err
	}
	body.Data.Events = store.Column(events, func(e UsageEvent) CloudEvent { return e.CloudEvent(source) })
	text, err := json.Marshal(&body)
	return string(text), err
}

// UsageCursor is a place in the order of usage events. The order of one wallet is that of its numbers, and Segment is 0. In the order of all
// wallets Segment is the number of a row of usage_segments. Zero is the place before the first event.
type UsageCursor struct{ Segment, Seq int64 }

// String returns the cursor as [ParseUsageCursor] parses it.
func (c UsageCursor) String() string { return fmt.Sprintf("%d_%d", c.Segment, c.Seq) }

// ParseUsageCursor parses a cursor. Empty means the place before the first event.
func ParseUsageCursor(text string) (c UsageCursor, err error) {
	if text == "" {
		return c, nil
	}
	segment, seq, _ := strings.Cut(text, "_")
	var errs [2]error
	c.Segment, errs[0] = strconv.ParseInt(segment, 10, 64)
	c.Seq, errs[1] = strconv.ParseInt(seq, 10, 64)
	if errors.Join(errs[:]...) != nil || c.Segment < 0 || c.Seq < 0 {
		return UsageCursor{}, fmt.Errorf("%w: the cursor is not that of a usage event", ErrInvalid)
	}
	return c, nil
}

const (
	selectUsageEvents = endedFields + `, coalesce(price_id, 0), coalesce(t.agent_id, ''), coalesce(t.conversation_id, ''),
		e.refund, e.refunded_at, e.refunded, e.seq
		FROM (
			SELECT seq, call_id, refund, refunded_at, refunded FROM (SELECT wallet_seq AS seq, id AS call_id, '' AS refund, CAST(0 AS BIGINT)
				AS refunded_at, CAST(0 AS BIGINT) AS refunded FROM calls
				WHERE org_id = $1 AND env = $2 AND wallet_seq > $3 AND wallet_seq <= $4 ORDER BY wallet_seq LIMIT $5) AS charged
			UNION ALL SELECT seq, ref, id, created_at, amount_micros FROM (SELECT wallet_seq AS seq, ref, id, created_at, amount_micros FROM ledger_tx
				WHERE org_id = $1 AND env = $2 AND wallet_seq > $3 AND wallet_seq <= $4 AND kind = 'refund' ORDER BY wallet_seq LIMIT $5) AS refunded
		) AS e JOIN calls history ON history.id = e.call_id LEFT JOIN prices p ON p.id = price_id
		LEFT JOIN turns t ON t.id = history.request_id AND t.org_id = history.org_id ORDER BY e.seq LIMIT $5`
	selectSegments = `SELECT number, org_id, env, after_seq, through_seq FROM usage_segments WHERE number >= $1 ORDER BY number LIMIT $2`
	// insertSegments adds a segment for each wallet with new numbers. Of two transactions that do so at the same time, the second waits for the
	// first, because their first numbers are equal, and leaves out the rows that conflict. So a number is never visible before a smaller one.
	insertSegments = `INSERT INTO usage_segments (number, org_id, env, after_seq, through_seq)
		SELECT (SELECT coalesce(max(number), 0) FROM usage_segments) + row_number() OVER (ORDER BY org_id, env), org_id, env, after_seq, seq FROM (
			SELECT w.org_id, w.env, w.seq, coalesce((SELECT through_seq FROM usage_segments s
				WHERE s.org_id = w.org_id AND s.env = w.env ORDER BY s.after_seq DESC LIMIT 1), 0) AS after_seq FROM wallets w) AS wallets
		WHERE seq > after_seq ORDER BY org_id, env ON CONFLICT DO NOTHING`
)

// UsageEvents reads the events of a wallet after a cursor, up to rows of them, at most [MaxHistoryRows]. Calls without a charge have no number in
// the ledger and so no event.
func (b *Book) UsageEvents(ctx context.Context, id WalletID, after UsageCursor, rows int) ([]UsageEvent, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	return b.usageEvents(ctx, usageSegment{WalletID: id, AfterSeq: after.Seq, ThroughSeq: math.MaxInt64}, rows)
}

// usageSegment is a range of the numbers of a wallet.
type usageSegment struct {
	Number int64
	WalletID
	AfterSeq, ThroughSeq int64
}

func (b *Book) usageEvents(ctx context.Context, s usageSegment, rows int) ([]UsageEvent, error) {
	return store.ReadRows(ctx, b.db, "read usage events", func(row store.Row) (e UsageEvent, err error) {
		e.Cursor.Segment = s.Number
		e.EndedCall, err = scanEndedCall(row, s.WalletID,
			&e.PriceID, &e.AgentID, &e.ConversationID, &e.RefundID, &e.RefundedAt, &e.RefundedMicros, &e.Cursor.Seq)
		return e, err
	}, selectUsageEvents, s.OrgID, string(s.Env), s.AfterSeq, s.ThroughSeq, min(rows, MaxHistoryRows))
}

// segmentsRead is the number of segments that one read returns.
const segmentsRead = 100

// AllUsageEvents is [Book.UsageEvents] for all wallets. Their common order is made when it is read: each segment has the new numbers of one
// wallet, which are committed by then, and gets the next number. So an event that is committed late comes later, and no cursor skips it.
func (b *Book) AllUsageEvents(ctx context.Context, after UsageCursor, rows int) (events []UsageEvent, err error) {
	rows = min(rows, MaxHistoryRows)
	for extended := false; len(events) < rows; {
		segments, err := store.ReadRows(
			ctx, b.db, "read usage segments", store.ScanFields[usageSegment](), selectSegments, after.Segment, segmentsRead)
		if err != nil {
			return nil, err
		}
		for _, s := range segments {
			if s.Number == after.Segment {
				s.AfterSeq = max(s.AfterSeq, after.Seq)
			}
			page, err := b.usageEvents(ctx, s, rows-len(events))
			if err != nil {
				return nil, err
			}
			if events = append(events, page...); len(events) == rows {
				return events, nil
			}
			after = UsageCursor{s.Number, s.ThroughSeq}
		}
		switch {
		case len(segments) == segmentsRead:
			continue
		case extended:
			return events, nil
		}
		extended = true
		if err := b.db.ExecQueued(ctx, func(tx store.Tx) { tx.Queue(store.AnyRows, insertSegments) }); err != nil {
			return nil, err
		}
	}
	return events, nil
}
