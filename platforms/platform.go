// Package platforms is the contract between caddy-svc and its adapters to messaging platforms: what an adapter declares
// ([Description]), what it does ([Platform]), how its failures are classified ([Error]), and the helpers that adapters
// share. It contains no adapter and nothing of Caddy. It is v0: vendors and production traffic will widen it.
//
// # Adapters
//
// An adapter is a package with a [Driver]. The driver describes the platform without doing anything: its channel types,
// the options of its block in the configuration, the fields of its credentials, its limits and its instructions for
// people. Forms, API, command line and documentation are made from that description. [Driver.New] makes the [Platform],
// which verifies and reads deliveries, sends replies and identifies accounts. What only some platforms can do are small
// interfaces of their own: [SignedDeliveries] or [ChannelSecrets] (every platform has exactly one of the two),
// [ChannelSigned], [Refresher], [Templater], [MediaSource], [Handshaker],
// [option.Checker]. A Caddy module of the namespace svc.platforms makes an adapter
// available; it needs nothing but the driver.
//
// The packages platforms/bot, platforms/social, platforms/localchat, platforms/marketa and platforms/marketb are the
// built-in adapters. Package platforms/platformtest checks any adapter against this contract.
//
// # What an adapter must hold
//
//   - Extract never panics and never fails for a JSON object: items of an unknown form are left out and don't affect
//     others. A refused delivery is repeated by most platforms for hours.
//   - Only what one customer wrote in a private conversation is [Text]. Bots, groups, echoes, receipts and edits never
//     are; otherwise an assistant could answer itself.
//   - One delivery may contain messages for several tenants. Each [Inbound] carries the external id of its own entry.
//   - Ids are bounded and never shortened or repaired. All strings are valid UTF-8 without NUL; texts and names are bounded.
//   - An [Error] contains no token, no text of a customer and no text of the platform.
//   - Send makes at most one request that can deliver the message. If no usable answer arrives, the failure is [Unknown].
//   - Calls end when their context does. An adapter keeps no state but idle connections.
//
// # What the product does
//
// It routes, queues, stores, retries, seals credentials (an adapter receives them opened), bounds every call by a deadline,
// recovers panics, and decides what is answered.
package platforms

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
)

// Type is the type of a channel, such as "photo_dm": lower-case letters, digits and underscores. Types are stored and part of
// the public API, and unique among all platforms of a build.
type Type string

// Driver makes a platform available. It has no state; its methods may be called at any time. A Caddy module of the
// namespace svc.platforms is a driver.
type Driver interface {
	// Describe returns the description of the platform, which depends on no configuration. It always returns the same.
	Describe() *Description
	// New returns the platform for the options of one configuration. It makes no request. Without a block in the
	// configuration the options are empty: New must succeed, and calls that need a missing option fail as [Refused].
	New(config *Config) (Platform, error)
}

// Description describes a platform. Forms, API, documentation and routing are made from it.
type Description struct {
	// Name is the name in the configuration (`platform NAME`) and, with dashes for underscores, in the address of the
	// webhook, /webhooks/NAME.
	Name string
	// OperationName names the platform in the operations of the interface description, in CamelCase; "" makes it of Name.
	OperationName string
	// Deliveries names the deliveries of the webhook, such as "Events of the social platform".
	Deliveries string
	// ChannelWebhooks is set if every channel has a webhook address (/webhooks/NAME/{channelId}) and a secret of its own. Such
	// channels have no external id, and the platform is a [ChannelSecrets]. Otherwise all channels share one address, are
	// distinguished by their external ids, and the platform is a [SignedDeliveries].
	ChannelWebhooks bool
	// SignatureHeader is the header that carries the signature or secret of a delivery, unless the operator's option
	// `header` names another.
	SignatureHeader string
	// SignatureHelp says in a few sentences how a delivery is signed.
	SignatureHelp string
	// Handshake describes the GET request that a [Handshaker] answers; nil if the platform is none.
	Handshake *Handshake
	// Options are those of the platform's block. Every platform has the options header, api_base and ack in addition.
	Options []option.Option
	// Channels are the channel types, in the order of forms and lists.
	Channels []ChannelType
}

// Handshake describes the request by which a platform checks a webhook address.
type Handshake struct {
	Summary string
	// Query are the parameters of the request, each with its meaning.
	Query []Parameter
}

// Parameter is a parameter of a query.
type Parameter struct{ Name, Help string }

// Config is what a platform is made with.
type Config struct {
	// Options are the values of the configured options, with references resolved. Options that were not given are absent.
	Options map[string]string
	// Client makes the calls.
	Client *Client
	// Now is the clock of signatures and expiries.
	Now func() time.Time
	// Logger receives events that no error can report. It must get no token and no customer's text.
	Logger *slog.Logger
}

