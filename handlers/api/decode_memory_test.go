package api

import (
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
)

// TestDecodersAreFrugal bounds what a decoder of foreign bytes allocates for each byte.
func TestDecodersAreFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	handlertest.RequireFrugalDecoders(t, groupDecoders(t))
}

// groupDecoders are the operations with a body, each of whose members is hostile in turn.
func groupDecoders(t *testing.T) (all []handlertest.ForeignDecoder) {
	o := newFixture(t)
	description := o.Description()
	for path, item := range description.Paths {
		for _, operation := range []*huma.Operation{item.Post, item.Put, item.Patch, item.Delete} {
			if operation == nil || operation.RequestBody == nil || strings.HasPrefix(path, "/widget/") {
				continue // visitors' operations are only served through the widget
			}
			schema := operation.RequestBody.Content["application/json"].Schema
			if schema.Ref != "" {
				schema = description.Components.Schemas.SchemaFromRef(schema.Ref)
			}
			frames := []string{`{"x":%}`}
			for name, property := range schema.Properties {
				frames = append(frames, `{"`+name+`":%}`)
				if property.Items != nil && property.Items.Ref != "" {
					for inner := range description.Components.Schemas.SchemaFromRef(property.Items.Ref).Properties {
						frames = append(frames, `{"`+name+`":[{"`+inner+`":%}]}`)
					}
				}
			}
			address := strings.NewReplacer("{id}", "a_none", "{docId}", "a_none", "{provider}", "none").Replace(path)
			all = append(all, handlertest.ForeignDecoder{
				Name: operation.OperationID, Most: int(min(operation.MaxBodyBytes, 256<<10)), Bodies: handlertest.Within(frames...),
				Decode: func(t *testing.T, body string) {
					w := handlertest.Served(o.Serve, request(operation.Method, address, "owner", body))
					require.NotContains(t, w.Body.String(), "no operation", "the address is wrong")
				},
			})
		}
	}
	require.Greater(t, len(all), 15)
	slices.SortFunc(all, func(a, b handlertest.ForeignDecoder) int { return strings.Compare(a.Name, b.Name) })
	return all
}
