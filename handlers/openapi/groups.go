package openapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
)

const headline = "Model gateway, conversational assistants and their channels"

const introduction = `The interface of the service for businesses that run assistants on messaging channels.

An existing OpenAI client works after its base URL is changed to ` + "`/v1`" + ` of this address. All bodies are JSON unless ` +
	`stated; unknown members of a request are ignored, and a client should ignore members of an answer that it doesn't know. ` +
	`Every answer has the header X-Request-Id; quote it when you report a problem. Amounts of money are decimal strings of ` +
	`micros, millionths of the currency unit.`

// tags are the groups of routes in the order in which the page shows them.
var tags = []*huma.Tag{
	{Name: "Models", Description: "The OpenAI-compatible endpoints."},
	{Name: "Webhooks", Description: "Where messaging platforms deliver what customers write. A delivery is verified, queued and " +
		"acknowledged; the answer to the customer comes later."},
	{Name: "API keys", Description: "The organization's API keys."},
	{Name: "Provider keys", Description: "The organization's own keys for model providers (BYOK)."},
	{Name: "Agents", Description: "Assistants: model, system instructions, attached knowledge bases."},
	{Name: "Knowledge bases", Description: "Knowledge bases and the documents in them."},
	{Name: "Channels", Description: "Messaging channels and how they are connected to their platform."},
	{Name: "Conversations", Description: "Conversations, messages, handover to a human."},
	{Name: "Wallet", Description: "Balance, transactions, costs of calls."},
	{Name: "Event endpoints", Description: "Addresses of your own systems that are told of events by signed webhooks: handovers, messages " +
		"that need attention, customers who wait, channels to reconnect, a wallet that runs low."},
	{Name: "Widget", Description: "The web widget: for pages of the domains that its channel names, without a key."},
	{Name: "Organization", Description: "The organization and its settings."},
	{Name: "Session", Description: "Sign-in of people, for the dashboard."},
	{Name: "Members", Description: "The people of the organization."},
	{Name: "Audit log", Description: "Who changed what."},
	{Name: "Interface description", Description: "This description."},
}

func tagOf(path string) string {
	group, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch group {
	case "v1":
		return "Models"
	case "docs":
		return "Interface description"
	case "api-keys":
		return "API keys"
	default:
		words := strings.ReplaceAll(group, "-", " ")
		return strings.ToUpper(words[:1]) + words[1:]
	}
}

// rateLimitHeaders are on every answer of /v1.
var rateLimitHeaders = []string{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"}

// replayedHeader is on replayed answers of model calls.
const replayedHeader = handlers.HeaderReplayed

// headers are the response headers that routes share.
var headers = map[string]*huma.Param{
	handlers.RequestIDHeader: textHeader("The id of the request, in the body of an error, too. It starts with req_."),
	"Retry-After":            {Description: "Seconds until a retry makes sense, 1 to 60.", Schema: &huma.Schema{Type: huma.TypeInteger}},
	rateLimitHeaders[0]:      textHeader("The plan's requests per minute; absent without a limit."),
	rateLimitHeaders[1]:      textHeader("How many of them are left in this minute."),
	rateLimitHeaders[2]:      textHeader("The time until the next minute begins."),
	replayedHeader: textHeader("true: the answer was given before, to a request with the same Idempotency-Key; it is not " +
		"charged again."),
}

func textHeader(description string) *huma.Param {
	return &huma.Param{Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
}

func headerRef(name string) *huma.Param { return &huma.Param{Ref: "#/components/headers/" + name} }