// Base returns the address in the first of the options that is set, else fallback.
func (c *Config) Base(fallback string, options ...string) (*url.URL, error) {
	for _, option := range options {
		if address := c.Options[option]; address != "" {
			return ParseBase(address)
		}
	}
	return ParseBase(fallback)
}

// ChannelType describes one type of channel.
type ChannelType struct {
	Type Type
	// Label names the type for people. Like is a well-known service of this type, such as "Telegram"; "" for none.
	Label, Like string
	// ExternalID is the platform's name of the id that its deliveries are routed by, such as "Page id"; "" for types with
	// [Description.ChannelWebhooks]. ExternalIDHint says where to find it.
	ExternalID, ExternalIDHint string
	// Credentials are the fields of a channel's credentials, in the order of the form.
	Credentials []CredentialField
	// Limit is the longest message. The zero value is no limit.
	Limit Limit
	// Markup is the marks that the platform shows as emphasis. The zero value is none.
	Markup Markup
	// MostParts is how many messages one text may be split into. 0 means that the platform has no bound. A person's longer text is
	// refused. The end of an assistant's longer text is left out, as is everything after 20 messages.
	MostParts int
	// Unanswered is how many messages in a row the platform takes until the customer writes again; 0 is no bound. More fail as after
	// the window.
	Unanswered int
	// Pace is how fast messages are sent on one channel, and CustomerPace to one of its customers. It stays below what the platform
	// publishes, because messages may be delayed on their way and arrive closer together. The zero value is as fast as they come.
	Pace, CustomerPace Pace
	// RenewAhead is how long before its end an access token is exchanged for a new one, for a type of a [Refresher] whose channels have
	// no refresh token: their access token itself is exchanged, which works only before it ends. 0 for all other types.
	RenewAhead time.Duration
	// Window is how long after the customer's last message a business may write freely; 0 is without end. A message after it
	// fails as AfterWindow, which is [WindowExpired] (the default) or [TemplateRequired].
	Window      time.Duration
	AfterWindow Class
	// PersonWindow is how long after the customer's last message a person of the business may write; 0 is as long as Window. It is
	// longer than Window. See [Outgoing.Late].
	PersonWindow time.Duration
	// WindowHelp states the window to people.
	WindowHelp string
	// TypingFor is how long the platform shows that an answer is being written, once a [Signaler] has said so; 0 for types that only
	// show that messages were read.
	TypingFor time.Duration
	// Files are the kinds of files, of [FileKinds], that a person may send through a [FileSender]; nil for none.
	Files []string
	// Before are the steps before a channel is connected, After those with its webhook address, which replaces %u in them.
	Before, After []string
}

// Pace is how fast messages are sent: Burst in a row after a rest, and one more each Every, which is 0 or 1 ms to 1 min.
type Pace struct {
	Every time.Duration
	Burst int
}

// Markup is how a text says what is emphasized: each field is put before and after such words, "" where the platform shows no
// emphasis of the kind. An assistant's Markdown is turned into it; texts of people are sent as they wrote them.
type Markup struct {
	Strong, Emphasis string
	// Code stands around code within a line, CodeBlock around lines of it.
	Code, CodeBlock string
	// Markdown leaves an assistant's texts as they are.
	Markdown bool
}

// Channel is the channel that a call is made for.
type Channel struct {
	Type Type
	// ExternalID is the page, account, phone number or shop id; "" for types without one.
	ExternalID  string
	Credentials Credentials
}

// Outgoing is one message to one customer: a part of a reply, within the limit of its channel type (see [Split]).
type Outgoing struct {
	Type Type
	// ExternalID is the channel's: page, account, phone number or shop id.
	ExternalID string
	// Conversation and Address are those of the [Inbound] that is answered.
	Conversation, Address string
	Text                  string
	// Template is set for a template of a [Templater]; Text is then its text with the variables filled in.
	Template    *FilledTemplate
	Credentials Credentials
	// Mark is our own id of the message, of visible ASCII characters, at most [MaxID] bytes. It goes along where the platform
	// repeats it in its report of the message, so that the report is recognized even if the answer to the call was lost.
	Mark string
	// Late is set for a message that a person wrote after Window and within PersonWindow of the type.
	Late bool
}

// Platform is an adapter at work. Its methods are called concurrently.
type Platform interface {
	// Extract returns what a verified delivery contains, [ErrMalformed] if it isn't a JSON object. It doesn't keep body, and
	// nothing it returns refers to body.
	Extract(body []byte) ([]Inbound, error)
	// Send sends one message and returns the platform's id of it, at most [MaxID] bytes. The error is an [*Error].
	Send(ctx context.Context, out *Outgoing) (messageID string, err error)
	// Identify asks the platform which account the credentials belong to, and returns its external ids. Platforms that can
	// only confirm an id return the channel's. The error is an [*Error].
	Identify(ctx context.Context, channel *Channel) (externalIDs []string, err error)
}

