package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
)

// callObject is a model call that has ended as the API shows it.
type callObject struct {
	ID                 string  `json:"id"`
	At                 string  `json:"at"                 format:"date-time" doc:"When it began"`
	DurationMS         int64   `json:"durationMs"`
	Model              string  `json:"model"`
	Outcome            string  `json:"outcome"            doc:"completed, or why it ended otherwise"`
	PromptTokens       int64   `json:"promptTokens"`
	CachedPromptTokens int64   `json:"cachedPromptTokens" doc:"Those of promptTokens that the provider had kept"`
	CompletionTokens   int64   `json:"completionTokens"`
	Estimated          bool    `json:"estimated"          doc:"The provider didn't report the tokens"`
	ChargedMicros      string  `json:"chargedMicros"      doc:"What was taken from the wallet, in millionths of the currency unit"`
	BYOK               bool    `json:"byok"               doc:"It was made with the organization's own provider key"`
	Stream             bool    `json:"stream"`
	KeyID              *string `json:"keyId"              doc:"The API key it was made with; null: an agent answered a customer, or a member made it"` //nolint:lll // a struct tag can't be broken
	RequestID          *string `json:"requestId"          doc:"The HTTP request it was made for"`
	AgentID            *string `json:"agentId"            doc:"The agent that answered a customer; null when that isn't known any more, too"`
	ConversationID     *string `json:"conversationId"     doc:"The conversation it was an answer in"`
}

// placedCall is a call with where its turn belongs.
type placedCall struct {
	billing.EndedCall

	turn inbox.TurnPlace
}

func showCall(c *placedCall) callObject {
	shown := callObject{
		ID: c.ID, At: endpoint.Timestamp(c.StartedAt), DurationMS: c.DurationMS, Model: c.Model, Outcome: c.Outcome,
		PromptTokens: c.Usage.PromptTokens, CachedPromptTokens: c.Usage.CachedPromptTokens, CompletionTokens: c.Usage.CompletionTokens,
		Estimated: c.UsageSource == billing.UsageEstimated, ChargedMicros: billing.FormatMicros(c.ChargedMicros),
		BYOK: c.BYOK, Stream: c.Stream, KeyID: endpoint.TextOrNull(c.KeyID),
		AgentID: endpoint.TextOrNull(c.turn.AgentID), ConversationID: endpoint.TextOrNull(c.turn.ConversationID),
	}
	if !isTurn(c.RequestID) {
		shown.RequestID = endpoint.TextOrNull(c.RequestID)
	}
	return shown
}

// isTurn reports whether a call was made for a turn of a conversation and not for an HTTP request.
func isTurn(requestID string) bool { return strings.HasPrefix(requestID, "trn_") }

// placedCalls reads calls and where their turns belong.
func (g *wallet) placedCalls(ctx context.Context, wallet billing.WalletID, stretch billing.Stretch) ([]placedCall, error) {
	calls, err := g.Wallets.Calls(ctx, wallet, stretch)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading calls: %w", err))
	}
	placed := make([]placedCall, len(calls))
	var turns []string
	for i := range calls {
		placed[i].EndedCall = calls[i]
		if isTurn(calls[i].RequestID) {
			turns = append(turns, calls[i].RequestID)
		}
	}
	places, err := g.Conversations.TurnPlaces(ctx, wallet.OrgID, turns)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the turns of calls: %w", err))
	}
	for i := range placed {
		placed[i].turn = places[placed[i].RequestID]
	}
	return placed, nil
}

func (g *wallet) listCalls(_ context.Context, principal *identity.Principal, in *struct{ HistoryQuery }) (*endpoint.Stream, error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	stretch, err := in.stretch()
	if err != nil {
		return nil, err
	}
	return tableBody(in.HistoryQuery, stretch, table[placedCall, callObject]{
		name: "calls-" + string(wallet.Env),
		read: func(ctx context.Context, stretch billing.Stretch) ([]placedCall, error) {
			return g.placedCalls(ctx, wallet, stretch)
		},
		place: func(row *placedCall) billing.Place { return row.Place() },
		show:  showCall,
		columns: []string{
			"id", "at", "durationMs", "model", "outcome", "promptTokens", "cachedPromptTokens", "completionTokens", "estimated",
			"chargedMicros", "byok", "stream", "keyId", "requestId", "agentId", "conversationId",
		},
		cells: func(c *callObject) []string {
			return []string{
				c.ID, c.At, strconv.FormatInt(c.DurationMS, 10), csvText(&c.Model), csvText(&c.Outcome),
				strconv.FormatInt(c.PromptTokens, 10), strconv.FormatInt(c.CachedPromptTokens, 10), strconv.FormatInt(c.CompletionTokens, 10),
				strconv.FormatBool(c.Estimated), c.ChargedMicros, strconv.FormatBool(c.BYOK), strconv.FormatBool(c.Stream),
				csvText(c.KeyID), csvText(c.RequestID), csvText(c.AgentID), csvText(c.ConversationID),
			}
		},
	}), nil
}
