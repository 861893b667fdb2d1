package platforms

import (
	"errors"
	"strings"
	"time"
)

// ErrMalformed says that a delivery is not a JSON object. It is the only error of the Extract functions; an object of a
// form that nobody knows is no error and holds nothing (design §6, "webhook bodies").
var ErrMalformed = errors.New("the delivery is not a JSON object")

// Bounds of what is taken out of a delivery. Platforms allow far less text (notes/platforms.md §4).
const (
	// MaxText is how many bytes of a text are kept; a longer one is cut between two code points.
	MaxText = 64 << 10
	// MaxID is how many bytes an id may have. What has a longer one is ignored: a cut id could be another's.
	MaxID = 512
	// MaxName is how many bytes of a customer's name are kept.
	MaxName = 512
)

// Kind says what an [Inbound] is.
type Kind int

// The kinds. Only Text is a customer's message that wants an answer and counts as queued (spec §2.8).
const (
	// Text is a message that a customer wrote, including captions of media, titles of pressed buttons, and commands.
	Text Kind = iota + 1
	// Media is a customer's message without text; Text holds a short name of what it is, like image.
	Media
	// HumanEcho is a message of the business, reported back by the platform: typed by a person in the platform's own app,
	// or sent by us. The queue knows which by the MessageID. Text is what was written, or a short name like Media's.
	HumanEcho
	// FailedDelivery says that one of our messages, MessageID, didn't arrive. Code says why.
	FailedDelivery
	// Blocked says that the customer can't be reached any more, by their own wish or because they are gone.
	Blocked
	// TokenExpiring says that the platform will soon end the channel's access.
	TokenExpiring
)

// Inbound is one thing that a delivery of a platform reports. All its strings are valid UTF-8 without NUL.
type Inbound struct {
	// Type and ExternalID say which channel it is for. ExternalID is empty for Bot, which is routed by the path.
	Type       Type
	ExternalID string
	Kind       Kind
	// Conversation is the platform's key of the conversation, the same for all its messages; empty for TokenExpiring only.
	Conversation string
	// Address is where replies go; often the same as Conversation. Empty where the platform doesn't say.
	Address string
	// MessageID is the platform's id of the message, unique within the channel: the second half of the task id (spec §4.3
	// rule 5). Empty for Blocked and TokenExpiring.
	MessageID string
	// CustomerName is how the platform calls the customer, up to MaxName bytes; empty when it doesn't say.
	CustomerName string
	// Text is up to MaxText bytes, and more than blanks where Kind is Text.
	Text string
	// Code is the public error code (spec §7.2) of a FailedDelivery; empty where none fits, and for all other kinds.
	Code string
	// SentAt is the platform's time of it; the zero time when it doesn't say, or says something that can't be.
	SentAt time.Time
}

// Objects are the values of `object` by which the social platform says what a delivery is about (spec §4.3). Empty
// fields mean the defaults page, instagram and whatsapp_business_account.
type Objects struct{ Page, PhotoDM, ChatApp string }

// written makes in what the customer sent: Text if there is any, at most MaxText bytes by [textOf], otherwise
// Media if media names some, otherwise nothing.
func (in Inbound) written(text, media string) Inbound {
	in.Kind, in.Text = 0, text
	switch {
	case strings.TrimSpace(in.Text) != "":
		in.Kind = Text
	case media != "":
		in.Kind, in.Text = Media, media
	}
	return in
}

// echoed makes in a message of the business itself.
func (in Inbound) echoed(text, media string) Inbound {
	in = in.written(text, mediaName(media))
	in.Kind = HumanEcho
	return in
}
