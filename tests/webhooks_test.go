package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// receiver is a product that only receives: no worker takes what it queues.
type receiver struct {
	*product
	*business
	lines map[platforms.Type]*line
}

// startReceiver starts a product with one business and one channel of each of these types.
func startReceiver(t *testing.T, engine store.Engine, kinds ...platforms.Type) *receiver {
	t.Helper()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, engine, up).receiving(t, platformfake.Start(t)))
	r := &receiver{product: p, lines: map[platforms.Type]*line{}}
	r.business = p.business(t, 1_000_000, up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) }), nil)
	for _, kind := range kinds {
		r.lines[kind] = r.line(t, kind)
	}
	return r
}

// received are the texts of customers that are stored, as the API shows them.
func (r *receiver) received(t testing.TB, kind platforms.Type) (texts []string) {
	t.Helper()
	for _, c := range r.conversations(t, r.lines[kind]) {
		for _, m := range r.messages(t, c.ID) {
			if m.Author == "customer" && m.Kind == "text" {
				texts = append(texts, m.Text)
			}
		}
	}
	slices.Sort(texts)
	return texts
}

// TestWebhookSignatures guarantees docs/contract.md#signatures for each platform: what it signed is received, and nothing else; a delivery
// that was refused leaves nothing behind.
func TestWebhookSignatures(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		r := startReceiver(t, engine, connected...)
		for _, kind := range connected {
			t.Run(string(kind), func(t *testing.T) {
				customer := r.lines[kind].from(1)
				const text = `Bún chả "Hà Nội" \ 🍜 @ <b>&</b>`
				requireQueued(t, r.deliver(t, customer.says(text)), 1)
				for name, spoil := range spoilers(r.lines[kind]) {
					d := customer.says("refused: " + name)
					spoil(&d)
					e := requireError(t, r.deliver(t, d), "unauthenticated")
					require.Empty(t, e.Field, name)
				}
				require.Equal(t, []string{text}, r.received(t, kind))
			})
		}
	})
}

// spoilers are ways in which a delivery isn't the platform's.
func spoilers(l *line) map[string]func(*delivery) {
	all := map[string]func(*delivery){
		"no signature":    func(d *delivery) { d.Signatures = nil },
		"empty signature": func(d *delivery) { d.Signatures = []string{""} },
		"twice":           func(d *delivery) { d.Signatures = append(d.Signatures, d.Signatures[0]) },
		"twice, the first wrong": func(d *delivery) {
			d.Signatures = []string{flipped(d.Signatures[0]), d.Signatures[0]}
		},
		"one digit off":     func(d *delivery) { d.Signatures[0] = flipped(d.Signatures[0]) },
		"cut":               func(d *delivery) { d.Signatures[0] = d.Signatures[0][:len(d.Signatures[0])-1] },
		"longer":            func(d *delivery) { d.Signatures[0] += "0" },
		"with a Bearer":     func(d *delivery) { d.Signatures[0] = "Bearer " + d.Signatures[0] },
		"in another header": func(d *delivery) { d.Header = "X-Signature" },
	}
	if l.Type == bot.Type {
		all["upper case"] = func(d *delivery) { d.Signatures[0] = strings.ToUpper(d.Signatures[0]) }
		return all
	}
	all["upper case hex"] = func(d *delivery) {
		at := len(d.Signatures[0]) - 64
		d.Signatures[0] = d.Signatures[0][:at] + strings.ToUpper(d.Signatures[0][at:])
	}
	all["truncated body"] = func(d *delivery) { d.Body = d.Body[:len(d.Body)-1] }
	all["another body"] = func(d *delivery) { d.Body = bytes.Replace(d.Body, []byte("refused"), []byte("Refused"), 1) }
	all["a space more"] = func(d *delivery) { d.Body = append(d.Body, ' ') }
	all["the same JSON, written anew"] = func(d *delivery) {
		var anew bytes.Buffer
		if json.Indent(&anew, d.Body, "", " ") == nil {
			d.Body = anew.Bytes()
		}
	}
	switch l.Type {
	case marketa.Type, marketb.Type:
		all["with a prefix"] = func(d *delivery) { d.Signatures[0] = "sha256=" + d.Signatures[0] }
	default:
		all["without its prefix"] = func(d *delivery) { _, d.Signatures[0], _ = strings.Cut(d.Signatures[0], "=") }
		all["with the prefix in capitals"] = func(d *delivery) {
			prefix, digits, _ := strings.Cut(d.Signatures[0], "=")
			d.Signatures[0] = strings.ToUpper(prefix) + "=" + digits
		}
	}
	switch l.Type {
	case marketa.Type:
		all["signed for a slash more"] = func(d *delivery) {
			d.Signatures[0] = hmacHex(marketAPartnerKey, l.baseURL+"/webhooks/market-a/|"+string(d.Body))
		}
		all["signed for another host"] = func(d *delivery) { d.Signatures[0] = signMarketA("https://example.com", d.Body) }
		all["signed as marketplace B"] = func(d *delivery) { d.Signatures[0] = signMarketB(d.Body) }
	case marketb.Type:
		all["with a separator"] = func(d *delivery) {
			d.Signatures[0] = hmacHex(marketBAppSecret, marketBAppKey+"|"+string(d.Body))
		}
	case localchat.Type:
		all["as HMAC"] = func(d *delivery) {
			d.Signatures[0] = "mac=" + hmacHex(localchatAppSecret, localchatAppID+string(d.Body))
		}
	default:
		all["with another key"] = func(d *delivery) {
			d.Signatures[0] = "sha256=" + hmacHex("another secret", string(d.Body))
		}
	}
	return all
}

