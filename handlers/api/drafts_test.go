package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func (f *fakeInbox) Drafts(_ context.Context, orgID, id string) ([]inbox.Draft, error) {
	_, err := f.find(orgID, id)
	return f.drafts, err
}

func (f *fakeInbox) SendDraft(
	ctx context.Context, actor, orgID, id, draftID string, parts []string, _ bool, _ *inbox.SendKey,
) (sent []inbox.Message, replayed bool, err error) {
	if err := f.DiscardDraft(ctx, actor, orgID, id, draftID); err != nil {
		return nil, false, err
	}
	sent, err = f.SendAsHuman(ctx, actor, orgID, id, parts)
	return sent, false, err
}

func (f *fakeInbox) DiscardDraft(_ context.Context, _, orgID, id, draftID string) error {
	if _, err := f.find(orgID, id); err != nil {
		return err
	}
	if len(f.drafts) == 0 || f.drafts[0].ID != draftID {
		return inbox.ErrEnded
	}
	f.drafts = nil
	return nil
}

// TestDrafts guarantees that a draft is shown whole and sent as it was proposed, or with a person's changes, and that a draft that has ended
// can't be sent or discarded again.
func TestDrafts(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, _ := o.withConversation(t, bot.Type, time.Minute)
	path := "/conversations/" + id + "/drafts"
	require.Empty(t, o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["data"])
	proposed := []inbox.Draft{{ID: "trn_1", Parts: []string{"Good day.", "Tea?"}, CreatedAt: 1000}}

	o.inbox.drafts = proposed
	listed := o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["data"].([]any)
	require.Equal(t, []any{map[string]any{"id": "trn_1", "text": "Good day.\n\nTea?", "createdAt": "1970-01-01T00:00:01.000Z"}}, listed)
	o.refused(t, errcode.Conflict, "", http.MethodPost, path+"/trn_2/send", "owner", `{}`)
	o.refused(t, errcode.Conflict, "", http.MethodPost, path+"/%00/send", "owner", `{}`)
	o.refused(t, errcode.Conflict, "", http.MethodPost, path+"/trn_2/send", "owner", `{"text":"x"}`)
	sent := o.ask(t, http.StatusCreated, http.MethodPost, path+"/trn_1/send", "owner", `{}`)
	require.Equal(t, []string{"Good day.", "Tea?"}, o.inbox.sent)
	require.Equal(t, []any{"human", "Good day."}, []any{sent["author"], sent["text"]})
	require.Len(t, sent["parts"], 2)
	o.refused(t, errcode.Conflict, "", http.MethodPost, path+"/trn_1/send", "owner", `{}`)

	o.inbox.drafts, o.inbox.sent = proposed, nil
	o.refused(t, errcode.InvalidRequest, "text", http.MethodPost, path+"/trn_1/send", "owner", `{"text":" "}`)
	o.refused(t, errcode.InvalidRequest, "text", http.MethodPost, path+"/trn_1/send", "owner", `{"text":"`+strings.Repeat("x", 20_001)+`"}`)
	o.ask(t, http.StatusCreated, http.MethodPost, path+"/trn_1/send", "owner", `{"text":"Another"}`)
	require.Equal(t, []string{"Another"}, o.inbox.sent)

	o.inbox.drafts = []inbox.Draft{{ID: "trn_1", Parts: []string{inbox.UnreadableText}, Unreadable: true}}
	o.refused(t, errcode.Conflict, "", http.MethodPost, path+"/trn_1/send", "owner", `{}`)
	o.refused(t, errcode.Conflict, "", http.MethodDelete, path+"/trn_2", "owner", "")
	o.ask(t, http.StatusNoContent, http.MethodDelete, path+"/trn_1", "owner", "")
	o.refused(t, errcode.Conflict, "", http.MethodDelete, path+"/trn_1", "owner", "")
}

// TestDraftsThatCannotBeSent guarantees that a proposed answer waits on when the platform would take no message of a person now.
func TestDraftsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, _ := o.withConversation(t, social.ChatApp, 25*time.Hour)
	o.inbox.drafts = []inbox.Draft{{ID: "trn_1", Parts: []string{"Good day."}}}
	o.refused(t, errcode.TemplateRequired, "", http.MethodPost, "/conversations/"+id+"/drafts/trn_1/send", "owner", `{}`)
	require.Len(t, o.inbox.drafts, 1)
	require.Empty(t, o.inbox.sent)
}
