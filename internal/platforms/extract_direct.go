package platforms

// directMessage adds what an event of a conversation with a page or photo account holds
// (developers.facebook.com/docs/messenger-platform/reference/webhook-events): a message, an echo of the business's own, or a
// pressed button. Receipts, reactions, edits, deletions, referrals, hand-overs between apps and comments hold nothing.
func (s *socialReader) directMessage(account string, value []byte) {
	var sender, recipient string
	var timestamp moment
	var message, postback []byte
	for w := members(value); w.next(); {
		switch w.key() {
		case "sender":
			sender = idIn(w.value, "id")
		case "recipient":
			recipient = idIn(w.value, "id")
		case "timestamp":
			timestamp = momentOf(w.value)
		case "message":
			message = w.value
		case "postback":
			postback = w.value
		}
	}
	in := Inbound{Type: s.channel, ExternalID: account, Conversation: sender, Address: sender, SentAt: timestamp.time()}
	var m directMessage
	m.read(message)
	switch {
	case m.isDeleted:
		return
	case m.isEcho:
		in.Conversation, in.Address = recipient, recipient
		in.MessageID = m.id
		s.add(in.echoed(m.text, m.media()))
	case sender == account: // loop guard: the business is never its own customer
		return
	case given(message):
		in.MessageID = m.id
		s.add(in.written(m.text, m.media()))
	default:
		in.MessageID = idIn(postback, "mid")
		s.add(in.written(textIn(postback, "title"), ""))
	}
}

type directMessage struct {
	id, text                         string
	isEcho, isDeleted, isUnsupported bool
	attachments                      []byte
}

func (m *directMessage) read(value []byte) {
	for w := members(value); w.next(); {
		switch w.key() {
		case "mid":
			m.id = idOf(w.value)
		case "text":
			m.text = textOf(w.value, MaxText)
		case "is_echo":
			m.isEcho = flagOf(w.value)
		case "is_deleted":
			m.isDeleted = flagOf(w.value)
		case "is_unsupported":
			m.isUnsupported = flagOf(w.value)
		case "attachments":
			m.attachments = w.value
		}
	}
}

// media names what a message without text holds, by the first thing that is attached; empty if it holds nothing.
func (m *directMessage) media() string {
	attached := elements(m.attachments)
	if !attached.next() {
		if m.isUnsupported {
			return "unsupported"
		}
		return ""
	}
	kind, sticker := "", false
	for w := members(attached.value); w.next(); {
		switch w.key() {
		case "type":
			kind = wordOf(w.value)
		case "payload":
			sticker = given(memberOf(w.value, "sticker_id"))
		}
	}
	if sticker {
		return "sticker"
	}
	return mediaName(kind)
}
