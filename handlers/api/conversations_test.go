package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// withConversation adds an active channel of the type and a conversation on it whose customer wrote that long ago.
func (o *fixture) withConversation(t *testing.T, kind platforms.Type, silence time.Duration) (conversationID, channelID string) {
	t.Helper()
	channel := store.Channel{ID: store.NewID("chn"), OrgID: "org_1", Type: string(kind), State: store.ChannelActive}
	channel.Name = channel.ID
	require.NoError(t, o.DB.Channels.Create(t.Context(), "test", channel, 0))
	conversation := inbox.Conversation{
		ID: store.NewID("cnv"), OrgID: "org_1", ChannelID: channel.ID, CustomerRef: "8490", Address: "8490", State: inbox.StateAssistant,
		LastCustomerAt: apiNow().Add(-silence).UnixMilli(), CreatedAt: 1000, UpdatedAt: 2000,
	}
	o.inbox.conversations = append(o.inbox.conversations, conversation)
	return conversation.ID, channel.ID
}

func TestConversationObject(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, channelID := o.withConversation(t, bot.Type, time.Minute)
	want := map[string]any{
		"id": id, "channelId": channelID, "customerId": "8490", "customerName": nil, "state": "assistant", "attention": nil,
		"pausedUntil": nil, "blockedAt": nil, "lastCustomerAt": "2026-11-21T09:59:00.000Z", "unansweredSince": nil, "handoverReason": nil,
		"createdAt": "1970-01-01T00:00:01.000Z", "updatedAt": "1970-01-01T00:00:02.000Z",
	}
	require.Equal(t, want, o.ask(t, http.StatusOK, http.MethodGet, "/conversations/"+id, "owner", ""))
	c := &o.inbox.conversations[0]
	c.CustomerName, c.Attention, c.PausedUntil = "Lan", "insufficient_credits", apiNow().Add(time.Minute).UnixMilli()
	want["customerName"], want["attention"], want["pausedUntil"] = "Lan", "insufficient_credits", "2026-11-21T10:01:00.000Z"
	require.Equal(t, want, o.ask(t, http.StatusOK, http.MethodGet, "/conversations/"+id, "owner", ""))
	c.PausedUntil = apiNow().UnixMilli()
	require.Nil(t, o.ask(t, http.StatusOK, http.MethodGet, "/conversations/"+id, "owner", "")["pausedUntil"], "over")
}

func TestListConversations(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	first, channelID := o.withConversation(t, bot.Type, 0)
	second, _ := o.withConversation(t, bot.Type, 0)
	o.inbox.conversations[1].State = inbox.StateHuman
	o.inbox.conversations = append(o.inbox.conversations, inbox.Conversation{ID: "cnv_theirs", OrgID: "org_2"})
	ids := func(query string) (ids []string) {
		for _, c := range o.ask(t, http.StatusOK, http.MethodGet, "/conversations"+query, "owner", "")["data"].([]any) {
			ids = append(ids, c.(map[string]any)["id"].(string))
		}
		return ids
	}
	require.Equal(t, []string{first, second}, ids(""))
	require.Equal(t, []string{second}, ids("?state=human"))
	require.Equal(t, []string{first}, ids("?channelId="+channelID))
	require.Equal(t, []string{first}, ids("?limit=1"))
	next := o.ask(t, http.StatusOK, http.MethodGet, "/conversations?limit=1", "owner", "")["nextCursor"].(string)
	require.Equal(t, []string{second}, ids("?limit=1&cursor="+next))
	require.Equal(t, []string{second, first}, ids("?order=recent"))
	require.Empty(t, ids("?attention=true"))
	o.inbox.conversations[0].Attention = "no_agent"
	require.Equal(t, []string{first}, ids("?attention=true&order=recent"))
	require.Equal(t, []string{first, second}, ids("?attention=false&order=oldest"))
	o.refused(t, errcode.InvalidRequest, "order", http.MethodGet, "/conversations?order=newest", "owner", "")
}

