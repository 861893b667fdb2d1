package openapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// widgetRoutes are the addresses of the widget that browsers load. What these call is registered with the [API].
func widgetRoutes() []handlers.Route {
	return []handlers.Route{
		{Method: http.MethodGet, Path: "/widget/{channelId}", Public: true, Summary: "The page in the widget's frame"},
		{Method: http.MethodGet, Path: "/widget/{channelId}/widget.js", Public: true, Summary: "The script that a site embeds"},
	}
}

// visitorOperations are those of the widget that need a visitor's token.
var visitorOperations = map[string][]map[string][]string{
	"writeAsVisitor": {{schemeVisitor: {}}},
	"listVisit":      {{schemeVisitor: {}}},
}

func describeWidgetPage(*describer) *huma.Operation {
	return &huma.Operation{
		OperationID: "getWidgetPage",
		Parameters:  []*huma.Param{pathParameter("channelId", "A channel of type widget")},
		Responses:   map[string]*huma.Response{"200": textResponse("Shown in frames of the channel's origins only", "text/html")},
	}
}

func describeWidgetScript(*describer) *huma.Operation {
	return &huma.Operation{
		OperationID: "getWidgetScript",
		Parameters:  []*huma.Param{pathParameter("channelId", "A channel of type widget")},
		Responses:   map[string]*huma.Response{"200": textResponse("Adds the frame to the page", "text/javascript")},
	}
}
