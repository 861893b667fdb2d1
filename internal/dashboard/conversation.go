package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/codes"
)

// shownMessages is the number of messages on a page of a conversation.
const shownMessages = "100"

// message is one line of a conversation as the API shows it.
type message struct {
	ID      string `json:"id"`
	Author  string `json:"author"`
	Kind    string `json:"kind"`
	Text    string `json:"text"`
	State   string `json:"state"`
	Code    string `json:"code"`
	TurnID  string `json:"turnId"`
	Handled bool   `json:"handled"`
	Edited  bool   `json:"edited"`
	At      string `json:"at"`

	Files []sentFile `json:"files"`

	// Resend is the button of a message that wasn't delivered, or perhaps not.
	Resend form `json:"-"`
}

// Direction returns "in" for a customer's message, else "out".
func (m *message) Direction() string {
	if m.Author == "customer" {
		return "in"
	}
	return "out"
}

// Delivery returns the state of the delivery, "received" for an incoming message.
func (m *message) Delivery() string {
	return cmp.Or(m.State, "received")
}

// From returns the author in words.
func (m *message) From() string {
	switch {
	case m.Author == "customer":
		return "Customer"
	case m.Author == "assistant":
		return "Assistant"
	case m.State == "":
		return "One of you, in the platform's app"
	default:
		return "One of you"
	}
}

// Event reports whether the message has no text but only a short name of its content.
func (m *message) Event() bool { return m.Kind == "event" }

// Unclear reports whether it is unknown if the customer has the message.
func (m *message) Unclear() bool { return m.State == "delivery_unknown" }

// Failed reports whether the message didn't reach the customer.
func (m *message) Failed() bool { return m.State == "failed" }

func (m *message) DeliveryLabel() string { return cmp.Or(deliveryTexts[m.State], m.State) }

// Why returns in words why the message was not delivered, or not yet; empty when it was.
func (m *message) Why() string {
	switch {
	case m.Failed(), m.Unclear():
		return codes.Of(m.Code).Message
	case m.State == "pending" && m.Code == codes.NeedsReauth:
		return "The channel must be reconnected. The message goes out by itself afterwards."
	}
	return ""
}

type conversationData struct {
	Conversation conversation
	ChannelName  string
	ChannelPath  string
	// Messages are oldest first.
	Messages []message
	// Older is the address of earlier messages, "" without any; Newest that of the newest, "" on their page.
	Older, Newest string
	// Live is the address of the messages' live part, "" for older ones, which don't change.
	Live, LiveState string

	HandOver form
	HandBack form
	Retry    form
	Block    form
	Unblock  form
	// Template is the address at which a template is sent, "" where the platform has none.
	Template string
	// Export is the address of the file with everything about the customer.
	Export  string
	Dismiss form
	Draft   draftData
	Answer  form
	// File sends a file; without an id on channels that take none.
	File   form
	Delete form
}

func (d *conversationData) PageTitle() string { return d.Conversation.Customer() }

func conversationPage() page {
	here := func(req *pageRequest) outcome { return goTo(conversationsPath + "/" + req.id()) }
	ask := func(below string) func(req *pageRequest) (outcome, error) {
		return func(req *pageRequest) (outcome, error) {
			return here(req), req.send(http.MethodPost, "/conversations/"+req.id()+below, nil, nil)
		}
	}
	return page{
		path: conversationsPath + "/{id}", template: "conversation", title: "Conversation", section: conversationsPath,
		fragments: []string{"message-list", "conversation-state"},
		show:      showConversation,
		relays: []relay{{method: http.MethodGet, name: "export", ask: func(req *pageRequest) (apiRequest, error) {
			return apiRequest{method: http.MethodGet, path: "/conversations/" + req.id() + "/export"}, nil
		}}, fileRelay()},
		actions: []action{
			{verb: "messages", form: "message-create", done: "Your answer is on its way.", do: answerCustomer},
			{verb: "files", form: "file-create", done: "The file is on its way.", maxBody: maxSentUpload, do: sendFile},
			{
				verb: "handover", form: "conversation-handover", done: "The conversation is yours. The assistant is silent in it.",
				do: ask("/handover"),
			},
			{
				verb: "handback", form: "conversation-handback", done: "The assistant answers again.",
				do: ask("/handback"),
			},
			{
				verb: "retry", form: "conversation-retry", done: "The assistant tries again.", do: ask("/retry"),
			},
			{
				verb: "dismiss", form: "conversation-dismiss", done: "Nobody needs to look at this conversation any more.",
				do: ask("/dismiss"),
			},
			{verb: "draft", form: "draft-send", done: "The answer is on its way.", do: sendDraft},
			{verb: "discard", form: "draft-discard", done: "The proposed answer was discarded.", do: discardDraft},
			{verb: "resend", form: "message-resend", done: "The message is sent again.", do: resendMessage},
			{
				verb: "block", form: "conversation-block", done: "The customer is blocked. The assistant answers nothing of theirs.",
				do: ask("/block"),
			},
			{verb: "unblock", form: "conversation-unblock", done: "The assistant answers what comes next.", do: ask("/unblock")},
			{verb: "delete", form: "conversation-delete", done: "The customer was erased.", do: func(req *pageRequest) (outcome, error) {
				return goTo(conversationsPath), req.send(http.MethodDelete, "/conversations/"+req.id(), nil, nil)
			}},
		},
	}
}

