package platforms

import "cmp"

// Push codes of marketplace A (open.shopee.com, push mechanism).
const (
	marketAChat        = "10"
	marketATokenExpiry = "12"
)

// maxExpiring bounds the shops that one push warns of; the platform sends its list in pages.
const maxExpiring = 1000

// ExtractMarketA reads one push of marketplace A: a chat message, of a customer or of the shop itself, or the warning that
// shops' authorizations end within a week (of up to 1,000 shops). Orders, authorizations and notices hold nothing.
func ExtractMarketA(body []byte) ([]Inbound, error) {
	push, err := object(body)
	if err != nil {
		return nil, err
	}
	var code, shop, seller string
	var data []byte
	for w := members(push); w.next(); {
		switch w.key() {
		case "code":
			code = idOf(w.value)
		case "shop_id":
			shop = idOf(w.value)
		case "seller_id":
			seller = idOf(w.value)
		case "data":
			data = w.value
		}
	}
	shop = cmp.Or(shop, seller)
	switch code {
	case marketAChat:
		return marketAChatMessage(data, shop), nil
	case marketATokenExpiry:
		return marketAExpiring(data, shop), nil
	default:
		return nil, nil
	}
}

func marketAChatMessage(data []byte, shop string) []Inbound {
	kind, content := "", []byte(nil)
	for w := members(data); w.next(); {
		switch w.key() {
		case "type":
			kind = wordOf(w.value)
		case "content":
			content = w.value
		}
	}
	if kind != "message" {
		return nil
	}
	var m marketAMessage
	m.read(nested(content))
	found := inboundsOf(data)
	found.add(m.inbound(shop))
	return found.all
}

// marketAExpiring adds a warning for each shop of the list; where there is none, for the shop of the push.
func marketAExpiring(data []byte, shop string) []Inbound {
	var shops []byte
	for w := members(data); w.next(); {
		if w.key() == "shop_expire_soon" {
			shops = w.value
		}
	}
	found := inbounds{most: maxExpiring}
	listed := 0
	for w := elements(shops); w.next() && listed < maxExpiring; listed++ {
		found.add(Inbound{Type: MarketA, ExternalID: idOf(w.value), Kind: TokenExpiring})
	}
	if listed == 0 {
		found.add(Inbound{Type: MarketA, ExternalID: shop, Kind: TokenExpiring})
	}
	return found.all
}

// marketAMessage is one chat message. Its shop is the sender's, not the one that the push is for: customers have shops too.
type marketAMessage struct {
	id, conversation string
	shop, fromShop   string
	from, fromName   string
	to               string
	kind             string
	createdAt        moment
	content          []byte
}

func (m *marketAMessage) read(value []byte) {
	for w := members(value); w.next(); {
		switch w.key() {
		case "message_id":
			m.id = idOf(w.value)
		case "conversation_id":
			m.conversation = idOf(w.value)
		case "shop_id":
			m.shop = idOf(w.value)
		case "from_shop_id":
			m.fromShop = idOf(w.value)
		case "from_id":
			m.from = idOf(w.value)
		case "from_user_name":
			m.fromName = textOf(w.value, MaxName)
		case "to_id":
			m.to = idOf(w.value)
		case "message_type":
			m.kind = wordOf(w.value)
		case "created_timestamp":
			m.createdAt = momentOf(w.value)
		case "content":
			m.content = w.value
		}
	}
}

func (m *marketAMessage) inbound(shop string) Inbound {
	in := Inbound{
		Type:         MarketA,
		ExternalID:   shop,
		Conversation: cmp.Or(m.conversation, m.from),
		Address:      m.from,
		MessageID:    m.id,
		SentAt:       m.createdAt.time(),
	}
	text, media := "", ""
	if m.kind == "text" {
		text = textIn(nested(m.content), "text")
	} else {
		media = mediaName(m.kind)
	}
	if m.fromShop == shop || m.shop == shop {
		in.Conversation, in.Address = cmp.Or(m.conversation, m.to), m.to
		return in.echoed(text, media)
	}
	in.CustomerName = m.fromName
	return in.written(text, media)
}
