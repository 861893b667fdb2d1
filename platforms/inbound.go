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
	// MaxText is the number of bytes of a text that are kept. A longer text is cut between two code points.
	MaxText = 64 << 10
	// MaxID is the greatest length of an id in bytes. Items with a longer id are ignored, because a cut id could be another
	// item's.
	MaxID = 512
	// MaxName is the number of bytes of a customer's name that are kept.
	MaxName = 512
)

// Kind is the kind of an [Inbound].
type Kind uint8

// The kinds. Only a [Text] is queued and answered by a model.
const (
	// Text is a message that a customer wrote. Captions of media, titles of pressed buttons and commands count as texts.
	Text Kind = iota + 1
	// Media is a customer's message without text. Text then contains a short name of its content, such as "image". The channel's
	// notice is sent in reply, or the staff is notified.
	Media
	// HumanEcho is a message of the business that the platform reports back. A person typed it in the platform's own app, or we
	// sent it; the queue distinguishes the two by the MessageID. Echoes may arrive minutes late, with other white space and
	// formatting, and an echo may be the only proof that our message arrived. Text is the text, or a short name of the content if
	// [Inbound.Wordless] is set.
	HumanEcho
	// AutomaticEcho is a message of the business that no person typed, by the platform's own marks: its automatic reply, or a
	// message sent through its interface, by us or by another program. It never silences the assistant. Text is as for HumanEcho.
	AutomaticEcho
	// FailedDelivery reports that our message MessageID wasn't delivered. Failure is the reason.
	FailedDelivery
	// Blocked reports that the customer can no longer be reached, because they blocked the channel or left the platform.
	Blocked
	// TokenExpiring reports that the platform will soon end the channel's access.
	TokenExpiring
	// AccessRefused reports that the channel's account may no longer send. Adapters use it only for reports in a delivery: a call
	// that fails with [NeedsReauth] needs none.
	AccessRefused
	// Unsent reports that the customer or the business has taken the message MessageID back. Platforms demand that copies of it
	// are deleted.
	Unsent
	// ErasureWanted reports that the customer demands, through the platform, the deletion of everything that is stored about them.
	ErasureWanted
	// Event is a customer's message without text, like Media, that is only shown: its files aren't fetched, the staff isn't
	// notified, and no reply is sent.
	Event
	// UnmarkedEcho is like HumanEcho for platforms that don't report whether a person typed the message. The queue treats it as an
	// automatic reply if it came sooner after the customer's message than a person could have answered, or if it repeats the text
	// of an automatic reply.
	UnmarkedEcho
	// Edited reports that the customer or the business has changed the text of the message MessageID to Text. A preview that a
	// platform adds to a link is also reported as a change. The change causes no answer: a message that isn't answered yet is
	// answered with its new text.
	Edited
)

// Inbound is one message or event in a delivery of a platform. All its strings are valid UTF-8 without NUL.
type Inbound struct {
	// Type and ExternalID name the channel. ExternalID is empty with [Description.ChannelWebhooks].
	Type       Type
	ExternalID string
	Kind       Kind
	// Wordless is set on an echo without text. Text then contains a short name of its content, such as "image".
	Wordless bool
	// Unsure is set on a Text or Media if the platform doesn't report whether the customer or the business wrote it. The queue
	// treats it as the business's own if its MessageID belongs to a message of ours, or if other messages show that its Address
	// belongs to the business. See [OtherIDs].
	Unsure bool
	// Conversation is the platform's key of the conversation, the same for all its messages. It is empty only for TokenExpiring
	// and AccessRefused.
	Conversation string
	// Other contains the ids that only some platforms have. It may be nil. It is a pointer for the same reason as Attached.
	Other *OtherIDs
	// Address is the address for replies, often the same as Conversation. It is empty if the platform doesn't report it.
	Address string
	// MessageID is the platform's id of the message, unique within the channel. It is empty for Blocked, TokenExpiring,
	// AccessRefused and ErasureWanted.
	MessageID string
	// CustomerName is the platform's name of the customer, of up to MaxName bytes. It may be empty.
	CustomerName string
	// Text has up to MaxText bytes. It isn't blank if Kind is Text.
	Text string
	// Attached are the files of a Text, Media, HumanEcho or UnmarkedEcho that can be fetched, up to MaxAttachments; see
	// [Collector.Attach]. It may be nil. It is a pointer because a delivery may have very many items, and few of them have files.
	Attached *[]Attachment
	// Failure is the class of a FailedDelivery, and empty if the class is unknown. After [CustomerBlocked] the conversation is
	// closed, unless the customer has written since the message was sent, because the report may be late.
	Failure Class
	// SentAt is the platform's time of the message. It is zero if the platform reports none or an implausible one.
	SentAt time.Time
}

