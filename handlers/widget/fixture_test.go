package widget

import (
	"context"
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

// speaker is a provider whose answers a test writes, piece by piece.
type speaker struct {
	// speak returns the pieces of the nth call, from 1; nil answers every call with a greeting.
	speak func(ctx context.Context, n int) ([]string, error)
	// next is received from before each piece, so that a test can delay the answer; nil delays nothing.
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

// site is a web widget with its store, queue and worker: the organization org_1 with credits and the agent agt_1, its widget
// chn_1 for the origins shop, https://*.example.com and http://localhost:8080, and org_2's widget chn_2.
type site struct {
	*Widget

	db      *store.DB
	queue   *inbox.Queue
	book    *billing.Book
	speaker *speaker
	worker  *worker.Worker
	ahead   atomic.Int64 // nanoseconds that the widget's clock is ahead of the store's
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

var siteKinds = []store.Kind{inbox.Kind, billing.Ledger}

func newSite(t *testing.T, db *store.DB) *site {
	t.Helper()
	ctx := t.Context()
	s := &site{db: db, queue: inbox.New(db, handlertest.Ring(t)), book: billing.NewBook(db), speaker: &speaker{}}
	// The widget's clock begins at the last noon, so that no day of spending ends while a test runs. What the store writes
	// meanwhile is of that day or later.
	now := time.Now()
	noon := now.UTC().Add(-12 * time.Hour).Truncate(24 * time.Hour).Add(12 * time.Hour)
	s.ahead.Store(int64(noon.Sub(now)))
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

// openSite returns a site on a fresh SQLite database.
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

// seen returns the lines that a visitor sees, as "author: text".
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

// wholeStream checks a whole stream chunk by chunk and returns its text.
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

// spent returns what org_1 has paid, after checking the books.
func (s *site) spent(t *testing.T) int64 {
	t.Helper()
	report, err := billing.Check(t.Context(), s.db)
	require.NoError(t, err)
	require.True(t, report.OK(), "%v", report)
	findings, err := inbox.CheckSince(t.Context(), s.db, 0)
	require.NoError(t, err)
	require.Empty(t, findings)
	wallet, err := s.book.Wallet(t.Context(), billing.WalletID{OrgID: "org_1", Env: store.Live})
	require.NoError(t, err)
	require.Zero(t, wallet.HeldMicros)
	return 1_000_000 - wallet.BalanceMicros
}

// conversation returns the only conversation of chn_1.
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
