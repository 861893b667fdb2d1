// Package marketa is the adapter to marketplace A, by default Shopee's seller chat. A partner account signs every call; a token
// is valid for one shop.
package marketa

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// Type is the channel type of a shop.
const Type platforms.Type = "market_a"

// Optional credentials of a channel's own application, because the marketplace may require an application for each seller.
const (
	pushKey    = "pushKey"
	partnerID  = "partnerId"
	partnerKey = "partnerKey"
)

// Driver is the [platforms.Driver] of marketplace A.
type Driver struct{}

// Describe implements [platforms.Driver].
func (Driver) Describe() *platforms.Description {
	return &platforms.Description{
		Name: "market_a", Deliveries: "Events of marketplace A",
		SignatureHeader: verify.MarketAHeader,
		SignatureHelp:   "The HMAC-SHA256 in hex of the callback address, | and the raw body, with the partner key as its key.",
		Options: []option.Option{
			{
				Name: "partner_id", Kind: option.Identifier, Required: true, Check: checkPartnerID,
				Help: "The id of the partner, a whole number.",
			},
			{
				Name: "partner_key", Kind: option.Secret, Required: true,
				Help: "The key of the partner, which signs calls, and webhooks unless push_key is given.",
			},
			{Name: "push_key", Kind: option.Secret, Help: "The key that signs webhooks, if it is another than partner_key."},
		},
		Channels: []platforms.ChannelType{{
			Type: Type, Label: "Marketplace A", Like: "Shopee", ExternalID: "Shop id", ExternalIDHint: "A number.",
			Credentials: append(platforms.TokenPair(),
				platforms.CredentialField{
					Name: pushKey, Label: "Push key", Optional: true, Signs: true,
					Hint: "The key on the console's page of pushes, which signs deliveries. Leave it empty if the operator has it.",
				},
				platforms.CredentialField{
					Name: partnerID, Label: "Partner id", Optional: true, With: partnerKey, Check: checkPartnerID,
					Hint: "Of your own application, a number. Leave it empty if the operator's is authorized for the shop.",
				},
				platforms.CredentialField{
					Name: partnerKey, Label: "Partner key", Optional: true, With: partnerID, Signs: true,
					Hint: "Of your own application: it signs calls, and deliveries if there is no push key.",
				},
			),
			Limit: platforms.Limit{Most: 600}, MostParts: 4, Unanswered: 5,
			Before: []string{"Authorize the operator's application for the shop, and note both tokens."},
			After: []string{
				"Once for the application, in the partner console: push address exactly %u",
				"Switch on the push “webchat”.",
				"The marketplace punishes shops for phone numbers, mail addresses and links in messages: say so in the assistant's instructions.",
			},
			WindowHelp: "At most 5 messages until the buyer writes again. A buyer who has been silent for 7 days is written to only with an " +
				"order of the last 30 days or an open return; the marketplace decides.",
		}},
	}
}

func checkPartnerID(id string) string {
	if n, err := strconv.ParseInt(id, 10, 64); err != nil || n < 1 || !platforms.IsDigits(id) {
		return "must be a whole number above 0"
	}
	return ""
}

// New implements [platforms.Driver].
func (Driver) New(config *platforms.Config) (platforms.Platform, error) {
	base, err := config.Base("https://partner.shopeemobile.com", "api_base")
	if err != nil {
		return nil, fmt.Errorf("api_base: %w", err)
	}
	return &market{config: *config, base: base, operator: partner{config.Options["partner_id"], config.Options["partner_key"]}}, nil
}

type market struct {
	config   platforms.Config
	base     *url.URL
	operator partner
}

// partner is an application of the marketplace, which signs calls.
type partner struct{ id, key string }

// partner returns the application through which a channel is connected: its own, else the operator's.
func (m *market) partner(c platforms.Credentials) partner {
	if c[partnerID] != "" {
		return partner{c[partnerID], c[partnerKey]}
	}
	return m.operator
}

var (
	_ platforms.SignedDeliveries = (*market)(nil)
	_ platforms.ChannelSigned    = (*market)(nil)
	_ platforms.Refresher        = (*market)(nil)
	_ platforms.Signaler         = (*market)(nil)
	_ platforms.ThreadReader     = (*market)(nil)
)

// Verify implements [platforms.SignedDeliveries]. The signature also covers the configured address.
func (m *market) Verify(d *platforms.Delivery) error {
	return m.verify(d, m.signingKey())
}

