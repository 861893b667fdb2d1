package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func (a *API) registerChannels() {
	read := func(path, summary string) Route {
		return Route{Method: http.MethodGet, Path: path, Scope: identity.ChannelsRead, Role: RoleMember, Summary: summary}
	}
	write := func(method, path, summary string) Route {
		return Route{Method: method, Path: path, Scope: identity.ChannelsWrite, Role: RoleAdministrator, Summary: summary}
	}
	const all, one = "/channels", "/channels/{id}"
	register(a, operation{id: "createChannel", Route: write(http.MethodPost, all, "Connect a channel")}, a.createChannel)
	register(a, operation{id: "listChannels", Route: read(all, "List the channels, oldest first")}, a.listChannels)
	register(a, operation{id: "getChannel", Route: read(one, "Get a channel")}, a.getChannel)
	register(a, operation{id: "updateChannel", Route: write(http.MethodPatch, one, "Change a channel or its credentials")}, a.updateChannel)
	register(a, operation{id: "deleteChannel", Route: write(http.MethodDelete, one, "Delete a channel")}, a.deleteChannel)
	a.describeCredentials()
	register(a, operation{id: "verifyChannel", status: http.StatusOK, Route: write(http.MethodPost, one+"/verify",
		"Ask the platform again whose account the channel's credentials belong to")}, a.verifyChannel)
}

// createChannel stores the channel before the platform is asked, so that nobody without room in the plan, or with a name
// that is taken, causes a call.
func (a *API) createChannel(
	ctx context.Context, caller *identity.Principal, in *struct{ Body channelCreation },
) (*jsonBody[channelObject], error) {
	channel, credentials, err := in.Body.channel(a.Catalog, caller.OrgID)
	if err != nil {
		return nil, err
	}
	if err := a.checkAgent(ctx, caller, channel.AgentID); err != nil {
		return nil, err
	}
	channel.CreatedAt = a.Now().UnixMilli()
	channel.UpdatedAt = channel.CreatedAt
	if in.Body.Credentials != nil {
		channel.Credentials = a.sealCredentials(&channel, credentials)
	}
	err = a.DB.Channels.Create(ctx, caller.Actor(), channel, a.Plans.ChannelLimit(caller.Plan))
	if errors.Is(err, store.ErrConflict) && channel.State == store.ChannelPending {
		err = a.takeOver(ctx, caller, &channel, credentials, err)
	}
	if err != nil {
		return nil, channelRefusal(err, Internal(fmt.Errorf("creating a channel: %w", err)))
	}
	if channel.State == store.ChannelPending && a.proven(ctx, &channel, credentials) {
		err := a.DB.Channels.SetState(ctx, caller.Actor(), caller.OrgID, channel.ID, store.ChannelActive)
		if err == nil {
			return a.getChannel(ctx, caller, &PathID{channel.ID})
		}
		// The channel is there, and can be verified again.
		a.Logger.Error("a new channel could not be activated", "channel", channel.ID, "error", err)
	}
	return &jsonBody[channelObject]{a.showChannel(&channel)}, nil
}

func (a *API) listChannels(
	ctx context.Context, caller *identity.Principal, in *struct{ PageQuery },
) (*jsonBody[listObject[channelObject]], error) {
	page, err := in.page()
	if err != nil {
		return nil, err
	}
	channels, err := a.DB.Channels.List(ctx, caller.OrgID, page)
	if err != nil {
		return nil, Internal(fmt.Errorf("listing channels: %w", err))
	}
	return listed(in.PageQuery, channels, func(row *store.Channel) string { return row.ID }, a.showChannel), nil
}

func (a *API) getChannel(ctx context.Context, caller *identity.Principal, in *PathID) (*jsonBody[channelObject], error) {
	channel, err := a.DB.Channels.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedChannels, in.ID, err)
	}
	return &jsonBody[channelObject]{a.showChannel(&channel)}, nil
}

type channelUpdate struct {
	PathID

	Body channelChange
}

