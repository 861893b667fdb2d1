// Package marketb is the adapter to marketplace B, by default Lazada's seller chat. The operator's application signs every call.
// Only customers open sessions; messages are sent into these sessions.
package marketb

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// Type is the channel type of a shop.
const Type platforms.Type = "market_b"

// Driver is the [platforms.Driver] of marketplace B.
type Driver struct{}

// Describe implements [platforms.Driver].
func (Driver) Describe() *platforms.Description {
	return &platforms.Description{
		Name: "market_b", Deliveries: "Events of marketplace B",
		SignatureHeader: verify.MarketBHeader,
		SignatureHelp:   "The HMAC-SHA256 in hex of app key and raw body, one after the other, with the app secret as its key.",
		Options: []option.Option{
			{Name: "auth_base", Kind: option.Address, Help: "The address of the service that renews tokens."},
			{Name: "app_key", Kind: option.Identifier, Required: true, Help: "The key that names the application, not a secret."},
			{
				Name: "app_secret", Kind: option.Secret, Required: true,
				Help: "The secret of the application, which signs webhooks and calls.",
			},
		},
		Channels: []platforms.ChannelType{{
			Type: Type, Label: "Marketplace B", Like: "Lazada", ExternalID: "Shop id", ExternalIDHint: "Also called seller id.",
			Credentials: platforms.TokenPair(),
			Limit:       platforms.Limit{Most: 1000}, // no source names a limit
			Before:      []string{"Authorize the operator's application for the shop, and note both tokens."},
			After: []string{
				"Once for the application, in its console: push address %u",
				"Switch on the message type “IM”.",
			},
			WindowHelp: "The platform decides until when it takes free text.",
		}},
	}
}

// New implements [platforms.Driver]. Tokens are refreshed at api_base if it is set without auth_base, so that a secret never goes
// to a vendor that the operator has replaced.
func (Driver) New(config *platforms.Config) (platforms.Platform, error) {
	base, err := config.Base("https://api.lazada.vn/rest", "api_base")
	if err != nil {
		return nil, fmt.Errorf("api_base: %w", err)
	}
	authBase, err := config.Base("https://auth.lazada.com/rest", "auth_base", "api_base")
	if err != nil {
		return nil, fmt.Errorf("auth_base: %w", err)
	}
	return &market{
		config: *config, base: base, authBase: authBase, appKey: config.Options["app_key"], appSecret: config.Options["app_secret"],
	}, nil
}

type market struct {
	config            platforms.Config
	base, authBase    *url.URL
	appKey, appSecret string
}

var (
	_ platforms.SignedDeliveries = (*market)(nil)
	_ platforms.Refresher        = (*market)(nil)
	_ platforms.Signaler         = (*market)(nil)
)

// Verify implements [platforms.SignedDeliveries].
func (m *market) Verify(d *platforms.Delivery) error {
	return verify.MarketB(d.Header, m.config.Options["header"], m.appKey, m.appSecret, d.Body)
}

// Send sends a text message into a session. The returned id is "<session_id>:<message_id>", as in an Inbound.
func (m *market) Send(ctx context.Context, out *platforms.Outgoing) (string, error) {
	var body struct {
		Data struct {
			MessageID platforms.Word `json:"message_id"`
		} `json:"data"`
	}
	r, err := m.call(ctx, out.Credentials, http.MethodPost, "/im/message/send", url.Values{
		"session_id": {out.Address}, "txt": {out.Text}, "template_id": {"1"}, // plain text
	}, &body)
	id, err := r.ID(body.Data.MessageID, err)
	return messageID(out.Address, id), err
}

// Signal implements [platforms.Signaler]. The marketplace shows that messages were read, and no typing.
func (m *market) Signal(ctx context.Context, signal *platforms.Signal) error {
	_, err := m.call(ctx, signal.Credentials, http.MethodPost, "/im/session/read", url.Values{
		"session_id": {signal.Address}, "last_read_message_id": {strings.TrimPrefix(signal.MessageID, signal.Address+":")},
	}, &struct{}{})
	return err
}

// Identify returns the id of the seller.
func (m *market) Identify(ctx context.Context, channel *platforms.Channel) ([]string, error) {
	var body struct {
		Data struct {
			SellerID platforms.Word `json:"seller_id"`
		} `json:"data"`
	}
	r, err := m.call(ctx, channel.Credentials, http.MethodGet, "/seller/get", nil, &body)
	id, err := r.ID(body.Data.SellerID, err)
	return []string{id}, err
}

