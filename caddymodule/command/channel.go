package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/widget"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// channelAnswer is a channel as results show it: never with its credentials.
type channelAnswer struct {
	ID         string `json:"id"`
	OrgID      string `json:"orgId"`
	Type       string `json:"type"`
	Name       string `json:"name"`
	ExternalID string `json:"externalId"`
	// LostExternalID is set for a channel that stays pending for good.
	LostExternalID string `json:"lostExternalId,omitempty"`
	AgentID        string `json:"agentId"`
	State          string `json:"state"`
	AnswerMode     string `json:"answerMode"`
	// MaxAgeMinutes is left out for messages of any age, and opening hours for any time.
	MaxAgeMinutes int64    `json:"maxAgeMinutes,omitempty"`
	OpeningHours  []string `json:"openingHours,omitempty"`
	TimeZone      string   `json:"timeZone,omitempty"`
	ClosedNotice  string   `json:"closedNotice,omitempty"`
	MediaNotice   string   `json:"mediaNotice,omitempty"`
	WebhookURL    string   `json:"webhookUrl"`
	CreatedAt     string   `json:"createdAt"`
}

// channelTypes returns the types of the platforms of this build. A platform with a faulty description is reported when a
// configuration is loaded.
func channelTypes() *messaging.Catalog {
	catalog, _ := caddymodule.PlatformCatalog()
	return catalog
}

// credentialForms lists the credentials of the types for a command's help, one line for all types with the same.
func credentialForms(catalog *messaging.Catalog) string {
	var forms []string
	types := map[string][]string{}
	for _, t := range catalog.Types() {
		var fields, optional []string
		for _, field := range t.Credentials {
			if field.Optional {
				optional = append(optional, field.Name)
			} else {
				fields = append(fields, `"`+field.Name+`": "…"`)
			}
		}
		if len(fields) == 0 {
			continue
		}
		form := "{" + strings.Join(fields, ", ") + "}"
		if len(optional) > 0 {
			form += "; of an own application: " + strings.Join(optional, ", ")
		}
		if types[form] == nil {
			forms = append(forms, form)
		}
		types[form] = append(types[form], string(t.Type))
	}
	var b strings.Builder
	for _, form := range forms {
		fmt.Fprintf(&b, "  %-40s %s\n", strings.Join(types[form], ", "), form)
	}
	return b.String()
}

func (e *commandEnv) channelAnswer(c store.Channel) channelAnswer {
	return channelAnswer{
		ID: c.ID, OrgID: c.OrgID, Type: c.Type, Name: c.Name, ExternalID: c.ExternalID,
		LostExternalID: c.LostExternalID, AgentID: c.AgentID, State: c.State,
		AnswerMode: answerMode(&c.Answers), MaxAgeMinutes: c.Answers.MaxAgeMinutes,
		OpeningHours: openingHours(&c.Answers), TimeZone: c.Answers.TimeZone, ClosedNotice: c.Answers.ClosedNotice,
		MediaNotice: c.Answers.MediaNotice,
		WebhookURL:  channelTypes().WebhookURL(e.app.BaseURL, c.Type, c.ID), CreatedAt: moment(c.CreatedAt),
	}
}

func (c channelAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "channel\t%s\norganization\t%s\ntype\t%s\nname\t%s\nexternal id\t%s\nagent\t%s\nstate\t%s\n"+
		"answers\t%s\nwebhook\t%s\ncreated\t%s\n",
		c.ID, c.OrgID, c.Type, c.Name, dash(c.ExternalID), dash(c.AgentID), c.State, c.AnswerMode, dash(c.WebhookURL), c.CreatedAt)
	if c.LostExternalID != "" {
		fmt.Fprintf(w, "The external id %s was confirmed for another organization. Delete this channel.\n", c.LostExternalID)
	}
	if c.MaxAgeMinutes > 0 {
		fmt.Fprintf(w, "oldest message answered\t%d minutes\n", c.MaxAgeMinutes)
	}
	if len(c.OpeningHours) > 0 {
		fmt.Fprintf(w, "open\t%s (%s)\n", strings.Join(c.OpeningHours, "; "), c.TimeZone)
	}
	if c.AgentID == "" {
		fmt.Fprintln(w, "No agent answers here yet: messages wait with the conversation's attention code.")
	}
}

