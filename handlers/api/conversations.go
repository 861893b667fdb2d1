package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
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

func (g *conversations) show(c *inbox.Conversation) conversationObject {
	paused := c.PausedUntil
	if paused <= g.Now().UnixMilli() {
		paused = 0
	}
	return conversationObject{
		ID: c.ID, ChannelID: c.ChannelID, CustomerID: c.CustomerRef, CustomerName: endpoint.TextOrNull(c.CustomerName),
		State: c.State, Attention: endpoint.TextOrNull(c.Attention),
		PausedUntil: endpoint.TimestampOrNull(paused), LastCustomerAt: endpoint.TimestampOrNull(c.LastCustomerAt),
		CreatedAt: endpoint.Timestamp(c.CreatedAt), UpdatedAt: endpoint.Timestamp(c.UpdatedAt),
	}
}

// conversations serves /conversations.
type conversations struct{ *Deps }

func (g *conversations) register(s *endpoint.Server) {
	route := func(method, path string, scope identity.Scope, summary string) handlers.Route {
		return handlers.Route{Method: method, Path: path, Scope: scope, Role: handlers.RoleMember, Summary: summary}
	}
	const (
		all, one    = "/conversations", "/conversations/{id}"
		read, write = identity.ConversationsRead, identity.ConversationsWrite
	)
	endpoint.Register(s, endpoint.Operation{ID: "listConversations", Route: route(http.MethodGet, all, read,
		"List the conversations, oldest first unless order says otherwise")}, g.list)
	endpoint.Register(s, endpoint.Operation{ID: "getConversation", Route: route(http.MethodGet, one, read,
		"Get a conversation")}, g.get)
	endpoint.Register(s, endpoint.Operation{ID: "deleteConversation", Route: route(http.MethodDelete, one, write,
		"Delete a conversation and all its messages")}, g.remove)
	endpoint.Register(s, endpoint.Operation{ID: "listMessages", Route: route(http.MethodGet, one+"/messages", read,
		"List a conversation's messages of both directions, oldest first unless order says otherwise")}, g.listMessages)
	endpoint.Register(s, endpoint.Operation{ID: "sendMessage", Route: route(http.MethodPost, one+"/messages", write,
		"Write to the customer as a human")}, g.sendMessage)
	endpoint.Register(s, endpoint.Operation{ID: "handOver", Status: http.StatusOK, Route: route(http.MethodPost, one+"/handover", write,
		"Take a conversation from the agent")}, g.handOver)
	endpoint.Register(s, endpoint.Operation{ID: "handBack", Status: http.StatusOK, Route: route(http.MethodPost, one+"/handback", write,
		"Give a conversation back to the agent")}, g.handBack)
}

type conversationQuery struct {
	endpoint.PageQuery

	ChannelID string `query:"channelId" maxLength:"64" pattern:"^[a-z0-9_]+$" doc:"Only of this channel"`
	State     string `query:"state" enum:"assistant,human,closed" doc:"Only in this state"`
	Attention bool   `query:"attention" doc:"true: only those at which somebody should look"`
	Order     string `query:"order" enum:"oldest,recent" default:"oldest" doc:"recent: whose customer wrote last comes first"`
}

func (g *conversations) list(
	ctx context.Context, principal *identity.Principal, in *conversationQuery,
) (*endpoint.JSON[endpoint.ListObject[conversationObject]], error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	filter := inbox.ConversationFilter{
		ChannelID: in.ChannelID, State: in.State, Attention: in.Attention, Recent: in.Order == "recent",
	}
	conversations, err := g.Conversations.Conversations(ctx, principal.OrgID, filter, page)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("listing conversations: %w", err))
	}
	return endpoint.Listed(in.PageQuery, conversations, func(row *inbox.Conversation) string { return row.ID }, g.show), nil
}

func (g *conversations) get(
	ctx context.Context, principal *identity.Principal, in *endpoint.PathID,
) (*endpoint.JSON[conversationObject], error) {
	conversation, err := g.Conversations.Conversation(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	return endpoint.Answer(g.show(&conversation)), nil
}

func (g *conversations) remove(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	if err := g.Conversations.DeleteConversation(ctx, principal.Actor(), principal.OrgID, in.ID); err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	return &endpoint.Empty{}, nil
}

func (g *conversations) handOver(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[conversationObject], error) {
	if err := g.Conversations.HandOver(ctx, principal.Actor(), principal.OrgID, in.ID); err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	return g.get(ctx, principal, in)
}

func (g *conversations) handBack(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[conversationObject], error) {
	if err := g.Conversations.HandBack(ctx, principal.Actor(), principal.OrgID, in.ID); err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedConversations, in.ID, err)
	}
	return g.get(ctx, principal, in)
}
