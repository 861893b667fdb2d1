package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// said is the delivery of a text that the customer wrote some time ago.
func (s sender) said(text string, ago time.Duration) delivery {
	arguments, at := encodedArguments(s, freshID(), text), time.Now().Add(-ago)
	arguments[4], arguments[5] = at.UnixMilli(), at.Unix()
	return s.sign(fmt.Sprintf(messageBodies[s.Type], arguments...))
}

// TestMaximumAge guarantees that a message which is older than its channel allows isn't answered late: people see why it stands, and it is
// answered when one of them wants it, charged once.
func TestMaximumAge(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, bot.Type)
		changed := b.call(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"maxAgeMinutes": 60}, http.StatusOK)
		require.EqualValues(t, 60, changed["maxAgeMinutes"])
		late, early := l.from(1), l.from(2)
		requireQueued(t, c.deliver(t, late.said("old?", 2*time.Hour)), 1)
		c.await("the old message to stand", patience, func() bool {
			all := b.conversations(t, l)
			return len(all) == 1 && all[0].Attention == "message_too_old"
		})
		requireQueued(t, c.deliver(t, early.said("young?", 10*time.Minute)), 1)
		require.Equal(t, []string{"Re: young?"}, c.awaitSent(early, 1))
		require.Empty(t, c.sentTo(late))

		waiting := b.call(t, http.MethodGet, "/conversations?waiting=true&code=message_too_old", nil, http.StatusOK)["data"].([]any)
		require.Len(t, waiting, 1)
		b.post(t, "/conversations/"+waiting[0].(map[string]any)["id"].(string)+"/retry", nil, http.StatusOK)
		require.Equal(t, []string{"Re: old?"}, c.awaitSent(late, 1))
		b.awaitCalls(t, 2)
		c.svc(t, "doctor")
	})
}

// TestDrafts guarantees that in draft mode customers get only what a person sends. A draft is charged once, people get an event, the
// customer's next message makes it stale, and a waiting draft stays with people when the mode changes.
func TestDrafts(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, social.Messenger)
		b.call(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"answerMode": "draft"}, http.StatusOK)
		customer := l.from(1)
		path := ""
		proposed := func(text string) string {
			t.Helper()
			id := ""
			c.await("the draft "+text, patience, func() bool {
				all := b.conversations(t, l)
				if len(all) != 1 || all[0].Attention != "draft_waiting" {
					return false
				}
				path = "/conversations/" + all[0].ID + "/drafts"
				drafts := b.call(t, http.MethodGet, path, nil, http.StatusOK)["data"].([]any)
				if len(drafts) != 1 || !strings.HasSuffix(drafts[0].(map[string]any)["text"].(string), text) {
					return false
				}
				id = drafts[0].(map[string]any)["id"].(string)
				return true
			})
			return id
		}
		requireQueued(t, c.deliver(t, customer.says("one?")), 1)
		stale := proposed("Re: one?")
		waiting := b.call(t, http.MethodGet, "/conversations?waiting=true&code=draft_waiting", nil, http.StatusOK)["data"].([]any)
		require.Len(t, waiting, 1)
		require.NotNil(t, waiting[0].(map[string]any)["unansweredSince"])
		require.Empty(t, c.sentTo(customer))

		requireQueued(t, c.deliver(t, customer.says("two?")), 1)
		b.awaitCalls(t, 2)
		draft := ""
		c.await("a new draft", patience, func() bool {
			drafts := b.call(t, http.MethodGet, path, nil, http.StatusOK)["data"].([]any)
			if len(drafts) == 0 {
				return false
			}
			draft = drafts[0].(map[string]any)["id"].(string)
			return draft != stale
		})
		requireError(t, b.ask(t, http.MethodPost, path+"/"+stale+"/send", map[string]any{}), "conflict")
		keyed := func(body string) answer {
			return c.as(b.customer).send(t, http.MethodPost, path+"/"+draft+"/send", strings.NewReader(body),
				"Content-Type", "application/json", keyHeader, "k-draft")
		}
		first, again := keyed(`{"text":"To both."}`), keyed(`{"text":"To both."}`)
		require.Equal(t, []int{http.StatusCreated, http.StatusCreated}, []int{first.Status, again.Status}, "%s", again.Body)
		require.Equal(t, "true", again.Header.Get(replayHeader))
		requireError(t, keyed(`{}`), "idempotency_key_reused")
		requireError(t, b.ask(t, http.MethodPost, path+"/"+draft+"/send", map[string]any{}), "conflict")
		require.Equal(t, []string{"To both."}, c.awaitSent(customer, 1))
		require.Empty(t, b.conversation(t, l).Attention)

		requireQueued(t, c.deliver(t, customer.says("three?")), 1)
		discarded := proposed("Re: three?")
		a := b.ask(t, http.MethodDelete, path+"/"+discarded, nil)
		require.Equal(t, http.StatusNoContent, a.Status, "%s", a.Body)
		require.Empty(t, b.conversation(t, l).Attention)

		requireQueued(t, c.deliver(t, customer.says("four?")), 1)
		last := proposed("Re: four?")
		b.call(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"answerMode": "automatic"}, http.StatusOK)
		other := l.from(2)
		requireQueued(t, c.deliver(t, other.says("five?")), 1)
		require.Equal(t, []string{"Re: five?"}, c.awaitSent(other, 1))
		require.Len(t, c.sentTo(customer), 1, "it waits for a person")
		b.post(t, path+"/"+last+"/send", map[string]any{}, http.StatusCreated)
		require.Regexp(t, `^Re: .*four\?$`, strings.ReplaceAll(c.awaitSent(customer, 2)[1], "\n", " "))
		b.awaitCalls(t, 5)
		c.svc(t, "doctor")
	})
}

