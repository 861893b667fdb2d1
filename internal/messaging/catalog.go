// Package messaging is the product's side of package platforms: the platforms of a build by name and by channel type, and the
// calls of adapters with our deadlines, with panics contained, and with results checked. The receiver, the worker, the
// API and the command line know platforms only through it.
//
// It doesn't store, queue, route, seal or retry, and adds no platform but the web widget. Its channels have no platform: visitors fetch the
// stored messages.
package messaging

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/markup"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Widget is the type of the service's own web widget.
const Widget platforms.Type = "widget"

// ChannelType is a channel type with its platform.
type ChannelType struct {
	*platforms.ChannelType

	// Platform is nil only for [Widget].
	Platform *platforms.Description
}

// Routed reports whether deliveries find channels of the type by external id.
func (t ChannelType) Routed() bool { return t.Platform != nil && !t.Platform.ChannelWebhooks }

// Catalog has the declarations of the platforms of a build. It is immutable.
type Catalog struct {
	platforms []*platforms.Description
	types     []ChannelType
	byType    map[platforms.Type]ChannelType
}

// NewCatalog returns the catalog of the drivers' platforms. The error names every fault of a description; a platform with a
// fault, or with a name or channel type that another one has, is left out.
func NewCatalog(drivers []platforms.Driver) (*Catalog, error) {
	c := &Catalog{byType: map[platforms.Type]ChannelType{}}
	var faults []error
	for _, driver := range drivers {
		d, err := Describe(driver)
		switch {
		case err != nil:
			faults = append(faults, err)
			continue
		case slices.ContainsFunc(c.platforms, func(other *platforms.Description) bool { return other.Name == d.Name }):
			faults = append(faults, fmt.Errorf("platform %s: the name is taken", d.Name))
			continue
		}
		c.platforms = append(c.platforms, d)
		for i := range d.Channels {
			faults = append(faults, c.add(ChannelType{&d.Channels[i], d}))
		}
	}
	faults = append(faults, c.add(ChannelType{ChannelType: widget()}))
	return c, errors.Join(faults...)
}

// Describe returns the description of a driver's platform. A panic of the driver and a description that breaks the contract are
// errors; the value of the panic is not in the error.
func Describe(driver platforms.Driver) (d *platforms.Description, err error) {
	defer func() {
		if recover() != nil {
			d, err = nil, errors.New("the description of a platform panicked")
		}
	}()
	if d = driver.Describe(); d == nil {
		return nil, errors.New("a platform has no description")
	}
	if err := d.Check(); err != nil {
		return nil, fmt.Errorf("platform %s: %w", d.Name, err)
	}
	return d, nil
}

func (c *Catalog) add(t ChannelType) error {
	if _, taken := c.byType[t.Type]; taken {
		return fmt.Errorf("channel type %q: the name is taken", string(t.Type))
	}
	c.types = append(c.types, t)
	c.byType[t.Type] = t
	return nil
}

// Platforms are the descriptions of all platforms.
func (c *Catalog) Platforms() []*platforms.Description { return c.platforms }

// Types are all channel types, the widget last.
func (c *Catalog) Types() []ChannelType { return c.types }

// Declared are the declarations of all channel types, the widget last.
func (c *Catalog) Declared() []*platforms.ChannelType {
	declared := make([]*platforms.ChannelType, len(c.types))
	for i, t := range c.types {
		declared[i] = t.ChannelType
	}
	return declared
}

// TypeNames are the names of all channel types, the widget last.
func (c *Catalog) TypeNames() []string {
	names := make([]string, len(c.types))
	for i, t := range c.types {
		names[i] = string(t.Type)
	}
	return names
}

// Find returns the channel type of a stored or requested name; ok is false if no platform of this build has it.
func (c *Catalog) Find(name string) (t ChannelType, ok bool) {
	t, ok = c.byType[platforms.Type(name)]
	return t, ok
}