// call makes a call. Token and signature are sent in the query, the parameters of a POST in its body, as in the vendor's own
// library.
func (m *market) call(
	ctx context.Context, credentials platforms.Credentials, method, path string, params url.Values, result any,
) (*platforms.Response, error) {
	token := credentials[platforms.AccessToken]
	if problem := platforms.CheckToken(token); problem != "" {
		return nil, platforms.Unauthorized(false, &platforms.FieldError{Field: platforms.AccessToken, Problem: problem})
	}
	query, failure := m.sign(path, url.Values{"access_token": {token}}, params)
	if failure != nil {
		return nil, failure
	}
	request := &platforms.Request{Name: string(Type), Base: m.base, Method: method, Path: path, Query: query}
	if method == http.MethodPost {
		request.Form = params
	}
	r, failure := m.config.Client.Do(ctx, request)
	if failure != nil {
		return nil, failure
	}
	return r, read(r, result)
}

// sign adds the common parameters and signs: upper-case hex HMAC-SHA256 with the app secret over the path, without the path of
// the base address, and all parameters in order of their names, each name followed by its value. Based on the vendor's
// documentation; not verified against the real interface.
func (m *market) sign(path string, query, params url.Values) (url.Values, *platforms.Error) {
	if m.appKey == "" || m.appSecret == "" {
		return nil, platforms.Refusef("platform market_b has no app_key and app_secret")
	}
	query.Set("app_key", m.appKey)
	query.Set("timestamp", strconv.FormatInt(m.config.Now().UnixMilli(), 10))
	query.Set("sign_method", "sha256")
	all := maps.Clone(query)
	maps.Copy(all, params)
	mac := hmac.New(sha256.New, []byte(m.appSecret))
	mac.Write([]byte(path))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mac.Write([]byte(name + all.Get(name)))
	}
	query.Set("sign", strings.ToUpper(hex.EncodeToString(mac.Sum(nil))))
	return query, nil
}

// read reads a good answer into result, or classifies the error: a code other than "0" of the gateway, or an err_code of the chat
// behind it, with any status. All codes but -22 are general knowledge, not from the vendor's documentation.
func read(r *platforms.Response, result any) error {
	var body struct {
		Code    *platforms.Word `json:"code"`
		ErrCode platforms.Word  `json:"err_code"`
		Success platforms.Word  `json:"success"`
		Message string          `json:"message"`
	}
	if !r.Decode(&body) || body.Code == nil {
		return r.Unreadable(true)
	}
	cause := r.Error(string(*body.Code), string(body.ErrCode))
	code := *body.Code
	if code == "0" {
		code = body.ErrCode
	}
	switch code {
	case "", "0":
		if body.Success == "false" {
			return r.Unlisted(true, cause)
		}
		if !r.OK() || !r.Decode(result) {
			return r.Unreadable(true)
		}
		return nil
	case "-22":
		return platforms.Fail(platforms.WindowExpired, cause)
	case "IllegalAccessToken":
		return platforms.Unauthorized(true, cause)
	case "InsufficientPermission":
		return platforms.Unauthorized(false, cause)
	case "ApiCallLimit", "AppCallLimit", "SellerCallLimit":
		return platforms.TooMany(max(r.RetryAfter(), ban(body.Message)), cause)
	case "ServiceUnavailable":
		return platforms.RetryLater(r.RetryAfter(), cause)
	case "ServiceTimeout": // of the service behind the gateway, which may have accepted the message
		return platforms.Fail(platforms.Unknown, cause)
	}
	return r.Unlisted(true, cause)
}

// ban returns the duration of a limit, or 0 if it isn't stated. Only the text of the error contains it: "… this ban will last 5
// seconds" (general knowledge).
func ban(message string) time.Duration {
	_, lasts, _ := strings.Cut(strings.ToLower(message), "ban will last ")
	number, _, _ := strings.Cut(lasts, " ")
	return platforms.Seconds(number)
}

// refreshErrors classifies errors of a refresh. The codes are general knowledge, not from the vendor's documentation, and
// certainly incomplete.
var refreshErrors = platforms.RefreshErrors{
	Member:    "code",
	Operator:  []string{"IncompleteSignature", "InvalidAppKey", "MissingParameter", "InvalidTimestamp"},
	Temporary: []string{"ApiCallLimit", "AppCallLimit", "ServiceUnavailable"},
}

