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
	var push marketBPush
	if err := decode(body, &push); err != nil {
		return nil, err
	}
	shop := cmp.Or(push.ShopID, push.SellerID)
	switch push.MessageType {
	case marketBChat:
		return appendComplete(nil, push.Data.inbound(shop)), nil
	case marketBTokenExpiry:
		return appendComplete(nil, Inbound{Type: MarketB, ExternalID: string(shop), Kind: TokenExpiring}), nil
	default:
		return nil, nil
	}
}

type marketBPush struct {
	MessageType identifier     `json:"message_type"`
	ShopID      identifier     `json:"shop_id"`
	SellerID    identifier     `json:"seller_id"`
	Data        marketBMessage `json:"data"`
}

type marketBMessage struct {
	SessionID       identifier `json:"session_id"`
	MessageID       identifier `json:"message_id"`
	FromAccountType identifier `json:"from_account_type"`
	TemplateID      identifier `json:"template_id"`
	Type            identifier `json:"type"`
	Status          identifier `json:"status"`
	AutoReply       flag       `json:"auto_reply"`
	ProcessMsg      string     `json:"process_msg"`
	SendTime        moment     `json:"send_time"`
	Content         nested[struct {
		Txt string `json:"txt"`
	}] `json:"content"`
}

func (m *marketBMessage) inbound(shop identifier) Inbound {
	in := Inbound{
		Type:         MarketB,
		ExternalID:   string(shop),
		Conversation: string(m.SessionID),
		Address:      string(m.SessionID),
		MessageID:    string(m.MessageID),
		SentAt:       m.SendTime.time(),
	}
	ordinary := cmp.Or(m.Type, "1") == "1" && cmp.Or(m.Status, "0") == "0" && !bool(m.AutoReply) && m.ProcessMsg == ""
	if !ordinary {
		return Inbound{}
	}
	text, media := m.Content.value.Txt, ""
	if m.TemplateID != "1" {
		text, media = "", marketBMedia(m.TemplateID)
	}
	switch m.FromAccountType {
	case "1": // a customer
		return in.written(text, media)
	case "2": // a seller
		return in.echoed(text, media)
	default:
		return Inbound{}
	}
}

// marketBMedia names what a message of the template is.
func marketBMedia(template identifier) string {
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
