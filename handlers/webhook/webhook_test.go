package webhook

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func TestWebhookKeepsATextAndAcknowledgesIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		acknowledged(t, p.serve(g), p.signed(p.text), 1)
		require.Len(t, g.arrivals, 1)
		require.Equal(t, g.routes.byID[p.want.Route.ChannelID], g.arrivals[0].Route)
		require.Equal(t, p.want.Items, g.arrivals[0].Items)
		require.Equal(t, 1, g.routes.reads)
		acknowledged(t, p.serve(g), p.signed(p.text), 1) // The queue merges, not the handler (rule 5).
		require.Equal(t, 2, g.enqueues)
		require.Zero(t, g.bodies.Used())
	})
}

// Every invalid signature is 401. One that is missing or malformed costs no read; for another one the secrets of the channels that the
// delivery names are read, once at most.
func TestWebhookWrongSignatures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		good := p.sign(p.text)
		for name, signature := range map[string]string{
			"empty": "", "upper case": strings.ToUpper(good), "truncated": good[:len(good)-1], "longer": good + "0", "other": p.sign(p.text+" ") + "x",
			"bearer": "Bearer " + good, "space": " " + good + " x",
		} {
			a := handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), delivery(p.path, p.header, signature, p.text))
			require.NotContains(t, a.Fields, "field", name)
		}
		missing := p.signed(p.text)
		missing.Header.Del(p.header)
		handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), missing)
		doubled := p.signed(p.text)
		doubled.Header.Add(p.header, good)
		handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), doubled)
		malformed := delivery(p.path, p.header, "wrong", "{")
		handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), malformed)
		if p.name != "bot" {
			require.Zero(t, g.routes.reads)
			bodies := []string{p.text + " ", strings.Replace(p.text, "Chào", `Ch\u00e0o`, 1), p.text[:len(p.text)-1]}
			for _, body := range bodies {
				handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), delivery(p.path, p.header, good, body))
			}
			require.LessOrEqual(t, g.routes.reads, len(bodies))
			if p.name == "market_b" {
				require.Zero(t, g.routes.reads, "its channels have no secret")
			}
		}
		require.Zero(t, g.enqueues)
	})
}

// A delivery of a platform that isn't configured is refused, however it is signed.
func TestWebhookWithoutSecrets(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		g.options = nil
		g.configure(t)
		path := strings.Replace(p.path, "chn_bot1", "chn_botempty", 1)
		for _, signature := range []string{
			"", "sha256=" + hmacHex("", p.text), hmacHex("", p.text), hmacHex("", testBaseURL+"/webhooks/market-a|"+p.text), "mac=" + hmacHex("", p.text),
		} {
			handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), delivery(path, p.header, signature, p.text))
		}
		require.Zero(t, g.enqueues)
	})
	g := newGate(t)
	handlertest.RefusedWith(t, errcode.Unauthenticated, g.Bot, delivery("/webhooks/bot/chn_botbare", "X-Bot-Api-Secret-Token", "", "{}"))
}

func TestWebhookHeaderNamesCanBeChanged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		const other = "X-Other-Signature"
		for _, options := range g.options {
			options["header"] = other
		}
		g.configure(t)
		handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), p.signed(p.text))
		acknowledged(t, p.serve(g), delivery(p.path, other, p.sign(p.text), p.text), 1)
	})
}

func TestWebhookMalformedBodies(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		code := errcode.InvalidRequest
		if p.name == "localchat" {
			code = errcode.Unauthenticated // There is no timestamp to hash.
		}
		for _, body := range []string{"", "{", `{"object":"page",`, "x"} {
			handlertest.RefusedWith(t, code, p.serve(g), p.signed(body))
		}
		shape := `{"timestamp":"1","object":7,"message":[],"entry":{},"data":"x"}`
		acknowledged(t, p.serve(g), p.signed(shape), 0)
		acknowledged(t, p.serve(g), p.signed(`{"timestamp":"1"}`), 0)
		require.Zero(t, g.enqueues)
	})
}

func TestWebhookWithoutAChannel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		delete(g.routes.byID, p.want.Route.ChannelID)
		acknowledged(t, p.serve(g), p.signed(p.text), 0)
		require.Zero(t, g.enqueues)
	})
}

