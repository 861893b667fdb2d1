package platforms

import (
	"cmp"
	"strconv"
)

// maxNamed bounds the contacts of a change whose names are looked at; the platform sends one for each customer.
const maxNamed = 1000

// maxVerdicts bounds the different error codes of a delivery that are judged.
const maxVerdicts = 64

// chatAppChange adds what a change of a chat-app business account holds
// (developers.facebook.com/docs/whatsapp/cloud-api/webhooks/payload-examples): messages, those typed in the business's own
// app, and sends that failed. Groups, reactions, edits, deletions, receipts and changes of settings hold nothing. A change
// belongs to one phone number; some fields of changes have no metadata and belong to none.
func (s *socialReader) chatAppChange(field string, value []byte) {
	var phone chatAppPhone
	var contacts, messages, echoes, statuses []byte
	for w := members(value); w.next(); {
		switch w.key() {
		case "metadata":
			phone = chatAppPhone{idIn(w.value, "phone_number_id"), idIn(w.value, "display_phone_number")}
		case "contacts":
			contacts = w.value
		case "messages":
			messages = w.value
		case "message_echoes":
			echoes = w.value
		case "statuses":
			statuses = w.value
		}
	}
	switch field {
	case "messages":
		s.nameContacts(contacts)
		for w := elements(messages); w.next(); {
			s.chatAppMessage(phone, w.value)
		}
		for w := elements(statuses); w.next(); {
			s.chatAppStatus(phone, w.value)
		}
	case "smb_message_echoes":
		for w := elements(echoes); w.next(); {
			s.chatAppEcho(phone, w.value)
		}
	}
}

// nameContacts keeps the names of the contacts until the next change.
func (s *socialReader) nameContacts(contacts []byte) {
	clear(s.names)
	for w := elements(contacts); w.next() && len(s.names) < maxNamed; {
		var phone, user, name string
		for c := members(w.value); c.next(); {
			switch c.key() {
			case "wa_id":
				phone = idOf(c.value)
			case "user_id":
				user = idOf(c.value)
			case "profile":
				name = nameIn(c.value, "name")
			}
		}
		if name == "" {
			continue
		}
		if s.names == nil {
			s.names = make(map[string]string, 2)
		}
		s.names[phone], s.names[user] = name, name
	}
}

// chatAppPhone is the number that a change belongs to.
type chatAppPhone struct{ id, displayed string }

// about begins an Inbound of the number and one of its customers.
func (p chatAppPhone) about(customer, message string, at moment) Inbound {
	return Inbound{
		Type: ChatApp, ExternalID: p.id, Conversation: customer, Address: customer, MessageID: message, SentAt: at.time(),
	}
}

func (s *socialReader) chatAppMessage(phone chatAppPhone, value []byte) {
	var m chatAppMessage
	m.read(value)
	customer := cmp.Or(m.from, m.fromUser)
	if m.group != "" || customer == phone.displayed {
		return
	}
	in := phone.about(customer, m.id, m.timestamp)
	in.CustomerName = s.names[customer]
	s.add(in.written(m.content()))
}

func (s *socialReader) chatAppEcho(phone chatAppPhone, value []byte) {
	var m chatAppMessage
	m.read(value)
	text, media := m.content()
	if m.group != "" || text == "" && media == "" {
		return
	}
	s.add(phone.about(cmp.Or(m.to, m.toUser), m.id, m.timestamp).echoed(text, media))
}

// chatAppStatus adds a send that failed after the platform had accepted it: that the service window is over, for one, is
// known only here.
func (s *socialReader) chatAppStatus(phone chatAppPhone, value []byte) {
	var id, status, recipient, recipientUser string
	var timestamp moment
	var causes []byte
	for w := members(value); w.next(); {
		switch w.key() {
		case "id":
			id = idOf(w.value)
		case "status":
			status = wordOf(w.value)
		case "recipient_id":
			recipient = idOf(w.value)
		case "recipient_user_id":
			recipientUser = idOf(w.value)
		case "timestamp":
			timestamp = momentOf(w.value)
		case "errors":
			causes = w.value
		}
	}
	if status != "failed" {
		return
	}
	in := phone.about(cmp.Or(recipient, recipientUser), id, timestamp)
	in.Kind = FailedDelivery
	blocked := false
	if first := elements(causes); first.next() {
		in.Code, blocked = s.judge(idIn(first.value, "code"))
	}
	s.add(in)
	if blocked {
		in.Kind, in.MessageID, in.Code = Blocked, "", ""
		s.add(in)
	}
}