// Split cuts an assistant's text into messages, whole for a type without a limit. Unless plain is set, it first turns the text's Markdown
// into the type's own marks. A text becomes up to [maxParts] messages, or as many as the platform accepts in a row. The rest of the text is
// left out, and the last message then ends with [leftOut].
func (c *Catalog) Split(channelType, text string, plain bool) []string {
	t, ok := c.Find(channelType)
	if !ok {
		return platforms.Split(platforms.Limit{}, text)
	}
	if !plain {
		text = markup.Render(text, t.Markup)
	}
	most := maxParts
	if t.MostParts > 0 {
		most = min(most, t.MostParts)
	}
	text = strings.TrimSpace(text)
	shown := text
	if room := most * t.Limit.Most * utf8.UTFMax; room > 0 && len(text) > room { // cutting needs many bytes of memory for each character
		shown = text[:room]
	}
	parts := platforms.Split(t.Limit, shown)
	if len(parts) <= most && len(shown) == len(text) {
		return parts
	}
	parts = parts[:min(most, len(parts))]
	last, shorter := &parts[len(parts)-1], t.Limit
	if shorter.Most -= t.Limit.Size(leftOut); shorter.Most > 0 {
		*last = platforms.Split(shorter, *last)[0] + leftOut
	}
	return parts
}

// maxParts bounds the messages that one answer becomes. Whoever can make a model repeat a text could otherwise have the channel send
// thousands of messages in the business's name.
const maxParts = 20

// leftOut ends a text that was cut.
const leftOut = " …"

// TooMany reports whether a text has more parts than the platform accepts in a row.
func (t ChannelType) TooMany(parts []string) bool { return t.MostParts > 0 && len(parts) > t.MostParts }

// WebhookPath is the path of a platform's webhook; with [platforms.Description.ChannelWebhooks] it ends with a slash and the
// channel's id follows.
func WebhookPath(d *platforms.Description) string {
	path := "/webhooks/" + strings.ReplaceAll(d.Name, "_", "-")
	if d.ChannelWebhooks {
		path += "/"
	}
	return path
}

// WebhookURL is the address that is entered at a channel's platform: the channel's own or the platform's common one. It is empty for a type
// without a webhook. baseURL has no trailing slash.
func (c *Catalog) WebhookURL(baseURL, channelType, channelID string) string {
	t, ok := c.Find(channelType)
	switch {
	case !ok || t.Platform == nil:
		return ""
	case t.Platform.ChannelWebhooks:
		return baseURL + WebhookPath(t.Platform) + channelID
	}
	return baseURL + WebhookPath(t.Platform)
}

func widget() *platforms.ChannelType {
	return &platforms.ChannelType{
		Type: Widget, Label: "Web widget",
		Markup:     platforms.Markup{Markdown: true}, // visitors see the answer as it is written
		Before:     []string{"Choose the sites on which the chat may appear. It is refused everywhere else."},
		After:      []string{"Paste the snippet into your pages, before </body>. A data-title in it names the chat."},
		WindowHelp: "An answer is shown as long as the visitor's page is open, and when they come back.",
	}
}

// Code is the public error code of a class of failures, "" if there is none of its own.
func Code(class platforms.Class) string { return codesOf[class] }

var codesOf = map[platforms.Class]string{
	platforms.NeedsReauth: codes.NeedsReauth, platforms.WindowExpired: codes.ServiceWindowExpired,
	platforms.TemplateRequired: codes.TemplateRequired,
}

// FailureCode is the code of a message that was not delivered for a reason of the class, "" if the class says nothing.
func FailureCode(class platforms.Class) string { return cmp.Or(failureCodes[class], codesOf[class]) }

var failureCodes = map[platforms.Class]string{
	platforms.Retry: codes.SendFailed, platforms.Refused: codes.SendRefused, platforms.CustomerBlocked: codes.CustomerBlocked,
	platforms.TemplatePaused: codes.TemplatePaused, platforms.TemplateRefused: codes.TemplateRefused,
}

// PersonalWindow is how long after the customer's last message a person may write. 0 means forever.
func (t ChannelType) PersonalWindow() time.Duration { return max(t.Window, t.PersonWindow) }

// WindowClass is the class of a message that comes after the type's service window.
func (t ChannelType) WindowClass() platforms.Class {
	return cmp.Or(t.AfterWindow, platforms.WindowExpired)
}

// OpenCredentials reads the stored form of a channel's credentials. It returns empty credentials if sealed is nil,
// because the channel has none then.
func OpenCredentials(ring *vault.Ring, orgID, channelID string, sealed []byte) (platforms.Credentials, error) {
	credentials := platforms.Credentials{}
	if sealed == nil {
		return credentials, nil
	}
	plain, err := ring.Open(sealed, vault.ChannelCredentials(orgID, channelID))
	if err != nil {
		return nil, fmt.Errorf("opening the credentials of channel %s: %w", channelID, err)
	}
	if json.Unmarshal(plain, &credentials) != nil { // the error would quote them
		return nil, fmt.Errorf("the credentials of channel %s are not in the form they were sealed in", channelID)
	}
	return credentials, nil
}
