package webhook

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/tracing"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
)

func TestBotRouting(t *testing.T) {
	t.Parallel()
	g, bot := newGate(t), everyPlatform()[0]
	to := func(channelID, secret string) *http.Request {
		return delivery("/webhooks/bot/"+channelID, bot.header, secret, bot.text)
	}
	acknowledged(t, g.Bot, to("chn_bot2", "secret-2"), 1)
	handlertest.RefusedWith(t, errcode.Unauthenticated, g.Bot, to("chn_bot2", "secret-1"))
	acknowledged(t, g.Bot, to("chn_botpending", "secret-3"), 0)
	handlertest.RefusedWith(t, errcode.Unauthenticated, g.Bot, to("chn_botpending", "secret-1"))
	reads := g.routes.reads
	for _, unknown := range []string{"chn_nobody", "chn_page1", "%00", "CHN_BOT1", strings.Repeat("a", 100), "..%2Fsocial"} {
		if strings.Contains(unknown, "%2F") {
			handlertest.RefusedWith(t, errcode.NotFound, g.Bot, to(unknown, ""))
			continue
		}
		acknowledged(t, g.Bot, to(unknown, "secret-1"), 0)
	}
	require.Equal(t, reads+2, g.routes.reads, "what can't be an id is not looked for")
	require.Equal(t, 1, g.enqueues)

	broken := g.routes.byID["chn_bot2"]
	broken.OrgID = "org_2" // sealed for another organization
	g.routes.byID["chn_bot2"] = broken
	a := handlertest.RefusedWith(t, errcode.InternalError, g.Bot, to("chn_bot2", "secret-2"))
	require.NotEmpty(t, a.Header.Get("Retry-After"))
}

// One delivery may contain messages of several tenants: each entry, and each change, is routed on its own.
func TestSocialDeliveryOfSeveralTenants(t *testing.T) {
	t.Parallel()
	g, social := newGate(t), everyPlatform()[1]
	body := `{"object":"page","entry":[` + strings.Join([]string{
		pageEntry("1001", "m1", "a"), pageEntry("9999", "m2", "nobody's"), pageEntry("1002", "m3", "b"), pageEntry("1003", "m4", "pending"),
		pageEntry("1001", "m5", "c"), pageEntry("1001", "m1", "a"),
	}, ",") + `]}`
	acknowledged(t, g.Social, social.signed(body), 4)
	require.Equal(t, 1, g.routes.reads)
	require.Equal(t, 1, g.enqueues)
	require.Len(t, g.arrivals, 2)
	require.Equal(t, "chn_page1", g.arrivals[0].Route.ChannelID)
	require.Equal(t, []string{"m1", "m5", "m1"}, []string{g.arrivals[0].Items[0].MessageID, g.arrivals[0].Items[1].MessageID, g.arrivals[0].Items[2].MessageID})
	require.Equal(t, "org_2", g.arrivals[1].Route.OrgID)

	chat := func(number, id string) string {
		return `{"field":"messages","value":{"metadata":{"phone_number_id":"` + number + `"},"messages":[{"from":"8490","id":"` + id +
			`","timestamp":"1763650000","type":"text","text":{"body":"hi"}}]}}`
	}
	g.arrivals = nil
	acknowledged(t, g.Social, social.signed(`{"object":"whatsapp_business_account","entry":[{"id":"1555","changes":[`+
		chat("9", "w1")+`,`+chat("1555", "w2")+`]}]}`), 1)
	require.Equal(t, "chn_chat", g.arrivals[0].Route.ChannelID)
	require.Equal(t, "w2", g.arrivals[0].Items[0].MessageID)
	acknowledged(t, g.Social, social.signed(strings.Replace(pageEvent("1001", "i1", "hi"), `"page"`, `"instagram"`, 1)), 1)
	require.Equal(t, "chn_photo", g.arrivals[1].Route.ChannelID)
}

func TestSocialObjectsCanBeRenamed(t *testing.T) {
	t.Parallel()
	g, social := newGate(t), everyPlatform()[1]
	g.options["social"]["object[page]"] = "site"
	g.configure(t)
	acknowledged(t, g.Social, social.signed(social.text), 0)
	acknowledged(t, g.Social, social.signed(strings.Replace(social.text, `"page"`, `"site"`, 1)), 1)
}

// A thousand messages are one read and one write.
func TestSocialBatchOfAThousand(t *testing.T) {
	t.Parallel()
	g, social := newGate(t), everyPlatform()[1]
	entries := make([]string, 1000)
	for i := range entries {
		entries[i] = pageEntry("100"+strconv.Itoa(1+i%2), "m"+strconv.Itoa(i), "hi")
	}
	acknowledged(t, g.Social, social.signed(`{"object":"page","entry":[`+strings.Join(entries, ",")+`]}`), 1000)
	require.Equal(t, 1, g.routes.reads)
	require.Equal(t, 1, g.enqueues)
}

