package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/caddy-svc/caddy-svc/internal/codes"
)

const conversationsPath = root + "/conversations"

type conversation struct {
	ID             string `json:"id"`
	ChannelID      string `json:"channelId"`
	CustomerID     string `json:"customerId"`
	CustomerName   string `json:"customerName"`
	State          string `json:"state"`
	Attention      string `json:"attention"`
	PausedUntil    string `json:"pausedUntil"`
	BlockedAt      string `json:"blockedAt"`
	LastCustomerAt string `json:"lastCustomerAt"`
	// UnansweredSince is when the first text came that has no answer.
	UnansweredSince string `json:"unansweredSince"`
	HandoverReason  string `json:"handoverReason"`
}

// The states of a conversation.
const (
	answeredByAssistant = "assistant"
	answeredByHuman     = "human"
	conversationClosed  = "closed"
)

// Customer returns the customer's name, or the platform's id of a customer without one. It leaves out the controls of the direction of
// text, with which a name could make the text around it read as another one.
func (c *conversation) Customer() string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, cmp.Or(c.CustomerName, c.CustomerID))
}

var conversationStates = map[string]string{
	answeredByAssistant: "The assistant answers",
	answeredByHuman:     "A person answers",
	conversationClosed:  "Closed",
}

var handoverReasons = map[string]string{
	"assistant": "The assistant asked for a person.",
	"words":     "The customer wrote a word for which a person is called.",
	"failures":  "The assistant failed to answer twice in a row.",
}

// HandoverLabel returns why the assistant gave the conversation to people, "" if it didn't.
func (c *conversation) HandoverLabel() string { return handoverReasons[c.HandoverReason] }

// Paused reports whether the assistant is silent for a while, because a colleague wrote from the platform's app.
func (c *conversation) Paused() bool { return c.State == answeredByAssistant && c.PausedUntil != "" }

// StateLabel returns in words who answers.
func (c *conversation) StateLabel() string {
	if c.Paused() {
		return "The assistant pauses"
	}
	return cmp.Or(conversationStates[c.State], c.State)
}

// AttentionLabel returns in words why the conversation needs attention, empty if it doesn't.
func (c *conversation) AttentionLabel() string {
	if c.Attention == "" {
		return ""
	}
	return codes.Of(c.Attention).Conversation
}

// Waits reports whether the customer waits for a person, because one has the conversation or the assistant pauses.
func (c *conversation) Waits() bool {
	return (c.State == answeredByHuman || c.Paused()) && c.UnansweredSince != ""
}

// NeedLabel returns the reason why the conversation needs a person, "" if it needs none.
func (c *conversation) NeedLabel() string {
	if c.Attention == "" && c.Waits() {
		return strings.TrimSpace("The customer waits for a person. " + c.HandoverLabel())
	}
	return c.AttentionLabel()
}

type conversationRow struct {
	conversation

	ChannelName string
}

type conversationsData struct {
	Filter        form
	Filtered      bool
	Conversations []conversationRow
	Pager         pager
	// Retry and Dismiss act on those that need somebody, if the list shows only these.
	Retry, Dismiss form
	// Live is the address of the list's live part.
	Live string
}

func conversationPages() []page {
	return []page{
		{
			path: conversationsPath, template: "conversations", title: "Conversations", fragments: []string{"conversation-list"},
			show: showConversations,
			actions: []action{
				{verb: "retry", form: "conversations-retry", done: "The assistant tries again.", do: actOnAll},
				{verb: "dismiss", form: "conversations-dismiss", done: "Nobody needs to look at these conversations any more.", do: actOnAll},
			},
		},
		conversationPage(), conversationTemplatePage(),
	}
}

// filterNames are the parameters of the list's address, which are the API's.
func filterNames() []string { return []string{"channelId", "state", "waiting"} }

func showConversations(req *pageRequest) (any, error) {
	query := req.cursor()
	query.Set("order", "recent")
	data := conversationsData{Live: req.live("conversation-list", append(filterNames(), "cursor")...)}
	for _, name := range filterNames() {
		if value := req.query(name); value != "" {
			query.Set(name, value)
			data.Filtered = true
		}
	}
	var conversations list[conversation]
	if err := req.get("/conversations", query, &conversations); err != nil {
		return nil, err
	}
	channels, err := req.namedOptions("/channels", "All channels", "")
	if err != nil {
		return nil, err
	}
	for _, one := range conversations.Data {
		row := conversationRow{conversation: one, ChannelName: labelOf(channels, one.ChannelID)}
		data.Conversations = append(data.Conversations, row)
	}
	data.Pager = req.pager(conversations.NextCursor)
	data.Filter = req.form(filterForm(channels, req.query))
	if req.query("waiting") != "" {
		data.Retry = req.form(bulkForm("retry", "Try again what stands", req.query("channelId"), ""))
		data.Dismiss = req.form(bulkForm("dismiss", "Dismiss what stands", req.query("channelId"),
			"Leave what stands in these conversations unanswered? Their customers get no answer to it."))
	}
	return &data, nil
}

// bulkForm is the button for a change of all conversations of a channel, or of all, that need somebody.
func bulkForm(action, text, channelID, confirm string) form {
	f := button("conversations-"+action, conversationsPath+"/"+action, text, confirm)
	f.Fields = []field{{Name: "channelId", Kind: hiddenField, Value: channelID}}
	return f
}

// bulkPages bounds the pages of 100 conversations that one press of a button changes.
const bulkPages = 10

// actOnAll retries or dismisses what stands, by the action's verb.
func actOnAll(req *pageRequest) (outcome, error) {
	query := url.Values{"limit": {"100"}}
	if id := req.text("channelId"); id != "" {
		query.Set("channelId", id)
	}
	for range bulkPages {
		var changed struct {
			NextCursor string `json:"nextCursor"`
		}
		ask := apiRequest{method: http.MethodPost, path: "/conversations", query: query, body: object{"action": req.action.verb}}
		if err := req.call(ask, &changed); err != nil {
			return outcome{}, err
		}
		if changed.NextCursor == "" {
			break
		}
		query.Set("cursor", changed.NextCursor)
	}
	return goTo(conversationsPath), nil
}

func filterForm(channels []option, asked func(string) string) form {
	return form{ID: "conversation-filter", Action: conversationsPath, Get: true, Submit: "Show", Fields: []field{
		{Name: "channelId", Kind: selectField, Label: "Channel", Options: choices(channels, asked("channelId"))},
		{Name: "state", Kind: selectField, Label: "Who answers", Options: choices([]option{
			{Label: "Anybody"},
			{Value: answeredByAssistant, Label: "The assistant"},
			{Value: answeredByHuman, Label: "A person"},
			{Value: conversationClosed, Label: "Nobody: the customer has blocked the channel"},
		}, asked("state"))},
		{Name: "waiting", Kind: checkField, Label: "Only those that need somebody", Value: asked("waiting")},
	}}
}

// live is the address of a fragment of this page, with those parameters of the address that it depends on. It is in full,
// for a refused form is shown at the address it was sent to.
func (req *pageRequest) live(fragment string, names ...string) string {
	query := url.Values{"fragment": {fragment}}
	for _, name := range names {
		if value := req.query(name); value != "" {
			query.Set(name, value)
		}
	}
	return req.path() + "?" + query.Encode()
}