func (c channelAnswer) cells() []string {
	return []string{c.ID, c.Type, c.Name, dash(oneLine(c.ExternalID)), dash(c.AgentID), c.State, dash(c.WebhookURL)}
}

func channelCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "channel",
		Short: "Creates, lists, changes, approves and deletes the messaging channels of an organization",
	}, f.channelCreate(), f.channelList(), f.channelSet(), f.channelApprove(), f.channelDelete())
}

// channelRequest has the flags of `channel create`.
type channelRequest struct {
	orgID, kind, name, externalID, agentID, credentialsFile string

	origins []string
}

func (f *commandFlags) channelCreate() *cobra.Command {
	var request channelRequest
	catalog := channelTypes()
	command := &cobra.Command{
		Use:   "create --org ORG_ID --type TYPE --name NAME [flags]",
		Short: "Creates a channel, which is active at once, and shows its webhook address",
		Long: `Creates a channel between an organization and a platform, and shows the address to register there as the webhook. It is
active at once: that the organization has the page, number or shop is for you to know, while a channel that a client makes
waits until the platform or you confirm it. A channel of another organization that still waits with the same external id
loses it, which that organization's audit log says. The plan's number of channels doesn't bind you either.

The credentials are a JSON object, read from a file or standard input and never from the command line:

` + credentialForms(catalog) + `
They are stored encrypted under master_key and never shown. The external id is what the platform calls the page, the
account, the phone number or the shop; types with a webhook address for each channel, such as bot, have none.

A widget has neither: it is a chat for the organization's own site. --origin names a site that may show it, as
https://shop.example.com or https://*.example.com, and may be given up to 20 times; PATCH /channels/{id} sets what it may
cost a day and how many messages it takes a minute.`,
		Example: `  $ caddy svc channel create --org org_… --type bot --name "Tea bot" --agent agt_… --credentials-file ./bot.json
  $ pass show page | caddy svc channel create --org org_… --type social_messenger --name Page --external-id 1234567890 --credentials-file -
  $ caddy svc channel create --org org_… --type widget --name Site --agent agt_… --origin https://shop.example.com`,
	}
	flags := command.Flags()
	flags.StringVar(&request.kind, "type", "", "the `type`: "+config.Listed(catalog.TypeNames()))
	flags.StringVar(&request.name, "name", "", "the `name`: 1 to 100 characters, unique in the organization")
	flags.StringVar(&request.externalID, "external-id", "", "the platform's `id` of the page, account, number or shop")
	flags.StringVar(&request.agentID, "agent", "", "the `id` of the agent that answers")
	flags.StringVar(&request.credentialsFile, "credentials-file", "", "the `file` that holds the credentials; - is standard input")
	flags.StringArrayVar(&request.origins, "origin", nil, "a `site` that may show the widget; may be repeated")
	required(command, "type", "name")
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		request.orgID = orgID
		return e.createChannel(ctx, request)
	})
}

func (e *commandEnv) createChannel(ctx context.Context, r channelRequest) (answer, error) {
	kind, channel, err := r.channel()
	if err != nil {
		return nil, err
	}
	if kind.Platform != nil {
		if channel.Credentials, err = e.sealedCredentials(&channel, kind, r.credentialsFile); err != nil {
			return nil, err
		}
	}
	err = e.db.Channels.TakeOver(ctx, e.actor, store.OperatorConfirmed, channel, 0)
	switch {
	case errors.Is(err, store.ErrAgentNotFound):
		return nil, fmt.Errorf("organization %s has no agent %q; `caddy svc agent list --org %s` shows them", r.orgID, r.agentID, r.orgID)
	case errors.Is(err, store.ErrConflict):
		return nil, e.channelConflict(ctx, channel)
	case err != nil:
		return nil, fmt.Errorf("creating a channel: %w", err)
	}
	return e.channel(ctx, channel.OrgID, channel.ID)
}

// sealedCredentials reads the credentials of a channel in their stored form.
func (e *commandEnv) sealedCredentials(channel *store.Channel, kind messaging.ChannelType, file string) ([]byte, error) {
	credentials, err := e.readCredentials(file, kind)
	if err != nil {
		return nil, err
	}
	ring, err := e.ring()
	if err != nil {
		return nil, err
	}
	return ring.Seal(credentials, vault.ChannelCredentials(channel.OrgID, channel.ID)), nil
}

