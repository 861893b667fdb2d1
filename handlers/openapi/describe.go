package openapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// describer builds the interface description from the operations of the endpoint groups and the descriptions of the
// hand-written handlers. It works only when the description is built, and costs no request anything.
type describer struct {
	config Config
	codes  []codeDoc
	// own has the schemas of the hand-written handlers; the groups have a registry of their own.
	own      huma.Registry
	document *huma.OpenAPI
	faults   []error
}

// describe returns the description of all routes: the routes of server, [v1.Routes], [webhook.Routes] and
// ownRoutes. The error names routes without a description and descriptions without a route.
func describe(server *endpoint.Server, config Config, codes []codeDoc) (*huma.OpenAPI, error) {
	operations := server.Description()
	d := &describer{config: config, codes: codes, own: huma.NewMapRegistry(endpoint.SchemaPrefix, endpoint.SchemaName)}
	d.document = &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "caddy-svc", Version: cmp.Or(config.Version, "devel"),
			Description: introduction,
			License:     &huma.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"},
			Extensions:  map[string]any{summaryKey: headline}, // new in OpenAPI 3.1, and in huma not yet
		},
		Servers: []*huma.Server{{URL: config.BaseURL}},
		Tags:    tags,
		Components: &huma.Components{
			Schemas:         schemas{Registry: operations.Components.Schemas, own: d.own},
			SecuritySchemes: securitySchemes(config.Catalog, config.SignatureHeaders),
			Headers:         headers,
		},
	}
	if config.Operator {
		d.document.Info.Description, d.document.Info.Extensions[summaryKey] = operatorIntroduction, operatorHeadline
		d.document.Servers[0].URL, d.document.Tags = "/", operatorTags // the address of a private listener isn't known
		d.document.Components.SecuritySchemes = map[string]*huma.SecurityScheme{schemeOperator: {
			Type: "http", Scheme: "bearer", BearerFormat: "ck_operator_…",
			Description: "An operator's key, made with `caddy svc operator key create`. Each operation names the scope that the key needs.",
		}}
	}
	d.addErrorSchema()
	for _, operation := range operationsOf(operations) {
		route, ok := endpoint.RouteOf(operation)
		if !ok {
			d.faults = append(d.faults, fmt.Errorf("the operation %s has no route", operation.OperationID))
			continue
		}
		d.add(operation, route)
	}
	if !config.Operator {
		d.addHandWritten()
		d.addExamples()
	}
	return d.document, errors.Join(d.faults...)
}

// handWritten is the description of a route with a hand-written handler.
type handWritten func(d *describer) *huma.Operation

func (d *describer) addHandWritten() {
	known := handWrittenOperations()
	maps.Copy(known, webhookOperations(d.config.Catalog))
	for _, route := range slices.Concat(v1.Routes(), webhook.Routes(d.config.Catalog), ownRoutes()) {
		name := route.Method + " " + route.Path
		describe, ok := known[name]
		if !ok {
			d.faults = append(d.faults, errors.New("nobody described "+name))
			continue
		}
		delete(known, name)
		operation := describe(d)
		operation.Method, operation.Path, operation.Summary = route.Method, route.Path, route.Summary
		d.add(operation, route)
	}
	for name := range known {
		d.faults = append(d.faults, errors.New("there is no route "+name))
	}
}

// handWrittenOperations returns an entry for each of [v1.Routes] and ownRoutes.
func handWrittenOperations() map[string]handWritten {
	return map[string]handWritten{
		"GET /v1/models": func(d *describer) *huma.Operation {
			return got("listModels", d.jsonResponse("The models", reflect.TypeFor[modelListObject]()))
		},
		"GET /v1/models/{id}": func(d *describer) *huma.Operation {
			id := pathParameter("id", "The model's id. Its slash may be sent as it is or as %2F.")
			return got("getModel", d.jsonResponse("The model", reflect.TypeFor[v1.ModelObject]()), id)
		},
		"POST /v1/chat/completions": describeChat,
		"GET /docs": func(*describer) *huma.Operation {
			answer := descriptionResponse()
			answer.Content["text/html"] = &huma.MediaType{Schema: anyText}
			return got("getDocs", answer)
		},
		"GET /docs/openapi.json": func(*describer) *huma.Operation { return got("getDescription", descriptionResponse()) },
		"GET /docs/openapi.yaml": func(*describer) *huma.Operation {
			return got("getDescriptionAsYAML", textResponse("The description", "application/yaml"))
		},
		"GET /widget/{channelId}": func(*describer) *huma.Operation {
			return got("getWidgetPage", textResponse("Shown in frames of the channel's origins only", "text/html"), widgetParameter())
		},
		"GET /widget/{channelId}/widget.js": func(*describer) *huma.Operation {
			return got("getWidgetScript", textResponse("Adds the frame to the page", "text/javascript"), widgetParameter())
		},
	}
}

