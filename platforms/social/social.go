// Package social is the adapter to the social platform, by default Meta's: one application with three services, which are a
// messenger, the direct messages of a photo-sharing service, and a chat app for businesses.
package social

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// The channel types.
const (
	// Messenger is a page, routed by page id.
	Messenger platforms.Type = "social_messenger"
	// PhotoDM is a professional account of the photo-sharing service, routed by account id.
	PhotoDM platforms.Type = "photo_dm"
	// ChatApp is a phone number of the chat app, routed by phone number id.
	ChatApp platforms.Type = "chat_app"
)

// appSecret is the optional credential with the secret of a channel's own application.
const appSecret = "appSecret"

// Driver is the [platforms.Driver] of the social platform.
type Driver struct{}

// Describe implements [platforms.Driver].
func (Driver) Describe() *platforms.Description {
	before := func(account string) []string {
		return []string{
			"One application of the operator serves all pages, accounts and numbers. Ask the operator for access to it.",
			"Subscribe the application to your " + account + ", and make a long-lived access token for it.",
		}
	}
	after := func(echoes string) []string {
		return []string{
			"Once for the application (the operator has done it if another channel works): webhook address %u with the operator's verify token.",
			"Subscribe to the fields messages and, so that a person's answers from the platform's app are noticed, " + echoes + ".",
		}
	}
	token := []platforms.CredentialField{
		platforms.AccessTokenField("A long-lived one. It works until it is revoked."),
		{
			Name: appSecret, Label: "App secret", Optional: true, Signs: true,
			Hint: "Of your own application, whose deliveries it signs. Leave it empty if the operator's is connected.",
		},
	}
	renewed := slices.Clone(token)
	renewed[0] = platforms.AccessTokenField("A long-lived one. It lasts 60 days, and is renewed by itself long before it ends.")
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	// The platform allows 300 calls a second for a page or account
	// (developers.facebook.com/docs/graph-api/overview/rate-limiting).
	direct := platforms.Pace{Every: 5 * time.Millisecond, Burst: 50}
	const windowHelp = "Free text until 24 hours after the customer wrote. A person may write for 7 days, if the platform has granted the " +
		"application the feature “Human Agent”."
	return &platforms.Description{
		Name: "social", Deliveries: "Events of the social platform",
		SignatureHeader: verify.SocialHeader,
		SignatureHelp:   "sha256= and the HMAC-SHA256 of the raw body in hex, with the app secret as its key.",
		Handshake: &platforms.Handshake{Summary: "Subscription handshake of the social platform", Query: []platforms.Parameter{
			{Name: "hub.mode", Help: "subscribe"},
			{Name: "hub.verify_token", Help: "The token that was configured for the platform"},
			{Name: "hub.challenge", Help: "What the answer repeats"},
		}},
		Options: []option.Option{
			{Name: "app_secret", Kind: option.Secret, Required: true, Help: "The secret of the application, which signs its webhooks."},
			{
				Name: "verify_token", Kind: option.Secret, Required: true,
				Help: "The token that the platform sends with the handshake of a webhook subscription.",
			},
			{
				Name: "photo_dm_app_secret", Kind: option.Secret,
				Help: "The secret of the photo service's own login, which signs its webhooks if the accounts were connected through that login.",
			},
			{
				Name: "object", Keys: objectKeys, Table: "objects", Check: checkObject,
				Help: "The values of the webhooks' field `object` that name the channel types.",
			},
		},
		Channels: []platforms.ChannelType{
			{
				Type: Messenger, Label: "Social platform: messenger", Like: "Messenger", ExternalID: "Page id",
				ExternalIDHint: "It stands in the page's settings.", Credentials: token, Limit: platforms.Limit{Most: 2000},
				Pace: direct, Window: day, PersonWindow: week, WindowHelp: windowHelp, Before: before("page"), After: after("message_echoes"),
				TypingFor: 20 * time.Second, Files: platforms.FileKinds(),
			},
			{
				Type: PhotoDM, Label: "Social platform: photo direct messages", Like: "Instagram", ExternalID: "Account id",
				ExternalIDHint: "The id of the professional account, not its name.", Credentials: renewed, RenewAhead: 30 * day,
				Limit: platforms.Limit{Most: 1000, Unit: platforms.Bytes}, // the unit is general knowledge, not from documentation
				Pace:  direct, Window: day, PersonWindow: week, WindowHelp: windowHelp, Before: before("account"), After: after("message_echoes"),
				TypingFor: 20 * time.Second, Files: []string{platforms.FileImage, platforms.FileAudio, platforms.FileVideo},
			},
			{
				Type: ChatApp, Label: "Social platform: chat app", Like: "WhatsApp", ExternalID: "Phone number id",
				ExternalIDHint: "The platform's id of the number, not the number itself.", Credentials: token,
				Limit:  platforms.Limit{Most: 4096},
				Markup: platforms.Markup{Strong: "*", Emphasis: "_", Code: "`", CodeBlock: "```"},
				// The platform allows 80 messages a second, received ones included. To one customer it allows 45 in a row and one
				// each 6 s (developers.facebook.com/documentation/business-messaging/whatsapp/throughput).
				Pace:         platforms.Pace{Every: 25 * time.Millisecond, Burst: 10},
				CustomerPace: platforms.Pace{Every: pairPause, Burst: 20},
				TypingFor:    25 * time.Second,
				Files:        platforms.FileKinds(),
				Window:       day, AfterWindow: platforms.TemplateRequired,
				WindowHelp: "Free text until 24 hours after the customer wrote; afterwards only approved templates, which a person sends.",
				Before:     before("number"), After: after("smb_message_echoes"),
			},
		},
	}
}

