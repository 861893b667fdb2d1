package site

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const (
	// maxForm bounds a form, in bytes. It has room for instructions of 100,000 characters, each escaped.
	maxForm = 2 << 20
	// SmallForm bounds a form of a request without a session, in bytes. Such forms are a password, or input that is kept until its sender has
	// signed in again.
	SmallForm = 16 << 10
	// maxFields bounds the fields of a form, because each field needs many times its size.
	maxFields = 1000
	// maxParts bounds the fields and files of a form with files, and maxPartHeader the headers of each, in bytes.
	maxParts      = 20
	maxPartHeader = 2 << 10
	// usualPage is the size in bytes of a large page. An action reserves it first, because its page may show a secret that is shown only once.
	usualPage = 64 << 10
)

var (
	// ErrForm is the error of a body that no browser sends for the site's forms.
	ErrForm = errors.New("the body is not a form of ours")

	errLarge = RefuseField("", "What you sent is too large.")
)

// upload is a file of a form. Its content is a part of the body.
type upload struct {
	field, name string
	content     []byte
}

// account returns the account of the request's memory.
func (req *Request) account() handlers.Account {
	if req.Account != "" {
		return handlers.Account{Share: handlers.ShareOrganizations, Owner: req.Account}
	}
	return handlers.Account{Share: handlers.ShareStrangers, Owner: handlers.ClientAddress(req.R)}
}

// reserve makes room for the page until [Request.release]. Its error is that of an action.
func (req *Request) reserve(size int) error {
	room := handlers.NewRoom(req.Site.Bodies, req.account())
	if !room.Grow(int64(size)) {
		return handlers.NoRoom()
	}
	req.room = room
	return nil
}

// release returns the memory of the body and of the page, which must no longer be referred to.
func (req *Request) release() {
	req.releaseBody()
	req.room.Close()
}

// ReadBody reads the body of the request, up to limit bytes, and passes it to decode. broken is the message for errors of decode that are no
// [handlers.Error].
func (req *Request) ReadBody(limit int64, broken ui.Text, decode func(body []byte) error) error {
	if req.R.ContentLength > limit {
		return errLarge
	}
	body, release, err := handlers.ReadBody(req.W, req.R, limit, req.Site.Bodies, req.account())
	if err != nil {
		return err
	}
	req.releaseBody = release
	done, err := req.Site.Bodies.Decoding(req.R.Context(), len(body))
	if err != nil {
		return err
	}
	defer done()
	err = decode(body)
	if _, refused := errors.AsType[*handlers.Error](err); err == nil || refused {
		return err
	}
	return RefuseField("", broken)
}

// readForm reads the form of a request, up to maxBody bytes (zero means [maxForm]), without a session up to [SmallForm].
func (req *Request) readForm(maxBody int64) error {
	limit := cmp.Or(maxBody, maxForm)
	if req.Account == "" {
		limit = min(limit, SmallForm)
	}
	req.Sent = ui.Sent{}
	return req.ReadBody(limit, "The form did not arrive whole. Send it again.", req.readFields)
}

// readFields parses the fields and files of a form. Bodies of other media types have none.
func (req *Request) readFields(body []byte) error {
	mediaType, parameters, _ := mime.ParseMediaType(req.R.Header.Get("Content-Type"))
	switch mediaType {
	case "application/x-www-form-urlencoded":
		if bytes.Count(body, []byte("&")) >= maxFields {
			return errLarge
		}
		fields, err := url.ParseQuery(string(body))
		req.Sent = ui.Sent(fields)
		return err
	case "multipart/form-data":
		if req.public { // only pages with a session have files
			return nil
		}
		return req.readParts(body, parameters["boundary"])
	default:
		return nil
	}
}

