package endpoint

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Op is an operation as a value: its description and what does it. HTTP serves it ([Op.Register]), and a function runs it ([Op.Run]) for pages
// and commands. D holds the dependencies of its group. I holds the parameters and the body, with huma's tags; O is [JSON],
// [Replayable], [Stream] or [Empty].
type Op[D, I, O any] struct {
	Operation

	Do func(d D, ctx context.Context, principal *identity.Principal, in *I) (*O, error)
}

// Any is an [Op] of any input and output.
type Any[D any] interface {
	// Register adds the operation to a server.
	Register(s *Server, d D)
	// Spec describes the operation.
	Spec() Operation
	// Fields are the members of its input.
	Fields() []Field
	// Run runs the operation for a principal, as a request with the values would be, and returns the body of the answer, nil if it has none,
	// or a [File].
	// Its errors are the same as for a request.
	Run(ctx context.Context, d D, principal *identity.Principal, values Values) (body any, err error)
}

// Register implements [Any].
func (o Op[D, I, O]) Register(s *Server, d D) {
	Register(s, s.Mount(o.Operation), func(ctx context.Context, principal *identity.Principal, in *I) (*O, error) {
		return o.Do(d, ctx, principal, in)
	})
}

// Spec implements [Any].
func (o Op[D, I, O]) Spec() Operation { return o.Operation }

// Fields implements [Any].
func (o Op[D, I, O]) Fields() []Field { return fieldsOf[I]() }

// Run implements [Any].
func (o Op[D, I, O]) Run(ctx context.Context, d D, principal *identity.Principal, values Values) (body any, err error) {
	decoded, err := o.decoder(reflect.TypeFor[I](), reflect.TypeFor[O](), func(*huma.OpenAPI) {}).values(values)
	if err != nil {
		return nil, err
	}
	in, _ := decoded.(*I)
	if err := checkRights(principal, o.Route); err != nil {
		return nil, err
	}
	if o.Check != nil {
		if err := o.Check(ctx); err != nil {
			return nil, err
		}
	}
	ctx = handlers.WithPrincipal(ctx, *principal)
	out, err := o.Do(d, ctx, principal, in)
	answer := any(out)
	if stream, ok := answer.(*Stream); ok && err == nil && stream.whole != nil {
		answer, err = stream.whole(ctx)
	}
	if err != nil {
		return nil, err
	}
	switch answer := answer.(type) {
	case interface{ content() any }:
		return answer.content(), nil
	case File:
		return answer, nil
	}
	return nil, nil
}

// Person returns the principal of the session of a page's request. A key in a header doesn't count. The error is unauthenticated without a
// session, and forbidden for a change that another site caused.
func (s *Server) Person(r *http.Request) (*identity.Principal, error) {
	principal, err := s.sessions.Principal(r)
	return &principal, err
}

// Ask runs an operation for a page as a request with the values would: with the same checks, rates and turns, and the same errors. The answer
// is the output of the operation's Do. principal is the person of the page's request r ([Server.Person]); public operations need none. A
// request to read a page runs only operations that read. Cookies go to w.
func (s *Server) Ask(w http.ResponseWriter, r *http.Request, principal *identity.Principal, id string, values Values) (answer any, err error) {
	i := slices.IndexFunc(s.operations, func(o *operation) bool { return o.ID == id })
	if i < 0 || s.operations[i].Method != http.MethodGet && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return nil, handlers.Internal(errors.New("a page can't ask " + id + " in a request with " + r.Method))
	}
	asked := s.operations[i]
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, &Exchange{w, r}))
	if principal == nil {
		principal = new(identity.Principal)
	}
	if !asked.Public {
		if err := checkRights(principal, asked.Route); err != nil {
			return nil, handlers.CallerOf(principal).Refused(err)
		}
		r = r.WithContext(handlers.WithPrincipal(r.Context(), *principal))
	}
	answer, err = s.run(w, r, principal, asked, values)
	if err != nil {
		return nil, handlers.CallerOf(principal).Refused(err)
	}
	return answer, nil
}

// run counts and runs an operation. The caller has checked the rights.
func (s *Server) run(w http.ResponseWriter, r *http.Request, principal *identity.Principal, asked *operation, values Values) (answer any, err error) {
	if !asked.Public {
		permit, refused := s.Rates.take(w, r, principal, asked.Route)
		if refused != nil {
			return nil, refused
		}
		defer func() { permit.Return(w, r, err) }()
	}
	if asked.Check != nil {
		if err := asked.Check(r.Context()); err != nil {
			return nil, err
		}
	}
	leave, err := s.takeTurn(r)
	if err != nil {
		return nil, err
	}
	defer leave()
	decoded, err := s.bodies.Decoding(r.Context(), values.size())
	if err != nil {
		return nil, err
	}
	in, err := asked.decoder().values(values)
	decoded()
	if err != nil {
		return nil, err
	}
	answer, err = asked.do(r.Context(), principal, in)
	if stream, ok := answer.(*Stream); ok && err == nil {
		if stream.whole == nil {
			return nil, handlers.Internal(errors.New("the answer of " + asked.ID + " is a stream"))
		}
		return stream.whole(r.Context())
	}
	return answer, err
}

