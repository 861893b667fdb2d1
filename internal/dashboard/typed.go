package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
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

// maxFields bounds the fields of a form; each takes many times its size.
const maxFields = 1000

// maxFiles is how many bytes of files stay in memory; it is above every maxBody, so that none goes to the disk.
const maxFiles = 64 << 20

// readForm reads what a form sent, at most maxBody bytes (0 is [maxForm]), and without a session [maxStrangerForm].
func (v *visit) readForm(maxBody int64) error {
	limit := cmp.Or(maxBody, maxForm)
	if v.session == nil {
		limit = min(limit, maxStrangerForm)
	}
	v.bound(limit)
	err := v.checkFields()
	if err == nil {
		err = v.r.ParseForm() // by itself, for the next one hides its error
	}
	if err == nil && !v.page.public { // only forms with files are of several parts, and a part takes many times its size
		err = v.r.ParseMultipartForm(maxFiles) //nolint:gosec // G120: MaxBytesReader bounds it
	}
	if errors.Is(err, http.ErrNotMultipart) {
		err = nil
	}
	v.sent = v.r.PostForm
	if err != nil {
		return bodyFault(err, "The form did not arrive whole. Send it again.")
	}
	return nil
}

// checkFields refuses a form with more fields than any of ours, before something is made of each.
func (v *visit) checkFields() error {
	mediaType, _, _ := mime.ParseMediaType(v.r.Header.Get("Content-Type")) // what has none is no form
	if mediaType != "application/x-www-form-urlencoded" {
		return nil
	}
	text, err := io.ReadAll(v.r.Body)
	if err != nil {
		return err //nolint:wrapcheck // bodyFault looks into it
	}
	if bytes.Count(text, []byte("&")) >= maxFields {
		return &http.MaxBytesError{Limit: int64(len(text))}
	}
	v.r.Body = io.NopCloser(bytes.NewReader(text))
	return nil
}

// readJSON decodes what a script sent to a relay, which bounds it.
func (v *visit) readJSON(into any) error {
	text, err := io.ReadAll(v.r.Body)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return bodyFault(err, "What was sent can't be read.")
	}
	return nil
}

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

// file is a file of a form; ok is false when none was chosen.
func (v *visit) file(name string) (fileName, mediaType string, content []byte, ok bool) {
	opened, header, err := v.r.FormFile(name)
	if err != nil {
		return "", "", nil, false
	}
	defer opened.Close() //nolint:errcheck // it is in memory
	content, err = io.ReadAll(opened)
	if err != nil {
		return "", "", nil, false
	}
	mediaType, _, err = mime.ParseMediaType(header.Header.Get("Content-Type"))
	if err != nil {
		mediaType = ""
	}
	return header.Filename, mediaType, content, true
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
