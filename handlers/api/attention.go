package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// StandingQuery selects conversations that need attention. It is exported for huma, see [endpoint.PathID].
type StandingQuery struct {
	ChannelID string `query:"channelId" maxLength:"64" pattern:"^[a-z0-9_]+$" doc:"Only of this channel"`
	Code      string `query:"code"      maxLength:"64" pattern:"^[a-z0-9_]+$" doc:"Only with this attention"`
}

func silentAssistant(err error) error {
	return endpoint.Refusal(errcode.Conflict, err, "The assistant is silent in this conversation. Hand it back first.")
}

type standingInput struct {
	endpoint.PageQuery
	StandingQuery

	Body conversationsAction
}

// conversationsAction is the body of POST /conversations.
type conversationsAction struct {
	Action string `json:"action" enum:"retry,dismiss" doc:"retry: the agent answers again what stands unanswered; dismiss: the attention ends without an answer"` //nolint:lll // a struct tag can't be broken
}

// conversationsChange is the answer of POST /conversations.
type conversationsChange struct {
	Changed    int     `json:"changed"    doc:"How many conversations of the page were changed"`
	NextCursor *string `json:"nextCursor" doc:"Send it as cursor for the next page; null on the last one"`
}

// actOnConversations changes a page of the conversations that a list with attention shows.
func (d *Deps) actOnConversations(ctx context.Context, principal *identity.Principal, in *standingInput) (*conversationsChange, error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	page.Limit--
	act := d.Conversations.RetryStanding
	if in.Body.Action == "dismiss" {
		act = d.Conversations.Dismiss
	}
	filter := inbox.ConversationFilter{ChannelID: in.ChannelID, Code: in.Code}
	changed, last, err := d.Conversations.ForEachStanding(ctx, principal.Actor(), principal.OrgID, filter, page, act)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("changing conversations: %w", err))
	}
	answer := conversationsChange{Changed: changed}
	if last != "" {
		answer.NextCursor = endpoint.Cursor(last)
	}
	return &answer, nil
}

type resendInput struct {
	endpoint.PathID

	MessageID string `path:"messageId"`
	Body      resendWish
}

// resendWish is the body of POST /conversations/{id}/messages/{messageId}/resend.
type resendWish struct {
	MayArriveTwice bool `json:"mayArriveTwice" doc:"true: the person who wants it knows that the customer may get it twice. Only so is a message sent again whose delivery is unknown"` //nolint:lll // a struct tag can't be broken
}

// resendMessage queues a message again. Whatever would make the platform refuse it is checked before.
func (d *Deps) resendMessage(ctx context.Context, principal *identity.Principal, in *resendInput) (*MessageObject, error) {
	conversation, channel, err := d.placeMessage(ctx, principal, in.ID)
	if err != nil {
		return nil, err
	}
	message, err := d.outgoing(ctx, principal, in)
	if err != nil {
		return nil, err
	}
	if err := usable(&channel); err != nil {
		return nil, err
	}
	if err := d.checkWindow(&channel, &conversation, message.Author, message.Kind); err != nil { // closed: the platform decides
		return nil, err
	}
	err = d.Conversations.Resend(ctx, principal.Actor(), principal.OrgID, in.ID, in.MessageID, in.Body.MayArriveTwice)
	switch {
	case errors.Is(err, inbox.ErrMayArriveTwice):
		return nil, handlers.InvalidRequest("mayArriveTwice",
			"It is unknown whether the customer has this message. Ask a person, and set mayArriveTwice if it may arrive twice.")
	case errors.Is(err, inbox.ErrEnded):
		return nil, endpoint.Refusal(errcode.Conflict, err, "Only a message that failed, or whose delivery is unknown, can be sent again.")
	case err != nil:
		return nil, d.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	if message, err = d.outgoing(ctx, principal, in); err != nil {
		return nil, err
	}
	return new(showMessage(&message)), nil
}

func (d *Deps) outgoing(ctx context.Context, principal *identity.Principal, in *resendInput) (inbox.Message, error) {
	unknown := handlers.NotFound("This conversation has no message to the customer with this id.")
	if !handlers.WellFormedID(in.MessageID) {
		return inbox.Message{}, unknown
	}
	message, err := d.Conversations.Outgoing(ctx, principal.OrgID, in.ID, in.MessageID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return message, unknown
	case err != nil:
		return message, handlers.Internal(fmt.Errorf("reading message %s: %w", in.MessageID, err))
	}
	return message, nil
}

// exportContent describes the export of a conversation. [inbox.Queue.Export] defines its form.
var exportContent = map[string]*huma.MediaType{
	"application/json": {Schema: &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true,
		Description: "The members conversation, messages and turns, with texts, names and the platform's ids",
	}},
}

