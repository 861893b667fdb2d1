package caddymodule

import (
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// Platforms says how the messaging platforms and marketplaces are spoken to, both ways: their webhooks are checked
// with it and replies are sent with it (spec §5.3). What belongs to one channel, such as its tokens, is stored with
// the channel instead.
type Platforms struct {
	// The bot platform. Its secrets belong to channels, so it works without a block, too.
	Bot *BotPlatform `json:"bot,omitempty"`

	// The social platform: messenger, photo-sharing direct messages and chat-app business messages.
	Social *SocialPlatform `json:"social,omitempty"`

	// The local chat platform (official accounts).
	LocalChat *LocalChatPlatform `json:"localchat,omitempty"`

	// Marketplace A.
	MarketA *MarketAPlatform `json:"market_a,omitempty"`

	// Marketplace B.
	MarketB *MarketBPlatform `json:"market_b,omitempty"`
}

// The names of the platforms in the configuration, in the order of spec §4.3.
const (
	platformBot       = "bot"
	platformSocial    = "social"
	platformLocalChat = "localchat"
	platformMarketA   = "market_a"
	platformMarketB   = "market_b"
)

var platformNames = []string{platformBot, platformSocial, platformLocalChat, platformMarketA, platformMarketB}

// AckEmpty as a platform's ack answers accepted webhooks with an empty body.
const AckEmpty = "empty"

// Platform is what all platforms can be told.
type Platform struct {
	// The name of the header that carries the webhook's signature or secret. Default: the one of the public contract.
	Header string `json:"header,omitempty"`

	// The address that the paths of the platform's interface are appended to: http or https, host, an optional port
	// and path. Default: the address of the platform.
	APIBase string `json:"api_base,omitempty"`

	// What answers an accepted webhook: `empty` for a 200 without a body, for platforms that read it. Default: the
	// acknowledgement of the public contract, `{"ok":true,"queued":1}`.
	Ack string `json:"ack,omitempty"`
}

// BotPlatform is the bot platform. The secret token and the bot token belong to each channel.
type BotPlatform struct {
	Platform
}

// SocialPlatform is the application that is registered with the social platform.
type SocialPlatform struct {
	Platform

	// The secret of the application, which signs its webhooks. Required.
	AppSecret config.Secret `json:"app_secret,omitempty"`

	// The token that the platform sends with the handshake of a webhook subscription. Required.
	VerifyToken config.Secret `json:"verify_token,omitempty"`

	// The values of `object` that name the channel types.
	Objects *SocialObjects `json:"objects,omitempty"`
}

// SocialObjects are the values of the top-level field `object` of the social platform's webhooks (spec §4.3).
type SocialObjects struct {
	// Of messenger events. Default: `page`.
	Page string `json:"page,omitempty"`

	// Of photo-sharing direct messages. Default: `instagram`.
	PhotoDM string `json:"photo_dm,omitempty"`

	// Of chat-app business messages. Default: `whatsapp_business_account`.
	ChatApp string `json:"chat_app,omitempty"`
}

// LocalChatPlatform is the application that is registered with the local chat platform.
type LocalChatPlatform struct {
	Platform

	// The address of the service that renews tokens. Default: the address of the platform.
	AuthBase string `json:"auth_base,omitempty"`

	// The id of the application; it may be one `{env.NAME}` or `{file.PATH}`. Required.
	AppID config.Identifier `json:"app_id,omitempty"`

	// The secret of the application, which signs its webhooks. Required.
	AppSecret config.Secret `json:"app_secret,omitempty"`
}

// MarketAPlatform is the partner account with marketplace A.
type MarketAPlatform struct {
	Platform

	// The id of the partner, a whole number; it may be one `{env.NAME}` or `{file.PATH}`. Required.
	PartnerID config.Identifier `json:"partner_id,omitempty"`

	// The key of the partner, which signs webhooks and calls. Required.
	PartnerKey config.Secret `json:"partner_key,omitempty"`
}

// MarketBPlatform is the application that is registered with marketplace B.
type MarketBPlatform struct {
	Platform

	// The address of the service that renews tokens. Default: the address of the platform.
	AuthBase string `json:"auth_base,omitempty"`

	// The key that names the application, not a secret; it may be one `{env.NAME}` or `{file.PATH}`. Required.
	AppKey config.Identifier `json:"app_key,omitempty"`

	// The secret of the application, which signs webhooks and calls. Required.
	AppSecret config.Secret `json:"app_secret,omitempty"`
}

// configured reports whether webhooks of the platform can be served: it has a block, or needs none.
func (p *Platforms) configured(name string) bool {
	switch {
	case name == platformBot:
		return true
	case p == nil:
		return false
	case name == platformSocial:
		return p.Social != nil
	case name == platformLocalChat:
		return p.LocalChat != nil
	case name == platformMarketA:
		return p.MarketA != nil
	case name == platformMarketB:
		return p.MarketB != nil
	default:
		return false
	}
}

func (p *Platforms) faults(fs *config.Faults) {
	if p == nil {
		return
	}
	if p.Bot != nil {
		p.Bot.faults(fs, platformPath(platformBot))
	}
	if p.Social != nil {
		p.Social.faults(fs, platformPath(platformSocial))
	}
	if p.LocalChat != nil {
		p.LocalChat.faults(fs, platformPath(platformLocalChat))
	}
	if p.MarketA != nil {
		p.MarketA.faults(fs, platformPath(platformMarketA))
	}
	if p.MarketB != nil {
		p.MarketB.faults(fs, platformPath(platformMarketB))
	}
}

func platformPath(name string) string { return config.Element("platform", name) }

func (p *Platform) faults(fs *config.Faults, path string) {
	if p.Header != "" && !headerName(p.Header) {
		fs.Addf(path+".header", "%s is no name of a header", config.Quoted(p.Header))
	}
	platformURLFaults(fs, path+".api_base", p.APIBase)
	if p.Ack != "" && p.Ack != AckEmpty {
		fs.Addf(path+".ack", "%s is not known; allowed: %s", config.Quoted(p.Ack), AckEmpty)
	}
}

func (p *SocialPlatform) faults(fs *config.Faults, path string) {
	p.Platform.faults(fs, path)
	p.AppSecret.CheckRequired(fs, path+".app_secret")
	p.VerifyToken.CheckRequired(fs, path+".verify_token")
	p.objects().faults(fs, path)
}

// objects are the values of `object` with the defaults left empty.
func (p *SocialPlatform) objects() SocialObjects {
	if p == nil || p.Objects == nil {
		return SocialObjects{}
	}
	return *p.Objects
}

func (o SocialObjects) faults(fs *config.Faults, path string) {
	effective := o.withDefaults()
	seen := make(map[string]string, 3)
	for _, object := range []struct{ name, value string }{
		{"page", effective.Page}, {"photo_dm", effective.PhotoDM}, {"chat_app", effective.ChatApp},
	} {
		objectPath := path + ".object[" + object.name + "]"
		if !config.Printable(object.value, 64) {
			fs.Addf(objectPath, "must be at most 64 characters, none of them a control character")
		}
		if other, taken := seen[object.value]; taken {
			fs.Addf(objectPath, "%s is the value of %s already; webhooks could not be told apart", config.Quoted(object.value), other)
			continue
		}
		seen[object.value] = object.name
	}
}

// withDefaults fills in the values that real webhooks carry.
func (o SocialObjects) withDefaults() SocialObjects {
	for _, field := range []struct {
		value    *string
		fallback string
	}{{&o.Page, "page"}, {&o.PhotoDM, "instagram"}, {&o.ChatApp, "whatsapp_business_account"}} {
		if *field.value == "" {
			*field.value = field.fallback
		}
	}
	return o
}

func (p *LocalChatPlatform) faults(fs *config.Faults, path string) {
	p.Platform.faults(fs, path)
	platformURLFaults(fs, path+".auth_base", p.AuthBase)
	p.AppID.Check(fs, path+".app_id")
	p.AppSecret.CheckRequired(fs, path+".app_secret")
}

func (p *MarketAPlatform) faults(fs *config.Faults, path string) {
	p.Platform.faults(fs, path)
	p.PartnerID.Check(fs, path+".partner_id")
	if p.PartnerID != "" && !config.Secret(p.PartnerID).IsReference() && config.IsIdentifier(string(p.PartnerID)) {
		partnerIDFaults(fs, string(p.PartnerID))
	}
	p.PartnerKey.CheckRequired(fs, path+".partner_key")
}

func (p *MarketBPlatform) faults(fs *config.Faults, path string) {
	p.Platform.faults(fs, path)
	platformURLFaults(fs, path+".auth_base", p.AuthBase)
	p.AppKey.Check(fs, path+".app_key")
	p.AppSecret.CheckRequired(fs, path+".app_secret")
}

// headerName reports whether text can be the name of a header (RFC 9110 §5.1).
func headerName(text string) bool {
	const signs = "!#$%&'*+-.^_`|~"
	return len(text) <= 128 && !slices.ContainsFunc([]byte(text), func(c byte) bool {
		letterOrDigit := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letterOrDigit && strings.IndexByte(signs, c) < 0
	})
}

// platformURLFaults never quotes the address: a user part or a token in it would be a secret.
func platformURLFaults(fs *config.Faults, path, address string) {
	const example = "e.g. https://api.example.com"
	if address == "" {
		return
	}
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", !validHost(u):
		fs.Addf(path, "must be an http or https address with a host and no placeholders, %s", example)
	case u.User != nil:
		fs.Addf(path, "takes no user and no password, %s", example)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		fs.Addf(path, "takes no query and no fragment, %s", example)
	}
}
