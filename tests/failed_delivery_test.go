package tests

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// failed is the status by which the chat app reports that a message to the customer was not delivered. id is the platform's, message ours
// with its try, as the platform repeats it.
func (s sender) failed(id, message string, code int) delivery {
	return s.sign(fmt.Sprintf(`{"object":"whatsapp_business_account","entry":[{"id":"102290129340398","changes":[{"field":"messages","value":{`+
		`"messaging_product":"whatsapp","metadata":{"display_phone_number":"15550783881","phone_number_id":"%s"},`+
		`"statuses":[{"id":"%s","status":"failed","timestamp":"%d","recipient_id":"%s","biz_opaque_callback_data":"caddy-svc:%s",`+
		`"errors":[{"code":%d,"title":"Something went wrong","message":"Something went wrong","error_data":{"details":"Message failed to send because of an unknown error."},`+
		`"href":"https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/"}]}]}}]}]}`,
		s.External, id, time.Now().Unix(), s.Customer, message, code))
}

// TestFailedDelivery guarantees that a platform which takes a message first and says later that it could not be delivered
// is believed, by the code alone, however often it says so: the message's state is failed, with the code of the reason.
func TestFailedDelivery(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, social.ChatApp)
		for n, one := range []struct {
			code         int
			want, states string
		}{
			{131047, "template_required", "assistant"},
			{131000, "send_failed", "assistant"},
			{131051, "send_refused", "assistant"},
			{131026, "customer_blocked", "closed"},
		} {
			customer := l.from(n)
			requireQueued(t, c.deliver(t, customer.says("hello")), 1)
			c.awaitSent(customer, 1)
			var conversation string
			for _, found := range b.conversations(t, l) {
				if found.CustomerID == customer.Customer {
					conversation = found.ID
				}
			}
			reply := func() message {
				_, to := written(b.messages(t, conversation))
				require.Len(t, to, 1)
				return to[0]
			}
			c.await("the reply to be on record", patience, func() bool { return reply().State == "sent" })
			report := customer.failed(c.platform.SentTo(customer.Customer)[0].MessageID, reply().ID+".0", one.code)
			for range 2 {
				requireQueued(t, c.deliver(t, report), 0)
			}
			require.Equal(t, []string{"failed", one.want}, []string{reply().State, reply().Code}, "%d", one.code)
			shown := b.call(t, http.MethodGet, "/conversations/"+conversation, nil, http.StatusOK)
			require.Equal(t, one.states, shown["state"])
			require.Len(t, c.sentTo(customer), 1)
		}
		c.svc(t, "doctor")
	})
}

// TestUnexplainedFailure guarantees that a message of which the chat app says no more than that something went wrong, at once and once more
// by a status, is tried three times and then left to people, who have it sent again; and that reports of earlier tries change nothing.
func TestUnexplainedFailure(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, social.ChatApp)
		customer := l.from(1)
		c.platform.Script("Re: hello", platformfake.Repeat(4, platformfake.Unexplained)...)
		requireQueued(t, c.deliver(t, customer.says("hello")), 1)
		c.await("the first try", patience, func() bool { return c.platform.Attempts("Re: hello") == 1 })
		path := "/conversations/" + b.conversation(t, l).ID
		reply := func() message {
			_, to := written(b.messages(t, b.conversation(t, l).ID))
			return to[0]
		}
		c.await("the end of the first try", patience, func() bool { return reply().State != "sending" })
		first := customer.failed("wamid.first", reply().ID+".0", 131000)
		for range 2 {
			requireQueued(t, c.deliver(t, first), 0)
		}
		c.await("the reply to fail", patience, func() bool { return reply().State == "failed" })
		require.Equal(t, "send_failed", reply().Code)
		require.Equal(t, 3, c.platform.Attempts("Re: hello"))
		require.Equal(t, "send_failed", b.conversation(t, l).Attention)

		requireQueued(t, c.deliver(t, customer.says("still there?")), 1)
		require.Equal(t, []string{"Re: still there?"}, c.awaitSent(customer, 1))
		require.Equal(t, 3, c.platform.Attempts("Re: hello"), "nothing is tried by itself any more")
		b.post(t, path+"/messages/"+reply().ID+"/resend", map[string]bool{"mayArriveTwice": false}, http.StatusOK)
		require.Equal(t, []string{"Re: still there?", "Re: hello"}, c.awaitSent(customer, 2))
		require.Equal(t, 5, c.platform.Attempts("Re: hello"))
		requireQueued(t, c.deliver(t, first), 0)
		c.requireDelivered(b, l, 2)
		c.svc(t, "doctor")
	})
}
