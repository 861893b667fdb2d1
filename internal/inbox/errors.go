package inbox

import "errors"

// The errors a caller tells apart with [errors.Is]; besides these, [store.ErrNotFound] and the store's faults. None of
// them carries anything a customer or a tenant wrote.
var (
	// ErrLeaseLost: another worker has the conversation, it was given back, or it is gone. Nothing was written.
	ErrLeaseLost = errors.New("inbox: the lease is lost")
	// ErrHandedOver: a human has the conversation, or the customer has blocked the channel. The turn or the part of an
	// answer was discarded, if it was not already.
	ErrHandedOver = errors.New("inbox: the conversation was handed over")
	// ErrEnded: the turn or the message is not in a state that allows it; somebody else has ended it, or it never was.
	ErrEnded = errors.New("inbox: the turn or message has ended")
	// ErrConversationClosed: the customer has blocked the channel, so that nothing can be sent.
	ErrConversationClosed = errors.New("inbox: the conversation is closed")
	// ErrInvalid: the caller's own values can't be stored.
	ErrInvalid = errors.New("inbox: invalid")
)
