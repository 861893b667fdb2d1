package widget

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/worker"
	"github.com/caddy-svc/caddy-svc/providers"
)

// TestVisitorIsAnswered: session, message, stream, history; one charge; the inbox has it like any other conversation.
func TestVisitorIsAnswered(t *testing.T) {
	t.Parallel()
	storetest.Each(t, siteKinds, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		s.speaker.speak = func(context.Context, int) ([]string, error) {
			return []string{"\n Xin", " ", "\n", "chào. ", " \n"}, nil
		}
		token := s.begin(t, `{}`)
		require.Empty(t, s.seen(t, token))
		w := s.write(token, "m-1", "alo?")
		require.Equal(t, "Xin \nchào.", wholeStream(t, w), "as it is stored: without white space around it")
		require.True(t, w.Flushed)
		require.NotContains(t, w.Body.String(), "echo/a", "the model is the business's to know")
		require.Equal(t, []string{"visitor: alo?", "assistant: Xin \nchào."}, s.seen(t, token))
		require.EqualValues(t, chatCost, s.spent(t))
		conversation := s.conversation(t)
		require.Equal(t, inbox.StateAssistant, conversation.State)
		require.Empty(t, conversation.Attention)
		messages, err := s.queue.Messages(t.Context(), "org_1", conversation.ID, store.Page{})
		require.NoError(t, err)
		require.Len(t, messages, 2)
		require.Equal(t, inbox.OutboundSent, messages[1].State)
		spent, err := db.Widgets.Spend(t.Context(), "org_1", "chn_1", time.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.Equal(t, store.ChannelDay{SpentMicros: chatCost, LargestMicros: chatCost, Calls: 1}, spent)
		require.Zero(t, s.Streams.Count())

		require.Equal(t, "Xin \nchào.", wholeStream(t, s.write(token, "m-2", "và?")), "the conversation goes on")
		require.Len(t, s.seen(t, token), 4)
		require.NotContains(t, s.log.text.String(), "alo?")
	})
}

// TestRepeatedMessage: the same id is the same message, whenever it is repeated: one call, one charge, one text.
func TestRepeatedMessage(t *testing.T) {
	t.Parallel()
	storetest.Each(t, siteKinds, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		s.speaker.next = make(chan struct{})
		token := s.begin(t, `{}`)
		const copies = 4
		answers := make(chan *httptest.ResponseRecorder, copies)
		for range copies {
			go func() { answers <- s.write(token, "m-1", "alo?") }()
		}
		s.speaker.next <- struct{}{} // the first runs
		require.Eventually(t, func() bool { return s.Streams.Count() == copies }, time.Minute, time.Millisecond)
		close(s.speaker.next)
		first := wholeStream(t, <-answers)
		require.Equal(t, "Xin chào.", first)
		for range copies - 1 {
			require.Equal(t, first, wholeStream(t, <-answers))
		}
		again := s.write(token, "m-1", "something else under the same id")
		require.Equal(t, first, wholeStream(t, again))
		require.EqualValues(t, 1, s.speaker.calls.Load())
		require.EqualValues(t, chatCost, s.spent(t))
		require.Equal(t, []string{"visitor: alo?", "assistant: Xin chào."}, s.seen(t, token))

		require.Equal(t, first, wholeStream(t, s.write(s.begin(t, `{}`), "m-1", "of somebody else")), "ids are each visitor's own")
		require.EqualValues(t, 2, s.speaker.calls.Load())
	})
}

// TestVisitorLeaves: a stored message is answered to its end, and the answer is there when the visitor returns.
func TestVisitorLeaves(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.speaker.next = make(chan struct{})
	token := s.begin(t, `{}`)
	gone, leave := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", token, `{"id":"m-1","text":"alo?"}`)
		handlertest.Served(s.Serve, r.WithContext(gone))
	}()
	s.speaker.next <- struct{}{}
	leave()
	close(s.speaker.next)
	<-ended
	require.Equal(t, []string{"visitor: alo?", "assistant: Xin chào."}, s.seen(t, token))
	require.Equal(t, "Xin chào.", wholeStream(t, s.write(token, "m-1", "alo?")))
	require.EqualValues(t, 1, s.speaker.calls.Load())
	require.EqualValues(t, chatCost, s.spent(t))
}

