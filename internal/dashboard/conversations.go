package dashboard

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const conversationsPath = root + "/conversations"

// The states of a conversation.
const (
	answeredByAssistant = "assistant"
	answeredByHuman     = "human"
	conversationClosed  = "closed"
)

// customer returns the customer's name, or the platform's id of a customer without one. It leaves out the controls of the direction of
// text, with which a name could make the text around it read as another one.
func customer(c *api.ConversationObject) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, cmp.Or(text(c.CustomerName), c.CustomerID))
}

var conversationStates = map[string]ui.Text{
	answeredByAssistant: "The assistant answers",
	answeredByHuman:     "A person answers",
	conversationClosed:  "Closed",
}

var handoverReasons = map[string]ui.Text{
	"assistant": "The assistant asked for a person.",
	"words":     "The customer wrote a word for which a person is called.",
	"failures":  "The assistant failed to answer twice in a row.",
}

// paused reports whether the assistant is silent for a while, because a colleague wrote from the platform's app.
func paused(c *api.ConversationObject) bool {
	return c.State == answeredByAssistant && c.PausedUntil != nil
}

// conversationState returns the state of a conversation in words.
func conversationState(c *api.ConversationObject) ui.Text {
	if paused(c) {
		return "The assistant pauses"
	}
	return cmp.Or(conversationStates[c.State], ui.Text(c.State))
}

// waits reports whether the customer waits for a person, because one has the conversation or the assistant pauses.
func waits(c *api.ConversationObject) bool {
	return (c.State == answeredByHuman || paused(c)) && c.UnansweredSince != nil
}

// attention returns in words why the conversation needs attention. It is empty if the conversation needs none.
func attention(c *api.ConversationObject) ui.Text {
	if c.Attention == nil {
		return ""
	}
	return ui.Text(codes.Of(*c.Attention).Conversation)
}

// need returns the reason why the conversation needs a person. It is empty if the conversation needs none.
func need(say *ui.Printer, c *api.ConversationObject) string {
	if c.Attention == nil && waits(c) {
		return strings.TrimSpace(say.T("The customer waits for a person.") + " " + say.T(handoverReasons[text(c.HandoverReason)]))
	}
	return say.T(attention(c))
}

type conversationRow struct {
	*api.ConversationObject

	ChannelName string
}

type conversationsData struct {
	Filter   form
	Filtered bool
	// View is the chosen view of the tabs: "waiting", a state, "other", or empty for all.
	View          string
	Conversations []conversationRow
	Pager         ui.Pager
	// Retry and Dismiss act on all conversations that need a person, if the list shows only these.
	Retry, Dismiss form
	// Live is the address of the list's live part.
	Live string
}

var conversationPages = []page{
	{
		Path: conversationsPath, Template: "conversations", Title: "Inbox", Fragments: []string{"conversation-list"},
		Show: showConversations,
		Actions: []action{
			{Verb: "retry", Form: "conversations-retry", Done: "The assistant tries again.", Do: actOnAll},
			{Verb: "dismiss", Form: "conversations-dismiss", Done: "Nobody needs to look at these conversations any more.", Do: actOnAll},
		},
	},
	conversationPage, conversationTemplatePage,
}

// filterNames are the parameters of the list's address, which are the operation's.
var filterNames = []string{"channelId", "state", "waiting"}

// viewOf returns the view that shows the same as a filter, "other" if none does.
func viewOf(in values) string {
	switch state := in["state"]; {
	case in["channelId"] != nil, in["waiting"] != nil && state != nil:
		return "other"
	case in["waiting"] != nil:
		return "waiting"
	case state != nil:
		return fmt.Sprint(state)
	}
	return ""
}

func showConversations(req *pageRequest) (any, error) {
	in := req.Cursor()
	in["order"] = "recent"
	data := conversationsData{Live: req.live("conversation-list", append(filterNames, "cursor")...)}
	for _, name := range filterNames {
		if value := req.Query(name); value != "" {
			in[name] = value
			data.Filtered = true
		}
	}
	data.View = viewOf(in)
	conversations := site.Read(req, api.ListConversations, in)
	channels := optionsOf(req, api.ListChannels, ui.Text("All channels"), func(c api.ChannelObject) option { return named(c.ID, c.Name) })
	for i := range conversations.Data {
		one := &conversations.Data[i]
		data.Conversations = append(data.Conversations, conversationRow{one, labelOf(channels, one.ChannelID)})
	}
	data.Pager = req.Pager(conversations.NextCursor)
	data.Filter = req.Filter(form{ID: "conversation-filter", Action: conversationsPath, Submit: "Show", Fields: []field{
		{Name: "channelId", Kind: ui.SelectField, Label: "Channel", Options: channels},
		{Name: "state", Kind: ui.SelectField, Label: "Who answers", Options: []option{
			{Label: "Anybody"},
			{Value: answeredByAssistant, Label: "The assistant"},
			{Value: answeredByHuman, Label: "A person"},
			{Value: conversationClosed, Label: "Nobody: the customer has blocked the channel"},
		}},
		{Name: "waiting", Kind: ui.CheckField, Label: "Only those that need somebody"},
	}})
	if req.Query("waiting") != "" {
		channel := req.Query("channelId")
		data.Retry = req.button("conversations-retry", "", "Try again what stands", "", "channelId", channel)
		data.Dismiss = req.button("conversations-dismiss", "", "Dismiss what stands",
			"Leave what stands in these conversations unanswered? Their customers get no answer to it.", "channelId", channel)
	}
	return &data, nil
}

// bulkPages bounds the pages of 100 conversations that one press of a button changes.
const bulkPages = 10

// actOnAll retries or dismisses unanswered messages of all conversations, by the action's verb.
func actOnAll(req *pageRequest) (string, error) {
	in := values{"limit": "100", "channelId": req.Text("channelId"), "action": req.Verb}
	for range bulkPages {
		changed, err := site.Ask(req, api.ActOnConversations, in)
		if err != nil {
			return "", err
		}
		if changed.NextCursor == nil {
			break
		}
		in["cursor"] = *changed.NextCursor
	}
	return conversationsPath, nil
}