// SignedDeliveries is a platform whose deliveries all go to one address, signed with a secret of the operator's application.
type SignedDeliveries interface {
	// Verify returns an error unless the platform signed the delivery. Without a configured secret every delivery fails.
	Verify(delivery *Delivery) error
}

// ChannelSigned is a [SignedDeliveries] whose channels may be connected through an application of their owner's. Their credentials
// then have a secret that signs their deliveries, a [CredentialField] with Signs, and no other secret proves a delivery for them.
type ChannelSigned interface {
	// Named returns the channels that a delivery is about, without credentials: the first [MaxNamed] of them, or fewer; none if the
	// delivery has no signature in the platform's form. The body isn't verified, and is read in little memory whatever it holds.
	Named(delivery *Delivery) []Channel
	// SignsItself reports whether the credentials have a signing secret, and it is another than that of [SignedDeliveries].
	SignsItself(credentials Credentials) bool
	// VerifyOwn returns an error unless the delivery is signed with the secret of the credentials, which sign themselves. It depends on no
	// other fields than those with Signs and those that they are given with.
	VerifyOwn(delivery *Delivery, credentials Credentials) error
}

// MaxNamed bounds [ChannelSigned.Named], and the secrets that a delivery is compared with.
const MaxNamed = 8

// ChannelSecrets is a platform whose deliveries go to an address for each channel, with a secret of the channel's.
type ChannelSecrets interface {
	// VerifyChannel returns an error unless the headers prove the platform. It is called before the body is read.
	VerifyChannel(header http.Header, credentials Credentials) error
}

// Delivery is a request of a platform.
type Delivery struct {
	Header http.Header
	// URL is the configured address of the webhook, whatever host the request names.
	URL  string
	Body []byte
}

// Handshaker is a platform that checks a webhook address with a GET request before it delivers there.
type Handshaker interface {
	// Handshake returns the body of the answer, or an error if the request doesn't prove the platform.
	Handshake(query url.Values) (answer string, err error)
}

// MinRenewalAge is how old an access token is at least before it is exchanged for a new one by [ChannelType.RenewAhead], or because its
// end isn't known.
const MinRenewalAge = 24 * time.Hour

// Refreshable reports whether the type's channels have tokens that can be refreshed.
func (t *ChannelType) Refreshable() bool {
	return t.RenewAhead > 0 || slices.ContainsFunc(t.Credentials, func(f CredentialField) bool { return f.Name == RefreshToken })
}

// Expiring reports whether an access token that is exchanged for new ones should have been exchanged long ago, so that its owner has
// to see to it: less than a third of RenewAhead is left.
func (t *ChannelType) Expiring(c Credentials, now time.Time) bool {
	return t.RenewAhead > 0 && c.Expiry() != 0 && !now.Add(t.RenewAhead/3).Before(time.UnixMilli(c.Expiry()))
}

// Refresher is a platform whose access tokens expire. Its channel types have a credential field [RefreshToken], or
// [ChannelType.RenewAhead].
type Refresher interface {
	// Refresh exchanges the refresh token, or the access token of a type with RenewAhead, for new tokens and returns the credentials
	// to store, with their end. It uses up the old refresh token: the caller stores the result before anything else and lets no two
	// refreshes of a channel run at a time. The error is an [*Error]: [NeedsReauth] if the refresh token isn't accepted, [Unknown] if it
	// may be used up, [Refused] if the operator's application is at fault.
	Refresh(ctx context.Context, channel *Channel) (Credentials, error)
}

// Signaler is a platform that can show customers that their messages were read, or that an answer is being written.
type Signaler interface {
	// Signal shows the customer of the signal that their message was read, and, for types with [ChannelType.TypingFor], that an answer is
	// being written. What fails is left out: nothing depends on it. The error is an [*Error].
	Signal(ctx context.Context, signal *Signal) error
}

// Signal is what is shown to one customer.
type Signal struct {
	Type Type
	// ExternalID is the channel's: page, account, phone number or shop id.
	ExternalID string
	// Conversation, Address and MessageID are those of the customer's last message, which is answered.
	Conversation, Address, MessageID string
	// Again is set when only the typing has to be shown for longer.
	Again       bool
	Credentials Credentials
}

// ThreadReader is implemented by platforms that don't report to a webhook what people of the business write in the platform's own app.
// The worker reads a customer's thread before it sends them an answer, so that the assistant doesn't talk over a person.
type ThreadReader interface {
	// ReadThread returns the last messages of the business to one customer, at least ten where there are as many: [HumanEcho] those that a
	// person may have typed, [AutomaticEcho] the others. Messages of ours may be among both. An answer is sent even if this fails. The
	// error is an [*Error].
	ReadThread(ctx context.Context, thread *Thread) ([]Inbound, error)
}

// Thread names what a business and one customer have written to each other.
type Thread struct {
	Type Type
	// ExternalID is the channel's: page, account, phone number or shop id.
	ExternalID string
	// Conversation is the platform's key of it, see [Inbound].
	Conversation string
	Credentials  Credentials
}
