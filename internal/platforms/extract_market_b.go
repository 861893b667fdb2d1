package platforms

import "cmp"

// Message types of marketplace B (open.lazada.com, push mechanism).
const (
	marketBChat        = "2"
	marketBTokenExpiry = "8"
)

// ExtractMarketB reads one push of marketplace B: a chat message, of a customer or of the shop itself, or the warning that
// the shop's token ends within two days. Orders, sessions, recalled messages and automatic replies hold nothing.
func ExtractMarketB(body []byte) ([]Inbound, error) {
	push, err := object(body)
	if err != nil {
		return nil, err
	}
	var kind, shop, seller string
	var data []byte
	for w := members(push); w.next(); {
		switch w.key() {
		case "message_type":
			kind = idOf(w.value)
		case "shop_id":
			shop = idOf(w.value)
		case "seller_id":
			seller = idOf(w.value)
		case "data":
			data = w.value
		}
	}
	shop = cmp.Or(shop, seller)
	found := inboundsOf(body)
	switch kind {
	case marketBChat:
		var m marketBMessage
		m.read(data)
		found.add(m.inbound(shop))
	case marketBTokenExpiry:
		found.add(Inbound{Type: MarketB, ExternalID: shop, Kind: TokenExpiring})
	}
	return found.all, nil
}

type marketBMessage struct {
	session, id      string
	fromAccountType  string
	template         string
	kind, status     string
	automatic, noted bool
	sentAt           moment
	content          []byte
}

func (m *marketBMessage) read(value []byte) {
	for w := members(value); w.next(); {
		switch w.key() {
		case "session_id":
			m.session = idOf(w.value)
		case "message_id":
			m.id = idOf(w.value)
		case "from_account_type":
			m.fromAccountType = idOf(w.value)
		case "template_id":
			m.template = idOf(w.value)
		case "type":
			m.kind = idOf(w.value)
		case "status":
			m.status = idOf(w.value)
		case "auto_reply":
			m.automatic = flagOf(w.value)
		case "process_msg":
			m.noted = textOf(w.value, MaxName) != ""
		case "send_time":
			m.sentAt = momentOf(w.value)
		case "content":
			m.content = w.value
		}
	}
}

func (m *marketBMessage) inbound(shop string) Inbound {
	in := Inbound{
		Type:         MarketB,
		ExternalID:   shop,
		Conversation: m.session,
		Address:      m.session,
		MessageID:    m.id,
		SentAt:       m.sentAt.time(),
	}
	ordinary := cmp.Or(m.kind, "1") == "1" && cmp.Or(m.status, "0") == "0" && !m.automatic && !m.noted
	if !ordinary {
		return Inbound{}
	}
	text, media := "", ""
	if m.template == "1" {
		text = textIn(nested(m.content), "txt")
	} else {
		media = marketBMedia(m.template)
	}
	switch m.fromAccountType {
	case "1": // a customer
		return in.written(text, media)
	case "2": // a seller
		return in.echoed(text, media)
	default:
		return Inbound{}
	}
}

// marketBMedia names what a message of the template is.
func marketBMedia(template string) string {
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
