package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func (f *fakeInbox) SendKeyed(
	ctx context.Context, actor, orgID, id string, parts []string, _ inbox.SendKey,
) ([]inbox.Message, bool, error) {
	sent, err := f.SendAsHuman(ctx, actor, orgID, id, parts)
	return sent, false, err
}

func (f *fakeInbox) SentUnder(context.Context, string, inbox.SendKey) ([]inbox.Message, error) {
	return nil, f.fail
}

func (f *fakeInbox) Outgoing(_ context.Context, _, _, id string) (inbox.Message, error) {
	for _, m := range f.messages {
		if m.ID == id && m.State != "" {
			return m, f.fail
		}
	}
	return inbox.Message{}, store.ErrNotFound
}

func (f *fakeInbox) Resend(_ context.Context, actor, _, _, id string, _ bool) error {
	f.actor, f.sent = actor, append(f.sent, id)
	return f.fail
}

func (f *fakeInbox) RetryStanding(_ context.Context, actor, orgID, id, _ string) error {
	return f.setState(actor, orgID, id, "retried")
}

func (f *fakeInbox) Depth(context.Context) (inbox.Depth, error)               { return inbox.Depth{}, f.fail }
func (f *fakeInbox) DeadTurns(context.Context, int) ([]inbox.DeadTurn, error) { return nil, f.fail }

func (f *fakeInbox) Retry(context.Context, string, string) error { return f.fail }

func (f *fakeInbox) Dismiss(_ context.Context, actor, orgID, id, _ string) error {
	return f.setState(actor, orgID, id, "dismissed")
}

func (f *fakeInbox) Block(_ context.Context, actor, orgID, id string) error {
	return f.setState(actor, orgID, id, "blocked")
}

func (f *fakeInbox) Unblock(_ context.Context, actor, orgID, id string) error {
	return f.setState(actor, orgID, id, inbox.StateAssistant)
}

func (*fakeInbox) File(context.Context, string, string, string) (media.File, error) {
	return media.File{}, store.ErrNotFound
}

func (*fakeInbox) WriteFile(context.Context, *media.File, io.Writer) error { return store.ErrNotFound }

func (f *fakeInbox) Export(_ context.Context, orgID, id string, w io.Writer, begin func()) error {
	if _, err := f.find(orgID, id); err != nil {
		return err
	}
	begin()
	_, err := io.WriteString(w, "{}")
	return err
}

func (f *fakeInbox) ForEachStanding(
	_ context.Context, _, _ string, _ inbox.ConversationFilter, _ store.Page,
	_ func(ctx context.Context, actor, orgID, id, code string) error,
) (changed int, last string, err error) {
	return 0, "", f.fail
}

// staffed is an API over a real queue with a customer on a channel of the type.
type staffed struct {
	*fixture
	*inbox.Queue

	channelID string
}

func eachStaffed(t *testing.T, run func(t *testing.T, o *staffed)) {
	t.Helper()
	storetest.Each(t, []store.Kind{inbox.Kind, billing.Ledger}, func(t *testing.T, db *store.DB) {
		keys := handlertest.Keyring{
			"owner": handlertest.Someone(identity.AllScopes()...), "reader": handlertest.Someone(identity.ConversationsRead),
		}
		stranger := keys["owner"]
		stranger.OrgID, stranger.KeyID = "org_2", "key_2"
		keys["stranger"] = stranger
		for _, id := range []string{"org_1", "org_2"} {
			require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: id, Name: id, Plan: "free", CreatedAt: 1}))
		}
		o := &staffed{fixture: &fixture{platform: &fakePlatform{}}, Queue: inbox.New(db, handlertest.Ring(t)), channelID: "chn_1"}
		o.Deps = &Deps{
			Authenticator: keys, Wallets: billing.NewBook(db), DB: db, Conversations: o.Queue, Ring: handlertest.Ring(t),
			Models: modelSet{}, Platforms: o.platform, Catalog: handlertest.BuiltinPlatforms(t).Catalog, Plans: o, BaseURL: "https://svc.example",
		}
		o.Server = serve(o.Deps)
		require.NoError(t, db.Channels.Create(t.Context(), "test", store.Channel{
			ID: o.channelID, OrgID: "org_1", Type: string(social.ChatApp), Name: "Chat", ExternalID: "1", State: store.ChannelActive,
		}, 0))
		run(t, o)
	})
}

