package platforms

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrMalformed is the error of [Platform.Extract] for a delivery that is not a JSON object. An object of an unknown form is no
// error and contains nothing.
var ErrMalformed = errors.New("the delivery is not a JSON object")

// Bounds of the values of an [Inbound]. Platforms allow far less text.
const (
	// MaxText is how many bytes of a text are kept; a longer one is cut between two code points.
	MaxText = 64 << 10
	// MaxID is how many bytes an id may have. Items with a longer one are ignored: a cut id could be another item's.
	MaxID = 512
	// MaxName is how many bytes of a customer's name are kept.
	MaxName = 512
)

// Kind is the kind of an [Inbound].
type Kind uint8

// The kinds. Only [Text] counts as queued and is answered by a model.
const (
	// Text is a message that a customer wrote, including captions of media, titles of pressed buttons, and commands.
	Text Kind = iota + 1
	// Media is a customer's message without text; Text is a short name of its content, such as "image". The channel's notice answers it, or
	// people are told.
	Media
	// HumanEcho is a message of the business, reported back by the platform: typed by a person in the platform's own app,
	// or sent by us; the queue distinguishes the two by the MessageID. Text is the text, or a short name like Media's where
	// [Inbound.Wordless] is set.
	HumanEcho
	// AutomaticEcho is a message of the business that no person typed, by the platform's own marks: its automatic reply, or a
	// message sent through its interface, by us or by another program. It never silences the assistant. Text is as HumanEcho's.
	AutomaticEcho
	// FailedDelivery: one of our messages, MessageID, wasn't delivered. Failure is the reason.
	FailedDelivery
	// Blocked: the customer can't be reached any more, because they blocked the channel or left the platform.
	Blocked
	// TokenExpiring: the platform will soon end the channel's access.
	TokenExpiring
	// AccessRefused: by the platform's own report, and not in answer to a call, the channel's account may not send any more. What
	// fails with [NeedsReauth] in answer to a call needs no such report.
	AccessRefused
	// Unsent: its sender, the customer or somebody of the business, has taken the message MessageID back. Platforms demand that copies of
	// it are deleted.
	Unsent
	// ErasureWanted: the customer asks, through the platform, for the deletion of all that is stored about them.
	ErasureWanted
	// Event is like Media, but only shown: its files aren't fetched, nobody is told, and nothing answers it.
	Event
	// UnmarkedEcho is like HumanEcho where the platform doesn't say whether a person typed it. The queue takes it for an automatic reply if it
	// came sooner after the customer's message than a person could have answered, or repeats the text of such a one.
	UnmarkedEcho
	// Edited: its sender, the customer or somebody of the business, has changed the text of the message MessageID, of which Text is the
	// whole new text. It isn't answered by itself: a text that waits or is being answered is answered as it reads now.
	Edited
)

// Inbound is one thing that a delivery of a platform reports. All its strings are valid UTF-8 without NUL.
type Inbound struct {
	// Type and ExternalID name the channel it is for. ExternalID is empty with [Description.ChannelWebhooks].
	Type       Type
	ExternalID string
	Kind       Kind
	// Wordless is set on an echo without text: Text is a short name of its content, such as "image".
	Wordless bool
	// Unsure is set on a Text or Media if the platform doesn't say whether the customer wrote it or the business. The queue then takes it
	// for the business's own if its MessageID is that of a message of ours, or if its Address is known from other messages to be the
	// business's. See [OtherIDs].
	Unsure bool
	// Conversation is the platform's key of the conversation, the same for all its messages; empty for TokenExpiring and
	// AccessRefused only.
	Conversation string
	// Other are ids that only some platforms have, nil for none. It is a pointer for the same reason as Attached.
	Other *OtherIDs
	// Address is where replies go; often the same as Conversation. Empty where the platform doesn't say.
	Address string
	// MessageID is the platform's id of the message, unique within the channel. Empty for Blocked, TokenExpiring,
	// AccessRefused and ErasureWanted.
	MessageID string
	// CustomerName is the platform's name of the customer, up to MaxName bytes; empty if it has none.
	CustomerName string
	// Text is up to MaxText bytes, and not blank where Kind is Text.
	Text string
	// Attached are the files of a Text, Media, HumanEcho or UnmarkedEcho that can be fetched, at most MaxAttachments, nil for none; see
	// [Collector.Attach]. It is a pointer because few of a delivery's items have files, and a delivery may have very many.
	Attached *[]Attachment
	// Failure is the class of a FailedDelivery; empty if unknown, and for all other kinds. After [CustomerBlocked] the conversation is closed,
	// unless the customer has written since the message was sent.
	Failure Class
	// SentAt is the platform's time; the zero time if there is none or it is implausible.
	SentAt time.Time
}

