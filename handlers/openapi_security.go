package handlers

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/verify"
)

// The security schemes of the description.
const (
	schemeBearer    = "bearer"
	schemeAPIKey    = "apiKey"
	schemeSession   = "session"
	schemeBot       = "botSecret"
	schemeSocial    = "socialSignature"
	schemeLocalChat = "localchatSignature"
	schemeMarketA   = "marketASignature"
	schemeMarketB   = "marketBSignature"
	schemeVisitor   = "visitor"
)

// securitySchemes are the ways in: keys, sessions and the signatures of spec §5.3 under the header names in use.
func securitySchemes(c WebhookConfig) map[string]*huma.SecurityScheme {
	header := func(configured, usual, text string) *huma.SecurityScheme {
		if configured == "" {
			configured = usual
		}
		return &huma.SecurityScheme{Type: "apiKey", In: "header", Name: configured, Description: text}
	}
	return map[string]*huma.SecurityScheme{
		schemeBearer: {
			Type: "http", Scheme: "bearer", BearerFormat: "ck_live_… or ck_test_…",
			Description: "An API key of the organization. Each operation names the scope that the key needs.",
		},
		schemeAPIKey: header("", "X-Api-Key", "The same key, for libraries that can't change Authorization. It wins over Authorization."),
		schemeSession: {
			Type: "apiKey", In: "cookie", Name: sessionCookie,
			Description: "A person who signed in with POST /session; " + localSessionCookie + " over plain http on this machine. " +
				"Each operation names the role that the person needs at least. A request that another site made is refused.",
		},
		schemeVisitor: {
			Type: "http", Scheme: "bearer",
			Description: "The token that POST /widget/{channelId}/session gives to a page of the channel's origins.",
		},
		schemeBot: header(c.Bot.Header, verify.BotHeader, "The secret token that was given when the webhook was registered."),
		schemeSocial: header(c.Social.Header, verify.SocialHeader,
			"sha256= and the HMAC-SHA256 of the raw body in hex, with the app secret as its key."),
		schemeLocalChat: header(c.LocalChat.Header, verify.LocalChatHeader,
			"mac= and the SHA-256 in hex of app id, raw body, the body's timestamp and the app secret, one after the other."),
		schemeMarketA: header(c.MarketA.Header, verify.MarketAHeader,
			"The HMAC-SHA256 in hex of the callback address, | and the raw body, with the partner key as its key."),
		schemeMarketB: header(c.MarketB.Header, verify.MarketBHeader,
			"The HMAC-SHA256 in hex of app key and raw body, one after the other, with the app secret as its key."),
	}
}

// securityOf says who may use a route: a key with the scope, a person with the role, or everybody.
func securityOf(route Route) []map[string][]string {
	ways := []map[string][]string{}
	if route.Scope != "" {
		scope := []string{string(route.Scope)}
		ways = append(ways, map[string][]string{schemeBearer: scope}, map[string][]string{schemeAPIKey: scope})
	}
	if route.Role != "" {
		ways = append(ways, map[string][]string{schemeSession: {string(route.Role)}})
	}
	return ways
}
