package platforms

import "time"

// Window is how long after the customer's last message a business may still write freely: 24 hours on the social
// platform, 7 days on the local chat platform (its 48 hours are about billing), 0 = no limit elsewhere
// (notes/platforms.md §1.10, §4).
func Window(t Type) time.Duration {
	switch t {
	case SocialMessenger, PhotoDM, ChatApp:
		return 24 * time.Hour
	case LocalChat:
		return 7 * 24 * time.Hour
	case Bot, MarketA, MarketB, Widget:
	}
	return 0
}

// WindowCode is the public error code (spec §7.2) for a message after the [Window]: template_required where the platform
// knows templates (the chat app), service_window_expired elsewhere.
func WindowCode(t Type) string {
	if t == ChatApp {
		return codeTemplateRequired
	}
	return codeWindowExpired
}
