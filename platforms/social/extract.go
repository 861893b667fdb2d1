package social

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// Extract reads a delivery of the social platform, which may have many entries of several tenants (up to 1,000 updates, by Meta's
// documentation). Each entry and each change is routed by itself. A delivery has no items if its object isn't configured.
func (s *social) Extract(body []byte) ([]platforms.Inbound, error) {
	channel, entries, err := s.open(body)
	if err != nil || channel == "" {
		return nil, err
	}
	r := reader{
		Collector: platforms.Collect(len(body)), channel: channel, contacts: map[string]chatAppContact{}, refused: map[string]bool{},
	}
	if channel != ChatApp {
		r.Collector = platforms.CollectAtMost(len(body)/shortestDirect + 1)
	}
	for w := entries.Elements(); w.Next(); {
		r.entry(w.Value)
	}
	return r.All(), nil
}

// open returns the channel type and the entries of a delivery. The type is empty if the delivery's object isn't configured.
func (s *social) open(body []byte) (channel platforms.Type, entries platforms.Value, err error) {
	delivery, err := platforms.ParseObject(body)
	if err != nil {
		return "", nil, err
	}
	var about string
	delivery.Read([]platforms.Field{{Name: "object", Word: &about}, {Name: "entry", Value: &entries}})
	switch about {
	case s.objects.page:
		channel = Messenger
	case s.objects.photoDM:
		channel = PhotoDM
	case s.objects.chatApp:
		channel = ChatApp
	}
	return channel, entries, nil
}

// Named implements [platforms.ChannelSigned]. Entries of the chat app name the number in each of their changes.
func (s *social) Named(d *platforms.Delivery) (named []platforms.Channel) {
	if !verify.HasDigest(d.Header, cmp.Or(s.config.Options["header"], verify.SocialHeader), "sha256=") {
		return nil
	}
	channel, entries, err := s.open(d.Body)
	if err != nil || channel == "" {
		return nil
	}
	add := func(id string) {
		known := slices.ContainsFunc(named, func(c platforms.Channel) bool { return c.ExternalID == id })
		if id != "" && !known && len(named) < platforms.MaxNamed {
			named = append(named, platforms.Channel{Type: channel, ExternalID: id})
		}
	}
	for w := entries.Elements(); w.Next() && len(named) < platforms.MaxNamed; {
		if channel != ChatApp {
			add(w.Value.Member("id").ID())
			continue
		}
		for c := w.Value.Member("changes").Elements(); c.Next() && len(named) < platforms.MaxNamed; {
			add(c.Value.Member("value").Member("metadata").Member("phone_number_id").ID())
		}
	}
	return named
}

// reader reads the entries of a delivery one by one. It allocates nothing for the elements of a list but their items.
type reader struct {
	platforms.Collector

	channel platforms.Type
	// contacts are the contacts of the current change, by each of their ids.
	contacts map[string]chatAppContact
	// classes are the classes of the error codes of this delivery.
	classes map[string]platforms.Class
	// refused are the numbers that the delivery reports as unable to send.
	refused map[string]bool
}

// entry reads the entry of one page, photo account or chat-app business account. It skips `standby`, the events of conversations
// that another app has taken over.
func (s *reader) entry(value platforms.Value) {
	var account string
	var messaging, changes platforms.Value
	value.Read([]platforms.Field{
		{Name: "id", ID: &account},
		{Name: "messaging", Value: &messaging},
		{Name: "changes", Value: &changes},
	})
	if s.channel != ChatApp {
		for w := messaging.Elements(); w.Next(); {
			s.directMessage(account, w.Value)
		}
	}
	for w := changes.Elements(); w.Next(); {
		s.change(account, w.Value)
	}
}

// change reads a change of one of the account's subscribed fields.
func (s *reader) change(account string, value platforms.Value) {
	var field string
	var changed platforms.Value
	value.Read([]platforms.Field{{Name: "field", Word: &field}, {Name: "value", Value: &changed}})
	if s.channel == ChatApp {
		s.chatAppChange(field, changed)
	} else if field == "messages" { // the form of the photo platform's test deliveries
		s.directMessage(account, changed)
	}
}

// shortestDirect is the length in bytes of the shortest message in a delivery, {"sender":{"id":1},"message":{"mid":1,"text":"x"}}
// and a comma.
const shortestDirect = 51

// directMessage adds an event of a conversation with a page or photo account
// (developers.facebook.com/docs/messenger-platform/reference/webhook-events): a message, an echo of the business's own message, a
// pressed button, an edit or a withdrawal. Receipts, reactions, referrals, hand-overs between apps and comments are skipped.
func (s *reader) directMessage(account string, value platforms.Value) {
	var sender, recipient string
	var timestamp time.Time
	var message, postback, edit platforms.Value
	value.Read([]platforms.Field{
		{Name: "id", Of: "sender", ID: &sender},
		{Name: "id", Of: "recipient", ID: &recipient},
		{Name: "timestamp", Time: &timestamp},
		{Name: "message", Value: &message},
		{Name: "postback", Value: &postback},
		{Name: "message_edit", Value: &edit},
	})
	in := platforms.Inbound{Type: s.channel, ExternalID: account, Conversation: sender, Address: sender, SentAt: timestamp}
	var m directMessage
	message.Read([]platforms.Field{
		{Name: "mid", ID: &m.id},
		{Name: "text", Text: &m.text},
		{Name: "is_echo", Flag: &m.isEcho},
		{Name: "app_id", ID: &m.app},
		{Name: "metadata", ID: &m.mark},
		{Name: "is_deleted", Flag: &m.isDeleted},
		{Name: "is_unsupported", Flag: &m.isUnsupported},
		{Name: "attachments", Value: &m.attachments},
	})
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
		if strings.HasPrefix(m.mark, ownMark) {
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
// (developers.facebook.com/docs/messenger-platform/conversation-routing). Automatic replies have no mark of their own, and some
// messages of people have none either, so echoes of other applications are unmarked.
const (
	messengerInbox = "263902037430900"
	photoInbox     = "1217981644879628"
)

type directMessage struct {
	app                              string // the application that sent an echo
	id, text, mark                   string
	isEcho, isDeleted, isUnsupported bool
	attachments                      platforms.Value
}

// media returns the name of the first attachment, or "" if the message has no content.
func (m *directMessage) media() string {
	attached := m.attachments.Elements()
	if !attached.Next() {
		if m.isUnsupported {
			return "unsupported"
		}
		return ""
	}
	kind, payload := readAttachment(attached.Value)
	if payload.Member("sticker_id").Given() {
		return "sticker"
	}
	return platforms.MediaName(kind)
}

func readAttachment(value platforms.Value) (kind string, payload platforms.Value) {
	value.Read([]platforms.Field{{Name: "type", Word: &kind}, {Name: "payload", Value: &payload}})
	return kind, payload
}

// attach adds the files of a message. Their addresses end after some time. It skips stories, reels and shared posts, which aren't
// the customer's: mentions in stories must not even be stored
// (developers.facebook.com/docs/messenger-platform/instagram/features/story-mention).
func (s *reader) attach(in *platforms.Inbound, attachments platforms.Value) {
	for w := attachments.Elements(); w.Next(); {
		kind, payload := readAttachment(w.Value)
		if kind != "image" && kind != "audio" && kind != "video" && kind != "file" && kind != "sticker" {
			continue
		}
		if payload.Member("sticker_id").Given() {
			kind = "sticker"
		}
		if address := payload.Member("url").Reference(); platforms.IsAddress(address) {
			s.Attach(in, platforms.Attachment{Kind: kind, Reference: address})
		}
	}
}
