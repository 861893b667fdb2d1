package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

type kind string

// The kinds of fields.
const (
	textField     kind = "text"
	emailField    kind = "email"
	numberField   kind = "number"   // a text field with a numeric keyboard, which keeps a wrong input
	dateField     kind = "date"     // YYYY-MM-DD
	linesField    kind = "lines"    // an area, each of its lines a value
	secretField   kind = "password" // no page shows its input again
	areaField     kind = "textarea"
	selectField   kind = "select"
	checkField    kind = "checkbox" // one box, sent as "true"
	checksField   kind = "checks"   // a group of boxes with one name
	fileField     kind = "file"
	hiddenField   kind = "hidden"
	readOnlyField kind = "readonly"
)

// form is a form as its template shows it. [pageRequest.form] adds the input and the error of a refused form. A form of an operation is made once, by
// [formOf], and gets its first values by [form.of].
type form struct {
	// ID is <noun>-<verb>, followed by the row's id where a page has several.
	ID string
	// Action is the address to which the form is sent. Empty means the page's address.
	Action string
	// Submit is the text of its button.
	Submit string
	// Preview is the address of another button, which shows the page with the input. Empty means no such button.
	Preview string
	Fields  []field
	// Confirm is the question before it is sent. Empty means no question.
	Confirm string
	// Danger: the action deletes or revokes something.
	Danger bool
	// Get: the form is a query, so the address contains its values.
	Get bool

	// Error is an error that concerns none of the fields.
	Error string
	// Refused: the form was sent and refused.
	Refused bool

	// change: the operation is a PATCH, which leaves absent members as they are.
	change bool
}

func (f form) Multipart() bool {
	return slices.ContainsFunc(f.Fields, func(one field) bool { return one.Kind == fileField })
}

// Bare reports whether the form shows only its button.
func (f form) Bare() bool {
	return !slices.ContainsFunc(f.Fields, func(one field) bool { return one.Kind != hiddenField })
}

// field is an input with its label.
type field struct {
	// Name is the field's name in the API and its errors.
	Name  string
	Kind  kind
	Label string
	// Hint is an explanation below the label.
	Hint string
	// Value is the initial value. A box is checked by "true".
	Value    string
	Required bool
	// MaxLength is in characters. Zero means unlimited.
	MaxLength int
	// Rows is the height of an area. Zero means 6.
	Rows int
	// Options are the options of a select, or the boxes of a group.
	Options []option
	// Autocomplete is the browser's autofill token, like "username".
	Autocomplete string
	// Accept are the types of files.
	Accept string
	// Micros: the input of the operation is in micros, and people enter credits.
	Micros bool
	// Missing is the error of an empty input that the operation would take for another value.
	Missing string

	// input is the field of the operation that the form is made of; its Name is empty for other fields.
	input endpoint.Field

	// ID is made of the form's id and the name. Error is the field's error.
	ID, Error string
}

type option struct {
	Value, Label string
	Hint         string
	Selected     bool
}

// Height is the number of lines that an area shows.
func (f field) Height() int {
	if f.Rows == 0 {
		return 6
	}
	return f.Rows
}

// Described returns the ids of the elements that describe the input (aria-describedby).
func (f field) Described() string {
	var ids []string
	if f.Hint != "" {
		ids = append(ids, f.ID+"-hint")
	}
	if f.Error != "" {
		ids = append(ids, f.ID+"-error")
	}
	return strings.Join(ids, " ")
}

// formOf returns f with inputs for fields of an operation, in the order of the table. A row of the table has the name and the words of a field;
// kind, length, and whether it is required come from the operation. It panics if the operation has no such field or no such option, so a
// table that doesn't fit its operation ends every test.
func formOf(o api.Operation, f form, table ...field) form {
	inputs := o.Fields()
	f.change = o.Spec().Method == http.MethodPatch
	for _, row := range table {
		at := slices.IndexFunc(inputs, func(input endpoint.Field) bool { return input.Name == row.Name })
		if at < 0 {
			panic("dashboard: the form " + f.ID + " has the field " + row.Name + ", which " + o.Spec().ID + " lacks")
		}
		row.input = inputs[at]
		row.MaxLength = row.input.MaxLength
		row.Required = row.Required || row.input.Required || row.input.MinLength > 0 && !row.input.Nullable
		if row.Kind == "" {
			row.Kind = kindOf(row.input)
		}
		for _, option := range row.Options {
			if enum := row.input.Enum; len(enum) > 0 && !slices.Contains(enum, option.Value) {
				panic("dashboard: the form " + f.ID + " offers " + option.Value + " as " + row.Name)
			}
		}
		f.Fields = append(f.Fields, row)
	}
	return f
}