// verdict is what a failure's code means.
type verdict struct {
	public  string
	blocked bool
}

// judge is [chatAppFailure] for codes that repeat: a delivery has few of them, and each judgement makes an error to log.
func (s *socialReader) judge(code string) (public string, blocked bool) {
	known, judged := s.verdicts[code]
	if !judged && len(s.verdicts) < maxVerdicts {
		if s.verdicts == nil {
			s.verdicts = make(map[string]verdict, 1)
		}
		known.public, known.blocked = chatAppFailure(code)
		s.verdicts[code] = known
	}
	return known.public, known.blocked
}

// chatAppMessage names a person by phone number, or by user id alone where they hide their number behind a user name.
type chatAppMessage struct {
	id                         string
	from, fromUser, to, toUser string
	group                      string
	timestamp                  moment
	kind                       string
	// Where the words may be, by the kind.
	text, button, image, video, document, interactive []byte
}

func (m *chatAppMessage) read(value []byte) {
	for w := members(value); w.next(); {
		switch w.key() {
		case "id":
			m.id = idOf(w.value)
		case "from":
			m.from = idOf(w.value)
		case "from_user_id":
			m.fromUser = idOf(w.value)
		case "to":
			m.to = idOf(w.value)
		case "to_user_id":
			m.toUser = idOf(w.value)
		case "group_id":
			m.group = idOf(w.value)
		case "timestamp":
			m.timestamp = momentOf(w.value)
		case "type":
			m.kind = wordOf(w.value)
		case "text":
			m.text = w.value
		case "button":
			m.button = w.value
		case "image":
			m.image = w.value
		case "video":
			m.video = w.value
		case "document":
			m.document = w.value
		case "interactive":
			m.interactive = w.value
		}
	}
}

// content returns the words of a message, and a short name of what it is without them; both empty for what is no
// message: reactions, edits, deletions, and what the platform says itself.
func (m *chatAppMessage) content() (text, media string) {
	switch m.kind {
	case "text":
		return chatAppWords(m.text), ""
	case "button":
		return chatAppWords(m.button), ""
	case "interactive":
		if !given(m.interactive) {
			return "", ""
		}
		pressed := oneOf(chatAppWords(memberOf(m.interactive, "button_reply")), chatAppWords(memberOf(m.interactive, "list_reply")))
		return pressed, m.kind
	case "image":
		return chatAppWords(m.image), m.kind
	case "video":
		return chatAppWords(m.video), m.kind
	case "document":
		return chatAppWords(m.document), "file"
	case "audio", "voice":
		return "", "audio"
	case "contacts":
		return "", "contact"
	case "sticker", "location", "order", "unsupported":
		return "", m.kind
	default:
		return "", ""
	}
}

// chatAppWords are where the words of a message are: the body of a text, the text of a template's button, the title of
// another button or list row, the caption of media.
func chatAppWords(content []byte) string {
	for _, name := range []string{"body", "text", "title", "caption"} {
		if words := oneOf(textIn(content, name)); words != "" {
			return words
		}
	}
	return ""
}

// chatAppFailure judges the error code of a failed status as if the call that sent the message had answered it: the
// codes are the same. It returns the public code (spec §7.2), and whether the customer can't be reached at all.
func chatAppFailure(code string) (public string, blocked bool) {
	number, err := strconv.Atoi(code)
	if err != nil {
		return "", false
	}
	failure := (&answer{platform: ChatApp}).judgeGraph(&graphError{Code: &number})
	return failure.Code, failure.Outcome == CustomerBlocked
}