// objectKeys are the keys of the option `object`, in the order of the channel types.
var objectKeys = []string{"page", "photo_dm", "chat_app"}

// objects are the values of `object` that name the channel type of a delivery.
type objects struct{ page, photoDM, chatApp string }

// objectsOf returns the configured values, and the values of the real platform for all others.
func objectsOf(options map[string]string) objects {
	return objects{
		page:    cmp.Or(options["object[page]"], "page"),
		photoDM: cmp.Or(options["object[photo_dm]"], "instagram"),
		chatApp: cmp.Or(options["object[chat_app]"], "whatsapp_business_account"),
	}
}

func checkObject(value string) string {
	if utf8.RuneCountInString(value) > 64 || strings.ContainsFunc(value, unicode.IsControl) || !utf8.ValidString(value) {
		return "must be at most 64 characters, none of them a control character"
	}
	return ""
}

// CheckOptions implements [option.Checker]. It requires different values of `object` for the types.
func (Driver) CheckOptions(values map[string]string) map[string]string {
	o := objectsOf(values)
	problems, seen := map[string]string{}, map[string]string{}
	for i, value := range []string{o.page, o.photoDM, o.chatApp} {
		if other, taken := seen[value]; taken {
			problems["object["+objectKeys[i]+"]"] = fmt.Sprintf("%q is the value of %s already; each type needs a value of its own", value, other)
			continue
		}
		seen[value] = objectKeys[i]
	}
	return problems
}

// New implements [platforms.Driver]. The addresses contain the version of the interface, 25.0.
func (Driver) New(config *platforms.Config) (platforms.Platform, error) {
	s := &social{config: *config, objects: objectsOf(config.Options), bases: map[platforms.Type]*url.URL{}}
	for t, fallback := range map[platforms.Type]string{
		Messenger: "https://graph.facebook.com/v25.0", PhotoDM: "https://graph.instagram.com/v25.0", ChatApp: "https://graph.facebook.com/v25.0",
	} {
		base, err := config.Base(fallback, "api_base")
		if err != nil {
			return nil, fmt.Errorf("api_base: %w", err)
		}
		s.bases[t] = base
	}
	return s, nil
}

