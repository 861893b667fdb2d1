package dashboard

import (
	"net/http"
	"slices"
	"strings"
)

type kind string

// The kinds of fields.
const (
	textField     kind = "text"
	emailField    kind = "email"
	numberField   kind = "number"   // a text field with a numeric keyboard, so that a wrong input is kept, too
	dateField     kind = "date"     // YYYY-MM-DD
	secretField   kind = "password" // never written into a page again
	areaField     kind = "textarea"
	selectField   kind = "select"
	checkField    kind = "checkbox" // one box, sent as "true"
	checksField   kind = "checks"   // a group of boxes with one name
	fileField     kind = "file"
	hiddenField   kind = "hidden"
	readOnlyField kind = "readonly"
)

// form is a form as its template shows it; [pageRequest.form] adds what was entered and the error.
type form struct {
	// ID is <noun>-<verb>, followed by the row's id where a page has several.
	ID string
	// Action is the address the form is sent to; "" is the page's own.
	Action string
	// Submit is the text of its button.
	Submit string
	// Preview is the address to which another button sends the form, which shows the page with what was entered; "" is none.
	Preview string
	Fields  []field
	// Confirm is the question before it is sent; "" is none.
	Confirm string
	// Danger: the action deletes or revokes something.
	Danger bool
	// Get: the form is a query, whose values stand in the address.
	Get bool

	// Error is an error that concerns none of the fields.
	Error string
	// Refused: the form was sent and refused.
	Refused bool
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
	// MaxLength is in characters; 0 is none.
	MaxLength int
	// Rows is the height of an area; 0 is 6.
	Rows int
	// Options are those of a select, or the boxes of a group.
	Options []option
	// Autocomplete is the browser's autofill token, like "username".
	Autocomplete string
	// Accept are the types of files.
	Accept string

	// ID is made of the form's id and the name; Error is the field's error.
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

// button returns a form without fields. In a row of a table its id ends in the row's, and its action is a full address.
func button(id, action, text, confirm string) form {
	return form{ID: id, Action: action, Submit: text, Confirm: confirm, Danger: confirm != ""}
}

// form returns f as it is shown now: after a refusal, with what was entered and the error at its field.
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

// refuseForm puts the error at the field that the API named, or at the form.
func refuseForm(f *form, why *apiError) {
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

// fieldOf returns the visible field for a name of the API like "scopes[0]" or "credentials.botToken"; nil without one.
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

func versionField(updatedAt string) field {
	return field{Name: versionName, Kind: hiddenField, Value: updatedAt}
}

// refuseStale refuses a form that was filled from another version than the one just read. The form is then shown with what was
// entered and the current version, so that saving once more replaces it knowingly. Forms and objects without a version pass.
//
// A change between that read and our write is still overwritten, because the API has no conditional change; people who edit the
// same object are seconds apart, not milliseconds.
func (req *pageRequest) refuseStale(updatedAt string) error {
	if typed := req.text(versionName); typed == "" || updatedAt == "" || typed == updatedAt {
		return nil
	}
	return &apiError{
		Status: http.StatusConflict, Code: codeConflict, Field: versionName,
		Message: "Another person changed this meanwhile. Your input is below and not saved yet. Open this page in another tab " +
			"to see the current values. Saving once more replaces them.",
	}
}