// write brings a customer's text and leases the conversation, with all others that are due.
func (o *staffed) write(t *testing.T, customer string) inbox.Lease {
	t.Helper()
	require.NoError(t, o.Enqueue(t.Context(), []inbox.Arrival{{
		Route: store.Route{ChannelID: o.channelID, OrgID: "org_1", Type: string(social.ChatApp), State: store.ChannelActive},
		Items: []inbox.Item{{Kind: platforms.Text, CustomerRef: customer, Address: customer, MessageID: customer + "-1", Text: "Hello?"}},
	}}))
	leases, err := o.Lease(t.Context(), inbox.Places{Free: 10}, time.Hour)
	require.NoError(t, err)
	i := slices.IndexFunc(leases, func(l inbox.Lease) bool { return l.CustomerRef == customer })
	require.GreaterOrEqual(t, i, 0)
	return leases[i]
}

func (o *staffed) begin(t *testing.T, lease inbox.Lease) string {
	t.Helper()
	work, err := o.Open(t.Context(), lease, 10)
	require.NoError(t, err)
	turn := store.NewID("trn")
	err = o.BeginCall(t.Context(), lease, inbox.Turn{ID: turn, AgentID: "agt_1", Request: []byte("{}")}, []string{work.Waiting[0].ID})
	require.NoError(t, err)
	return turn
}

// stand lets the turn of a new customer's text stand.
func (o *staffed) stand(t *testing.T, customer, code string) string {
	t.Helper()
	lease := o.write(t, customer)
	require.NoError(t, o.Stand(t.Context(), lease, inbox.Standing{TurnID: o.begin(t, lease), Code: code, Final: true}))
	require.NoError(t, o.Release(t.Context(), lease))
	return lease.ConversationID
}

// fail answers a new customer with a message that ends so.
func (o *staffed) fail(t *testing.T, customer, state, code string) (conversationID, messageID string) {
	t.Helper()
	lease := o.write(t, customer)
	parts, err := o.Answer(t.Context(), lease, o.begin(t, lease), []string{"Hi!"}, true)
	require.NoError(t, err)
	require.NoError(t, o.SendFailed(t.Context(), lease, parts[0].ID, state, code, inbox.SendFailure{}))
	require.NoError(t, o.Release(t.Context(), lease))
	return lease.ConversationID, parts[0].ID
}

func TestRetryAndDismiss(t *testing.T) {
	t.Parallel()
	eachStaffed(t, func(t *testing.T, o *staffed) {
		for _, action := range []string{"dismiss", "retry"} { // what is retried is due
			id := o.stand(t, "customer of "+action, "provider_error")
			path := "/conversations/" + id
			require.Equal(t, "provider_error", o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["attention"])
			o.refused(t, errcode.Forbidden, "", http.MethodPost, path+"/"+action, "stranger", "")
			o.refused(t, errcode.InsufficientScope, "", http.MethodPost, path+"/"+action, "reader", "")
			require.Nil(t, o.ask(t, http.StatusOK, http.MethodPost, path+"/"+action, "owner", "")["attention"])
			o.refused(t, errcode.Conflict, "", http.MethodPost, path+"/"+action, "owner", "")
			var state string
			require.NoError(t, o.DB.Reader().QueryRowContext(t.Context(), `SELECT state FROM turns WHERE conversation_id = $1`, id).Scan(&state))
			require.Equal(t, map[string]string{"retry": inbox.TurnAwaiting, "dismiss": inbox.TurnDiscarded}[action], state)
		}
		o.refused(t, errcode.NotFound, "", http.MethodPost, "/conversations/cnv_x/retry", "owner", "")
	})
}