// TestServerDiesInBetween: whatever a process had done with a message before it died, a worker answers it, and it is charged once.
func TestServerDiesInBetween(t *testing.T) {
	t.Parallel()
	storetest.Each(t, siteKinds, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		token := s.begin(t, `{}`)
		answered := func(n int) func() bool { return func() bool { return len(s.seen(t, token)) == n } }

		// It died after the message was stored.
		live := s.Live
		s.Live = dead{}
		require.Equal(t, http.StatusAccepted, s.write(token, "m-1", "one").Code)
		s.exec(t, `UPDATE conversations SET run_at = 1 WHERE run_at IS NOT NULL`) // takeOver is over
		s.work(t, answered(2))
		require.EqualValues(t, 1, s.speaker.calls.Load())

		// It died with the lease and a turn whose answer was there, before it was stored and paid: the lease runs out.
		running, die := context.WithCancel(t.Context())
		defer die()
		s.Live = worker.New(worker.Config{
			Queue: dying{s.queue, die}, DB: db, Ring: handlertest.Ring(t), Gateway: s.worker.Gateway, Platforms: s.worker.Platforms,
			Knowledge: s.worker.Knowledge, Lease: time.Minute,
		})
		r := visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", token, `{"id":"m-2","text":"two"}`)
		w := handlertest.Served(s.Serve, r.WithContext(running))
		require.Contains(t, w.Body.String(), "chào.", "the visitor saw it")
		require.NotContains(t, w.Body.String(), "[DONE]", "but it isn't stored")
		require.Contains(t, w.Body.String(), `data: {"error":`)
		require.EqualValues(t, 2, s.speaker.calls.Load())
		s.exec(t, `UPDATE conversations SET lease_until = 1, run_at = 1 WHERE id = $1`, s.conversation(t).ID)
		s.work(t, answered(4))
		require.EqualValues(t, 3, s.speaker.calls.Load(), "the answer is made again")
		require.EqualValues(t, 2*chatCost, s.spent(t))

		s.Live = live
		require.Equal(t, "Xin chào.", wholeStream(t, s.write(token, "m-2", "two")))
		require.EqualValues(t, 3, s.speaker.calls.Load())
	})
}

// dead answers no message.
type dead struct{}

func (dead) AnswerNow(context.Context, string, string, string, gateway.Sink) (inbox.Reply, error) {
	return inbox.Reply{}, nil
}

// dying is a queue whose worker dies before it stores its answer, and returns no lease.
type dying struct {
	*inbox.Queue

	die context.CancelFunc
}

func (d dying) Answer(context.Context, inbox.Lease, string, []string, bool) ([]inbox.Outbound, error) {
	d.die()
	return nil, inbox.ErrLeaseLost
}