func TestHandOverAndBack(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, _ := o.withConversation(t, bot.Type, 0)
	require.Equal(t, "human", o.ask(t, http.StatusOK, http.MethodPost, "/conversations/"+id+"/handover", "owner", "")["state"])
	require.Equal(t, "key_1", o.inbox.actor)
	require.Equal(t, "assistant", o.ask(t, http.StatusOK, http.MethodPost, "/conversations/"+id+"/handback", "owner", "{")["state"], "no body is read")
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/conversations/"+id, "owner", "")
	require.Equal(t, "deleted", o.inbox.conversations[0].State)
}

func TestListMessages(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, _ := o.withConversation(t, bot.Type, 0)
	o.inbox.messages = []inbox.Message{
		{ID: "msg_1", Author: "customer", Kind: "text", Text: "hi", TurnID: "trn_1", At: 1000, Edited: true, Files: []media.File{
			{ID: "med_1", Kind: "image", State: media.Stored, Name: "a.png", MediaType: "image/png", Bytes: 7},
			{ID: "med_2", Kind: "file", State: media.Failed, Code: media.CodeExpired},
		}},
		{ID: "msg_2", Author: "assistant", Kind: "text", Text: "hello", State: "failed", Code: "service_window_expired", TurnID: "trn_1", At: 2000},
	}
	page := o.ask(t, http.StatusOK, http.MethodGet, "/conversations/"+id+"/messages", "owner", "")
	require.Equal(t, []any{
		map[string]any{
			"id": "msg_1", "author": "customer", "kind": "text", "text": "hi", "state": nil, "code": nil, "turnId": "trn_1",
			"handled": false, "edited": true, "at": "1970-01-01T00:00:01.000Z", "files": []any{map[string]any{
				"id": "med_1", "kind": "image", "state": "stored", "code": nil, "name": "a.png", "mediaType": "image/png", "bytes": 7.0,
			}, map[string]any{
				"id": "med_2", "kind": "file", "state": "failed", "code": "media_expired", "name": nil, "mediaType": nil, "bytes": nil,
			}},
		},
		map[string]any{
			"id": "msg_2", "author": "assistant", "kind": "text", "text": "hello", "state": "failed", "code": "service_window_expired",
			"turnId": "trn_1", "handled": false, "edited": false, "at": "1970-01-01T00:00:02.000Z", "files": []any{},
		},
	}, page["data"])
	newest := o.ask(t, http.StatusOK, http.MethodGet, "/conversations/"+id+"/messages?order=newest", "owner", "")["data"].([]any)
	require.Equal(t, "msg_2", newest[0].(map[string]any)["id"])
	next := o.ask(t, http.StatusOK, http.MethodGet, "/conversations/"+id+"/messages?limit=1", "owner", "")["nextCursor"].(string)
	require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, "/conversations/"+id+"/messages?limit=1&cursor="+next, "owner", "")["data"], 1)
}

func TestSendAsHuman(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, _ := o.withConversation(t, bot.Type, 1000*time.Hour)
	path := "/conversations/" + id + "/messages"
	sent := o.ask(t, http.StatusCreated, http.MethodPost, path, "owner", `{"text":"Hello"}`)
	require.Equal(t, map[string]any{
		"id": "msg_1", "author": "human", "kind": "text", "text": "Hello", "state": "pending", "code": nil, "turnId": nil, "handled": false, "edited": false,
		"at": "2026-11-21T10:00:00.000Z", "parts": []any{"msg_1"}, "files": []any{},
	}, sent)
	require.Equal(t, []string{"Hello"}, o.inbox.sent)
	require.Equal(t, "key_1", o.inbox.actor)

	long := strings.Repeat("é", 20_000)
	sent = o.ask(t, http.StatusCreated, http.MethodPost, path, "owner", `{"text":"`+long+`"}`)
	require.Len(t, sent["parts"], len(handlertest.BuiltinPlatforms(t).Split("bot", long, false)))
	for _, text := range []string{`""`, `" \n"`, `"` + long + `e"`, `7`, `"\u0000"`} {
		o.refused(t, errcode.InvalidRequest, "text", http.MethodPost, path, "owner", `{"text":`+text+`}`)
	}
}

