package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// Text is a text in English until [Form.Shown] writes it in the reader's language.
type Text = text.Text

// Printer writes texts and values in the reader's language.
type Printer = text.Printer

// Operation is an operation of an interface, see [FormOf].
type Operation interface {
	Spec() endpoint.Operation
	Fields() []endpoint.Field
}

// Kind is how a field is shown.
type Kind string

// The kinds of fields.
const (
	TextField     Kind = "text"
	EmailField    Kind = "email"
	NumberField   Kind = "number"   // a text field with a numeric keyboard, which keeps a wrong input
	DateField     Kind = "date"     // YYYY-MM-DD
	LinesField    Kind = "lines"    // an area, each of its lines a value
	SecretField   Kind = "password" // no page shows its input again
	AreaField     Kind = "textarea"
	SelectField   Kind = "select"
	CheckField    Kind = "checkbox" // one box, sent as "true"
	ChecksField   Kind = "checks"   // a group of boxes with one name
	FileField     Kind = "file"
	HiddenField   Kind = "hidden"
	ReadOnlyField Kind = "readonly"
)

// Form is a form as the template "form" shows it, after [Form.Shown]. A form of an operation is made once, by [FormOf], and gets its first values by
// [Form.Of].
type Form struct { //nolint:recvcheck // templates show values, and a sent form is changed in place
	// ID is <noun>-<verb>, followed by the row's id where a page has several.
	ID string
	// Action is the address to which the form is sent. Empty means the page's address.
	Action string
	// Submit is the text of its button.
	Submit Text
	// Preview is the address of another button, which shows the page with the input. Empty means no such button.
	Preview string
	Fields  []Field
	// Confirm is the question before it is sent. Empty means no question.
	Confirm Text
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

// Multipart reports whether the form has a file.
func (f Form) Multipart() bool {
	return slices.ContainsFunc(f.Fields, func(one Field) bool { return one.Kind == FileField })
}

// Bare reports whether the form shows only its button.
func (f Form) Bare() bool {
	return !slices.ContainsFunc(f.Fields, func(one Field) bool { return one.Kind != HiddenField })
}

// Field is an input with its label.
type Field struct { //nolint:recvcheck // as for Form
	// Name is the field's name in the API and its errors.
	Name  string
	Kind  Kind
	Label Text
	// Hint is an explanation below the label.
	Hint Text
	// Value is the initial value. A box is checked by "true".
	Value    string
	Required bool
	// MaxLength is in characters. Zero means unlimited.
	MaxLength int
	// Rows is the height of an area. Zero means 6.
	Rows int
	// Options are the options of a select, or the boxes of a group.
	Options []Option
	// Autocomplete is the browser's autofill token, like "username".
	Autocomplete string
	// Accept are the types of files.
	Accept string
	// Micros: the input of the operation is in micros, and people enter credits.
	Micros bool
	// Missing is the error of an empty input that the operation would take for another value.
	Missing Text

	// input is the field of the operation that the form is made of; its Name is empty for other fields.
	input endpoint.Field

	// ID is made of the form's id and the name. Error is the field's error.
	ID, Error string
}

// Option is a choice of a field.
type Option struct {
	Value       string
	Label, Hint Text
	// Named: Label and Hint are the organization's own words, which aren't translated.
	Named    bool
	Selected bool
}

// Height is the number of lines that an area shows.
func (f Field) Height() int { return cmp.Or(f.Rows, 6) }

// Described returns the ids of the elements that describe the input (aria-describedby).
func (f Field) Described() string {
	var ids []string
	if f.Hint != "" {
		ids = append(ids, f.ID+"-hint")
	}
	if f.Error != "" {
		ids = append(ids, f.ID+"-error")
	}
	return strings.Join(ids, " ")
}

// FormOf returns f with inputs for fields of an operation, in the order of the table. A row of the table has the name and the words of a field;
// kind, length, and whether it is required come from the operation. It panics if the operation has no such field or no such option, so a
// table that doesn't fit its operation ends every test.
func FormOf(o Operation, f Form, table ...Field) Form {
	inputs := o.Fields()
	f.change = o.Spec().Method == http.MethodPatch
	for _, row := range table {
		at := slices.IndexFunc(inputs, func(input endpoint.Field) bool { return input.Name == row.Name })
		if at < 0 {
			panic("ui: the form " + f.ID + " has the field " + row.Name + ", which " + o.Spec().ID + " lacks")
		}
		row.input = inputs[at]
		row.MaxLength = row.input.MaxLength
		row.Required = row.Required || row.input.Required || row.input.MinLength > 0 && !row.input.Nullable
		if row.Kind == "" {
			row.Kind = kindOf(row.input)
		}
		for _, option := range row.Options {
			if enum := row.input.Enum; len(enum) > 0 && !slices.Contains(enum, option.Value) {
				panic("ui: the form " + f.ID + " offers " + option.Value + " as " + row.Name)
			}
		}
		f.Fields = append(f.Fields, row)
	}
	return f
}

// kindOf returns the usual kind of a field of an operation.
func kindOf(input endpoint.Field) Kind {
	switch {
	case input.Secret:
		return SecretField
	case input.Type == endpoint.BooleanField:
		return CheckField
	case input.Type == endpoint.NumberField:
		return NumberField
	case input.Type == endpoint.TextsField && len(input.Enum) > 0:
		return ChecksField
	case input.Type == endpoint.TextsField:
		return LinesField
	case len(input.Enum) > 0:
		return SelectField
	}
	return TextField
}

// Of returns the form for an address with first values from members of an answer that have the names of its fields. A nil answer has none.
func (f Form) Of(action string, answer any) Form {
	f.Action, f.Fields = action, slices.Clone(f.Fields)
	if answer == nil {
		return f
	}
	members := endpoint.Members(answer)
	for i := range f.Fields {
		one := &f.Fields[i]
		member, known := members[one.Name]
		if !known || one.Kind == SecretField {
			continue
		}
		switch member := member.(type) {
		case nil:
		case []string:
			one.Value, one.Options = strings.Join(member, "\n"), Choices(one.Options, member...)
		default:
			if one.Value = fmt.Sprint(member); one.Micros {
				one.Value = Credits(one.Value)
			}
			one.Options = Choices(one.Options, one.Value)
		}
	}
	return f
}

// With returns the form with other options of a field. They say which are selected.
func (f Form) With(name string, options []Option) Form {
	f.Fields = slices.Clone(f.Fields)
	for i := range f.Fields {
		if f.Fields[i].Name == name {
			f.Fields[i].Options = options
		}
	}
	return f
}

// Versioned returns the form of a change with the version of the object from which it was filled, see [Sent.RefuseStale].
func (f Form) Versioned(updatedAt string) Form {
	f.Fields = append([]Field{{Name: VersionName, Kind: HiddenField, Value: updatedAt}}, f.Fields...)
	return f
}

// Without returns the form without a field.
func (f Form) Without(name string) Form {
	f.Fields = slices.DeleteFunc(slices.Clone(f.Fields), func(one Field) bool { return one.Name == name })
	return f
}

// Read returns the input of a form of an operation that was sent, and adds it to in.
func (f Form) Read(sent Sent, in endpoint.Values) (endpoint.Values, error) {
	for _, one := range f.Fields {
		if one.input.Name == "" {
			continue
		}
		value, given, err := one.read(sent, f.change)
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
func (f Field) read(sent Sent, change bool) (value any, given bool, err error) {
	typed := sent.Text(f.Name)
	trimmed := strings.TrimSpace(typed)
	texts := []any{}
	for _, text := range sent[f.Name] {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				texts = append(texts, line)
			}
		}
	}
	switch {
	case len(texts) == 0 && f.Missing != "":
		return nil, false, handlers.InvalidRequest(f.Name, "%s", f.Missing)
	case f.input.Type == endpoint.BooleanField:
		return sent.Flag(f.Name), true, nil
	case f.input.Type == endpoint.TextsField: // a group without a checked box sends an empty value, a form without the group none
		return texts, f.Kind != ChecksField || url.Values(sent).Has(f.Name), nil
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
	return typed, typed != "" || f.Required || change && f.Kind != SelectField, nil
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
func (f Field) micros(typed string) (string, error) {
	micros, ok := Micros(typed)
	switch {
	case ok:
		return micros, nil
	case f.input.Nullable:
		return "", handlers.InvalidRequest(f.Name, "%s", amountOrNothing)
	}
	return "", handlers.InvalidRequest(f.Name, "%s", amountMissing)
}

// The errors of a text that is no amount.
const (
	amountOrNothing Text = "Enter an amount of credits, such as 2.50, or nothing."
	amountMissing   Text = "Enter an amount of credits, such as 2.50."
)

// Button returns a form that has only hidden fields, names and values in turn. In a row of a table its id ends in the row's, and its action is a
// full address.
func Button(id, action string, label, confirm Text, hidden ...string) Form {
	f := Form{ID: id, Action: action, Submit: label, Confirm: confirm, Danger: confirm != ""}
	for pair := range slices.Chunk(hidden, 2) {
		f.Fields = append(f.Fields, Field{Name: pair[0], Kind: HiddenField, Value: pair[1]})
	}
	return f
}

// Shown returns the form in the printer's language, with the ids of its inputs.
func (f Form) Shown(p *Printer) Form {
	write := func(texts ...*Text) {
		for _, one := range texts {
			*one = Text(p.T(*one))
		}
	}
	f.Fields = slices.Clone(f.Fields)
	write(&f.Submit, &f.Confirm)
	for i := range f.Fields {
		one := &f.Fields[i]
		one.ID, one.Options = f.ID+"-"+one.Name, slices.Clone(one.Options)
		write(&one.Label, &one.Hint)
		for k := range one.Options {
			if option := &one.Options[k]; !option.Named {
				write(&option.Label, &option.Hint)
			}
		}
	}
	return f
}

// Keep sets the fields of the form to the input that was refused.
func (f *Form) Keep(sent Sent, why *handlers.Error) {
	for i := range f.Fields {
		if f.Fields[i].Name != VersionName || why.Field != VersionName { // else the current version, see RefuseStale
			f.Fields[i].keep(sent)
		}
	}
	f.Refuse(why)
}

// Refuse puts the error at the field that it names, or at the form.
func (f *Form) Refuse(why *handlers.Error) {
	f.Refused = true
	if faulty := f.fieldOf(why.Field); faulty != nil {
		faulty.Error = why.Message
		return
	}
	f.Error = why.Message
}

// fieldOf returns the visible field for a name of the API like "scopes[0]" or "credentials.botToken"; nil if there is none.
func (f Form) fieldOf(name string) *Field {
	outer, _, _ := strings.Cut(name, "[")
	outermost, _, _ := strings.Cut(outer, ".")
	for _, candidate := range []string{name, outer, outermost} {
		for i := range f.Fields {
			if candidate != "" && f.Fields[i].Name == candidate && f.Fields[i].Kind != HiddenField {
				return &f.Fields[i]
			}
		}
	}
	return nil
}

// keep sets the field to the input.
func (f *Field) keep(sent Sent) {
	switch f.Kind {
	case SecretField, FileField, ReadOnlyField:
	case CheckField:
		f.Value = ""
		if sent.Flag(f.Name) {
			f.Value = "true"
		}
	case SelectField, ChecksField:
		f.Options = Choices(f.Options, sent[f.Name]...)
	default:
		f.Value = sent.Text(f.Name)
	}
}

// Choices returns options with the given values selected.
func Choices(options []Option, selected ...string) []Option {
	options = slices.Clone(options)
	for i := range options {
		options[i].Selected = slices.Contains(selected, options[i].Value)
	}
	return options
}

// Schemes returns the colours of pages as options of a select.
func Schemes(chosen string) []Option {
	return Choices([]Option{{Label: "The browser's"}, {Value: "light", Label: "Light"}, {Value: "dark", Label: "Dark"}}, chosen)
}

// Sent is the input of a form.
type Sent url.Values

// Text returns the input of a field, with line ends of \n.
func (s Sent) Text(name string) string {
	return strings.ReplaceAll(url.Values(s).Get(name), "\r\n", "\n")
}

// Flag reports whether a box is checked.
func (s Sent) Flag(name string) bool { return url.Values(s).Get(name) != "" }

// VersionName is the hidden field with the version from which a form was filled: the updatedAt of its object.
const VersionName = "updatedAt"

const changedMeanwhile Text = "Another person changed this meanwhile. Your input is below and not saved yet. Open this page in another tab " +
	"to see the current values. Saving once more replaces them."

// RefuseStale refuses a form that was filled from another version of the object than the current one. The page then shows the form with the input
// and the current version, so that saving once more replaces the change knowingly. Forms and objects without a version pass.
//
// A change between that read and our write is still overwritten, because the API has no conditional change; people who edit the
// same object are seconds apart, not milliseconds.
func (s Sent) RefuseStale(updatedAt string) error {
	if typed := s.Text(VersionName); typed == "" || updatedAt == "" || typed == updatedAt {
		return nil
	}
	return &handlers.Error{Code: errcode.Conflict, Field: VersionName, Message: string(changedMeanwhile)}
}

// Micros parses an amount as [Credits] formats it, or written otherwise, in micros; ok is false for another text.
func Micros(amount string) (micros string, ok bool) {
	const most, places = 12, 6 // digits before and behind the point
	whole, fraction, _ := strings.Cut(amount, ".")
	if whole == "" || len(whole) > most || len(fraction) > places {
		return "", false
	}
	digits := whole + fraction + strings.Repeat("0", places-len(fraction))
	if strings.Trim(digits, "0123456789") != "" {
		return "", false
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	return strconv.FormatInt(number, 10), err == nil
}

// microsPerCredit: the API's amounts are millionths of a credit.
const microsPerCredit = 1_000_000

// Credits formats an amount of micros exactly, such as "12.50" and "-0.000123". It returns other texts unchanged.
func Credits(micros string) string {
	amount, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return micros
	}
	sign, rest := "", uint64(amount)
	if amount < 0 {
		sign, rest = "-", -uint64(amount)
	}
	fraction := fmt.Sprintf("%06d", rest%microsPerCredit)
	const least = 2
	return sign + strconv.FormatUint(rest/microsPerCredit, 10) + "." + fraction[:least] + strings.TrimRight(fraction[least:], "0")
}
