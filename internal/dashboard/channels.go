package dashboard

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const channelsPath = root + "/channels"

// The states of a channel.
const (
	channelActive  = "active"
	channelPending = "pending"
)

var channelStates = map[string]ui.Text{
	channelActive:  "Works",
	channelPending: "Waits for approval",
	"expiring":     "Works, and must be reconnected soon",
	"throttled":    "Works, and its platform has asked for a pause",
	"needs_reauth": "Must be reconnected",
}

// channelStateLabel returns in words how a channel is.
func channelStateLabel(c *api.ChannelObject) ui.Text {
	switch {
	case c.UnavailableReason != nil:
		return "Stands still: its platform is missing"
	case c.LostExternalID != nil:
		return "Lost its account to another organization"
	}
	return cmp.Or(channelStates[c.State], ui.Text(c.State))
}

// channelWorks reports whether messages come in and go out.
func channelWorks(c *api.ChannelObject) bool {
	return c.State == channelActive && c.UnavailableReason == nil
}

type channelRow struct {
	*api.ChannelObject

	// TypeLabel is the type in words.
	TypeLabel, AgentName string
}

type channelsData struct {
	Channels []channelRow
	Pager    ui.Pager
	// Types are the types that can be connected. Chosen is the type of the shown form, nil if no type is chosen.
	Types  []channelType
	Chosen *channelType
	Create form
}

func channelPages(types []channelType) []page {
	return []page{
		{
			Path: channelsPath, Template: "channels", Title: "Channels", Show: showChannels,
			Actions: []action{{
				Form: "channel-create", Done: "The channel was made. Follow the steps below to finish at the platform.",
				Secrets: secretNames(types), Do: createChannel,
			}},
		},
		{
			Path: channelsPath + "/{id}", Template: "channel", Title: "Channel", Section: channelsPath, Show: showChannel,
			Actions: []action{
				{Form: "channel-edit", Done: "The channel was changed.", Do: changeChannel},
				{Verb: "verify", Form: "channel-verify", Do: reveal(api.VerifyChannel, form{})},
				{
					Verb: "reconnect", Form: "channel-reconnect", Done: "The channel has its new credentials.", Secrets: secretNames(types),
					Do: reconnectChannel,
				},
				button("channel-delete", channelsPath, api.DeleteChannel, "The channel was deleted."),
			},
		},
	}
}

// agentOptions reads the assistants as options of a select; none is the label of the first.
func (req *pageRequest) agentOptions(none ui.Text) []option {
	return optionsOf(req, api.ListAgents, none, func(a api.AgentSummaryObject) option { return named(a.ID, a.Name) })
}

func showChannels(req *pageRequest) (any, error) {
	channels, agents := site.Read(req, api.ListChannels, req.Cursor()), req.agentOptions("Nobody yet")
	data := channelsData{Types: req.d.channelTypes, Pager: req.Pager(channels.NextCursor)}
	for i := range channels.Data {
		one := &channels.Data[i]
		of, _ := req.channelTypeOf(one.Type)
		data.Channels = append(data.Channels, channelRow{one, req.Say.T(ui.Text(of.Label)), labelOf(agents, text(one.AgentID))})
	}
	typed := req.Query("type")
	if req.Sent != nil {
		typed = req.Text("type")
	}
	if chosen, known := req.channelTypeOf(typed); known && req.session.Administers() {
		data.Chosen = &chosen
		data.Create = req.Form(chosen.createForm().Of(channelsPath, nil).With("agentId", agents))
	}
	return &data, nil
}

// labelOf returns the label of the option with a value. It is empty for an empty value and for unknown values.
func labelOf(options []option, value string) string {
	at := slices.IndexFunc(options, func(o option) bool { return o.Value == value })
	if value == "" || at < 0 {
		return ""
	}
	return string(options[at].Label)
}

func createChannel(req *pageRequest) (string, error) {
	of, known := req.channelTypeOf(req.Text("type"))
	if !known {
		return "", site.RefuseField("type", "Choose what to connect.")
	}
	in, err := of.createForm().Read(req.Sent, values{"type": string(of.Type)})
	if err != nil {
		return "", err
	}
	if of.ExternalID != "" {
		in["externalId"] = strings.TrimSpace(req.Text("externalId"))
	}
	if len(of.fields) > 0 {
		in["credentials"] = req.typedCredentials(&of)
	}
	created, err := site.Ask(req, api.CreateChannel, in)
	if err != nil {
		return "", err
	}
	return channelsPath + "/" + created.ID, nil
}