func (m *market) verify(d *platforms.Delivery, key string) error {
	return verify.MarketA(d.Header, m.config.Options["header"], key, d.URL, d.Body)
}

// signingKey returns the operator's key, with which the platform signs deliveries. It may differ from the key of calls.
func (m *market) signingKey() string { return cmp.Or(m.config.Options["push_key"], m.operator.key) }

// ownKey returns the key with which a channel's deliveries are signed, or "" if the credentials contain none.
func ownKey(c platforms.Credentials) string { return cmp.Or(c[pushKey], c[partnerKey]) }

// SignsItself implements [platforms.ChannelSigned].
func (m *market) SignsItself(c platforms.Credentials) bool {
	return ownKey(c) != "" && !platforms.SameSecret(ownKey(c), m.signingKey())
}

// VerifyOwn implements [platforms.ChannelSigned].
func (m *market) VerifyOwn(d *platforms.Delivery, c platforms.Credentials) error {
	return m.verify(d, ownKey(c))
}

// Send sends a chat message of the shop to a buyer.
func (m *market) Send(ctx context.Context, out *platforms.Outgoing) (string, error) {
	if !platforms.IsDigits(out.Address) {
		return "", platforms.Refusef("the buyer's id is not a number")
	}
	var body struct {
		Response struct {
			MessageID platforms.Word `json:"message_id"`
		} `json:"response"`
	}
	r, err := m.call(ctx, out.ExternalID, out.Credentials, http.MethodPost, "/api/v2/sellerchat/send_message", map[string]any{
		"to_id": json.Number(out.Address), "message_type": "text", "content": map[string]string{"text": out.Text},
	}, &body)
	return r.ID(body.Response.MessageID, err)
}

// Signal implements [platforms.Signaler]. The marketplace shows that messages were read, and no typing. Based on one survey of
// the interface; not verified against the real one.
func (m *market) Signal(ctx context.Context, signal *platforms.Signal) error {
	if !platforms.IsDigits(signal.Conversation) {
		return platforms.Refusef("the conversation's id is not a number")
	}
	_, err := m.call(ctx, signal.ExternalID, signal.Credentials, http.MethodPost, "/api/v2/sellerchat/read_conversation", map[string]any{
		"conversation_id": json.Number(signal.Conversation), "last_read_message_id": signal.MessageID,
	}, &struct{}{})
	return err
}

// threadPage is the number of messages of a conversation that are read, of customer and shop together.
const threadPage = 25

// ReadThread implements [platforms.ThreadReader]. Messages that people write in the seller's app are not pushed to ordinary
// applications. They are only listed, with their source. Based on the reports of integrators; not verified against the real
// interface.
func (m *market) ReadThread(ctx context.Context, thread *platforms.Thread) ([]platforms.Inbound, error) {
	if !platforms.IsDigits(thread.Conversation) {
		return nil, platforms.Refusef("the conversation's id is not a number")
	}
	var body struct {
		Response struct {
			Messages []json.RawMessage `json:"messages"`
		} `json:"response"`
	}
	_, err := m.call(ctx, thread.ExternalID, thread.Credentials, http.MethodGet, "/api/v2/sellerchat/get_message", url.Values{
		"conversation_id": {thread.Conversation}, "page_size": {strconv.Itoa(threadPage)},
	}, &body)
	if err != nil {
		return nil, err
	}
	found := platforms.CollectAtMost(threadPage)
	for _, raw := range body.Response.Messages {
		value, err := platforms.ParseObject(raw)
		if err != nil {
			continue
		}
		var one message
		one.read(value)
		one.conversation = thread.Conversation
		if one.fromShop != thread.ExternalID {
			continue
		}
		if one.source == "openapi" || one.source == "server" { // a program wrote it, perhaps this one, or the marketplace itself
			one.status = "auto_reply"
		}
		one.add(&found, thread.ExternalID)
	}
	return found.All(), nil
}

// Identify confirms the channel's shop id: a call for a shop fails if the token isn't valid for it.
func (m *market) Identify(ctx context.Context, channel *platforms.Channel) ([]string, error) {
	var shop struct {
		Name platforms.Word `json:"shop_name"`
	}
	r, err := m.call(ctx, channel.ExternalID, channel.Credentials, http.MethodGet, "/api/v2/shop/get_shop_info", nil, &shop)
	_, err = r.ID(shop.Name, err)
	return []string{channel.ExternalID}, err
}

