package marketa

import (
	"cmp"
	"time"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// Push codes of marketplace A (open.shopee.com, push mechanism).
const (
	chatPush   = "10"
	expiryPush = "12"
)

// maxExpiring limits the shops of one warning. The platform sends its list in pages.
const maxExpiring = 1000

// Extract reads one push of marketplace A: a chat message of a customer or of the shop, or the warning that shops' authorizations
// end within a week (for up to 1,000 shops). Orders and authorizations are skipped, and so are notifications, among them the
// reports of the platform's own bot.
func (*market) Extract(body []byte) ([]platforms.Inbound, error) {
	p, err := readPush(body)
	if err != nil {
		return nil, err
	}
	found := platforms.Collect(len(p.data))
	switch p.code {
	case chatPush:
		var kind string
		var content platforms.Value
		p.data.Read([]platforms.Field{{Name: "type", Word: &kind}, {Name: "content", Value: &content}})
		if kind == "message" {
			var m message
			m.read(content.Nested())
			m.add(&found, p.shop)
		}
	case expiryPush:
		return expiring(p.data, p.shop), nil
	}
	return found.All(), nil
}

// Named implements [platforms.ChannelSigned].
func (m *market) Named(d *platforms.Delivery) (named []platforms.Channel) {
	if !verify.HasDigest(d.Header, cmp.Or(m.config.Options["header"], verify.MarketAHeader), "") {
		return nil
	}
	p, err := readPush(d.Body)
	if err != nil {
		return nil
	}
	if p.shop != "" {
		return []platforms.Channel{{Type: Type, ExternalID: p.shop}}
	}
	if p.code != expiryPush {
		return nil
	}
	for _, in := range expiring(p.data, "") {
		if len(named) < platforms.MaxNamed && in.ExternalID != "" {
			named = append(named, platforms.Channel{Type: Type, ExternalID: in.ExternalID})
		}
	}
	return named
}

// push is the envelope of all pushes.
type push struct {
	code, shop string
	data       platforms.Value
}

func readPush(body []byte) (p push, err error) {
	object, err := platforms.ParseObject(body)
	if err != nil {
		return p, err
	}
	var seller string
	object.Read([]platforms.Field{
		{Name: "code", ID: &p.code},
		{Name: "shop_id", ID: &p.shop},
		{Name: "seller_id", ID: &seller},
		{Name: "data", Value: &p.data},
	})
	p.shop = cmp.Or(p.shop, seller)
	return p, nil
}

// expiring returns a warning for each shop of the list, or for the shop of the push if there is no list.
func expiring(data platforms.Value, shop string) []platforms.Inbound {
	found := platforms.CollectAtMost(maxExpiring)
	listed := 0
	for w := data.Member("shop_expire_soon").Elements(); w.Next() && listed < maxExpiring; listed++ {
		found.Add(platforms.Inbound{Type: Type, ExternalID: w.Value.ID(), Kind: platforms.TokenExpiring})
	}
	if listed == 0 {
		found.Add(platforms.Inbound{Type: Type, ExternalID: shop, Kind: platforms.TokenExpiring})
	}
	return found.All()
}

// message is one chat message. Its shop_id is the receiver's shop, so it doesn't show who wrote the message.
type message struct {
	id, conversation string
	fromShop         string
	from, fromName   string
	to               string
	kind, status     string
	source           string // the interface through which it was written, only in lists of messages
	business         string
	region           string
	createdAt        time.Time
	content          platforms.Value
}

func (m *message) read(value platforms.Value) {
	value.Read([]platforms.Field{
		{Name: "message_id", ID: &m.id},
		{Name: "conversation_id", ID: &m.conversation},
		{Name: "from_shop_id", ID: &m.fromShop},
		{Name: "from_id", ID: &m.from},
		{Name: "from_user_name", Person: &m.fromName},
		{Name: "to_id", ID: &m.to},
		{Name: "message_type", Word: &m.kind},
		{Name: "status", Word: &m.status},
		{Name: "source", Word: &m.source},
		{Name: "business_type", ID: &m.business},
		{Name: "region", Word: &m.region},
		{Name: "created_timestamp", Time: &m.createdAt},
		{Name: "content", Value: &m.content},
	})
}

// affiliates is the business_type of messages from people who advertise for shops. They are no customers: their messages are
// shown and not answered.
const affiliates = "11"

// add adds the items of a message to the shop's deliveries. The shop wrote the message if from_shop_id is the shop; any other
// from_shop_id is a buyer's, who may have a shop as well. Without from_shop_id only automatic replies are certainly the shop's.
// All others are Unsure, and the queue decides by known ids of messages and senders.
func (m *message) add(found *platforms.Collector, shop string) {
	in := platforms.Inbound{
		Type: Type, ExternalID: shop, Conversation: cmp.Or(m.conversation, m.from), Address: m.from, MessageID: m.id, SentAt: m.createdAt,
	}
	text, media := m.words()
	censored := m.status == "blocked" || m.status == "censored_blacklist" // the receiver has never seen it
	automatic := m.status == "auto_reply" || m.status == "offwork_autoreply"
	if m.fromShop == shop || m.fromShop == "" && automatic {
		in.Conversation, in.Address, in.Other = cmp.Or(m.conversation, m.to), m.to, business(m.from)
		if censored {
			failed := in
			failed.Kind, failed.Failure = platforms.FailedDelivery, platforms.Refused
			found.Add(failed)
		}
		if automatic {
			found.Add(in.AsAutomatic(text, media))
			return
		}
		in = in.AsEcho(text, media)
		found.Attach(&in, m.attachment())
		found.Add(in)
		return
	}
	if censored {
		return
	}
	in.CustomerName, in.Other = m.fromName, business(m.to)
	if m.business == affiliates {
		found.Add(in.AsEvent("affiliate_message"))
		return
	}
	in = in.WithContent(text, media)
	in.Unsure = m.fromShop == "" && m.from != "" && m.to != ""
	if in.Kind != 0 {
		found.Attach(&in, m.attachment())
	}
	found.Add(in)
}

func business(id string) *platforms.OtherIDs {
	if id == "" {
		return nil
	}
	return &platforms.OtherIDs{Business: id}
}

// fileHosts maps a region to the top-level domain of the host of its files.
var fileHosts = map[string]string{
	"BR": "com.br", "ID": "co.id", "MX": "com.mx", "MY": "com.my", "PH": "ph", "SG": "sg", "TH": "co.th", "TW": "tw", "VN": "vn",
}

// attachment returns the picture or video of a message. The platform sends a complete address, or only the name of a file.
func (m *message) attachment() (a platforms.Attachment) {
	content := m.content.Nested()
	switch m.kind {
	case "image", "image_with_text":
		a.Kind, a.Reference = "image", content.Member("url").Reference()
	case "video":
		a.Kind, a.Reference = "video", content.Member("video_url").Reference()
	}
	domain := fileHosts[m.region]
	switch {
	case platforms.IsAddress(a.Reference):
	case platforms.IsWord(a.Reference) && domain != "":
		a.Reference = "https://cf.shopee." + domain + "/file/" + a.Reference
	default:
		a.Reference = ""
	}
	return a
}

// words returns the text of a message, and a short name of its content if it isn't a text. faq_liveagent comes when a buyer
// presses the button for a person; its text says so.
func (m *message) words() (text, media string) {
	if m.kind == "text" || m.kind == "faq_liveagent" || m.kind == "image_with_text" {
		text = m.content.Nested().Member("text").Text(platforms.MaxText)
	}
	if m.kind != "text" {
		media = platforms.MediaName(m.kind)
	}
	return text, media
}
