package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// The operations on channels.
var (
	CreateChannel = operation(administrators("createChannel", "POST /channels", identity.ChannelsWrite,
		"Connect a channel"), (*Deps).createChannel)
	ListChannels = operation(testKeys(members("listChannels", "GET /channels", identity.ChannelsRead,
		"List the channels, oldest first")), (*Deps).listChannels)
	GetChannel = operation(testKeys(members("getChannel", "GET /channels/{id}", identity.ChannelsRead,
		"Get a channel")), (*Deps).getChannel)
	UpdateChannel = operation(administrators("updateChannel", "PATCH /channels/{id}", identity.ChannelsWrite,
		"Change a channel or its credentials"), (*Deps).updateChannel)
	DeleteChannel = operationOf(administrators("deleteChannel", "DELETE /channels/{id}", identity.ChannelsWrite,
		"Delete a channel"), (*Deps).deleteChannel)
	ListTemplates = operation(members("listTemplates", "GET /channels/{id}/templates", identity.ChannelsRead,
		"List the templates that a channel's platform has approved"), (*Deps).listTemplates)
	VerifyChannel = operation(acting(administrators("verifyChannel", "POST /channels/{id}/verify", identity.ChannelsWrite,
		"Ask the platform again whose account the channel's credentials belong to")), (*Deps).verifyChannel)
)

// createChannel stores the channel before it calls the platform, so that a request beyond the plan's limit or with a taken name
// causes no call.
func (d *Deps) createChannel(ctx context.Context, principal *identity.Principal, in *struct{ Body channelCreation }) (*ChannelObject, error) {
	channel, credentials, err := in.Body.channel(d.Catalog, principal.OrgID)
	if err != nil {
		return nil, err
	}
	if err := d.checkAgent(ctx, principal, channel.AgentID); err != nil {
		return nil, err
	}
	var question *question
	if channel.State == store.ChannelPending {
		if question, err = d.questions.account(ctx, &channel, firstCredentials); err != nil {
			return nil, err
		}
		defer question.end()
	}
	channel.CreatedAt = d.Now().UnixMilli()
	channel.UpdatedAt = channel.CreatedAt
	if in.Body.Credentials != nil {
		channel.Credentials = d.sealCredentials(&channel, credentials)
	}
	err = d.DB.Channels.Create(ctx, principal.Actor(), channel, d.Plans.ChannelLimit(principal.Plan))
	if errors.Is(err, store.ErrConflict) && channel.State == store.ChannelPending {
		err = d.takeOver(ctx, principal, question, &channel, credentials, err)
	}
	if err != nil {
		return nil, channelRefusal(err, handlers.Internal(fmt.Errorf("creating a channel: %w", err)))
	}
	if channel.State == store.ChannelPending && d.proven(ctx, question, &channel, credentials) {
		err := d.DB.Channels.SetState(ctx, principal.Actor(), principal.OrgID, channel.ID, store.ChannelActive)
		if err == nil {
			return d.getChannel(ctx, principal, &endpoint.PathID{ID: channel.ID})
		}
		// The channel is there, and can be verified again.
		d.Logger.Error("a new channel could not be activated", "channel", channel.ID, "error", err)
	}
	return new(d.showChannel(&channel)), nil
}

func (d *Deps) listChannels(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[ChannelObject], error) {
	show, err := d.channelShower(ctx, principal)
	if err != nil {
		return nil, err
	}
	return listRows(ctx, principal, in.PageQuery, d.DB.Channels.List, func(row *store.Channel) string { return row.ID }, show)
}

func (d *Deps) getChannel(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*ChannelObject, error) {
	show, err := d.channelShower(ctx, principal)
	if err != nil {
		return nil, err
	}
	return getRow(ctx, d, principal, store.OwnedChannels, in.ID, d.DB.Channels.ByID, show)
}

// channelShower is showChannel for channels that may send already: it also shows pauses that platforms have asked for.
func (d *Deps) channelShower(ctx context.Context, principal *identity.Principal) (func(*store.Channel) ChannelObject, error) {
	closed, err := d.DB.Channels.ClosedUntil(ctx, principal.OrgID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the pauses of channels: %w", err))
	}
	return func(channel *store.Channel) ChannelObject {
		object := d.showChannel(channel)
		if until := closed[channel.ID]; until > 0 {
			object.ThrottledUntil = new(endpoint.Timestamp(until))
			if object.State == store.ChannelActive {
				object.State = stateThrottled
			}
		}
		return object
	}, nil
}

