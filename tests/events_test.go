package tests

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// toldEvent is an event as a receiver got it.
type toldEvent struct {
	ID, Type string
	Data     map[string]string

	header http.Header
	body   []byte
}

// listener is a business's own system that is told of events.
type listener struct {
	*httptest.Server

	mu  sync.Mutex
	got []toldEvent
	// hold keeps the first request until it is closed; nil holds none.
	hold chan struct{}
}

// listen starts a listener; held keeps its first request from being answered.
func listen(t *testing.T, held bool) *listener {
	t.Helper()
	l := &listener{}
	if held {
		l.hold = make(chan struct{})
	}
	l.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		one := toldEvent{ID: r.Header.Get("webhook-id"), header: r.Header.Clone(), body: body}
		if json.Unmarshal(body, &one) != nil {
			return
		}
		one.ID = r.Header.Get("webhook-id")
		l.mu.Lock()
		l.got = append(l.got, one)
		first := len(l.got) == 1
		l.mu.Unlock()
		if first && l.hold != nil {
			select {
			case <-l.hold:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listener) all() []toldEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]toldEvent(nil), l.got...)
}

// TestEvents guarantees that a business's own system is told of what people should know, signed as docs/events.md says.
func TestEvents(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := prepareConnectedWith(t, engine, func(d *deployment) { d.App += "event_endpoints any\n"; d.Whole = true })
		c.worker = c.startWorker()
		b := c.business(t, 100_000, c.up.script(replying), nil)
		system := listen(t, false)
		made := b.post(t, "/event-endpoints", map[string]any{"url": system.URL}, http.StatusCreated)
		secret := made["secret"].(string)
		b.post(t, "/event-endpoints/"+made["id"].(string)+"/test", nil, http.StatusCreated)
		c.await("the test", patience, func() bool { return len(system.all()) == 1 })
		require.Equal(t, "endpoint.test", system.all()[0].Type)

		l := b.lineTo(t, social.Messenger, "")
		requireQueued(t, c.deliver(t, l.from(1).says("a secret word")), 1)
		c.await("the attention", patience, func() bool { return len(system.all()) == 2 })
		conversation := b.conversation(t, l).ID
		require.Equal(t, "conversation.attention", system.all()[1].Type)
		require.Equal(t, map[string]string{"conversationId": conversation, "channelId": l.ID, "code": "no_agent"}, system.all()[1].Data)
		b.post(t, "/conversations/"+conversation+"/handover", nil, http.StatusOK)
		c.await("the handover", patience, func() bool { return len(system.all()) == 3 })
		require.Equal(t, map[string]string{"conversationId": conversation, "channelId": l.ID, "reason": "person"}, system.all()[2].Data)
		waiting := b.call(t, http.MethodGet, "/conversations?waiting=true", nil, http.StatusOK)["data"].([]any)
		require.Len(t, waiting, 1)
		require.Equal(t, "person", waiting[0].(map[string]any)["handoverReason"])
		require.NotNil(t, waiting[0].(map[string]any)["unansweredSince"])
		for _, one := range system.all() {
			require.True(t, verify(secret, one.header, one.body))
			require.False(t, verify(secret, one.header, append(one.body, ' ')))
			require.NotContains(t, string(one.body), "a secret word")
			requireVerifiedByNode(t, secret, one)
		}
		c.svc(t, "doctor")
	})
}

// TestEventsOutliveWorkers guarantees that an event whose delivery was under way when its worker was killed is delivered by the next
// worker, under the same webhook-id.
func TestEventsOutliveWorkers(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := prepareConnectedWith(t, engine, func(d *deployment) { d.App += "event_endpoints any\n"; d.Whole, d.Lease = true, "2s" })
		c.worker = c.startWorker()
		b := c.business(t, 100_000, c.up.script(replying), nil)
		system := listen(t, true)
		made := b.post(t, "/event-endpoints", map[string]any{"url": system.URL}, http.StatusCreated)
		sent := b.post(t, "/event-endpoints/"+made["id"].(string)+"/test", nil, http.StatusCreated)
		c.await("the first try", patience, func() bool { return len(system.all()) == 1 })
		c.worker.kill()
		close(system.hold)
		log := "/event-endpoints/" + made["id"].(string) + "/deliveries"
		state := func() map[string]any {
			return b.call(t, http.MethodGet, log, nil, http.StatusOK)["data"].([]any)[0].(map[string]any)
		}
		require.Equal(t, "pending", state()["state"])
		c.worker = c.startWorker()
		c.await("the second try", 2*patience, func() bool { return state()["state"] == "delivered" })
		all := system.all()
		require.Len(t, all, 2)
		require.Equal(t, sent["eventId"], all[0].ID)
		require.Equal(t, all[0].ID, all[1].ID)
		require.Equal(t, all[0].body, all[1].body)
		require.EqualValues(t, 2, state()["attempts"])
	})
}

const eventsPage = "../docs/events.md"

func verify(secret string, header http.Header, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	at, err := strconv.ParseInt(header.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", header.Get("webhook-id"), at, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for signature := range strings.FieldsSeq(header.Get("webhook-signature")) {
		if hmac.Equal([]byte(signature), []byte(want)) {
			return true
		}
	}
	return false
}

// TestVerifierIsThatOfThePage: the function by which these tests verify signatures is the one that docs/events.md shows.
func TestVerifierIsThatOfThePage(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("events_test.go")
	require.NoError(t, err)
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "events_test.go", source, 0)
	require.NoError(t, err)
	for _, declared := range file.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok && function.Name.Name == "verify" {
			text := source[files.Position(function.Pos()).Offset:files.Position(function.End()).Offset]
			require.Equal(t, string(text)+"\n", eventsBlock(t, "go"))
			return
		}
	}
	t.Fatal("there is no verify")
}

// eventsBlock is the page's block of a language.
func eventsBlock(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile(eventsPage)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```"+language+"\n")
	require.True(t, found)
	block, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	return block
}

// requireVerifiedByNode verifies an event by the page's JavaScript.
func requireVerifiedByNode(t *testing.T, secret string, one toldEvent) {
	t.Helper()
	headers := map[string]string{}
	for name := range one.header {
		headers[strings.ToLower(name)] = one.header.Get(name)
	}
	given, err := json.Marshal([]any{secret, headers, string(one.body)})
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "verify.cjs")
	require.NoError(t, os.WriteFile(script, []byte(eventsBlock(t, "js")+`
const [secret, headers, body] = `+string(given)+`;
console.log(verify(secret, headers, body), verify(secret, headers, body + " "), verify("whsec_AAAA", headers, body) ? 1 : 0);
`), 0o600))
	printed, err := exec.CommandContext(t.Context(), "node", script).CombinedOutput()
	require.NoError(t, err, "%s", printed)
	require.Equal(t, "true false 0\n", string(printed))
}
