package widget

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/worker"
	"github.com/caddy-svc/caddy-svc/providers"
)

const (
	shop = "https://shop.vn"
	// chatCost is what an answer of the speaker costs.
	chatCost = 12
)

// speaker is a model's provider that a test speaks for, piece by piece.
type speaker struct {
	// speak makes the pieces of the nth call, from 1; nil says hello.
	speak func(ctx context.Context, n int) ([]string, error)
	// next is asked before each piece, if a test holds the answer.
	next chan struct{}

	calls atomic.Int64
}

func (s *speaker) Open(ctx context.Context, _ *providers.Request) (providers.Events, error) {
	n := int(s.calls.Add(1))
	pieces := []string{"Xin ", "chào."}
	if s.speak != nil {
		var err error
		if pieces, err = s.speak(ctx, n); err != nil {
			return nil, err
		}
	}
	return &speech{ctx: ctx, pieces: pieces, next: s.next}, nil
}

type speech struct {
	ctx    context.Context
	pieces []string
	next   chan struct{}
	ended  bool
}

func (s *speech) Next() (providers.Event, error) {
	if s.next != nil {
		select {
		case <-s.next:
		case <-s.ctx.Done():
			return providers.Event{}, context.Cause(s.ctx)
		}
	}
	if len(s.pieces) > 0 {
		piece := s.pieces[0]
		s.pieces = s.pieces[1:]
		if piece == "\x00break" {
			return providers.Event{}, &providers.Error{Failure: providers.FailureUnreachable, Cause: io.ErrUnexpectedEOF}
		}
		return providers.Event{Text: piece}, nil
	}
	if s.ended {
		return providers.Event{}, io.EOF
	}
	s.ended = true
	return providers.Event{FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 4, CompletionTokens: 4}}, nil
}

func (*speech) Buffered() bool { return false }
func (*speech) Close()         {}

// site is a web widget with all that stands behind it: the organization org_1 with credits and the agent agt_1, its widget
// chn_1 for the origins shop, https://*.example.com and http://localhost:8080, and org_2's widget chn_2.
type site struct {
	*Widget

	db      *store.DB
	queue   *inbox.Queue
	book    *billing.Book
	speaker *speaker
	worker  *worker.Worker
	ahead   atomic.Int64 // nanoseconds that the widget's clock is ahead
	log     syncLog
}

type syncLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *syncLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

var siteKinds = []store.Kind{billing.Ledger, inbox.Kind}

