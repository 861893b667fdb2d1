package dashboard

import (
	"strings"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// channelType describes a type of channel for people (docs/channels.md).
type channelType struct {
	Value, Label string
	// Like names services that the neutral label stands for.
	Like string
	// External is the type's own name of its external id, "" without one; ExternalHint says where to find the id.
	External, ExternalHint string
	// Credentials are the fields of credentials.
	Credentials []field
	// proposed has the names of the credentials that the customer chooses.
	proposed map[string]bool
	// Before are the steps before the channel is made, After the steps with its webhook address, which replaces %u in them.
	Before, After []string
	// Templates: the platform has templates, which may be sent when it takes no free text.
	Templates bool
	// Files are the kinds of files that the platform takes, none for nil.
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

// after returns the steps after the channel was made, with its address.
func (t *channelType) after(webhookURL string) []string {
	steps := make([]string, len(t.After))
	for i, step := range t.After {
		steps[i] = strings.ReplaceAll(step, "%u", webhookURL)
	}
	return steps
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

// channelTypeOf finds a type by the API's name; ok is false for one whose platform is not part of this installation.
func (d *Dashboard) channelTypeOf(value string) (channelType, bool) {
	for _, one := range d.channelTypes {
		if one.Value == value {
			return one, true
		}
	}
	return channelType{Value: value, Label: value + " (not part of this installation)"}, false
}
