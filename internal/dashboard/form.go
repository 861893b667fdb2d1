package dashboard

import (
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/ui"
)

type (
	form   = ui.Form
	field  = ui.Field
	option = ui.Option
)

// form returns f as the page shows it: after a refusal, with the input and the error at its field.
func (req *pageRequest) form(f form) form {
	if f.Action == "" && !f.Get && req.action != nil && req.action.verb != "" {
		f.Action = req.path() // the browser's address is that of another form
	}
	f = f.Shown(req.say)
	if req.wasRefused(f) {
		req.errorForm = f.ID
		f.Keep(ui.Sent(req.sent), req.translated(req.refused))
	}
	return f
}

// phrase returns a text of a form with arguments, such as a question with the name of a thing.
func (req *pageRequest) phrase(key ui.Text, arguments ...any) ui.Text {
	return ui.Text(req.say.Tf(key, arguments...))
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
		!slices.ContainsFunc(f.Fields, func(one field) bool { return one.Kind == ui.HiddenField && one.Value != req.sent.Get(one.Name) })
}
