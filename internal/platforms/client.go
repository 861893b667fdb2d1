package platforms

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// DefaultTimeout bounds a call to a platform, from the search for a connection to the end of the answer.
const DefaultTimeout = 15 * time.Second

// Config is what the operator says about the platforms. The zero value speaks to the real ones, without an application
// at those that need one.
type Config struct {
	// Bases overrides the address of a type's interface: http or https, a host, perhaps a path. It may be private: only
	// the operator sets it. The defaults are those of [DefaultBase].
	Bases map[Type]string
	// AuthBases overrides where LocalChat and MarketB refresh tokens. A type with an entry in Bases but none here
	// refreshes there, too, so that a secret never goes to a vendor whom the operator has replaced.
	AuthBases map[Type]string

	LocalChat LocalChatApp
	MarketA   MarketAApp
	MarketB   MarketBApp

	// Transport carries the requests; nil means one of our own, whose idle connections [Client.Close] closes. It must
	// call httptrace hooks as [http.Transport] does: without them every failure counts as Unknown, none as Retry.
	Transport http.RoundTripper
	// Now is the clock of signatures and expiries; nil means time.Now.
	Now func() time.Time
	// Timeout bounds every call; 0 means DefaultTimeout.
	Timeout time.Duration
}

// LocalChatApp is the operator's application at the local chat platform. It is needed to refresh tokens.
type LocalChatApp struct{ AppID, AppSecret string }

// MarketAApp is the operator's application at marketplace A. It signs every request. PartnerID is a number.
type MarketAApp struct{ PartnerID, PartnerKey string }

// MarketBApp is the operator's application at marketplace B. It signs every request.
type MarketBApp struct{ AppKey, AppSecret string }

// defaultBases are the real platforms that the types resemble (notes/platforms.md §4). Version 25.0 of the social
// platform's interface is part of its address.
var defaultBases = map[Type]string{
	Bot:             "https://api.telegram.org",
	SocialMessenger: "https://graph.facebook.com/v25.0",
	PhotoDM:         "https://graph.instagram.com/v25.0",
	ChatApp:         "https://graph.facebook.com/v25.0",
	LocalChat:       "https://openapi.zalo.me",
	MarketA:         "https://partner.shopeemobile.com",
	MarketB:         "https://api.lazada.vn/rest",
}

var defaultAuthBases = map[Type]string{
	LocalChat: "https://oauth.zaloapp.com",
	MarketB:   "https://auth.lazada.com/rest",
}

// DefaultBase is the address that a type is reached at unless [Config.Bases] says otherwise; "" for the widget.
func DefaultBase(t Type) string { return defaultBases[t] }

// Check tells what is wrong with the configured addresses, everything at once; nil if nothing is. Addresses that are
// missing are no fault.
func (c Config) Check() error {
	var faults []error
	for _, from := range []struct {
		name  string
		bases map[Type]string
		types map[Type]string
	}{{"base", c.Bases, defaultBases}, {"auth base", c.AuthBases, defaultAuthBases}} {
		for _, t := range slices.Sorted(maps.Keys(from.bases)) {
			if from.types[t] == "" {
				faults = append(faults, fmt.Errorf("%s of %q: the type has none", from.name, string(t)))
			} else if _, err := parseBase(from.bases[t]); err != nil {
				faults = append(faults, fmt.Errorf("%s of %s: %w", from.name, t, err))
			}
		}
	}
	return errors.Join(faults...)
}

// parseBase reads an address without quoting it: it may hold a password by mistake.
func parseBase(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, errors.New("is not an address")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("may only have scheme, host, port and path")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

// Outgoing is one message to one customer: a part of a reply, within the limit of its platform (see [Split]).
type Outgoing struct {
	Type Type
	// ExternalID is the channel's: page, account, phone number or shop id.
	ExternalID string
	// Conversation and Address are those of the [Inbound] that is answered.
	Conversation, Address string
	Text                  string
	Credentials           Credentials
}

// Client speaks to all platforms. It is safe for concurrent use. It never follows redirects and never sends a request
// with a body twice.
type Client struct {
	config    Config
	bases     map[Type]*url.URL
	authBases map[Type]*url.URL
	transport http.RoundTripper
	own       *http.Transport // nil: the transport is the caller's
}

// NewClient makes a client. Addresses that [Config.Check] finds fault with make the calls of their type end Refused.
func NewClient(config Config) *Client {
	c := &Client{config: config, bases: map[Type]*url.URL{}, authBases: map[Type]*url.URL{}, transport: config.Transport}
	for t, base := range defaultBases {
		c.bases[t] = chosenBase(config.Bases[t], base)
	}
	for t, base := range defaultAuthBases {
		c.authBases[t] = chosenBase(config.AuthBases[t], config.Bases[t], base)
	}
	if c.transport == nil {
		c.own = newTransport()
		c.transport = c.own
	}
	if c.config.Now == nil {
		c.config.Now = time.Now
	}
	if c.config.Timeout <= 0 {
		c.config.Timeout = DefaultTimeout
	}
	return c
}

// chosenBase reads the first address that is given; nil if it is faulty.
func chosenBase(bases ...string) *url.URL {
	for _, base := range bases {
		if base != "" {
			u, err := parseBase(base)
			if err != nil {
				return nil
			}
			return u
		}
	}
	return nil
}

// Close closes the idle connections of the client's own transport.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Send sends one message and returns the platform's id of it. It takes no longer than the configured timeout. The error
// is a [*SendError].
func (c *Client) Send(ctx context.Context, out Outgoing) (platformMessageID string, err error) {
	id, failure := c.send(ctx, out)
	switch {
	case failure != nil:
		return "", failure
	case len(id) > MaxID || strings.IndexByte(id, 0) >= 0: // it can't be stored
		return "", unknown(errors.New("the platform took the message and gave it no usable id"))
	}
	return id, nil
}

func (c *Client) send(ctx context.Context, out Outgoing) (string, *SendError) {
	switch {
	case strings.TrimSpace(out.Text) == "":
		return "", refusedf("the message is empty")
	case out.Address == "" || len(out.Address) > MaxID:
		return "", refusedf("the customer's address is empty or too long")
	}
	switch out.Type {
	case Bot:
		return c.sendBot(ctx, out)
	case SocialMessenger:
		return c.sendMessenger(ctx, out)
	case PhotoDM:
		return c.sendPhotoDM(ctx, out)
	case ChatApp:
		return c.sendChatApp(ctx, out)
	case LocalChat:
		return c.sendLocalChat(ctx, out)
	case MarketA:
		return c.sendMarketA(ctx, out)
	case MarketB:
		return c.sendMarketB(ctx, out)
	case Widget:
	}
	return "", refusedf("channels of type %q have no platform to send to", string(out.Type))
}
