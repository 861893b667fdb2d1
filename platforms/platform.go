// Package platforms is the contract between caddy-svc and its adapters to messaging platforms: how an adapter describes itself
// ([Description]), which calls it makes ([Platform]), how its failures are classified ([Error]), and the helpers that adapters
// share. It contains no adapter and imports nothing of Caddy. It is v0: vendors and production traffic will widen it.
//
// # Adapters
//
// An adapter is a package with a [Driver]. The driver describes the platform: its channel types, the options of its block in the
// configuration, the fields of its credentials, its limits and its instructions for people. Forms, API, command line and
// documentation are made from that description. [Driver.New] makes the [Platform], which verifies and reads deliveries, sends
// replies and identifies accounts. Every platform implements exactly one of [SignedDeliveries] and [ChannelSecrets]. Other
// abilities are optional interfaces: [ChannelSigned], [Handshaker], [Refresher], [Templater], [MediaSource], [FileSender],
// [Signaler], [ThreadReader] and [option.Checker]. A Caddy module of the namespace svc.platforms makes an adapter available; it
// needs nothing but the driver.
//
// The packages platforms/bot, platforms/social, platforms/localchat, platforms/marketa and platforms/marketb are the built-in
// adapters. Package platforms/platformtest checks any adapter against this contract.
//
// # Rules for adapters
//
//   - Extract never panics and never fails for a JSON object: it skips items of an unknown form, without effect on other items.
//     Most platforms repeat a refused delivery for hours.
//   - Only a message that one customer wrote in a private conversation is a [Text]. Messages of bots, groups and the business,
//     receipts and edits never are; otherwise an assistant could answer itself.
//   - One delivery may contain messages for several tenants. Each [Inbound] carries the external id of its own entry.
//   - Ids are bounded and never shortened or repaired. All strings are valid UTF-8 without NUL; texts and names are bounded.
//   - An [Error] contains no token, no text of a customer and no text of the platform.
//   - Send makes only one request that can deliver the message. If no usable answer arrives, the failure is [Unknown].
//   - Calls end when their context does. An adapter keeps no state but idle connections.
//
// The product routes, queues, stores and retries messages, decides which of them are answered, keeps credentials encrypted (an
// adapter receives them in plain text), bounds every call by a deadline, and recovers panics.
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

// Type is the type of a channel, such as "photo_dm": lower-case letters, digits and underscores. Types are stored, are part of
// the public API, and are unique among all platforms of a build.
type Type string

// Driver makes a platform available. It has no state; its methods may be called at any time. A Caddy module of the
// namespace svc.platforms is a driver.
type Driver interface {
	// Describe returns the description of the platform. It depends on no configuration and is always the same.
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
	// OperationName names the platform in the operations of the interface description, in CamelCase. Empty means that the name is
	// made from Name.
	OperationName string
	// Deliveries names the deliveries of the webhook, such as "Events of the social platform".
	Deliveries string
	// ChannelWebhooks is set if every channel has a webhook address (/webhooks/NAME/{channelId}) and a secret of its own. Such
	// channels have no external id, and the platform is a [ChannelSecrets]. Otherwise all channels share one address and are
	// distinguished by their external ids, and the platform is a [SignedDeliveries].
	ChannelWebhooks bool
	// SignatureHeader is the header that carries the signature or secret of a delivery, unless the operator's option
	// `header` names another.
	SignatureHeader string
	// SignatureHelp says in a few sentences how a delivery is signed.
	SignatureHelp string
	// Handshake describes the GET request of a [Handshaker]. It is nil if the platform isn't one.
	Handshake *Handshake
	// Options are the options of the platform's block. Every platform also has the options header, api_base and ack.
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

// Config contains everything that a platform is made with.
type Config struct {
	// Options are the values of the configured options, with references resolved. Options that were not given are absent.
	Options map[string]string
	// Client makes the calls to the platform.
	Client *Client
	// Now is the clock of signatures and expiries.
	Now func() time.Time
	// Logger receives events that no error can report. It must get no token and no customer's text.
	Logger *slog.Logger
}

// Base returns the first address that is set in one of the options, or fallback.
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
	// Label names the type for people. Like is a well-known service of this type, such as "Telegram". It may be empty.
	Label, Like string
	// ExternalID is the platform's name of the id by which its deliveries are routed, such as "Page id". It is empty for types
	// with [Description.ChannelWebhooks]. ExternalIDHint says where to find the id.
	ExternalID, ExternalIDHint string
	// Credentials describe a channel's credentials, in the order of the form.
	Credentials []CredentialField
	// Limit is the longest message. The zero value means unlimited.
	Limit Limit
	// Markup has the marks that the platform shows as emphasis. The zero value means that it shows none.
	Markup Markup
	// MostParts is the number of messages into which one text may be split. 0 means unlimited. A person's longer text is refused.
	// The end of an assistant's longer text is dropped, as is everything after 20 messages.
	MostParts int
	// Unanswered is the number of messages in a row that the platform accepts before the customer writes again. 0 means unlimited.
	// Further messages fail like messages after the window.
	Unanswered int
	// Pace limits how fast messages are sent on one channel, CustomerPace how fast to one of its customers. Both stay below the
	// platform's published limits, because messages may be delayed on their way and arrive closer together. The zero value means
	// unlimited.
	Pace, CustomerPace Pace
	// RenewAhead is the time before the end of an access token at which the token is exchanged for a new one. It is set for types
	// of a [Refresher] without refresh tokens: the access token itself is exchanged, which works only before it ends. 0 means
	// that tokens of the type aren't renewed in this way.
	RenewAhead time.Duration
	// Window is the time after the customer's last message in which a business may write freely. 0 means that it never ends. A
	// later message fails as AfterWindow, which is [WindowExpired] (the default) or [TemplateRequired].
	Window      time.Duration
	AfterWindow Class
	// PersonWindow is the time after the customer's last message in which a person of the business may write. It is longer than
	// Window. 0 means the same as Window. See [Outgoing.Late].
	PersonWindow time.Duration
	// WindowHelp explains the window to people.
	WindowHelp string
	// TypingFor is the time for which the platform shows that an answer is being written after a call of a [Signaler]. 0 means
	// that the platform only shows that messages were read.
	TypingFor time.Duration
	// Files are the kinds of files, of [FileKinds], that a person may send through a [FileSender]. The list may be empty.
	Files []string
	// Before are the steps before a channel is connected. After are the steps that need its webhook address, which replaces %u in
	// them.
	Before, After []string
}

