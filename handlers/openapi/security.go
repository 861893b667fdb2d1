package openapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// The security schemes of the description.
const (
	schemeBearer  = "bearer"
	schemeAPIKey  = "apiKey"
	schemeSession = "session"
	schemeVisitor = "visitor"
)

// securitySchemes returns the kinds of credentials: keys, sessions and the signatures of the platforms under the header names in
// use; signatureHeaders has the headers that the operator changed.
func securitySchemes(catalog *messaging.Catalog, signatureHeaders map[string]string) map[string]*huma.SecurityScheme {
	header := func(configured, usual, text string) *huma.SecurityScheme {
		if configured == "" {
			configured = usual
		}
		return &huma.SecurityScheme{Type: "apiKey", In: "header", Name: configured, Description: text}
	}
	schemes := map[string]*huma.SecurityScheme{
		schemeBearer: {
			Type: "http", Scheme: "bearer", BearerFormat: "ck_live_… or ck_test_…",
			Description: "An API key of the organization. Each operation names the scope that the key needs. " +
				"A test key is refused where only what is live can be read or changed.",
		},
		schemeAPIKey: header("", "X-Api-Key", "The same key, for libraries that can't change Authorization. It wins over Authorization."),
		schemeSession: {
			Type: "apiKey", In: "cookie", Name: handlers.SessionCookie,
			Description: "A person who signed in with POST /session; " + handlers.LocalSessionCookie + " over plain http on this machine. " +
				"Each operation names the role that the person needs at least. A request that another site made is refused.",
		},
		schemeVisitor: {
			Type: "http", Scheme: "bearer",
			Description: "The token that POST /widget/{channelId}/session gives to a page of the channel's origins.",
		},
	}
	for _, p := range catalog.Platforms() {
		schemes[webhookScheme(p)] = header(signatureHeaders[p.Name], p.SignatureHeader, p.SignatureHelp)
	}
	return schemes
}

// webhookScheme names the signature of a platform: market_a has marketASignature, the bot platform botSecret.
func webhookScheme(p *platforms.Description) string {
	name := upperCamel(p.Name)
	name = strings.ToLower(name[:1]) + name[1:]
	if p.ChannelWebhooks {
		return name + "Secret"
	}
	return name + "Signature"
}

// securityOf returns a route's security: a key with the scope, a person with the role, or none.
func securityOf(route handlers.Route) []map[string][]string {
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
