package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// channels serves /channels.
type channels struct{ *Deps }

func (g *channels) register(s *endpoint.Server) {
	read := func(path, summary string) handlers.Route {
		return handlers.Route{Method: http.MethodGet, Path: path, Scope: identity.ChannelsRead, Role: handlers.RoleMember, Summary: summary}
	}
	write := func(method, path, summary string) handlers.Route {
		return handlers.Route{Method: method, Path: path, Scope: identity.ChannelsWrite, Role: handlers.RoleAdministrator, Summary: summary}
	}
	const all, one = "/channels", "/channels/{id}"
	endpoint.Register(s, endpoint.Operation{ID: "createChannel", Route: write(http.MethodPost, all, "Connect a channel")}, g.create)
	endpoint.Register(s, endpoint.Operation{ID: "listChannels", Route: read(all, "List the channels, oldest first")}, g.list)
	endpoint.Register(s, endpoint.Operation{ID: "getChannel", Route: read(one, "Get a channel")}, g.get)
	endpoint.Register(s, endpoint.Operation{ID: "updateChannel", Route: write(http.MethodPatch, one, "Change a channel or its credentials")}, g.update)
	endpoint.Register(s, endpoint.Operation{ID: "deleteChannel", Route: write(http.MethodDelete, one, "Delete a channel")}, g.remove)
	g.describeCredentials(s)
	endpoint.Register(s, endpoint.Operation{ID: "verifyChannel", Status: http.StatusOK, Route: write(http.MethodPost, one+"/verify",
		"Ask the platform again whose account the channel's credentials belong to")}, g.verify)
}

// create stores the channel before the platform is asked, so that nobody without room in the plan, or with a name
// that is taken, causes a call.
func (g *channels) create(
	ctx context.Context, principal *identity.Principal, in *struct{ Body channelCreation },
) (*endpoint.JSON[channelObject], error) {
	channel, credentials, err := in.Body.channel(g.Catalog, principal.OrgID)
	if err != nil {
		return nil, err
	}
	if err := g.checkAgent(ctx, principal, channel.AgentID); err != nil {
		return nil, err
	}
	channel.CreatedAt = g.Now().UnixMilli()
	channel.UpdatedAt = channel.CreatedAt
	if in.Body.Credentials != nil {
		channel.Credentials = g.sealCredentials(&channel, credentials)
	}
	err = g.DB.Channels.Create(ctx, principal.Actor(), channel, g.Plans.ChannelLimit(principal.Plan))
	if errors.Is(err, store.ErrConflict) && channel.State == store.ChannelPending {
		err = g.takeOver(ctx, principal, &channel, credentials, err)
	}
	if err != nil {
		return nil, channelRefusal(err, handlers.Internal(fmt.Errorf("creating a channel: %w", err)))
	}
	if channel.State == store.ChannelPending && g.proven(ctx, &channel, credentials) {
		err := g.DB.Channels.SetState(ctx, principal.Actor(), principal.OrgID, channel.ID, store.ChannelActive)
		if err == nil {
			return g.get(ctx, principal, &endpoint.PathID{ID: channel.ID})
		}
		// The channel is there, and can be verified again.
		g.Logger.Error("a new channel could not be activated", "channel", channel.ID, "error", err)
	}
	return endpoint.Answer(g.show(&channel)), nil
}

func (g *channels) list(
	ctx context.Context, principal *identity.Principal, in *struct{ endpoint.PageQuery },
) (*endpoint.JSON[endpoint.ListObject[channelObject]], error) {
	page, err := in.Page()
	if err != nil {
		return nil, err
	}
	channels, err := g.DB.Channels.List(ctx, principal.OrgID, page)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("listing channels: %w", err))
	}
	return endpoint.Listed(in.PageQuery, channels, func(row *store.Channel) string { return row.ID }, g.show), nil
}

func (g *channels) get(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[channelObject], error) {
	channel, err := g.DB.Channels.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
	}
	return endpoint.Answer(g.show(&channel)), nil
}

