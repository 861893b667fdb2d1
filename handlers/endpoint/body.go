package endpoint

import (
	"math"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

// bodyFilter reads a body of the endpoint groups by the rules of JSON on /v1 (one object in valid UTF-8, no repeated names,
// nothing after it, no deeper than 64) and writes the same object in the form that the framework accepts, which is never much larger:
//
//   - Members that the described object doesn't have are left out, at any depth, so that nothing is built for them.
//   - Names are written as they are described and numbers in one spelling (10.0 is 10): the framework accepts names in any case
//     and whole numbers in one form only.
//   - Of an array that is too long it keeps one element more than allowed, and it empties an object or array in place of another type. The
//     framework refuses both.
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
