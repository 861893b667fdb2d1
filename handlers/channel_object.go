package handlers

import (
	"errors"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/platforms"
	"github.com/caddy-svc/caddy-svc/internal/store"
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

func (a *API) showChannel(channel *store.Channel) channelObject {
	object := channelObject{
		ID: channel.ID, Type: channel.Type, Name: channel.Name, ExternalID: textOrNull(channel.ExternalID),
		LostExternalID: textOrNull(channel.LostExternalID), AgentID: textOrNull(channel.AgentID), State: channel.State,
		WebhookURL: textOrNull(WebhookURL(a.BaseURL, platforms.Type(channel.Type), channel.ID)),
		CreatedAt:  timestamp(channel.CreatedAt), UpdatedAt: timestamp(channel.UpdatedAt),
	}
	if channel.Widget != nil {
		object.showWidget(channel.Widget)
	}
	return object
}

// channelCreation is the body of POST /channels.
type channelCreation struct {
	Type        string            `json:"type" enum:"bot,social_messenger,photo_dm,chat_app,localchat,market_a,market_b,widget"`
	Name        string            `json:"name" minLength:"1" maxLength:"100" doc:"Unique within the organization"`
	ExternalID  string            `json:"externalId,omitempty" maxLength:"512" doc:"The platform's id of the page, account, number or shop, unique for its type; a bot and a widget have none"` //nolint:lll // a struct tag can't be broken
	AgentID     string            `json:"agentId,omitempty" maxLength:"64" doc:"Who answers; absent: nobody yet"`
	Credentials *credentialsInput `json:"credentials,omitempty" doc:"Required, but for a widget, which has none"`

	WidgetChange
}

// credentialsInput are credentials on their way in. They are sealed at once and never shown.
type credentialsInput struct {
	SecretToken  string `json:"secretToken,omitempty"  writeOnly:"true" doc:"bot: what the platform sends with each delivery"`
	BotToken     string `json:"botToken,omitempty"     writeOnly:"true" doc:"bot"`
	AccessToken  string `json:"accessToken,omitempty"  writeOnly:"true" doc:"all other types"`
	RefreshToken string `json:"refreshToken,omitempty" writeOnly:"true" doc:"localchat, market_a, market_b"`
}

// checked are the credentials if they are what a channel of the type needs.
func (c credentialsInput) checked(of platforms.Type) (platforms.Credentials, error) {
	credentials := platforms.Credentials{
		SecretToken: c.SecretToken, BotToken: c.BotToken, AccessToken: c.AccessToken, RefreshToken: c.RefreshToken,
	}
	err := of.CheckCredentials(credentials)
	if fault, ok := errors.AsType[*platforms.FieldError](err); ok {
		field := "credentials." + fault.Field
		return platforms.Credentials{}, InvalidRequest(field, "%s %s.", field, fault.Problem)
	}
	if err != nil {
		return platforms.Credentials{}, Internal(err)
	}
	return credentials, nil
}

// channel is the row for the body, without the credentials. A bot is active at once, for its address and its secret are its
// own, and a widget, which claims nothing. Others wait for the proof that the external id is the organization's (design §6).
func (c channelCreation) channel(orgID string) (store.Channel, platforms.Credentials, error) {
	none := platforms.Credentials{}
	name, err := identity.CleanName("name", c.Name)
	if err != nil {
		return store.Channel{}, none, badField(err)
	}
	channel := store.Channel{
		ID: store.NewID("chn"), OrgID: orgID, Type: c.Type, Name: name, ExternalID: c.ExternalID, AgentID: c.AgentID,
		State: store.ChannelPending,
	}
	if channel.Widget, err = c.of(platforms.Type(c.Type), nil); err != nil {
		return store.Channel{}, none, err
	}
	switch isBot := platforms.Type(c.Type) == platforms.Bot; {
	case (isBot || channel.Widget != nil) && c.ExternalID != "":
		return store.Channel{}, none, InvalidRequest("externalId", "externalId is of no use to a channel of type %s.", c.Type)
	case channel.Widget != nil && c.Credentials != nil:
		return store.Channel{}, none, noCredentials()
	case channel.Widget != nil:
		channel.State = store.ChannelActive
		return channel, none, nil
	case c.Credentials == nil:
		return store.Channel{}, none, InvalidRequest("credentials", "credentials is required.")
	case isBot:
		channel.State = store.ChannelActive
	case c.ExternalID == "":
		return store.Channel{}, none, InvalidRequest("externalId", "externalId is required.")
	case strings.ContainsFunc(c.ExternalID, func(r rune) bool { return r <= ' ' || r > '~' }):
		return store.Channel{}, none, InvalidRequest("externalId", "externalId may only contain visible ASCII characters.")
	}
	credentials, err := c.Credentials.checked(platforms.Type(c.Type))
	return channel, credentials, err
}

// channelChange is the body of PATCH /channels/{id}: what is absent stays as it is.
type channelChange struct {
	Name        *string           `json:"name,omitempty" minLength:"1" maxLength:"100"`
	AgentID     clearable[string] `json:"agentId,omitzero" minLength:"1" maxLength:"64" doc:"Who answers; null: nobody"`
	Credentials *credentialsInput `json:"credentials,omitempty" doc:"Replace all that there were"`

	WidgetChange
}
