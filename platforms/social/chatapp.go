package social

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// maxContacts limits the contacts of a change that are read. The platform sends one for each customer.
const maxContacts = 1000

// chatAppChange adds the items of a change of a chat-app business account
// (developers.facebook.com/docs/whatsapp/cloud-api/webhooks/payload-examples): messages of customers, messages typed in the
// business's own app, edits and withdrawals of both, failed sends, and errors of the account. Groups, reactions, receipts and
// changes of settings are skipped. A change belongs to one phone number, except that some fields have no metadata.
func (s *reader) chatAppChange(field string, value platforms.Value) {
	var phone chatAppPhone
	var contacts, messages, echoes, statuses, faults platforms.Value
	value.Read([]platforms.Field{
		{Name: "phone_number_id", Of: "metadata", ID: &phone.id},
		{Name: "display_phone_number", Of: "metadata", ID: &phone.displayed},
		{Name: "contacts", Value: &contacts},
		{Name: "messages", Value: &messages},
		{Name: "message_echoes", Value: &echoes},
		{Name: "statuses", Value: &statuses},
		{Name: "errors", Value: &faults},
	})
	s.readContacts(contacts)
	switch field {
	case "messages":
		for w := messages.Elements(); w.Next(); {
			s.chatAppMessage(phone, w.Value)
		}
		for w := statuses.Elements(); w.Next(); {
			s.chatAppStatus(phone, w.Value)
		}
		for w := faults.Elements(); w.Next(); {
			if s.classify(w.Value.Member("code").ID()) == platforms.NeedsReauth {
				s.accessRefused(phone, time.Time{})
				break
			}
		}
	case "smb_message_echoes":
		for w := echoes.Elements(); w.Next(); {
			s.chatAppEcho(phone, w.Value)
		}
	}
}

// chatAppContact is a customer with the ids by which a change names them: their number, their user id, or both.
type chatAppContact struct{ phone, user, name string }

// readContacts keeps the contacts until the next change.
func (s *reader) readContacts(contacts platforms.Value) {
	clear(s.contacts)
	for w := contacts.Elements(); w.Next() && len(s.contacts) < maxContacts; {
		var contact chatAppContact
		w.Value.Read([]platforms.Field{
			{Name: "wa_id", ID: &contact.phone},
			{Name: "user_id", ID: &contact.user},
			{Name: "name", Of: "profile", Person: &contact.name},
		})
		for _, id := range []string{contact.phone, contact.user} {
			if id != "" {
				s.contacts[id] = contact
			}
		}
	}
}

// chatAppPhone is the number that a change belongs to.
type chatAppPhone struct{ id, displayed string }

// about returns an Inbound for the number and one of its customers, whom the delivery may name by number, by user id, or by both.
func (s *reader) about(phone chatAppPhone, number, user, message string, at time.Time) platforms.Inbound {
	customer := cmp.Or(number, user)
	contact := s.contacts[customer]
	in := platforms.Inbound{
		Type: ChatApp, ExternalID: phone.id, Conversation: cmp.Or(number, contact.phone, user), Address: customer, MessageID: message, SentAt: at,
	}
	if alias := cmp.Or(user, contact.user); alias != "" {
		in.Other = &platforms.OtherIDs{Alias: alias}
	}
	return in
}

func (s *reader) chatAppMessage(phone chatAppPhone, value platforms.Value) {
	var m chatAppMessage
	m.read(value)
	if m.group != "" || cmp.Or(m.from, m.fromUser) == phone.displayed {
		return
	}
	in := s.about(phone, m.from, m.fromUser, m.id, m.timestamp)
	if changed, is := m.change(in); is {
		s.Add(changed)
		return
	}
	in.CustomerName = s.contacts[in.Address].name
	in = in.WithContent(m.words())
	if in.Kind != 0 {
		s.Attach(&in, m.attachment())
	}
	s.Add(in)
}