// TestNobodyAnswersNow: the visitor gets a plain sentence without the business's reasons, the message is stored, and the inbox shows
// the cause.
func TestNobodyAnswersNow(t *testing.T) {
	t.Parallel()
	suspended := store.ChannelNeedsReauth
	for name, test := range map[string]struct {
		prepare   func(t *testing.T, s *site)
		attention string
	}{
		"suspended": {func(t *testing.T, s *site) {
			t.Helper()
			s.exec(t, `UPDATE organizations SET suspended_at = 1 WHERE id = 'org_1'`)
		}, "organization_suspended"},
		"no agent": {func(t *testing.T, s *site) {
			t.Helper()
			require.NoError(t, s.db.Agents.Delete(t.Context(), "test", "org_1", "agt_1"))
		}, "no_agent"},
		"channel not active": {func(t *testing.T, s *site) {
			t.Helper()
			require.NoError(t, s.db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{State: &suspended}))
		}, "channel_needs_reauth"},
		"no credits": {func(t *testing.T, s *site) {
			t.Helper()
			_, err := s.book.Adjust(t.Context(), "test", billing.WalletID{OrgID: "org_1", Env: store.Live}, chatCost-1_000_000, "test", "r", "")
			require.NoError(t, err)
		}, "insufficient_credits"},
		"provider down": {func(t *testing.T, s *site) {
			t.Helper()
			s.speaker.speak = func(context.Context, int) ([]string, error) {
				return nil, &providers.Error{Failure: providers.FailureUnreachable}
			}
		}, ""},
		"a human has it": {func(t *testing.T, s *site) {
			t.Helper()
			s.exec(t, `UPDATE conversations SET state = 'human'`)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openSite(t)
			token := s.begin(t, `{}`)
			wholeStream(t, s.write(token, "m-0", "hi"))
			test.prepare(t, s)
			for range 2 { // a repeated message is told the same
				w := s.write(token, "m-1", "alo?")
				require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
				require.JSONEq(t, `{"id":"m-1","state":"waiting","notice":"`+waitingNotice+`"}`, w.Body.String())
			}
			require.Equal(t, test.attention, s.conversation(t).Attention)
			require.Equal(t, []string{"visitor: hi", "assistant: Xin chào.", "visitor: alo?"}, s.seen(t, token))
		})
	}
}

// TestHumanAnswers: an answer of the business's staff is in the visitor's list once it is sent.
func TestHumanAnswers(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	token := s.begin(t, `{}`)
	wholeStream(t, s.write(token, "m-1", "alo?"))
	id := s.conversation(t).ID
	require.NoError(t, s.queue.HandOver(t.Context(), "test", "org_1", id))
	_, err := s.queue.SendAsHuman(t.Context(), "test", "org_1", id, []string{"I am here."})
	require.NoError(t, err)
	require.Len(t, s.seen(t, token), 2, "it waits for the worker")
	s.work(t, func() bool { return len(s.seen(t, token)) == 3 })
	require.Equal(t, "human: I am here.", s.seen(t, token)[2])
}

// TestBrokenAnswer: the stream of an answer that breaks off has no end; the call is repeated, and its answer is stored.
func TestBrokenAnswer(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.speaker.speak = func(_ context.Context, n int) ([]string, error) {
		if n == 1 {
			return []string{"Xin ", "\x00break"}, nil
		}
		return []string{"Chào bạn."}, nil
	}
	token := s.begin(t, `{}`)
	w := s.write(token, "m-1", "alo?")
	data := handlertest.Events(t, w)
	require.Contains(t, data[len(data)-1], `{"error":{"code":"conflict"`)
	require.NotContains(t, w.Body.String(), "[DONE]")
	require.Equal(t, []string{"visitor: alo?"}, s.seen(t, token))
	s.exec(t, `UPDATE conversations SET run_at = run_at + 3600000 WHERE run_at IS NOT NULL`) // longer than any machine is slow
	require.Equal(t, http.StatusAccepted, s.write(token, "m-1", "alo?").Code, "the pause after a failed try holds")
	s.exec(t, `UPDATE conversations SET run_at = 1 WHERE run_at IS NOT NULL`)
	require.Equal(t, "Chào bạn.", wholeStream(t, s.write(token, "m-1", "alo?")))
	require.EqualValues(t, chatCost, s.spent(t))
}

// A piece that comes quoted is a part of the text that the visitor has seen.
func TestQuotedPieceIsShown(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := newVisitStream(w, new(http.Request), &inbox.Reply{MessageID: "msg_1"}, func() {})
	defer s.Free()
	require.NoError(t, s.Begin(gateway.Head{Model: "echo/a"}))
	require.NoError(t, s.Quoted(providers.Quote("\"xin\"")))
	require.False(t, s.end("chào"), "the visitor has seen another text")
	require.True(t, s.end("\"xin\" chào"))
	require.Equal(t, "\"xin\" chào", wholeStream(t, w))
	require.NotContains(t, w.Body.String(), "echo/a")
}
