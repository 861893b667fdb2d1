package dashboard

import (
	"slices"
	"strings"
)

// kind is how a field is shown.
type kind string

// The kinds of fields.
const (
	textField     kind = "text"
	emailField    kind = "email"
	numberField   kind = "number"   // a text with the keyboard for numbers, so that a wrong one is kept, too
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

// form is a form as its template shows it; [visit.form] fills in what was typed and what was wrong with it.
type form struct {
	// ID is <noun>-<verb>, with the row's id behind it where a page has several.
	ID string
	// Action is where it is sent; "" is the page's own address.
	Action string
	// Submit is the text of its button.
	Submit string
	Fields []field
	// Confirm is asked before it is sent; "" asks nothing.
	Confirm string
	// Danger: it takes something away.
	Danger bool
	// Get: it asks for something, so that its values stand in the address.
	Get bool

	// Error is what was wrong with none of the fields.
	Error string
	// Refused: something was wrong.
	Refused bool
}

// Multipart reports whether the form sends files.
func (f form) Multipart() bool {
	return slices.ContainsFunc(f.Fields, func(one field) bool { return one.Kind == fileField })
}

// Bare reports whether the form shows nothing but its button.
func (f form) Bare() bool {
	return !slices.ContainsFunc(f.Fields, func(one field) bool { return one.Kind != hiddenField })
}

// field is an input with its label.
type field struct {
	// Name is the API's name of it, as its errors name it.
	Name  string
	Kind  kind
	Label string
	// Hint says more below the label.
	Hint string
	// Value is what it holds at first. A box is checked by "true".
	Value    string
	Required bool
	// MaxLength is in characters; 0 is none.
	MaxLength int
	// Rows is the height of an area; 0 is 6.
	Rows int
	// Options are those of a select, or the boxes of a group.
	Options []option
	// Autocomplete is the browser's name for it, as "username".
	Autocomplete string
	// Accept are the types of files.
	Accept string

	// ID is the form's and the name; Error is what was wrong.
	ID, Error string
}

// option is a choice of a select, or a box of a group.
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

// Described is the list of what describes the input (aria-describedby).
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

// button is a form without fields. For a row of a table its id has the row's at its end, and the action's address in full.
func button(id, action, text, confirm string) form {
	return form{ID: id, Action: action, Submit: text, Confirm: confirm, Danger: confirm != ""}
}

// form is f as it is shown now: when it was sent and refused, with what was typed and the error at its field.
func (v *visit) form(f form) form {
	if f.Action == "" && !f.Get && v.action != nil && v.action.verb != "" {
		f.Action = v.path() // the browser's address is that of another form
	}
	f.Fields = slices.Clone(f.Fields)
	for i := range f.Fields {
		f.Fields[i].ID = f.ID + "-" + f.Fields[i].Name
	}
	if !v.wasRefused(f) {
		return f
	}
	v.told = f.ID
	for i := range f.Fields {
		v.keep(&f.Fields[i])
	}
	refuseForm(&f, v.refused)
	return f
}

// refuseForm says what was wrong, at the field that the API named.
func refuseForm(f *form, why *fault) {
	f.Refused = true
	if faulty := f.fieldOf(why.Field); faulty != nil {
		faulty.Error = why.Message
		return
	}
	f.Error = why.Message
}

// wasRefused reports whether f is the form that was sent and refused. Forms in rows are told apart by their addresses and by
// their hidden fields.
func (v *visit) wasRefused(f form) bool {
	if v.refused == nil || v.action == nil {
		return false
	}
	if f.ID == v.action.form {
		return true
	}
	return strings.HasPrefix(f.ID, v.action.form+"-") && f.Action == v.r.URL.Path &&
		!slices.ContainsFunc(f.Fields, func(one field) bool { return one.Kind == hiddenField && one.Value != v.sent.Get(one.Name) })
}

// fieldOf is the visible field that the API means by a name like "scopes[0]" or "credentials.botToken"; nil without one.
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

// keep puts what was typed into the field.
func (v *visit) keep(f *field) {
	switch f.Kind {
	case secretField, fileField, readOnlyField:
	case checkField:
		f.Value = ""
		if v.flag(f.Name) {
			f.Value = "true"
		}
	case selectField, checksField:
		chosen := v.sent[f.Name]
		f.Options = slices.Clone(f.Options)
		for i := range f.Options {
			f.Options[i].Selected = slices.Contains(chosen, f.Options[i].Value)
		}
	default:
		if f.Name == versionName && v.refused.Field == versionName {
			return // it is the version of now, see refuseStale
		}
		f.Value = v.text(f.Name)
	}
}

// choices are options with one of them, or several, selected.
func choices(options []option, selected ...string) []option {
	options = slices.Clone(options)
	for i := range options {
		options[i].Selected = slices.Contains(selected, options[i].Value)
	}
	return options
}