// In bulk: what a list with the same parameters shows, page by page.
func TestActOnConversations(t *testing.T) {
	t.Parallel()
	eachStaffed(t, func(t *testing.T, o *staffed) {
		for _, customer := range []string{"a", "b", "c"} {
			o.stand(t, customer, "provider_error")
		}
		o.stand(t, "d", "no_agent")
		listed := func(query string) int {
			return len(o.ask(t, http.StatusOK, http.MethodGet, "/conversations?attention=true"+query, "owner", "")["data"].([]any))
		}
		require.Equal(t, 3, listed("&code=provider_error"))
		act := func(query, action string) map[string]any {
			return o.ask(t, http.StatusOK, http.MethodPost, "/conversations?"+query, "owner", `{"action":"`+action+`"}`)
		}
		first := act("code=provider_error&limit=2", "retry")
		require.InDelta(t, 2, first["changed"], 0)
		second := act("code=provider_error&limit=2&cursor="+first["nextCursor"].(string), "retry")
		require.Equal(t, map[string]any{"changed": 1.0, "nextCursor": nil}, second)
		require.Equal(t, 1, listed(""))
		require.InDelta(t, 0, act("channelId=chn_2", "dismiss")["changed"], 0)
		require.InDelta(t, 1, act("channelId="+o.channelID, "dismiss")["changed"], 0)
		require.Zero(t, listed(""))
		o.refused(t, errcode.InvalidRequest, "action", http.MethodPost, "/conversations", "owner", `{"action":"delete"}`)
		o.refused(t, errcode.InvalidRequest, "action", http.MethodPost, "/conversations", "owner", `{}`)
		o.refused(t, errcode.InvalidRequest, "limit", http.MethodPost, "/conversations?limit=101", "owner", `{"action":"retry"}`)
		o.refused(t, errcode.InvalidRequest, "code", http.MethodPost, "/conversations?code=A", "owner", `{"action":"retry"}`)
		o.refused(t, errcode.InsufficientScope, "", http.MethodPost, "/conversations", "reader", `{"action":"retry"}`)
	})
}

// A person sends a message again, and is told when the customer may get it twice.
func TestResendMessage(t *testing.T) {
	t.Parallel()
	eachStaffed(t, func(t *testing.T, o *staffed) {
		id, failed := o.fail(t, "a", inbox.OutboundFailed, "send_failed")
		path := "/conversations/" + id + "/messages/" + failed + "/resend"
		o.refused(t, errcode.Forbidden, "", http.MethodPost, path, "stranger", `{"mayArriveTwice":false}`)
		o.refused(t, errcode.InsufficientScope, "", http.MethodPost, path, "reader", `{"mayArriveTwice":false}`)
		again := o.ask(t, http.StatusOK, http.MethodPost, path, "owner", `{"mayArriveTwice":false}`)
		require.Equal(t, []any{failed, "pending", nil, "assistant"}, []any{again["id"], again["state"], again["code"], again["author"]})
		o.refused(t, errcode.Conflict, "", http.MethodPost, path, "owner", `{"mayArriveTwice":false}`)

		id, unclear := o.fail(t, "b", inbox.OutboundDeliveryUnknown, "delivery_unknown")
		path = "/conversations/" + id + "/messages/" + unclear + "/resend"
		o.refused(t, errcode.InvalidRequest, "mayArriveTwice", http.MethodPost, path, "owner", `{"other":1}`)
		o.refused(t, errcode.InvalidRequest, "mayArriveTwice", http.MethodPost, path, "owner", `{"mayArriveTwice":false}`)
		require.Equal(t, "pending", o.ask(t, http.StatusOK, http.MethodPost, path, "owner", `{"mayArriveTwice":true}`)["state"])
		for _, unknown := range []string{failed, "msg_x", "A", "..%2f"} {
			o.refused(t, errcode.NotFound, "", http.MethodPost, "/conversations/"+id+"/messages/"+unknown+"/resend", "owner", `{"mayArriveTwice":false}`)
		}
	})
}

// What the platform wouldn't take now is refused before it is queued, by the window of the message's author.
func TestResendIsRefused(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, channelID := o.withConversation(t, social.Messenger, 25*time.Hour)
	o.inbox.messages = []inbox.Message{
		{ID: "msg_1", Author: inbox.AuthorAssistant, State: inbox.OutboundFailed},
		{ID: "msg_2", Author: inbox.AuthorHuman, State: inbox.OutboundFailed},
	}
	resend := func(message string) string { return "/conversations/" + id + "/messages/" + message + "/resend" }
	o.refused(t, errcode.ServiceWindowExpired, "", http.MethodPost, resend("msg_1"), "owner", `{"mayArriveTwice":false}`)
	o.ask(t, http.StatusOK, http.MethodPost, resend("msg_2"), "owner", `{"mayArriveTwice":false}`)
	require.Equal(t, []string{"msg_2"}, o.inbox.sent)
	o.inbox.conversations[0].State = inbox.StateClosed // the platform decides whether the customer is back
	o.ask(t, http.StatusOK, http.MethodPost, resend("msg_2"), "owner", `{"mayArriveTwice":false}`)
	require.NoError(t, o.DB.Channels.SetState(t.Context(), "test", "org_1", channelID, store.ChannelNeedsReauth))
	o.refused(t, errcode.ChannelNeedsReauth, "", http.MethodPost, resend("msg_2"), "owner", `{"mayArriveTwice":false}`)
}

