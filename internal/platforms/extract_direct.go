package platforms

// directMessages adds what an entry of a page or of a photo account holds: messages, echoes of the business's own, and
// pressed buttons. Receipts, reactions, edits, deletions, referrals, hand-overs between apps and comments hold nothing.
func (e *socialEntry) directMessages(all []Inbound, channel Type) []Inbound {
	for i := range e.Messaging {
		all = appendComplete(all, e.Messaging[i].inbound(channel, e.ID))
	}
	for i := range e.Changes {
		if e.Changes[i].Field == "messages" { // the form of the photo platform's test deliveries
			all = appendComplete(all, e.Changes[i].Value.inbound(channel, e.ID))
		}
	}
	return all
}

// directEvent is one event of a conversation with a page or photo account
// (developers.facebook.com/docs/messenger-platform/reference/webhook-events).
type directEvent struct {
	Sender    directParty    `json:"sender"`
	Recipient directParty    `json:"recipient"`
	Timestamp moment         `json:"timestamp"`
	Message   *directMessage `json:"message"`
	Postback  *struct {
		MID   identifier `json:"mid"`
		Title string     `json:"title"`
	} `json:"postback"`
}

type directParty struct {
	ID identifier `json:"id"`
}

type directMessage struct {
	MID           identifier             `json:"mid"`
	Text          string                 `json:"text"`
	IsEcho        flag                   `json:"is_echo"`
	IsDeleted     flag                   `json:"is_deleted"`
	IsUnsupported flag                   `json:"is_unsupported"`
	Attachments   list[directAttachment] `json:"attachments"`
}

// directAttachment is a picture or the like of a message.
type directAttachment struct {
	Type    string `json:"type"`
	Payload struct {
		StickerID present `json:"sticker_id"`
	} `json:"payload"`
}

// inbound is what the event means to the channel of the account; of no kind if it means nothing.
func (e *directEvent) inbound(channel Type, account identifier) Inbound {
	in := Inbound{
		Type:         channel,
		ExternalID:   string(account),
		Conversation: string(e.Sender.ID),
		Address:      string(e.Sender.ID),
		SentAt:       e.Timestamp.time(),
	}
	switch m := e.Message; {
	case m != nil && bool(m.IsDeleted):
		return Inbound{}
	case m != nil && bool(m.IsEcho):
		in.Conversation, in.Address = string(e.Recipient.ID), string(e.Recipient.ID)
		in.MessageID = string(m.MID)
		return in.echoed(m.Text, m.media())
	case e.Sender.ID == account: // loop guard: the business is never its own customer
		return Inbound{}
	case m != nil:
		in.MessageID = string(m.MID)
		return in.written(m.Text, m.media())
	case e.Postback != nil:
		in.MessageID = string(e.Postback.MID)
		return in.written(e.Postback.Title, "")
	default:
		return Inbound{}
	}
}

// media names what a message without text holds; empty if it holds nothing.
func (m *directMessage) media() string {
	switch {
	case len(m.Attachments) == 0 && bool(m.IsUnsupported):
		return "unsupported"
	case len(m.Attachments) == 0:
		return ""
	case bool(m.Attachments[0].Payload.StickerID):
		return "sticker"
	default:
		return mediaName(m.Attachments[0].Type)
	}
}