func (d *Deps) updateChannel(ctx context.Context, principal *identity.Principal, in *idAndBody[channelChange]) (*ChannelObject, error) {
	channel, err := d.DB.Channels.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
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
		agentID := *cmp.Or(in.Body.AgentID.value, new(""))
		if err := d.checkAgent(ctx, principal, agentID); err != nil {
			return nil, err
		}
		change.AgentID = &agentID
	}
	if change.Answers, err = in.Body.AnswerRulesChange.of(channel.Answers); err != nil {
		return nil, err
	}
	if change.Widget, err = in.Body.WidgetChange.of(channel.Type, channel.Widget); err != nil {
		return nil, err
	}
	if in.Body.Credentials != nil {
		credentials, err := in.Body.Credentials.checked(d.Catalog, channel.Type)
		if err != nil {
			return nil, err
		}
		change.Credentials = d.sealCredentials(&channel, credentials)
		if change.State, err = d.stateAfter(ctx, &channel, credentials); err != nil {
			return nil, err
		}
	}
	if err := d.DB.Channels.Update(ctx, principal.Actor(), principal.OrgID, in.ID, change); err != nil {
		return nil, channelRefusal(err, d.refuse(ctx, principal, store.OwnedChannels, in.ID, err))
	}
	return d.getChannel(ctx, principal, &in.PathID)
}

func (d *Deps) deleteChannel(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, d.change(ctx, principal, store.OwnedChannels, in.ID, d.DB.Channels.Delete)
}

// verifyChannel calls the platform again for a channel that isn't active. The result is the state in the answer.
func (d *Deps) verifyChannel(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*ChannelObject, error) {
	channel, err := d.DB.Channels.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
	}
	if channel.State == store.ChannelActive || channel.Credentials == nil || channel.LostExternalID != "" {
		return d.getChannel(ctx, principal, in)
	}
	credentials, err := messaging.OpenCredentials(d.Ring, channel.OrgID, channel.ID, channel.Credentials)
	if err != nil {
		return nil, handlers.Internal(err)
	}
	question, err := d.questions.account(ctx, &channel, channel.CredentialsVersion)
	if err != nil {
		return nil, err
	}
	defer question.end()
	if d.proven(ctx, question, &channel, credentials) {
		if err := d.DB.Channels.SetState(ctx, principal.Actor(), principal.OrgID, in.ID, store.ChannelActive); err != nil {
			return nil, d.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
		}
	}
	return d.getChannel(ctx, principal, in)
}

// checkAgent refuses an agent that isn't the organization's. An empty id means no agent.
func (d *Deps) checkAgent(ctx context.Context, principal *identity.Principal, id string) error {
	if id == "" {
		return nil
	}
	return checkRow(ctx, d, principal, store.OwnedAgents, id, d.DB.Agents.ByID, unknownAgent())
}

func unknownAgent() *handlers.Error {
	return handlers.InvalidRequest("agentId", "There is no agent with this id.")
}

// channelRefusal returns the public form of an error about a channel, or otherwise for any other error.
func channelRefusal(err, otherwise error) error {
	switch {
	case errors.Is(err, store.ErrLimit):
		return endpoint.Refusal(errcode.PlanLimitExceeded, err, "The organization has as many channels as its plan allows.")
	case errors.Is(err, store.ErrAgentNotFound): // deleted since checkAgent
		return unknownAgent()
	case errors.Is(err, store.ErrConflict):
		return endpoint.Refusal(errcode.Conflict, err,
			"There is a channel with this name in the organization, or with this externalId, already.")
	default:
		return otherwise
	}
}