func TestWebhookOfAPendingChannel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		for state, queued := range map[string]int{store.ChannelPending: 0, store.ChannelNeedsReauth: 1, store.ChannelActive: 1} {
			route := g.routes.byID[p.want.Route.ChannelID]
			route.State = state
			g.routes.byID[p.want.Route.ChannelID] = route
			g.enqueues = 0
			acknowledged(t, p.serve(g), p.signed(p.text), queued)
			require.Equal(t, queued, g.enqueues)
		}
	})
}

// No delivery is acknowledged before it is in the queue.
func TestWebhookWithoutItsStore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		g.fail = errors.New("disk I/O error")
		a := handlertest.RefusedWith(t, errcode.InternalError, p.serve(g), p.signed(p.text))
		require.Equal(t, "5", a.Header.Get("Retry-After"))
		require.NotContains(t, a.Text, "disk")
		g.fail, g.routes.fail = nil, errors.New("disk I/O error")
		clear(g.routes.remembered)
		require.Equal(t, "5", handlertest.RefusedWith(t, errcode.InternalError, p.serve(g), p.signed(p.text)).Header.Get("Retry-After"))
		g.routes.fail = nil
		acknowledged(t, p.serve(g), p.signed(p.text), 1)
		g.bodies.SetLimit(10, handlers.DefaultPace)
		large := p.signed(p.text + strings.Repeat(" ", handlers.PromptDelivery))
		require.NotEmpty(t, handlertest.RefusedWith(t, errcode.InternalError, p.serve(g), large).Header.Get("Retry-After"))
	})
}

func TestWebhookEmptyAcknowledgement(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		g.config.AckEmpty = map[string]bool{p.name: true}
		w := handlertest.Served(p.serve(g), p.signed(p.text))
		require.Equal(t, http.StatusOK, w.Code)
		require.Empty(t, w.Body.String())
		require.Equal(t, "0", w.Header().Get("Content-Length"))
		require.Equal(t, 1, g.enqueues)
		handlertest.RefusedWith(t, errcode.Unauthenticated, p.serve(g), delivery(p.path, p.header, "", p.text))
	})
}

func TestWebhookOtherAddresses(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		for _, path := range []string{p.path + "/", p.path + "/x", "/webhooks", "/webhooks/bot", "/webhooks/bot/", "/webhooks/other", strings.ToUpper(p.path)} {
			handlertest.RefusedWith(t, errcode.NotFound, p.serve(g), delivery(path, p.header, p.sign(p.text), p.text))
		}
		for _, method := range []string{http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			r := p.signed(p.text)
			r.Method = method
			handlertest.RefusedWith(t, errcode.NotFound, p.serve(g), r)
		}
		if p.name != "social" {
			r := p.signed(p.text)
			r.Method = http.MethodGet
			handlertest.RefusedWith(t, errcode.NotFound, p.serve(g), r)
		}
		require.Zero(t, g.enqueues)
	})
}

// 8 MiB are read whole, a byte more is refused.
func TestWebhookBodyLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		body := p.text[:len(p.text)-1] + strings.Repeat(" ", MaxBody-len(p.text)) + "}"
		require.Len(t, body, MaxBody)
		acknowledged(t, p.serve(g), p.signed(body), 1)
		handlertest.RefusedWith(t, errcode.InvalidRequest, p.serve(g), p.signed(body+" "))
		r := p.signed(p.text)
		r.Header.Set("Content-Encoding", "gzip")
		handlertest.RefusedWith(t, errcode.InvalidRequest, p.serve(g), r)
		require.Zero(t, g.bodies.Used())
	})
}

// No secret and no text of a customer reaches the log.
func TestWebhookLogsNothingPrivate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		g.fail = errors.New("full")
		handlertest.Served(p.serve(g), p.signed(p.text))
		handlertest.Served(p.serve(g), delivery(p.path, p.header, "wrong", p.text))
		for _, private := range []string{"Chào", testAppSecret, testPartnerKey, "secret-1"} {
			require.NotContains(t, g.logged.String(), private)
		}
	})
}

func TestWebhooksAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		queue := &countingQueue{}
		g.queue = queue
		g.Webhooks.routes = frozenRoutes(g.routes.byID)
		var wait sync.WaitGroup
		for range 32 {
			wait.Go(func() {
				w := handlertest.Served(p.serve(g), p.signed(p.text))
				if w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		wait.Wait()
		require.Equal(t, 32, queue.items)
	})
}

// Any stranger can begin a delivery. One that doesn't end returns its part of the shared budget.
func TestWebhookThatNeverEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		g.bodyTime = 20 * time.Millisecond
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := p.serve(g)(w, r); err != nil {
				handlers.WriteError(w, r, err, "")
			}
		}))
		defer server.Close()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		_, err = io.WriteString(conn, "POST "+p.path+" HTTP/1.1\r\nHost: x\r\n"+p.header+": "+p.sign(p.text)+"\r\nContent-Length: 100\r\n\r\n{")
		require.NoError(t, err)
		text, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Contains(t, string(text), `"code":"invalid_request"`)
		require.Zero(t, g.bodies.Used())
	})
}

// bodyAfter fails the test when it is read before the channel was looked up.
type bodyAfter struct {
	t     *testing.T
	reads *int
	io.Reader
}

func (b bodyAfter) Read(into []byte) (int, error) {
	require.Positive(b.t, *b.reads, "the body was read before the channel was looked up")
	return b.Reader.Read(into)
}

// A bot's secret doesn't depend on the body, so the body of a stranger isn't read into memory.
func TestBotDeliveryIsAdmittedBeforeItsBody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, secret string
		status       int
	}{
		"unknown channel": {"/webhooks/bot/chn_unknown", "x", http.StatusOK},
		"no bot":          {"/webhooks/bot/chn_local", "x", http.StatusOK},
		"wrong secret":    {"/webhooks/bot/chn_bot1", "x", http.StatusUnauthorized},
		"no credentials":  {"/webhooks/bot/chn_botbare", "", http.StatusUnauthorized},
	} {
		g := newGate(t)
		g.bodies.SetLimit(0, handlers.DefaultPace) // no body fits
		body := strings.NewReader(strings.Repeat(" ", 1<<20))
		r := delivery(c.path, "X-Bot-Api-Secret-Token", c.secret, "")
		r.Body, r.ContentLength = io.NopCloser(bodyAfter{t, &g.routes.reads, body}), 1<<20
		require.Equal(t, c.status, handlertest.Served(g.Bot, r).Code, name)
		require.Zero(t, body.Len(), "%s: the rest is read, so that the client sees the answer", name)
	}
	g := newGate(t)
	g.bodies.SetLimit(0, handlers.DefaultPace)
	r := delivery("/webhooks/bot/chn_bot1", "X-Bot-Api-Secret-Token", "secret-1", "{}")
	require.Equal(t, http.StatusInternalServerError, handlertest.Served(g.Bot, r).Code, "only an admitted body needs room")
}

// A delivery that finds no slot for decoding is refused, and comes again.
func TestDeliveriesAreDecodedInTurn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, _ *gate) {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t)
			handlertest.FillSlots(t, g.bodies)
			a := handlertest.RefusedWith(t, errcode.InternalError, p.serve(g), handlertest.Impatient(t, p.signed(p.text)))
			require.NotEmpty(t, a.Header.Get("Retry-After"))
			require.Zero(t, g.enqueues)
		})
	})
}

// Once a delivery has arrived, the queue's time doesn't count against its connection.
func TestWebhookDeadlineEndsWithTheBody(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		w := &handlertest.Deadlines{ResponseWriter: httptest.NewRecorder()}
		require.NoError(t, p.serve(g)(w, p.signed(p.text)))
		require.Len(t, w.Read, 2)
		require.False(t, w.Read[0].IsZero())
		require.True(t, w.Read[1].IsZero())
	})
}

// TestBusyStore guarantees that the answer of a store with too many writes says when to come back.
func TestBusyStore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p platform, g *gate) {
		g.fail = handlertest.ErrBusy
		a := handlertest.RefusedWith(t, errcode.InternalError, p.serve(g), p.signed(p.text))
		handlertest.RequireBusy(t, a)
	})
}
