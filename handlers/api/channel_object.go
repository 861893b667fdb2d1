package api

import (
	"errors"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// channelObject is a channel as the API shows it: never with its credentials.
type channelObject struct {
	ID         string  `json:"id"`
	Type       string  `json:"type"`
	Name       string  `json:"name"`
	ExternalID *string `json:"externalId" doc:"The platform's id of the page, account, number or shop"`
	// LostExternalID is set in a pending channel that can't become active any more.
	LostExternalID *string `json:"lostExternalId" doc:"The external id that this pending channel lost: the platform confirmed it for another organization. Delete the channel"` //nolint:lll // a struct tag can't be broken
	AgentID        *string `json:"agentId"    doc:"null: nobody answers"`
	State          string  `json:"state"      enum:"pending,active,needs_reauth" doc:"pending: the platform has not named externalId for the credentials yet; deliveries are dropped. needs_reauth: the platform refuses the credentials"` //nolint:lll // a struct tag can't be broken
	WebhookURL     *string `json:"webhookUrl" doc:"The address to enter at the platform"`
	// Of channels of type widget only; null for others.
	Origins           *[]string `json:"origins"           doc:"widget: the sites that may show it"`
	DailySpendMicros  *string   `json:"dailySpendMicros"  doc:"widget: what the answers of one day (UTC) may cost; null: a tenth of the wallet"`
	RequestsPerMinute *int64    `json:"requestsPerMinute" doc:"widget: how many messages a minute it takes from all visitors together"`
	CreatedAt         string    `json:"createdAt"         format:"date-time"`
	UpdatedAt         string    `json:"updatedAt"         format:"date-time"`
}

func (g *channels) show(channel *store.Channel) channelObject {
	object := channelObject{
		ID: channel.ID, Type: channel.Type, Name: channel.Name, ExternalID: endpoint.TextOrNull(channel.ExternalID),
		LostExternalID: endpoint.TextOrNull(channel.LostExternalID), AgentID: endpoint.TextOrNull(channel.AgentID), State: channel.State,
		WebhookURL: endpoint.TextOrNull(g.Catalog.WebhookURL(g.BaseURL, channel.Type, channel.ID)),
		CreatedAt:  endpoint.Timestamp(channel.CreatedAt), UpdatedAt: endpoint.Timestamp(channel.UpdatedAt),
	}
	if channel.Widget != nil {
		object.showWidget(channel.Widget)
	}
	return object
}

// channelCreation is the body of POST /channels.
type channelCreation struct {
	Type        string           `json:"type"`
	Name        string           `json:"name" minLength:"1" maxLength:"100" doc:"Unique within the organization"`
	ExternalID  string           `json:"externalId,omitempty" maxLength:"512" doc:"The platform's id of the page, account, number or shop, unique for its type; a bot and a widget have none"` //nolint:lll // a struct tag can't be broken
	AgentID     string           `json:"agentId,omitempty" maxLength:"64" doc:"Who answers; absent: nobody yet"`
	Credentials credentialsInput `json:"credentials,omitempty" doc:"Required, but for a widget, which has none"`

	WidgetChange
}

// credentialsInput are credentials on their way in, by the names of the type's fields. They are sealed at once and never
// shown.
type credentialsInput map[string]string

// checked are the credentials if they are what a channel of the type needs.
func (c credentialsInput) checked(catalog *messaging.Catalog, channelType string) (platforms.Credentials, error) {
	of, ok := catalog.Find(channelType)
	switch {
	case !ok:
		return nil, handlers.InvalidRequest("type", "The platform of channels of type %s is not part of this installation.", channelType)
	case of.Platform == nil:
		return nil, noCredentials()
	}
	credentials := platforms.Credentials(c)
	err := of.CheckCredentials(credentials)
	if fault, ok := errors.AsType[*platforms.FieldError](err); ok {
		field := "credentials." + fault.Field
		return nil, handlers.InvalidRequest(field, "%s %s.", field, fault.Problem)
	}
	if err != nil {
		return nil, handlers.Internal(err)
	}
	return credentials, nil
}

// describeCredentials completes the schemas of the channels' bodies by what the catalog knows.
func (g *channels) describeCredentials(s *endpoint.Server) {
	schemas := s.Description().Components.Schemas
	credentials := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	usedBy := map[string][]string{}
	for _, t := range g.Catalog.Types() {
		for _, field := range t.Credentials {
			usedBy[field.Name] = append(usedBy[field.Name], string(t.Type))
		}
	}
	for name, types := range usedBy {
		credentials.Properties[name] = &huma.Schema{Type: huma.TypeString, WriteOnly: true, Description: strings.Join(types, ", ")}
	}
	for _, body := range []reflect.Type{reflect.TypeFor[channelCreation](), reflect.TypeFor[channelChange]()} {
		schema := schemas.SchemaFromRef(endpoint.SchemaPrefix + endpoint.SchemaName(body, ""))
		described := *credentials
		described.Description = schema.Properties["credentials"].Description
		schema.Properties["credentials"] = &described
		if kind := schema.Properties["type"]; kind != nil {
			for _, name := range g.Catalog.TypeNames() {
				kind.Enum = append(kind.Enum, name)
			}
			kind.PrecomputeMessages()
		}
		described.PrecomputeMessages()
		schema.PrecomputeMessages()
	}
}

// channel is the row for the body, without the credentials. A channel with a webhook address and a secret of its own is active
// at once, and so is a widget, which claims nothing. Others wait for the proof that the external id is the organization's.
func (c channelCreation) channel(catalog *messaging.Catalog, orgID string) (store.Channel, platforms.Credentials, error) {
	name, err := identity.CleanName("name", c.Name)
	if err != nil {
		return store.Channel{}, nil, handlers.BadField(err)
	}
	channel := store.Channel{
		ID: store.NewID("chn"), OrgID: orgID, Type: c.Type, Name: name, ExternalID: c.ExternalID, AgentID: c.AgentID,
		State: store.ChannelPending,
	}
	if channel.Widget, err = c.of(c.Type, nil); err != nil {
		return store.Channel{}, nil, err
	}
	kind, _ := catalog.Find(c.Type) // the schema allows no other
	switch {
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

// channelChange is the body of PATCH /channels/{id}: what is absent stays as it is.
type channelChange struct {
	Name        *string           `json:"name,omitempty" minLength:"1" maxLength:"100"`
	AgentID     clearable[string] `json:"agentId,omitzero" minLength:"1" maxLength:"64" doc:"Who answers; null: nobody"`
	Credentials credentialsInput  `json:"credentials,omitempty" doc:"Replace all that there were"`

	WidgetChange
}