// flipped changes the last character to another of its kind.
func flipped(signature string) string {
	last := "0"
	if strings.HasSuffix(signature, last) {
		last = "1"
	}
	return signature[:len(signature)-1] + last
}

// TestWebhookSecretsOfOthers guarantees that a bot channel's secret opens no other channel, and that the refusal doesn't show
// which channels exist.
func TestWebhookSecretsOfOthers(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, store.SQLite, bot.Type, marketb.Type)
	mine := r.lines[bot.Type]
	other := r.business.product.business(t, 0, r.Model, nil).line(t, bot.Type)
	d := mine.from(1).says("hello")
	d.Path = webhookPath(bot.Type) + other.ID
	requireError(t, r.deliver(t, d), "unauthenticated")
	for _, path := range []string{"chn_0000000000000000000000000a", "nothing", r.lines[marketb.Type].ID, "%2e%2e", "a%2fb"} {
		d.Path = webhookPath(bot.Type) + path
		a := r.deliver(t, d)
		if a.Status == http.StatusNotFound {
			requireError(t, a, "not_found") // no segment that an id could be
			continue
		}
		requireQueued(t, a, 0)
	}
	require.Empty(t, r.conversations(t, other))
	require.Empty(t, r.received(t, bot.Type))
}

// TestWebhookAcknowledgements guarantees the responses to platforms: events that need no answer are accepted and not queued, one
// delivery may hold messages of several tenants, a repeated delivery is acknowledged and merged, and an unreadable one is refused.
func TestWebhookAcknowledgements(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		r := startReceiver(t, engine, connected...)
		for _, kind := range connected {
			t.Run(string(kind), func(t *testing.T) {
				l := r.lines[kind]
				t.Run("events", func(t *testing.T) {
					for name, body := range uneventful(l) {
						requireQueuedAs(t, name, r.deliver(t, l.sign(body)), 0)
					}
				})
				t.Run("unreadable", func(t *testing.T) {
					code := "invalid_request"
					if kind == localchat.Type {
						code = "unauthenticated" // no timestamp to hash
					}
					for _, body := range []string{"", "{", "not JSON", `{"a":1}{"b":2}`, "\x00"} {
						requireError(t, r.deliver(t, l.sign(body)), code)
					}
				})
				t.Run("of no channel", func(t *testing.T) {
					nobody := *l
					nobody.External += "000"
					if kind != bot.Type {
						requireQueued(t, r.deliver(t, nobody.from(1).says("hello")), 0)
					}
				})
				t.Run("again", func(t *testing.T) {
					again := l.from(2).says("once")
					for range 3 {
						requireQueued(t, r.deliver(t, again), 1)
					}
				})
				t.Run("odd text", func(t *testing.T) {
					d := l.from(3).says("NULMARK and BADMARK")
					nul := `\u0000nul`
					if kind == marketb.Type {
						nul = `\\u0000nul` // its text is JSON in JSON
					}
					odd := strings.ReplaceAll(string(d.Body), "NULMARK", nul)
					requireQueued(t, r.deliver(t, l.sign(strings.ReplaceAll(odd, "BADMARK", "bad \xff\xfe bytes"))), 1)
				})
				require.Len(t, r.received(t, kind), 2, "%q", r.received(t, kind))
				require.Contains(t, r.received(t, kind), "nul and bad \ufffd\ufffd bytes")
			})
		}
	})
}

