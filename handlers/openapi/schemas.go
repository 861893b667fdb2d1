package openapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
)

// schemas joins the schemas of the groups and of the hand-written handlers.
type schemas struct {
	huma.Registry

	own huma.Registry
}

// Map returns copies of all schemas, without additionalProperties: its absence says that unknown members are ignored. The schemas
// that the framework checks requests with stay unchanged.
func (s schemas) Map() map[string]*huma.Schema {
	all := make(map[string]*huma.Schema)
	for _, registry := range []huma.Registry{s.Registry, s.own} {
		for name, schema := range registry.Map() {
			copied := *schema
			copied.AdditionalProperties = nil
			all[name] = &copied
		}
	}
	// The framework's own error body, which is never sent.
	delete(all, "ErrorModel")
	delete(all, "ErrorDetail")
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
// either, because an enum also holds for null, and patternDescription, the framework's own, begins the description.
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
