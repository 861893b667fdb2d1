// Package localchat is the adapter to the local chat platform, by default Zalo's official accounts. Its access tokens live about a
// day and are refreshed.
package localchat

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// Type is the channel type of an official account.
const Type platforms.Type = "localchat"

// Optional credentials of a channel's own application. The key that signs an account's deliveries may differ from the
// application's secret.
const (
	oaSecretKey = "oaSecretKey"
	appID       = "appId"
	appSecret   = "appSecret"
)

// Driver is the [platforms.Driver] of the local chat platform.
type Driver struct{}

// Describe implements [platforms.Driver].
func (Driver) Describe() *platforms.Description {
	return &platforms.Description{
		Name: "localchat", OperationName: "LocalChat", Deliveries: "Events of the local chat platform",
		SignatureHeader: verify.LocalChatHeader,
		SignatureHelp:   "mac= and the SHA-256 in hex of app id, raw body, the body's timestamp and the app secret, one after the other.",
		Options: []option.Option{
			{Name: "auth_base", Kind: option.Address, Help: "The address of the service that renews tokens."},
			{Name: "app_id", Kind: option.Identifier, Required: true, Help: "The id of the application."},
			{
				Name: "app_secret", Kind: option.Secret, Required: true,
				Help: "The secret of the application, which renews tokens, and signs webhooks unless oa_secret_key is given.",
			},
			{Name: "oa_secret_key", Kind: option.Secret, Help: "The key that signs webhooks, if it is another than app_secret."},
		},
		Channels: []platforms.ChannelType{{
			Type: Type, Label: "Local chat platform", Like: "Zalo", ExternalID: "Official account id", ExternalIDHint: "The OA id.",
			Credentials: append(platforms.TokenPair(),
				platforms.CredentialField{
					Name: oaSecretKey, Label: "OA secret key", Optional: true, Signs: true,
					Hint: "The key on the page of the webhook, which signs deliveries. Leave it empty if the operator has it.",
				},
				platforms.CredentialField{
					Name: appID, Label: "App id", Optional: true, With: appSecret,
					Hint: "Of your own application. Leave it empty if the operator's is connected.",
				},
				platforms.CredentialField{
					Name: appSecret, Label: "App secret", Optional: true, With: appID, Signs: true,
					Hint: "Of your own application: it renews tokens, and signs deliveries if there is no OA secret key.",
				},
			),
			Limit:  platforms.Limit{Most: 2000},
			Pace:   platforms.Pace{Every: 25 * time.Millisecond, Burst: 20}, // 4,000 a minute, by integrators' notes
			Window: 7 * 24 * time.Hour,                                      // the platform's limit of 48 hours is about billing
			Before: []string{"Authorize the operator's application for the official account, and note both tokens."},
			After: []string{
				"Once for the application (the operator has done it if another channel works): webhook address %u",
				"Its events: user_send_text and, so that a person's answers from the platform's app are noticed, oa_send_text.",
			},
			WindowHelp: "Free text until 7 days after the customer wrote.",
		}},
	}
}

// New implements [platforms.Driver]. Tokens are refreshed at api_base if it is set without auth_base, so that a secret never goes
// to a vendor that the operator has replaced.
func (Driver) New(config *platforms.Config) (platforms.Platform, error) {
	base, err := config.Base("https://openapi.zalo.me", "api_base")
	if err != nil {
		return nil, fmt.Errorf("api_base: %w", err)
	}
	authBase, err := config.Base("https://oauth.zaloapp.com", "auth_base", "api_base")
	if err != nil {
		return nil, fmt.Errorf("auth_base: %w", err)
	}
	return &localChat{config: *config, base: base, authBase: authBase}, nil
}

type localChat struct {
	config         platforms.Config
	base, authBase *url.URL
}

var (
	_ platforms.SignedDeliveries = (*localChat)(nil)
	_ platforms.ChannelSigned    = (*localChat)(nil)
	_ platforms.Refresher        = (*localChat)(nil)
)

// Verify implements [platforms.SignedDeliveries]. A body that isn't JSON fails, because it has no timestamp to hash.
func (l *localChat) Verify(d *platforms.Delivery) error {
	return l.verify(d, l.config.Options["app_id"], l.signingKey())
}

func (l *localChat) verify(d *platforms.Delivery, appID, key string) error {
	return verify.LocalChat(d.Header, l.config.Options["header"], appID, key, d.Body)
}

// signingKey returns the operator's key, with which the platform signs deliveries.
func (l *localChat) signingKey() string {
	return cmp.Or(l.config.Options["oa_secret_key"], l.config.Options["app_secret"])
}

