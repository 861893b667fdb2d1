package handlers

import (
	"context"
	"errors"
	"fmt"

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
		ID: m.ID, Author: m.Author, Kind: m.Kind, Text: m.Text, State: textOrNull(m.State), Code: textOrNull(m.Code),
		TurnID: textOrNull(m.TurnID), Handled: m.Handled, At: timestamp(m.At),
	}
}

type messagesInput struct {
	PathID
	PageQuery

	Order string `query:"order" enum:"oldest,newest" default:"oldest" doc:"newest: the newest message comes first"`
}

func (a *API) listMessages(
	ctx context.Context, caller *identity.Principal, in *messagesInput,
) (*jsonBody[listObject[MessageObject]], error) {
	page, err := in.page()
	if err != nil {
		return nil, err
	}
	read := a.Conversations.Messages
	if in.Order == "newest" {
		read = a.Conversations.LatestMessages
	}
	messages, err := read(ctx, caller.OrgID, in.ID, page)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedConversations, in.ID, err)
	}
	return listed(in.PageQuery, messages, func(row *inbox.Message) string { return row.ID }, showMessage), nil
}

// messageCreation is the body of POST /conversations/{id}/messages.
type messageCreation struct {
	Text string `json:"text" minLength:"1" maxLength:"20000"`
}

type messageInput struct {
	PathID

	Body messageCreation
}

// sentMessage is a message that was queued.
type sentMessage struct {
	MessageObject

	Parts []string `json:"parts" doc:"The ids of all messages that the text was split into, this one first"`
}

// sendMessage checks what would make the platform refuse the message before it is queued (design §6 "422 codes").
func (a *API) sendMessage(ctx context.Context, caller *identity.Principal, in *messageInput) (*jsonBody[sentMessage], error) {
	conversation, err := a.Conversations.Conversation(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedConversations, in.ID, err)
	}
	channel, err := a.DB.Channels.ByID(ctx, caller.OrgID, conversation.ChannelID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, &Error{Code: errcode.Conflict, Message: "The channel of this conversation was deleted.", Cause: err}
	}
	if err != nil {
		return nil, Internal(fmt.Errorf("reading channel %s: %w", conversation.ChannelID, err))
	}
	if err := a.checkSendable(&channel, &conversation); err != nil {
		return nil, err
	}
	parts := a.Catalog.Split(channel.Type, in.Body.Text)
	if len(parts) == 0 {
		return nil, InvalidRequest("text", "text is blank.")
	}
	messages, err := a.Conversations.SendAsHuman(ctx, caller.Actor(), caller.OrgID, in.ID, parts)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedConversations, in.ID, err)
	}
	if len(messages) == 0 {
		return nil, Internal(errors.New("the queue took a message and returned none"))
	}
	sent := sentMessage{MessageObject: showMessage(&messages[0])}
	for i := range messages {
		sent.Parts = append(sent.Parts, messages[i].ID)
	}
	return &jsonBody[sentMessage]{sent}, nil
}

// checkSendable tells why nothing can be sent now: the state of the channel or of the conversation, or the window in which
// the platform lets a business write to a customer.
func (a *API) checkSendable(channel *store.Channel, conversation *inbox.Conversation) error {
	switch {
	case channel.State == store.ChannelNeedsReauth:
		return &Error{
			Code:    errcode.ChannelNeedsReauth,
			Message: "The platform refuses the channel's credentials. Give new ones with PATCH /channels/" + channel.ID + ".",
		}
	case channel.State != store.ChannelActive:
		return &Error{Code: errcode.Conflict, Message: "The channel is not verified yet."}
	case conversation.State == inbox.StateClosed:
		return customerBlocked(nil)
	}
	kind, ok := a.Catalog.Find(channel.Type)
	switch {
	case !ok:
		return &Error{Code: errcode.Conflict, Message: "The platform of channels of type " + channel.Type + " is not part of this installation."}
	case kind.Window == 0 || a.Now().UnixMilli()-conversation.LastCustomerAt < kind.Window.Milliseconds():
		return nil
	}
	return &Error{
		Code: errcode.Code(messaging.Code(kind.WindowClass())),
		Message: fmt.Sprintf("The customer's last message is more than %d hours old; the platform takes no free text after that.",
			int64(kind.Window.Hours())),
	}
}

func customerBlocked(cause error) *Error {
	return &Error{Code: errcode.Conflict, Message: "The customer has blocked the channel; the conversation is closed.", Cause: cause}
}
