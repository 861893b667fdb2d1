package bot

import (
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// Extract reads one update of the bot platform (core.telegram.org/bots/api, Update): a message in a private chat, its new text,
// or the customer's block of the bot. Groups, other bots, reactions and all other updates are skipped.
func (*bot) Extract(body []byte) ([]platforms.Inbound, error) {
	update, err := platforms.ParseObject(body)
	if err != nil {
		return nil, err
	}
	found := platforms.Collect(len(body))
	found.ByChannel()
	var m message
	m.read(update.Member("message"))
	in := m.inbound()
	if in.Kind != 0 {
		found.Attach(&in, m.attachment())
	}
	found.Add(in)
	var edited message
	edited.read(update.Member("edited_message"))
	found.Add(edited.inbound().AsEdited())
	found.Add(blocked(update.Member("my_chat_member")))
	return found.All(), nil
}

type message struct {
	id        string
	from      sender
	chat      chat
	topic     string
	isTopic   bool // topic belongs to the chat
	date      time.Time
	text      string
	caption   string
	mediaRank int
	media     platforms.Value // of the member with mediaRank
}

// mediaMembers are the members of a message that name its content, with our names for them. The first member that is present
// counts: an animation, for example, also has a document. An album arrives as a message for each picture, of which one has the
// caption; only that message becomes a Text and is answered.
var mediaMembers = []struct{ member, media string }{
	{"photo", "image"},
	{"video", "video"},
	{"video_note", "video"},
	{"animation", "animation"},
	{"audio", "audio"},
	{"voice", "audio"},
	{"document", "file"},
	{"sticker", "sticker"},
	{"dice", "sticker"},
	{"location", "location"}, // venues have it as well
	{"contact", "contact"},
	{"poll", "poll"},
	{"story", "attachment"},
	{"paid_media", "attachment"},
}

func (m *message) read(value platforms.Value) {
	m.mediaRank = len(mediaMembers)
	var from platforms.Value
	value.Read([]platforms.Field{
		{Name: "message_id", ID: &m.id},
		{Name: "from", Value: &from},
		{Name: "id", Of: "chat", ID: &m.chat.id},
		{Name: "type", Of: "chat", Word: &m.chat.kind},
		{Name: "message_thread_id", ID: &m.topic},
		{Name: "is_topic_message", Flag: &m.isTopic},
		{Name: "date", Time: &m.date},
		{Name: "text", Text: &m.text},
		{Name: "caption", Text: &m.caption},
	})
	from.Read([]platforms.Field{
		{Name: "is_bot", Flag: &m.from.isBot},
		{Name: "first_name", Person: &m.from.first},
		{Name: "last_name", Person: &m.from.last},
		{Name: "username", Person: &m.from.username},
	})
	for w := value.Members(); w.Next(); {
		for rank := range mediaMembers[:m.mediaRank] {
			if w.Key() == mediaMembers[rank].member && w.Value.Given() {
				m.mediaRank, m.media = rank, w.Value
				break
			}
		}
	}
}

func (m *message) inbound() platforms.Inbound {
	if !m.chat.private() || m.from.isBot {
		return platforms.Inbound{}
	}
	in := platforms.Inbound{
		Type:         Type,
		Conversation: m.chat.id,
		Address:      m.chat.id,
		CustomerName: m.from.name(),
		SentAt:       m.date,
	}
	if m.isTopic && platforms.IsDigits(m.topic) {
		in.Address += ":" + m.topic
	}
	if m.id != "" {
		in.MessageID = m.chat.id + ":" + m.id // the platform's id is unique only within its chat
	}
	media := "" // as in service messages, such as a new title of the chat
	if m.mediaRank < len(mediaMembers) {
		media = mediaMembers[m.mediaRank].media
	}
	return in.WithContent(platforms.FirstText(m.text, m.caption), media)
}

// attachment returns the file of the message. It is empty for a message without a file, and for animated stickers and dice, which
// have a format of their own.
func (m *message) attachment() platforms.Attachment {
	if m.mediaRank >= len(mediaMembers) {
		return platforms.Attachment{}
	}
	a := platforms.Attachment{Kind: mediaMembers[m.mediaRank].media}
	switch member := mediaMembers[m.mediaRank].member; member {
	case "photo":
		a.Reference = largest(m.media)
	case "animation":
		a.Kind = "video"
		a.Reference = m.media.Member("file_id").Reference()
	case "video", "video_note", "audio", "voice", "document", "sticker":
		a.Reference = m.media.Member("file_id").Reference()
	}
	a.Name = m.media.Member("file_name").Name()
	return a
}

// largest returns the id of the largest size of a photo that may be fetched. The sizes come in rising order. A photo has up to 10
// MB, and all sizes but the original are far smaller than mostFetched.
func largest(sizes platforms.Value) (id string) {
	for w := sizes.Elements(); w.Next(); {
		bytes := w.Value.Member("file_size").ID()
		if id == "" || len(bytes) < len(mostFetched) || len(bytes) == len(mostFetched) && bytes <= mostFetched {
			id = w.Value.Member("file_id").Reference()
		}
	}
	return id
}

// mostFetched is the greatest number of bytes of a file that the product fetches, in decimal digits.
const mostFetched = "8388608"

// blocked reads a change of our membership in a chat. In a private chat it means that the customer blocked the bot.
func blocked(value platforms.Value) platforms.Inbound {
	var chat chat
	var date time.Time
	status := ""
	value.Read([]platforms.Field{
		{Name: "id", Of: "chat", ID: &chat.id},
		{Name: "type", Of: "chat", Word: &chat.kind},
		{Name: "date", Time: &date},
		{Name: "status", Of: "new_chat_member", Word: &status},
	})
	if !chat.private() || status != "kicked" {
		return platforms.Inbound{}
	}
	return platforms.Inbound{Type: Type, Kind: platforms.Blocked, Conversation: chat.id, Address: chat.id, SentAt: date}
}

type chat struct{ id, kind string }

// private reports whether the chat has only one customer. Without a type the id decides: the platform gives positive numbers to
// people and negative ones to groups and channels.
func (c *chat) private() bool {
	if c.kind != "" {
		return c.kind == "private"
	}
	return c.id != "" && strings.Trim(c.id, "0123456789") == "" && strings.Trim(c.id, "0") != ""
}

type sender struct {
	isBot                 bool
	first, last, username string
}

func (u *sender) name() string {
	if u.first != "" && u.last != "" {
		return platforms.JoinNames(u.first, u.last)
	}
	return platforms.FirstText(u.first, u.last, u.username)
}