// A message that the platform would refuse isn't queued.
func TestSendAsHumanIsRefused(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		kind    platforms.Type
		silence time.Duration
		code    errcode.Code
	}{
		{social.Messenger, 7*day - time.Minute, ""}, // a person may write longer than the assistant
		{social.Messenger, 7 * day, errcode.ServiceWindowExpired},
		{social.PhotoDM, 7*day + time.Hour, errcode.ServiceWindowExpired},
		{social.ChatApp, day - time.Minute, ""},
		{social.ChatApp, day + time.Minute, errcode.TemplateRequired},
		{localchat.Type, 6 * day, ""},
		{localchat.Type, 7 * day, errcode.ServiceWindowExpired},
		{marketa.Type, 300 * day, ""},
		{marketb.Type, 300 * day, ""},
	} {
		t.Run(string(c.kind)+" "+c.silence.String(), func(t *testing.T) {
			t.Parallel()
			o := newFixture(t)
			id, channelID := o.withConversation(t, c.kind, c.silence)
			path, body := "/conversations/"+id+"/messages", `{"text":"Hello"}`
			if c.code == "" {
				o.ask(t, http.StatusCreated, http.MethodPost, path, "owner", body)
			} else {
				o.refused(t, c.code, "", http.MethodPost, path, "owner", body)
				require.Empty(t, o.inbox.sent)
			}
			o.inbox.sent = nil
			require.NoError(t, o.DB.Channels.SetState(t.Context(), "test", "org_1", channelID, store.ChannelNeedsReauth))
			o.refused(t, errcode.ChannelNeedsReauth, "", http.MethodPost, path, "owner", body)
			require.NoError(t, o.DB.Channels.SetState(t.Context(), "test", "org_1", channelID, store.ChannelPending))
			o.refused(t, errcode.Conflict, "", http.MethodPost, path, "owner", body)
			require.NoError(t, o.DB.Channels.Delete(t.Context(), "test", "org_1", channelID))
			o.refused(t, errcode.Conflict, "", http.MethodPost, path, "owner", body)
			require.Empty(t, o.inbox.sent)
		})
	}
}

func TestSendToACustomerWhoBlocked(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, _ := o.withConversation(t, bot.Type, 0)
	o.inbox.conversations[0].State = inbox.StateClosed
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/conversations/"+id+"/messages", "owner", `{"text":"Hello"}`)
	require.Empty(t, o.inbox.sent)
}

func TestConversationsWithoutTheirStore(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, _ := o.withConversation(t, bot.Type, 0)
	o.inbox.fail = errors.New("disk I/O error")
	for _, route := range o.Routes() {
		if groupOf(route.Path) != "/conversations" {
			continue
		}
		path := strings.Replace(route.Path, "{id}", id, 1)
		require.NotContains(t, o.refused(t, errcode.InternalError, "", route.Method, path, "owner", bodyFor(route)).Text, "disk")
	}
	// The conversation closes between the check and the write.
	o.inbox.fail = nil
	o.Conversations = closing{o.inbox}
	for _, action := range []string{"messages", "handover", "handback"} {
		o.refused(t, errcode.Conflict, "", http.MethodPost, "/conversations/"+id+"/"+action, "owner", `{"text":"Hello"}`)
	}
}

// closing is an inbox whose conversations close just before something is sent.
type closing struct{ *fakeInbox }

func (closing) SendAsHuman(context.Context, string, string, string, []string) ([]inbox.Message, error) {
	return nil, inbox.ErrConversationClosed
}

func (closing) HandOver(context.Context, string, string, string) error {
	return inbox.ErrConversationClosed
}

func (closing) HandBack(context.Context, string, string, string) error {
	return inbox.ErrConversationClosed
}
