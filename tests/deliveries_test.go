package tests

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// What a platform and this service know of each other: the secrets of every deployment's platform blocks.
const (
	socialAppSecret    = "social-app-secret-5a0c1f"
	socialVerifyToken  = "social-verify-token-77be02"
	localchatAppID     = platformfake.LocalChatAppID
	localchatAppSecret = platformfake.LocalChatAppSecret
	marketAPartnerID   = platformfake.MarketAPartnerID
	marketAPartnerKey  = platformfake.MarketAPartnerKey
	marketBAppKey      = platformfake.MarketBAppKey
	marketBAppSecret   = platformfake.MarketBAppSecret
)

// The signature headers of docs/contract.md#signatures.
const (
	botHeader       = "X-Bot-Api-Secret-Token"
	socialHeader    = "X-Hub-Signature-256"
	localchatHeader = "X-Localchat-Event-Signature"
	marketHeader    = "Authorization"
)

// delivery is a request that a platform makes.
type delivery struct {
	Path, Header string
	// Signatures are the values of the header, usually one.
	Signatures []string
	Body       []byte
}

// deliver sends a delivery.
func (p *product) deliver(t testing.TB, d delivery) answer {
	t.Helper()
	a, err := p.tryDeliver(d)
	require.NoError(t, err)
	require.NoError(t, a.Broken)
	return a
}

// tryDeliver is deliver for any goroutine.
func (p *product) tryDeliver(d delivery) (answer, error) {
	return p.tryDeliverTo(p.BaseURL, d)
}

func (p *product) tryDeliverTo(base string, d delivery) (answer, error) {
	r, err := http.NewRequest(http.MethodPost, base+d.Path, bytes.NewReader(d.Body)) //nolint:noctx // the client is local
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	for _, signature := range d.Signatures {
		r.Header.Add(d.Header, signature)
	}
	response, err := p.clear.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := readAll(response)
	return asDescribed(r, answer{Status: response.StatusCode, Header: response.Header, Body: text, Broken: err})
}

// requireQueued requires the acknowledgement of docs/contract.md#acknowledgement, with exactly its members.
func requireQueued(t testing.TB, a answer, queued int) {
	t.Helper()
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.JSONEq(t, fmt.Sprintf(`{"ok":true,"queued":%d}`, queued), string(a.Body))
}

// accepted says whether an answer is that of one message, for goroutines.
func (a answer) accepted() bool { return a.acknowledges(1) }

// acknowledges says whether an answer is that of so many messages.
func (a answer) acknowledges(queued int) bool {
	var body struct {
		OK     bool
		Queued int
	}
	return a.Status == http.StatusOK && json.Unmarshal(a.Body, &body) == nil && body.OK && body.Queued == queued
}

// The five signatures, written from docs/contract.md#signatures and not from package verify.

func signSocial(body []byte) string {
	return "sha256=" + hmacHex(socialAppSecret, string(body))
}

func signLocalchat(body []byte, timestamp string) string {
	sum := sha256.Sum256([]byte(localchatAppID + string(body) + timestamp + localchatAppSecret))
	return "mac=" + hex.EncodeToString(sum[:])
}

func signMarketA(baseURL string, body []byte) string {
	return hmacHex(marketAPartnerKey, baseURL+"/webhooks/market-a|"+string(body))
}

func signMarketB(body []byte) string {
	return hmacHex(marketBAppSecret, marketBAppKey+string(body))
}

