package platforms

import "strings"

// ExtractBot reads one update of the bot platform (core.telegram.org/bots/api, Update): a message in a private chat, or
// that the customer blocked the bot. Groups, other bots, edits, reactions and all other updates hold nothing.
func ExtractBot(body []byte) ([]Inbound, error) {
	var update botUpdate
	if err := decode(body, &update); err != nil {
		return nil, err
	}
	var all []Inbound
	if m := update.Message; m != nil && m.Chat.private() && !bool(m.From.IsBot) {
		in := Inbound{
			Type:         Bot,
			Conversation: string(m.Chat.ID),
			Address:      string(m.Chat.ID),
			CustomerName: clean(m.From.name(), MaxName),
			SentAt:       m.Date.time(),
		}
		if m.MessageID != "" {
			in.MessageID = string(m.Chat.ID + ":" + m.MessageID) // alone it is unique only inside its chat
		}
		all = appendComplete(all, in.written(oneOf(m.Text, m.Caption), m.media()))
	}
	if c := update.MyChatMember; c != nil && c.Chat.private() && c.NewChatMember.Status == "kicked" {
		all = appendComplete(all, Inbound{
			Type:         Bot,
			Kind:         Blocked,
			Conversation: string(c.Chat.ID),
			Address:      string(c.Chat.ID),
			SentAt:       c.Date.time(),
		})
	}
	return all, nil
}

type botUpdate struct {
	Message      *botMessage `json:"message"`
	MyChatMember *struct {
		Chat          botChat `json:"chat"`
		From          botUser `json:"from"`
		Date          moment  `json:"date"`
		NewChatMember struct {
			Status string `json:"status"`
		} `json:"new_chat_member"`
	} `json:"my_chat_member"`
}

type botChat struct {
	ID   identifier `json:"id"`
	Type string     `json:"type"`
}

// private reports whether the chat is one with a customer alone. Without a type the id decides: the platform gives
// positive numbers to people and negative ones to groups and channels.
func (c botChat) private() bool {
	if c.Type != "" {
		return c.Type == "private"
	}
	return c.ID != "" && strings.Trim(string(c.ID), "0123456789") == "" && strings.Trim(string(c.ID), "0") != ""
}

type botUser struct {
	ID        identifier `json:"id"`
	IsBot     flag       `json:"is_bot"`
	FirstName string     `json:"first_name"`
	LastName  string     `json:"last_name"`
	Username  string     `json:"username"`
}

func (u *botUser) name() string {
	if u.FirstName != "" && u.LastName != "" {
		return u.FirstName + " " + u.LastName
	}
	return oneOf(u.FirstName, u.LastName, u.Username)
}

type botMessage struct {
	MessageID identifier `json:"message_id"`
	From      botUser    `json:"from"`
	Chat      botChat    `json:"chat"`
	Date      moment     `json:"date"`
	Text      string     `json:"text"`
	Caption   string     `json:"caption"`

	Animation present `json:"animation"`
	Audio     present `json:"audio"`
	Contact   present `json:"contact"`
	Dice      present `json:"dice"`
	Document  present `json:"document"`
	Location  present `json:"location"`
	PaidMedia present `json:"paid_media"`
	Photo     present `json:"photo"`
	Poll      present `json:"poll"`
	Sticker   present `json:"sticker"`
	Story     present `json:"story"`
	Video     present `json:"video"`
	VideoNote present `json:"video_note"`
	Voice     present `json:"voice"`
}

// media names what a message without text holds; empty for service messages, like a new title of the chat.
func (m *botMessage) media() string {
	switch {
	case bool(m.Photo):
		return "image"
	case bool(m.Video), bool(m.VideoNote):
		return "video"
	case bool(m.Animation): // comes with a document
		return "animation"
	case bool(m.Audio), bool(m.Voice):
		return "audio"
	case bool(m.Document):
		return "file"
	case bool(m.Sticker), bool(m.Dice):
		return "sticker"
	case bool(m.Location): // also of venues
		return "location"
	case bool(m.Contact):
		return "contact"
	case bool(m.Poll):
		return "poll"
	case bool(m.Story), bool(m.PaidMedia):
		return "attachment"
	default:
		return ""
	}
}
