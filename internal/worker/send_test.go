package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestWhatThePlatformSays is the table of outcomes: what the row, the conversation and the channel come to, and that
// nothing is ever sent twice.
func TestWhatThePlatformSays(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kind    platforms.Type
		fault   platformfake.Fault
		line    string // state and code of the answer after one try
		state   string // of the conversation
		channel string // its state
		arrives bool   // the customer has it
		attempt int    // requests after everything that waits was done
	}{
		"too many": {
			kind: botType, fault: platformfake.TooMany, line: "(pending)", arrives: true, attempt: 2,
		},
		"temporary": {
			kind: social.Messenger, fault: platformfake.Temporary, line: "(pending)", arrives: true, attempt: 2,
		},
		"unauthorized": {
			kind: botType, fault: platformfake.Unauthorized, line: "(pending channel_needs_reauth)",
			channel: store.ChannelNeedsReauth, attempt: 1,
		},
		"window expired": {
			kind: social.Messenger, fault: platformfake.WindowExpired, line: "(failed service_window_expired)", attempt: 1,
		},
		"template required": {
			kind: social.ChatApp, fault: platformfake.WindowExpired, line: "(failed template_required)", attempt: 1,
		},
		"blocked": {
			kind: botType, fault: platformfake.CustomerBlocked, line: "(failed customer_blocked)",
			state: inbox.StateClosed, attempt: 1,
		},
		"rejected": {
			kind: botType, fault: platformfake.Rejected, line: "(failed send_refused)", attempt: 1,
		},
		"nobody knows, and it arrived": {
			kind: botType, fault: platformfake.DropAfter, line: "(delivery_unknown delivery_unknown)", arrives: true, attempt: 1,
		},
		"nobody knows, and it is lost": {
			kind: botType, fault: platformfake.ServerError, line: "(delivery_unknown delivery_unknown)", attempt: 1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			const channel = "chn_tested"
			h.channel(t, acme, channel, test.kind, helper)
			h.platform.Script("hello", test.fault)
			h.say(t, channel, "lan", "hello")
			h.drain(t, h.worker())

			lines := h.lines(t, acme, "lan")
			require.Equal(t, "assistant: You said: hello "+test.line, lines[1])
			conversation := h.conversation(t, acme, "lan")
			require.Equal(t, orElse(test.state, inbox.StateAssistant), conversation.State)
			if test.line != "(pending)" {
				require.NotEmpty(t, conversation.Attention, "somebody should look")
			}
			row, err := h.db.Channels.ByID(t.Context(), acme, channel)
			require.NoError(t, err)
			require.Equal(t, orElse(test.channel, store.ChannelActive), row.State)

			h.hurry(t)
			h.drain(t, h.worker())
			require.Equal(t, test.attempt, h.platform.Attempts("hello"))
			if test.arrives {
				require.Equal(t, []string{"You said: hello"}, h.texts())
			} else {
				require.Empty(t, h.texts())
			}
			require.EqualValues(t, answerCost, h.spent(t, acme))
			h.leaseless(t)
			require.NotContains(t, h.log.String(), "hello", "the customer's words are in the log")
			require.NotContains(t, h.log.String(), platformfake.Secret)
		})
	}
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// TestSendingIsGivenUpInTheEnd: after a day the message is failed, with everything behind it.
func TestSendingIsGivenUpInTheEnd(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.vendor.reply = func(context.Context, int, []string) (string, error) { return strings.Repeat("word ", 1500), nil }
	h.platform.Script("word", platformfake.Repeat(100, platformfake.TooMany)...)
	h.say(t, bot, "lan", "hello")
	for range maxTries + 3 {
		h.drain(t, h.worker())
		h.hurry(t)
	}
	require.Equal(t, maxTries+3, h.platform.Attempts("word"))
	require.Regexp(t, `\(pending\)$`, h.lines(t, acme, "lan")[1])
	h.exec(t, `UPDATE outbound_messages SET created_at = created_at - $1`, (24 * time.Hour).Milliseconds())
	h.drain(t, h.worker())
	lines := h.lines(t, acme, "lan")
	for _, line := range lines[:len(lines)-1] { // the customer's is the last, because the parts are a day older now
		require.True(t, strings.HasSuffix(line, "(failed send_failed)"), line)
	}
	require.Equal(t, "send_failed", h.conversation(t, acme, "lan").Attention)
}