func hmacHex(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// sender is a customer of a line, with the platform's names for the customer.
type sender struct {
	*line
	// Customer names the customer; for the bot platform the chat, for marketplaces the conversation.
	Customer string
}

var deliveryIDs atomic.Int64

// freshID is a message id that no other delivery has. The numbers suit every platform.
func freshID() string { return strconv.FormatInt(1_000_000+deliveryIDs.Add(1), 10) }

// says is the delivery of a text with a fresh message id.
func (s sender) says(text string) delivery { return s.message(freshID(), text) }

// message is the delivery of a text under a message id, as the platform sends it.
func (s sender) message(id, text string) delivery {
	return s.sign(fmt.Sprintf(messageBodies[s.Type], encodedArguments(s, id, text)...))
}

// messageBodies are what a text of a customer looks like on each platform. Their arguments: customer, external id, message
// id, text in JSON, the time in milliseconds and in seconds, and the text as marketplace B wraps it.
var messageBodies = map[platforms.Type]string{
	bot.Type: `{"update_id":10001,"message":{"message_id":%[3]s,"from":{"id":%[1]s,"is_bot":false,"first_name":"Lan","language_code":"vi"},` +
		`"chat":{"id":%[1]s,"type":"private","first_name":"Lan"},"date":%[6]d,"text":%[4]s}}`,
	social.Messenger: `{"object":"page","entry":[{"id":"%[2]s","time":%[5]d,"messaging":[{"sender":{"id":"%[1]s"},` +
		`"recipient":{"id":"%[2]s"},"timestamp":%[5]d,"message":{"mid":"m_%[3]s","text":%[4]s}}]}]}`,
	social.PhotoDM: `{"object":"instagram","entry":[{"id":"%[2]s","time":%[5]d,"messaging":[{"sender":{"id":"%[1]s"},` +
		`"recipient":{"id":"%[2]s"},"timestamp":%[5]d,"message":{"mid":"p_%[3]s","text":%[4]s}}]}]}`,
	social.ChatApp: `{"object":"whatsapp_business_account","entry":[{"id":"1029384756","changes":[{"field":"messages","value":` +
		`{"messaging_product":"whatsapp","metadata":{"display_phone_number":"15550783881","phone_number_id":"%[2]s"},` +
		`"contacts":[{"profile":{"name":"Lan"},"wa_id":"%[1]s"}],` +
		`"messages":[{"from":"%[1]s","id":"wamid.%[3]s","timestamp":"%[6]d","type":"text","text":{"body":%[4]s}}]}}]}]}`,
	localchat.Type: `{"app_id":"` + localchatAppID + `","sender":{"id":"%[1]s"},"recipient":{"id":"%[2]s"},"user_id_by_app":"979122185046046317",` +
		`"event_name":"user_send_text","message":{"text":%[4]s,"msg_id":"%[3]s"},"timestamp":"%[5]d"}`,
	marketa.Type: `{"msg_id":"","data":{"type":"message","region":"VN","content":{"message_id":"%[3]s","shop_id":165103149,"request_id":"r",` +
		`"from_id":%[1]s,"from_user_name":"buyer","to_id":947151379,"to_user_name":"seller","message_type":"text","content":{"text":%[4]s},` +
		`"conversation_id":"%[1]s","created_timestamp":%[6]d,"region":"VN","is_in_chatbot_session":false,"source_content":{},` +
		`"quoted_msg":{"message_id":""},"sub_account_id":0}},"shop_id":%[2]s,"code":10,"timestamp":%[6]d}`,
	marketb.Type: `{"data":{"session_id":"%[1]s","message_id":"%[3]s","content":%[7]s,"from_account_id":"1891549323",` +
		`"from_account_type":1,"send_time":%[5]d,"template_id":1,"to_account_id":"231135951","to_account_type":2,"type":1,"site_id":"VN",` +
		`"process_msg":"","auto_reply":false,"status":0},"shop_id":"%[2]s","message_type":2,"timestamp":%[5]d,"site":"market_vn"}`,
}

func encodedArguments(s sender, id, text string) []any {
	now := time.Now()
	return []any{s.Customer, s.External, id, quoted(text), now.UnixMilli(), now.Unix(), quoted(`{"txt":` + quoted(text) + `}`)}
}

// sign makes a delivery to the line of a body.
func (l *line) sign(body string) delivery {
	d := delivery{Path: webhookPath(l.Type), Body: []byte(body)}
	switch l.Type {
	case bot.Type:
		d.Path += l.ID
		d.Header, d.Signatures = botHeader, []string{l.Secret}
	case localchat.Type:
		var stamped struct{ Timestamp json.RawMessage }
		_ = json.Unmarshal(d.Body, &stamped)
		timestamp := string(stamped.Timestamp)
		if unquoted, err := strconv.Unquote(timestamp); err == nil {
			timestamp = unquoted
		}
		d.Header, d.Signatures = localchatHeader, []string{signLocalchat(d.Body, timestamp)}
	case marketa.Type:
		d.Header, d.Signatures = marketHeader, []string{signMarketA(l.baseURL, d.Body)}
	case marketb.Type:
		d.Header, d.Signatures = marketHeader, []string{signMarketB(d.Body)}
	default:
		d.Header, d.Signatures = socialHeader, []string{signSocial(d.Body)}
	}
	return d
}

// webhookPath is the path of docs/contract.md#webhooks that serves a channel type; the bot platform's goes on with the channel's id.
func webhookPath(t platforms.Type) string {
	switch t {
	case bot.Type:
		return "/webhooks/bot/"
	case localchat.Type:
		return "/webhooks/localchat"
	case marketa.Type:
		return "/webhooks/market-a"
	case marketb.Type:
		return "/webhooks/market-b"
	default:
		return "/webhooks/social"
	}
}
