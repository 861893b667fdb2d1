package dashboard

import (
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/codes"
	words "github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// The filters are the API's, and the list is asked for in the order of what happened last.
func TestConversationFilters(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	page := r.see(t, "/dashboard/conversations?channelId=chn_1&state=human&waiting=true&cursor=abc")
	holds(t, page, "conversation-filter-state", "human")
	holds(t, page, "conversation-filter-channelId", "chn_1")
	holds(t, page, "conversation-filter-waiting", "true")
	var listed url.Values
	for _, one := range r.asked {
		if one.path == "/conversations" {
			listed = one.query
		}
	}
	require.Equal(t, url.Values{
		"channelId": {"chn_1"}, "state": {"human"}, "waiting": {"true"}, "cursor": {"abc"}, "order": {"recent"},
	}, listed)
	r.answer("GET /conversations", http.StatusOK, listOf())
	require.Contains(t, r.see(t, "/dashboard/conversations"), "They appear when customers write")
	require.Contains(t, r.see(t, "/dashboard/conversations?state=human"), "There is none like that.")
}

// A conversation that a person has is shown as waiting from the customer's first text without an answer on, and counted beside its
// section on every page.
func TestWaitingForPeople(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	require.NotContains(t, r.see(t, "/dashboard/conversations"), `id="waiting"`)
	unanswered := strings.Replace(conversationJSON, `"pausedUntil"`, `"unansweredSince":"2026-11-21T10:00:00.000Z","pausedUntil"`, 1)
	theirs := strings.Replace(unanswered, `"assistant"`, `"human"`, 1)
	for body, waits := range map[string]bool{conversationJSON: false, unanswered: false, theirs: true} {
		r.answer("GET /conversations", http.StatusOK, listOf(body))
		r.answer("GET /conversations/cnv_1", http.StatusOK, body)
		require.Equal(t, waits, strings.Contains(r.see(t, "/dashboard/conversations"), "The customer waits for a person."))
		require.Equal(t, waits, strings.Contains(r.see(t, "/dashboard/conversations/cnv_1"), `id="conversation-waiting"`))
	}
	for reason, label := range map[string]string{
		"assistant": "The assistant asked for a person.", "words": "The customer wrote a word for which a person is called.",
		"failures": "The assistant failed to answer twice in a row.", "person": "",
	} {
		body := strings.Replace(theirs, `"pausedUntil"`, `"handoverReason":"`+reason+`","pausedUntil"`, 1)
		r.answer("GET /conversations", http.StatusOK, listOf(body))
		r.answer("GET /conversations/cnv_1", http.StatusOK, body)
		require.Contains(t, r.see(t, "/dashboard/conversations"), "The customer waits for a person."+strings.TrimRight(" "+label, " "))
		page := r.see(t, "/dashboard/conversations/cnv_1")
		require.Equal(t, label != "", strings.Contains(page, `<p id="conversation-reason">`+label+`</p>`))
	}
	for count, label := range map[string]string{"1": "1", "99": "99", "100": "99&#43;"} {
		r.answer("GET /session", http.StatusOK, `{"user":{"id":"usr_1","email":"lan@shop.example"},
			"organization":{"id":"org_1","name":"Shop","waitingConversations":`+count+`},"role":"member"}`)
		page := r.see(t, "/dashboard/conversations/cnv_1")
		require.Contains(t, page, `<span class="count urgent" id="waiting">`+label+`<span class="seen-by-readers"> wait for a person</span></span></a>`)
		require.Equal(t, 1, strings.Count(page, `id="waiting"`))
	}
}

// dataAttribute is an attribute for the script and for tests.
var dataAttribute = regexp.MustCompile(`data-[a-z-]+="[^"]*"`)

// Both pages say in words why a conversation needs attention, and name no code, also not one that another version has written.
func TestAttentionInWords(t *testing.T) {
	t.Parallel()
	for _, code := range append(slices.Collect(maps.Keys(codes.All)), "something_new") {
		r := newBareFixture(t)
		body := strings.Replace(conversationJSON, `"attention":null`, `"attention":"`+code+`"`, 1)
		r.answer("GET /conversations", http.StatusOK, listOf(body))
		r.answer("GET /conversations/cnv_1", http.StatusOK, body)
		r.answer("GET /conversations/cnv_1/drafts", http.StatusOK, listOf())
		for _, path := range []string{"/dashboard/conversations", "/dashboard/conversations/cnv_1"} {
			page := r.see(t, path)
			require.Contains(t, page, html.EscapeString(codes.Of(code).Conversation))
			if strings.Contains(code, "_") { // others are ordinary words
				require.NotContains(t, dataAttribute.ReplaceAllString(page, ""), code)
			}
		}
	}
}

// A message that failed says in words why, and names no code.
func TestFailuresInWords(t *testing.T) {
	t.Parallel()
	for _, code := range append(slices.Collect(maps.Keys(codes.All)), "something_new") {
		state := "failed"
		if code == codes.DeliveryUnknown {
			state = code
		}
		m := &api.MessageObject{State: &state, Code: &code}
		require.Equal(t, codes.Of(code).Message, string(undelivered(m)))
		if codes.All[code].Message == "" && code != "something_new" {
			continue // no message fails with it
		}
		require.NotEmpty(t, undelivered(m))
		r := newBareFixture(t)
		r.answer("GET /conversations/cnv_1/messages", http.StatusOK,
			`{"data":[{"id":"msg_1","author":"human","kind":"text","text":"one","state":"`+state+`","code":"`+code+`"}],"nextCursor":null}`)
		require.Contains(t, r.see(t, "/dashboard/conversations/cnv_1"), html.EscapeString(string(undelivered(m))))
	}
}

// A pause is shown as what it is: the assistant doesn't answer, who waits and since when, and how to end it. The list says the same.
func TestPauseIsShown(t *testing.T) {
	t.Parallel()
	paused := strings.Replace(conversationJSON, `"pausedUntil":null`, `"pausedUntil":"2026-11-21T11:30:00.000Z"`, 1)
	waits := strings.Replace(paused, `"pausedUntil"`, `"unansweredSince":"2026-11-21T10:00:00.000Z","pausedUntil"`, 1)
	theirs := strings.Replace(waits, `"state":"assistant"`, `"state":"human"`, 1)
	require.NotEqual(t, waits, theirs)
	for name, test := range map[string]struct {
		body                        string
		paused, waits, button, list bool
	}{
		"no pause":              {body: conversationJSON},
		"paused":                {body: paused, paused: true, button: true},
		"the customer waits":    {body: waits, paused: true, waits: true, button: true, list: true},
		"a person has taken it": {body: theirs, waits: true, button: true, list: true}, // hand back
	} {
		r := newBareFixture(t)
		r.answer("GET /conversations", http.StatusOK, listOf(test.body))
		r.answer("GET /conversations/cnv_1", http.StatusOK, test.body)
		page := r.see(t, "/dashboard/conversations/cnv_1")
		require.Equal(t, test.paused, strings.Contains(page, "The assistant pauses"), name)
		require.Equal(t, test.paused, strings.Contains(page, `id="conversation-paused"`), name)
		require.Equal(t, test.paused, strings.Contains(page, "Let the assistant go on"), name)
		require.Equal(t, test.waits, strings.Contains(page, `id="conversation-waiting"`), name)
		require.Equal(t, test.button, strings.Contains(page, `id="conversation-handback"`), name)
		list := r.see(t, "/dashboard/conversations")
		require.Equal(t, test.paused, strings.Contains(list, "The assistant pauses"), name)
		require.Equal(t, test.list, strings.Contains(list, "The customer waits for a person."), name)
	}
	r := newBareFixture(t)
	r.answer("GET /conversations/cnv_1", http.StatusOK, waits)
	r.answer("POST /conversations/cnv_1/handback", http.StatusOK, conversationJSON)
	requireTo(t, r.submit(t, "/dashboard/conversations/cnv_1/handback", nil), "/dashboard/conversations/cnv_1", "conversation-handback")
}

func TestMessagesAreShown(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("GET /conversations/cnv_1/messages", http.StatusOK, `{"data":[
		{"id":"msg_6","author":"human","kind":"text","text":"from the app","state":null,"edited":true},
		{"id":"msg_5","author":"assistant","kind":"text","text":"late","state":"failed","code":"service_window_expired"},
		{"id":"msg_4","author":"assistant","kind":"text","text":"maybe","state":"delivery_unknown","code":"delivery_unknown"},
		{"id":"msg_3","author":"human","kind":"text","text":"mine","state":"pending"},
		{"id":"msg_2","author":"customer","kind":"event","text":"image","state":null},
		{"id":"msg_1","author":"customer","kind":"text","text":"hi","state":null}
	],"nextCursor":"before"}`)
	page := r.see(t, "/dashboard/conversations/cnv_1")
	item := func(id string) string {
		_, after, _ := strings.Cut(page, element(t, page, id))
		inside, _, _ := strings.Cut(after, "</li>")
		return element(t, page, id) + inside
	}
	require.Less(t, strings.Index(page, `id="msg_1"`), strings.Index(page, `id="msg_6"`), "oldest first")
	require.Contains(t, item("msg_1"), `data-direction="in" data-state="received" data-kind="text"`)
	require.Contains(t, item("msg_2"), `Sent without text: <em>image</em>`)
	require.Contains(t, item("msg_3"), `data-direction="out" data-state="pending"`)
	require.Contains(t, item("msg_3"), "Waits to be sent")
	require.Contains(t, item("msg_4"), "It is unknown whether the customer has this")
	require.Contains(t, item("msg_5"), "last message is too old")
	require.Contains(t, item("msg_5"), "Not delivered")
	require.Contains(t, item("msg_6"), "in the platform&#39;s app")
	require.Contains(t, item("msg_6"), ", edited, ")
	require.NotContains(t, item("msg_5"), "edited")
	require.Contains(t, page, `href="/dashboard/conversations/cnv_1?cursor=before"`)

	older := r.see(t, "/dashboard/conversations/cnv_1?cursor=before")
	require.NotContains(t, older, "fragment=message-list", "what is old stays")
	require.Contains(t, older, `href="/dashboard/conversations/cnv_1">Newest messages`)
	for _, one := range r.asked {
		if strings.HasSuffix(one.path, "/messages") {
			require.Equal(t, "newest", one.query.Get("order"))
		}
	}
	r.answer("GET /conversations/cnv_1/messages", http.StatusOK, listOf())
	require.Contains(t, r.see(t, "/dashboard/conversations/cnv_1"), "No messages yet.")
}

// What stands is retried or dismissed on the conversation's page, and only there where something stands.
func TestStandingConversation(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	page := r.see(t, "/dashboard/conversations/cnv_1")
	require.NotContains(t, page, `id="conversation-retry"`)
	require.NotContains(t, page, `id="conversation-dismiss"`)
	r.answer("GET /conversations/cnv_1", http.StatusOK, strings.Replace(conversationJSON, `"attention":null`, `"attention":"provider_error"`, 1))
	page = r.see(t, "/dashboard/conversations/cnv_1")
	require.NotContains(t, element(t, page, "conversation-retry"), "data-confirm")
	require.Contains(t, element(t, page, "conversation-dismiss"), `data-confirm="Leave what stands here unanswered?`)
	for _, verb := range []string{"retry", "dismiss"} {
		r.answer("POST /conversations/cnv_1/"+verb, http.StatusOK, conversationJSON)
		requireTo(t, r.submit(t, "/dashboard/conversations/cnv_1/"+verb, nil), "/dashboard/conversations/cnv_1", "conversation-"+verb)
		r.refuse("POST /conversations/cnv_1/"+verb, http.StatusConflict, "conflict", "", "This is over.")
		require.Contains(t, r.submit(t, "/dashboard/conversations/cnv_1/"+verb, nil).Body.String(), "This is over.")
	}
}

// A message's form that is sent twice has the same Idempotency-Key both times, and the next form, or the same one with another text, has
// another.
func TestMessageIsSentOnce(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("POST /conversations/cnv_1/messages", http.StatusOK, `{"data":[]}`)
	once := func() string {
		_, after, found := strings.Cut(r.see(t, "/dashboard/conversations/cnv_1"), `name="once" value="`)
		require.True(t, found)
		value, _, _ := strings.Cut(after, `"`)
		return value
	}
	key := func(form, text string) string {
		requireTo(t, r.submit(t, "/dashboard/conversations/cnv_1/messages", url.Values{"once": {form}, "text": {text}}),
			"/dashboard/conversations/cnv_1", "message-create")
		sent := r.last(t, http.MethodPost)
		require.Equal(t, map[string]any{"text": text}, sent.body)
		return sent.header.Get("Idempotency-Key")
	}
	form := once()
	first := key(form, "Yes")
	require.NotEmpty(t, first)
	require.Equal(t, first, key(form, "Yes"))
	require.NotEqual(t, first, key(form, "No"), "the person went back and wrote something else")
	require.NotEqual(t, first, key(once(), "Yes"))
	require.Empty(t, key("", "Yes"))

	r.refuse("POST /conversations/cnv_1/messages", http.StatusServiceUnavailable, "provider_overloaded", "", "Try again.")
	page := r.submit(t, "/dashboard/conversations/cnv_1/messages", url.Values{"once": {form}, "text": {"Yes"}}).Body.String()
	require.Contains(t, page, `name="once" value="`+form+`"`, "a refused form is the same one")
}

// A customer is blocked and unblocked, exported and erased on the conversation's page.
func TestCustomer(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	page := r.see(t, "/dashboard/conversations/cnv_1")
	require.Contains(t, element(t, page, "conversation-block"), `data-confirm="Block `)
	require.NotContains(t, page, `id="conversation-unblock"`)
	require.Contains(t, element(t, page, "conversation-export"), `href="/dashboard/conversations/cnv_1/export"`)
	r.answer("GET /conversations/cnv_1/export", http.StatusOK, `{"messages":[]}`)
	require.JSONEq(t, `{"messages":[]}`, r.see(t, "/dashboard/conversations/cnv_1/export"))
	r.answer("GET /conversations/cnv_1", http.StatusOK, strings.Replace(conversationJSON, `"pausedUntil"`, `"blockedAt":"2026-11-21T10:00:00.000Z","pausedUntil"`, 1))
	page = r.see(t, "/dashboard/conversations/cnv_1")
	require.Contains(t, page, "Blocked since")
	require.NotContains(t, page, `id="conversation-block"`)
	element(t, page, "conversation-unblock")
	for _, verb := range []string{"block", "unblock"} {
		r.answer("POST /conversations/cnv_1/"+verb, http.StatusOK, conversationJSON)
		requireTo(t, r.submit(t, "/dashboard/conversations/cnv_1/"+verb, nil), "/dashboard/conversations/cnv_1", "conversation-"+verb)
	}
}

// A person who sends a message again is asked first where the customer may get it twice, and the API is told.
func TestSendAgain(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("GET /conversations/cnv_1/messages", http.StatusOK, `{"data":[
		{"id":"msg_3","author":"assistant","kind":"text","text":"maybe","state":"delivery_unknown","code":"delivery_unknown"},
		{"id":"msg_2","author":"assistant","kind":"text","text":"no","state":"failed","code":"send_failed"},
		{"id":"msg_1","author":"human","kind":"text","text":"yes","state":"sent"}
	],"nextCursor":null}`)
	page := r.see(t, "/dashboard/conversations/cnv_1")
	require.NotContains(t, page, `id="message-resend-msg_1"`)
	require.NotContains(t, element(t, page, "message-resend-msg_2"), "data-confirm")
	require.Contains(t, element(t, page, "message-resend-msg_3"), `data-confirm="Send it again? The customer may get it twice."`)

	send := func(id, twice string) *httptest.ResponseRecorder {
		return r.submit(t, "/dashboard/conversations/cnv_1/resend", url.Values{"messageId": {id}, "mayArriveTwice": {twice}})
	}
	for id, twice := range map[string]string{"msg_2": "", "msg_3": "true"} {
		r.answer("POST /conversations/cnv_1/messages/"+id+"/resend", http.StatusOK, `{"id":"`+id+`"}`)
		requireTo(t, send(id, twice), "/dashboard/conversations/cnv_1", "message-resend")
		require.Equal(t, map[string]any{"mayArriveTwice": twice == "true"}, r.last(t, http.MethodPost).body)
	}
	r.refuse("POST /conversations/cnv_1/messages/msg_2/resend", http.StatusUnprocessableEntity, "service_window_expired", "", "…")
	body := send("msg_2", "").Body.String()
	require.Contains(t, body, `id="message-resend-msg_2-error"`)
	require.Contains(t, body, "the platform no longer accepts free text")
	require.Equal(t, http.StatusNotFound, send("../../wallet", "").Code)
}

// All that need somebody are changed at once, page by page, on the channel that is shown.
func TestStandingConversationsInBulk(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	require.NotContains(t, r.see(t, "/dashboard/conversations"), `id="conversations-retry"`)
	page := r.see(t, "/dashboard/conversations?waiting=true&channelId=chn_1")
	element(t, page, "conversations-retry")
	require.Contains(t, element(t, page, "conversations-dismiss"), "data-confirm")
	for _, verb := range []string{"retry", "dismiss"} {
		r.answer("POST /conversations", http.StatusOK, `{"changed":3,"nextCursor":null}`)
		requireTo(t, r.submit(t, "/dashboard/conversations/"+verb, url.Values{"channelId": {"chn_1"}}), "/dashboard/conversations", "conversations-"+verb)
		sent := r.last(t, http.MethodPost)
		require.Equal(t, map[string]any{"action": verb}, sent.body)
		require.Equal(t, url.Values{"channelId": {"chn_1"}, "limit": {"100"}}, sent.query)
	}
	before := len(r.asked)
	r.answer("POST /conversations", http.StatusOK, `{"changed":100,"nextCursor":"more"}`)
	r.submit(t, "/dashboard/conversations/retry", nil)
	require.Equal(t, "more", r.last(t, http.MethodPost).query.Get("cursor"))
	require.LessOrEqual(t, len(r.asked)-before, bulkPages+3, "a press has an end")
}

// Whose a conversation is decides what is offered.
func TestTakeOverAndHandBack(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	page := r.see(t, "/dashboard/conversations/cnv_1")
	element(t, page, "conversation-handover")
	require.NotContains(t, page, `id="conversation-handback"`)
	r.answer("POST /conversations/cnv_1/handover", http.StatusOK, conversationJSON)
	requireTo(t, r.submit(t, "/dashboard/conversations/cnv_1/handover", nil), "/dashboard/conversations/cnv_1", "conversation-handover")

	r.answer("GET /conversations/cnv_1", http.StatusOK, strings.Replace(conversationJSON, `"assistant"`, `"human"`, 1))
	page = r.see(t, "/dashboard/conversations/cnv_1")
	element(t, page, "conversation-handback")
	require.NotContains(t, page, `id="conversation-handover"`)
	r.answer("POST /conversations/cnv_1/handback", http.StatusOK, conversationJSON)
	requireTo(t, r.submit(t, "/dashboard/conversations/cnv_1/handback", nil), "/dashboard/conversations/cnv_1", "conversation-handback")

	r.answer("GET /conversations/cnv_1", http.StatusOK, strings.Replace(conversationJSON, `"assistant"`, `"closed"`, 1))
	page = r.see(t, "/dashboard/conversations/cnv_1")
	require.NotContains(t, page, `<form id="message-create"`)
	require.Contains(t, page, "the customer has blocked the channel")
	const blocked = "The customer has blocked the channel; the conversation is closed."
	for _, verb := range []string{"handover", "handback", "messages"} {
		r.refuse("POST /conversations/cnv_1/"+verb, http.StatusConflict, "conflict", "", blocked)
		w := r.submit(t, "/dashboard/conversations/cnv_1/"+verb, url.Values{"text": {"half an hour of typing"}})
		require.Contains(t, w.Body.String(), blocked, verb)
		if verb == "messages" {
			holds(t, w.Body.String(), "message-create-text", "half an hour of typing")
		}
	}
}

// The answer goes out; what the platform wouldn't take is explained for people, and the text stays.
func TestAnswersInWords(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("POST /conversations/cnv_1/messages", http.StatusCreated, `{"id":"msg_9","parts":["msg_9"]}`)
	w := r.submit(t, "/dashboard/conversations/cnv_1/messages", url.Values{"text": {"Hello\r\nthere"}})
	requireTo(t, w, "/dashboard/conversations/cnv_1", "message-create")
	require.Equal(t, map[string]any{"text": "Hello\nthere"}, r.last(t, http.MethodPost).body)
	for code, words := range map[string]string{
		"channel_needs_reauth":   "Reconnect the channel, then send the message again.",
		"service_window_expired": "the platform no longer accepts free text",
		"template_required":      "the platform now accepts only approved templates",
	} {
		r.refuse("POST /conversations/cnv_1/messages", http.StatusUnprocessableEntity, code, "", "Give new ones with PATCH /channels/chn_1.")
		w = r.submit(t, "/dashboard/conversations/cnv_1/messages", url.Values{"text": {"Hello"}})
		require.Equal(t, http.StatusUnprocessableEntity, w.Code)
		require.Contains(t, w.Body.String(), words)
		require.NotContains(t, w.Body.String(), "PATCH")
		holds(t, w.Body.String(), "message-create-text", "Hello")
	}
}

// A conversation whose channel was deleted can still be read and deleted.
func TestConversationWithoutItsChannel(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.refuse("GET /channels/chn_1", http.StatusNotFound, "not_found", "", "There is nothing with this id.")
	element(t, r.see(t, "/dashboard/conversations/cnv_1"), "conversation-delete")
}

// Files of customers are shown: pictures in the page, others as links, and those that can't be had with the reason.
func TestFilesAreShown(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("GET /conversations/cnv_1/messages", http.StatusOK, `{"data":[{"id":"msg_1","author":"customer","kind":"event","text":"image","files":[
		{"id":"med_1","kind":"image","state":"stored","mediaType":"image/png","bytes":2048},
		{"id":"med_2","kind":"file","state":"stored","name":"<b>.pdf","mediaType":"application/pdf","bytes":3355443},
		{"id":"med_3","kind":"audio","state":"waiting"},
		{"id":"med_4","kind":"video","state":"failed","code":"media_too_large"},
		{"id":"med_5","kind":"odd","state":"failed","code":"something_new"}]}]}`)
	page := r.see(t, "/dashboard/conversations/cnv_1")
	for _, part := range []string{
		`<img src="/dashboard/conversations/cnv_1/file?id=med_1" alt="Picture" loading="lazy">`,
		`<a href="/dashboard/conversations/cnv_1/file?id=med_2" download>&lt;b&gt;.pdf</a>, 3.2 MB`,
		"Voice or sound: It is being fetched from the platform.", "Video: It has more than 8 MB.", "File: It could not be fetched.",
	} {
		require.Contains(t, page, part)
	}
	for code := range fileTexts {
		require.NotEmpty(t, missingFile(words.New(words.English, ""), &api.FileObject{State: "failed", Code: &code}))
	}
	r.answer("GET /conversations/cnv_1/files/med_1", http.StatusOK, `"content"`)
	require.Equal(t, `"content"`, r.see(t, "/dashboard/conversations/cnv_1/file?id=med_1"))
	for _, id := range []string{"", "..", "a/b"} {
		w := httptest.NewRecorder()
		r.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/dashboard/conversations/cnv_1/file?id="+url.QueryEscape(id), nil))
		require.Equal(t, http.StatusNotFound, w.Code)
	}
}
