package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// saying lets the vendor answer with one text.
func (h *fixture) saying(text string) {
	h.vendor.reply = func(context.Context, int, []string) (string, error) { return text, nil }
}

// handsOver lets the fixture's assistant hand over.
func (h *fixture) handsOver(t *testing.T) {
	t.Helper()
	h.changeAgent(t, func(a *store.Agent) {
		a.Handover, a.HandoverReply, a.HandoverWords = true, "A colleague will answer.", []string{"nhân viên", "manager"}
	})
}

// The assistant hands over by its mark: the customer gets the words without it, the conversation is a person's, and the mark is known to
// no later prompt.
func TestAssistantAsksForAPerson(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.handsOver(t)
		h.saying("I'll get a colleague.\n\n**[[Handover]]**")
		h.say(t, bot, "ann", "can I talk to somebody?")
		observer := observe()
		h.drain(t, h.worker(func(c *Config) { c.Observer = observer }))
		require.Equal(t, []string{"I'll get a colleague."}, h.texts())
		require.Equal(t, 1, observer.all()["turn handed_over"])
		conversation := h.conversation(t, acme, "ann")
		require.Equal(t, []string{inbox.StateHuman, inbox.HandoverAssistant}, []string{conversation.State, conversation.HandoverReason})
		require.Positive(t, conversation.UnansweredSince)
		require.Contains(t, h.vendor.calls()[0][0], "system: Be kind.\n\nYou work together with people.")
		require.Contains(t, h.vendor.calls()[0][0], handoverMark)
		h.say(t, bot, "ann", "hello?")
		h.drain(t, h.worker())
		require.Len(t, h.vendor.calls(), 1, "it is silent")

		require.NoError(t, h.queue.HandBack(t.Context(), "usr_1", acme, conversation.ID))
		h.saying("Gladly.")
		h.say(t, bot, "ann", "thanks")
		h.drain(t, h.worker())
		require.Equal(t, []string{"I'll get a colleague.", "Gladly."}, h.texts())
		require.NotContains(t, strings.Join(h.vendor.calls()[1][1:], "\n"), "[[")
		require.EqualValues(t, 2*answerCost, h.spent(t, acme))
	})
}

// The mark alone is the agent's own reply; an agent that doesn't hand over isn't told of the mark, and what it writes is sent as it is.
func TestMarkWithoutWords(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.saying(handoverMark)
	h.say(t, bot, "ann", "hello")
	h.drain(t, h.worker())
	require.Equal(t, []string{handoverMark}, h.texts())
	require.Equal(t, "system: Be kind.", h.vendor.calls()[0][0])
	require.Equal(t, inbox.StateAssistant, h.conversation(t, acme, "ann").State)

	h.handsOver(t)
	h.say(t, bot, "bob", "hello")
	h.drain(t, h.worker())
	require.Equal(t, []string{handoverMark, "A colleague will answer."}, h.texts())
	h.changeAgent(t, func(a *store.Agent) { a.Instructions, a.HandoverReply = "", "" })
	h.say(t, bot, "cid", "hello")
	h.drain(t, h.worker())
	require.Len(t, h.texts(), 2, "nothing is said")
	require.Equal(t, inbox.StateHuman, h.conversation(t, acme, "cid").State)
	require.True(t, strings.HasPrefix(h.vendor.calls()[2][0], "system: You work together with people."))
	require.Equal(t, []string{"answered", "answered handed_over", "discarded handed_over"}, h.turns(t, acme))
	h.spent(t, acme)
}

// One of the chosen words hands over without a call of the model, whatever else was written.
func TestChosenWords(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.handsOver(t)
		h.changeAgent(t, func(a *store.Agent) { a.Handover = false })
		h.say(t, bot, "ann", "Xin chào", "cho gặp NHAN VIEN!")
		h.drain(t, h.worker())
		require.Equal(t, []string{"A colleague will answer."}, h.texts())
		require.Empty(t, h.vendor.calls())
		require.Zero(t, h.spent(t, acme))
		require.Equal(t, inbox.HandoverWords, h.conversation(t, acme, "ann").HandoverReason)
		h.say(t, bot, "bob", "the management is kind")
		h.drain(t, h.worker())
		require.Equal(t, "You said: the management is kind", h.texts()[1])
	})
}