// ChannelObject is a channel as the API shows it: never with its credentials.
type ChannelObject struct {
	ID         string  `json:"id"`
	Type       string  `json:"type"`
	Name       string  `json:"name"`
	ExternalID *string `json:"externalId" doc:"The platform's id of the page, account, number or shop"`
	// LostExternalID is set in a pending channel that can no longer become active.
	LostExternalID *string `json:"lostExternalId" doc:"The external id that this pending channel lost: the platform, or the operator, confirmed it for another organization. Delete the channel"` //nolint:lll // a struct tag can't be broken
	AgentID        *string `json:"agentId"    doc:"null: nobody answers"`
	State          string  `json:"state"      enum:"pending,active,expiring,throttled,needs_reauth" doc:"pending: the platform has not named externalId for the credentials yet; deliveries are dropped. expiring: it works, and the platform doesn't renew its token, which ends in some days. throttled: it works, and the platform has asked for a pause before anything more is sent. needs_reauth: the platform refuses the credentials"` //nolint:lll // a struct tag can't be broken
	// UnavailableReason is set while the platform of the channel's type is missing, whatever its state.
	UnavailableReason *string `json:"unavailableReason" doc:"Why the channel stands still whatever its state: its platform is not part of this installation. null: it does not"` //nolint:lll // a struct tag can't be broken
	ThrottledUntil    *string `json:"throttledUntil" format:"date-time" doc:"When the pause ends that the platform has asked for; null: it has not"`
	WebhookURL        *string `json:"webhookUrl" doc:"The address to enter at the platform"`
	// Of channels of type widget only; null for others.
	Origins           *[]string `json:"origins"           doc:"widget: the sites that may show it"`
	DailySpendMicros  *string   `json:"dailySpendMicros"  doc:"widget: what the answers of one day (UTC) may cost; null: a tenth of the wallet"`
	RequestsPerMinute *int64    `json:"requestsPerMinute" doc:"widget: how many messages a minute it takes from all visitors together"`
	AnswerRulesObject
	CreatedAt string `json:"createdAt"         format:"date-time"`
	UpdatedAt string `json:"updatedAt"         format:"date-time"`
}

func (d *Deps) showChannel(channel *store.Channel) ChannelObject {
	object := ChannelObject{
		ID: channel.ID, Type: channel.Type, Name: channel.Name, ExternalID: endpoint.OrNull(channel.ExternalID),
		LostExternalID: endpoint.OrNull(channel.LostExternalID), AgentID: endpoint.OrNull(channel.AgentID), State: channel.State,
		WebhookURL:        endpoint.OrNull(d.Catalog.WebhookURL(d.BaseURL, channel.Type, channel.ID)),
		AnswerRulesObject: showAnswerRules(&channel.Answers),
		CreatedAt:         endpoint.Timestamp(channel.CreatedAt), UpdatedAt: endpoint.Timestamp(channel.UpdatedAt),
	}
	switch kind, ok := d.Catalog.Find(channel.Type); {
	case !ok:
		object.UnavailableReason = new(missingPlatform(channel.Type))
	case channel.State == store.ChannelActive && kind.RenewAhead > 0 && channel.Credentials != nil:
		credentials, err := messaging.OpenCredentials(d.Ring, channel.OrgID, channel.ID, channel.Credentials)
		if err == nil && kind.Expiring(credentials, d.Now()) {
			object.State = stateExpiring
		}
	}
	if settings := channel.Widget; settings != nil {
		object.Origins, object.RequestsPerMinute = new(append([]string{}, settings.Origins...)), &settings.RequestsPerMinute
		if settings.DailySpendMicros.Valid {
			object.DailySpendMicros = new(strconv.FormatInt(settings.DailySpendMicros.Int64, 10))
		}
	}
	return object
}

// stateThrottled is shown for an active channel while its platform demands a pause.
const stateThrottled = "throttled"

// stateExpiring is shown for an active channel if its token ends soon because the platform doesn't renew it.
const stateExpiring = "expiring"

// missingPlatform is the text for a channel of a platform that is not built in.
func missingPlatform(channelType string) string {
	return "The platform of channels of type " + channelType + " is not part of this installation."
}

