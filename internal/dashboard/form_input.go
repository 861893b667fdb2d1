package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const (
	// maxFields bounds the fields of a form, because each field needs many times its size.
	maxFields = 1000
	// maxParts bounds the fields and files of a form with files, and maxPartHeader the headers of each, in bytes.
	maxParts      = 20
	maxPartHeader = 2 << 10
	// firstRead is the size of the first read of a body, in bytes.
	firstRead = 512
)

// errForm is the error of a body that no browser sends for our forms.
var errForm = errors.New("the body is not a form of ours")

// upload is a file of a form. Its content is a part of the body.
type upload struct {
	name    string
	content []byte
}

// readForm reads the form of a request, up to maxBody bytes (zero means [maxForm]), without a session up to
// [maxFormWithoutSession].
func (req *pageRequest) readForm(maxBody int64) error {
	limit := cmp.Or(maxBody, maxForm)
	if req.session == nil {
		limit = min(limit, maxFormWithoutSession)
	}
	req.sent = url.Values{}
	req.bound(limit)
	text, done, err := req.readBody()
	if err == nil {
		defer done()
		err = req.readFields(text)
	}
	if err != nil {
		return bodyError(err, "The form did not arrive whole. Send it again.")
	}
	return nil
}

// readFields parses the fields and files of a form. Bodies of other media types have none.
func (req *pageRequest) readFields(text []byte) (err error) {
	mediaType, parameters, _ := mime.ParseMediaType(req.r.Header.Get("Content-Type"))
	switch mediaType {
	case "application/x-www-form-urlencoded":
		if bytes.Count(text, []byte("&")) >= maxFields {
			return &http.MaxBytesError{Limit: int64(len(text))}
		}
		req.sent, err = url.ParseQuery(string(text))
		return err
	case "multipart/form-data":
		if req.page.public { // only pages with a session have files
			return nil
		}
		return req.readParts(text, parameters["boundary"])
	default:
		return nil
	}
}

