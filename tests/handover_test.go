package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestAssistantsHandOver guarantees that an assistant gives a conversation to people when its model writes the mark, when the customer
// writes a chosen word, and after two failures: the customer gets the last words without the mark, people are told, and nothing is answered
// until one hands the conversation back.
func TestAssistantsHandOver(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := prepareConnectedWith(t, engine, func(d *deployment) { d.App += "event_endpoints any\n"; d.Whole = true })
		c.worker = c.startWorker()
		answers := map[string]string{"a person please": "One moment, I'll ask.\n\n**[[HANDOVER]]**", "silence": " ", "again": " "}
		b := c.business(t, 1_000_000, c.up.script(func(call *upstreamCall) {
			asked := strings.TrimPrefix(replyTo(call), "Re: ")
			answer, known := answers[asked]
			if !known {
				answer = "Re: " + asked
			}
			call.answer(answer, usualUsage)
		}), assistantSettings{"handover": true, "handoverWords": []string{"nhân viên"}, "handoverReply": "A colleague will answer."})
		system := listen(t, false)
		b.post(t, "/event-endpoints", map[string]any{"url": system.URL, "events": []string{"conversation.handover"}}, http.StatusCreated)

		for reason, one := range map[string]struct {
			kind       platforms.Type
			says       []string
			last       string
			modelCalls int
		}{
			"assistant": {social.Messenger, []string{"a person please"}, "One moment, I'll ask.", 1},
			"words":     {bot.Type, []string{"NHAN VIEN!"}, "A colleague will answer.", 0},
			"failures":  {social.ChatApp, []string{"silence", "again"}, "A colleague will answer.", 2},
		} {
			before, told := len(b.Model.Calls()), len(system.all())
			l := b.line(t, one.kind)
			customer := l.from(1)
			for i, said := range one.says {
				requireQueued(t, c.deliver(t, customer.message(fmt.Sprint(501+i), said)), 1)
				c.await("the end of the turn", patience, func() bool { return i+1 == len(one.says) || b.conversation(t, l).Attention != "" })
			}
			require.Equal(t, []string{one.last}, c.awaitSent(customer, 1), reason)
			c.requireDelivered(b, l, 1)
			require.Len(t, b.Model.Calls(), before+one.modelCalls)
			conversation := b.conversation(t, l).ID
			c.await("the event", patience, func() bool { return len(system.all()) == told+1 })
			require.Equal(t, map[string]string{"conversationId": conversation, "channelId": l.ID, "reason": reason}, system.all()[told].Data)
			waiting := b.call(t, http.MethodGet, "/conversations?waiting=true&channelId="+l.ID, nil, http.StatusOK)["data"].([]any)
			require.Len(t, waiting, 1)
			shown := waiting[0].(map[string]any)
			require.Equal(t, []any{"human", reason}, []any{shown["state"], shown["handoverReason"]})

			requireQueued(t, c.deliver(t, customer.message("508", "hello?")), 1)
			b.post(t, "/conversations/"+conversation+"/messages", map[string]string{"text": "A person here."}, http.StatusCreated)
			require.Equal(t, "A person here.", c.awaitSent(customer, 2)[1])
			b.post(t, "/conversations/"+conversation+"/handback", nil, http.StatusOK)
			requireQueued(t, c.deliver(t, customer.message("509", "thanks")), 1)
			require.Equal(t, "Re: thanks", c.awaitSent(customer, 3)[2])
		}
		c.svc(t, "doctor")
	})
}
