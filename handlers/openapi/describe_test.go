package openapi

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

// description returns the description that [New] makes.
var description = sync.OnceValues(func() (*huma.OpenAPI, error) {
	codes := make([]codeDoc, 0, len(errcode.All()))
	for _, code := range errcode.All() {
		codes = append(codes, codeDoc{Code: code, Cause: "cause", Client: "client"})
	}
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	if err != nil {
		return nil, err
	}
	return describe(api.New(api.Deps{Catalog: catalog}), Config{BaseURL: "https://svc.example", Catalog: catalog}, codes)
})

func described(t testing.TB) *huma.OpenAPI {
	t.Helper()
	document, err := description()
	require.NoError(t, err)
	return document
}

// Every route is described with its parameters and credentials, and nothing else is described.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	missing := map[string]handlers.Route{}
	for _, route := range slices.Concat(v1.Routes(), webhook.Routes(handlertest.BuiltinPlatforms(t).Catalog), ownRoutes(), api.New(api.Deps{Catalog: handlertest.BuiltinPlatforms(t).Catalog}).Routes()) {
		missing[route.Method+" "+route.Path] = route
	}
	ids := map[string]bool{}
	document := described(t)
	for _, operation := range operationsOf(document) {
		name := operation.Method + " " + operation.Path
		route, ok := missing[name]
		require.True(t, ok, "%s is described and doesn't exist", name)
		delete(missing, name)
		require.False(t, ids[operation.OperationID], "%s is there twice", operation.OperationID)
		ids[operation.OperationID] = true
		require.Equal(t, route.Summary, operation.Summary)
		require.NotEmpty(t, operation.Summary)
		require.True(t, slices.ContainsFunc(document.Tags, func(tag *huma.Tag) bool { return tag.Name == operation.Tags[0] }),
			"%s has the tag %v, which isn't described", name, operation.Tags)
		requireSecurity(t, document, operation, route)
		for _, segment := range regexp.MustCompile(`\{([^}]+)\}`).FindAllStringSubmatch(operation.Path, -1) {
			require.True(t, slices.ContainsFunc(operation.Parameters, func(p *huma.Param) bool {
				return p.In == "path" && p.Name == segment[1] && p.Required
			}), "%s does not describe %s", name, segment[1])
		}
		require.True(t, slices.ContainsFunc([]string{"200", "201", "204"}, func(status string) bool {
			return operation.Responses[status] != nil
		}), "%s has no success", name)
	}
	require.Empty(t, missing, "not described")
	for _, operation := range operationsOf(api.NewOperator(api.Deps{}).Description()) {
		ids[operation.OperationID] = true
	}
	for operation := range specificCodes {
		require.True(t, ids[operation], "there is no operation %s", operation)
	}
}

func requireSecurity(t *testing.T, document *huma.OpenAPI, operation *huma.Operation, route handlers.Route) {
	t.Helper()
	ways := fmt.Sprint(operation.Security)
	for _, way := range operation.Security {
		for scheme := range way {
			require.Contains(t, document.Components.SecuritySchemes, scheme)
		}
	}
	if route.Scope != "" {
		require.Contains(t, ways, "bearer:["+string(route.Scope)+"]")
	}
	if route.Role != "" {
		require.Contains(t, ways, "session:["+string(route.Role)+"]")
	}
	open := route.Public && visitorOperations[operation.OperationID] == nil || operation.OperationID == "verifySocial"
	require.Equal(t, open, len(operation.Security) == 0, "%s: %v", operation.OperationID, ways)
}

// valid returns the errors of a value by a schema of the description, as huma finds them.
func valid(document *huma.OpenAPI, schema *huma.Schema, value any) []error {
	var result huma.ValidateResult
	huma.Validate(document.Components.Schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, value, &result)
	return result.Errors
}

