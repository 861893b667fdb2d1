package platforms

import (
	"cmp"
	"strconv"
)

// chatAppChange is one change of a chat-app business account
// (developers.facebook.com/docs/whatsapp/cloud-api/webhooks/payload-examples). It belongs to one phone number; some
// fields of changes have no metadata and belong to none.
type chatAppChange struct {
	Metadata struct {
		PhoneNumberID      identifier `json:"phone_number_id"`
		DisplayPhoneNumber identifier `json:"display_phone_number"`
	} `json:"metadata"`
	Contacts      list[chatAppContact] `json:"contacts"`
	Messages      list[chatAppMessage] `json:"messages"`
	MessageEchoes list[chatAppMessage] `json:"message_echoes"`
	Statuses      list[chatAppStatus]  `json:"statuses"`
}

// chatAppContact names a person.
type chatAppContact struct {
	WaID    identifier `json:"wa_id"`
	UserID  identifier `json:"user_id"`
	Profile struct {
		Name string `json:"name"`
	} `json:"profile"`
}

// chatAppMessage names a person by phone number, or by user id alone where they hide their number behind a user name.
type chatAppMessage struct {
	ID          identifier      `json:"id"`
	From        identifier      `json:"from"`
	FromUserID  identifier      `json:"from_user_id"`
	To          identifier      `json:"to"`
	ToUserID    identifier      `json:"to_user_id"`
	GroupID     identifier      `json:"group_id"`
	Timestamp   moment          `json:"timestamp"`
	Type        string          `json:"type"`
	Text        *chatAppContent `json:"text"`
	Button      *chatAppContent `json:"button"`
	Image       *chatAppContent `json:"image"`
	Video       *chatAppContent `json:"video"`
	Document    *chatAppContent `json:"document"`
	Interactive *struct {
		ButtonReply chatAppContent `json:"button_reply"`
		ListReply   chatAppContent `json:"list_reply"`
	} `json:"interactive"`
}

// chatAppContent is where the words of a message are: the body of a text, the text of a template's button, the title
// of another button or list row, the caption of media.
type chatAppContent struct {
	Body    string `json:"body"`
	Text    string `json:"text"`
	Title   string `json:"title"`
	Caption string `json:"caption"`
}

type chatAppError struct {
	Code identifier `json:"code"`
}

type chatAppStatus struct {
	ID              identifier         `json:"id"`
	Status          string             `json:"status"`
	RecipientID     identifier         `json:"recipient_id"`
	RecipientUserID identifier         `json:"recipient_user_id"`
	Timestamp       moment             `json:"timestamp"`
	Errors          list[chatAppError] `json:"errors"`
}

// chatAppMessages adds what an entry of a chat-app business account holds: messages, those typed in the business's own
// app, and sends that failed. Groups, reactions, edits, deletions, receipts and changes of settings hold nothing.
func (e *socialEntry) chatAppMessages(all []Inbound) []Inbound {
	for i := range e.Changes {
		change := &e.Changes[i].Value.chatAppChange
		switch e.Changes[i].Field {
		case "messages":
			all = change.messages(all)
			all = change.failures(all)
		case "smb_message_echoes":
			all = change.echoes(all)
		}
	}
	return all
}

func (c *chatAppChange) messages(all []Inbound) []Inbound {
	names := make(map[identifier]string, 2*len(c.Contacts))
	for _, contact := range c.Contacts {
		names[contact.WaID], names[contact.UserID] = contact.Profile.Name, contact.Profile.Name
	}
	for i := range c.Messages {
		m := &c.Messages[i]
		customer := cmp.Or(m.From, m.FromUserID)
		if m.GroupID != "" || customer == c.Metadata.DisplayPhoneNumber {
			continue
		}
		in := c.about(customer, m.ID, m.Timestamp)
		in.CustomerName = clean(names[customer], MaxName)
		all = appendComplete(all, in.written(m.content()))
	}
	return all
}

func (c *chatAppChange) echoes(all []Inbound) []Inbound {
	for i := range c.MessageEchoes {
		m := &c.MessageEchoes[i]
		text, media := m.content()
		if m.GroupID != "" || text == "" && media == "" {
			continue
		}
		all = appendComplete(all, c.about(cmp.Or(m.To, m.ToUserID), m.ID, m.Timestamp).echoed(text, media))
	}
	return all
}

// failures adds the sends that failed after the platform had accepted them: that the service window is over, for one,
// is known only here.
func (c *chatAppChange) failures(all []Inbound) []Inbound {
	for i := range c.Statuses {
		s := &c.Statuses[i]
		if s.Status != "failed" {
			continue
		}
		in := c.about(cmp.Or(s.RecipientID, s.RecipientUserID), s.ID, s.Timestamp)
		in.Kind = FailedDelivery
		blocked := false
		if len(s.Errors) > 0 {
			in.Code, blocked = chatAppFailure(s.Errors[0].Code)
		}
		all = appendComplete(all, in)
		if blocked {
			in.Kind, in.MessageID, in.Code = Blocked, "", ""
			all = appendComplete(all, in)
		}
	}
	return all
}

// about begins an Inbound of the change's phone number and one of its customers.
func (c *chatAppChange) about(customer, message identifier, at moment) Inbound {
	return Inbound{
		Type:         ChatApp,
		ExternalID:   string(c.Metadata.PhoneNumberID),
		Conversation: string(customer),
		Address:      string(customer),
		MessageID:    string(message),
		SentAt:       at.time(),
	}
}

// content returns the words of a message, and a short name of what it is without them; both empty for what is no
// message: reactions, edits, deletions, and what the platform says itself.
func (m *chatAppMessage) content() (text, media string) {
	switch m.Type {
	case "text":
		return m.Text.words(), ""
	case "button":
		return m.Button.words(), ""
	case "interactive":
		if m.Interactive == nil {
			return "", ""
		}
		return oneOf(m.Interactive.ButtonReply.words(), m.Interactive.ListReply.words()), m.Type
	case "image":
		return m.Image.words(), m.Type
	case "video":
		return m.Video.words(), m.Type
	case "document":
		return m.Document.words(), "file"
	case "audio", "voice":
		return "", "audio"
	case "contacts":
		return "", "contact"
	case "sticker", "location", "order", "unsupported":
		return "", m.Type
	default:
		return "", ""
	}
}

func (c *chatAppContent) words() string {
	if c == nil {
		return ""
	}
	return oneOf(c.Body, c.Text, c.Title, c.Caption)
}

// chatAppFailure judges the error code of a failed status as if the call that sent the message had answered it: the
// codes are the same. It returns the public code (spec §7.2), and whether the customer can't be reached at all.
func chatAppFailure(code identifier) (public string, blocked bool) {
	number, err := strconv.Atoi(string(code))
	if err != nil {
		return "", false
	}
	failure := (&answer{platform: ChatApp}).judgeGraph(&graphError{Code: &number})
	return failure.Code, failure.Outcome == CustomerBlocked
}