func (s *reader) chatAppEcho(phone chatAppPhone, value platforms.Value) {
	var m chatAppMessage
	m.read(value)
	in := s.about(phone, m.to, m.toUser, m.id, m.timestamp)
	if m.group != "" {
		return
	}
	if changed, is := m.change(in); is {
		s.Add(changed)
	} else if text, media := m.words(); text != "" || media != "" {
		in = in.AsEcho(text, media)
		s.Attach(&in, m.attachment())
		s.Add(in)
	}
}

// accessRefused adds that the number may not send, once for each number. Codes of account, payment and registration concern the
// whole channel.
func (s *reader) accessRefused(phone chatAppPhone, at time.Time) {
	if !s.refused[phone.id] {
		s.refused[phone.id] = true
		s.Add(platforms.Inbound{Type: ChatApp, ExternalID: phone.id, Kind: platforms.AccessRefused, SentAt: at})
	}
}

// chatAppStatus adds a send that failed after the platform had accepted it. The end of the service window, for example, is
// reported only here. The status may arrive before the answer to the send, or instead of it, so it is matched by its mark.
func (s *reader) chatAppStatus(phone chatAppPhone, value platforms.Value) {
	var id, status, recipient, recipientUser, mark string
	var timestamp time.Time
	var causes platforms.Value
	value.Read([]platforms.Field{
		{Name: "id", ID: &id},
		{Name: "status", Word: &status},
		{Name: "recipient_id", ID: &recipient},
		{Name: "recipient_user_id", ID: &recipientUser},
		{Name: "timestamp", Time: &timestamp},
		{Name: "biz_opaque_callback_data", ID: &mark},
		{Name: "errors", Value: &causes},
	})
	if status != "failed" {
		return
	}
	in := s.about(phone, recipient, recipientUser, id, timestamp)
	in.Kind = platforms.FailedDelivery
	if ours, found := strings.CutPrefix(mark, ownMark); found {
		in.Other = &platforms.OtherIDs{Alias: in.OtherIDs().Alias, Mark: ours}
	}
	if first := causes.Elements(); first.Next() {
		in.Failure = s.classify(first.Value.Member("code").ID())
	}
	s.Add(in)
	if in.Failure == platforms.NeedsReauth {
		s.accessRefused(phone, timestamp)
	}
}

// classify returns the class of the error code in a failed status. A failed send has the same code in the call's answer, in a later
// status, or in both. Classes are remembered, because a delivery has many statuses and few codes.
func (s *reader) classify(code string) platforms.Class {
	class, known := s.classes[code]
	if !known && len(s.classes) < maxClasses {
		if s.classes == nil {
			s.classes = make(map[string]platforms.Class, 1)
		}
		if number, err := strconv.Atoi(code); err == nil {
			class = failureOf(&platforms.Response{}, ChatApp, &graphError{Code: &number}).Class
		}
		s.classes[code] = class
	}
	return class
}

// maxClasses limits the different error codes of a delivery that are classified.
const maxClasses = 64

// chatAppMessage is a message. It names a person by phone number, or by user id alone if they hide their number behind a user
// name.
type chatAppMessage struct {
	id                         string
	from, fromUser, to, toUser string
	group                      string
	timestamp                  time.Time
	kind                       string
	original                   string          // id of the message that was changed or withdrawn
	now                        platforms.Value // the message after its change
	content                    platforms.Value // the member with the name of kind
}

func (m *chatAppMessage) read(value platforms.Value) {
	value.Read([]platforms.Field{
		{Name: "id", ID: &m.id},
		{Name: "from", ID: &m.from},
		{Name: "from_user_id", ID: &m.fromUser},
		{Name: "to", ID: &m.to},
		{Name: "to_user_id", ID: &m.toUser},
		{Name: "group_id", ID: &m.group},
		{Name: "timestamp", Time: &m.timestamp},
		{Name: "type", Word: &m.kind},
		{Name: "original_message_id", Of: "revoke", ID: &m.original},
		{Name: "original_message_id", Of: "edit", ID: &m.original},
		{Name: "message", Of: "edit", Value: &m.now},
	})
	m.content = value.Member(m.kind)
}