// call makes a call for a shop. The marketplace requires token and signature in the query. The body is sent as JSON, except that
// [url.Values] are added to the query.
func (m *market) call(
	ctx context.Context, shopID string, credentials platforms.Credentials, method, path string, body, result any,
) (*platforms.Response, error) {
	token := credentials[platforms.AccessToken]
	if problem := platforms.CheckToken(token); problem != "" {
		return nil, platforms.Unauthorized(false, &platforms.FieldError{Field: platforms.AccessToken, Problem: problem})
	}
	if !platforms.IsDigits(shopID) {
		return nil, errShopID()
	}
	query, failure := m.sign(m.partner(credentials), path, token, shopID)
	if failure != nil {
		return nil, failure
	}
	query.Set("access_token", token)
	query.Set("shop_id", shopID)
	if more, is := body.(url.Values); is {
		maps.Copy(query, more)
		body = nil
	}
	r, failure := m.config.Client.Do(ctx, &platforms.Request{
		Name: string(Type), Base: m.base, Method: method, Path: path, Query: query, JSON: body,
	})
	if failure != nil {
		return nil, failure
	}
	return r, read(r, result)
}

func errShopID() *platforms.Error { return platforms.Refusef("the channel's shop id is not a number") }

// sign signs a call: lower-case hex HMAC-SHA256 with the partner key over partner id, path, time in seconds, and, for calls of a
// shop, token and shop id. The path doesn't include the path of the base address. Based on the vendor's documentation; not
// verified against the real interface.
func (m *market) sign(by partner, path, accessToken, shopID string) (url.Values, *platforms.Error) {
	if !platforms.IsDigits(by.id) || by.key == "" {
		return nil, platforms.Refusef("neither platform market_a nor the channel has a partner id and key")
	}
	timestamp := strconv.FormatInt(m.config.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(by.key))
	mac.Write([]byte(by.id + path + timestamp + accessToken + shopID))
	return url.Values{"partner_id": {by.id}, "timestamp": {timestamp}, "sign": {hex.EncodeToString(mac.Sum(nil))}}, nil
}

// read reads a good answer into result, or classifies the error, {"error":"error_auth",…} with any status. The error of a good
// answer is empty. The first spellings of "access" and "limitation" are the vendor's. error_inner, error_server and error_system
// are general knowledge, not seen in a source.
func read(r *platforms.Response, result any) error {
	var body struct {
		Error *platforms.Word `json:"error"`
	}
	if !r.Decode(&body) || body.Error == nil {
		return r.Unreadable(true)
	}
	cause := r.Error(string(*body.Error), "")
	switch *body.Error {
	case "":
		if !r.OK() || !r.Decode(result) {
			return r.Unreadable(true)
		}
		return nil
	case "error_auth", "invalid_acceess_token", "invalid_access_token":
		return platforms.Unauthorized(true, cause)
	case "error_permission":
		return platforms.Unauthorized(false, cause)
	case "error_limit", "exceed_send_limitaion":
		return platforms.TooMany(r.RetryAfter(), cause)
	case "error_inner", "error_server", "error_system":
		return platforms.RetryLater(r.RetryAfter(), cause)
	case "user_is_forbidden", "reach_5_message_limit", "first_chat_without_order_info": // until the buyer writes again
		return platforms.Fail(platforms.WindowExpired, cause)
	case "error_blocked", "error_sender_block_receiver":
		return platforms.Fail(platforms.CustomerBlocked, cause)
	}
	return r.Unlisted(true, cause)
}

// refreshErrors classifies errors of a refresh. The codes are general knowledge, not from the vendor's documentation, and
// certainly incomplete.
var refreshErrors = platforms.RefreshErrors{
	Member: "error", Operator: []string{"error_sign", "error_partner"},
	Temporary: []string{"error_limit", "error_inner", "error_server", "error_system"},
}

func (m *market) Refresh(ctx context.Context, channel *platforms.Channel) (platforms.Credentials, error) {
	const path = "/api/v2/auth/access_token/get"
	if !platforms.IsDigits(channel.ExternalID) {
		return nil, errShopID()
	}
	by := m.partner(channel.Credentials)
	query, failure := m.sign(by, path, "", "")
	if failure != nil {
		return nil, failure
	}
	request := &platforms.Request{
		Name: string(Type), Base: m.base, Method: http.MethodPost, Path: path, Query: query,
		JSON: map[string]any{
			"partner_id": json.Number(by.id), "shop_id": json.Number(channel.ExternalID),
			"refresh_token": channel.Credentials[platforms.RefreshToken],
		},
	}
	return m.config.Client.RefreshTokens(ctx, request, channel.Credentials, m.config.Now(), refreshErrors)
}