// channelCreation is the body of POST /channels.
type channelCreation struct {
	Type        string           `json:"type"`
	Name        string           `json:"name" minLength:"1" maxLength:"100" doc:"Unique within the organization"`
	ExternalID  string           `json:"externalId,omitempty" maxLength:"512" doc:"The platform's id of the page, account, number or shop, unique for its type; a bot and a widget have none"` //nolint:lll // a struct tag can't be broken
	AgentID     string           `json:"agentId,omitempty" maxLength:"64" doc:"Who answers; absent: nobody yet"`
	Credentials credentialsInput `json:"credentials,omitempty" doc:"Required, but for a widget, which has none"`

	AnswerRulesChange
	WidgetChange
}

// credentialsInput are the credentials of a request, by the names of the type's fields. They are sealed immediately and
// never shown.
type credentialsInput map[string]string

// checked returns the credentials if they are the credentials that a channel of the type needs.
func (c credentialsInput) checked(catalog *messaging.Catalog, channelType string) (platforms.Credentials, error) {
	of, ok := catalog.Find(channelType)
	switch {
	case !ok:
		return nil, handlers.InvalidRequest("type", "%s", missingPlatform(channelType))
	case of.Platform == nil:
		return nil, noCredentials()
	}
	credentials := platforms.Credentials(c)
	err := of.CheckCredentials(credentials)
	if fault, ok := errors.AsType[*platforms.FieldError](err); ok {
		field := "credentials." + fault.Field
		return nil, handlers.InvalidRequest(field, "%s %s.", field, fault.Problem)
	}
	return credentials, err
}

// describeCredentials adds the catalog's channel types and credential fields to the schemas of the channels' bodies.
func (d *Deps) describeCredentials(description *huma.OpenAPI) {
	schemas := description.Components.Schemas
	credentials := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	usedBy := map[string][]string{}
	for _, t := range d.Catalog.Types() {
		for _, field := range t.Credentials {
			usedBy[field.Name] = append(usedBy[field.Name], string(t.Type))
		}
	}
	for name, types := range usedBy {
		credentials.Properties[name] = &huma.Schema{Type: huma.TypeString, WriteOnly: true, Description: strings.Join(types, ", ")}
	}
	for _, body := range []reflect.Type{reflect.TypeFor[channelCreation](), reflect.TypeFor[channelChange]()} {
		schema := schemas.SchemaFromRef(endpoint.SchemaPrefix + endpoint.SchemaName(body, ""))
		if schema == nil {
			continue // no channel's operation is described
		}
		described := *credentials
		described.Description = schema.Properties["credentials"].Description
		schema.Properties["credentials"] = &described
		if kind := schema.Properties["type"]; kind != nil {
			for _, name := range d.Catalog.TypeNames() {
				kind.Enum = append(kind.Enum, name)
			}
			kind.PrecomputeMessages()
		}
		described.PrecomputeMessages()
		schema.PrecomputeMessages()
	}
}

// channel is the row for the body, without the credentials. A channel with a webhook address and a secret of its own is active
// immediately, and so is a widget, which claims nothing. Others wait for the proof that the external id is the organization's.
func (c channelCreation) channel(catalog *messaging.Catalog, orgID string) (store.Channel, platforms.Credentials, error) {
	name, err := identity.CleanName("name", c.Name)
	if err != nil {
		return store.Channel{}, nil, handlers.BadField(err)
	}
	channel := store.Channel{
		ID: store.NewID("chn"), OrgID: orgID, Type: c.Type, Name: name, ExternalID: c.ExternalID, AgentID: c.AgentID,
		State: store.ChannelPending,
	}
	rules, err := c.AnswerRulesChange.of(channel.Answers)
	if err != nil {
		return store.Channel{}, nil, err
	}
	if rules != nil {
		channel.Answers = *rules
	}
	if channel.Widget, err = c.WidgetChange.of(c.Type, nil); err != nil {
		return store.Channel{}, nil, err
	}
	kind, known := catalog.Find(c.Type)
	switch {
	case !known:
		return store.Channel{}, nil, handlers.InvalidRequest("type", "type must be one of: %s.", strings.Join(catalog.TypeNames(), ", "))
	case !kind.Routed() && c.ExternalID != "":
		return store.Channel{}, nil, handlers.InvalidRequest("externalId", "externalId is of no use to a channel of type %s.", c.Type)
	case channel.Widget != nil && c.Credentials != nil:
		return store.Channel{}, nil, noCredentials()
	case channel.Widget != nil:
		channel.State = store.ChannelActive
		return channel, nil, nil
	case c.Credentials == nil:
		return store.Channel{}, nil, handlers.InvalidRequest("credentials", "credentials is required.")
	case !kind.Routed():
		channel.State = store.ChannelActive
	case c.ExternalID == "":
		return store.Channel{}, nil, handlers.InvalidRequest("externalId", "externalId is required.")
	case strings.ContainsFunc(c.ExternalID, func(r rune) bool { return r <= ' ' || r > '~' }):
		return store.Channel{}, nil, handlers.InvalidRequest("externalId", "externalId may only contain visible ASCII characters.")
	}
	credentials, err := c.Credentials.checked(catalog, c.Type)
	return channel, credentials, err
}

