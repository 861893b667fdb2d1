package social

import (
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// shortestDirect is how many bytes of a delivery a message takes at least: {"sender":{"id":1},"message":{"mid":1,"text":"x"}} and a comma.
const shortestDirect = 51

// directMessage adds what an event of a conversation with a page or photo account holds
// (developers.facebook.com/docs/messenger-platform/reference/webhook-events): a message, an echo of the business's own, a
// pressed button, or that a message was changed or taken back. Receipts, reactions, referrals, hand-overs between apps and comments hold
// nothing.
func (s *reader) directMessage(account string, value platforms.Value) {
	var sender, recipient string
	var timestamp time.Time
	var message, postback, edit platforms.Value
	for w := value.Members(); w.Next(); {
		switch w.Key() {
		case "sender":
			sender = w.Value.Member("id").ID()
		case "recipient":
			recipient = w.Value.Member("id").ID()
		case "timestamp":
			timestamp = w.Value.Time()
		case "message":
			message = w.Value
		case "postback":
			postback = w.Value
		case "message_edit":
			edit = w.Value
		}
	}
	in := platforms.Inbound{Type: s.channel, ExternalID: account, Conversation: sender, Address: sender, SentAt: timestamp}
	var m directMessage
	m.read(message)
	if m.isEcho || (m.isDeleted || edit.Given()) && sender == account {
		in.Conversation, in.Address = recipient, recipient
	}
	switch {
	case edit.Given():
		in.MessageID = edit.Member("mid").ID()
		s.Add(in.WithContent(edit.Member("text").Text(platforms.MaxText), "").AsEdited())
	case m.isDeleted:
		in.Kind, in.MessageID = platforms.Unsent, m.id
		s.Add(in)
	case m.isEcho:
		in.MessageID = m.id
		if m.isOurs {
			s.Add(in.AsAutomatic(m.text, m.media()))
		} else {
			in = in.AsEcho(m.text, m.media())
			if m.app != messengerInbox && m.app != photoInbox {
				in.Kind = platforms.UnmarkedEcho
			}
			s.attach(&in, m.attachments)
			s.Add(in)
		}
	case sender == account: // loop guard: the business is never its own customer
		return
	case message.Given():
		in.MessageID = m.id
		in = in.WithContent(m.text, m.media())
		if in.Kind != 0 {
			s.attach(&in, m.attachments)
		}
		s.Add(in)
	default:
		in.MessageID = postback.Member("mid").ID()
		s.Add(in.WithContent(postback.Member("title").Text(platforms.MaxText), ""))
	}
}

// The applications of the platform's own inboxes, in which people of the business write
// (developers.facebook.com/docs/messenger-platform/conversation-routing). Echoes of automatic replies have no mark of their own, and neither
// have all that people write.
const (
	messengerInbox = "263902037430900"
	photoInbox     = "1217981644879628"
)

type directMessage struct {
	app                                      string // that sent an echo
	id, text                                 string
	isEcho, isOurs, isDeleted, isUnsupported bool
	attachments                              platforms.Value
}

func (m *directMessage) read(value platforms.Value) {
	for w := value.Members(); w.Next(); {
		switch w.Key() {
		case "mid":
			m.id = w.Value.ID()
		case "text":
			m.text = w.Value.Text(platforms.MaxText)
		case "is_echo":
			m.isEcho = w.Value.Flag()
		case "app_id":
			m.app = w.Value.ID()
		case "metadata":
			m.isOurs = strings.HasPrefix(w.Value.ID(), ownMark)
		case "is_deleted":
			m.isDeleted = w.Value.Flag()
		case "is_unsupported":
			m.isUnsupported = w.Value.Flag()
		case "attachments":
			m.attachments = w.Value
		}
	}
}

// media names what a message without text holds, by the first thing that is attached; empty if it holds nothing.
func (m *directMessage) media() string {
	attached := m.attachments.Elements()
	if !attached.Next() {
		if m.isUnsupported {
			return "unsupported"
		}
		return ""
	}
	kind, sticker := "", false
	for w := attached.Value.Members(); w.Next(); {
		switch w.Key() {
		case "type":
			kind = w.Value.Word()
		case "payload":
			sticker = w.Value.Member("sticker_id").Given()
		}
	}
	if sticker {
		return "sticker"
	}
	return platforms.MediaName(kind)
}

// attach adds the files of a message, whose addresses end after some time. Stories, reels and shared posts aren't the customer's, and
// mentions in stories must not be stored (developers.facebook.com/docs/messenger-platform/instagram/features/story-mention).
func (s *reader) attach(in *platforms.Inbound, attachments platforms.Value) {
	for w := attachments.Elements(); w.Next(); {
		kind, payload := "", platforms.Value(nil)
		for m := w.Value.Members(); m.Next(); {
			switch m.Key() {
			case "type":
				kind = m.Value.Word()
			case "payload":
				payload = m.Value
			}
		}
		switch {
		case kind != "image" && kind != "audio" && kind != "video" && kind != "file" && kind != "sticker":
			continue
		case payload.Member("sticker_id").Given():
			kind = "sticker"
		}
		if address := payload.Member("url").Reference(); platforms.IsAddress(address) {
			s.Attach(in, platforms.Attachment{Kind: kind, Reference: address})
		}
	}
}
