package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// MessageObject is one line of a conversation as the API shows it.
type MessageObject struct {
	ID      string  `json:"id"`
	Author  string  `json:"author" enum:"customer,assistant,human"`
	Kind    string  `json:"kind"   enum:"text,event" doc:"event: something without text, whose text is a short name of it, like image"`
	Text    string  `json:"text"`
	State   *string `json:"state"  enum:"pending,sending,sent,failed,delivery_unknown,discarded" doc:"Of the delivery to the customer; null: it came from the platform"` //nolint:lll // a struct tag can't be broken
	Code    *string `json:"code"   doc:"The error code of a delivery that failed"`
	TurnID  *string `json:"turnId" doc:"The same for an answer and the messages that it answers"`
	Handled bool    `json:"handled" doc:"It came in, and nobody has to answer it"`
	At      string  `json:"at"     format:"date-time"`
}

func showMessage(m *inbox.Message) MessageObject {
	return MessageObject{
		ID: m.ID, Author: m.Author, Kind: m.Kind, Text: m.Text, State: endpoint.TextOrNull(m.State), Code: endpoint.TextOrNull(m.Code),
		TurnID: endpoint.TextOrNull(m.TurnID), Handled: m.Handled, At: endpoint.Timestamp(m.At),
	}
}

type messagesInput struct {
	endpoint.PathID
	endpoint.PageQuery

	Order string `query:"order" enum:"oldest,newest" default:"oldest" doc:"newest: the newest message comes first"`
}

func (g *conversations) listMessages(
	ctx context.Context, principal *identity.Principal, in *messagesInput,
) (*endpoint.JSON[endpoint.ListObject[MessageObject]], error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	read := g.Conversations.Messages
	if in.Order == "newest" {
		read = g.Conversations.LatestMessages
	}
	messages, err := read(ctx, principal.OrgID, in.ID, page)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	return endpoint.Listed(in.PageQuery, messages, func(row *inbox.Message) string { return row.ID }, showMessage), nil
}

// messageCreation is the body of POST /conversations/{id}/messages.
type messageCreation struct {
	Text string `json:"text" minLength:"1" maxLength:"20000"`
}

type messageInput struct {
	endpoint.PathID

	Body messageCreation
}

// sentMessage is a message that was queued.
type sentMessage struct {
	MessageObject

	Parts []string `json:"parts" doc:"The ids of all messages that the text was split into, this one first"`
}

// sendMessage checks what would make the platform refuse the message before it is queued (design §6 "422 codes").
func (g *conversations) sendMessage(ctx context.Context, principal *identity.Principal, in *messageInput) (*endpoint.JSON[sentMessage], error) {
	conversation, err := g.Conversations.Conversation(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	channel, err := g.DB.Channels.ByID(ctx, principal.OrgID, conversation.ChannelID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, &handlers.Error{Code: errcode.Conflict, Message: "The channel of this conversation was deleted.", Cause: err}
	}
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading channel %s: %w", conversation.ChannelID, err))
	}
	if err := g.checkSendable(&channel, &conversation); err != nil {
		return nil, err
	}
	parts := g.Catalog.Split(channel.Type, in.Body.Text)
	if len(parts) == 0 {
		return nil, handlers.InvalidRequest("text", "text is blank.")
	}
	messages, err := g.Conversations.SendAsHuman(ctx, principal.Actor(), principal.OrgID, in.ID, parts)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	if len(messages) == 0 {
		return nil, handlers.Internal(errors.New("the queue took a message and returned none"))
	}
	sent := sentMessage{MessageObject: showMessage(&messages[0])}
	for i := range messages {
		sent.Parts = append(sent.Parts, messages[i].ID)
	}
	return endpoint.Answer(sent), nil
}

// checkSendable tells why nothing can be sent now: the state of the channel or of the conversation, or the window in which
// the platform lets a business write to a customer.
func (g *conversations) checkSendable(channel *store.Channel, conversation *inbox.Conversation) error {
	switch {
	case channel.State == store.ChannelNeedsReauth:
		return &handlers.Error{
			Code:    errcode.ChannelNeedsReauth,
			Message: "The platform refuses the channel's credentials. Give new ones with PATCH /channels/" + channel.ID + ".",
		}
	case channel.State != store.ChannelActive:
		return &handlers.Error{Code: errcode.Conflict, Message: "The channel is not verified yet."}
	case conversation.State == inbox.StateClosed:
		return customerBlocked(nil)
	}
	kind, ok := g.Catalog.Find(channel.Type)
	switch {
	case !ok:
		return &handlers.Error{Code: errcode.Conflict, Message: "The platform of channels of type " + channel.Type + " is not part of this installation."}
	case kind.Window == 0 || g.Now().UnixMilli()-conversation.LastCustomerAt < kind.Window.Milliseconds():
		return nil
	}
	return &handlers.Error{
		Code: errcode.Code(messaging.Code(kind.WindowClass())),
		Message: fmt.Sprintf("The customer's last message is more than %d hours old; the platform takes no free text after that.",
			int64(kind.Window.Hours())),
	}
}

func customerBlocked(cause error) *handlers.Error {
	return &handlers.Error{Code: errcode.Conflict, Message: "The customer has blocked the channel; the conversation is closed.", Cause: cause}
}
