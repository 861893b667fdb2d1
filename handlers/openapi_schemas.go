package handlers

import (
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
)

// schemaName is what the description calls a type: Agent for agentObject, AgentList for a page of them.
func schemaName(t reflect.Type, hint string) string {
	name := strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Object")
	if element, isList := strings.CutPrefix(name, "ListObject"); isList {
		return element + "List"
	}
	return name
}

// schemas are those of the groups and those of what is written by hand, as one.
type schemas struct {
	huma.Registry

	own huma.Registry
}

// Map has all schemas. They are copies without additionalProperties: unknown members are ignored (spec §4), which is what
// its absence says, and what the framework checks requests with stays as it is.
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

// SchemaFromRef finds a schema in either.
func (s schemas) SchemaFromRef(ref string) *huma.Schema {
	return s.Map()[strings.TrimPrefix(ref, schemaPrefix)]
}

// MarshalJSON writes all of them.
func (s schemas) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.Map(), json.Deterministic(true))
}

var _ huma.Registry = schemas{}
