package endpoint

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/queryparam"
	"github.com/danielgtaylor/huma/v2/validation"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

// decoder makes the inputs of an operation by the schemas of its description. It is safe for concurrent use.
type decoder struct {
	input   reflect.Type
	schemas huma.Registry
	parts   []inputPart
}

// inputPart is a parameter of an input, or its body.
type inputPart struct {
	index []int
	// in is path, query, header or body; name is empty for a body.
	in, name string
	required bool
	schema   *huma.Schema
	// members are the names of a body's members.
	members []string
}

// decoder returns the decoder of an operation's input. complete completes the description ([Server.Describe]). It is slow.
func (o Operation) decoder(input, output reflect.Type, complete func(*huma.OpenAPI)) *decoder {
	description := newDescription()
	described := o.describe(input, output, description)
	complete(description)
	d := &decoder{input: input, schemas: description.Components.Schemas}
	eachField(input, nil, func(index []int, f reflect.StructField, in string) {
		part := inputPart{index: index, in: in, name: f.Tag.Get(in)}
		if in == "body" {
			part.schema = described.RequestBody.Content["application/json"].Schema
			eachField(f.Type, nil, func(_ []int, member reflect.StructField, _ string) {
				name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
				part.members = append(part.members, name)
			})
		} else {
			param := described.Parameters[indexOfParam(described.Parameters, in, part.name)]
			part.schema, part.required = param.Schema, param.Required && in != "path"
		}
		d.parts = append(d.parts, part)
	})
	return d
}

// request returns the input of a request with the body. Its errors are invalid_request, and not_found for an id that can't be one.
func (d *decoder) request(r *http.Request, body []byte) (in any, err error) {
	in, err = d.read(func(part *inputPart) (text string, given bool) {
		switch part.in {
		case "path":
			text = r.PathValue(part.name)
		case "query":
			text = queryparam.Get(r.URL.RawQuery, part.name) // "true" for a name without a value
		case "header":
			text = r.Header.Get(part.name)
		}
		return text, text != ""
	}, func(part *inputPart) ([]byte, error) { return readObject(body, part.schema, d.schemas) })
	if keyed, ok := in.(interface{ keep(header http.Header) }); ok {
		keyed.keep(r.Header)
	}
	return in, err
}

// values returns the input that values describe, with the errors of request.
func (d *decoder) values(values Values) (in any, err error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !storable(values[name]) {
			return nil, unstorable(name)
		}
	}
	return d.read(func(part *inputPart) (text string, given bool) {
		text, given = values[part.name].(string)
		return text, given && (text != "" || part.in == "path")
	}, func(part *inputPart) ([]byte, error) {
		members := map[string]any{}
		for _, name := range part.members {
			if value, given := values[name]; given {
				members[name] = value
			}
		}
		text, err := json.Marshal(members)
		if err != nil {
			return nil, handlers.Internal(fmt.Errorf("encode values: %w", err))
		}
		return text, nil
	})
}

// read returns an input with the texts of its parameters and the text of its body, which has described members only.
func (d *decoder) read(parameter func(*inputPart) (text string, given bool), body func(*inputPart) ([]byte, error)) (in any, err error) {
	input := reflect.New(d.input)
	for i := range d.parts {
		part, err := &d.parts[i], error(nil)
		into := input.Elem().FieldByIndex(part.index)
		if part.in == "body" {
			var text []byte
			if text, err = body(part); err == nil {
				err = d.readBody(part, text, into)
			}
		} else if text, given := parameter(part); given {
			err = d.readParameter(part, text, into)
		} else if part.required {
			err = handlers.InvalidRequest(part.name, "%s is required.", part.name)
		} else if part.schema.Default != nil {
			err = d.readParameter(part, fmt.Sprint(part.schema.Default), into)
		}
		if err != nil {
			return nil, err
		}
	}
	return input.Interface(), nil
}

// readBody checks a body and reads it.
func (d *decoder) readBody(part *inputPart, text []byte, into reflect.Value) error {
	var members any
	if err := json.Unmarshal(text, &members); err != nil {
		return handlers.Internal(fmt.Errorf("decode a filtered body: %w", err))
	}
	if err := d.check(part.schema, part.in, members); err != nil {
		return err
	}
	err := json.Unmarshal(text, into.Addr().Interface())
	if large, ok := errors.AsType[*json.SemanticError](err); ok && large.JSONKind == '0' { // a schema bounds not every integer
		field, _, _ := strings.Cut(strings.TrimPrefix(string(large.JSONPointer), "/"), "/")
		return handlers.InvalidRequest(field, "%s is not valid: expected an integer.", field)
	}
	if err != nil {
		return handlers.Internal(fmt.Errorf("decode a checked body: %w", err))
	}
	return nil
}