func (a *API) updateChannel(ctx context.Context, caller *identity.Principal, in *channelUpdate) (*jsonBody[channelObject], error) {
	channel, err := a.DB.Channels.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedChannels, in.ID, err)
	}
	var change store.ChannelChange
	if in.Body.Name != nil {
		name, err := identity.CleanName("name", *in.Body.Name)
		if err != nil {
			return nil, badField(err)
		}
		change.Name = &name
	}
	if in.Body.AgentID.given {
		agentID := ""
		set(&agentID, in.Body.AgentID.value)
		if err := a.checkAgent(ctx, caller, agentID); err != nil {
			return nil, err
		}
		change.AgentID = &agentID
	}
	if change.Widget, err = in.Body.of(channel.Type, channel.Widget); err != nil {
		return nil, err
	}
	if in.Body.Credentials != nil {
		credentials, err := in.Body.Credentials.checked(a.Catalog, channel.Type)
		if err != nil {
			return nil, err
		}
		change.Credentials = a.sealCredentials(&channel, credentials)
		change.State = a.stateAfter(ctx, &channel, credentials)
	}
	if err := a.DB.Channels.Update(ctx, caller.Actor(), caller.OrgID, in.ID, change); err != nil {
		return nil, channelRefusal(err, a.refuse(ctx, caller, store.OwnedChannels, in.ID, err))
	}
	return a.getChannel(ctx, caller, &in.PathID)
}

func (a *API) deleteChannel(ctx context.Context, caller *identity.Principal, in *PathID) (*noBody, error) {
	if err := a.DB.Channels.Delete(ctx, caller.Actor(), caller.OrgID, in.ID); err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedChannels, in.ID, err)
	}
	return &noBody{}, nil
}

// verifyChannel asks for a channel that isn't active; what comes of it is the state in the answer.
func (a *API) verifyChannel(ctx context.Context, caller *identity.Principal, in *PathID) (*jsonBody[channelObject], error) {
	channel, err := a.DB.Channels.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedChannels, in.ID, err)
	}
	if channel.State == store.ChannelActive || channel.Credentials == nil {
		return &jsonBody[channelObject]{a.showChannel(&channel)}, nil
	}
	credentials, err := openCredentials(a.Ring, channel.OrgID, channel.ID, channel.Credentials)
	if err != nil {
		return nil, Internal(err)
	}
	if a.proven(ctx, &channel, credentials) {
		if err := a.DB.Channels.SetState(ctx, caller.Actor(), caller.OrgID, in.ID, store.ChannelActive); err != nil {
			return nil, a.refuse(ctx, caller, store.OwnedChannels, in.ID, err)
		}
	}
	return a.getChannel(ctx, caller, in)
}

// checkAgent refuses an agent that isn't the organization's; "" is none.
func (a *API) checkAgent(ctx context.Context, caller *identity.Principal, id string) error {
	if id == "" {
		return nil
	}
	if !wellFormedID(id) {
		return unknownAgent()
	}
	_, err := a.DB.Agents.ByID(ctx, caller.OrgID, id)
	if err == nil {
		return nil
	}
	err = a.refuse(ctx, caller, store.OwnedAgents, id, err)
	if asError(err).Code == errcode.NotFound {
		return unknownAgent()
	}
	return err
}

func unknownAgent() *Error {
	return InvalidRequest("agentId", "There is no agent with this id.")
}

// channelRefusal is the answer to what the store refuses about a channel, or otherwise.
func channelRefusal(err, otherwise error) error {
	switch {
	case errors.Is(err, store.ErrLimit):
		return &Error{Code: errcode.PlanLimitExceeded, Message: "The organization has as many channels as its plan allows.", Cause: err}
	case errors.Is(err, store.ErrAgentNotFound): // deleted since checkAgent
		return unknownAgent()
	case errors.Is(err, store.ErrConflict):
		return &Error{
			Code:    errcode.Conflict,
			Message: "There is a channel with this name in the organization, or with this externalId, already.", Cause: err,
		}
	default:
		return otherwise
	}
}