// got describes an operation of GET with one successful answer.
func got(id string, answer *huma.Response, parameters ...*huma.Param) *huma.Operation {
	return &huma.Operation{OperationID: id, Parameters: parameters, Responses: map[string]*huma.Response{"200": answer}}
}

func widgetParameter() *huma.Param { return pathParameter("channelId", "A channel of type widget") }

// add adds an operation to the description, with its route's tag, security and errors.
func (d *describer) add(operation *huma.Operation, route handlers.Route) {
	operation.Tags = []string{tagOf(route.Path)}
	if of := visitorOperations[operation.OperationID]; of != nil {
		operation.Security = of
	} else if operation.Security == nil {
		operation.Security = securityOf(route)
	}
	operation.Responses = d.responses(operation, route)
	d.document.AddOperation(operation)
}

// responses returns the successful responses, with the headers that all answers have, and the errors.
func (d *describer) responses(operation *huma.Operation, route handlers.Route) map[string]*huma.Response {
	all := make(map[string]*huma.Response, len(operation.Responses)+4)
	for status, response := range operation.Responses {
		if status == "default" {
			continue
		}
		copied := *response
		copied.Content = maps.Clone(response.Content)
		copied.Headers = map[string]*huma.Param{handlers.RequestIDHeader: headerRef(handlers.RequestIDHeader)}
		maps.Copy(copied.Headers, response.Headers)
		if strings.HasPrefix(route.Path, "/v1/") {
			for _, name := range rateLimitHeaders {
				copied.Headers[name] = headerRef(name)
			}
		}
		all[status] = &copied
	}
	for _, code := range codesOf(operation, route) {
		status := strconv.Itoa(code.Status())
		response := all[status]
		if response == nil {
			response = d.errorResponse(code.Status())
			all[status] = response
		}
		codes, _ := response.Extensions[codesKey].([]string)
		codes = append(codes, string(code))
		response.Extensions[codesKey], response.Description = codes, "`"+strings.Join(codes, "`, `")+"`"
	}
	return all
}

func (d *describer) schema(of reflect.Type) *huma.Schema { return d.own.Schema(of, true, "") }

func (d *describer) jsonResponse(description string, of reflect.Type) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{"application/json": {Schema: d.schema(of)}},
	}
}

var anyText = &huma.Schema{Type: huma.TypeString}

func textResponse(description, mediaType string) *huma.Response {
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{mediaType: {Schema: anyText}}}
}

func pathParameter(name, description string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: description, Schema: anyText}
}