// An assistant that gives no answer twice in a row, for reasons that no later try ends, leaves the conversation to people; one that is
// answered in between, or whose vendor is down, doesn't.
func TestTwoFailures(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.handsOver(t)
		fail := func(customer string) {
			h.saying(" ")
			h.say(t, bot, customer, "hello")
			h.drain(t, h.worker())
		}
		fail("ann")
		require.Equal(t, "empty_answer", h.conversation(t, acme, "ann").Attention)
		h.saying("Here I am.")
		h.say(t, bot, "ann", "hello?")
		h.drain(t, h.worker())
		fail("ann")
		require.Equal(t, inbox.StateAssistant, h.conversation(t, acme, "ann").State, "there was an answer")
		fail("ann")
		conversation := h.conversation(t, acme, "ann")
		require.Equal(t, []string{inbox.StateHuman, inbox.HandoverFailures, ""},
			[]string{conversation.State, conversation.HandoverReason, conversation.Attention})
		require.Equal(t, []string{"Here I am.", "A colleague will answer."}, h.texts())

		fail("bob")
		h.vendor.reply = func(context.Context, int, []string) (string, error) { return "", broken(providers.FailureUnreachable) }
		h.say(t, bot, "bob", "hello?")
		h.drain(t, h.worker())
		for range maxTries {
			h.hurry(t)
			h.drain(t, h.worker())
		}
		require.Equal(t, inbox.StateAssistant, h.conversation(t, acme, "bob").State, "the vendor will be back")
		require.NotEmpty(t, h.conversation(t, acme, "bob").Attention)

		h.changeAgent(t, func(a *store.Agent) { a.Handover = false })
		fail("cid")
		fail("cid")
		require.Equal(t, inbox.StateAssistant, h.conversation(t, acme, "cid").State)
		h.spent(t, acme)
	})
}

// A turn that never had a request is handed over, too: the texts that can't be read.
func TestFailureWithoutATurn(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.handsOver(t)
	h.changeAgent(t, func(a *store.Agent) { a.Model = "vendor/gone" })
	h.say(t, bot, "ann", "one")
	h.drain(t, h.worker())
	require.Equal(t, codes.UnsupportedModel, h.conversation(t, acme, "ann").Attention)
	h.say(t, bot, "ann", "two")
	h.drain(t, h.worker())
	require.Equal(t, inbox.HandoverFailures, h.conversation(t, acme, "ann").HandoverReason)
	require.Equal(t, []string{"A colleague will answer."}, h.texts())
	h.spent(t, acme)
}

// Wherever a worker dies, the conversation is handed over once, its call is charged once, and the customer gets the last words once; or
// they are shown as a part whose delivery is unknown.
func TestHandoverOutlivesWorkers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.handsOver(t)
		h.saying(strings.Repeat("One moment. ", 700) + handoverMark)
		die := func(said, customer string, at int, afterwards bool) *mortal {
			h.say(t, bot, customer, said)
			w, m := h.mortal(at, afterwards)
			h.drain(t, w)
			h.bury(t)
			h.drain(t, h.worker())
			return m
		}
		var answers int64
		for said, parts := range map[string]int{"a person": 3, "the manager": 1} {
			life := die(said, "healthy "+said, 0, false)
			require.Len(t, h.platform.SentTo("to-healthy "+said), parts)
			for at := 1; at <= life.steps; at++ {
				for _, afterwards := range []bool{false, true} {
					name := fmt.Sprintf("%s %d %t", said, at, afterwards)
					require.True(t, die(said, name, at, afterwards).dead)
					conversation := h.conversation(t, acme, name)
					require.Equal(t, inbox.StateHuman, conversation.State, name)
					require.Positive(t, conversation.UnansweredSince, name)
					lines := strings.Join(h.lines(t, acme, name)[1:], "\n")
					require.Equal(t, parts, strings.Count(lines, " (sent)")+strings.Count(lines, "(delivery_unknown delivery_unknown)"), name)
					require.LessOrEqual(t, strings.Count(lines, "(delivery_unknown "), 1, name)
					require.LessOrEqual(t, len(h.platform.SentTo("to-"+name)), parts, name)
					h.leaseless(t)
				}
			}
			if parts > 1 { // of a model
				answers = 1 + 2*int64(life.steps)
			}
		}
		require.Equal(t, answers*answerCost, h.spent(t, acme))
	})
}

