package openapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
)

const (
	docsPath     = "/docs"
	docsJSONPath = docsPath + "/openapi.json"
	docsYAMLPath = docsPath + "/openapi.yaml"
)

// docsRoutes are the routes of the description itself. They exist only where `/docs` is mounted.
func docsRoutes() []handlers.Route {
	return []handlers.Route{
		{Method: http.MethodGet, Path: docsPath, Public: true, Summary: "This description: a page for browsers, otherwise JSON"},
		{Method: http.MethodGet, Path: docsJSONPath, Public: true, Summary: "This description as JSON"},
		{Method: http.MethodGet, Path: docsYAMLPath, Public: true, Summary: "This description as YAML"},
	}
}

func descriptionResponse() *huma.Response {
	anything := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
	return &huma.Response{
		Description: "OpenAPI 3.1",
		Content:     map[string]*huma.MediaType{"application/json": {Schema: anything}},
	}
}

// widgetRoutes are the addresses of the widget that browsers load. The operations that these call are registered by
// [widget.Register].
func widgetRoutes() []handlers.Route {
	return []handlers.Route{
		{Method: http.MethodGet, Path: "/widget/{channelId}", Public: true, Summary: "The page in the widget's frame"},
		{Method: http.MethodGet, Path: "/widget/{channelId}/widget.js", Public: true, Summary: "The script that a site embeds"},
	}
}

// visitorOperations are the widget's operations that need a visitor's token.
var visitorOperations = map[string][]map[string][]string{
	"writeAsVisitor": {{schemeVisitor: {}}},
	"listVisit":      {{schemeVisitor: {}}},
}