// operationsOf returns the operations of a description in the order of their paths, then methods.
func operationsOf(document *huma.OpenAPI) []*huma.Operation {
	var all []*huma.Operation
	for _, item := range document.Paths {
		for _, operation := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if operation != nil {
				all = append(all, operation)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *huma.Operation) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// summaryKey is the member of the description's info that has the headline.
const summaryKey = "summary"

const operatorHeadline = "The interface of the operator"

const operatorIntroduction = `The interface of who operates the service, on a private listener. Bodies, lists and errors have the form of the ` +
	`organizations' interface: lists are pages with ` + "`data` and `nextCursor`" + `, and amounts of money are decimal strings of micros.

` + "`-`" + ` in place of an organization's id stands for the owner of the ` + "`id`" + ` in the path.

A POST can be repeated: by its ` + "`externalId` or `reference`" + `, or with an Idempotency-Key. Each change is in the audit log with the name of ` +
	`the key, and of the person that X-Actor names.`

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

// operatorTags are the groups of the operator's interface.
var operatorTags = []*huma.Tag{
	{Name: "Organizations", Description: "The service's customers: sign-up, plan, suspension."},
	{Name: "API keys", Description: "The API keys of an organization."},
	{Name: "Models", Description: "The models that an organization may call. A new one has all."},
	{Name: "Channels", Description: "The channels of an organization, without their credentials."},
	{Name: "Members", Description: "The people of an organization, and their one-time links."},
	{Name: "Wallet", Description: "An organization's balance, credits, corrections, transactions and calls."},
	{Name: "Queue", Description: "Messages of customers that wait for an answer, or got none."},
	{Name: "Service", Description: "The state of the service, and who changed what."},
}

// operatorGroups are the tags of the operator's routes, by the first segment of the path after the prefix or the organization.
var operatorGroups = map[string]string{
	"": "Organizations", "organizations": "Organizations", "suspend": "Organizations", "resume": "Organizations", "plan": "Organizations",
	"api-keys": "API keys", "models": "Models", "channels": "Channels", "members": "Members", "wallet": "Wallet", "calls": "Wallet",
	"queue": "Queue", "turns": "Queue", "conversations": "Queue",
}

func tagOf(path string) string {
	if path, operator := strings.CutPrefix(path, operatorPath+"/"); operator {
		path = strings.TrimPrefix(strings.TrimPrefix(path, "organizations/{orgId}"), "/")
		group, _, _ := strings.Cut(path, "/")
		return cmp.Or(operatorGroups[group], "Service")
	}
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
	return &huma.Param{Description: description, Schema: anyText}
}

func headerRef(name string) *huma.Param { return &huma.Param{Ref: "#/components/headers/" + name} }

// schemas joins the schemas of the groups and of the hand-written handlers.
type schemas struct {
	huma.Registry

	own huma.Registry
}

// Map returns copies of all schemas, without additionalProperties: its absence says that unknown members are ignored. The schemas
// that check requests stay unchanged.
func (s schemas) Map() map[string]*huma.Schema {
	all := make(map[string]*huma.Schema)
	for _, registry := range []huma.Registry{s.Registry, s.own} {
		for name, schema := range registry.Map() {
			copied := *schema
			copied.AdditionalProperties = nil
			all[name] = &copied
		}
	}
	return all
}

func (s schemas) SchemaFromRef(ref string) *huma.Schema {
	return s.Map()[strings.TrimPrefix(ref, endpoint.SchemaPrefix)]
}

func (s schemas) MarshalJSON() ([]byte, error) {
	all := s.Map()
	for _, schema := range all {
		properties := make(map[string]*huma.Schema, len(schema.Properties))
		for member, property := range schema.Properties {
			properties[member] = standard(property)
		}
		schema.Properties = properties
	}
	return json.Marshal(all, json.Deterministic(true))
}

// standard returns a member's schema in words of JSON Schema that generators of clients understand: a word or null is described as
// either, because an enum also holds for null, and patternDescription, huma's own, begins the description.
func standard(property *huma.Schema) *huma.Schema {
	if property.Nullable && len(property.Enum) > 0 {
		return &huma.Schema{
			Description: property.Description,
			AnyOf:       []*huma.Schema{{Type: property.Type, Enum: property.Enum}, {Type: "null"}},
		}
	}
	if words := property.PatternDescription; words != "" {
		copied := *property
		copied.PatternDescription = ""
		copied.Description = strings.ToUpper(words[:1]) + words[1:] + ". " + property.Description
		return &copied
	}
	return property
}

var _ huma.Registry = schemas{}

// The security schemes of the description.
const (
	schemeBearer  = "bearer"
	schemeAPIKey  = "apiKey"
	schemeSession = "session"
	schemeVisitor = "visitor"
	// schemeOperator is in the operator's description alone.
	schemeOperator = "operator"
)

// securitySchemes returns the kinds of credentials: keys, sessions and the signatures of the platforms under the header names in
// use; signatureHeaders has the headers that the operator changed.
func securitySchemes(catalog *messaging.Catalog, signatureHeaders map[string]string) map[string]*huma.SecurityScheme {
	header := func(name, text string) *huma.SecurityScheme {
		return &huma.SecurityScheme{Type: "apiKey", In: "header", Name: name, Description: text}
	}
	schemes := map[string]*huma.SecurityScheme{
		schemeBearer: {
			Type: "http", Scheme: "bearer", BearerFormat: "ck_live_… or ck_test_…",
			Description: "An API key of the organization. Each operation names the scope that the key needs. " +
				"A test key is refused where only what is live can be read or changed.",
		},
		schemeAPIKey: header("X-Api-Key", "The same key, for libraries that can't change Authorization. It wins over Authorization."),
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
		schemes[webhookScheme(p)] = header(cmp.Or(signatureHeaders[p.Name], p.SignatureHeader), p.SignatureHelp)
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
	if strings.HasPrefix(route.Path, operatorPath+"/") {
		return append(ways, map[string][]string{schemeOperator: {string(route.OperatorScope)}})
	}
	if route.Scope != "" {
		scope := []string{string(route.Scope)}
		ways = append(ways, map[string][]string{schemeBearer: scope}, map[string][]string{schemeAPIKey: scope})
	}
	if route.Role != "" {
		ways = append(ways, map[string][]string{schemeSession: {string(route.Role)}})
	}
	return ways
}