type social struct {
	config  platforms.Config
	objects objects
	bases   map[platforms.Type]*url.URL
}

var (
	_ option.Checker             = Driver{}
	_ platforms.SignedDeliveries = (*social)(nil)
	_ platforms.ChannelSigned    = (*social)(nil)
	_ platforms.Handshaker       = (*social)(nil)
	_ platforms.Refresher        = (*social)(nil)
	_ platforms.Templater        = (*social)(nil)
	_ platforms.MediaSource      = (*social)(nil)
	_ platforms.Signaler         = (*social)(nil)
	_ platforms.FileSender       = (*social)(nil)
)

// Verify implements [platforms.SignedDeliveries]. Either of the two secrets proves the platform, because the vendor's pages don't
// say which of them signs deliveries of the photo service.
func (s *social) Verify(d *platforms.Delivery) error {
	options := s.config.Options
	err := verify.Social(d.Header, options["header"], options["app_secret"], d.Body)
	if second := options["photo_dm_app_secret"]; err != nil && second != "" {
		err = verify.Social(d.Header, options["header"], second, d.Body)
	}
	return err
}

// SignsItself implements [platforms.ChannelSigned].
func (s *social) SignsItself(c platforms.Credentials) bool {
	own, options := c[appSecret], s.config.Options
	return own != "" && !platforms.SameSecret(own, options["app_secret"]) && !platforms.SameSecret(own, options["photo_dm_app_secret"])
}

// VerifyOwn implements [platforms.ChannelSigned].
func (s *social) VerifyOwn(d *platforms.Delivery, c platforms.Credentials) error {
	return verify.Social(d.Header, s.config.Options["header"], c[appSecret], d.Body)
}

func (s *social) Handshake(query url.Values) (string, error) {
	return verify.Handshake(query, s.config.Options["verify_token"])
}

// object is a JSON object in the body of a call.
type object = map[string]any

// ownMark precedes [platforms.Outgoing.Mark] in the metadata of a message. Its echo repeats the metadata, so our messages are
// recognized even if the answer to the send was lost
// (developers.facebook.com/docs/messenger-platform/reference/webhook-events/message-echoes).
const ownMark = "caddy-svc:"

// Send implements [platforms.Platform].
func (s *social) Send(ctx context.Context, out *platforms.Outgoing) (string, error) {
	switch {
	case out.Type != ChatApp:
		return s.sendDirect(ctx, out, object{"text": out.Text})
	case out.Template != nil:
		return s.sendChatApp(ctx, out, "template", templateOf(out.Template))
	}
	return s.sendChatApp(ctx, out, "text", object{"body": out.Text})
}

// sendDirect sends a message from the page or account of the messenger or the photo service to which the token belongs. RESPONSE is the
// type of answers within the window; the photo service has no type for them. After the window only people may write, with the tag
// HUMAN_AGENT.
func (s *social) sendDirect(ctx context.Context, out *platforms.Outgoing, message object) (string, error) {
	if out.Mark != "" {
		message["metadata"] = ownMark + out.Mark
	}
	body := object{"recipient": object{"id": out.Address}, "message": message}
	if out.Late {
		body["messaging_type"], body["tag"] = "MESSAGE_TAG", "HUMAN_AGENT"
	} else if out.Type == Messenger {
		body["messaging_type"] = "RESPONSE"
	}
	var result struct {
		MessageID platforms.Word `json:"message_id"`
	}
	r, err := s.call(ctx, out.Type, out.Credentials, &platforms.Request{Method: http.MethodPost, Path: "/me/messages", JSON: body}, &result)
	return r.ID(result.MessageID, err)
}