// Events other than texts are queued, too, where the queue needs them, and aren't counted.
func TestDeliveryOfOtherKinds(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	kinds := []platforms.Kind{
		platforms.Media, platforms.Event, platforms.HumanEcho, platforms.UnmarkedEcho, platforms.AutomaticEcho, platforms.FailedDelivery,
		platforms.Blocked, platforms.AccessRefused, platforms.Edited,
	}
	at := time.UnixMilli(1763650000123)
	for _, kind := range kinds {
		items := []platforms.Inbound{{
			Type: marketa.Type, ExternalID: "94704", Kind: kind, Conversation: "c", Address: "a", MessageID: "m", CustomerName: "n", Text: "image",
			Other: &platforms.OtherIDs{Mark: "msg_1.0"}, Failure: platforms.NeedsReauth, SentAt: at,
		}}
		g.arrivals = nil
		queued, err := g.route(t.Context(), items)
		require.NoError(t, err)
		require.Zero(t, queued)
		require.Equal(t, []inbox.Item{{
			Kind: kind, CustomerRef: "c", Address: "a", CustomerName: "n", MessageID: "m", Other: &platforms.OtherIDs{Mark: "msg_1.0"}, Text: "image",
			Code: "channel_needs_reauth", SentAt: at.UnixMilli(),
		}}, g.arrivals[0].Items)
	}
	g.arrivals = nil
	_, err := g.route(t.Context(), []platforms.Inbound{{
		Type: marketa.Type, ExternalID: "94704", Kind: platforms.HumanEcho, Wordless: true, Conversation: "c", MessageID: "m", Text: "image",
		Other: &platforms.OtherIDs{Alias: "x", Business: "y"},
	}})
	require.NoError(t, err)
	require.Equal(t, []inbox.Item{{Kind: platforms.HumanEcho, CustomerRef: "c", MessageID: "m", Media: "image", Other: &platforms.OtherIDs{Alias: "x", Business: "y"}}}, g.arrivals[0].Items)
	enqueues := g.enqueues
	for _, kind := range []platforms.Kind{platforms.TokenExpiring, 0, 99} {
		queued, err := g.route(t.Context(), []platforms.Inbound{{Type: marketa.Type, ExternalID: "94704", Kind: kind}})
		require.NoError(t, err)
		require.Zero(t, queued)
	}
	require.Equal(t, enqueues, g.enqueues)
	require.Contains(t, g.logged.String(), `"channel":"chn_ma"`)
}

// The address that marketplace A signs is the configured one.
func TestMarketASignsTheConfiguredAddress(t *testing.T) {
	t.Parallel()
	g, market := newGate(t), everyPlatform()[3]
	for _, address := range []string{"https://evil.example/webhooks/market-a", testBaseURL + "/webhooks/market-a/", "http://svc.example/webhooks/market-a"} {
		r := delivery(market.path, market.header, hmacHex(testPartnerKey, address, "|", market.text), market.text)
		r.Host = "evil.example"
		r.Header.Set("X-Forwarded-Host", "evil.example")
		handlertest.RefusedWith(t, errcode.Unauthenticated, g.MarketA, r)
	}
	r := market.signed(market.text)
	r.Host = "internal:8080"
	acknowledged(t, g.MarketA, r, 1)
}

// The handshake returns the challenge to the right verify token only.
func TestSocialHandshake(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	ask := func(query string) *http.Request { return handlertest.Get("/webhooks/social?" + query) }
	for _, challenge := range []string{"0012345678901234567890", "<script>alert(1)</script>", "é {}", ""} {
		w := handlertest.Served(g.Social, ask("hub.mode=subscribe&hub.verify_token=hook-token&hub.challenge="+url.QueryEscape(challenge)))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, challenge, w.Body.String())
		require.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		require.NotEmpty(t, w.Header().Get("X-Request-Id"))
	}
	for _, query := range []string{
		"", "hub.mode=subscribe&hub.challenge=1", "hub.mode=subscribe&hub.verify_token=other&hub.challenge=1",
		"hub.mode=unsubscribe&hub.verify_token=hook-token&hub.challenge=1", "hub.verify_token=hook-token&hub.challenge=1",
		"hub.mode=subscribe&hub.verify_token=&hub.challenge=1",
	} {
		handlertest.RefusedWith(t, errcode.Forbidden, g.Social, ask(query))
	}
	delete(g.options["social"], "verify_token")
	g.configure(t)
	handlertest.RefusedWith(t, errcode.Forbidden, g.Social, ask("hub.mode=subscribe&hub.verify_token=&hub.challenge=1"))
	require.Zero(t, g.routes.reads)
}

// TestDeliveriesLinkToTheirAnswers: a recorded request links to the answer of each text that was stored, and to nothing else.
func TestDeliveriesLinkToTheirAnswers(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	recorder := tracetest.NewSpanRecorder()
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	deliver := func(body string) {
		ctx, span := traces.Tracer("test").Start(t.Context(), "request")
		defer span.End()
		acknowledged(t, g.Social, delivery("/webhooks/social", "X-Hub-Signature-256", "sha256="+hmacHex(testAppSecret, body), body).WithContext(ctx), 1)
	}
	deliver(`{"object":"page","entry":[` + pageEntry("1001", "m1", "one") + `,` + pageEntry("999", "m2", "of nobody") + `]}`)
	links := recorder.Ended()[0].Links()
	require.Len(t, links, 1)
	require.True(t, links[0].SpanContext.Equal(tracing.Answer("chn_page1", "m1")))
}
