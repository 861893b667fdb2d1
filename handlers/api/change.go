package api

import (
	"math"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
)

func set[T any](into, value *T) {
	if value != nil {
		*into = *value
	}
}

func setMillis(into *int64, value *float64, unit float64) {
	if value != nil {
		*into = int64(math.Round(*value * unit))
	}
}

// clearable is a member of a PATCH body that can be taken away: absent leaves it, null takes it away.
type clearable[T any] struct {
	given bool
	value *T
}

// UnmarshalJSON implements json.Unmarshaler; it runs for null, too.
func (c *clearable[T]) UnmarshalJSON(text []byte) error {
	c.given, c.value = true, nil
	return json.Unmarshal(text, &c.value)
}

// Schema describes the value.
func (*clearable[T]) Schema(registry huma.Registry) *huma.Schema {
	schema := registry.Schema(reflect.TypeFor[T](), false, "")
	schema.Nullable = true
	return schema
}

var _ huma.SchemaProvider = (*clearable[int64])(nil)