// A visitor of the widget sees no byte of the mark, however it is cut into pieces, and sees what is stored.
func TestVisitorsSeeNoMark(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"I'll get a colleague. [[HANDOVER]]", "[[handover]]\nOne moment.", "**One** moment\n\n`[[HANDOVER]]`", "A [[HANDOVER]] B **b**",
		"***[[HANDOVER]]*** *x*", "[[HAND", "[[ [[HANDOVER]]", "_[[HANDOVER]]**", "**Bold**[[HANDOVER]]", "ends with **", "[", "đồng [[HANDOVER]] ý",
	} {
		whole := &pass{work: inbox.Work{Agent: &store.Agent{}}}
		stored, reason := whole.lastWords(&storedRequest{MayHandOver: true}, answer)
		require.NotContains(t, strings.ToUpper(stored), handoverMark)
		require.Equal(t, strings.Contains(strings.ToUpper(answer), handoverMark), reason == inbox.HandoverAssistant, answer)
		for size := 1; size <= len(answer); size++ {
			var seen reader
			sink := &liveSink{to: &seen, marked: true}
			require.NoError(t, sink.Begin(gateway.Head{}))
			for rest := answer; rest != ""; {
				piece := rest[:min(size, len(rest))]
				rest = rest[len(piece):]
				require.NoError(t, sink.Text(piece))
				require.LessOrEqual(t, len(sink.mark.held), len(handoverMark)+2*maxFormatting)
			}
			sink.end()
			require.Equal(t, stored, seen.text.String(), "%q in pieces of %d", answer, size)
		}
	}
	p := &pass{work: inbox.Work{Agent: &store.Agent{}}}
	for answer, want := range map[string]string{
		"Hi.\n**[[HANDOVER]]**": "Hi.", "`[[HANDOVER]]`": "", "**Bold**[[HANDOVER]]": "**Bold**", "a [[HANDOVER]]": "a",
		"[[HANDOVER]] a [[HANDOVER]]": "a", "[[HANDOVER]": "[[HANDOVER]",
	} {
		said, _ := p.lastWords(&storedRequest{MayHandOver: true}, answer)
		require.Equal(t, want, said)
	}
}

func TestLiveHandover(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.widget(t, "chn_w")
		h.handsOver(t)
		h.saying("One moment. [[HANDOVER]]")
		h.visit(t, "chn_w", "v1", "1", "a person")
		var seen reader
		reply, err := h.worker().AnswerNow(t.Context(), acme, "chn_w", "1", &seen)
		require.NoError(t, err)
		require.Equal(t, []string{"One moment.", "One moment."}, []string{reply.Text, seen.text.String()})
		require.Equal(t, inbox.StateHuman, h.conversation(t, acme, "v1").State)

		h.visit(t, "chn_w", "v2", "2", "your manager!")
		reply, err = h.worker().AnswerNow(t.Context(), acme, "chn_w", "2", &seen)
		require.NoError(t, err)
		require.Equal(t, "A colleague will answer.", reply.Text)
		require.Equal(t, inbox.HandoverWords, h.conversation(t, acme, "v2").HandoverReason)
		h.drain(t, h.worker())
		require.Equal(t, "assistant: A colleague will answer. (sent)", h.lines(t, acme, "v2")[1])
		h.spent(t, acme)
	})
}
