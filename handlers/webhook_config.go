package handlers

import "github.com/caddy-svc/caddy-svc/internal/platforms"

// WebhookConfig is what the operator says about the platforms that deliver. A platform whose secrets are empty verifies
// nothing: all its deliveries are 401. In each part Header is the name of the header with the signature, empty for that
// of spec §5.3, and AckEmpty answers an accepted delivery with 200 and no body instead of {"ok":true,"queued":n}
// (notes/platforms.md §1.1: the platform that marketplace A stands for takes anything else for a failure).
type WebhookConfig struct {
	// BaseURL is the service's own address without a trailing slash; marketplace A signs it.
	BaseURL   string
	Bot       BotWebhook
	Social    SocialWebhook
	LocalChat LocalChatWebhook
	MarketA   MarketAWebhook
	MarketB   MarketBWebhook
}

// BotWebhook is the bot platform. Its secrets are the channels'.
type BotWebhook struct {
	Header   string
	AckEmpty bool
}

// SocialWebhook is the social platform. VerifyToken is for the handshake.
type SocialWebhook struct {
	AppSecret, VerifyToken, Header string
	Objects                        platforms.Objects
	AckEmpty                       bool
}

// LocalChatWebhook is the local chat platform.
type LocalChatWebhook struct {
	AppID, AppSecret, Header string
	AckEmpty                 bool
}

// MarketAWebhook is marketplace A.
type MarketAWebhook struct {
	PartnerKey, Header string
	AckEmpty           bool
}

// MarketBWebhook is marketplace B.
type MarketBWebhook struct {
	AppKey, AppSecret, Header string
	AckEmpty                  bool
}
