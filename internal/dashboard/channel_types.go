package dashboard

import (
	"crypto/rand"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// widgetTypeName is the API's name of the widget, the type without a platform.
const widgetTypeName = "widget"

// channelType describes a type of channel for people (docs/channels.md).
type channelType struct {
	Value, Label string
	// Like names services that the neutral label stands for.
	Like string
	// External is the type's own name of its external id, empty without one. ExternalHint says where to find the id.
	External, ExternalHint string
	// Credentials are the fields of credentials.
	Credentials []field
	// proposed has the names of the credentials that the customer chooses.
	proposed map[string]bool
	// Before are the steps before the channel is made, After the steps with its webhook address, which replaces %u in them.
	Before, After []string
	// Templates: the platform has templates, which may be sent when it takes no free text.
	Templates bool
	// Files are the kinds of files that the platform takes.
	Files []string
	// Window explains for how long the platform accepts free text.
	Window string
}

// Title returns the label with the services that it stands for.
func (t *channelType) Title() string {
	if t.Like == "" {
		return t.Label
	}
	return t.Label + " (such as " + t.Like + ")"
}

// credentialsPrefix precedes the names of credentials in forms and in errors of the API.
const credentialsPrefix = "credentials."

// channelTypeFrom makes the form of a channel type that a platform declares.
func channelTypeFrom(t *platforms.ChannelType) channelType {
	of := channelType{
		Value: string(t.Type), Label: t.Label, Like: t.Like, External: t.ExternalID, ExternalHint: t.ExternalIDHint,
		Before: t.Before, After: t.After, Window: t.WindowHelp, Templates: t.AfterWindow == platforms.TemplateRequired,
		Files: t.Files, proposed: map[string]bool{},
	}
	for _, c := range t.Credentials {
		f := field{
			Name: credentialsPrefix + c.Name, Kind: secretField, Label: c.Label, Required: !c.Optional, Hint: c.Hint, MaxLength: c.MaxLength,
		}
		if c.Proposed {
			f.Kind, of.proposed[f.Name] = textField, true
		}
		of.Credentials = append(of.Credentials, f)
	}
	return of
}

// channelTypeOf finds a type by the API's name. ok is false for a type whose platform is not part of this installation.
func (d *Dashboard) channelTypeOf(value string) (_ channelType, ok bool) {
	for _, one := range d.channelTypes {
		if one.Value == value {
			return one, true
		}
	}
	return channelType{Value: value, Label: value + " (not part of this installation)"}, false
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

var (
	channelName = field{Name: "name", Label: "Name", Hint: "For you and your colleagues."}

	channelAgent = field{
		Name: "agentId", Kind: selectField, Label: "Assistant", Hint: "It answers the customers. Without one, messages are kept and wait.",
	}

	widgetFields = []field{
		{
			Name: "origins", Label: "Allowed sites", Required: true, Rows: 4,
			Hint: "One address per line, without a path: https://shop.example.com, or https://*.example.com for all subdomains.",
		},
		{
			Name: "dailySpendMicros", Kind: numberField, Label: "Highest cost of its answers per day, in credits", Micros: true,
			Hint: "Anybody can visit your site; this bounds what visitors can cost you. Empty: a tenth of the wallet.",
		},
		{
			Name: "requestsPerMinute", Label: "Messages each minute",
			Hint: "Of all visitors together, 1 to 6,000. A new widget has 30.",
		},
	}
)

var channelEditForm = formOf(
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
		Name: "closedNotice", Kind: areaField, Label: "Answer while you are closed", Rows: 3,
		Hint: "Sent once to each customer who writes while you are closed, and costs nothing. Empty: nothing is sent.",
	}, {
		Name: "mediaNotice", Kind: areaField, Label: "Answer to pictures, voices and files without a text", Rows: 3,
		Hint: "Sent at most once in 15 minutes to each customer, and costs nothing. Empty: such messages wait for one of you.",
	}}, widgetFields...)...,
)

// editForm returns the form of the settings that channels of the type have.
func (t *channelType) editForm() form {
	if t.Value == widgetTypeName {
		return channelEditForm
	}
	f := channelEditForm
	for _, one := range widgetFields {
		f = f.without(one.Name)
	}
	return f
}

// createForm returns the form of a new channel of the type, with a proposal for a secret that the customer chooses.
func (t *channelType) createForm() form {
	table := []field{channelName, channelAgent}
	if t.External != "" {
		table = append(table, field{Name: "externalId", Label: t.External, Required: true, Hint: t.ExternalHint})
	}
	f := form{ID: "channel-create", Submit: "Connect the channel", Fields: []field{{Name: "type", Kind: hiddenField, Value: t.Value}}}
	f = formOf(api.CreateChannel, f, table...)
	for _, one := range t.Credentials {
		if t.proposed[one.Name] {
			one.Value = rand.Text()
		}
		f.Fields = append(f.Fields, one)
	}
	if t.Value == widgetTypeName {
		f = formOf(api.CreateChannel, f, widgetFields...)
	}
	return f
}

// reconnectForm returns the form of credentials that replace others. It proposes no secret, because deliveries are refused
// when the secret isn't the registered one.
func (t *channelType) reconnectForm() form {
	f := form{ID: "channel-reconnect", Submit: "Save the new credentials", Fields: slices.Clone(t.Credentials)}
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
	for i := range of.Credentials {
		f := &of.Credentials[i]
		if typed := strings.TrimSpace(req.text(f.Name)); typed != "" || f.Required {
			credentials[strings.TrimPrefix(f.Name, credentialsPrefix)] = typed
		}
	}
	return credentials
}

// microsOf parses an amount as [credits] formats it, or written otherwise, in micros; ok is false for another text.
func microsOf(amount string) (micros string, ok bool) {
	const most, places = 12, 6 // digits before and behind the point
	whole, fraction, _ := strings.Cut(amount, ".")
	if whole == "" || len(whole) > most || len(fraction) > places {
		return "", false
	}
	digits := whole + fraction + strings.Repeat("0", places-len(fraction))
	if strings.Trim(digits, "0123456789") != "" {
		return "", false
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	return strconv.FormatInt(number, 10), err == nil
}

// widgetSnippet returns the line of HTML that shows the widget on a page.
func widgetSnippet(baseURL, channelID string) string {
	return fmt.Sprintf(`<script src="%s/widget/%s/widget.js" async></script>`, html.EscapeString(baseURL), channelID)
}