// TestOpeningHours guarantees that a customer who writes while a business is closed gets its notice once, without a call of the model and
// without a charge, and an answer to everything when it is open.
func TestOpeningHours(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, bot.Type)
		path := "/channels/" + l.ID
		opens := strings.ToLower(time.Now().UTC().AddDate(0, 0, 3).Weekday().String()[:3]) + " 08:00-17:30"
		requireError(t, b.ask(t, http.MethodPatch, path, map[string]any{"openingHours": []string{opens}}), "invalid_request")
		const notice = "We are closed until *Monday*."
		changed := b.call(t, http.MethodPatch, path, map[string]any{
			"openingHours": []string{opens}, "timeZone": "Asia/Ho_Chi_Minh", "closedNotice": notice,
		}, http.StatusOK)
		require.Equal(t, []any{opens}, changed["openingHours"])
		customer := l.from(1)
		requireQueued(t, c.deliver(t, customer.says("one?")), 1)
		require.Equal(t, []string{notice}, c.awaitSent(customer, 1))
		requireQueued(t, c.deliver(t, customer.says("two?")), 1)
		c.awaitMessages(b, l, "both to wait", func(by, to []message) bool { return len(by) == 2 && len(to) == 1 && to[0].State == "sent" })
		require.Empty(t, b.Model.Calls())
		require.Empty(t, b.conversation(t, l).Attention)
		c.svc(t, "doctor")

		b.call(t, http.MethodPatch, path, map[string]any{"openingHours": []string{}}, http.StatusOK)
		requireQueued(t, c.deliver(t, customer.says("three?")), 1)
		sent := c.awaitSent(customer, 2)
		require.Equal(t, notice, sent[0], "once")
		for _, text := range []string{"one?", "two?", "three?"} {
			require.Contains(t, b.Model.Calls()[0].Raw, text)
		}
		b.awaitCalls(t, 1)
		require.EqualValues(t, 1_000_000-usualCharge, b.wallet(t).BalanceMicros)
		c.svc(t, "doctor")
	})
}