// TestAnswersAreTimedWhenSent: the wait of a customer ends when the platform has taken the first part of the answer, in whichever pass, and is
// observed once.
func TestAnswersAreTimedWhenSent(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.vendor.reply = func(context.Context, int, []string) (string, error) { return strings.Repeat("word ", 1500), nil }
		h.platform.Script("word", platformfake.Repeat(2, platformfake.TooMany)...)
		h.say(t, bot, "lan", "hello")
		heard := observe()
		watched := h.worker(func(c *Config) { c.Observer = heard })
		for range 2 {
			h.drain(t, watched)
			require.Equal(t, []string{"bot began after 0 h"}, heard.waits, "the answer is stored, and the customer has nothing")
			h.hurry(t)
		}
		h.exec(t, `UPDATE messages SET received_at = received_at - $1`, time.Hour.Milliseconds())
		h.drain(t, watched)
		require.Equal(t, 2, heard.all()["bot sent"])
		require.Equal(t, []string{"bot began after 0 h", "bot answered after 1 h"}, heard.waits)
	})
}

// TestUnexplainedErrors guarantees that a message of which the chat app says no more than that something went wrong is tried three times,
// then failed, and that a person may have it sent again.
func TestUnexplainedErrors(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		const channel = "chn_tested"
		h.channel(t, acme, channel, social.ChatApp, helper)
		h.platform.Script("hello", platformfake.Repeat(4, platformfake.Unexplained)...)
		h.say(t, channel, "lan", "hello")
		for range 4 {
			h.drain(t, h.worker())
			h.hurry(t)
		}
		require.Equal(t, 3, h.platform.Attempts("hello"))
		require.Equal(t, "assistant: You said: hello (failed send_failed)", h.lines(t, acme, "lan")[1])
		c := h.conversation(t, acme, "lan")
		require.Equal(t, "send_failed", c.Attention)
		messages, err := h.queue.Messages(t.Context(), acme, c.ID, store.Page{})
		require.NoError(t, err)
		require.NoError(t, h.queue.Resend(t.Context(), "test", acme, c.ID, messages[1].ID, false))
		for range 2 {
			h.drain(t, h.worker())
			h.hurry(t)
		}
		require.Equal(t, []string{"You said: hello"}, h.texts())
	})
}

// TestThePlatformsWishIsHonoured guarantees that the next try is as far away as the platform wants.
func TestThePlatformsWishIsHonoured(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.platform.Script("hello", platformfake.TooManyFor(100*time.Second))
	h.say(t, bot, "lan", "hello")
	start := time.Now()
	h.drain(t, h.worker(func(c *Config) { c.Queue = h.queue }))
	var runAt int64
	require.NoError(t, h.db.Reader().QueryRowContext(t.Context(), `SELECT run_at FROM conversations`).Scan(&runAt))
	require.Greater(t, time.UnixMilli(runAt).Sub(start), 99*time.Second)
}

// TestAFailedPartTakesTheRestWithIt: an answer without its beginning is of no use.
func TestAFailedPartTakesTheRestWithIt(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.vendor.reply = func(context.Context, int, []string) (string, error) { return strings.Repeat("word ", 2500), nil }
	h.platform.Script("word", platformfake.Fault{}, platformfake.Rejected)
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	lines := h.lines(t, acme, "lan")
	require.Len(t, lines, 5)
	require.True(t, strings.HasSuffix(lines[1], "(sent)"))
	for _, line := range lines[2:] {
		require.True(t, strings.HasSuffix(line, "(failed send_refused)"), line)
	}
	require.Equal(t, 2, h.platform.Attempts("word"))
}

// TestWhatAHumanWrites is sent in order, whatever the assistant may do, and nothing else is.
func TestWhatAHumanWrites(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	id := h.conversation(t, acme, "lan").ID
	require.NoError(t, h.queue.HandOver(t.Context(), "test", acme, id))
	_, err := h.queue.SendAsHuman(t.Context(), "test", acme, id, []string{"one moment", "please"})
	require.NoError(t, err)
	h.say(t, bot, "lan", "who are you?")
	h.drain(t, h.worker())
	require.Equal(t, []string{"You said: hello", "one moment", "please"}, h.texts())

	require.NoError(t, h.queue.HandBack(t.Context(), "test", acme, id))
	h.say(t, bot, "lan", "thanks")
	h.drain(t, h.worker())
	require.Len(t, h.texts(), 4)
	require.Contains(t, h.vendor.calls()[1], "assistant: one moment", "to the customer it is one voice")
	require.EqualValues(t, 2*answerCost, h.spent(t, acme))
}