func requireQueuedAs(t testing.TB, what string, a answer, queued int) {
	t.Helper()
	require.Equal(t, http.StatusOK, a.Status, "%s: %s", what, a.Body)
	require.JSONEq(t, fmt.Sprintf(`{"ok":true,"queued":%d}`, queued), string(a.Body), what)
}

// uneventful are bodies that a platform may send and that need no answer.
func uneventful(l *line) map[string]string {
	bodies := map[string]string{"an empty object": `{}`, "another shape": `{"message":7,"entry":{"a":[]},"data":"x","sender":[1]}`}
	if l.Type == localchat.Type {
		bodies = map[string]string{"another shape": `{"message":7,"sender":[1],"timestamp":"1"}`}
	}
	plain := string(l.from(1).message("99", "never queued").Body)
	change := func(name, old, with string) {
		if !strings.Contains(plain, old) {
			panic(name + ": no " + old + " in " + plain)
		}
		bodies[name] = strings.Replace(plain, old, with, 1)
	}
	switch l.Type {
	case bot.Type:
		bodies["an edit of an unknown message"] = strings.Replace(string(l.from(1).message("98", "never queued").Body), `"message":`, `"edited_message":`, 1)
		change("a channel's post", `"message":`, `"channel_post":`)
		change("another bot", `"is_bot":false`, `"is_bot":true`)
		change("a group", `"type":"private"`, `"type":"group"`)
		change("a sticker", `"text":"never queued"`, `"sticker":{"emoji":"x"}`)
		change("something new", `"message":`, `"hologram":`)
	case social.Messenger, social.PhotoDM:
		change("an echo", `"message":{`, `"message":{"is_echo":true,"app_id":1,`)
		change("a delivery receipt", `"message":`, `"delivery":`)
		change("a read receipt", `"message":`, `"read":`)
		change("a reaction", `"message":`, `"reaction":`)
		change("on standby", `"messaging":`, `"standby":`)
		change("an attachment", `"text":"never queued"`, `"attachments":[{"type":"image","payload":{"url":"https://example.com/x"}}]`)
		change("another object", `"object":"`, `"object":"x`)
	case social.ChatApp:
		change("a reaction", `"type":"text","text":{"body":"never queued"}`, `"type":"reaction","reaction":{"message_id":"x","emoji":""}`)
		change("an image without caption", `"type":"text","text":{"body":"never queued"}`, `"type":"image","image":{"id":"1"}`)
		change("another field", `"field":"messages"`, `"field":"message_template_status_update"`)
		bodies["a status"] = fmt.Sprintf(`{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{`+
			`"messaging_product":"whatsapp","metadata":{"phone_number_id":"%s"},"statuses":[{"id":"wamid.none","status":"delivered",`+
			`"timestamp":"1763650000","recipient_id":"849"}]}}]}]}`, l.External)
		bodies["no metadata"] = `{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{}}]}]}`
	case localchat.Type:
		change("an image", "user_send_text", "user_send_image")
		change("read", "user_send_text", "user_seen_message")
		change("unfollowed", "user_send_text", "unfollow")
		change("something new", "user_send_text", "user_send_hologram")
	case marketa.Type:
		change("another push", `"code":10`, `"code":3`)
		change("an image", `"message_type":"text"`, `"message_type":"image"`)
		change("a notification", `"data":{"type":"message"`, `"data":{"type":"notification"`)
	case marketb.Type:
		change("an order", `"message_type":2`, `"message_type":0`)
		change("the seller", `"from_account_type":1`, `"from_account_type":2`)
		change("an automatic reply", `"auto_reply":false`, `"auto_reply":true`)
		change("withdrawn", `"status":0`, `"status":1`)
	case messaging.Widget:
	}
	return bodies
}

