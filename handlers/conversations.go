package handlers

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Conversations is what /conversations works on, as [inbox.Queue] does. A conversation that the organization doesn't have
// is [store.ErrNotFound]; one whose customer has blocked the channel can only be read and deleted: it is
// [inbox.ErrConversationClosed] for the others.
type Conversations interface {
	Conversations(ctx context.Context, orgID string, filter inbox.ConversationFilter, page store.Page) ([]inbox.Conversation, error)
	Conversation(ctx context.Context, orgID, id string) (inbox.Conversation, error)
	// Messages of both directions, oldest first.
	Messages(ctx context.Context, orgID, conversationID string, page store.Page) ([]inbox.Message, error)
	// LatestMessages are the same, newest first; page.After is the message before which the page begins.
	LatestMessages(ctx context.Context, orgID, conversationID string, page store.Page) ([]inbox.Message, error)
	// SendAsHuman queues the parts in order, and returns a message for each.
	SendAsHuman(ctx context.Context, actor, orgID, conversationID string, parts []string) ([]inbox.Message, error)
	HandOver(ctx context.Context, actor, orgID, id string) error
	HandBack(ctx context.Context, actor, orgID, id string) error
	DeleteConversation(ctx context.Context, actor, orgID, id string) error
	// TurnPlaces tells where turns belong; ids that are no turn's of the organization are left out.
	TurnPlaces(ctx context.Context, orgID string, turnIDs []string) (map[string]inbox.TurnPlace, error)
}

// conversationObject is a conversation as the API shows it.
type conversationObject struct {
	ID             string  `json:"id"`
	ChannelID      string  `json:"channelId"`
	CustomerID     string  `json:"customerId"     doc:"The platform's name of the customer, or of the chat"`
	CustomerName   *string `json:"customerName"`
	State          string  `json:"state"          enum:"assistant,human,closed" doc:"Who answers; closed: the customer has blocked the channel"`
	Attention      *string `json:"attention"      doc:"An error code that says why somebody should look; null: nobody need"`
	PausedUntil    *string `json:"pausedUntil"    format:"date-time" doc:"The agent is silent until then, because a human wrote from the platform's own app"` //nolint:lll // a struct tag can't be broken
	LastCustomerAt *string `json:"lastCustomerAt" format:"date-time" doc:"When the customer wrote last"`
	CreatedAt      string  `json:"createdAt"      format:"date-time"`
	UpdatedAt      string  `json:"updatedAt"      format:"date-time"`
}

func (a *API) showConversation(c *inbox.Conversation) conversationObject {
	paused := c.PausedUntil
	if paused <= a.Now().UnixMilli() {
		paused = 0
	}
	return conversationObject{
		ID: c.ID, ChannelID: c.ChannelID, CustomerID: c.CustomerRef, CustomerName: textOrNull(c.CustomerName),
		State: c.State, Attention: textOrNull(c.Attention),
		PausedUntil: timestampOrNull(paused), LastCustomerAt: timestampOrNull(c.LastCustomerAt),
		CreatedAt: timestamp(c.CreatedAt), UpdatedAt: timestamp(c.UpdatedAt),
	}
}

func (a *API) registerConversations() {
	route := func(method, path string, scope identity.Scope, summary string) Route {
		return Route{Method: method, Path: path, Scope: scope, Role: RoleMember, Summary: summary}
	}
	const (
		all, one    = "/conversations", "/conversations/{id}"
		read, write = identity.ConversationsRead, identity.ConversationsWrite
	)
	register(a, operation{id: "listConversations", Route: route(http.MethodGet, all, read,
		"List the conversations, oldest first unless order says otherwise")}, a.listConversations)
	register(a, operation{id: "getConversation", Route: route(http.MethodGet, one, read,
		"Get a conversation")}, a.getConversation)
	register(a, operation{id: "deleteConversation", Route: route(http.MethodDelete, one, write,
		"Delete a conversation and all its messages")}, a.deleteConversation)
	register(a, operation{id: "listMessages", Route: route(http.MethodGet, one+"/messages", read,
		"List a conversation's messages of both directions, oldest first unless order says otherwise")}, a.listMessages)
	register(a, operation{id: "sendMessage", Route: route(http.MethodPost, one+"/messages", write,
		"Write to the customer as a human")}, a.sendMessage)
	register(a, operation{id: "handOver", status: http.StatusOK, Route: route(http.MethodPost, one+"/handover", write,
		"Take a conversation from the agent")}, a.handOver)
	register(a, operation{id: "handBack", status: http.StatusOK, Route: route(http.MethodPost, one+"/handback", write,
		"Give a conversation back to the agent")}, a.handBack)
}

type conversationQuery struct {
	PageQuery

	ChannelID string `query:"channelId" maxLength:"64" pattern:"^[a-z0-9_]+$" doc:"Only of this channel"`
	State     string `query:"state" enum:"assistant,human,closed" doc:"Only in this state"`
	Attention bool   `query:"attention" doc:"true: only those at which somebody should look"`
	Order     string `query:"order" enum:"oldest,recent" default:"oldest" doc:"recent: whose customer wrote last comes first"`
}

func (a *API) listConversations(
	ctx context.Context, caller *identity.Principal, in *conversationQuery,
) (*jsonBody[listObject[conversationObject]], error) {
	page, err := in.page()
	if err != nil {
		return nil, err
	}
	filter := inbox.ConversationFilter{
		ChannelID: in.ChannelID, State: in.State, Attention: in.Attention, Recent: in.Order == "recent",
	}
	conversations, err := a.Conversations.Conversations(ctx, caller.OrgID, filter, page)
	if err != nil {
		return nil, Internal(fmt.Errorf("listing conversations: %w", err))
	}
	return listed(in.PageQuery, conversations, func(row *inbox.Conversation) string { return row.ID }, a.showConversation), nil
}

func (a *API) getConversation(
	ctx context.Context, caller *identity.Principal, in *PathID,
) (*jsonBody[conversationObject], error) {
	conversation, err := a.Conversations.Conversation(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedConversations, in.ID, err)
	}
	return &jsonBody[conversationObject]{a.showConversation(&conversation)}, nil
}

func (a *API) deleteConversation(ctx context.Context, caller *identity.Principal, in *PathID) (*noBody, error) {
	if err := a.Conversations.DeleteConversation(ctx, caller.Actor(), caller.OrgID, in.ID); err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedConversations, in.ID, err)
	}
	return &noBody{}, nil
}

func (a *API) handOver(ctx context.Context, caller *identity.Principal, in *PathID) (*jsonBody[conversationObject], error) {
	if err := a.Conversations.HandOver(ctx, caller.Actor(), caller.OrgID, in.ID); err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedConversations, in.ID, err)
	}
	return a.getConversation(ctx, caller, in)
}

func (a *API) handBack(ctx context.Context, caller *identity.Principal, in *PathID) (*jsonBody[conversationObject], error) {
	if err := a.Conversations.HandBack(ctx, caller.Actor(), caller.OrgID, in.ID); err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedConversations, in.ID, err)
	}
	return a.getConversation(ctx, caller, in)
}
