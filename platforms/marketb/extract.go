package marketb

import (
	"cmp"
	"time"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// Message types of marketplace B (open.lazada.com, push mechanism).
const (
	chatPush   = "2"
	expiryPush = "8"
)

// Extract reads one push of marketplace B: a chat message, of a customer or of the shop itself, or the warning that
// the shop's token ends within two days. A recalled message was taken back. Orders and sessions hold nothing.
func (*market) Extract(body []byte) ([]platforms.Inbound, error) {
	push, err := platforms.ParseObject(body)
	if err != nil {
		return nil, err
	}
	var kind, shop, seller string
	var data platforms.Value
	for w := push.Members(); w.Next(); {
		switch w.Key() {
		case "message_type":
			kind = w.Value.ID()
		case "shop_id":
			shop = w.Value.ID()
		case "seller_id":
			seller = w.Value.ID()
		case "data":
			data = w.Value
		}
	}
	shop = cmp.Or(shop, seller)
	found := platforms.Collect(len(body))
	switch kind {
	case chatPush:
		var m message
		m.read(data)
		in := m.inbound(shop)
		if in.Kind == platforms.Media || in.Kind == platforms.HumanEcho {
			found.Attach(&in, m.attachment())
		}
		found.Add(in)
	case expiryPush:
		found.Add(platforms.Inbound{Type: Type, ExternalID: shop, Kind: platforms.TokenExpiring})
	}
	return found.All(), nil
}

type message struct {
	session, id      string
	fromAccountType  string
	template         string
	kind, status     string
	automatic, noted bool
	sentAt           time.Time
	content          platforms.Value
}

func (m *message) read(value platforms.Value) {
	for w := value.Members(); w.Next(); {
		switch w.Key() {
		case "session_id":
			m.session = w.Value.ID()
		case "message_id":
			m.id = w.Value.ID()
		case "from_account_type":
			m.fromAccountType = w.Value.ID()
		case "template_id":
			m.template = w.Value.ID()
		case "type":
			m.kind = w.Value.ID()
		case "status":
			m.status = w.Value.ID()
		case "auto_reply":
			m.automatic = w.Value.Flag()
		case "process_msg":
			m.noted = w.Value.Name() != ""
		case "send_time":
			m.sentAt = w.Value.Time()
		case "content":
			m.content = w.Value
		}
	}
}

// messageID returns the id of a message within its shop. The platform's own is unique only within its session.
func messageID(session, id string) string {
	if session == "" || id == "" {
		return ""
	}
	return session + ":" + id
}

func (m *message) inbound(shop string) platforms.Inbound {
	in := platforms.Inbound{
		Type:         Type,
		ExternalID:   shop,
		Conversation: m.session,
		Address:      m.session,
		MessageID:    messageID(m.session, m.id),
		SentAt:       m.sentAt,
	}
	const ordinary, recalled = "0", "1"
	status := cmp.Or(m.status, ordinary)
	switch {
	case cmp.Or(m.kind, "1") != "1":
		return platforms.Inbound{}
	case status == recalled:
		in.Kind = platforms.Unsent
		return in
	case status != ordinary || m.noted:
		return platforms.Inbound{}
	}
	text, media := "", ""
	if m.template == "1" {
		text = m.content.Nested().Member("txt").Text(platforms.MaxText)
	} else {
		media = mediaOf(m.template)
	}
	const customer, seller = "1", "2"
	switch {
	case m.fromAccountType == customer && !m.automatic:
		return in.WithContent(text, media)
	case m.fromAccountType == seller && m.automatic:
		return in.AsAutomatic(text, media)
	case m.fromAccountType == seller:
		return in.AsEcho(text, media)
	default:
		return platforms.Inbound{}
	}
}

// attachment returns the picture of a message. A video has no address of its own.
func (m *message) attachment() (a platforms.Attachment) {
	if m.template != "3" {
		return a
	}
	content := m.content.Nested()
	for _, name := range []string{"imgUrl", "img_url", "url"} { // the documentation of deliveries doesn't name it; sending has img_url
		if address := content.Member(name).Reference(); platforms.IsAddress(address) {
			return platforms.Attachment{Kind: "image", Reference: address}
		}
	}
	return a
}

// mediaOf names what a message of the template is.
func mediaOf(template string) string {
	switch template {
	case "3":
		return "image"
	case "4":
		return "sticker"
	case "6":
		return "video"
	case "10006":
		return "item"
	case "10007":
		return "order"
	case "10008":
		return "voucher"
	default:
		return "attachment"
	}
}