// OtherIDs are ids of an [Inbound] that only some platforms have, of up to MaxID bytes.
type OtherIDs struct {
	// Alias is another id of the customer, by which alone the platform may name them in other deliveries. It equals Conversation
	// if this delivery names the customer by that id alone. Both ids name one conversation. Empty means that the customer has one
	// id.
	Alias string
	// Business is the platform's id of the business in this conversation, in the form of Address. It is empty if the platform
	// always reports who wrote.
	Business string
	// Mark is the [Outgoing.Mark] of a FailedDelivery if the platform repeats it. It identifies messages if their id never
	// arrived.
	Mark string
}

// OtherIDs returns the ids that only some platforms have.
func (in Inbound) OtherIDs() OtherIDs {
	if in.Other == nil {
		return OtherIDs{}
	}
	return *in.Other
}

// WithContent returns in as a message of a customer: a [Text] if text isn't blank, else a [Media] if media isn't empty. Otherwise
// it has no kind, and [Collector.Add] drops it.
func (in Inbound) WithContent(text, media string) Inbound {
	in.Kind, in.Text = 0, text
	if strings.TrimSpace(in.Text) != "" {
		in.Kind = Text
	} else if media != "" {
		in.Kind, in.Text = Media, media
	}
	return in
}

// AsEvent returns in as an [Event], or without a kind if media is empty.
func (in Inbound) AsEvent(media string) Inbound {
	in = in.WithContent("", media)
	if in.Kind == Media {
		in.Kind = Event
	}
	return in
}

// AsEcho returns in as a [HumanEcho] with text, or with a name of its content if text is blank.
func (in Inbound) AsEcho(text, media string) Inbound {
	in.Kind, in.Text, in.Wordless = HumanEcho, text, strings.TrimSpace(text) == ""
	if in.Wordless {
		in.Text = MediaName(media)
	}
	return in
}

// AsAutomatic returns in as an [AutomaticEcho].
func (in Inbound) AsAutomatic(text, media string) Inbound {
	in = in.AsEcho(text, media)
	in.Kind = AutomaticEcho
	return in
}

// IsEcho reports whether in is a message of the business.
func (in Inbound) IsEcho() bool {
	return in.Kind == HumanEcho || in.Kind == AutomaticEcho || in.Kind == UnmarkedEcho
}

// AsEdited returns a [Text] as [Edited], and any other item without a kind.
func (in Inbound) AsEdited() Inbound {
	if in.Kind != Text {
		return Inbound{}
	}
	in.Kind, in.Unsure = Edited, false
	return in
}

// MediaName returns the platform's name of a kind of message if it consists of lower-case letters and _, else "attachment". So no
// other text gets into the conversation.
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
	return cut(first+" "+second, MaxName)
}

// cut returns a text, or its beginning of up to limit bytes without a part of a code point.
func cut[T string | []byte](text T, limit int) T {
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// Collector collects the items of a delivery.
type Collector struct {
	all           []Inbound
	most          int
	attached      int
	channelRouted bool
}

const (
	// shortest is the length in bytes of the shortest item, {"to":1,"id":1,"type":"voice"} and a comma.
	shortest = 31
	// fewInbounds is the first capacity. The second is an eighth of the greatest possible number of items, the third is that
	// number: a slice that grows as usual would take several times as much memory.
	fewInbounds = 8
)

// Collect returns a collector for a delivery with a body of that many bytes.
func Collect(bytes int) Collector { return Collector{most: bytes/shortest + 1} }

// CollectAtMost returns a collector for up to n items.
func CollectAtMost(n int) Collector { return Collector{most: n} }

// ByChannel prepares the collector for a platform with [Description.ChannelWebhooks]. The items of the platform have no
// external id.
func (c *Collector) ByChannel() { c.channelRouted = true }

// All returns the collected items.
func (c *Collector) All() []Inbound { return c.all }

// Add appends in, unless it has no kind, or lacks an id of its channel, conversation or message that its kind requires.
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
