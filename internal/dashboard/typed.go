package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxForm bounds what a form sends, in bytes: room for instructions of 100,000 characters, each escaped.
const maxForm = 2 << 20

// maxStrangerForm bounds what is read of a form that comes without a session, in bytes: a password and the like, or what is
// kept until its sender has signed in again.
const maxStrangerForm = 16 << 10

// text is what was typed into a field, with line ends as everywhere but in forms.
func (v *visit) text(name string) string {
	return strings.ReplaceAll(v.sent.Get(name), "\r\n", "\n")
}

// texts are the values of a field that has several, without empty ones; never nil.
func (v *visit) texts(name string) []string {
	return append([]string{}, slices.DeleteFunc(slices.Clone(v.sent[name]), func(value string) bool { return value == "" })...)
}

// flag reports whether a checkbox is checked.
func (v *visit) flag(name string) bool { return v.sent.Get(name) != "" }

// number is what was typed into a field for a number, as the API is asked: nil (null in JSON) for nothing, and a text for
// what is no number, which the API then refuses at its field.
func (v *visit) number(name string) any {
	typed := strings.TrimSpace(v.sent.Get(name))
	if typed == "" {
		return nil
	}
	var number json.Number
	if json.Unmarshal([]byte(typed), &number) == nil && typed[0] != '"' {
		return number
	}
	return typed
}

// orNull is a text, or nil (null in JSON) for "".
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// kept is a value of a form that waits for its sender to sign in.
type kept struct{ Name, Value string }

// keptForm is shown to who sent a form after the session had ended: what was typed, to be sent once more.
type keptForm struct {
	Address string
	Values  []kept
	// Lost: it was too long, or did not arrive whole, and nothing is kept.
	Lost bool
}

// keepTyped shows a page that keeps what was typed while its sender signs in, in another tab. Secrets and files are asked
// for anew, and a form of more than [maxStrangerForm] keeps nothing.
func (v *visit) keepTyped() {
	form := keptForm{Address: v.r.URL.RequestURI()}
	if v.sent == nil && v.readForm(0) != nil {
		v.sent, form.Lost = url.Values{}, true
	}
	for name, values := range v.sent {
		if v.action != nil && slices.Contains(v.action.secrets, name) {
			continue
		}
		for _, value := range values {
			form.Values = append(form.Values, kept{name, value})
		}
	}
	slices.SortStableFunc(form.Values, func(a, b kept) int { return strings.Compare(a.Name, b.Name) })
	shown := v.view(form)
	shown.Title = "Your session has ended"
	v.write(http.StatusUnauthorized, endedTemplate, shown)
}
