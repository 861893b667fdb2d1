package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// maxAnswer bounds an answer of the API that a page keeps in memory.
const maxAnswer = 8 << 20

// object is a JSON object that is sent to the API.
type object map[string]any

// list is a page of a list of the API.
type list[T any] struct {
	Data       []T    `json:"data"`
	NextCursor string `json:"nextCursor"`
}

// get reads from the API: the answer is decoded into `into`. query may be nil. Its error is a [fault].
func (v *visit) get(path string, query url.Values, into any) error {
	return v.call(apiRequest{method: http.MethodGet, path: path, query: query}, into)
}

// send changes something: body is encoded as JSON (nil is none), the answer decoded into `into` (nil drops it).
// Its error is a [fault].
func (v *visit) send(method, path string, body, into any) error {
	return v.call(apiRequest{method: method, path: path, body: body}, into)
}

func (v *visit) call(ask apiRequest, into any) error {
	r, err := v.request(ask)
	if err != nil {
		return err
	}
	answer := &recorder{header: make(http.Header), status: http.StatusOK}
	v.d.config.API.ServeHTTP(answer, r)
	// Signing in and out is what sets cookies.
	for _, cookie := range answer.header["Set-Cookie"] {
		v.w.Header().Add("Set-Cookie", cookie)
	}
	switch {
	case answer.tooLong:
		return fmt.Errorf("%s %s: the answer has more than %d bytes", ask.method, ask.path, maxAnswer)
	case answer.status >= http.StatusBadRequest:
		return answer.fault()
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(answer.body.Bytes(), into); err != nil {
		return fmt.Errorf("reading the answer to %s %s: %w", ask.method, ask.path, err)
	}
	return nil
}

// request is the browser's, asking the API for something else.
func (v *visit) request(ask apiRequest) (*http.Request, error) {
	var body io.Reader = http.NoBody
	switch raw, encoded := ask.body.(json.RawMessage); {
	case encoded:
		body = bytes.NewReader(raw)
	case ask.body != nil:
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // else a document full of tags becomes six times as long, more than the API takes
		if err := encoder.Encode(ask.body); err != nil {
			return nil, fmt.Errorf("encoding the body of %s %s: %w", ask.method, ask.path, err)
		}
		body = &text
	}
	path := ask.path
	if len(ask.query) > 0 {
		path += "?" + ask.query.Encode()
	}
	r, err := http.NewRequestWithContext(v.r.Context(), ask.method, path, body)
	if err != nil {
		return nil, fmt.Errorf("asking the API: %w", err)
	}
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = v.r.Host, v.r.RemoteAddr, v.r.TLS, path
	r.Proto, r.ProtoMajor, r.ProtoMinor = v.r.Proto, v.r.ProtoMajor, v.r.ProtoMinor
	for _, name := range []string{"Cookie", "Origin", "Sec-Fetch-Site", "User-Agent"} {
		if values := v.r.Header[name]; values != nil {
			r.Header[name] = values
		}
	}
	if ask.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if ask.accept != "" {
		r.Header.Set("Accept", ask.accept)
	}
	return r, nil
}

// segment is a text as one segment of a path of the API.
func segment(text string) string { return url.PathEscape(text) }

// recorder keeps an answer of the API, up to [maxAnswer].
type recorder struct {
	header  http.Header
	status  int
	body    bytes.Buffer
	tooLong bool
}

func (a *recorder) Header() http.Header { return a.header }

func (a *recorder) WriteHeader(status int) { a.status = status }

func (a *recorder) Write(text []byte) (int, error) {
	if a.body.Len()+len(text) > maxAnswer {
		a.tooLong = true
		return 0, errors.New("the answer is too long")
	}
	return a.body.Write(text)
}

// fault is the answer's error.
func (a *recorder) fault() error {
	var document struct {
		Error fault `json:"error"`
	}
	if err := json.Unmarshal(a.body.Bytes(), &document); err != nil || document.Error.Code == "" {
		return fmt.Errorf("the API answered %d without an error body", a.status)
	}
	f := document.Error
	f.Status = a.status
	if f.RetryAfter == 0 {
		f.RetryAfter, _ = strconv.ParseInt(a.header.Get("Retry-After"), 10, 64) // 0 when there is none
	}
	return &f
}

var _ http.ResponseWriter = (*recorder)(nil)
