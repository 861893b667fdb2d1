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
	if err := event.read(body); err != nil {
		return nil, err
	}
	in := Inbound{Type: LocalChat, MessageID: event.messageID, SentAt: event.timestamp.time()}
	account, customer := event.recipient, event.sender
	kind, fromCustomer := strings.CutPrefix(event.name, "user_send_")
	switch {
	case event.name == "user_send_text":
		in = in.written(event.text, "")
	case fromCustomer:
		in = in.written("", localChatMedia(kind))
	case event.fromStaff():
		account, customer = customer, account
		in = in.echoed(event.text, strings.TrimPrefix(event.name, "oa_send_"))
	}
	in.ExternalID = cmp.Or(event.account, account)
	in.Conversation, in.Address = customer, customer
	found := inboundsOf(body)
	found.add(in)
	return found.all, nil
}

// localChatEvent is an event of an official account (docs.zaloplatforms.com). Where the account itself is the sender,
// sender and recipient change places.
type localChatEvent struct {
	name, account            string
	timestamp                moment
	sender, admin, recipient string
	messageID, text          string
}

func (e *localChatEvent) read(body []byte) error {
	event, err := object(body)
	if err != nil {
		return err
	}
	for w := members(event); w.next(); {
		switch w.key() {
		case "event_name":
			e.name = wordOf(w.value)
		case "oa_id":
			e.account = idOf(w.value)
		case "timestamp":
			e.timestamp = momentOf(w.value)
		case "sender":
			e.sender, e.admin = idIn(w.value, "id"), idIn(w.value, "admin_id")
		case "recipient":
			e.recipient = idIn(w.value, "id")
		case "message":
			e.readMessage(w.value)
		}
	}
	return nil
}

func (e *localChatEvent) readMessage(value []byte) {
	for w := members(value); w.next(); {
		switch w.key() {
		case "msg_id":
			e.messageID = idOf(w.value)
		case "text":
			e.text = textOf(w.value, MaxText)
		}
	}
}

// fromStaff reports whether a person of the business wrote to a customer; messages sent through the interface have no
// administrator.
func (e *localChatEvent) fromStaff() bool {
	return e.admin != "" && strings.HasPrefix(e.name, "oa_send_") && !strings.HasPrefix(e.name, "oa_send_group_")
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