// size returns the number of bytes of the values' texts, nearly.
func (v Values) size() (bytes int) {
	for _, value := range v {
		switch value := value.(type) {
		case string:
			bytes += len(value)
		case map[string]any:
			bytes += Values(value).size()
		}
	}
	return bytes
}

// Field is a member of an operation's input: a parameter of its path or query, or a member of its body.
type Field struct {
	Name string
	// In is path, query or body.
	In string
	// Doc is the description in its tag, for help and documentation.
	Doc string
	// Type is text, number, boolean, texts, numbers or object; empty for a member with other values.
	Type     FieldType
	Required bool
	// Nullable: null removes its value.
	Nullable bool
	// Secret: its value must not be shown.
	Secret bool
	// MinLength and MaxLength bound the number of characters of a text. Zero means no bound.
	MinLength, MaxLength int
	// Zero: the number's smallest value is 0.
	Zero bool
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
	NumbersField FieldType = "numbers"
	// ObjectField has texts by names, such as the credentials of a channel.
	ObjectField FieldType = "object"
)

// Values are the values of an operation's input by the names of its fields, as JSON has them: string, float64, bool, nil, []any and
// map[string]any; []string is []any. Parameters of a path, query or header are strings.
type Values map[string]any

// fieldsOf returns the fields of an input except headers: parameters first, then the body's members, each in the order of its type.
func fieldsOf[I any]() (fields []Field) {
	eachField(reflect.TypeFor[I](), nil, func(_ []int, f reflect.StructField, in string) {
		if in == "header" {
			return
		}
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

// eachField calls use with each field that is not embedded, with its index, and its place: path, query, header, body, or empty for a member
// of a body.
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
		case f.Tag.Get("header") != "":
			use(at, f, "header")
		case f.Tag.Get("json") != "":
			use(at, f, "")
		}
	}
}

func fieldOf(f reflect.StructField, name, in string, required bool) Field {
	field := Field{Name: name, In: in, Doc: f.Tag.Get("doc"), Required: required, Secret: f.Tag.Get("writeOnly") == "true"}
	field.Type, field.Nullable = typeOf(f.Type)
	field.MinLength, _ = strconv.Atoi(f.Tag.Get("minLength")) // 0 without
	field.MaxLength, _ = strconv.Atoi(f.Tag.Get("maxLength"))
	field.Zero = f.Tag.Get("minimum") == "0"
	if enum := f.Tag.Get("enum"); enum != "" {
		field.Enum = strings.Split(enum, ",")
	}
	return field
}

// Member is a member of an answer, with its name in JSON.
type Member struct {
	Name string

	index []int
}

// MembersOf returns the members of a response's type in their order.
func MembersOf(t reflect.Type) (members []Member) {
	eachField(t, nil, func(index []int, f reflect.StructField, _ string) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		members = append(members, Member{name, index})
	})
	return members
}

// Of returns the member's value in an answer. Pointers are dereferenced; a nil pointer becomes nil.
func (m Member) Of(answer any) any {
	value := reflect.Indirect(reflect.Indirect(reflect.ValueOf(answer)).FieldByIndex(m.index))
	if !value.IsValid() {
		return nil
	}
	return value.Interface()
}

// Members returns the members of an answer by their names in JSON, as [Member.Of] does.
func Members(answer any) map[string]any {
	members := map[string]any{}
	for _, member := range MembersOf(reflect.Indirect(reflect.ValueOf(answer)).Type()) {
		members[member.Name] = member.Of(answer)
	}
	return members
}

func typeOf(t reflect.Type) (of FieldType, nullable bool) {
	value, nullable := reflect.TypeAssert[interface{ ValueType() reflect.Type }](reflect.New(t))
	if nullable {
		t = value.ValueType()
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() { //nolint:exhaustive // no form and no command has others
	case reflect.String:
		return TextField, nullable
	case reflect.Bool:
		return BooleanField, nullable
	case reflect.Int, reflect.Int64, reflect.Float64:
		return NumberField, nullable
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Int64 {
			return NumbersField, nullable
		}
		if t.Elem().Kind() == reflect.String {
			return TextsField, nullable
		}
	case reflect.Map:
		return ObjectField, nullable
	}
	return "", nullable
}