// signer returns the application id and the key with which a channel's deliveries are signed. The id is part of the hashed text.
// The key is empty if the credentials contain none.
func (l *localChat) signer(c platforms.Credentials) (id, key string) {
	return cmp.Or(c[appID], l.config.Options["app_id"]), cmp.Or(c[oaSecretKey], c[appSecret])
}

// SignsItself implements [platforms.ChannelSigned].
func (l *localChat) SignsItself(c platforms.Credentials) bool {
	id, key := l.signer(c)
	return key != "" && (!platforms.SameSecret(key, l.signingKey()) || id != l.config.Options["app_id"])
}

// VerifyOwn implements [platforms.ChannelSigned].
func (l *localChat) VerifyOwn(d *platforms.Delivery, c platforms.Credentials) error {
	id, key := l.signer(c)
	return l.verify(d, id, key)
}

// Send sends a customer service message of the official account.
func (l *localChat) Send(ctx context.Context, out *platforms.Outgoing) (string, error) {
	var data struct {
		MessageID platforms.Word `json:"message_id"`
	}
	r, err := l.call(ctx, out.Credentials, http.MethodPost, "/v3.0/oa/message/cs", map[string]map[string]string{
		"recipient": {"user_id": out.Address}, "message": {"text": out.Text},
	}, &data)
	return r.ID(data.MessageID, err)
}

// Identify returns the id of the official account.
func (l *localChat) Identify(ctx context.Context, channel *platforms.Channel) ([]string, error) {
	var account struct {
		ID platforms.Word `json:"oa_id"`
	}
	r, err := l.call(ctx, channel.Credentials, http.MethodGet, "/v2.0/oa/getoa", nil, &account)
	id, err := r.ID(account.ID, err)
	return []string{id}, err
}

func (l *localChat) call(ctx context.Context, credentials platforms.Credentials, method, path string, body, data any) (*platforms.Response, error) {
	token := credentials[platforms.AccessToken]
	if problem := platforms.CheckToken(token); problem != "" {
		return nil, platforms.Unauthorized(false, &platforms.FieldError{Field: platforms.AccessToken, Problem: problem})
	}
	r, failure := l.config.Client.Do(ctx, &platforms.Request{
		Name: string(Type), Base: l.base, Method: method, Path: path, JSON: body,
		Header: map[string]string{"access_token": token},
	})
	if failure != nil {
		return nil, failure
	}
	return r, read(r, data, l.config.Now())
}

// read reads {"error":0,"data":…} into data, or classifies the error, which comes with status 200
// (developers.zalo.me/docs/official-account/phu-luc/ma-loi). Codes of quotas, wallets, forms and contents are refusals, because
// another try of the same message can't help.
func read(r *platforms.Response, data any, now time.Time) error {
	var body struct {
		Error *platforms.Word `json:"error"`
		Data  json.RawMessage `json:"data"`
	}
	if !r.Decode(&body) || body.Error == nil {
		return r.Unreadable(true)
	}
	cause := r.Error(string(*body.Error), "")
	switch *body.Error {
	case "0":
		if !r.OK() || json.Unmarshal(body.Data, data) != nil {
			return r.Unreadable(true)
		}
		return nil
	case "-216", "-220", "-242": // the token or its proof
		return platforms.Unauthorized(true, cause)
	case "-204", "-205", "-209", "-212", "-219", "-221", "-240": // the account or the application may not send
		return platforms.Unauthorized(false, cause)
	case "-230", "-232", "-305":
		return platforms.Fail(platforms.WindowExpired, cause)
	case "-213", "-217", "-227", "-244": // doesn't follow, blocked, banned or long absent, accepts no messages
		return platforms.Fail(platforms.CustomerBlocked, cause)
	case "-32":
		return platforms.TooMany(r.RetryAfter(), cause)
	case "-234":
		if night := untilMorning(now); night > 0 {
			return platforms.ClosedFor(night, cause)
		}
		return platforms.RetryLater(r.RetryAfter(), cause)
	}
	return r.Unlisted(true, cause)
}

// untilMorning returns the rest of the night in which the platform accepts no messages: 22:00 to 06:00 in Vietnam, which has no
// summer time. It returns 0 by day, except in the last 10 minutes before the night, because our clock may be slow.
func untilMorning(now time.Time) time.Duration {
	const zone, early, morning, day = 7 * time.Hour, 22*time.Hour - 10*time.Minute, 6 * time.Hour, 24 * time.Hour
	clock := (time.Duration(now.UTC().UnixNano())%day + zone) % day
	if clock >= morning && clock < early {
		return 0
	}
	return (morning - clock + day) % day
}

