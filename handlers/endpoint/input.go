package endpoint

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// Field is a member of an operation's input: a parameter of its path or query, or a member of its body.
type Field struct {
	Name string
	// In is path, query or body.
	In string
	// Doc is the description in its tag, for help and documentation.
	Doc string
	// Type is text, number, boolean or texts; empty for a member that is an object, or a list of others.
	Type     FieldType
	Required bool
	// Nullable: null removes its value.
	Nullable bool
	// Secret: its value must not be shown.
	Secret bool
	// MaxLength is the largest number of characters of a text. Zero means no bound.
	MaxLength int
	// Enum are its values, when they are few.
	Enum []string
}

// FieldType is the sort of a field's values.
type FieldType string

// The types of fields.
const (
	TextField    FieldType = "text"
	NumberField  FieldType = "number"
	BooleanField FieldType = "boolean"
	TextsField   FieldType = "texts"
)

// Values are the values of an operation's input by the names of its fields, as JSON has them: string, float64, bool, nil, []any and
// map[string]any. Parameters of a path or query are strings.
type Values map[string]any

// fieldsOf returns the fields of an input: parameters first, then the body's members, each in the order of its type.
func fieldsOf[I any]() (fields []Field) {
	eachField(reflect.TypeFor[I](), nil, func(_ []int, f reflect.StructField, in string) {
		if in != "body" {
			fields = append(fields, fieldOf(f, f.Tag.Get(in), in, in == "path"))
			return
		}
		eachField(f.Type, nil, func(_ []int, member reflect.StructField, _ string) {
			name, options, _ := strings.Cut(member.Tag.Get("json"), ",")
			if i := slices.IndexFunc(fields, func(f Field) bool { return f.In == in && f.Name == name }); i >= 0 {
				fields[i] = fieldOf(member, name, in, options == "") // of an embedded type
				return
			}
			fields = append(fields, fieldOf(member, name, in, options == ""))
		})
	})
	return fields
}

// eachField calls use with each field that is not embedded, with its index, and its place: path, query, body, or empty for a member of a body.
func eachField(t reflect.Type, index []int, use func(index []int, f reflect.StructField, in string)) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clip(index), i)
		switch {
		case f.Anonymous:
			eachField(f.Type, at, use)
		case f.Name == "Body":
			use(at, f, "body")
		case f.Tag.Get("path") != "":
			use(at, f, "path")
		case f.Tag.Get("query") != "":
			use(at, f, "query")
		case f.Tag.Get("json") != "":
			use(at, f, "")
		}
	}
}

func fieldOf(f reflect.StructField, name, in string, required bool) Field {
	field := Field{Name: name, In: in, Doc: f.Tag.Get("doc"), Required: required, Secret: f.Tag.Get("writeOnly") == "true"}
	field.Type, field.Nullable = typeOf(f.Type)
	field.MaxLength, _ = strconv.Atoi(f.Tag.Get("maxLength")) // 0 without
	if enum := f.Tag.Get("enum"); enum != "" {
		field.Enum = strings.Split(enum, ",")
	}
	return field
}

func typeOf(t reflect.Type) (of FieldType, nullable bool) {
	value, nullable := reflect.TypeAssert[interface{ ValueType() reflect.Type }](reflect.New(t))
	if nullable {
		t = value.ValueType()
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() { //nolint:exhaustive // the others are objects
	case reflect.String:
		return TextField, nullable
	case reflect.Bool:
		return BooleanField, nullable
	case reflect.Int, reflect.Int64, reflect.Float64:
		return NumberField, nullable
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return TextsField, nullable
		}
	}
	return "", nullable
}

// decodeValues returns the input that values describe. Its errors are the same as for a request with invalid parameters or an invalid body.
func decodeValues[I any](values Values) (*I, error) {
	in, schemas := new(I), huma.NewMapRegistry(SchemaPrefix, SchemaName)
	var failed error
	eachField(reflect.TypeFor[I](), nil, func(index []int, f reflect.StructField, place string) {
		into := reflect.ValueOf(in).Elem().FieldByIndex(index)
		if failed != nil {
			return
		}
		if place == "body" {
			failed = decodeBody(values, into, f.Type, schemas)
			return
		}
		if text, given := values[f.Tag.Get(place)].(string); given {
			failed = decodeParameter(text, into, f, place, schemas)
		}
	})
	if failed != nil {
		return nil, failed
	}
	return in, nil
}

// decodeBody builds the body of those values that are its members.
func decodeBody(values Values, into reflect.Value, t reflect.Type, schemas huma.Registry) error {
	members := map[string]any{}
	eachField(t, nil, func(_ []int, f reflect.StructField, _ string) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if value, given := values[name]; given {
			members[name] = value
		}
	})
	for name, value := range members {
		if !storable(value) {
			return handlers.InvalidRequest(name, "%s contains the character NUL, or is not UTF-8.", name)
		}
	}
	schema := huma.SchemaFromType(schemas, t)
	schema.AdditionalProperties = true
	if err := checkValue(schemas, schema, "body", members); err != nil {
		return err
	}
	text, err := json.Marshal(members)
	if err == nil {
		err = json.Unmarshal(text, into.Addr().Interface())
	}
	if err != nil {
		return handlers.InvalidRequest("", "The values do not fit: %v.", err)
	}
	return nil
}

// storable reports whether all texts in a value can be stored: they are UTF-8 without NUL.
func storable(value any) bool {
	switch value := value.(type) {
	case string:
		return utf8.ValidString(value) && !strings.ContainsRune(value, 0)
	case []any:
		return !slices.ContainsFunc(value, func(element any) bool { return !storable(element) })
	case map[string]any:
		for name, member := range value {
			if !storable(name) || !storable(member) {
				return false
			}
		}
	}
	return true
}

// decodeParameter reads one parameter of a path or query, as the framework does.
func decodeParameter(text string, into reflect.Value, f reflect.StructField, place string, schemas huma.Registry) error {
	name := f.Tag.Get(place)
	var value any = text
	switch into.Kind() { //nolint:exhaustive // no parameter has another type
	case reflect.Int, reflect.Int64:
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return handlers.InvalidRequest(name, "%s is not valid: expected an integer.", name)
		}
		into.SetInt(number)
		value = float64(number)
	case reflect.Bool:
		on, err := strconv.ParseBool(text)
		if err != nil {
			return handlers.InvalidRequest(name, "%s is not valid: expected true or false.", name)
		}
		into.SetBool(on)
		value = on
	default:
		into.SetString(text)
	}
	if place == "path" && name == "id" && !handlers.WellFormedID(text) {
		return handlers.NotFound("There is nothing with this id.")
	}
	return checkValue(schemas, huma.SchemaFromField(schemas, f, ""), place+"."+name, value)
}

// checkValue checks a value by its schema.
func checkValue(schemas huma.Registry, schema *huma.Schema, place string, value any) error {
	path, result := huma.NewPathBuffer([]byte(place), len(place)), &huma.ValidateResult{}
	huma.Validate(schemas, schema, path, huma.ModeWriteToServer, value, result)
	if len(result.Errors) == 0 {
		return nil
	}
	fault := &huma.ErrorModel{Status: 400}
	for _, err := range result.Errors {
		fault.Add(err)
	}
	return refusedByFramework(fault)
}
