package api

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// The exports of usage for billing systems: of one wallet, and of all.
var (
	ListUsageEvents = operationOf(operated("usage:read", eventFile(testKeys(members(
		"listUsageEvents", "GET /wallet/usage-events", identity.WalletRead,
		"Export the charges of calls and their refunds as CloudEvents, oldest first")))), (*Deps).listUsageEvents)
	ListAllUsageEvents = operationOf(eventFile(service("listAllUsageEvents", "GET /usage-events", "usage:read",
		"Export the charges of the calls of all organizations and their refunds as CloudEvents")), (*Deps).listAllUsageEvents)
)

// The media types of exports.
const (
	eventBatch = "application/cloudevents-batch+json"
	eventLines = "application/jsonl"
)

func eventFile(o endpoint.Operation) endpoint.Operation {
	text := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	return containing(map[string]*huma.MediaType{eventBatch: text, eventLines: text, "text/csv": text}, o)
}

// UsageEventsQuery are the parameters of an export. It is exported for huma, see [endpoint.PathID].
type UsageEventsQuery struct {
	Since  string `query:"since"  maxLength:"50" doc:"The sequence of the last event that was read. Absent: from the first one on"`
	Limit  int64  `query:"limit"  minimum:"1" doc:"How many events at most. Absent: all that there are"`
	Format string `query:"format" enum:"cloudevents,jsonl,csv" doc:"cloudevents, the usual: one JSON array. jsonl: an event on each line"`
}

type walletEventsQuery struct {
	WalletQuery
	UsageEventsQuery
}

// eventWriter writes events in one of the formats.
type eventWriter struct {
	to   io.Writer
	rows *csv.Writer // nil for JSON
	// first, between and last are the texts around events in JSON, and none is the text without events.
	first, between, last, none string
	events                     int
}

func newEventWriter(w http.ResponseWriter, format string) *eventWriter {
	media, e := eventBatch, &eventWriter{to: w, first: "[", between: ",\n", last: "]\n", none: "[]\n"}
	switch format {
	case "csv":
		file := newCSVFile(w, "usage-events")
		file.row([]string{
			"sequence", "id", "type", "subject", "time", "callId", "environment", "model", "upstreamModel", "keyId", "agentId", "conversationId",
			"promptTokens", "cachedPromptTokens", "cacheWriteTokens", "longCacheWriteTokens", "completionTokens", "reasoningTokens",
			"chargedMicros", "refundedMicros", "byok", "priceId",
		})
		return &eventWriter{rows: file.rows}
	case "jsonl":
		media, e = eventLines, &eventWriter{to: w, between: "\n", last: "\n"}
	}
	beginFile(w, media, "")
	return e
}

// writeAll adds events. It reports whether the client is still there.
func (w *eventWriter) writeAll(events []billing.UsageEvent, baseURL string) bool {
	for i := range events {
		if event := events[i].CloudEvent(baseURL); !w.write(&event) {
			return false
		}
	}
	return true
}

// write adds an event. It reports whether the client is still there.
func (w *eventWriter) write(e *billing.CloudEvent) bool {
	separator := w.between
	if w.events++; w.events == 1 {
		separator = w.first
	}
	if w.rows == nil {
		_, err := w.to.Write(append([]byte(separator), handlers.Marshal(e)...))
		return err == nil
	}
	d, number := &e.Data, func(n int64) string { return strconv.FormatInt(n, 10) }
	return w.rows.Write([]string{
		e.Sequence, e.ID, e.Type, e.Subject, e.Time, d.CallID, string(d.Environment), csvText(&d.Model), csvText(&d.UpstreamModel),
		csvText(d.KeyID), csvText(d.AgentID), csvText(d.ConversationID), number(d.PromptTokens), number(d.CachedPromptTokens),
		number(d.CacheWriteTokens), number(d.LongCacheWriteTokens), number(d.CompletionTokens), number(d.ReasoningTokens),
		d.ChargedMicros, d.RefundedMicros, strconv.FormatBool(d.BYOK), d.PriceID,
	}) == nil
}

// end writes the text after the last event.
func (w *eventWriter) end() {
	switch {
	case w.rows != nil:
		w.rows.Flush()
	case w.events > 0:
		_, _ = io.WriteString(w.to, w.last)
	default:
		_, _ = io.WriteString(w.to, w.none)
	}
}

func (d *Deps) listUsageEvents(_ context.Context, principal *identity.Principal, in *walletEventsQuery) (*endpoint.Stream, error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	return d.eventBody(&in.UsageEventsQuery, func(ctx context.Context, after billing.UsageCursor, rows int) ([]billing.UsageEvent, error) {
		return d.Wallets.UsageEvents(ctx, wallet, after, rows)
	})
}

func (d *Deps) listAllUsageEvents(_ context.Context, _ *identity.Principal, in *UsageEventsQuery) (*endpoint.Stream, error) {
	return d.eventBody(in, d.Book.AllUsageEvents)
}

// eventBody returns an answer that reads events page by page while it is written, with no open transaction between two reads. When a read fails
// after the first bytes were sent, it cuts the connection; the client continues after the last event that it has.
func (d *Deps) eventBody(
	q *UsageEventsQuery, read func(ctx context.Context, after billing.UsageCursor, rows int) ([]billing.UsageEvent, error),
) (*endpoint.Stream, error) {
	after, err := billing.ParseUsageCursor(q.Since)
	if err != nil {
		return nil, handlers.InvalidRequest("since", "since is not the sequence of an event of this export.")
	}
	left := cmp.Or(q.Limit, math.MaxInt64)
	next := func(ctx context.Context) ([]billing.UsageEvent, error) {
		events, err := read(ctx, after, int(min(left, billing.MaxHistoryRows)))
		if err != nil {
			return nil, handlers.Internal(fmt.Errorf("reading usage events: %w", err))
		}
		if left -= int64(len(events)); len(events) > 0 {
			after = events[len(events)-1].Cursor
		}
		return events, nil
	}
	file := func(events []billing.UsageEvent) endpoint.File {
		return func(w http.ResponseWriter, r *http.Request) {
			for to := newEventWriter(w, q.Format); to.writeAll(events, d.BaseURL); {
				if left == 0 || len(events) < billing.MaxHistoryRows {
					to.end()
					return
				}
				var err error
				if events, err = next(r.Context()); err != nil {
					panic(http.ErrAbortHandler)
				}
			}
		}
	}
	return endpoint.Whole(d.Bodies, func(ctx context.Context, _ string) (any, error) {
		events, err := next(ctx)
		return file(events), err
	}), nil
}
