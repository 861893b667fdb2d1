package dashboard

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
)

const channelsPath = root + "/channels"

type channel struct {
	ID         string `json:"id"`
	Type       string `json:"type"`
	Name       string `json:"name"`
	ExternalID string `json:"externalId"`
	// LostExternalID is the external id that was confirmed for another organization.
	LostExternalID string `json:"lostExternalId"`
	AgentID        string `json:"agentId"`
	State          string `json:"state"`
	// UnavailableReason is set while the platform is not part of the installation.
	UnavailableReason string `json:"unavailableReason"`
	ThrottledUntil    string `json:"throttledUntil"`
	WebhookURL        string `json:"webhookUrl"`
	UpdatedAt         string `json:"updatedAt"`

	answerRules
	widgetSettings
}

// The states of a channel.
const (
	channelActive      = "active"
	channelPending     = "pending"
	channelExpiring    = "expiring"
	channelThrottled   = "throttled"
	channelNeedsReauth = "needs_reauth"
)

func (c *channel) StateLabel() string {
	switch {
	case c.UnavailableReason != "":
		return "Stands still: its platform is missing"
	case c.LostExternalID != "":
		return "Lost its account to another organization"
	}
	return cmp.Or(channelStates[c.State], c.State)
}

var channelStates = map[string]string{
	channelActive:      "Works",
	channelPending:     "Waits for approval",
	channelExpiring:    "Works, and must be reconnected soon",
	channelThrottled:   "Works, and its platform has asked for a pause",
	channelNeedsReauth: "Must be reconnected",
}

// Works reports whether messages come in and go out.
func (c *channel) Works() bool { return c.State == channelActive && c.UnavailableReason == "" }

type channelRow struct {
	channel

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
		channelPage(secretNames(types)),
	}
}

// secretNames returns the fields of credentials that no page shows again.
func secretNames(types []channelType) []string {
	var names []string
	for i := range types {
		for _, f := range types[i].Credentials {
			if f.Kind == secretField && !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	return names
}

func showChannels(req *pageRequest) (any, error) {
	data := channelsData{Types: req.d.channelTypes}
	var channels list[channel]
	if err := req.get("/channels", req.cursor(), &channels); err != nil {
		return nil, err
	}
	agents, err := req.namedOptions("/agents", "Nobody yet", "")
	if err != nil {
		return nil, err
	}
	for _, one := range channels.Data {
		of, _ := req.d.channelTypeOf(one.Type)
		data.Channels = append(data.Channels, channelRow{channel: one, TypeLabel: of.Label, AgentName: labelOf(agents, one.AgentID)})
	}
	data.Pager = req.pager(channels.NextCursor)
	chosen, known := req.d.channelTypeOf(req.chosenType())
	if known && req.session.Administers() {
		data.Chosen = &chosen
		data.Create = req.form(chosen.createForm(agents))
	}
	return &data, nil
}

// chosenType returns the type whose form is shown: the type of the form that was sent, else the type in the address.
func (req *pageRequest) chosenType() string {
	if req.action != nil {
		return req.text("type")
	}
	return req.query("type")
}

// labelOf returns the label of the option with a value, "" for the value "" and for unknown values.
func labelOf(options []option, value string) string {
	at := slices.IndexFunc(options, func(o option) bool { return o.Value == value })
	if value == "" || at < 0 {
		return ""
	}
	return options[at].Label
}

func (t *channelType) createForm(agents []option) form {
	fields := []field{
		{Name: "type", Kind: hiddenField, Value: t.Value},
		channelNameField(""),
		agentField(agents),
	}
	if t.External != "" {
		fields = append(fields, field{
			Name: "externalId", Kind: textField, Label: t.External, Required: true, MaxLength: 512, Hint: t.ExternalHint,
		})
	}
	fields = append(fields, t.firstCredentials()...)
	if t.Value == widgetTypeName {
		fields = append(fields, (&widgetSettings{}).fields()...)
	}
	return form{ID: "channel-create", Action: channelsPath, Submit: "Connect the channel", Fields: fields}
}

// firstCredentials returns the fields of a new channel's credentials, with a proposal for a secret that the customer chooses.
func (t *channelType) firstCredentials() []field {
	fields := slices.Clone(t.Credentials)
	for i := range fields {
		if t.proposed[fields[i].Name] {
			fields[i].Value = rand.Text()
		}
	}
	return fields
}

// newCredentials returns the fields of credentials that replace others. It proposes no secret, because deliveries are refused
// when the secret isn't the registered one.
func (t *channelType) newCredentials() []field {
	fields := slices.Clone(t.Credentials)
	for i := range fields {
		if t.proposed[fields[i].Name] {
			fields[i].Hint = "The one that is registered at the platform. If you change it, register it there again."
		}
	}
	return fields
}

func channelNameField(value string) field {
	return field{
		Name: "name", Kind: textField, Label: "Name", Value: value, Required: true, MaxLength: 100,
		Hint: "For you and your colleagues.",
	}
}

func agentField(agents []option) field {
	return field{
		Name: "agentId", Kind: selectField, Label: "Assistant", Options: agents,
		Hint: "It answers the customers. Without one, messages are kept and wait.",
	}
}

func createChannel(req *pageRequest) (outcome, error) {
	of, known := req.d.channelTypeOf(req.text("type"))
	if !known {
		return outcome{}, refuseField("type", "Choose what to connect.")
	}
	body := object{"type": of.Value, "name": req.text("name")}
	if len(of.Credentials) > 0 {
		body["credentials"] = req.typedCredentials(&of)
	}
	if agentID := req.text("agentId"); agentID != "" {
		body["agentId"] = agentID
	}
	if of.External != "" {
		body["externalId"] = strings.TrimSpace(req.text("externalId"))
	}
	if of.Value == widgetTypeName {
		if err := req.addWidgetSettings(body); err != nil {
			return outcome{}, err
		}
	}
	var created channel
	err := req.send(http.MethodPost, "/channels", body, &created)
	return goTo(channelsPath + "/" + created.ID), err
}

// typedCredentials returns the credentials that were entered, without the white space that comes with copying.
func (req *pageRequest) typedCredentials(of *channelType) object {
	credentials := object{}
	for i := range of.Credentials {
		f := &of.Credentials[i]
		if typed := strings.TrimSpace(req.text(f.Name)); typed != "" || f.Required {
			credentials[strings.TrimPrefix(f.Name, credentialsPrefix)] = typed
		}
	}
	return credentials
}
