package dashboard

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/api"
)

const channelsPath = root + "/channels"

// The states of a channel.
const (
	channelActive  = "active"
	channelPending = "pending"
)

var channelStates = map[string]string{
	channelActive:  "Works",
	channelPending: "Waits for approval",
	"expiring":     "Works, and must be reconnected soon",
	"throttled":    "Works, and its platform has asked for a pause",
	"needs_reauth": "Must be reconnected",
}

// channelStateLabel returns in words how a channel is.
func channelStateLabel(c *api.ChannelObject) string {
	switch {
	case c.UnavailableReason != nil:
		return "Stands still: its platform is missing"
	case c.LostExternalID != nil:
		return "Lost its account to another organization"
	}
	return cmp.Or(channelStates[c.State], c.State)
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
	Pager    pager
	// Types are the types that can be connected. Chosen is the type whose form is shown, nil while none is chosen.
	Types  []channelType
	Chosen *channelType
	Create form
}

func channelPages(types []channelType) []page {
	return []page{
		{
			path: channelsPath, template: "channels", title: "Channels",
			show: showChannels,
			actions: []action{{
				form: "channel-create", done: "The channel was made. Follow the steps below to finish at the platform.",
				secrets: secretNames(types), do: createChannel,
			}},
		},
		{
			path: channelsPath + "/{id}", template: "channel", title: "Channel", section: channelsPath,
			show: showChannel,
			actions: []action{
				{form: "channel-edit", done: "The channel was changed.", do: changeChannel},
				{verb: "verify", form: "channel-verify", do: func(req *pageRequest) (outcome, error) {
					after, err := ask(req, api.VerifyChannel, values{"id": req.id()})
					return reveal(after), err
				}},
				{
					verb: "reconnect", form: "channel-reconnect", done: "The channel has its new credentials.", secrets: secretNames(types),
					do: reconnectChannel,
				},
				{verb: "delete", form: "channel-delete", done: "The channel was deleted.", do: func(req *pageRequest) (outcome, error) {
					return goTo(channelsPath), req.run(api.DeleteChannel, values{"id": req.id()})
				}},
			},
		},
	}
}

// agentOptions returns the assistants as options of a select; none is the label of the first.
func (req *pageRequest) agentOptions(none string) ([]option, error) {
	return optionsOf(req, api.ListAgents, none, func(a api.AgentSummaryObject) option { return option{Value: a.ID, Label: a.Name} })
}

func showChannels(req *pageRequest) (any, error) {
	data := channelsData{Types: req.d.channelTypes}
	channels, err := ask(req, api.ListChannels, req.cursor())
	if err != nil {
		return nil, err
	}
	agents, err := req.agentOptions("Nobody yet")
	if err != nil {
		return nil, err
	}
	for i := range channels.Data {
		one := &channels.Data[i]
		of, _ := req.d.channelTypeOf(one.Type)
		data.Channels = append(data.Channels, channelRow{one, of.Label, labelOf(agents, text(one.AgentID))})
	}
	data.Pager = req.pager(channels.NextCursor)
	typed := req.query("type")
	if req.action != nil {
		typed = req.text("type")
	}
	if chosen, known := req.d.channelTypeOf(typed); known && req.session.Administers() {
		data.Chosen = &chosen
		data.Create = req.form(chosen.createForm().of(channelsPath, nil).with("agentId", agents))
	}
	return &data, nil
}

// labelOf returns the label of the option with a value. It is empty for an empty value and for unknown values.
func labelOf(options []option, value string) string {
	at := slices.IndexFunc(options, func(o option) bool { return o.Value == value })
	if value == "" || at < 0 {
		return ""
	}
	return options[at].Label
}

func createChannel(req *pageRequest) (outcome, error) {
	of, known := req.d.channelTypeOf(req.text("type"))
	if !known {
		return outcome{}, refuseField("type", "Choose what to connect.")
	}
	in, err := of.createForm().read(req, values{"type": of.Value})
	if err != nil {
		return outcome{}, err
	}
	if of.External != "" {
		in["externalId"] = strings.TrimSpace(req.text("externalId"))
	}
	if len(of.Credentials) > 0 {
		in["credentials"] = req.typedCredentials(&of)
	}
	created, err := ask(req, api.CreateChannel, in)
	if err != nil {
		return outcome{}, err
	}
	return goTo(channelsPath + "/" + created.ID), nil
}

type channelData struct {
	Channel *api.ChannelObject
	Type    channelType
	// Steps are left to do at the platform.
	Steps     []string
	AgentName string
	// Snippet is the line of HTML that shows the widget on a page.
	Snippet string

	Verify    form
	Reconnect form
	Edit      form
	Delete    form
}

func (d *channelData) PageTitle() string { return d.Channel.Name }

func showChannel(req *pageRequest) (any, error) {
	c, err := ask(req, api.GetChannel, values{"id": req.id()})
	if err != nil {
		return nil, err
	}
	agents, err := req.agentOptions("Nobody")
	if err != nil {
		return nil, err
	}
	data := channelData{Channel: c, AgentName: labelOf(agents, text(c.AgentID))}
	data.Type, _ = req.d.channelTypeOf(c.Type)
	for _, step := range data.Type.After {
		data.Steps = append(data.Steps, strings.ReplaceAll(step, "%u", text(c.WebhookURL)))
	}
	if c.Type == widgetTypeName {
		data.Snippet = widgetSnippet(req.d.config.BaseURL, c.ID)
	}
	if req.session.Administers() {
		req.addChannelForms(&data, choices(agents, text(c.AgentID)))
	}
	return &data, nil
}

// addChannelForms makes the forms that the page shows, and no others, because the error of a form that isn't shown stands at the top of
// the page.
func (req *pageRequest) addChannelForms(data *channelData, agents []option) {
	c := data.Channel
	here := channelsPath + "/" + c.ID
	data.Edit = req.form(data.Type.editForm().of(here, c).with("agentId", agents).versioned(c.UpdatedAt))
	data.Delete = req.form(button("channel-delete", here+"/delete", "Delete the channel",
		"Delete the channel "+c.Name+" with all its conversations? What arrives for it afterwards is dropped."))
	if c.State == channelPending && c.LostExternalID == nil {
		data.Verify = req.form(button("channel-verify", here+"/verify", "Ask the platform again", ""))
	}
	if len(data.Type.Credentials) > 0 && c.LostExternalID == nil {
		data.Reconnect = req.form(data.Type.reconnectForm().of(here+"/reconnect", nil))
	}
}

func changeChannel(req *pageRequest) (outcome, error) {
	before, err := ask(req, api.GetChannel, values{"id": req.id()})
	if err == nil {
		err = req.refuseStale(before.UpdatedAt)
	}
	if err != nil {
		return outcome{}, err
	}
	of, _ := req.d.channelTypeOf(before.Type)
	return goTo(channelsPath + "/" + req.id()), req.submit(api.UpdateChannel, of.editForm(), values{"id": req.id()})
}

func reconnectChannel(req *pageRequest) (outcome, error) {
	before, err := ask(req, api.GetChannel, values{"id": req.id()})
	if err != nil {
		return outcome{}, err
	}
	of, _ := req.d.channelTypeOf(before.Type)
	in := values{"id": req.id(), "credentials": req.typedCredentials(&of)}
	return goTo(channelsPath + "/" + req.id()), req.run(api.UpdateChannel, in)
}
