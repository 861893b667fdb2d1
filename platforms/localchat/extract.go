package localchat

import (
	"cmp"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// Extract reads one event. Only user_send_text is a message; other things
// that a customer sends are only shown, and what the business sends is an echo: a person's if it names an administrator, else an
// automatic one. A customer who withdraws their consent wants everything deleted. All other events, groups
// and anonymous users among them, hold nothing.
func (*localChat) Extract(body []byte) ([]platforms.Inbound, error) {
	var e event
	if err := e.read(body); err != nil {
		return nil, err
	}
	in := platforms.Inbound{Type: Type, MessageID: e.messageID, SentAt: e.timestamp}
	account, customer := e.recipient, e.sender
	kind, fromCustomer := strings.CutPrefix(e.name, "user_send_")
	switch {
	case e.name == "user_withdraw":
		in.Kind, in.MessageID, customer = platforms.ErasureWanted, "", e.user
	case e.name == "user_send_text":
		in = in.WithContent(e.text, "")
	case fromCustomer:
		in = in.AsEvent(mediaOf(kind))
	case e.fromAccount():
		account, customer = customer, account
		if media := strings.TrimPrefix(e.name, "oa_send_"); e.admin != "" {
			in = in.AsEcho(e.text, media)
		} else {
			in = in.AsAutomatic(e.text, media)
		}
	}
	in.ExternalID = cmp.Or(e.account, account)
	in.Conversation, in.Address = customer, customer
	found := platforms.Collect(len(body))
	found.Add(in)
	return found.All(), nil
}

// Named implements [platforms.ChannelSigned]. Which of sender and recipient is the account depends on the event.
func (l *localChat) Named(d *platforms.Delivery) (named []platforms.Channel) {
	var e event
	if !verify.HasDigest(d.Header, cmp.Or(l.config.Options["header"], verify.LocalChatHeader), "mac=") || e.read(d.Body) != nil {
		return nil
	}
	for _, id := range []string{e.account, e.recipient, e.sender} {
		if id != "" {
			named = append(named, platforms.Channel{Type: Type, ExternalID: id})
		}
	}
	return named
}

// event is an event of an official account (docs.zaloplatforms.com). Where the account itself is the sender,
// sender and recipient change places.
type event struct {
	name, account            string
	timestamp                time.Time
	sender, admin, recipient string
	user                     string // whom an event without sender is about
	messageID, text          string
}

func (e *event) read(body []byte) error {
	object, err := platforms.ParseObject(body)
	if err != nil {
		return err
	}
	for w := object.Members(); w.Next(); {
		switch w.Key() {
		case "event_name":
			e.name = w.Value.Word()
		case "oa_id":
			e.account = w.Value.ID()
		case "timestamp":
			e.timestamp = w.Value.Time()
		case "sender":
			e.sender, e.admin = w.Value.Member("id").ID(), w.Value.Member("admin_id").ID()
		case "recipient":
			e.recipient = w.Value.Member("id").ID()
		case "user_id":
			e.user = w.Value.ID()
		case "message":
			e.readMessage(w.Value)
		}
	}
	return nil
}

func (e *event) readMessage(value platforms.Value) {
	for w := value.Members(); w.Next(); {
		switch w.Key() {
		case "msg_id":
			e.messageID = w.Value.ID()
		case "text":
			e.text = w.Value.Text(platforms.MaxText)
		}
	}
}

// fromAccount reports whether the business wrote to a customer. Only a message that a person typed in the platform's own tool has
// an administrator; automatic replies and messages of the interface have none.
func (e *event) fromAccount() bool {
	return strings.HasPrefix(e.name, "oa_send_") && !strings.HasPrefix(e.name, "oa_send_group_")
}

// mediaOf returns the short name of a message without text; empty for events that are no message of one customer.
func mediaOf(kind string) string {
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
