package handlers

import "github.com/caddy-svc/caddy-svc/internal/platforms"

// The paths of the webhooks (spec §4.3). Everything else about them is in [Webhooks].
const (
	botPath       = "/webhooks/bot/"
	socialPath    = "/webhooks/social"
	localChatPath = "/webhooks/localchat"
	marketAPath   = "/webhooks/market-a"
	marketBPath   = "/webhooks/market-b"
)

// WebhookURL is the address that is entered at a channel's platform (spec §4.4): the channel's own on the bot platform, the
// platform's common one elsewhere, "" for a type without a webhook. baseURL has no trailing slash.
func WebhookURL(baseURL string, channel platforms.Type, channelID string) string {
	switch channel {
	case platforms.Bot:
		return baseURL + botPath + channelID
	case platforms.SocialMessenger, platforms.PhotoDM, platforms.ChatApp:
		return baseURL + socialPath
	case platforms.LocalChat:
		return baseURL + localChatPath
	case platforms.MarketA:
		return baseURL + marketAPath
	case platforms.MarketB:
		return baseURL + marketBPath
	default:
		return ""
	}
}