// TestTheWindowIsComputedHere: an answer that comes too late is refused without a call.
func TestTheWindowIsComputedHere(t *testing.T) {
	t.Parallel()
	for kind, code := range map[platforms.Type]string{
		social.Messenger: "service_window_expired",
		social.ChatApp:   "template_required",
		botType:          "",
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			h := open(t)
			const channel = "chn_tested"
			h.channel(t, acme, channel, kind, helper)
			h.say(t, channel, "lan", "hello")
			h.drain(t, h.worker(func(c *Config) {
				c.Now = func() time.Time { return time.Now().Add(25 * time.Hour) }
			}))
			if code == "" {
				require.Len(t, h.texts(), 1)
				return
			}
			require.Equal(t, "assistant: You said: hello (failed "+code+")", h.lines(t, acme, "lan")[1])
			require.Zero(t, h.platform.Attempts("hello"))
		})
	}
}

// TestPeopleMayWriteLonger: a person's message goes out after the window of the assistant's, and the platform learns that it is late.
func TestPeopleMayWriteLonger(t *testing.T) {
	t.Parallel()
	for silence, sent := range map[time.Duration]bool{25 * time.Hour: true, 8 * 24 * time.Hour: false} {
		t.Run(silence.String(), func(t *testing.T) {
			t.Parallel()
			h := open(t)
			const channel = "chn_tested"
			h.channel(t, acme, channel, social.Messenger, "")
			h.say(t, channel, "lan", "hello")
			_, err := h.queue.SendAsHuman(t.Context(), "user", acme, h.conversation(t, acme, "lan").ID, []string{"by hand"})
			require.NoError(t, err)
			h.drain(t, h.worker(func(c *Config) {
				c.Now = func() time.Time { return time.Now().Add(silence) }
			}))
			require.Equal(t, sent, h.platform.Attempts("by hand") == 1)
		})
	}
}

// TestWhatADeadWorkerWasSending is flagged and never sent again; what it had not begun to send is.
func TestWhatADeadWorkerWasSending(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.vendor.reply = func(context.Context, int, []string) (string, error) { return strings.Repeat("word ", 1500), nil }
		h.say(t, bot, "lan", "hello")
		leases, err := h.queue.Lease(t.Context(), inbox.Places{Free: 1}, time.Minute)
		require.NoError(t, err)
		work, err := h.queue.Open(t.Context(), leases[0], 10)
		require.NoError(t, err)
		turn := store.NewID("trn")
		err = h.queue.BeginCall(t.Context(), leases[0], inbox.Turn{ID: turn, AgentID: helper, Request: []byte(`{}`)}, []string{work.Waiting[0].ID})
		require.NoError(t, err)
		_, err = h.queue.Answer(t.Context(), leases[0], turn, []string{"one", "two"}, true)
		require.NoError(t, err)
		h.bury(t)

		h.drain(t, h.worker())
		require.Equal(t, []string{"two"}, h.texts())
		require.Equal(t, []string{
			"customer: hello", "assistant: one (delivery_unknown delivery_unknown)", "assistant: two (sent)",
		}, h.lines(t, acme, "lan"))
		require.Equal(t, "delivery_unknown", h.conversation(t, acme, "lan").Attention)
		require.Empty(t, h.vendor.calls())
	})
}

func TestAChannelWithoutCredentialsNeedsThem(t *testing.T) {
	t.Parallel()
	h := open(t)
	const channel = "chn_tested"
	require.NoError(t, h.db.Channels.Create(t.Context(), "test", store.Channel{
		ID: channel, OrgID: acme, Type: "bot", Name: channel, AgentID: helper, State: store.ChannelActive,
	}, 0))
	h.say(t, channel, "lan", "hello")
	h.drain(t, h.worker())
	require.Equal(t, "assistant: You said: hello (pending channel_needs_reauth)", h.lines(t, acme, "lan")[1])
	row, err := h.db.Channels.ByID(t.Context(), acme, channel)
	require.NoError(t, err)
	require.Equal(t, store.ChannelNeedsReauth, row.State)
}