// OtherIDs are ids of an [Inbound] that only some platforms have, of at most MaxID bytes.
type OtherIDs struct {
	// Alias is another id of the customer under which the platform may name them alone in other deliveries, or Conversation itself if this
	// delivery names them by that id alone; empty where customers have one id. Both name one conversation.
	Alias string
	// Business is the platform's id of the business's side of the conversation, in the form of Address; empty where the platform always
	// says who wrote.
	Business string
	// Mark is [Outgoing.Mark] of a FailedDelivery where the platform repeats it; it finds messages whose id never arrived.
	Mark string
}

// OtherIDs returns the ids that only some platforms have.
func (in Inbound) OtherIDs() OtherIDs {
	if in.Other == nil {
		return OtherIDs{}
	}
	return *in.Other
}

// WithContent returns in as what a customer sent: [Text] if text isn't blank, else [Media] if media names some, else without a
// kind, which [Collector.Add] drops.
func (in Inbound) WithContent(text, media string) Inbound {
	in.Kind, in.Text = 0, text
	if strings.TrimSpace(in.Text) != "" {
		in.Kind = Text
	} else if media != "" {
		in.Kind, in.Text = Media, media
	}
	return in
}

// AsEvent returns in as a message of a customer that is only shown, without a kind if media names none.
func (in Inbound) AsEvent(media string) Inbound {
	in = in.WithContent("", media)
	if in.Kind == Media {
		in.Kind = Event
	}
	return in
}

// AsEcho returns in as a message of the business itself: with text if that isn't blank, else with a name of its content.
func (in Inbound) AsEcho(text, media string) Inbound {
	in.Kind, in.Text, in.Wordless = HumanEcho, text, strings.TrimSpace(text) == ""
	if in.Wordless {
		in.Text = MediaName(media)
	}
	return in
}

// AsAutomatic returns in as a message of the business that no person typed.
func (in Inbound) AsAutomatic(text, media string) Inbound {
	in = in.AsEcho(text, media)
	in.Kind = AutomaticEcho
	return in
}

// IsEcho reports whether in is a message of the business itself.
func (in Inbound) IsEcho() bool {
	return in.Kind == HumanEcho || in.Kind == AutomaticEcho || in.Kind == UnmarkedEcho
}

// AsEdited returns a [Text] as the new text of a message, whoever wrote it, and anything else without a kind.
func (in Inbound) AsEdited() Inbound {
	if in.Kind != Text {
		return Inbound{}
	}
	in.Kind, in.Unsure = Edited, false
	return in
}

// MediaName is the platform's name of a kind of message if it looks like one, so that nothing else gets into the
// conversation; otherwise "attachment".
func MediaName(name string) string {
	if name == "" || len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "attachment"
	}
	return name
}

// FirstText returns the first text that isn't blank.
func FirstText(texts ...string) string {
	for _, text := range texts {
		if strings.TrimSpace(text) != "" {
			return text
		}
	}
	return ""
}

// JoinNames returns the names separated by blanks, cut at [MaxName] bytes.
func JoinNames(first, second string) string {
	name := first + " " + second
	if len(name) <= MaxName {
		return name
	}
	end := MaxName
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end]
}

// Collector collects what a delivery contains.
type Collector struct {
	all           []Inbound
	most          int
	attached      int
	channelRouted bool
}

const (
	// shortest is how many bytes of a delivery an Inbound takes at least: {"to":1,"id":1,"type":"voice"} and a comma.
	shortest = 31
	// fewInbounds is the first capacity. The next is an eighth of what the delivery can contain, and then all of that: a slice
	// that grows as usual would take several times as much.
	fewInbounds = 8
)

// Collect returns a collector for a delivery of so many bytes.
func Collect(bytes int) Collector { return Collector{most: bytes/shortest + 1} }

// CollectAtMost returns a collector for at most n items.
func CollectAtMost(n int) Collector { return Collector{most: n} }

// ByChannel makes the collector one of a platform with [Description.ChannelWebhooks], whose items have no external id.
func (c *Collector) ByChannel() { c.channelRouted = true }

// All are the collected items.
func (c *Collector) All() []Inbound { return c.all }

// Add appends in if it has a kind, and the ids that this kind needs for its channel, conversation and message.
func (c *Collector) Add(in Inbound) {
	routed := c.channelRouted || in.ExternalID != ""
	switch in.Kind {
	case Text, Media, HumanEcho, AutomaticEcho, FailedDelivery, Unsent, Event, UnmarkedEcho, Edited:
		routed = routed && in.Conversation != "" && in.MessageID != ""
	case Blocked, ErasureWanted:
		routed = routed && in.Conversation != ""
	case TokenExpiring, AccessRefused:
	default:
		return
	}
	if !routed {
		return
	}
	if n := len(c.all); n > 0 && n == cap(c.all) {
		room := max(c.most, 2*n)
		for _, enough := range []int{fewInbounds, c.most / 8} {
			if n < enough {
				room = enough
				break
			}
		}
		c.all = append(make([]Inbound, 0, room), c.all...)
	}
	c.all = append(c.all, in)
}
