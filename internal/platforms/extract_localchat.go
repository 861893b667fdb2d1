package platforms

import (
	"cmp"
	"strings"
)

// ExtractLocalChat reads one event of the local chat platform. Only user_send_text is a message (spec §4.3); other things
// that a customer sends are Media, and what a person of the business sends from the platform's own app is an echo. All
// other events, groups and anonymous users among them, hold nothing.
func ExtractLocalChat(body []byte) ([]Inbound, error) {
	var event localChatEvent
	if err := decode(body, &event); err != nil {
		return nil, err
	}
	in := Inbound{Type: LocalChat, MessageID: string(event.Message.MsgID), SentAt: event.Timestamp.time()}
	account, customer := event.Recipient.ID, event.Sender.ID
	kind, fromCustomer := strings.CutPrefix(event.EventName, "user_send_")
	switch {
	case event.EventName == "user_send_text":
		in = in.written(event.Message.Text, "")
	case fromCustomer:
		in = in.written("", localChatMedia(kind))
	case event.fromStaff():
		account, customer = customer, account
		in = in.echoed(event.Message.Text, strings.TrimPrefix(event.EventName, "oa_send_"))
	}
	in.ExternalID = string(cmp.Or(event.OAID, account))
	in.Conversation, in.Address = string(customer), string(customer)
	return appendComplete(nil, in), nil
}

// localChatEvent is an event of an official account (docs.zaloplatforms.com). Where the account itself is the sender,
// sender and recipient change places.
type localChatEvent struct {
	EventName string     `json:"event_name"`
	OAID      identifier `json:"oa_id"`
	Timestamp moment     `json:"timestamp"`
	Sender    struct {
		ID      identifier `json:"id"`
		AdminID identifier `json:"admin_id"`
	} `json:"sender"`
	Recipient struct {
		ID identifier `json:"id"`
	} `json:"recipient"`
	Message struct {
		MsgID identifier `json:"msg_id"`
		Text  string     `json:"text"`
	} `json:"message"`
}

// fromStaff tells whether a person of the business wrote to a customer; messages sent through the interface have no
// administrator.
func (e *localChatEvent) fromStaff() bool {
	return e.Sender.AdminID != "" && strings.HasPrefix(e.EventName, "oa_send_") && !strings.HasPrefix(e.EventName, "oa_send_group_")
}

// localChatMedia names what the customer sent; empty for what is no message of one customer.
func localChatMedia(kind string) string {
	switch kind {
	case "image", "audio", "video", "sticker", "location", "file", "link":
		return kind
	case "gif":
		return "image"
	case "business_card":
		return "contact"
	default:
		return ""
	}
}