// kindOf returns the usual kind of a field of an operation.
func kindOf(input endpoint.Field) kind {
	switch {
	case input.Secret:
		return secretField
	case input.Type == endpoint.BooleanField:
		return checkField
	case input.Type == endpoint.NumberField:
		return numberField
	case input.Type == endpoint.TextsField && len(input.Enum) > 0:
		return checksField
	case input.Type == endpoint.TextsField:
		return linesField
	case len(input.Enum) > 0:
		return selectField
	}
	return textField
}

// of returns the form for an address with first values from members of an answer that have the names of its fields. A nil answer has none.
func (f form) of(action string, answer any) form {
	f.Action, f.Fields = action, slices.Clone(f.Fields)
	if answer == nil {
		return f
	}
	members := endpoint.Members(answer)
	for i := range f.Fields {
		one := &f.Fields[i]
		member, known := members[one.Name]
		if !known || one.Kind == secretField {
			continue
		}
		switch member := member.(type) {
		case nil:
		case []string:
			one.Value, one.Options = strings.Join(member, "\n"), choices(one.Options, member...)
		default:
			if one.Value = fmt.Sprint(member); one.Micros {
				one.Value = credits(one.Value)
			}
			one.Options = choices(one.Options, one.Value)
		}
	}
	return f
}

// with returns the form with other options of a field. They say which are selected.
func (f form) with(name string, options []option) form {
	f.Fields = slices.Clone(f.Fields)
	for i := range f.Fields {
		if f.Fields[i].Name == name {
			f.Fields[i].Options = options
		}
	}
	return f
}

// versioned returns the form of a change with the version of the object from which it was filled, see [pageRequest.refuseStale].
func (f form) versioned(updatedAt string) form {
	f.Fields = append([]field{{Name: versionName, Kind: hiddenField, Value: updatedAt}}, f.Fields...)
	return f
}

// without returns the form without a field.
func (f form) without(name string) form {
	f.Fields = slices.DeleteFunc(slices.Clone(f.Fields), func(one field) bool { return one.Name == name })
	return f
}

// read returns the input of a form of an operation that was sent, and adds it to in.
func (f form) read(req *pageRequest, in values) (values, error) {
	for _, one := range f.Fields {
		if one.input.Name == "" {
			continue
		}
		value, given, err := one.read(req, f.change)
		if err != nil {
			return nil, err
		}
		if given {
			in[one.Name] = value
		}
	}
	return in, nil
}

// read returns the input of a field as a value of its operation. given is false if the operation gets no value.
func (f field) read(req *pageRequest, change bool) (value any, given bool, err error) {
	typed := req.text(f.Name)
	trimmed := strings.TrimSpace(typed)
	texts := []any{}
	for _, text := range req.sent[f.Name] {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				texts = append(texts, line)
			}
		}
	}
	switch {
	case len(texts) == 0 && f.Missing != "":
		return nil, false, refuseField(f.Name, f.Missing)
	case f.input.Type == endpoint.BooleanField:
		return req.flag(f.Name), true, nil
	case f.input.Type == endpoint.TextsField: // a group without a checked box sends an empty value, a form without the group none
		return texts, f.Kind != checksField || req.sent.Has(f.Name), nil
	case trimmed == "" && f.input.Nullable:
		return nil, true, nil
	case f.Micros:
		value, err := f.micros(trimmed)
		return value, true, err
	case f.input.Type == endpoint.NumberField:
		return numberOr(trimmed), trimmed != "" || f.input.Zero, nil
	case f.input.Nullable:
		return trimmed, true, nil
	}
	return typed, typed != "" || f.Required || change && f.Kind != selectField, nil
}

// numberOr returns a number, or zero for an empty text. It returns other texts unchanged, because operations refuse them at their field.
func numberOr(typed string) any {
	if typed == "" {
		return 0.0
	}
	var number any
	if json.Unmarshal([]byte(typed), &number) == nil && reflect.TypeOf(number) == reflect.TypeFor[float64]() {
		return number
	}
	return typed
}

// micros returns the amount of credits that was entered.
func (f field) micros(typed string) (string, error) {
	micros, ok := microsOf(typed)
	switch {
	case ok:
		return micros, nil
	case f.input.Nullable:
		return "", refuseField(f.Name, "Enter an amount of credits, such as 2.50, or nothing.")
	}
	return "", refuseField(f.Name, "Enter an amount of credits, such as 2.50.")
}

