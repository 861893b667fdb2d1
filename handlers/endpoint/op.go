package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Op is an operation as a value: its description and what does it. HTTP serves it ([Op.Register]), and a function runs it ([Op.Run]) for pages
// and commands. D holds the dependencies of its group. I holds the parameters and the body by the framework's rules; O is [JSON],
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
	o.Operation = s.Mount(o.Operation)
	Register(s, o.Operation, func(ctx context.Context, principal *identity.Principal, in *I) (*O, error) {
		return o.Do(d, ctx, principal, in)
	})
	decoder := sync.OnceValue(newDecoder[I])
	s.functions[o.ID] = function{o.Operation, func(ctx context.Context, principal *identity.Principal, values Values) (func() (any, error), error) {
		in, err := decoder().decode(values)
		return func() (any, error) { return o.Do(d, ctx, principal, in) }, err
	}}
}

// Spec implements [Any].
func (o Op[D, I, O]) Spec() Operation { return o.Operation }

// Fields implements [Any].
func (o Op[D, I, O]) Fields() []Field { return fieldsOf[I]() }

// Run implements [Any].
func (o Op[D, I, O]) Run(ctx context.Context, d D, principal *identity.Principal, values Values) (body any, err error) {
	in, err := newDecoder[I]().decode(values)
	if err != nil {
		return nil, err
	}
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

// function is an operation of a server that [Server.Ask] runs.
type function struct {
	Operation

	// prepare decodes the values and returns what runs the operation.
	prepare func(ctx context.Context, principal *identity.Principal, values Values) (run func() (any, error), err error)
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
	asked, known := s.functions[id]
	if !known || asked.Method != http.MethodGet && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return nil, handlers.Internal(errors.New("a page can't ask " + id + " in a request with " + r.Method))
	}
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
func (s *Server) run(w http.ResponseWriter, r *http.Request, principal *identity.Principal, asked function, values Values) (answer any, err error) {
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
	do, err := asked.prepare(r.Context(), principal, values)
	decoded()
	if err != nil {
		return nil, err
	}
	answer, err = do()
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

// decoder makes inputs of [Values] by the tags of the input's type. It is safe for concurrent use, and slow to make.
type decoder[I any] struct {
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

func newDecoder[I any]() *decoder[I] {
	d := &decoder[I]{schemas: huma.NewMapRegistry(SchemaPrefix, SchemaName)}
	eachField(reflect.TypeFor[I](), nil, func(index []int, f reflect.StructField, in string) {
		part := inputPart{index: index, in: in, name: f.Tag.Get(in)}
		if in != "body" {
			part.schema = huma.SchemaFromField(d.schemas, f, "")
			part.required = f.Tag.Get("required") == "true"
			d.parts = append(d.parts, part)
			return
		}
		part.schema = huma.SchemaFromType(d.schemas, f.Type)
		part.schema.AdditionalProperties = true
		eachField(f.Type, nil, func(_ []int, f reflect.StructField, _ string) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			part.members = append(part.members, name)
		})
		d.parts = append(d.parts, part)
	})
	return d
}

// decode returns the input that values describe. Its errors are the same as for a request with invalid parameters or an invalid body.
func (d *decoder[I]) decode(values Values) (*I, error) {
	in := new(I)
	for i := range d.parts {
		part, err := &d.parts[i], error(nil)
		into := reflect.ValueOf(in).Elem().FieldByIndex(part.index)
		text, given := values[part.name].(string)
		switch {
		case part.in == "body":
			err = d.decodeBody(part, values, into)
		case given && (text != "" || part.in == "path"):
			err = d.decodeParameter(part, text, into)
		case part.required:
			err = handlers.InvalidRequest(part.name, "%s is missing.", part.name)
		case part.schema.Default != nil:
			err = d.decodeParameter(part, fmt.Sprint(part.schema.Default), into)
		}
		if err != nil {
			return nil, err
		}
	}
	return in, nil
}

// decodeBody builds the body of those values that are its members.
func (d *decoder[I]) decodeBody(part *inputPart, values Values, into reflect.Value) error {
	members := map[string]any{}
	for _, name := range part.members {
		value, given := values[name]
		if !given {
			continue
		}
		if !storable(value) {
			return handlers.InvalidRequest(name, "%s contains the character NUL, or is not UTF-8.", name)
		}
		members[name] = value
	}
	if err := d.check(part.schema, "body", members); err != nil {
		return err
	}
	text, err := json.Marshal(members)
	if err == nil {
		err = json.Unmarshal(text, into.Addr().Interface())
	}
	if err != nil {
		return handlers.Internal(fmt.Errorf("decode checked values: %w", err))
	}
	return nil
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

// decodeParameter reads one parameter of a path, query or header, as the framework does.
func (d *decoder[I]) decodeParameter(part *inputPart, text string, into reflect.Value) error {
	if !storable(text) {
		return handlers.InvalidRequest(part.name, "%s contains the character NUL, or is not UTF-8.", part.name)
	}
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
		into.SetString(text)
	}
	if part.in == "path" && part.name == "id" && !handlers.WellFormedID(text) {
		return handlers.NotFound("There is nothing with this id.")
	}
	return d.check(part.schema, part.in+"."+part.name, value)
}

// check checks a value by its schema.
func (d *decoder[I]) check(schema *huma.Schema, place string, value any) error {
	path, result := huma.NewPathBuffer([]byte(place), len(place)), &huma.ValidateResult{}
	huma.Validate(d.schemas, schema, path, huma.ModeWriteToServer, value, result)
	if len(result.Errors) == 0 {
		return nil
	}
	fault := &huma.ErrorModel{Status: http.StatusBadRequest}
	for _, err := range result.Errors {
		fault.Add(err)
	}
	return refusedByFramework(fault)
}
