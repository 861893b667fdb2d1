package worker

// Observer counts what the worker does. Its methods are called from many goroutines and must not block.
type Observer interface {
	// Leased counts conversations that were taken.
	Leased(n int)
	// LeaseLost counts conversations whose lease ran out while the worker had them.
	LeaseLost()
	// TurnEnded counts passes over a turn by how they ended: "answered", "superseded", "discarded", "retried",
	// "postponed", "released", or "attention_" or "dead_" with the code.
	TurnEnded(outcome string)
	// Sent counts tries to send by type of channel and outcome: "sent", or what the platform's error came to
	// (platforms.SendOutcome).
	Sent(channelType, outcome string)
}

type unobserved struct{}

func (unobserved) Leased(int)          {}
func (unobserved) LeaseLost()          {}
func (unobserved) TurnEnded(string)    {}
func (unobserved) Sent(string, string) {}

// How passes over a turn end, for [Observer.TurnEnded].
const (
	endedAnswered   = "answered"
	endedSuperseded = "superseded"
	endedDiscarded  = "discarded"
	endedRetried    = "retried"
	endedPostponed  = "postponed"
	endedReleased   = "released"
	endedAttention  = "attention_"
	endedDead       = "dead_"
)