// Identify implements [platforms.Platform]. It requests the account of the token. For the chat app it requests the channel's
// number, which succeeds only with a token of that number.
func (s *social) Identify(ctx context.Context, channel *platforms.Channel) ([]string, error) {
	path, fields := "/me", "id"
	switch channel.Type {
	case PhotoDM: // `id` is the account's name within one application; deliveries contain `user_id`
		fields = "user_id"
	case ChatApp:
		if !isID(channel.ExternalID) {
			return nil, errPhoneNumberID()
		}
		path, fields = "/"+channel.ExternalID, "id,display_phone_number"
	}
	var node struct {
		ID          platforms.Word `json:"id"`
		UserID      platforms.Word `json:"user_id"`
		PhoneNumber platforms.Word `json:"display_phone_number"`
	}
	r, err := s.call(ctx, channel.Type, channel.Credentials,
		&platforms.Request{Method: http.MethodGet, Path: path, Query: url.Values{"fields": {fields}}}, &node)
	id := node.ID
	if channel.Type == PhotoDM {
		id = node.UserID
	} else if err == nil && channel.Type == ChatApp && node.PhoneNumber == "" { // another object that the token may read
		err = platforms.Fail(platforms.Refused, r.Error("", ""))
	}
	found, err := r.ID(id, err)
	return []string{found}, err
}

// Refresh implements [platforms.Refresher]. A long-lived token of the photo service's own login is exchanged for a new one while
// it is valid and more than a day old (developers.facebook.com/docs/instagram-platform/reference/refresh_access_token). The old
// token remains valid. The interface requires the token in the query.
func (s *social) Refresh(ctx context.Context, channel *platforms.Channel) (platforms.Credentials, error) {
	if channel.Type != PhotoDM {
		return nil, platforms.Refusef("tokens of type %s are not refreshed", string(channel.Type))
	}
	var result struct {
		AccessToken string         `json:"access_token"`
		ExpiresIn   platforms.Word `json:"expires_in"`
	}
	query := url.Values{"grant_type": {"ig_refresh_token"}, "access_token": {channel.Credentials[platforms.AccessToken]}}
	request := &platforms.Request{Method: http.MethodGet, Path: "/refresh_access_token", Query: query}
	r, err := s.call(ctx, PhotoDM, channel.Credentials, request, &result)
	life := platforms.Seconds(string(result.ExpiresIn))
	if err != nil {
		return nil, err
	}
	if platforms.CheckToken(result.AccessToken) != "" || life <= 0 {
		return nil, platforms.Fail(platforms.Unknown, r.Error("", ""))
	}
	next := maps.Clone(channel.Credentials)
	next[platforms.AccessToken] = result.AccessToken
	next[platforms.ExpiresAt] = strconv.FormatInt(s.config.Now().Add(life).UnixMilli(), 10)
	return next, nil
}

// Signal implements [platforms.Signaler]. Messenger and photo service have separate actions for reading and typing
// (developers.facebook.com/docs/messenger-platform/send-messages/sender-actions).
func (s *social) Signal(ctx context.Context, signal *platforms.Signal) error {
	if signal.Type == ChatApp {
		// It marks the message and all earlier ones as read, without which the platform shows no typing
		// (developers.facebook.com/documentation/business-messaging/whatsapp/typing-indicators).
		_, err := s.callNumber(ctx, signal.ExternalID, signal.Credentials, &platforms.Request{
			Method: http.MethodPost, Path: "/messages", JSON: object{
				"messaging_product": "whatsapp", "status": "read", "message_id": signal.MessageID, "typing_indicator": object{"type": "text"},
			},
		}, &struct{}{})
		return err
	}
	actions := []string{"mark_seen", "typing_on"}
	if signal.Again {
		actions = actions[1:]
	}
	for _, action := range actions {
		_, err := s.call(ctx, signal.Type, signal.Credentials, &platforms.Request{
			Method: http.MethodPost, Path: "/me/messages", JSON: object{"recipient": object{"id": signal.Address}, "sender_action": action},
		}, &struct{}{})
		if err != nil {
			return err
		}
	}
	return nil
}
