package dashboard

import (
	"net/http"
	"net/url"
	"slices"
)

// shownMessages is how many messages a page of a conversation has: the newest ones, or those before a cursor.
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
	At      string `json:"at"`
}

// Direction is "in" for what the customer wrote, else "out".
func (m *message) Direction() string {
	if m.Author == "customer" {
		return "in"
	}
	return "out"
}

// Delivery is the state of the delivery, "received" for what came from the platform.
func (m *message) Delivery() string {
	if m.State == "" {
		return "received"
	}
	return m.State
}

// From is who wrote it, in words.
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

// Event reports whether it is something without text, whose text is its short name.
func (m *message) Event() bool { return m.Kind == "event" }

// Unclear reports whether nobody knows if the customer has it.
func (m *message) Unclear() bool { return m.State == "delivery_unknown" }

// Failed reports whether the customer doesn't have it.
func (m *message) Failed() bool { return m.State == "failed" }

// DeliveryLabel is the state of the delivery in words, "" for what came from the platform.
func (m *message) DeliveryLabel() string { return deliveryWords(m.State) }

// Why says in words why it was not delivered, "" when it was.
func (m *message) Why() string {
	if m.Unclear() {
		return ""
	}
	return failureWords(m.Code)
}

// conversationData is what the page of one conversation shows.
type conversationData struct {
	Conversation conversation
	ChannelName  string
	ChannelPath  string
	// Messages are oldest first.
	Messages []message
	// Older leads to the messages before, "" when there are none; Newest back to the end, "" when it is the end.
	Older, Newest string
	// Live is the address of the messages' live part, "" for older ones, which stay.
	Live, LiveState string

	HandOver form
	HandBack form
	Answer   form
	Delete   form
}

// PageTitle is the customer.
func (d *conversationData) PageTitle() string { return d.Conversation.Customer() }

func conversationPage() page {
	here := func(v *visit) outcome { return goTo(conversationsPath + "/" + v.id()) }
	ask := func(method, below string) func(v *visit) (outcome, error) {
		return func(v *visit) (outcome, error) {
			return here(v), v.send(method, "/conversations/"+v.id()+below, nil, nil)
		}
	}
	return page{
		path: conversationsPath + "/{id}", template: "conversation", title: "Conversation", section: conversationsPath,
		fragments: []string{"message-list", "conversation-state"},
		show:      showConversation,
		actions: []action{
			{verb: "messages", form: "message-create", done: "Your answer is on its way.", do: answerCustomer},
			{
				verb: "handover", form: "conversation-handover", done: "The conversation is yours. The assistant is silent in it.",
				do: ask(http.MethodPost, "/handover"),
			},
			{
				verb: "handback", form: "conversation-handback", done: "The assistant answers what comes next.",
				do: ask(http.MethodPost, "/handback"),
			},
			{verb: "delete", form: "conversation-delete", done: "The conversation was deleted.", do: func(v *visit) (outcome, error) {
				return goTo(conversationsPath), v.send(http.MethodDelete, "/conversations/"+v.id(), nil, nil)
			}},
		},
	}
}

func showConversation(v *visit) (any, error) {
	data := conversationData{}
	c := &data.Conversation
	if err := v.get("/conversations/"+v.id(), nil, c); err != nil {
		return nil, err
	}
	if err := v.readMessages(&data); err != nil {
		return nil, err
	}
	var on channel
	switch err := v.get("/channels/"+c.ChannelID, nil, &on); {
	case err == nil:
		data.ChannelName, data.ChannelPath = on.Name, channelsPath+"/"+on.ID
	case v.d.faultOf(err).Status != http.StatusNotFound: // it was deleted, and the conversation is about to be
		return nil, err
	}
	here := conversationsPath + "/" + c.ID
	data.LiveState = v.live("conversation-state")
	switch c.State { // a form that isn't shown must not take the message of its refusal with it
	case answeredByAssistant:
		data.HandOver = v.form(button("conversation-handover", here+"/handover", "Take over", ""))
	case answeredByHuman:
		data.HandBack = v.form(button("conversation-handback", here+"/handback", "Hand back to the assistant", ""))
	}
	data.Answer = v.form(form{ID: "message-create", Action: here + "/messages", Submit: "Send to the customer", Fields: []field{{
		Name: "text", Kind: areaField, Label: "Your answer", Required: true, MaxLength: 20_000, Rows: 4,
		Hint: "A long one is sent in several parts.",
	}}})
	data.Delete = v.form(button("conversation-delete", here+"/delete", "Delete the conversation",
		"Delete everything that "+c.Customer()+" and you wrote? This can't be undone. At the platform it stays."))
	return &data, nil
}

// readMessages fills in the newest messages, or those before the cursor in the address.
func (v *visit) readMessages(data *conversationData) error {
	query := v.cursor()
	query.Set("order", "newest")
	query.Set("limit", shownMessages)
	var messages list[message]
	if err := v.get("/conversations/"+v.id()+"/messages", query, &messages); err != nil {
		return err
	}
	slices.Reverse(messages.Data)
	data.Messages = messages.Data
	here := conversationsPath + "/" + v.id()
	if messages.NextCursor != "" {
		data.Older = here + "?" + url.Values{"cursor": {messages.NextCursor}}.Encode()
	}
	if query.Has("cursor") {
		data.Newest = here
		return nil
	}
	data.Live = v.live("message-list")
	return nil
}

// answerCustomer sends what a person wrote. What the platform wouldn't take is explained for people; the API explains it to
// programs.
func answerCustomer(v *visit) (outcome, error) {
	err := v.send(http.MethodPost, "/conversations/"+v.id()+"/messages", object{"text": v.text("text")}, nil)
	if err == nil {
		return goTo(conversationsPath + "/" + v.id()), nil
	}
	f := *v.d.faultOf(err)
	if words := failureWords(f.Code); words != "" {
		f.Message = words
	}
	return outcome{}, &f
}
