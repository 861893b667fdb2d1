package platforms

import "strings"

// ExtractBot reads one update of the bot platform (core.telegram.org/bots/api, Update): a message in a private chat, or
// that the customer blocked the bot. Groups, other bots, edits, reactions and all other updates hold nothing.
func ExtractBot(body []byte) ([]Inbound, error) {
	update, err := object(body)
	if err != nil {
		return nil, err
	}
	found := inboundsOf(body)
	var m botMessage
	m.read(memberOf(update, "message"))
	found.add(m.inbound())
	found.add(botBlocked(memberOf(update, "my_chat_member")))
	return found.all, nil
}

type botMessage struct {
	id        string
	from      botUser
	chat      botChat
	date      moment
	text      string
	caption   string
	mediaRank int
}

// botMedia are the members of a message that name what it holds, and the names that we give it. Of several the first one
// counts: an animation, for one, comes with a document.
var botMedia = []struct{ member, media string }{
	{"photo", "image"},
	{"video", "video"},
	{"video_note", "video"},
	{"animation", "animation"},
	{"audio", "audio"},
	{"voice", "audio"},
	{"document", "file"},
	{"sticker", "sticker"},
	{"dice", "sticker"},
	{"location", "location"}, // also of venues
	{"contact", "contact"},
	{"poll", "poll"},
	{"story", "attachment"},
	{"paid_media", "attachment"},
}

func (m *botMessage) read(value []byte) {
	m.mediaRank = len(botMedia)
	for w := members(value); w.next(); {
		switch w.key() {
		case "message_id":
			m.id = idOf(w.value)
		case "from":
			m.from.read(w.value)
		case "chat":
			m.chat.read(w.value)
		case "date":
			m.date = momentOf(w.value)
		case "text":
			m.text = textOf(w.value, MaxText)
		case "caption":
			m.caption = textOf(w.value, MaxText)
		default:
			for rank := range botMedia[:m.mediaRank] {
				if w.key() == botMedia[rank].member && given(w.value) {
					m.mediaRank = rank
					break
				}
			}
		}
	}
}

func (m *botMessage) inbound() Inbound {
	if !m.chat.private() || m.from.isBot {
		return Inbound{}
	}
	in := Inbound{
		Type:         Bot,
		Conversation: m.chat.id,
		Address:      m.chat.id,
		CustomerName: m.from.name(),
		SentAt:       m.date.time(),
	}
	if m.id != "" {
		in.MessageID = m.chat.id + ":" + m.id // alone it is unique only inside its chat
	}
	media := "" // of service messages, like a new title of the chat
	if m.mediaRank < len(botMedia) {
		media = botMedia[m.mediaRank].media
	}
	return in.written(oneOf(m.text, m.caption), media)
}

// botBlocked reads a change of our membership in a chat: in a private one the customer blocked the bot.
func botBlocked(value []byte) Inbound {
	var chat botChat
	var date moment
	status := ""
	for w := members(value); w.next(); {
		switch w.key() {
		case "chat":
			chat.read(w.value)
		case "date":
			date = momentOf(w.value)
		case "new_chat_member":
			status = wordIn(w.value, "status")
		}
	}
	if !chat.private() || status != "kicked" {
		return Inbound{}
	}
	return Inbound{Type: Bot, Kind: Blocked, Conversation: chat.id, Address: chat.id, SentAt: date.time()}
}

type botChat struct{ id, kind string }

func (c *botChat) read(value []byte) {
	for w := members(value); w.next(); {
		switch w.key() {
		case "id":
			c.id = idOf(w.value)
		case "type":
			c.kind = wordOf(w.value)
		}
	}
}

// private reports whether the chat is one with a customer alone. Without a type the id decides: the platform gives
// positive numbers to people and negative ones to groups and channels.
func (c *botChat) private() bool {
	if c.kind != "" {
		return c.kind == "private"
	}
	return c.id != "" && strings.Trim(c.id, "0123456789") == "" && strings.Trim(c.id, "0") != ""
}

type botUser struct {
	isBot                 bool
	first, last, username string
}

func (u *botUser) read(value []byte) {
	for w := members(value); w.next(); {
		switch w.key() {
		case "is_bot":
			u.isBot = flagOf(w.value)
		case "first_name":
			u.first = textOf(w.value, MaxName)
		case "last_name":
			u.last = textOf(w.value, MaxName)
		case "username":
			u.username = textOf(w.value, MaxName)
		}
	}
}

func (u *botUser) name() string {
	if u.first != "" && u.last != "" {
		return cut(u.first+" "+u.last, MaxName)
	}
	return oneOf(u.first, u.last, u.username)
}
