package platforms

import "slices"

// Type is what a channel is connected to. Its values are those of spec §4.3 and design §6 ("channel types"); they are
// stored, and part of the public interface.
type Type string

// The channel types.
const (
	// Bot is the bot platform: one webhook address per channel.
	Bot Type = "bot"
	// SocialMessenger is the messenger of the social platform, routed by page id.
	SocialMessenger Type = "social_messenger"
	// PhotoDM is direct messages of the photo-sharing service of the social platform, routed by account id.
	PhotoDM Type = "photo_dm"
	// ChatApp is chat-app business messages of the social platform, routed by phone number id.
	ChatApp Type = "chat_app"
	// LocalChat is the local chat platform, routed by official account id.
	LocalChat Type = "localchat"
	// MarketA is marketplace A, routed by shop id.
	MarketA Type = "market_a"
	// MarketB is marketplace B, routed by shop or seller id.
	MarketB Type = "market_b"
	// Widget is the service's own web widget: no platform, nothing to extract or send here.
	Widget Type = "widget"
)

// Types returns every channel type, in the order of design §6.
func Types() []Type {
	return []Type{Bot, SocialMessenger, PhotoDM, ChatApp, LocalChat, MarketA, MarketB, Widget}
}

// Known tells whether t is a channel type.
func (t Type) Known() bool {
	return slices.Contains(Types(), t)
}
