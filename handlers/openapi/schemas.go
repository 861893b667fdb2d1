package openapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
)

// schemas joins the schemas of the groups and those of the hand-written handlers.
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
	return json.Marshal(s.Map(), json.Deterministic(true))
}

var _ huma.Registry = schemas{}