// channelConflict returns the error for a new channel that collides with another. Only the operator may learn which organization
// has an external id.
func (e *commandEnv) channelConflict(ctx context.Context, c store.Channel) error {
	key := store.RouteKey{Type: c.Type, ExternalID: c.ExternalID}
	taken, err := e.db.Routes.ByKeys(ctx, []store.RouteKey{key})
	if err != nil {
		return fmt.Errorf("looking for the channel with this external id: %w", err)
	}
	switch holder, found := taken[key]; {
	case found && holder.State == store.ChannelPending && holder.OrgID == c.OrgID:
		return fmt.Errorf("the organization's own channel %s claims this external id; `caddy svc channel approve %s` confirms it",
			holder.ChannelID, holder.ChannelID)
	case found && holder.State != store.ChannelPending:
		return fmt.Errorf("channel %s of organization %s (%s) has this external id; if it isn't theirs, `caddy svc channel delete %s` frees it",
			holder.ChannelID, holder.OrgID, holder.State, holder.ChannelID)
	}
	return fmt.Errorf("organization %s already has a channel with the name %q", c.OrgID, c.Name)
}

func (r channelRequest) channel() (kind messaging.ChannelType, channel store.Channel, err error) {
	channel = store.Channel{
		ID: store.NewID("chn"), OrgID: r.orgID, Type: r.kind, ExternalID: r.externalID, AgentID: r.agentID, State: store.ChannelActive,
	}
	catalog := channelTypes()
	kind, known := catalog.Find(r.kind)
	switch {
	case !known:
		err = fmt.Errorf("there is no channel type %s; allowed: %s", config.Quoted(r.kind), config.Listed(catalog.TypeNames()))
	case kind.Platform == nil:
		channel, err = r.widget(channel)
		return kind, channel, err
	case len(r.origins) > 0:
		err = fmt.Errorf("--origin: only a widget has origins, not a channel of type %s", r.kind)
	case !kind.Routed() && r.externalID != "":
		err = fmt.Errorf("--external-id: a %s channel has none; its webhook address has the channel's own id", r.kind)
	case kind.Routed() && r.externalID == "":
		err = fmt.Errorf("--external-id is missing: the platform's id of what a channel of type %s belongs to", r.kind)
	case len(r.externalID) > platforms.MaxID || !config.VisibleASCII(r.externalID):
		err = fmt.Errorf("--external-id: must be at most %d visible ASCII characters", platforms.MaxID)
	default:
		channel.Name, err = identity.CleanName("name", r.name)
	}
	return kind, channel, err
}

// widget checks the values of a channel of type widget.
func (r channelRequest) widget(channel store.Channel) (store.Channel, error) {
	if r.externalID != "" || r.credentialsFile != "" {
		return channel, errors.New("--external-id and --credentials-file: a widget has neither")
	}
	origins, err := widget.CleanOrigins(r.origins)
	if fault, ok := errors.AsType[*handlers.Error](err); ok {
		return channel, fmt.Errorf("--origin: %s", fault.Message)
	}
	channel.Widget = &store.WidgetSettings{Origins: origins, RequestsPerMinute: store.DefaultWidgetRequests}
	channel.Name, err = identity.CleanName("name", r.name)
	return channel, err
}

// mostCredentialBytes bounds a credentials file: a few tokens.
const mostCredentialBytes = 64 << 10

// readCredentials reads a channel's credentials, and checks that a channel of this type can use them. No error quotes what was
// read.
func (e *commandEnv) readCredentials(file string, kind messaging.ChannelType) ([]byte, error) {
	credentials := platforms.Credentials{}
	if file != "" {
		text, err := e.readInput(file, "credentials", mostCredentialBytes)
		if err != nil {
			return nil, err
		}
		if credentials.UnmarshalJSON(text) != nil {
			return nil, fmt.Errorf("the credentials are not one JSON object with texts under %s (expiresAt, in epoch milliseconds, may be added)",
				config.Listed(fieldNames(kind)))
		}
	}
	if err := kind.CheckCredentials(credentials); err != nil {
		return nil, fmt.Errorf("credentials of a channel of type %s: %w; they are read from --credentials-file", kind.Type, err)
	}
	sealable, err := json.Marshal(credentials) //nolint:gosec // it is sealed before anybody sees it
	if err != nil {
		return nil, fmt.Errorf("writing the credentials: %w", err)
	}
	return sealable, nil
}