func showConversation(req *pageRequest) (any, error) {
	data := conversationData{}
	c := &data.Conversation
	if err := req.get("/conversations/"+req.id(), nil, c); err != nil {
		return nil, err
	}
	if err := req.readMessages(&data); err != nil {
		return nil, err
	}
	var on channel
	switch err := req.get("/channels/"+c.ChannelID, nil, &on); {
	case err == nil:
		data.ChannelName, data.ChannelPath = on.Name, channelsPath+"/"+on.ID
		kind, _ := req.d.channelTypeOf(on.Type)
		if kind.Templates {
			data.Template = conversationsPath + "/" + c.ID + "/template"
		}
		if len(kind.Files) > 0 {
			data.File = req.form(sendFileForm(conversationsPath+"/"+c.ID, kind.Files))
		}
	case req.d.apiErrorOf(err).Status != http.StatusNotFound: // the channel was deleted, and the conversation goes with it
		return nil, err
	}
	here := conversationsPath + "/" + c.ID
	data.LiveState = req.live("conversation-state")
	if c.Attention == codes.Draft {
		if err := req.addDraft(&data, here); err != nil {
			return nil, err
		}
	} else if c.Attention != "" {
		data.Retry = req.form(button("conversation-retry", here+"/retry", "Try again", ""))
		data.Dismiss = req.form(button("conversation-dismiss", here+"/dismiss", "Dismiss",
			"Leave what stands here unanswered? The customer gets no answer to it."))
	}
	switch c.State { // a form that isn't shown must not hide the message of its refusal
	case answeredByAssistant:
		data.HandOver = req.form(button("conversation-handover", here+"/handover", "Take over", ""))
		if c.Paused() {
			data.HandBack = req.form(button("conversation-handback", here+"/handback", "Let the assistant go on", ""))
		}
	case answeredByHuman:
		data.HandBack = req.form(button("conversation-handback", here+"/handback", "Hand back to the assistant", ""))
	}
	data.Answer = req.form(form{ID: "message-create", Action: here + "/messages", Submit: "Send to the customer", Fields: []field{onceField(), {
		Name: "text", Kind: areaField, Label: "Your answer", Required: true, MaxLength: 20_000, Rows: 4,
		Hint: "A long one is sent in several parts.",
	}}})
	if c.BlockedAt == "" {
		data.Block = req.form(button("conversation-block", here+"/block", "Block the customer",
			"Block "+c.Customer()+"? The assistant answers nothing of theirs until you unblock them. What they write is kept."))
	} else {
		data.Unblock = req.form(button("conversation-unblock", here+"/unblock", "Unblock the customer", ""))
	}
	data.Export = here + "/export"
	data.Delete = req.form(button("conversation-delete", here+"/delete", "Erase everything",
		"Erase everything that is stored about "+c.Customer()+", with all messages? This can't be undone. At the platform it stays."))
	return &data, nil
}

// readMessages reads the newest messages, or those before the cursor in the address.
func (req *pageRequest) readMessages(data *conversationData) error {
	query := req.cursor()
	query.Set("order", "newest")
	query.Set("limit", shownMessages)
	var messages list[message]
	if err := req.get("/conversations/"+req.id()+"/messages", query, &messages); err != nil {
		return err
	}
	slices.Reverse(messages.Data)
	data.Messages = messages.Data
	here := conversationsPath + "/" + req.id()
	for i := range data.Messages {
		m := &data.Messages[i]
		if m.Unclear() || m.Failed() {
			m.Resend = req.form(resendForm(m, here))
		}
		for k := range m.Files {
			m.Files[k].Address = here + "/file?" + url.Values{"id": {m.Files[k].ID}}.Encode()
		}
	}
	if messages.NextCursor != "" {
		data.Older = here + "?" + url.Values{"cursor": {messages.NextCursor}}.Encode()
	}
	if query.Has("cursor") {
		data.Newest = here
		return nil
	}
	data.Live = req.live("message-list")
	return nil
}

// resendForm is the button that sends a message again. For one that perhaps arrived it asks first, and the answer goes along.
func resendForm(m *message, here string) form {
	f := button("message-resend-"+m.ID, here+"/resend", "Send again", "")
	f.Fields = []field{{Name: "messageId", Kind: hiddenField, Value: m.ID}}
	if m.Unclear() {
		f.Confirm = "Send it again? The customer may get it twice."
		f.Fields = append(f.Fields, field{Name: "mayArriveTwice", Kind: hiddenField, Value: "true"})
	}
	return f
}

func resendMessage(req *pageRequest) (outcome, error) {
	id := req.text("messageId")
	if !wellFormedID(id) {
		return outcome{}, &apiError{Status: http.StatusNotFound, Code: codeNotFound, Message: "There is no such message."}
	}
	err := req.send(http.MethodPost, "/conversations/"+req.id()+"/messages/"+id+"/resend", object{"mayArriveTwice": req.flag("mayArriveTwice")}, nil)
	return goTo(conversationsPath + "/" + req.id()), req.explained(err)
}

// explained returns a refusal to send with words for people, where the API's are for programs.
func (req *pageRequest) explained(err error) error {
	if err == nil {
		return nil
	}
	f := *req.d.apiErrorOf(err)
	if words := codes.All[f.Code].Message; words != "" {
		f.Message = words
	}
	return &f
}

// answerCustomer sends a person's message.
func answerCustomer(req *pageRequest) (outcome, error) {
	err := req.sendMessage(object{"text": req.text("text")})
	return goTo(conversationsPath + "/" + req.id()), req.explained(err)
}

// deliveryTexts name the states of a delivery.
var deliveryTexts = map[string]string{
	"pending":          "Waits to be sent",
	"sending":          "Is being sent",
	"sent":             "Sent",
	"failed":           "Not delivered",
	"delivery_unknown": "Unclear",
	"discarded":        "Discarded, not sent",
}