type channelData struct {
	Channel *api.ChannelObject
	Type    channelType
	// Steps are left to do at the platform.
	Steps     []string
	AgentName string
	// Snippet is the line of HTML that shows the widget on a page.
	Snippet string

	Verify, Reconnect, Edit, Delete form
}

func (d *channelData) PageTitle() string { return d.Channel.Name }

func showChannel(req *pageRequest) (any, error) {
	c, agents := site.Read(req, api.GetChannel, values{"id": req.ID()}), req.agentOptions("Nobody")
	data := channelData{Channel: c, AgentName: labelOf(agents, text(c.AgentID))}
	data.Type, _ = req.channelTypeOf(c.Type)
	for _, step := range data.Type.After {
		data.Steps = append(data.Steps, strings.ReplaceAll(req.Say.T(ui.Text(step)), "%u", text(c.WebhookURL)))
	}
	if c.Type == widgetTypeName {
		data.Snippet = fmt.Sprintf(`<script src="%s/widget/%s/widget.js" async></script>`, html.EscapeString(req.d.config.BaseURL), c.ID)
	}
	if req.session.Administers() {
		req.addChannelForms(&data, ui.Choices(agents, text(c.AgentID)))
	}
	return &data, nil
}

// addChannelForms makes the forms that the page shows, and no others, because the page shows the error of any other form at its top.
func (req *pageRequest) addChannelForms(data *channelData, agents []option) {
	c, here := data.Channel, req.Path()
	data.Edit = req.Form(data.Type.editForm().Of(here, c).With("agentId", agents).Versioned(c.UpdatedAt))
	data.Delete = req.button("channel-delete", "", "Delete the channel",
		req.Phrase("Delete the channel %s with all its conversations? What arrives for it afterwards is dropped.", c.Name))
	if c.State == channelPending && c.LostExternalID == nil {
		data.Verify = req.button("channel-verify", "", "Ask the platform again", "")
	}
	if len(data.Type.fields) > 0 && c.LostExternalID == nil {
		data.Reconnect = req.Form(data.Type.reconnectForm().Of(here+"/reconnect", nil))
	}
}

func changeChannel(req *pageRequest) (string, error) {
	before, err := site.Ask(req, api.GetChannel, values{"id": req.ID()})
	if err == nil {
		err = req.Sent.RefuseStale(before.UpdatedAt)
	}
	if err != nil {
		return "", err
	}
	of, _ := req.channelTypeOf(before.Type)
	return req.Path(), req.Submit(api.UpdateChannel, of.editForm(), values{"id": req.ID()})
}

func reconnectChannel(req *pageRequest) (string, error) {
	before, err := site.Ask(req, api.GetChannel, values{"id": req.ID()})
	if err != nil {
		return "", err
	}
	of, _ := req.channelTypeOf(before.Type)
	in := values{"id": req.ID(), "credentials": req.typedCredentials(&of)}
	return req.Path(), req.Run(api.UpdateChannel, in)
}

// widgetTypeName is the API's name of the widget, the type without a platform.
const widgetTypeName = "widget"

// channelType is a type of channel with the fields of its credentials.
type channelType struct {
	*platforms.ChannelType

	fields []field
	// proposed has the names of the credentials that the customer chooses.
	proposed map[string]bool
}

// credentialsPrefix precedes the names of credentials in forms and in errors of the API.
const credentialsPrefix = "credentials."

// channelTypeFrom makes the form of a channel type that a platform declares.
func channelTypeFrom(t *platforms.ChannelType) channelType {
	of := channelType{ChannelType: t, proposed: map[string]bool{}}
	for _, c := range t.Credentials {
		f := field{
			Name: credentialsPrefix + c.Name, Kind: ui.SecretField, Label: ui.Text(c.Label), Hint: ui.Text(c.Hint), Required: !c.Optional,
			MaxLength: c.MaxLength,
		}
		if c.Proposed {
			f.Kind, of.proposed[f.Name] = ui.TextField, true
		}
		of.fields = append(of.fields, f)
	}
	return of
}

// channelTypeOf finds a type by the API's name. ok is false for a type without a platform in this installation.
func (req *pageRequest) channelTypeOf(value string) (_ channelType, ok bool) {
	for _, one := range req.d.channelTypes {
		if string(one.Type) == value {
			return one, true
		}
	}
	label := req.Say.Tf("%s (not part of this installation)", value)
	return channelType{ChannelType: &platforms.ChannelType{Type: platforms.Type(value), Label: label}}, false
}