// change returns in as the withdrawal or the change of m.original. It reports false for a message that is neither
// (developers.facebook.com/documentation/business-messaging/whatsapp/webhooks/reference/messages/revoke).
func (m *chatAppMessage) change(in platforms.Inbound) (changed platforms.Inbound, is bool) {
	switch m.kind {
	case "revoke":
		in.Kind, in.MessageID = platforms.Unsent, m.original
		return in, true
	case "edit":
		var now chatAppMessage
		now.read(m.now)
		text, _ := now.words()
		in.MessageID = m.original
		return in.WithContent(text, "").AsEdited(), true
	}
	return in, false
}

// words returns the text of a message and a short name of its content. Both are empty for reactions and for messages of the
// platform itself.
func (m *chatAppMessage) words() (text, media string) {
	switch m.kind {
	case "text", "button":
		return chatAppWords(m.content), ""
	case "interactive":
		if !m.content.Given() {
			return "", ""
		}
		return platforms.FirstText(
			chatAppWords(m.content.Member("button_reply")), chatAppWords(m.content.Member("list_reply")),
			filledIn(m.content.Member("nfm_reply").Member("response_json").Nested()),
		), m.kind
	case "image", "video", "order":
		return chatAppWords(m.content), m.kind
	case "document":
		return chatAppWords(m.content), "file"
	case "audio", "voice":
		return "", "audio"
	case "contacts":
		return "", "contact"
	case "sticker", "location", "unsupported":
		return "", m.kind
	default:
		return "", ""
	}
}

// chatAppFiles are the kinds of files by the types of messages.
var chatAppFiles = map[string]string{
	"image": "image", "video": "video", "document": "file", "audio": "audio", "voice": "audio", "sticker": "sticker",
}

// attachment returns the file of the message, which the platform keeps under its id for 7 days
// (developers.facebook.com/documentation/business-messaging/whatsapp/business-phone-numbers/media).
func (m *chatAppMessage) attachment() platforms.Attachment {
	kind, id := chatAppFiles[m.kind], m.content.Member("id").ID()
	if kind == "" || !isID(id) {
		return platforms.Attachment{}
	}
	return platforms.Attachment{Kind: kind, Reference: id, Name: m.content.Member("filename").Name()}
}

// chatAppWords returns the words of a content: the body of a text, the text of a template's button, the title of another button
// or list row, the caption of media, or the customer's note to an order.
func chatAppWords(content platforms.Value) string {
	for _, name := range []string{"body", "text", "title", "caption"} {
		if words := platforms.FirstText(content.Member(name).Text(platforms.MaxText)); words != "" {
			return words
		}
	}
	return ""
}

// filledIn returns the fields of a form that a customer sent, each as a line "name: value"
// (developers.facebook.com/docs/whatsapp/flows/reference/responsemsgwebhook). Values are words, numbers, yes or no, and lists of
// them. Other values are dropped, and so is the token, by which a sender finds the form again.
func filledIn(form platforms.Value) string {
	var lines strings.Builder
	for w := form.Members(); w.Next(); {
		name := w.Key()
		if name == "flow_token" || !platforms.IsWord(name) {
			continue
		}
		before := name + ": "
		if lines.Len() > 0 {
			before = "\n" + before
		}
		add := func(value platforms.Value) {
			left := platforms.MaxText - lines.Len() - len(before)
			if left <= 0 {
				return
			}
			if text := formValue(value, left); text != "" {
				lines.WriteString(before + text)
				before = ", "
			}
		}
		add(w.Value)
		for list := w.Value.Elements(); list.Next(); {
			add(list.Value)
		}
	}
	return lines.String()
}

// formValue returns a single value. Null, lists and objects give "". Words are cut at limit bytes.
func formValue(value platforms.Value, limit int) string {
	const longest = 32 // length of a number
	if !value.Given() || len(value) > min(limit, longest) || strings.IndexByte(`"[{`, value[0]) >= 0 {
		return platforms.FirstText(value.Text(limit))
	}
	return string(value)
}