// readParameter reads one parameter of a path, query or header.
func (d *decoder) readParameter(part *inputPart, text string, into reflect.Value) error {
	var value any = text
	switch into.Kind() { //nolint:exhaustive // no parameter has another type
	case reflect.Int, reflect.Int64:
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return handlers.InvalidRequest(part.name, "%s is not valid: expected an integer.", part.name)
		}
		into.SetInt(number)
		value = float64(number)
	case reflect.Bool:
		on, err := strconv.ParseBool(text)
		if err != nil {
			return handlers.InvalidRequest(part.name, "%s is not valid: expected true or false.", part.name)
		}
		into.SetBool(on)
		value = on
	default:
		if part.in == "query" && !storable(text) {
			return unstorable(part.name)
		}
		into.SetString(text)
	}
	if part.in == "path" && part.name == "id" && !handlers.WellFormedID(text) {
		return handlers.NotFound("There is nothing with this id.")
	}
	return d.check(part.schema, part.in+"."+part.name, value)
}

// check checks a value by its schema. The error is of the first parameter or member that breaks its rule. Its text never quotes the value, which
// may be a secret.
func (d *decoder) check(schema *huma.Schema, place string, value any) error {
	path, result := huma.NewPathBuffer([]byte(place), len(place)), &huma.ValidateResult{}
	huma.Validate(d.schemas, schema, path, huma.ModeWriteToServer, value, result)
	if len(result.Errors) == 0 {
		return nil
	}
	first, ok := errors.AsType[*huma.ErrorDetail](result.Errors[0])
	if !ok {
		return handlers.Internal(fmt.Errorf("check a value by its schema: %w", result.Errors[0]))
	}
	in, field, _ := strings.Cut(first.Location, ".")
	if name, missing := requiredMember(first.Message); missing {
		field = strings.TrimPrefix(field+"."+name, ".")
		return handlers.InvalidRequest(field, "%s is required.", field)
	}
	if field == "" {
		return handlers.InvalidRequest("", "The %s is not valid.", in)
	}
	return handlers.InvalidRequest(field, "%s is not valid: %s.", field, first.Message)
}

// requiredMember reads the name out of huma's words for a member that is missing; the location of that fault is
// the object around it.
func requiredMember(message string) (name string, missing bool) {
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	name, missing = strings.CutPrefix(message, before)
	if !missing {
		return "", false
	}
	return strings.CutSuffix(name, after)
}

func unstorable(name string) error {
	return handlers.InvalidRequest(name, "%s contains the character NUL, or is not UTF-8.", name)
}