func fieldNames(kind messaging.ChannelType) []string {
	names := make([]string, len(kind.Credentials))
	for i, field := range kind.Credentials {
		names[i] = field.Name
	}
	return names
}

func (e *commandEnv) channel(ctx context.Context, orgID, id string) (answer, error) {
	channel, err := e.db.Channels.ByID(ctx, orgID, id)
	if err != nil {
		return nil, fmt.Errorf("reading the channel: %w", err)
	}
	return e.channelAnswer(channel), nil
}

func (f *commandFlags) channelList() *cobra.Command {
	command := &cobra.Command{Use: "list --org ORG_ID", Short: "Lists the channels of an organization"}
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		channels, err := allPages(func(page store.Page) ([]store.Channel, error) { return e.db.Channels.List(ctx, orgID, page) },
			func(c store.Channel) string { return c.ID })
		if err != nil {
			return nil, fmt.Errorf("listing channels: %w", err)
		}
		return newList("ID\tTYPE\tNAME\tEXTERNAL ID\tAGENT\tSTATE\tWEBHOOK", channels, e.channelAnswer), nil
	})
}

func (f *commandFlags) channelApprove() *cobra.Command {
	command := &cobra.Command{
		Use:   "approve CHANNEL_ID",
		Short: "Confirms that a pending channel's organization has the page, account, number or shop it names",
		Long: `Confirms that the organization of a pending channel has the page, account, number or shop that the channel names. Until
then, or until the platform has confirmed it, the channel's messages are dropped. Approving an active channel changes
nothing; one that needs new credentials works again with those.`,
		Example: "  $ caddy svc channel approve chn_…",
		Args:    exactly("the channel's id"),
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		id := e.args[0]
		orgID, err := e.db.OwnerOf(ctx, store.OwnedChannels, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("there is no channel with the id %q; `caddy svc channel list --org ORG_ID` shows them", id)
		}
		if err != nil {
			return nil, fmt.Errorf("looking for the channel: %w", err)
		}
		channel, err := e.db.Channels.ByID(ctx, orgID, id)
		if err != nil {
			return nil, fmt.Errorf("reading the channel: %w", err)
		}
		if channel.State == store.ChannelNeedsReauth {
			return nil, fmt.Errorf("channel %s needs new credentials, which no approval replaces", id)
		}
		if channel.LostExternalID != "" {
			return nil, fmt.Errorf("channel %s lost the external id %s, which was confirmed for another organization; "+
				"`caddy svc channel delete %s` removes it", id, channel.LostExternalID, id)
		}
		if err := e.db.Channels.SetState(ctx, e.actor, orgID, id, store.ChannelActive); err != nil {
			return nil, fmt.Errorf("approving the channel: %w", err)
		}
		return e.channel(ctx, orgID, id)
	})
}

type deletedChannelAnswer struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

func (a deletedChannelAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "Channel %s is deleted.\n", a.ID)
}

func (f *commandFlags) channelDelete() *cobra.Command {
	command := &cobra.Command{
		Use:   "delete CHANNEL_ID",
		Short: "Deletes a channel with its conversations, and frees its external id",
		Long: `Deletes a channel with all its conversations. Its external id is free again, for instance when an organization holds
one that isn't theirs. A deletion that is interrupted leaves the channel pending; repeat it.`,
		Example: "  $ caddy svc channel delete chn_…",
		Args:    exactly("the channel's id"),
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		id := e.args[0]
		orgID, err := e.db.OwnerOf(ctx, store.OwnedChannels, id)
		if err == nil {
			err = e.db.Channels.Delete(ctx, e.actor, orgID, id)
		}
		if errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("there is no channel with the id %q; `caddy svc channel list --org ORG_ID` shows them", id)
		}
		if err != nil {
			return nil, fmt.Errorf("deleting the channel: %w", err)
		}
		return deletedChannelAnswer{ID: id, Deleted: true}, nil
	})
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