// readParts parses a form with files (RFC 7578). Files are slices of the body, and unknown headers are ignored.
func (req *Request) readParts(body []byte, boundary string) error {
	delimiter := []byte("\r\n--" + boundary)
	if boundary == "" || !bytes.HasPrefix(body, delimiter[2:]) {
		return ErrForm
	}
	rest := body[len(delimiter)-2:]
	for n := 0; !bytes.HasPrefix(rest, []byte("--")); n++ {
		if n == maxParts {
			return errLarge
		}
		part, after, found := bytes.Cut(rest, delimiter)
		if !found {
			return ErrForm
		}
		if err := req.readPart(part); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

// readPart reads one part: the end of the delimiter's line, headers, an empty line, the content.
func (req *Request) readPart(part []byte) error {
	emptyLine := []byte("\r\n\r\n")
	header, _, found := bytes.Cut(part[:min(len(part), maxPartHeader)], emptyLine)
	if !found {
		return ErrForm
	}
	content := part[len(header)+len(emptyLine):]
	for line := range bytes.SplitSeq(header, []byte("\r\n")) {
		name, value, _ := strings.Cut(string(line), ":")
		if !strings.EqualFold(strings.TrimSpace(name), "Content-Disposition") {
			continue
		}
		_, parameters, err := mime.ParseMediaType(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("reading a part of a form: %w", err)
		}
		if field, file := parameters["name"], parameters["filename"]; file == "" {
			url.Values(req.Sent).Add(field, string(content))
		} else {
			req.files = append(req.files, upload{field, filepath.Base(file), content})
		}
		return nil
	}
	return ErrForm
}

// File returns the name and the content of a file of the form. The content is a part of the body.
func (req *Request) File(field string) (name string, content []byte, chosen bool) {
	for _, one := range req.files {
		if one.field == field {
			return one.name, one.content, true
		}
	}
	return "", nil, false
}

// Text returns the input of a field, with line ends of \n.
func (req *Request) Text(name string) string { return req.Sent.Text(name) }

// Form returns f as the page shows it: after a refusal, with the input and the error at its field.
func (req *Request) Form(f ui.Form) ui.Form {
	if f.Action == "" && !f.Get && req.Verb != "" {
		f.Action = req.Path() // the browser's address is that of another form
	}
	f = f.Shown(req.Say)
	if req.wasRefused(f) {
		req.errorForm = f.ID
		f.Keep(req.Sent, req.Translated(req.Refused))
	}
	return f
}

// Filter returns a form of parameters of the page's address as the page shows it, with their values.
func (req *Request) Filter(f ui.Form) ui.Form {
	f.Get, f.Fields = true, slices.Clone(f.Fields)
	for i := range f.Fields {
		one := &f.Fields[i]
		one.Value = req.Query(one.Name)
		one.Options = ui.Choices(one.Options, one.Value)
	}
	return req.Form(f)
}

// wasRefused reports whether f is the form that was sent and refused. Forms in rows are distinguished by their addresses and
// hidden fields.
func (req *Request) wasRefused(f ui.Form) bool {
	if req.Refused == nil || f.ID == req.form {
		return req.Refused != nil
	}
	return strings.HasPrefix(f.ID, req.form+"-") && f.Action == req.R.URL.Path &&
		!slices.ContainsFunc(f.Fields, func(one ui.Field) bool { return one.Kind == ui.HiddenField && one.Value != req.Sent.Text(one.Name) })
}

// Phrase returns a text of a form with arguments, such as a question with the name of a thing.
func (req *Request) Phrase(key ui.Text, arguments ...any) ui.Text {
	return ui.Text(req.Say.Tf(key, arguments...))
}

// kept is a value of a form that its sender can send again after signing in.
type kept struct{ Name, Value string }

// keptForm is the input of a form that arrived after its session had ended.
type keptForm struct {
	Address string
	Values  []kept
	// Lost: the form was too long, or did not arrive whole, and nothing is kept.
	Lost bool
}

// keepInput shows a page that keeps a form's input while its sender signs in, in another tab. Secrets and files must be entered
// again, and a form of more than [SmallForm] bytes is lost.
func (req *Request) keepInput() {
	form := keptForm{Address: req.R.URL.RequestURI()}
	if req.Sent == nil && req.readForm(0) != nil {
		req.Sent, form.Lost = ui.Sent{}, true
	}
	for name, values := range req.Sent {
		if slices.Contains(req.secrets, name) {
			continue
		}
		for _, value := range values {
			form.Values = append(form.Values, kept{name, value})
		}
	}
	slices.SortStableFunc(form.Values, func(a, b kept) int { return strings.Compare(a.Name, b.Name) })
	shown := req.view(form)
	shown.Title = req.Say.T("Your session has ended")
	req.write(http.StatusUnauthorized, endedTemplate, shown)
}
