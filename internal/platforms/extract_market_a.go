package platforms

import "cmp"

// Push codes of marketplace A (open.shopee.com, push mechanism).
const (
	marketAChat        = "10"
	marketATokenExpiry = "12"
)

// ExtractMarketA reads one push of marketplace A: a chat message, of a customer or of the shop itself, or the warning that
// shops' authorizations end within a week. Orders, authorizations and notices hold nothing.
func ExtractMarketA(body []byte) ([]Inbound, error) {
	var push marketAPush
	if err := decode(body, &push); err != nil {
		return nil, err
	}
	shop := cmp.Or(push.ShopID, push.SellerID)
	switch push.Code {
	case marketAChat:
		if push.Data.Type != "message" {
			return nil, nil
		}
		return appendComplete(nil, push.Data.Content.value.inbound(shop)), nil
	case marketATokenExpiry:
		return push.expiring(shop), nil
	default:
		return nil, nil
	}
}

type marketAPush struct {
	Code     identifier `json:"code"`
	ShopID   identifier `json:"shop_id"`
	SellerID identifier `json:"seller_id"`
	Data     struct {
		Type           string                 `json:"type"`
		Content        nested[marketAMessage] `json:"content"`
		ShopExpireSoon []identifier           `json:"shop_expire_soon"`
	} `json:"data"`
}

// expiring adds a warning for each shop of the list; where there is none, for the shop of the push.
func (p *marketAPush) expiring(shop identifier) []Inbound {
	shops := p.Data.ShopExpireSoon
	if len(shops) == 0 {
		shops = []identifier{shop}
	}
	var all []Inbound
	for _, shop := range shops {
		all = appendComplete(all, Inbound{Type: MarketA, ExternalID: string(shop), Kind: TokenExpiring})
	}
	return all
}

// marketAMessage is one chat message. Its shop_id is the sender's shop, not the one that the push is for: customers have
// shops too.
type marketAMessage struct {
	MessageID        identifier `json:"message_id"`
	ConversationID   identifier `json:"conversation_id"`
	ShopID           identifier `json:"shop_id"`
	FromShopID       identifier `json:"from_shop_id"`
	FromID           identifier `json:"from_id"`
	FromUserName     string     `json:"from_user_name"`
	ToID             identifier `json:"to_id"`
	MessageType      string     `json:"message_type"`
	CreatedTimestamp moment     `json:"created_timestamp"`
	Content          nested[struct {
		Text string `json:"text"`
	}] `json:"content"`
}

func (m *marketAMessage) inbound(shop identifier) Inbound {
	in := Inbound{
		Type:         MarketA,
		ExternalID:   string(shop),
		Conversation: string(cmp.Or(m.ConversationID, m.FromID)),
		Address:      string(m.FromID),
		MessageID:    string(m.MessageID),
		SentAt:       m.CreatedTimestamp.time(),
	}
	text, media := m.Content.value.Text, ""
	if m.MessageType != "text" {
		text, media = "", mediaName(m.MessageType)
	}
	if m.FromShopID == shop || m.ShopID == shop {
		in.Conversation, in.Address = string(cmp.Or(m.ConversationID, m.ToID)), string(m.ToID)
		return in.echoed(text, media)
	}
	in.CustomerName = clean(m.FromUserName, MaxName)
	return in.written(text, media)
}
