package dashboard

import "github.com/caddy-svc/caddy-svc/internal/errcode"

// attentionWords say why messages stand unanswered, and what goes on then (docs/channels.md); an unknown code stays itself.
func attentionWords(code string) string {
	switch code {
	case string(errcode.InsufficientCredits):
		return "The wallet can't carry an answer. It goes on by itself when there is more money in it."
	case string(errcode.OrganizationSuspended):
		return "The organization is suspended. It goes on by itself when it is resumed."
	case "no_agent":
		return "The channel has no assistant. It goes on by itself when it has one."
	case string(errcode.ChannelNeedsReauth):
		return "The channel must be reconnected. It goes on by itself afterwards."
	case string(errcode.UnsupportedModel):
		return "The assistant's model is not available any more. Choose another one; it goes on when the customer writes again."
	case string(errcode.ContextTooLong):
		return "The instructions and the message are too long for the model. Shorten the instructions; it goes on when the customer writes again."
	case "empty_answer":
		return "The model said nothing. It goes on when the customer writes again."
	case "loop_guard":
		return "The assistant has sent 20 messages within ten minutes: is it speaking to another bot? " +
			"It goes on when the customer writes after a pause."
	default:
		return code
	}
}

// deliveryWords are the state of a delivery.
func deliveryWords(state string) string {
	switch state {
	case "pending":
		return "Waits to be sent"
	case "sending":
		return "Is being sent"
	case "sent":
		return "Sent"
	case "failed":
		return "Not delivered"
	case "delivery_unknown":
		return "Unclear"
	case "discarded":
		return "Discarded, not sent"
	default:
		return state
	}
}

// failureWords say why something wasn't sent and what helps; "" for codes that aren't about sending.
func failureWords(code string) string {
	switch code {
	case string(errcode.ChannelNeedsReauth):
		return "The platform doesn't take the channel's token any more. Reconnect the channel, then send it again."
	case string(errcode.ServiceWindowExpired):
		return "The customer wrote too long ago: the platform takes no free text any more. You can write again when the customer does."
	case string(errcode.TemplateRequired):
		return "The customer wrote more than 24 hours ago: the platform takes only approved templates now, which can't be sent from here. " +
			"You can write again when the customer does."
	case "customer_blocked":
		return "The customer has blocked you, or is gone."
	case "send_refused":
		return "The platform refused this message. The operator finds its reason in the worker's log."
	case "send_failed":
		return "The platform could not be reached, or asked for patience, for too long."
	case "failed":
		return "The platform took it, and reported later that it did not arrive."
	default:
		return ""
	}
}
