package openapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
)

// describer builds the interface description from the framework's operations of the endpoint groups and the descriptions of the
// hand-written handlers. It works only when the description is built, and costs no request anything.
type describer struct {
	config Config
	codes  []codeDoc
	// own has the schemas of the hand-written handlers; the groups have a registry of their own.
	own      huma.Registry
	document *huma.OpenAPI
	faults   []error
}

// describe returns the description of all routes: the routes of server, [v1.Routes], [webhook.Routes], docsRoutes and
// widgetRoutes. The error names routes without a description and descriptions without a route.
func describe(server *endpoint.Server, config Config, codes []codeDoc) (*huma.OpenAPI, error) {
	groups := server.Description().Components.Schemas
	d := &describer{config: config, codes: codes, own: huma.NewMapRegistry(endpoint.SchemaPrefix, endpoint.SchemaName)}
	d.document = &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "caddy-svc", Version: cmp.Or(config.Version, "devel"),
			Description: introduction,
			License:     &huma.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"},
			Extensions:  map[string]any{"summary": headline}, // new in OpenAPI 3.1, and in the framework not yet
		},
		Servers: []*huma.Server{{URL: config.BaseURL}},
		Tags:    tags,
		Components: &huma.Components{
			Schemas:         schemas{Registry: groups, own: d.own},
			SecuritySchemes: securitySchemes(config.Catalog, config.SignatureHeaders),
			Headers:         headers,
		},
	}
	d.addErrorSchema()
	for _, operation := range operationsOf(server.Description()) {
		route, ok := endpoint.RouteOf(operation)
		if !ok {
			d.faults = append(d.faults, fmt.Errorf("the operation %s has no route", operation.OperationID))
			continue
		}
		copied := *operation
		d.add(&copied, route)
	}
	d.addHandWritten()
	d.addExamples()
	return d.document, errors.Join(d.faults...)
}

// handWritten is the description of a route with a hand-written handler.
type handWritten func(d *describer) *huma.Operation

func (d *describer) addHandWritten() {
	known := handWrittenOperations()
	maps.Copy(known, webhookOperations(d.config.Catalog))
	for _, route := range slices.Concat(v1.Routes(), webhook.Routes(d.config.Catalog), docsRoutes(), widgetRoutes()) {
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

// handWrittenOperations returns an entry for each of [v1.Routes], docsRoutes and widgetRoutes.
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
			answer.Content["text/html"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
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
		addCode(response, code)
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

func textResponse(description, mediaType string) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{mediaType: {Schema: &huma.Schema{Type: huma.TypeString}}},
	}
}

func pathParameter(name, description string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
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
	slices.SortFunc(all, func(a, b *huma.Operation) int {
		if byPath := strings.Compare(a.Path, b.Path); byPath != 0 {
			return byPath
		}
		return methodOrder(a.Method) - methodOrder(b.Method)
	})
	return all
}

func methodOrder(method string) int {
	return slices.Index([]string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, method)
}