func (d *Deps) exportConversation(_ context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Stream, error) {
	return endpoint.Streamed(func(w http.ResponseWriter, r *http.Request) error {
		begun := false
		err := d.Conversations.Export(r.Context(), principal.OrgID, in.ID, w, func() {
			begun = true
			beginFile(w, "application/json", in.ID+".json")
		})
		switch {
		case err != nil && begun:
			panic(http.ErrAbortHandler) // a part must not be taken for the whole
		case err != nil:
			return d.refuse(r.Context(), principal, store.OwnedConversations, in.ID, err)
		}
		return nil
	}), nil
}

// attentionObject is a conversation that needs a person.
type attentionObject struct {
	ID        string `json:"id"`
	ChannelID string `json:"channelId"`
	State     string `json:"state"`
	Attention string `json:"attention"`
	UpdatedAt string `json:"updatedAt" format:"date-time"`
}

type attentionQuery struct {
	endpoint.PageQuery
	StandingQuery
}

func (d *Deps) listAttention(ctx context.Context, principal *identity.Principal, in *attentionQuery) (*pageOf[attentionObject], error) {
	filter := inbox.ConversationFilter{ChannelID: in.ChannelID, Code: in.Code, Attention: true}
	return listConversations(ctx, d, principal, in.PageQuery, filter, func(c *inbox.Conversation) attentionObject {
		return attentionObject{c.ID, c.ChannelID, c.State, c.Attention, endpoint.Timestamp(c.UpdatedAt)}
	})
}

// deadTurnObject is a turn that was given up, without texts of customers.
type deadTurnObject struct {
	ID             string `json:"id"`
	OrgID          string `json:"orgId"`
	ChannelID      string `json:"channelId"`
	ConversationID string `json:"conversationId"`
	Code           string `json:"code" doc:"The last failure"`
	Attempts       int64  `json:"attempts"`
	CreatedAt      string `json:"createdAt" format:"date-time"`
	UpdatedAt      string `json:"updatedAt" format:"date-time" doc:"When it was given up"`
}

type deadTurnsQuery struct {
	Limit int `query:"limit" minimum:"1" maximum:"10000" default:"100" doc:"The largest number of turns, 100 when absent"`
}

func (d *Deps) listDeadTurns(ctx context.Context, _ *identity.Principal, in *deadTurnsQuery) (*pageOf[deadTurnObject], error) {
	turns, err := d.Conversations.DeadTurns(ctx, cmp.Or(in.Limit, 100))
	return onePage(turns, func(turn *inbox.DeadTurn) deadTurnObject {
		return deadTurnObject{
			turn.TurnID, turn.OrgID, turn.ChannelID, turn.ConversationID, turn.Code, turn.Attempts,
			endpoint.Timestamp(turn.CreatedAt), endpoint.Timestamp(turn.UpdatedAt),
		}
	}), err
}

type retriedTurn struct {
	ID      string `json:"id"`
	Retried bool   `json:"retried"`
}

// retryTurn never charges a turn twice: the model's answer is kept under the turn's id.
func (d *Deps) retryTurn(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*retriedTurn, error) {
	err := d.Conversations.Retry(ctx, principal.Actor(), in.ID)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, inbox.ErrEnded):
		return nil, handlers.NotFound("There is no turn with this id that was given up.")
	case errors.Is(err, inbox.ErrHandedOver):
		return nil, silentAssistant(err)
	case err != nil:
		return nil, handlers.Internal(fmt.Errorf("retrying a turn: %w", err))
	}
	return &retriedTurn{in.ID, true}, nil
}