// TestWebhookOfSeveralTenants guarantees that one delivery of the social platform with messages of two organizations and of an
// unknown page brings each to its own channel, and counts what was queued.
func TestWebhookOfSeveralTenants(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, store.SQLite, social.Messenger)
	mine := r.lines[social.Messenger]
	other := r.business.product.business(t, 0, r.Model, nil)
	theirs := other.line(t, social.Messenger)
	var entries []string
	add := func(l *line, text string) {
		body := string(l.from(len(entries)).says(text).Body)
		start, end := strings.Index(body, `"entry":[`)+len(`"entry":[`), strings.LastIndex(body, "]}")
		entries = append(entries, body[start:end])
	}
	const each = 100
	for i := range each {
		add(mine, fmt.Sprintf("to mine %d", i))
		add(theirs, fmt.Sprintf("to theirs %d", i))
	}
	add(&line{Type: social.Messenger, External: "1"}, "to nobody")
	requireQueued(t, r.deliver(t, mine.sign(`{"object":"page","entry":[`+strings.Join(entries, ",")+`]}`)), 2*each)
	count := func(b *business, l *line, prefix string) {
		conversations := b.conversations(t, l)
		require.Len(t, conversations, each)
		by, to := written(b.messages(t, conversations[each/2].ID))
		require.Len(t, by, 1)
		require.Empty(t, to)
		require.True(t, strings.HasPrefix(by[0].Text, prefix), by[0].Text)
		// No organization sees another's: 403, without any detail.
		stranger := r.business
		if b == stranger {
			stranger = other
		}
		path := "/conversations/" + conversations[0].ID
		requireError(t, stranger.ask(t, http.MethodGet, path, nil), "forbidden")
		requireError(t, stranger.ask(t, http.MethodGet, path+"/messages", nil), "forbidden")
		requireError(t, stranger.ask(t, http.MethodDelete, path, nil), "forbidden")
	}
	count(r.business, mine, "to mine")
	count(other, theirs, "to theirs")
}

// TestWebhookSizes guarantees that a body of 8 MiB is verified and read whole, and a larger one refused, never cut.
func TestWebhookSizes(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, store.SQLite, social.Messenger, bot.Type)
	const most = 8 << 20
	for _, kind := range []platforms.Type{social.Messenger, bot.Type} {
		l := r.lines[kind]
		padded := func(size int) delivery {
			body := string(l.from(1).says("large").Body)
			return l.sign(strings.Replace(body, "{", `{"padding":"`+strings.Repeat("x", size-len(body)-len(`"padding":"",`))+`",`, 1))
		}
		exact := padded(most)
		require.Len(t, exact.Body, most)
		requireQueued(t, r.deliver(t, exact), 1)
		requireError(t, r.deliver(t, padded(most+1)), "invalid_request")
		require.Equal(t, []string{"large"}, r.received(t, kind))
	}
}