type channelUpdate struct {
	endpoint.PathID

	Body channelChange
}

func (g *channels) update(ctx context.Context, principal *identity.Principal, in *channelUpdate) (*endpoint.JSON[channelObject], error) {
	channel, err := g.DB.Channels.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
	}
	var change store.ChannelChange
	if in.Body.Name != nil {
		name, err := identity.CleanName("name", *in.Body.Name)
		if err != nil {
			return nil, handlers.BadField(err)
		}
		change.Name = &name
	}
	if in.Body.AgentID.given {
		agentID := ""
		set(&agentID, in.Body.AgentID.value)
		if err := g.checkAgent(ctx, principal, agentID); err != nil {
			return nil, err
		}
		change.AgentID = &agentID
	}
	if change.Widget, err = in.Body.of(channel.Type, channel.Widget); err != nil {
		return nil, err
	}
	if in.Body.Credentials != nil {
		credentials, err := in.Body.Credentials.checked(g.Catalog, channel.Type)
		if err != nil {
			return nil, err
		}
		change.Credentials = g.sealCredentials(&channel, credentials)
		change.State = g.stateAfter(ctx, &channel, credentials)
	}
	if err := g.DB.Channels.Update(ctx, principal.Actor(), principal.OrgID, in.ID, change); err != nil {
		return nil, channelRefusal(err, g.refuse(ctx, principal, store.OwnedChannels, in.ID, err))
	}
	return g.get(ctx, principal, &in.PathID)
}

func (g *channels) remove(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	if err := g.DB.Channels.Delete(ctx, principal.Actor(), principal.OrgID, in.ID); err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
	}
	return &endpoint.Empty{}, nil
}

// verify asks for a channel that isn't active; what comes of it is the state in the answer.
func (g *channels) verify(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[channelObject], error) {
	channel, err := g.DB.Channels.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
	}
	if channel.State == store.ChannelActive || channel.Credentials == nil {
		return endpoint.Answer(g.show(&channel)), nil
	}
	credentials, err := webhook.OpenCredentials(g.Ring, channel.OrgID, channel.ID, channel.Credentials)
	if err != nil {
		return nil, handlers.Internal(err)
	}
	if g.proven(ctx, &channel, credentials) {
		if err := g.DB.Channels.SetState(ctx, principal.Actor(), principal.OrgID, in.ID, store.ChannelActive); err != nil {
			return nil, g.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
		}
	}
	return g.get(ctx, principal, in)
}

// checkAgent refuses an agent that isn't the organization's; "" is none.
func (g *channels) checkAgent(ctx context.Context, principal *identity.Principal, id string) error {
	if id == "" {
		return nil
	}
	if !handlers.WellFormedID(id) {
		return unknownAgent()
	}
	_, err := g.DB.Agents.ByID(ctx, principal.OrgID, id)
	if err == nil {
		return nil
	}
	err = g.refuse(ctx, principal, store.OwnedAgents, id, err)
	if handlers.AsError(err).Code == errcode.NotFound {
		return unknownAgent()
	}
	return err
}

func unknownAgent() *handlers.Error {
	return handlers.InvalidRequest("agentId", "There is no agent with this id.")
}

// channelRefusal is the answer to what the store refuses about a channel, or otherwise.
func channelRefusal(err, otherwise error) error {
	switch {
	case errors.Is(err, store.ErrLimit):
		return &handlers.Error{Code: errcode.PlanLimitExceeded, Message: "The organization has as many channels as its plan allows.", Cause: err}
	case errors.Is(err, store.ErrAgentNotFound): // deleted since checkAgent
		return unknownAgent()
	case errors.Is(err, store.ErrConflict):
		return &handlers.Error{
			Code:    errcode.Conflict,
			Message: "There is a channel with this name in the organization, or with this externalId, already.", Cause: err,
		}
	default:
		return otherwise
	}
}