func newSite(t *testing.T, db *store.DB) *site {
	t.Helper()
	ctx := t.Context()
	s := &site{db: db, queue: inbox.New(db, handlertest.Ring(t)), book: billing.NewBook(db), speaker: &speaker{}}
	for _, id := range []string{"org_1", "org_2"} {
		require.NoError(t, db.Organizations.Create(ctx, "test", store.Organization{ID: id, Name: id, Plan: "free"}))
	}
	require.NoError(t, db.Agents.Create(ctx, "test", store.Agent{ID: "agt_1", OrgID: "org_1", Name: "Lan", Model: "echo/a", MaxTokens: 50}))
	_, err := s.book.Credit(ctx, "test", billing.WalletID{OrgID: "org_1", Env: store.Live}, 1_000_000, "ref")
	require.NoError(t, err)
	for org, channel := range map[string]store.Channel{
		"org_1": {ID: "chn_1", Name: "Site", AgentID: "agt_1"},
		"org_2": {ID: "chn_2", Name: "Site"},
	} {
		channel.OrgID, channel.Type, channel.State = org, string(messaging.Widget), store.ChannelActive
		channel.Widget = &store.WidgetSettings{
			Origins: []string{shop, "https://*.example.com", "http://localhost:8080"}, RequestsPerMinute: 1000,
		}
		require.NoError(t, db.Channels.Create(ctx, "test", channel, 0))
	}
	catalog, err := gateway.NewCatalog([]gateway.Model{{
		ID: "echo/a", Provider: "echo", Upstream: "a", ContextWindow: 4000, MaxOutputTokens: 500, MaxTokensField: "max_tokens",
		Price: billing.Price{Input: 1_000_000, Output: 2_000_000, CachedInput: 1_000_000},
	}}, []gateway.ProviderEntry{{Name: "echo", Provider: s.speaker, KeyMode: gateway.KeyNone, MaxDuration: time.Minute}})
	require.NoError(t, err)
	calls := gateway.NewInFlight()
	s.worker = worker.New(worker.Config{
		Queue: s.queue, DB: db, Ring: handlertest.Ring(t), Platforms: handlertest.BuiltinPlatforms(t),
		Gateway: gateway.New(gateway.Config{
			Catalog: catalog, Book: s.book, DB: db, Ring: handlertest.Ring(t), Calls: calls, HoldTTL: time.Minute,
		}),
		Knowledge: knowledge.New(db, nil), Lease: time.Minute, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	server := endpoint.New(nil, nil, nil)
	Register(server)
	s.Widget = New(server, Deps{
		DB: db, Inbox: s.queue, Live: s.worker, Ring: handlertest.Ring(t), Limiter: limit.NewMemory(time.Now), Streams: new(v1.Streams),
		Now:    func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) },
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	t.Cleanup(func() { require.NoError(t, calls.Wait(context.Background())) })
	return s
}

// openSite is a site on a fresh SQLite database.
func openSite(t *testing.T) *site {
	t.Helper()
	return newSite(t, storetest.Open(t, store.SQLite, siteKinds...))
}

// visitorRequest is a request from a page of an origin, "" for none.
func visitorRequest(method, path, origin, token, body string) *http.Request {
	r := httptest.NewRequest(method, "https://svc.example"+path, strings.NewReader(body))
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// begin gets a session from a page of shop.
func (s *site) begin(t *testing.T, body string) (token string) {
	t.Helper()
	w := handlertest.Served(s.Serve, visitorRequest(http.MethodPost, "/widget/chn_1/session", shop, "", body))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var session struct{ Token, ExpiresAt string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &session))
	ends, err := time.Parse(time.RFC3339, session.ExpiresAt)
	require.NoError(t, err)
	require.WithinDuration(t, s.Now().Add(visitLife), ends, time.Minute)
	return session.Token
}

func (s *site) write(token, id, text string) *httptest.ResponseRecorder {
	return handlertest.Served(s.Serve, visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", token, `{"id":"`+id+`","text":"`+text+`"}`))
}

// seen are the lines that a visitor sees, as "author: text".
func (s *site) seen(t *testing.T, token string) (lines []string) {
	t.Helper()
	w := handlertest.Served(s.Serve, visitorRequest(http.MethodGet, "/widget/chn_1/messages", "", token, ""))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var list struct{ Data []VisitMessageObject }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &list))
	for _, m := range list.Data {
		require.NotEmpty(t, m.ID)
		lines = append(lines, m.Author+": "+m.Text)
	}
	return lines
}

// wholeStream checks a whole stream chunk by chunk and gives its text.
func wholeStream(t *testing.T, w *httptest.ResponseRecorder) (text string) {
	t.Helper()
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.True(t, strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"))
	type chunk struct {
		ID, Object, Model string
		Created           int64
		Choices           []struct {
			Index        int
			Delta        map[string]string
			FinishReason *string `json:"finish_reason"`
		}
		Usage map[string]int64
		SVC   map[string]any
	}
	data := handlertest.Events(t, w)
	require.GreaterOrEqual(t, len(data), 5, "role, text, finish, usage, [DONE]")
	require.Equal(t, "[DONE]", data[len(data)-1])
	var first chunk
	for i, line := range data[:len(data)-1] {
		var c chunk
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		if i == 0 {
			first = c
			require.Regexp(t, `^chatcmpl-[0-9a-v]+$`, c.ID)
		}
		require.Equal(t, []any{first.ID, "chat.completion.chunk", first.Model, first.Created}, []any{c.ID, c.Object, c.Model, c.Created})
		last := i == len(data)-2
		require.Equal(t, last, c.Usage != nil)
		require.Equal(t, last, c.SVC != nil)
		if last {
			require.Empty(t, c.Choices)
			require.Equal(t, map[string]any{"charged_micros": "0", "byok": false}, c.SVC, "what it costs is the business's to know")
			require.Equal(t, map[string]int64{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, c.Usage)
			break
		}
		require.Len(t, c.Choices, 1)
		closing := i == len(data)-3
		require.Equal(t, closing, c.Choices[0].FinishReason != nil)
		switch {
		case i == 0:
			require.Equal(t, map[string]string{"role": "assistant", "content": ""}, c.Choices[0].Delta)
		case closing:
			require.Empty(t, c.Choices[0].Delta)
		default:
			require.Len(t, c.Choices[0].Delta, 1)
			text += c.Choices[0].Delta["content"]
		}
	}
	return text
}

// spent is what org_1 has paid, with the books in order.
func (s *site) spent(t *testing.T) int64 {
	t.Helper()
	report, err := billing.Check(t.Context(), s.db)
	require.NoError(t, err)
	require.True(t, report.OK(), "%v", report)
	findings, err := inbox.Check(t.Context(), s.db)
	require.NoError(t, err)
	require.Empty(t, findings)
	wallet, err := s.book.Wallet(t.Context(), billing.WalletID{OrgID: "org_1", Env: store.Live})
	require.NoError(t, err)
	require.Zero(t, wallet.HeldMicros)
	return 1_000_000 - wallet.BalanceMicros
}

// conversation is the only one of chn_1.
func (s *site) conversation(t *testing.T) inbox.Conversation {
	t.Helper()
	all, err := s.queue.Conversations(t.Context(), "org_1", inbox.ConversationFilter{}, store.Page{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

func (s *site) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	require.NoError(t, s.db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, text, args...)
		return nil
	}))
}

// work runs a worker's loop until the test has seen what it waits for.
func (s *site) work(t *testing.T, until func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.worker.Run(ctx, time.Minute) }()
	require.Eventually(t, until, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

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

// TestRepeatedMessage: the same id is the same message, whenever it comes again: one call, one charge, one text.
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

// TestVisitorLeaves: the message was taken, so it is answered to the end, and found when the visitor is back.
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

// TestServerDiesInBetween: whatever the process that took a message had done, a worker ends it, and it is charged once.
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

		// It died with the lease and a turn that was paid, before the answer was stored: the lease runs out.
		running, die := context.WithCancel(t.Context())
		defer die()
		s.Live = worker.New(worker.Config{
			Queue: s.queue, Turns: dying{s.queue, die}, DB: db, Ring: handlertest.Ring(t), Gateway: s.worker.Gateway, Platforms: s.worker.Platforms,
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
		require.EqualValues(t, 2, s.speaker.calls.Load(), "the paid answer was kept")
		require.EqualValues(t, 2*chatCost, s.spent(t))

		s.Live = live
		require.Equal(t, "Xin chào.", wholeStream(t, s.write(token, "m-2", "two")))
		require.EqualValues(t, 2, s.speaker.calls.Load())
	})
}

// dead answers nobody.
type dead struct{}

func (dead) AnswerNow(context.Context, string, string, string, gateway.Sink) (inbox.Reply, error) {
	return inbox.Reply{}, nil
}

// dying is a queue whose worker dies before it stores its answer, and gives nothing back.
type dying struct {
	*inbox.Queue

	die context.CancelFunc
}

func (d dying) Answer(context.Context, inbox.Lease, string, []string, bool) ([]inbox.Outbound, error) {
	d.die()
	return nil, inbox.ErrLeaseLost
}

// TestNobodyAnswersNow: the visitor gets a plain sentence with none of the business's reasons, the message is kept, and
// the inbox says what is to be mended.
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
			_, err := s.book.Adjust(t.Context(), "test", billing.WalletID{OrgID: "org_1", Env: store.Live}, chatCost-1_000_000, "test", "")
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

// TestHumanAnswers: what somebody of the business writes is in the visitor's list, once it is sent.
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

// TestBrokenAnswer: what the visitor has seen of an answer that broke is no whole stream; the try is repeated, and its
// answer is the one that stays.
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
	require.Equal(t, http.StatusAccepted, s.write(token, "m-1", "alo?").Code, "the pause after a failed try holds")
	s.exec(t, `UPDATE conversations SET run_at = 1 WHERE run_at IS NOT NULL`)
	require.Equal(t, "Chào bạn.", wholeStream(t, s.write(token, "m-1", "alo?")))
	require.EqualValues(t, chatCost, s.spent(t))
}

// TestDailySpend: over the cap a new message is refused and not stored; one that was stored before is answered again, and
// the next day is another one.
func TestDailySpend(t *testing.T) {
	t.Parallel()
	storetest.Each(t, siteKinds, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		settings := store.WidgetSettings{Origins: []string{shop}, RequestsPerMinute: 1000, DailySpendMicros: sql.NullInt64{Int64: chatCost + 1, Valid: true}}
		require.NoError(t, db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
		token := s.begin(t, `{}`)
		wholeStream(t, s.write(token, "m-1", "one"))
		wholeStream(t, s.write(token, "m-2", "two"))
		refused := handlertest.Checked(t, s.write(token, "m-3", "three"))
		require.Equal(t, string(errcode.PlanLimitExceeded), refused.Code())
		require.Equal(t, "This chat has answered as much as it may today. Please come back tomorrow.", refused.Fields["message"], "no amounts")
		require.Equal(t, "Xin chào.", wholeStream(t, s.write(token, "m-2", "two")))
		require.Len(t, s.seen(t, token), 4)
		require.EqualValues(t, 2*chatCost, s.spent(t))

		s.ahead.Store(int64(24 * time.Hour))
		require.Equal(t, "Xin chào.", wholeStream(t, s.write(s.begin(t, `{"token":"`+token+`"}`), "m-3", "three")))

		settings.DailySpendMicros.Int64 = 0
		require.NoError(t, db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
		require.Equal(t, string(errcode.PlanLimitExceeded), handlertest.Checked(t, s.write(s.begin(t, `{}`), "m-4", "four")).Code())
	})
}

// TestWidgetRates: each bound answers rate_limited with retryAfter, and nothing of a refused message is stored.
func TestWidgetRates(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	settings := store.WidgetSettings{Origins: []string{shop}, RequestsPerMinute: 1}
	require.NoError(t, s.db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
	s.Limiter = limit.NewMemory(func() time.Time { return time.Unix(1_800_000_030, 0) })
	token := s.begin(t, `{}`)
	wholeStream(t, s.write(token, "m-1", "one"))
	refused := handlertest.Checked(t, s.write(token, "m-2", "two"))
	require.Equal(t, string(errcode.RateLimited), refused.Code())
	require.EqualValues(t, 30, refused.Fields["retryAfter"])
	require.Len(t, s.seen(t, token), 2)

	settings.RequestsPerMinute = 1000
	require.NoError(t, s.db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
	for range messagesPerMinute - 1 { // refused messages aren't counted
		wholeStream(t, s.write(token, "m-1", "one"))
	}
	require.Equal(t, string(errcode.RateLimited), handlertest.Checked(t, s.write(token, "m-1", "one")).Code())
	fromElsewhere := visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", token, `{"id":"m-1","text":"one"}`)
	fromElsewhere.RemoteAddr = "198.51.100.7:1234"
	wholeStream(t, handlertest.Served(s.Serve, fromElsewhere))

	for range sessionsPerMinute - 1 {
		s.begin(t, `{}`)
	}
	again := visitorRequest(http.MethodPost, "/widget/chn_1/session", shop, "", `{}`)
	require.Equal(t, string(errcode.RateLimited), handlertest.RefusedWith(t, errcode.RateLimited, s.Serve, again).Code())

	for range streamsPerChannel {
		closeStream, err := s.Streams.Open("chn_1", streamsPerChannel)
		require.NoError(t, err)
		defer closeStream()
	}
	fromElsewhere = visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", token, `{"id":"m-9","text":"nine"}`)
	fromElsewhere.RemoteAddr = "198.51.100.7:1234"
	refused = handlertest.RefusedWith(t, errcode.RateLimited, s.Serve, fromElsewhere)
	require.EqualValues(t, 1, refused.Fields["retryAfter"])
	require.Len(t, s.seen(t, token), 2, "what is refused isn't stored")
	require.Equal(t, streamsPerChannel, s.Streams.Count())
	_, err := s.Streams.Open("chn_1", streamsPerChannel)
	require.Error(t, err, "all streams are the channel's: the organization's own are not counted here")
}

// TestWidgetReadRate: one address reads so often, and another is not kept from it.
func TestWidgetReadRate(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.Limiter = limit.NewMemory(func() time.Time { return time.Unix(1_800_000_030, 0) })
	token := s.begin(t, `{}`)
	for range readsPerMinute {
		require.Empty(t, s.seen(t, token))
	}
	again := visitorRequest(http.MethodGet, "/widget/chn_1/messages", "", token, "")
	require.EqualValues(t, 30, handlertest.RefusedWith(t, errcode.RateLimited, s.Serve, again).Fields["retryAfter"])
	again.RemoteAddr = "198.51.100.7:1234"
	require.Equal(t, http.StatusOK, handlertest.Served(s.Serve, again).Code)
}