// Pace allows Burst messages in a row after a rest, and one more message each Every, which is 0 or 1 ms to 1 min.
type Pace struct {
	Every time.Duration
	Burst int
}

// Markup has the marks of emphasis, each of which is put before and after the emphasized words. An empty mark means that the
// platform doesn't show this kind. An assistant's Markdown is converted to these marks; texts of people are sent as they wrote
// them.
type Markup struct {
	Strong, Emphasis string
	// Code encloses code within a line, CodeBlock encloses lines of code.
	Code, CodeBlock string
	// Markdown leaves an assistant's texts as they are.
	Markdown bool
}

// Channel is the channel that a call is made for.
type Channel struct {
	Type Type
	// ExternalID is the page, account, phone number or shop id. It is empty for types without one.
	ExternalID  string
	Credentials Credentials
}

// Outgoing is one message to one customer: a part of a reply, within the limit of its channel type (see [Split]).
type Outgoing struct {
	Type Type
	// ExternalID is the channel's page, account, phone number or shop id.
	ExternalID string
	// Conversation and Address come from the [Inbound] that is answered.
	Conversation, Address string
	Text                  string
	// Template is set for a template of a [Templater]. Text then contains the template's text with the variables filled in.
	Template    *FilledTemplate
	Credentials Credentials
	// Mark is our own id of the message: up to [MaxID] visible ASCII characters. It is sent along if the platform repeats it in
	// its report of the message, so that the report is recognized even if the answer to the call was lost.
	Mark string
	// Late is set if a person wrote the message after Window and within PersonWindow of the type.
	Late bool
}

// Platform is an adapter with its configuration. Its methods are called concurrently.
type Platform interface {
	// Extract returns the contents of a verified delivery. It returns [ErrMalformed] if the delivery isn't a JSON object. It
	// doesn't keep body, and nothing that it returns refers to body.
	Extract(body []byte) ([]Inbound, error)
	// Send sends one message and returns the platform's id of it, of up to [MaxID] bytes. The error is an [*Error].
	Send(ctx context.Context, out *Outgoing) (messageID string, err error)
	// Identify returns the external ids of the account to which the credentials belong, as the platform reports them. A platform
	// that can only confirm an id returns the channel's id. The error is an [*Error].
	Identify(ctx context.Context, channel *Channel) (externalIDs []string, err error)
}

// SignedDeliveries is a platform that sends all deliveries to one address and signs them with a secret of the operator's
// application.
type SignedDeliveries interface {
	// Verify returns an error unless the platform signed the delivery. Without a configured secret it always returns an error.
	Verify(delivery *Delivery) error
}