// TestWebhookPaths guarantees that only the methods and paths of docs/contract.md#webhooks are served.
func TestWebhookPaths(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, store.SQLite, connected...)
	nobody := r.withKey("")
	for _, kind := range connected {
		path := webhookPath(kind)
		if kind == bot.Type {
			path += r.lines[kind].ID
		}
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch} {
			requireError(t, nobody.send(t, method, path, http.NoBody), "not_found")
		}
		if path != "/webhooks/social" {
			requireError(t, nobody.get(t, path), "not_found")
		}
		good := r.lines[kind].from(1).says("hello")
		good.Path = path + "/"
		requireError(t, r.deliver(t, good), "not_found")
	}
	for _, path := range []string{"/webhooks", "/webhooks/", "/webhooks/bot", "/webhooks/bot/", "/webhooks/nothing", "/webhooks/market_a"} {
		requireError(t, nobody.send(t, http.MethodPost, path, strings.NewReader("{}")), "not_found")
	}
}

// TestHandshake guarantees the subscription handshake of docs/contract.md#handshake: the challenge comes back verbatim as plain text
// when the token matches, and 403 otherwise.
func TestHandshake(t *testing.T) {
	t.Parallel()
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)).receiving(t, platformfake.Start(t)))
	shake := func(mode, token, challenge string) answer {
		query := url.Values{"hub.mode": {mode}, "hub.verify_token": {token}, "hub.challenge": {challenge}}
		return p.withKey("").get(t, "/webhooks/social?"+query.Encode())
	}
	for _, challenge := range []string{"1158201444", "00123456789012345678901234567890", `<script>alert(1)</script>`, "ä +&=%"} {
		a := shake("subscribe", socialVerifyToken, challenge)
		require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
		require.Equal(t, challenge, string(a.Body))
		require.Regexp(t, `^text/plain\b`, a.Header.Get("Content-Type"))
		require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
	}
	for _, a := range []answer{
		shake("subscribe", "wrong", "1"), shake("subscribe", "", "1"), shake("subscribe", socialVerifyToken+"x", "1"),
		shake("unsubscribe", socialVerifyToken, "1"), shake("", socialVerifyToken, "1"), shake("Subscribe", socialVerifyToken, "1"),
		p.withKey("").get(t, "/webhooks/social"),
	} {
		requireError(t, a, "forbidden")
	}
}

// TestEmptyAcknowledgement guarantees the option for platforms that want an empty body: `ack empty` says 200 and nothing
// else, and errors stay as they are.
func TestEmptyAcknowledgement(t *testing.T) {
	t.Parallel()
	d := deploy(t, store.SQLite, startUpstream(t)).receiving(t, platformfake.Start(t))
	d.App = strings.Replace(d.App, "platform market_a {", "platform market_a {\nack empty", 1)
	d.App = strings.Replace(d.App, "platform bot {", "platform bot {\nheader X-Other-Token", 1)
	p := startProduct(t, d)
	b := p.business(t, 0, &script{}, nil)
	market, bot := b.line(t, marketa.Type), b.line(t, bot.Type)
	a := p.deliver(t, market.from(1).says("hello"))
	require.Equal(t, http.StatusOK, a.Status)
	require.Empty(t, a.Body)
	refused := market.from(1).says("hello")
	refused.Signatures[0] = flipped(refused.Signatures[0])
	requireError(t, p.deliver(t, refused), "unauthenticated")
	require.Len(t, b.conversations(t, market), 1)

	// Another header's name takes the place of the contract's.
	hello := bot.from(1).says("hello")
	requireError(t, p.deliver(t, hello), "unauthenticated")
	hello.Header = "X-Other-Token"
	requireQueued(t, p.deliver(t, hello), 1)
}