// TestTemplates: a template is sent after the window, as what the customer sees and the conversation shows. The platform judges each:
// what it refuses fails by name, and waits for a person.
func TestTemplates(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		const channel = "chn_tested"
		h.channel(t, acme, channel, social.ChatApp, "")
		h.platform.CloseWindow("to-lan")
		h.say(t, channel, "lan", "hello")
		c := h.conversation(t, acme, "lan")
		external := fmt.Sprint(1000 + h.accounts)
		h.platform.SetTemplates(external,
			platformfake.Template{Name: "ready", Language: "en", Body: "Dear {{1}}, order {{2}} is ready."},
			platformfake.Template{Name: "slow", Language: "en", Body: "Wait", Status: "PAUSED"},
			platformfake.Template{Name: "off", Language: "en", Body: "Off", Status: "DISABLED"},
		)
		late := h.worker(func(c *Config) {
			c.Now = func() time.Time { return time.Now().Add(25 * time.Hour) }
		})
		send := func(text, template string) {
			t.Helper()
			_, _, err := h.queue.SendTemplate(t.Context(), "test", acme, c.ID, text, []byte(template), nil)
			require.NoError(t, err)
			h.drain(t, late)
		}
		send("Dear Lan, order 7 is ready.",
			`{"name":"ready","language":"en","variables":[{"name":"1","value":"Lan"},{"name":"2","value":"7"}]}`)
		require.Len(t, h.platform.Sent(), 1)
		require.Equal(t, "Dear Lan, order 7 is ready.", h.platform.Sent()[0].Text)
		require.Equal(t, "ready", h.platform.Sent()[0].Template)
		for _, refused := range []struct{ template, code string }{
			{`{"name":"ready","language":"en","variables":[{"name":"1","value":"Lan"}]}`, "template_refused"},
			{`{"name":"ready","language":"de","variables":[]}`, "template_refused"},
			{`{"name":"off","language":"en","variables":[]}`, "template_refused"},
			{`{"name":"slow","language":"en","variables":[]}`, "template_paused"},
			{`{"name":`, "send_refused"},
		} {
			send("x", refused.template)
			lines := h.lines(t, acme, "lan")
			require.Equal(t, "human: x (failed "+refused.code+")", lines[len(lines)-1])
			require.Equal(t, refused.code, h.conversation(t, acme, "lan").Attention)
		}
		_, err := h.queue.SendAsHuman(t.Context(), "test", acme, c.ID, []string{"by hand"})
		require.NoError(t, err)
		h.drain(t, h.worker())
		lines := h.lines(t, acme, "lan")
		require.Equal(t, "human: by hand (failed template_required)", lines[len(lines)-1], "the platform refuses texts")
		require.Len(t, h.platform.Sent(), 1)
	})
}

// TestATemplateWaitsForItsChannel beyond the window, because it may be sent then.
func TestATemplateWaitsForItsChannel(t *testing.T) {
	t.Parallel()
	h := open(t)
	const channel = "chn_tested"
	account := h.channel(t, acme, channel, social.ChatApp, "")
	h.platform.SetTemplates(fmt.Sprint(1000+h.accounts), platformfake.Template{Name: "plain", Language: "en", Body: "Hello"})
	h.say(t, channel, "lan", "hello")
	c := h.conversation(t, acme, "lan")
	h.platform.Expire(account[platforms.AccessToken])
	_, _, err := h.queue.SendTemplate(t.Context(), "test", acme, c.ID, "Hello", []byte(`{"name":"plain","language":"en","variables":[]}`), nil)
	require.NoError(t, err)
	h.drain(t, h.worker(func(c *Config) {
		c.Now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	}))
	lines := h.lines(t, acme, "lan")
	require.Equal(t, "human: Hello (pending channel_needs_reauth)", lines[len(lines)-1])
	var due int64
	require.NoError(t, h.db.Reader().QueryRowContext(t.Context(), `SELECT run_at FROM conversations WHERE id = $1`, c.ID).Scan(&due))
	require.Greater(t, due, time.Now().Add(23*time.Hour).UnixMilli())
}