// ChannelSigned is a [SignedDeliveries] with channels that may be connected through an application of the channel's owner. The
// credentials of these channels contain the secret of the application (a [CredentialField] with Signs), and only this secret
// proves a delivery for the channel.
type ChannelSigned interface {
	// Named returns the channels that a delivery is about, without credentials: up to [MaxNamed], and none if the delivery has no
	// signature in the platform's form. The body isn't verified yet, so Named reads it in little memory, whatever its content.
	Named(delivery *Delivery) []Channel
	// SignsItself reports whether the credentials contain a signing secret other than the operator's.
	SignsItself(credentials Credentials) bool
	// VerifyOwn returns an error unless the delivery is signed with the secret in the credentials, for which SignsItself is true.
	// The result depends only on the fields with Signs and on the fields that must be given with these.
	VerifyOwn(delivery *Delivery, credentials Credentials) error
}

// MaxNamed limits the channels of [ChannelSigned.Named], and the secrets with which a delivery is compared.
const MaxNamed = 8

// ChannelSecrets is a platform that sends deliveries to an address for each channel, with a secret of the channel.
type ChannelSecrets interface {
	// VerifyChannel returns an error unless the headers prove that the platform sent them. It is called before the body is read.
	VerifyChannel(header http.Header, credentials Credentials) error
}

// Delivery is a request of a platform.
type Delivery struct {
	Header http.Header
	// URL is the configured address of the webhook, independent of the host in the request.
	URL  string
	Body []byte
}

// Handshaker is a platform that checks a webhook address with a GET request before it delivers there.
type Handshaker interface {
	// Handshake returns the body of the answer, or an error if the request doesn't prove the platform.
	Handshake(query url.Values) (answer string, err error)
}

// MinRenewalAge is the age from which an access token may be exchanged for a new one, by [ChannelType.RenewAhead] or because its
// end is unknown.
const MinRenewalAge = 24 * time.Hour

// Refreshable reports whether the type's channels have tokens that can be refreshed.
func (t *ChannelType) Refreshable() bool {
	return t.RenewAhead > 0 || slices.ContainsFunc(t.Credentials, func(f CredentialField) bool { return f.Name == RefreshToken })
}

// Expiring reports whether less than a third of RenewAhead is left. The token should have been exchanged long before, so its
// owner has to look for the reason.
func (t *ChannelType) Expiring(c Credentials, now time.Time) bool {
	return t.RenewAhead > 0 && c.Expiry() != 0 && !now.Add(t.RenewAhead/3).Before(time.UnixMilli(c.Expiry()))
}

// Refresher is a platform with access tokens that expire. Its channel types have a credential field [RefreshToken], or
// [ChannelType.RenewAhead].
type Refresher interface {
	// Refresh exchanges the refresh token, or the access token of a type with RenewAhead, for new tokens. It returns the
	// credentials to store, with the time when they end. It uses up the old refresh token: the caller stores the result before it
	// does anything else, and never runs two refreshes of a channel at the same time. The error is an [*Error]: [NeedsReauth] if
	// the platform rejected the refresh token, [Unknown] if the token may be used up, [Refused] if the operator's application is
	// the cause.
	Refresh(ctx context.Context, channel *Channel) (Credentials, error)
}

// Signaler is a platform that can show customers that their messages were read, or that an answer is being written.
type Signaler interface {
	// Signal shows the customer that their message was read and, for types with [ChannelType.TypingFor], that an answer is being
	// written. A failed signal is never repeated. The error is an [*Error].
	Signal(ctx context.Context, signal *Signal) error
}

// Signal names the customer and the message of a call of [Signaler.Signal].
type Signal struct {
	Type Type
	// ExternalID is the channel's page, account, phone number or shop id.
	ExternalID string
	// Conversation, Address and MessageID come from the customer's last message.
	Conversation, Address, MessageID string
	// Again is set if the message is already shown as read, and only the typing has to be shown for longer.
	Again       bool
	Credentials Credentials
}

// ThreadReader is a platform that doesn't report to the webhook when people of the business write in the platform's own app. The
// worker reads a customer's thread before it sends them an answer, so that the assistant doesn't talk over a person.
type ThreadReader interface {
	// ReadThread returns the last messages of the business to one customer, ten or more if there are as many. A message is a
	// [HumanEcho] if a person may have typed it, otherwise an [AutomaticEcho]. Our own messages may be among both. The answer is
	// sent even if ReadThread fails. The error is an [*Error].
	ReadThread(ctx context.Context, thread *Thread) ([]Inbound, error)
}

// Thread names the conversation between a business and one customer.
type Thread struct {
	Type Type
	// ExternalID is the channel's page, account, phone number or shop id.
	ExternalID string
	// Conversation is the platform's key of the conversation, as in [Inbound].
	Conversation string
	Credentials  Credentials
}