// The same key and message: one message, answered twice, even when it couldn't be sent any more. Another one is refused.
func TestIdempotencyKeyOfMessages(t *testing.T) {
	t.Parallel()
	eachStaffed(t, func(t *testing.T, o *staffed) {
		lease := o.write(t, "a")
		other := o.write(t, "b")
		send := func(key, conversationID, text string) (status int, replayed string, body map[string]any) {
			r := request(http.MethodPost, "/conversations/"+conversationID+"/messages", "owner", `{"text":"`+text+`"}`)
			r.Header["Idempotency-Key"] = []string{key}
			w := handlertest.Served(o.Serve, r)
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
			return w.Code, w.Header().Get("Idempotent-Replayed"), body
		}
		status, replayed, first := send("k", lease.ConversationID, "Hello")
		require.Equal(t, http.StatusCreated, status, first)
		require.Empty(t, replayed)
		status, replayed, again := send(`"k"`, lease.ConversationID, "Hello")
		require.Equal(t, http.StatusCreated, status, again)
		require.Equal(t, "true", replayed, "quotes around a key don't count")
		require.Equal(t, first, again)
		require.NoError(t, o.DB.Channels.SetState(t.Context(), "test", "org_1", o.channelID, store.ChannelNeedsReauth))
		status, _, again = send("k", lease.ConversationID, "Hello")
		require.Equal(t, http.StatusCreated, status)
		require.Equal(t, first, again)

		for _, c := range []struct{ conversation, text string }{{lease.ConversationID, "Bye"}, {other.ConversationID, "Hello"}} {
			status, _, refusal := send("k", c.conversation, c.text)
			require.Equal(t, http.StatusConflict, status)
			require.Equal(t, "idempotency_key_reused", refusal["error"].(map[string]any)["code"])
		}
		for _, bad := range []string{"", "a b", "é"} {
			status, _, refusal := send(bad, lease.ConversationID, "Hello")
			require.Equal(t, http.StatusBadRequest, status, bad)
			require.Equal(t, "Idempotency-Key", refusal["error"].(map[string]any)["field"])
		}
		messages := o.ask(t, http.StatusOK, http.MethodGet, "/conversations/"+lease.ConversationID+"/messages", "owner", "")["data"].([]any)
		require.Len(t, slices.DeleteFunc(messages, func(m any) bool { return m.(map[string]any)["author"] != "human" }), 1)
	})
}

// A customer is blocked, exported and erased, each by who may.
func TestCustomerRights(t *testing.T) {
	t.Parallel()
	eachStaffed(t, func(t *testing.T, o *staffed) {
		id, _ := o.fail(t, "a", inbox.OutboundFailed, "send_failed")
		path := "/conversations/" + id
		for _, action := range []string{"block", "unblock"} {
			o.refused(t, errcode.Forbidden, "", http.MethodPost, path+"/"+action, "stranger", "")
			o.refused(t, errcode.InsufficientScope, "", http.MethodPost, path+"/"+action, "reader", "")
			o.refused(t, errcode.NotFound, "", http.MethodPost, "/conversations/cnv_x/"+action, "owner", "")
		}
		require.Regexp(t, `^20\d\d-`, o.ask(t, http.StatusOK, http.MethodPost, path+"/block", "owner", "")["blockedAt"])
		require.Nil(t, o.ask(t, http.StatusOK, http.MethodPost, path+"/unblock", "owner", "")["blockedAt"])

		w := handlertest.Served(o.Serve, request(http.MethodGet, path+"/export", "reader", ""))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, `attachment; filename="`+id+`.json"`, w.Header().Get("Content-Disposition"))
		var exported map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &exported))
		require.Len(t, exported["messages"], 2)
		o.refused(t, errcode.Forbidden, "", http.MethodGet, path+"/export", "stranger", "")
		o.refused(t, errcode.NotFound, "", http.MethodGet, "/conversations/cnv_x/export", "owner", "")

		o.refused(t, errcode.InsufficientScope, "", http.MethodDelete, path, "reader", "")
		o.ask(t, http.StatusNoContent, http.MethodDelete, path, "owner", "")
		o.refused(t, errcode.NotFound, "", http.MethodGet, path+"/export", "reader", "")
	})
}
