package platforms

import "context"

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