// The schema of a chat request and its decoder, which doesn't use the schema, agree on every bound and beyond it.
func TestChatSchemaIsTheDecoders(t *testing.T) {
	t.Parallel()
	document := described(t)
	schema := &huma.Schema{Ref: endpoint.SchemaPrefix + "ChatBody"}
	const messages = `[{"role":"user","content":"hi"}]`
	member := func(name, value string) string {
		body := map[string]string{"model": `"a/b"`, "messages": messages, name: value}
		var members []string
		for name, value := range body {
			if value != "" {
				members = append(members, `"`+name+`":`+value)
			}
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	content := func(runes int) string { return `[{"role":"user","content":"` + strings.Repeat("é", runes) + `"}]` }
	many := func(n int, element string) string { return "[" + strings.Repeat(element+",", n-1) + element + "]" }
	for _, tt := range []struct {
		name, value string
		good        bool
	}{
		{"model", `"a/b"`, true},
		{"model", "", false},
		{"model", `""`, true},
		{"model", "1", false},
		{"messages", messages, true},
		{"messages", "", false},
		{"messages", "[]", false},
		{"messages", "{}", false},
		{"messages", "[{}]", false},
		{"messages", `[{"role":"robot","content":"hi"}]`, false},
		{"messages", `[{"role":"tool","content":"hi"}]`, true},
		{"messages", `[{"role":"system","content":"hi"}]`, true},
		{"messages", `[{"role":"assistant","content":""}]`, true},
		{"messages", `[{"role":"user"}]`, false},
		{"messages", `[{"content":"hi"}]`, false},
		{"messages", `[{"role":"user","content":["hi"]}]`, false},
		{"messages", content(v1.MaxContentRunes), true},
		{"messages", content(v1.MaxContentRunes + 1), false},
		{"messages", many(v1.MaxMessages, messages[1:len(messages)-1]), true},
		{"messages", many(v1.MaxMessages+1, messages[1:len(messages)-1]), false},
		{"temperature", "0", true},
		{"temperature", "2", true},
		{"temperature", "2.01", false},
		{"temperature", "-0.01", false},
		{"temperature", `"1"`, false},
		{"top_p", "0", true},
		{"top_p", "1", true},
		{"top_p", "1.01", false},
		{"top_p", "-0.01", false},
		{"max_tokens", "1", true},
		{"max_tokens", "200000", true},
		{"max_tokens", "0", false},
		{"max_tokens", "200001", false},
		{"max_tokens", "1.5", false},
		{"stop", "[]", true},
		{"stop", `["a","b"]`, true},
		{"stop", "[1]", false},
		{"stop", many(v1.MaxMessages+1, `"a"`), false},
		{"stream", "true", true},
		{"stream", "false", true},
		{"stream", `"true"`, false},
		{"anything", `{"else":1}`, true},
	} {
		body := member(tt.name, tt.value)
		var value any
		require.NoError(t, json.Unmarshal([]byte(body), &value))
		faults := valid(document, schema, value)
		_, err := v1.DecodeChat([]byte(body))
		require.Equal(t, tt.good, err == nil, "the decoder says %v about %.200s", err, body)
		require.Equal(t, tt.good, len(faults) == 0, "the schema says %v about %.200s", faults, body)
	}
}

// The answers that are written without structs have exactly the members of the description's structs.
func TestChatSchemasAreTheWriters(t *testing.T) {
	t.Parallel()
	result := &gateway.Result{ID: "chatcmpl-1", Model: "a/b", Created: 1, Text: "hi", FinishReason: "stop", ChargedMicros: 7}
	strict := json.RejectUnknownMembers(true)
	chat := &v1.Chat{Gateway: &handlertest.ScriptedCall{Result: *result, Pieces: []string{result.Text}}, Streams: new(v1.Streams), Logger: slog.New(slog.DiscardHandler)}
	ask := func(members string) *http.Request {
		body := `{"model":"a/b","messages":[{"role":"user","content":"x"}]` + members + `}`
		return handlertest.As(httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)), handlertest.Someone())
	}
	w := handlertest.Served(chat.Serve, ask(""))
	var whole chatCompletion
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &whole, strict))
	require.JSONEq(t, w.Body.String(), string(handlers.Marshal(whole)))

	w = handlertest.Served(chat.Serve, ask(`,"stream":true`))
	events := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\ndata: [DONE]\n\n"), "\n\n")
	require.Len(t, events, 4)
	document := described(t)
	for _, event := range events {
		text := strings.TrimPrefix(event, "data: ")
		var chunk chatChunk
		require.NoError(t, json.Unmarshal([]byte(text), &chunk, strict), text)
		require.JSONEq(t, text, string(handlers.Marshal(chunk)))
		var value any
		require.NoError(t, json.Unmarshal([]byte(text), &value))
		require.Empty(t, valid(document, &huma.Schema{Ref: endpoint.SchemaPrefix + "ChatChunk"}, value), text)
	}
}