func (m *market) Refresh(ctx context.Context, channel *platforms.Channel) (platforms.Credentials, error) {
	const path = "/auth/token/refresh"
	params := url.Values{"refresh_token": {channel.Credentials[platforms.RefreshToken]}}
	query, failure := m.sign(path, url.Values{}, params)
	if failure != nil {
		return nil, failure
	}
	request := &platforms.Request{
		Name: string(Type), Base: m.authBase, Method: http.MethodPost, Path: path, Query: query, Form: params,
	}
	return m.config.Client.RefreshTokens(ctx, request, channel.Credentials, m.config.Now(), refreshErrors)
}

// Message types of marketplace B (open.lazada.com, push mechanism).
const (
	chatPush   = "2"
	expiryPush = "8"
)

// Extract reads one push of marketplace B: a chat message of a customer or of the shop, or the warning that the shop's token ends
// within two days. Orders and sessions are skipped.
func (*market) Extract(body []byte) ([]platforms.Inbound, error) {
	push, err := platforms.ParseObject(body)
	if err != nil {
		return nil, err
	}
	var kind, shop, seller string
	var data platforms.Value
	push.Read([]platforms.Field{
		{Name: "message_type", ID: &kind},
		{Name: "shop_id", ID: &shop},
		{Name: "seller_id", ID: &seller},
		{Name: "data", Value: &data},
	})
	shop = cmp.Or(shop, seller)
	found := platforms.Collect(len(body))
	switch kind {
	case chatPush:
		var m message
		m.read(data)
		in := m.inbound(shop)
		if in.Kind == platforms.Media || in.Kind == platforms.HumanEcho {
			found.Attach(&in, m.attachment())
		}
		found.Add(in)
	case expiryPush:
		found.Add(platforms.Inbound{Type: Type, ExternalID: shop, Kind: platforms.TokenExpiring})
	}
	return found.All(), nil
}

type message struct {
	session, id     string
	fromAccountType string
	template        string
	kind, status    string
	note            string
	automatic       bool
	sentAt          time.Time
	content         platforms.Value
}

func (m *message) read(value platforms.Value) {
	value.Read([]platforms.Field{
		{Name: "session_id", ID: &m.session},
		{Name: "message_id", ID: &m.id},
		{Name: "from_account_type", ID: &m.fromAccountType},
		{Name: "template_id", ID: &m.template},
		{Name: "type", ID: &m.kind},
		{Name: "status", ID: &m.status},
		{Name: "auto_reply", Flag: &m.automatic},
		{Name: "process_msg", Person: &m.note},
		{Name: "send_time", Time: &m.sentAt},
		{Name: "content", Value: &m.content},
	})
}

// messageID returns the id of a message within its shop. The platform's own id is unique only within its session.
func messageID(session, id string) string {
	if session == "" || id == "" {
		return ""
	}
	return session + ":" + id
}

func (m *message) inbound(shop string) platforms.Inbound {
	in := platforms.Inbound{
		Type: Type, ExternalID: shop, Conversation: m.session, Address: m.session, MessageID: messageID(m.session, m.id), SentAt: m.sentAt,
	}
	const ordinary, recalled = "0", "1"
	status := cmp.Or(m.status, ordinary)
	switch {
	case cmp.Or(m.kind, "1") != "1":
		return platforms.Inbound{}
	case status == recalled:
		in.Kind = platforms.Unsent
		return in
	case status != ordinary || m.note != "":
		return platforms.Inbound{}
	}
	text, media := "", ""
	if m.template == "1" {
		text = m.content.Nested().Member("txt").Text(platforms.MaxText)
	} else {
		media = cmp.Or(mediaNames[m.template], "attachment")
	}
	const customer, seller = "1", "2"
	switch {
	case m.fromAccountType == customer && !m.automatic:
		return in.WithContent(text, media)
	case m.fromAccountType == seller && m.automatic:
		return in.AsAutomatic(text, media)
	case m.fromAccountType == seller:
		return in.AsEcho(text, media)
	default:
		return platforms.Inbound{}
	}
}

// attachment returns the picture of a message. A video has no address, and its text is only the name of a file.
func (m *message) attachment() (a platforms.Attachment) {
	if m.template != "3" {
		return a
	}
	content := m.content.Nested()
	for _, name := range []string{"imgUrl", "img_url", "url"} { // the documentation of deliveries doesn't name it; sending has img_url
		if address := content.Member(name).Reference(); platforms.IsAddress(address) {
			return platforms.Attachment{Kind: "image", Reference: address}
		}
	}
	return a
}

// mediaNames are the names of the contents of messages by their template.
var mediaNames = map[string]string{"3": "image", "4": "sticker", "6": "video", "10006": "item", "10007": "order", "10008": "voucher"}