// storable reports whether all texts in a value can be stored: they are UTF-8 without NUL.
func storable(value any) bool {
	switch value := value.(type) {
	case string:
		return utf8.ValidString(value) && !strings.ContainsRune(value, 0)
	case []string:
		return !slices.ContainsFunc(value, func(element string) bool { return !storable(element) })
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

// bodyFilter reads a body of the endpoint groups by the rules of JSON on /v1 (one object in valid UTF-8, no repeated names,
// nothing after it, no deeper than 64) and writes the same object in the form that the schema describes, which is never much larger:
//
//   - Members that the described object doesn't have are left out, at any depth, so that nothing is built for them.
//   - Numbers are written in one spelling: 10.0 becomes 10, because the decoder accepts no other form of a whole number.
//   - Of an array that is too long it keeps one element more than allowed, and it empties an object or array in place of another type. The
//     schema refuses both.
//
// Texts with NUL are refused, because no engine stores them.
type bodyFilter struct {
	handlers.JSONBody
	schemas huma.Registry
	out     []byte
	// refused is the reason why a valid JSON value fits no field; path is the field, which grows from its end.
	refused refusedValue
	path    string
}

// refusedValue is a reason to refuse a body that is JSON.
type refusedValue int

const (
	hasNUL refusedValue = iota + 1
	outOfRange
)

// readObject returns the filtered body of an operation. The schema describes the body.
func readObject(body []byte, schema *huma.Schema, schemas huma.Registry) ([]byte, error) {
	f := bodyFilter{JSONBody: handlers.NewJSONBody(body), schemas: schemas, out: make([]byte, 0, min(len(body), 4<<10))}
	properties := f.resolve(schema).Properties
	known := func(name jsonscan.Literal) string {
		word, _ := knownMember(properties, name)
		return word
	}
	f.out = append(f.out, '{')
	if fault := f.Document(f.member(properties), known); fault != nil {
		return nil, fault
	}
	switch f.refused {
	case hasNUL:
		field := strings.TrimPrefix(f.path, ".")
		return nil, handlers.InvalidRequest(field, "%s contains the character NUL.", field)
	case outOfRange:
		return nil, handlers.InvalidRequest("", "The request body has a number that is out of range.")
	}
	return append(f.out, '}'), nil
}

func (f *bodyFilter) resolve(schema *huma.Schema) *huma.Schema {
	if schema.Ref != "" {
		return f.schemas.SchemaFromRef(schema.Ref)
	}
	return schema
}

// knownMember returns the described member with the name.
func knownMember(properties map[string]*huma.Schema, name jsonscan.Literal) (word string, schema *huma.Schema) {
	var buf [jsonscan.MaxWord]byte
	text := name.Word(&buf)
	if schema = properties[string(text)]; schema == nil {
		return "", nil
	}
	return string(text), schema
}

// member writes the members of one object that are described.
func (f *bodyFilter) member(properties map[string]*huma.Schema) func(jsonscan.Literal) bool {
	first := true
	return func(name jsonscan.Literal) bool {
		word, schema := knownMember(properties, name)
		if schema == nil || f.refused != 0 {
			return f.Skip()
		}
		if !first {
			f.out = append(f.out, ',')
		}
		first = false
		f.out = append(f.out, '"')
		f.out = append(f.out, word...)
		f.out = append(f.out, '"', ':')
		ok := f.value(f.resolve(schema))
		if f.refused != 0 {
			f.path = "." + word + f.path
		}
		return ok
	}
}

// value reads a value and writes it.
func (f *bodyFilter) value(schema *huma.Schema) bool {
	switch c := f.Peek(); {
	case c == '{' && schema.Type == huma.TypeObject:
		f.out = append(f.out, '{')
		ok := f.Object(f.member(schema.Properties), nil)
		f.out = append(f.out, '}')
		return ok
	case c == '{':
		f.out = append(f.out, "{}"...)
		return f.Skip()
	case c == '[' && schema.Type == huma.TypeArray && schema.Items != nil:
		return f.elements(schema)
	case c == '[':
		f.out = append(f.out, "[]"...)
		return f.Skip()
	case c == '"':
		text := f.String()
		if text.HasNUL() {
			f.refused = hasNUL
		}
		f.out = append(f.out, text...)
		return text != nil
	case jsonscan.IsNumber(c):
		number := f.Number()
		if number != nil {
			f.writeNumber(number)
		}
		return number != nil
	default:
		value := f.Value()
		f.out = append(f.out, value...)
		return value != nil
	}
}

// elements writes an array. Of an array that is too long it writes one element more than allowed.
func (f *bodyFilter) elements(schema *huma.Schema) bool {
	most := math.MaxInt
	if schema.MaxItems != nil {
		most = *schema.MaxItems + 1
	}
	items := f.resolve(schema.Items)
	f.out = append(f.out, '[')
	ok := f.Array(func(i int) bool {
		if i >= most || f.refused != 0 {
			return f.Skip()
		}
		if i > 0 {
			f.out = append(f.out, ',')
		}
		ok := f.value(items)
		if f.refused != 0 {
			f.path = "[" + strconv.Itoa(i) + "]" + f.path
		}
		return ok
	})
	f.out = append(f.out, ']')
	return ok
}

func (f *bodyFilter) writeNumber(number []byte) {
	if value, whole := jsonscan.Integer(number); whole {
		f.out = strconv.AppendInt(f.out, value, 10)
		return
	}
	value, err := strconv.ParseFloat(string(number), 64)
	if err != nil {
		f.refused = outOfRange
		value = 0
	}
	f.out = strconv.AppendFloat(f.out, value, 'g', -1, 64)
}
