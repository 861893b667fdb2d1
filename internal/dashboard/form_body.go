package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
)

const (
	// maxFields bounds the fields of a form; each takes many times its size.
	maxFields = 1000
	// maxParts bounds the fields and files of a form with files, and maxPartHeader what stands before each, in bytes.
	maxParts      = 20
	maxPartHeader = 2 << 10
	// firstRead is how much is read of a body at first, in bytes.
	firstRead = 512
)

// errForm says that a body is not what a browser sends for a form of ours.
var errForm = errors.New("the body is not a form of ours")

// upload is a file of a form. Its content is a part of the body.
type upload struct {
	name    string
	content []byte
}

// readForm reads what a form sent, at most maxBody bytes (0 is [maxForm]), and without a session [maxStrangerForm].
func (v *visit) readForm(maxBody int64) error {
	limit := cmp.Or(maxBody, maxForm)
	if v.session == nil {
		limit = min(limit, maxStrangerForm)
	}
	v.sent = url.Values{}
	v.bound(limit)
	text, done, err := v.readBody()
	if err == nil {
		defer done()
		err = v.readFields(text)
	}
	if err != nil {
		return bodyFault(err, "The form did not arrive whole. Send it again.")
	}
	return nil
}

// readFields reads a form's fields and files. A body that is no form has none.
func (v *visit) readFields(text []byte) (err error) {
	mediaType, parameters, _ := mime.ParseMediaType(v.r.Header.Get("Content-Type"))
	switch mediaType {
	case "application/x-www-form-urlencoded":
		if bytes.Count(text, []byte("&")) >= maxFields {
			return &http.MaxBytesError{Limit: int64(len(text))}
		}
		v.sent, err = url.ParseQuery(string(text))
		return err //nolint:wrapcheck // only that there is one counts
	case "multipart/form-data":
		if v.page.public { // only pages with a session have files
			return nil
		}
		return v.readParts(text, parameters["boundary"])
	default:
		return nil
	}
}

// readParts reads a form with files (RFC 7578). The files stay where they are in the text, and nothing is made of headers
// that we don't ask for.
func (v *visit) readParts(text []byte, boundary string) error {
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
		if err := v.readPart(part); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

// readPart reads one part: the end of the delimiter's line, headers, an empty line, the content.
func (v *visit) readPart(part []byte) error {
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
			v.sent.Add(field, string(content))
		} else {
			v.files = append(v.files, namedUpload{field, upload{filepath.Base(file), content}})
		}
		return nil
	}
	return errForm
}

// file is a file of a form; ok is false when none was chosen.
func (v *visit) file(field string) (file upload, ok bool) {
	for _, one := range v.files {
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

// readJSON returns the JSON that a script sent to a relay, which bounds it. The API reads it; nothing is made of it here.
func (v *visit) readJSON() (json.RawMessage, error) {
	text, done, err := v.readBody()
	if err == nil {
		defer done()
		if !json.Valid(text) {
			err = errForm
		}
	}
	if err != nil {
		return nil, bodyFault(err, "What was sent can't be read.")
	}
	return text, nil
}

// readBody reads the bounded body to its end. It may be decoded until done is called.
func (v *visit) readBody() (text []byte, done func(), err error) {
	text, err = readAll(v.r.Body, v.r.ContentLength)
	done = func() {}
	if err == nil && v.d.config.Bodies != nil {
		done, err = v.d.config.Bodies.Decoding(v.r.Context(), len(text))
	}
	return text, done, err
}

// readAll reads a body whose length may be declared, else it is -1. The buffer follows what arrives, but never exceeds what
// was declared, so that all that is taken on the way is at most four times the body.
func readAll(body io.Reader, declared int64) ([]byte, error) {
	text := make([]byte, 0, firstRead)
	for {
		if len(text) == cap(text) {
			size := 2 * int64(cap(text))
			if declared >= int64(len(text)) {
				size = min(size, declared+1) // the end is read, too
			}
			text = append(make([]byte, 0, size), text...)
		}
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, err //nolint:wrapcheck // bodyFault looks into it
		}
	}
}