// refreshErrors classifies errors of a refresh. The codes are general knowledge, not from the vendor's documentation, and
// certainly incomplete.
var refreshErrors = platforms.RefreshErrors{Member: "error", Operator: []string{"-14002", "-14003"}, Temporary: []string{"-32"}}

func (l *localChat) Refresh(ctx context.Context, channel *platforms.Channel) (platforms.Credentials, error) {
	id, secret := l.config.Options["app_id"], l.config.Options["app_secret"]
	if own := channel.Credentials; own[appID] != "" {
		id, secret = own[appID], own[appSecret]
	}
	if id == "" || platforms.CheckToken(secret) != "" {
		return nil, platforms.Refusef("neither platform localchat nor the channel has a usable app id and app secret")
	}
	request := &platforms.Request{
		Name: string(Type), Base: l.authBase, Method: http.MethodPost, Path: "/v4/oa/access_token",
		Header: map[string]string{"secret_key": secret},
		Form: url.Values{
			"app_id": {id}, "grant_type": {"refresh_token"}, "refresh_token": {channel.Credentials[platforms.RefreshToken]},
		},
	}
	return l.config.Client.RefreshTokens(ctx, request, channel.Credentials, l.config.Now(), refreshErrors)
}

// Extract reads one event. Only user_send_text is a Text; other content of a customer is only shown. A message of the business is
// a person's if it names an administrator, because automatic replies and messages of the interface have none. user_withdraw
// demands the deletion of the customer's data; the platform repeats it for an hour, even after the customer has come back. All
// other events are skipped, as are groups and anonymous users.
func (*localChat) Extract(body []byte) ([]platforms.Inbound, error) {
	var e event
	if err := e.read(body); err != nil {
		return nil, err
	}
	in := platforms.Inbound{Type: Type, MessageID: e.messageID, SentAt: e.timestamp}
	account, customer := e.recipient, e.sender
	kind, fromCustomer := strings.CutPrefix(e.name, "user_send_")
	switch {
	case e.name == "user_withdraw":
		in.Kind, in.MessageID, customer = platforms.ErasureWanted, "", e.user
	case e.name == "user_send_text":
		in = in.WithContent(e.text, "")
	case fromCustomer:
		in = in.AsEvent(mediaNames[kind])
	case strings.HasPrefix(e.name, "oa_send_") && !strings.HasPrefix(e.name, "oa_send_group_"):
		account, customer = customer, account
		if media := strings.TrimPrefix(e.name, "oa_send_"); e.admin != "" {
			in = in.AsEcho(e.text, media)
		} else {
			in = in.AsAutomatic(e.text, media)
		}
	}
	in.ExternalID = cmp.Or(e.account, account)
	in.Conversation, in.Address = customer, customer
	found := platforms.Collect(len(body))
	found.Add(in)
	return found.All(), nil
}

// Named implements [platforms.ChannelSigned]. The event decides whether sender or recipient is the account, so both are named.
func (l *localChat) Named(d *platforms.Delivery) (named []platforms.Channel) {
	var e event
	if !verify.HasDigest(d.Header, cmp.Or(l.config.Options["header"], verify.LocalChatHeader), "mac=") || e.read(d.Body) != nil {
		return nil
	}
	for _, id := range []string{e.account, e.recipient, e.sender} {
		if id != "" {
			named = append(named, platforms.Channel{Type: Type, ExternalID: id})
		}
	}
	return named
}

// event is an event of an official account (docs.zaloplatforms.com). The account is the recipient, or the sender if it wrote the
// message.
type event struct {
	name, account            string
	timestamp                time.Time
	sender, admin, recipient string
	user                     string // the customer of an event without sender
	messageID, text          string
}

func (e *event) read(body []byte) error {
	object, err := platforms.ParseObject(body)
	if err != nil {
		return err
	}
	object.Read([]platforms.Field{
		{Name: "event_name", Word: &e.name},
		{Name: "oa_id", ID: &e.account},
		{Name: "timestamp", Time: &e.timestamp},
		{Name: "id", Of: "sender", ID: &e.sender},
		{Name: "admin_id", Of: "sender", ID: &e.admin},
		{Name: "id", Of: "recipient", ID: &e.recipient},
		{Name: "user_id", ID: &e.user},
		{Name: "msg_id", Of: "message", ID: &e.messageID},
		{Name: "text", Of: "message", Text: &e.text},
	})
	return nil
}

// mediaNames are the short names of messages without text. Other events are no messages of one customer.
var mediaNames = map[string]string{
	"image": "image", "audio": "audio", "video": "video", "sticker": "sticker", "location": "location", "file": "file", "link": "link",
	"gif": "image", "business_card": "contact",
}