// channelChange is the body of PATCH /channels/{id}. An absent member changes nothing.
type channelChange struct {
	Name        *string           `json:"name,omitempty" minLength:"1" maxLength:"100"`
	AgentID     clearable[string] `json:"agentId,omitzero" minLength:"1" maxLength:"64" doc:"Who answers; null: nobody"`
	Credentials credentialsInput  `json:"credentials,omitempty" doc:"Replace all that there were"`

	AnswerRulesChange
	WidgetChange
}

// firstCredentials is the version of a new channel's credentials.
const firstCredentials = 1

// identifyTimeout limits the call that finds the account of a token. A client waits for it.
const identifyTimeout = 10 * time.Second

// proven reports whether the platform confirms that the credentials belong to the channel's external id. Any other outcome of the call
// counts as no, because the channel can be verified again.
func (d *Deps) proven(ctx context.Context, question *question, channel *store.Channel, credentials platforms.Credentials) bool {
	if d.Platforms == nil {
		return false
	}
	question.asked = true
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	ids, err := d.Platforms.Identify(ctx, &platforms.Channel{
		Type: platforms.Type(channel.Type), ExternalID: channel.ExternalID, Credentials: credentials,
	})
	if err != nil {
		d.Logger.Info("a platform did not say whose credentials a channel has", "channel", channel.ID, "type", channel.Type, "error", err)
		return false
	}
	return slices.Contains(ids, channel.ExternalID)
}

// takeOver creates a channel that was refused because of a conflict, when the cause is a pending channel of another
// organization that claims the same external id, and the platform confirms that the id belongs to these credentials.
// Otherwise it returns the refusal.
func (d *Deps) takeOver(
	ctx context.Context, principal *identity.Principal, question *question, channel *store.Channel, credentials platforms.Credentials, refusal error,
) error {
	possible, err := d.DB.Channels.TakeOverPossible(ctx, *channel)
	if err != nil {
		return fmt.Errorf("looking for a pending claim: %w", err)
	}
	if !possible || !d.proven(ctx, question, channel, credentials) {
		return refusal
	}
	channel.State = store.ChannelActive
	if err := d.DB.Channels.TakeOver(ctx, principal.Actor(), store.PlatformConfirmed, *channel, d.Plans.ChannelLimit(principal.Plan)); err != nil {
		return fmt.Errorf("taking an external id over: %w", err)
	}
	return nil
}

// stateAfter returns the channel's state after a change of credentials; nil leaves it. A channel that has been active keeps its
// claim of the external id.
func (d *Deps) stateAfter(ctx context.Context, channel *store.Channel, credentials platforms.Credentials) (*string, error) {
	active := store.ChannelActive
	switch {
	case channel.State == store.ChannelNeedsReauth:
		return &active, nil
	case channel.State != store.ChannelPending, channel.LostExternalID != "":
		return nil, nil //nolint:nilnil // the state stays
	}
	question, err := d.questions.account(ctx, channel, channel.CredentialsVersion+1)
	if err != nil {
		return nil, err
	}
	defer question.end()
	if !d.proven(ctx, question, channel, credentials) {
		return nil, nil //nolint:nilnil // the state stays
	}
	return &active, nil
}

// sealCredentials makes the stored form of the channel's credentials.
func (d *Deps) sealCredentials(channel *store.Channel, credentials platforms.Credentials) []byte {
	return d.Ring.Seal(handlers.Marshal(credentials), vault.ChannelCredentials(channel.OrgID, channel.ID))
}