// A route without a description, and a description without a route, are errors at the start of the service.
func TestUndescribedRoutesAreFaults(t *testing.T) {
	t.Parallel()
	known := handWrittenOperations()
	maps.Copy(known, webhookOperations(handlertest.BuiltinPlatforms(t).Catalog))
	routes := slices.Concat(v1.Routes(), webhook.Routes(handlertest.BuiltinPlatforms(t).Catalog), ownRoutes())
	require.Len(t, known, len(routes))
	for _, route := range routes {
		require.Contains(t, known, route.Method+" "+route.Path)
	}
	_, err := New(api.New(api.Deps{Catalog: handlertest.BuiltinPlatforms(t).Catalog}), Config{})
	require.ErrorContains(t, err, "invalid_request has no entry")
}

// Only the operator configures addresses that the service fetches, but for those of event endpoints, which package egress calls. A
// widget's origins are just compared. Before another one is allowed here, its fetching needs package egress, too.
func TestNoRequestNamesAnAddress(t *testing.T) {
	t.Parallel()
	document := described(t)
	address := regexp.MustCompile(`(?i)(ur[il]s?$|host|endpoint|callback|webhook|origin|redirect|proxy|server)`)
	seen := 0
	var found []string
	var walk func(operation *huma.Operation, schema *huma.Schema)
	walk = func(operation *huma.Operation, schema *huma.Schema) {
		if schema == nil {
			return
		}
		if schema.Ref != "" {
			schema = document.Components.Schemas.SchemaFromRef(schema.Ref)
		}
		for name, property := range schema.Properties {
			seen++
			if address.MatchString(name) || strings.HasPrefix(property.Format, "ur") {
				found = append(found, operation.Method+" "+operation.Path+" "+name)
			}
			walk(operation, property)
		}
		walk(operation, schema.Items)
		for _, one := range slices.Concat(schema.OneOf, schema.AnyOf, schema.AllOf) {
			walk(operation, one)
		}
	}
	for _, operation := range operationsOf(document) {
		if operation.RequestBody == nil {
			continue
		}
		for _, media := range operation.RequestBody.Content {
			walk(operation, media.Schema)
		}
	}
	require.Greater(t, seen, 40)
	require.ElementsMatch(t, []string{"POST /channels origins", "PATCH /channels/{id} origins", "POST /event-endpoints url", "PATCH /event-endpoints/{id} url"}, found)
}

// TestOperatorsDescription: the operator's routes have a description of their own, with the scope, the headers and the errors of each, and
// the organizations' description has none of them.
func TestOperatorsDescription(t *testing.T) {
	t.Parallel()
	catalog := handlertest.BuiltinPlatforms(t).Catalog
	server := api.NewOperator(api.Deps{Catalog: catalog})
	docs, err := New(server, Config{Operator: true, Catalog: catalog, FailureModes: failureModes(t)})
	require.NoError(t, err)
	page := handlertest.OkText(t, docs.Serve, handlertest.Get("/operator/docs/openapi.json"))
	require.Contains(t, page, `"/operator/organizations/{orgId}/suspend"`)
	handlertest.RefusedWith(t, errcode.NotFound, docs.Serve, handlertest.Get("/docs"))
	codes, err := readCodeDocs(failureModes(t))
	require.NoError(t, err)
	document, err := describe(server, Config{Operator: true, Catalog: catalog}, codes)
	require.NoError(t, err)
	operations := operationsOf(document)
	require.Len(t, operations, len(server.Routes()))
	for _, operation := range operations {
		require.Len(t, operation.Security, 1)
		require.Len(t, operation.Security[0][schemeOperator], 1, operation.Path)
		require.True(t, slices.ContainsFunc(document.Tags, func(tag *huma.Tag) bool { return tag.Name == operation.Tags[0] }))
		require.Contains(t, operation.Responses["403"].Extensions[codesKey], "insufficient_scope")
		names := map[string]bool{}
		for _, parameter := range operation.Parameters {
			names[parameter.In+" "+parameter.Name] = true
		}
		require.Equal(t, strings.Contains(operation.Path, "{orgId}"), names["path orgId"], operation.Path)
		require.Equal(t, operation.Method == http.MethodPost, names["header Idempotency-Key"], operation.Path)
		require.Equal(t, operation.Method != http.MethodGet, names["header X-Actor"], operation.Path)
	}
	require.Contains(t, document.Paths["/operator/organizations"].Post.Responses, "200")
	tenants, err := json.Marshal(described(t))
	require.NoError(t, err)
	require.NotContains(t, string(tenants), "/operator/")
	require.NotContains(t, string(tenants), "uspensionReason")
}
