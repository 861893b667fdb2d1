// Package codes is the only table of the codes that say why a conversation needs attention or a message wasn't sent: who ends that state
// and until when, who is notified, and the words for staff. The queue and the worker act by it, the dashboard shows its words, and a test
// writes it into docs/conversations.md.
package codes

import (
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// Ending says how an unanswered turn or an unsent part ends.
type Ending string

// The endings.
const (
	WithCause  Ending = "cause"    // the worker checks every few seconds whether the cause is gone
	InTime     Ending = "time"     // the worker tries again, with growing pauses
	ByText     Ending = "text"     // the customer's next text is answered together with the unanswered ones
	ByPerson   Ending = "person"   // a person sends something; the customer's next text ends it also
	ByOperator Ending = "operator" // only a retry by hand
)

// Life is the time, counted from the beginning of the turn or part, for which the worker tries again by itself, if the code ends [WithCause] or
// [InTime]. A later answer is of no use.
const Life = 24 * time.Hour

// The codes. A code that is also an error of the contract has the contract's name.
const (
	InsufficientCredits  = string(errcode.InsufficientCredits)
	BudgetExceeded       = string(errcode.PlanLimitExceeded)
	Suspended            = string(errcode.OrganizationSuspended)
	NeedsReauth          = string(errcode.ChannelNeedsReauth)
	UnsupportedModel     = string(errcode.UnsupportedModel)
	InvalidRequest       = string(errcode.InvalidRequest)
	ContextTooLong       = string(errcode.ContextTooLong)
	ProviderError        = string(errcode.ProviderError)
	ProviderOverloaded   = string(errcode.ProviderOverloaded)
	ProviderTimeout      = string(errcode.ProviderTimeout)
	InternalError        = string(errcode.InternalError)
	ServiceWindowExpired = string(errcode.ServiceWindowExpired)
	TemplateRequired     = string(errcode.TemplateRequired)

	NoAgent         = "no_agent"
	LoopGuard       = "loop_guard"
	EmptyAnswer     = "empty_answer"
	Unreadable      = "unreadable_message"
	TooOld          = "message_too_old"
	Draft           = "draft_waiting" // nothing failed: the assistant proposes an answer
	Media           = "media_message" // the customer wrote no text, and the channel has no notice for that
	SendFailed      = "send_failed"
	SendRefused     = "send_refused"
	CustomerBlocked = "customer_blocked"
	NotDelivered    = "failed" // the platform accepted the message, and reported later that it did not arrive
	DeliveryUnknown = "delivery_unknown"
	TemplatePaused  = "template_paused"  // the platform has paused the template for some hours
	TemplateRefused = "template_refused" // or not like this
)

// Reason describes a code.
type Reason struct {
	Ends Ending
	// Operator reports whether the code also concerns the operator, who has the log, the metrics and the list of dead turns. The organization
	// always has the conversation's attention.
	Operator bool
	// AssistantFailed reports whether the code is a failure of the assistant, rather than a lack of funds, a channel or an agent.
	AssistantFailed bool
	// Conversation is the text for staff about a conversation with the code, and Message that about a message that failed with it: first the
	// event, then the remedy. Message is empty if no message fails with the code.
	Conversation, Message string
}

// All are the reasons by code.
var All = map[string]Reason{
	InsufficientCredits: {
		Ends:         WithCause,
		Conversation: "The wallet can't pay for an answer. Answers resume by themselves when it is topped up.",
	},
	BudgetExceeded: {
		Ends:         WithCause,
		Conversation: "A budget has too little left for an answer. Answers resume by themselves when it begins again or is raised.",
	},
	Suspended: {
		Ends:         WithCause,
		Conversation: "The organization is suspended. Answers resume by themselves when the suspension ends.",
	},
	NoAgent: {
		Ends:         WithCause,
		Conversation: "The channel has no assistant. Answers resume by themselves when it has one.",
	},
	NeedsReauth: {
		Ends:         WithCause,
		Conversation: "The channel must be reconnected. Messages and answers wait for that and go out by themselves.",
		Message:      "The platform no longer accepts the channel's token. Reconnect the channel, then send the message again.",
	},
	LoopGuard: {
		Ends: InTime,
		Conversation: "The assistant has sent 20 messages within ten minutes: is the customer a bot? " +
			"Answers resume by themselves after ten minutes.",
	},
	ProviderError: {
		Ends: InTime, Operator: true, AssistantFailed: true,
		Conversation: "The model provider fails. The answer is tried again for 24 hours.",
	},
	ProviderOverloaded: {
		Ends: InTime, Operator: true,
		Conversation: "The model provider is overloaded. The answer is tried again for 24 hours.",
	},
	ProviderTimeout: {
		Ends: InTime, Operator: true,
		Conversation: "The model provider doesn't answer in time. The answer is tried again for 24 hours.",
	},
	InternalError: {
		Ends: InTime, Operator: true, AssistantFailed: true,
		Conversation: "The service failed. The answer is tried again for 24 hours.",
	},
	SendFailed: {
		Ends:         InTime,
		Conversation: "The platform could not be reached. A message is tried for 24 hours; after that, send it again.",
		Message:      "The platform could not be reached, or was overloaded, for too long. Send it again.",
	},
	UnsupportedModel: {
		Ends: ByText, AssistantFailed: true,
		Conversation: "The assistant's model is no longer available. Choose another one; answers resume when the customer writes again.",
	},
	InvalidRequest: {
		Ends: ByText, AssistantFailed: true,
		Conversation: "The assistant's model can't be asked in this form. Choose another one; answers resume when the customer writes again.",
	},
	ContextTooLong: {
		Ends: ByText, AssistantFailed: true,
		Conversation: "The instructions and the message are too long for the model. " +
			"Shorten the instructions; answers resume when the customer writes again.",
	},
	EmptyAnswer: {
		Ends: ByText, AssistantFailed: true,
		Conversation: "The model's answer was empty. Answers resume when the customer writes again.",
	},
	Unreadable: {
		Ends: ByText, AssistantFailed: true,
		Conversation: "The message can't be decrypted. Answers resume when the customer writes again.",
		Message:      "Its text can no longer be decrypted. Write it again.",
	},
	TooOld: {
		Ends: ByText,
		Conversation: "The customer wrote too long ago for the channel's assistant to answer. Answer yourself, or let the assistant try again; " +
			"answers resume when the customer writes again.",
		Message: "It could not be sent before the customer's message was too old for the channel's assistant. Answer yourself.",
	},
	Draft: {
		Ends:         ByPerson,
		Conversation: "The assistant proposes an answer, and the customer gets it when one of you sends it.",
	},
	Media: {
		Ends: ByPerson,
		Conversation: "The customer sent something without a text, which the assistant can't read. Answer yourself; a text of the customer's is " +
			"answered by the assistant.",
	},
	ServiceWindowExpired: {
		Ends: ByPerson,
		Conversation: "A message came too long after the customer's last one, and the platform didn't accept it. " +
			"You can write again when the customer does.",
		Message: "The customer's last message is too old: the platform no longer accepts free text. You can write again when the customer does.",
	},
	TemplateRequired: {
		Ends: ByPerson,
		Conversation: "A message came more than 24 hours after the customer wrote: the platform now accepts only approved templates. " +
			"Send one. Answers resume when the customer writes again.",
		Message: "The customer wrote more than 24 hours ago: the platform now accepts only approved templates. " +
			"Send one. You can write again when the customer does.",
	},
	TemplatePaused: {
		Ends: ByPerson,
		Conversation: "The platform has paused a template for some hours, because many customers didn't want it. " +
			"Send it again later, or another one.",
		Message: "The platform has paused this template for some hours, because many customers didn't want it. Send it again later.",
	},
	TemplateRefused: {
		Ends:         ByPerson,
		Conversation: "The platform no longer accepts a template, or not with these values. Send another one.",
		Message:      "The platform no longer accepts this template, or not with these values. Send another one.",
	},
	CustomerBlocked: {
		Ends:         ByPerson,
		Conversation: "A message wasn't delivered: the customer has blocked you, or is gone. Answers resume when the customer writes again.",
		Message:      "The customer has blocked you, or is gone. If they are back, send it again.",
	},
	SendRefused: {
		Ends:         ByPerson,
		Conversation: "The platform refused a message. Write it in other words; the operator finds the platform's reason in the worker's log.",
		Message:      "The platform refused this message. Write it in other words; the operator finds the platform's reason in the worker's log.",
	},
	NotDelivered: {
		Ends:         ByPerson,
		Conversation: "The platform reported that a message did not arrive. Send it again.",
		Message:      "The platform accepted it, and reported later that it did not arrive. Send it again.",
	},
	DeliveryUnknown: {
		Ends: ByPerson,
		Conversation: "It is unknown whether the customer has a message: the connection broke while it was sent. " +
			"Look at the conversation at the platform, and send the message again if it is missing there.",
		Message: "It is unknown whether the customer has this: the connection broke while it was sent, and it is not sent twice by itself. " +
			"Look at the conversation at the platform, and send it again if it is missing there.",
	},
}

// Of returns the reason of a code. Unknown codes, which another version has written, are the operator's.
func Of(code string) Reason {
	if known, ok := All[code]; ok {
		return known
	}
	return Reason{
		Ends: ByOperator, Operator: true,
		Conversation: "An answer or a message failed. Look at the messages, and ask the operator for the reason.",
		Message:      "It failed for a reason that this page doesn't know. Ask the operator.",
	}
}