// readParts parses a form with files (RFC 7578). Files are slices of the text, and unknown headers are ignored.
func (req *pageRequest) readParts(text []byte, boundary string) error {
	delimiter := []byte("\r\n--" + boundary)
	if boundary == "" || !bytes.HasPrefix(text, delimiter[2:]) {
		return errForm
	}
	rest := text[len(delimiter)-2:]
	for n := 0; !bytes.HasPrefix(rest, []byte("--")); n++ {
		if n == maxParts {
			return &http.MaxBytesError{Limit: int64(len(text))}
		}
		part, after, found := bytes.Cut(rest, delimiter)
		if !found {
			return errForm
		}
		if err := req.readPart(part); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

// readPart reads one part: the end of the delimiter's line, headers, an empty line, the content.
func (req *pageRequest) readPart(part []byte) error {
	emptyLine := []byte("\r\n\r\n")
	header, _, found := bytes.Cut(part[:min(len(part), maxPartHeader)], emptyLine)
	if !found {
		return errForm
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
			req.sent.Add(field, string(content))
		} else {
			req.files = append(req.files, namedUpload{field, upload{filepath.Base(file), content}})
		}
		return nil
	}
	return errForm
}

func (req *pageRequest) file(field string) (file upload, ok bool) {
	for _, one := range req.files {
		if one.field == field {
			return one.upload, true
		}
	}
	return upload{}, false
}

// namedUpload is a file with the name of its field.
type namedUpload struct {
	field string
	upload
}

// readBody reads the bounded body. It may be decoded until done is called.
func (req *pageRequest) readBody() (text []byte, done func(), err error) {
	text, err = readAll(req.r.Body, req.r.ContentLength)
	done = func() {}
	if err == nil && req.d.config.Bodies != nil {
		done, err = req.d.config.Bodies.Decoding(req.r.Context(), len(text))
	}
	return text, done, err
}

// readAll reads a body of a declared length, or -1. The buffer grows with the bytes that arrive and never exceeds the declared length,
// so that all buffers together stay below four times the body.
func readAll(body io.Reader, declared int64) ([]byte, error) {
	text := make([]byte, 0, firstRead)
	for {
		if len(text) == cap(text) {
			size := 2 * int64(cap(text))
			if declared >= int64(len(text)) {
				size = min(size, declared+1) // one more byte, to read the end
			}
			text = append(make([]byte, 0, size), text...)
		}
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// maxForm bounds a form, in bytes. It has room for instructions of 100,000 characters, each escaped.
const maxForm = 2 << 20

// maxFormWithoutSession bounds a form of a request without a session, in bytes. Such forms are a password, or input that is kept until its
// sender has signed in again.
const maxFormWithoutSession = 16 << 10

// text returns the input of a field, with line ends of \n.
func (req *pageRequest) text(name string) string {
	return strings.ReplaceAll(req.sent.Get(name), "\r\n", "\n")
}

func (req *pageRequest) flag(name string) bool { return req.sent.Get(name) != "" }

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
// again, and a form of more than [maxFormWithoutSession] bytes is lost.
func (req *pageRequest) keepInput() {
	form := keptForm{Address: req.r.URL.RequestURI()}
	if req.sent == nil && req.readForm(0) != nil {
		req.sent, form.Lost = url.Values{}, true
	}
	for name, values := range req.sent {
		if req.action != nil && slices.Contains(req.action.secrets, name) {
			continue
		}
		for _, value := range values {
			form.Values = append(form.Values, kept{name, value})
		}
	}
	slices.SortStableFunc(form.Values, func(a, b kept) int { return strings.Compare(a.Name, b.Name) })
	shown := req.view(form)
	shown.Title = req.say.T("Your session has ended")
	req.write(http.StatusUnauthorized, endedTemplate, shown)
}

// Bodies bounds the memory of request bodies and pages, and how many bodies are decoded at a time, over all requests. handlers.ByteBudget
// implements it.
type Bodies interface {
	// Meter returns the body of r. Its bytes are charged as they are read, to the organization, or to the client's address if
	// orgID is empty, and must arrive in time. release returns them. An error of Read may be a [handlers.Error].
	Meter(w http.ResponseWriter, r *http.Request, orgID string) (body io.ReadCloser, release func())
	// Decoding waits until a body of that many bytes may be decoded; done ends it. The error is a [handlers.Error].
	Decoding(ctx context.Context, size int) (done func(), err error)
	// Page reserves bytes for the page that answers r, charged like its body. send writes the page, even a larger page, and returns the bytes
	// when the browser has the page; release returns them without a page. The error is a [handlers.Error].
	Page(r *http.Request, orgID string, bytes int64) (send SendPage, release func(), err error)
}

// SendPage writes a whole page. It is an alias, so that another package can have the method Page without importing this one.
type SendPage = func(w http.ResponseWriter, status int, contentType string, text []byte)

// usualPage is the size in bytes of a large page. An action reserves it first, because its page may show a secret that is shown only once.
const usualPage = 64 << 10

// orgID returns the organization to which the request is charged, empty for the client's address.
func (req *pageRequest) orgID() string {
	if req.session == nil {
		return ""
	}
	return req.session.Organization.ID
}

// reserve makes room for the page until [pageRequest.release]. Its error is that of an action.
func (req *pageRequest) reserve(bytes int) error {
	if req.d.config.Bodies == nil {
		return nil
	}
	send, release, err := req.d.config.Bodies.Page(req.r, req.orgID(), int64(bytes))
	if err != nil {
		return err
	}
	req.sendPage, req.releasePage = send, release
	return nil
}

// writePage writes a whole page, in the room that was reserved for it.
func (req *pageRequest) writePage(status int, text []byte) {
	const contentType = "text/html; charset=utf-8"
	if req.sendPage == nil && req.reserve(len(text)) != nil {
		req.w.Header().Set("Retry-After", "1")
		const full = "The pages that you have not read yet are too large together. Try again."
		http.Error(req.w, full, http.StatusTooManyRequests) //nolint:forbidigo // a page is what has no room
		return
	}
	if req.sendPage != nil {
		req.sendPage(req.w, status, contentType, text)
		return
	}
	req.w.Header().Set("Content-Type", contentType)
	req.w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	req.w.WriteHeader(status)
	_, _ = req.w.Write(text) // the browser may be gone
}

// bound limits the body to limit bytes and charges them until [pageRequest.release].
func (req *pageRequest) bound(limit int64) {
	if req.d.config.Bodies != nil {
		if req.releaseBody != nil {
			req.releaseBody()
		}
		req.r.Body, req.releaseBody = req.d.config.Bodies.Meter(req.w, req.r, req.orgID())
	}
	req.r.Body = http.MaxBytesReader(req.w, req.r.Body, limit)
}

// release returns the memory of the body and of the page, which must no longer be referred to.
func (req *pageRequest) release() {
	for _, release := range []*func(){&req.releaseBody, &req.releasePage} {
		if *release != nil {
			(*release)()
			*release = nil
		}
	}
}

// bodyError returns the error of a body that could not be read. broken is the message for errors that are no [handlers.Error].
func bodyError(err error, broken ui.Text) *handlers.Error {
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		broken = "What you sent is too large."
	}
	if refused, ok := errors.AsType[*handlers.Error](err); ok {
		return refused
	}
	return refuseField("", broken)
}