// button returns a form that has only hidden fields, names and values in turn. In a row of a table its id ends in the row's, and its action is a
// full address.
func button(id, action, text, confirm string, hidden ...string) form {
	f := form{ID: id, Action: action, Submit: text, Confirm: confirm, Danger: confirm != ""}
	for pair := range slices.Chunk(hidden, 2) {
		f.Fields = append(f.Fields, field{Name: pair[0], Kind: hiddenField, Value: pair[1]})
	}
	return f
}

// form returns f as the page shows it: after a refusal, with the input and the error at its field.
func (req *pageRequest) form(f form) form {
	if f.Action == "" && !f.Get && req.action != nil && req.action.verb != "" {
		f.Action = req.path() // the browser's address is that of another form
	}
	f.Fields = slices.Clone(f.Fields)
	for i := range f.Fields {
		f.Fields[i].ID = f.ID + "-" + f.Fields[i].Name
	}
	if !req.wasRefused(f) {
		return f
	}
	req.errorForm = f.ID
	for i := range f.Fields {
		req.keep(&f.Fields[i])
	}
	refuseForm(&f, req.refused)
	return f
}

// refuseForm puts the error at the field that it names, or at the form.
func refuseForm(f *form, why *handlers.Error) {
	f.Refused = true
	if faulty := f.fieldOf(why.Field); faulty != nil {
		faulty.Error = why.Message
		return
	}
	f.Error = why.Message
}

// wasRefused reports whether f is the form that was sent and refused. Forms in rows are distinguished by their addresses and
// hidden fields.
func (req *pageRequest) wasRefused(f form) bool {
	if req.refused == nil || req.action == nil {
		return false
	}
	if f.ID == req.action.form {
		return true
	}
	return strings.HasPrefix(f.ID, req.action.form+"-") && f.Action == req.r.URL.Path &&
		!slices.ContainsFunc(f.Fields, func(one field) bool { return one.Kind == hiddenField && one.Value != req.sent.Get(one.Name) })
}

// fieldOf returns the visible field for a name of the API like "scopes[0]" or "credentials.botToken"; nil if there is none.
func (f form) fieldOf(name string) *field {
	outer, _, _ := strings.Cut(name, "[")
	outermost, _, _ := strings.Cut(outer, ".")
	for _, candidate := range []string{name, outer, outermost} {
		for i := range f.Fields {
			if candidate != "" && f.Fields[i].Name == candidate && f.Fields[i].Kind != hiddenField {
				return &f.Fields[i]
			}
		}
	}
	return nil
}

// keep sets the field to the input.
func (req *pageRequest) keep(f *field) {
	switch f.Kind {
	case secretField, fileField, readOnlyField:
	case checkField:
		f.Value = ""
		if req.flag(f.Name) {
			f.Value = "true"
		}
	case selectField, checksField:
		chosen := req.sent[f.Name]
		f.Options = slices.Clone(f.Options)
		for i := range f.Options {
			f.Options[i].Selected = slices.Contains(chosen, f.Options[i].Value)
		}
	default:
		if f.Name == versionName && req.refused.Field == versionName {
			return // the current version, see refuseStale
		}
		f.Value = req.text(f.Name)
	}
}

// choices returns options with the given values selected.
func choices(options []option, selected ...string) []option {
	options = slices.Clone(options)
	for i := range options {
		options[i].Selected = slices.Contains(selected, options[i].Value)
	}
	return options
}

// versionName is the hidden field with the version from which a form was filled: the updatedAt of its object.
const versionName = "updatedAt"

// refuseStale refuses a form that was filled from another version of the object than the current one. The page then shows the form with the input
// and the current version, so that saving once more replaces the change knowingly. Forms and objects without a version pass.
//
// A change between that read and our write is still overwritten, because the API has no conditional change; people who edit the
// same object are seconds apart, not milliseconds.
func (req *pageRequest) refuseStale(updatedAt string) error {
	if typed := req.text(versionName); typed == "" || updatedAt == "" || typed == updatedAt {
		return nil
	}
	return &handlers.Error{
		Code: errcode.Conflict, Field: versionName,
		Message: "Another person changed this meanwhile. Your input is below and not saved yet. Open this page in another tab " +
			"to see the current values. Saving once more replaces them.",
	}
}
