package platforms

import "context"

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