// secretNames returns the fields of credentials that no page shows again.
func secretNames(types []channelType) []string {
	var names []string
	for i := range types {
		for _, f := range types[i].fields {
			if f.Kind == ui.SecretField && !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	return names
}

var (
	channelName = field{Name: "name", Label: "Name", Hint: "For you and your colleagues."}

	channelAgent = field{
		Name: "agentId", Kind: ui.SelectField, Label: "Assistant", Hint: "It answers the customers. Without one, messages are kept and wait.",
	}

	widgetFields = []field{
		{
			Name: "origins", Label: "Allowed sites", Required: true, Rows: 4,
			Hint: "One address per line, without a path: https://shop.example.com, or https://*.example.com for all subdomains.",
		},
		{
			Name: "dailySpendMicros", Kind: ui.NumberField, Label: "Highest cost of its answers per day, in credits", Micros: true,
			Hint: "Anybody can visit your site; this bounds what visitors can cost you. Empty: a tenth of the wallet.",
		},
		{
			Name: "requestsPerMinute", Label: "Messages each minute",
			Hint: "Of all visitors together, 1 to 6,000. A new widget has 30.",
		},
	}
)

var channelEditForm = ui.FormOf(
	api.UpdateChannel, form{ID: "channel-edit", Submit: "Save"}, append([]field{channelName, channelAgent, {
		Name: "answerMode", Label: "Answers are sent", Options: []option{
			{Value: "automatic", Label: "by the assistant"},
			{Value: "draft", Label: "by one of you, as the assistant proposes them"},
		},
		Hint: "Some platforms forbid answers without a person. What waits for you already stays with you.",
	}, {
		Name: "maxAgeMinutes", Label: "Oldest message that is still answered, in minutes",
		Hint: "After an outage, older ones wait for you instead of being answered late. 1 to 10,080. Empty: any age.",
	}, {
		Name: "openingHours", Label: "Opening hours", Rows: 3,
		Hint: "One line for days and a time: mon-fri 08:00-17:30. What customers write at other times is answered when you open. " +
			"Empty: answers at any time.",
	}, {
		Name: "timeZone", Label: "Time zone of the opening hours", Hint: "Such as Asia/Ho_Chi_Minh or Europe/Berlin.",
	}, {
		Name: "closedNotice", Kind: ui.AreaField, Label: "Answer while you are closed", Rows: 3,
		Hint: "Sent once to each customer who writes while you are closed, and costs nothing. Empty: nothing is sent.",
	}, {
		Name: "mediaNotice", Kind: ui.AreaField, Label: "Answer to pictures, voices and files without a text", Rows: 3,
		Hint: "Sent at most once in 15 minutes to each customer, and costs nothing. Empty: such messages wait for one of you.",
	}}, widgetFields...)...,
)

// editForm returns the form of the settings that channels of the type have.
func (t *channelType) editForm() form {
	if t.Type == widgetTypeName {
		return channelEditForm
	}
	f := channelEditForm
	for _, one := range widgetFields {
		f = f.Without(one.Name)
	}
	return f
}

// createForm returns the form of a new channel of the type, with a proposal for a secret that the customer chooses.
func (t *channelType) createForm() form {
	table := []field{channelName, channelAgent}
	if t.ExternalID != "" {
		table = append(table, field{Name: "externalId", Label: ui.Text(t.ExternalID), Required: true, Hint: ui.Text(t.ExternalIDHint)})
	}
	f := form{ID: "channel-create", Submit: "Connect the channel", Fields: []field{{Name: "type", Kind: ui.HiddenField, Value: string(t.Type)}}}
	f = ui.FormOf(api.CreateChannel, f, table...)
	for _, one := range t.fields {
		if t.proposed[one.Name] {
			one.Value = rand.Text()
		}
		f.Fields = append(f.Fields, one)
	}
	if t.Type == widgetTypeName {
		f = ui.FormOf(api.CreateChannel, f, widgetFields...)
	}
	return f
}

// reconnectForm returns the form of credentials that replace others. It proposes no secret, because deliveries are refused
// when the secret isn't the registered one.
func (t *channelType) reconnectForm() form {
	f := form{ID: "channel-reconnect", Submit: "Save the new credentials", Fields: slices.Clone(t.fields)}
	for i := range f.Fields {
		if t.proposed[f.Fields[i].Name] {
			f.Fields[i].Hint = "The one that is registered at the platform. If you change it, register it there again."
		}
	}
	return f
}

// typedCredentials returns the credentials that were entered, without the white space that comes with copying.
func (req *pageRequest) typedCredentials(of *channelType) object {
	credentials := object{}
	for i := range of.fields {
		f := &of.fields[i]
		if typed := strings.TrimSpace(req.Text(f.Name)); typed != "" || f.Required {
			credentials[strings.TrimPrefix(f.Name, credentialsPrefix)] = typed
		}
	}
	return credentials
}
