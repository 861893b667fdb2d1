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

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// maxAnswer bounds an answer of the API that a page keeps in memory.
const maxAnswer = 8 << 20

type object map[string]any

// list is a page of a list of the API.
type list[T any] struct {
	Data       []T    `json:"data"`
	NextCursor string `json:"nextCursor"`
}

// get reads from the API: the answer is decoded into `into`. query may be nil. Its error is an [apiError].
func (req *pageRequest) get(path string, query url.Values, into any) error {
	return req.call(apiRequest{method: http.MethodGet, path: path, query: query}, into)
}

// send sends a change: body is encoded as JSON (nil is none), the answer decoded into `into` (nil drops it). Its error is an
// [apiError].
func (req *pageRequest) send(method, path string, body, into any) error {
	return req.call(apiRequest{method: method, path: path, body: body}, into)
}

func (req *pageRequest) call(ask apiRequest, into any) error {
	r, err := req.request(ask)
	if err != nil {
		return err
	}
	answer := &recorder{header: make(http.Header), status: http.StatusOK}
	req.d.config.API.ServeHTTP(answer, r)
	// Signing in and out set cookies.
	for _, cookie := range answer.header["Set-Cookie"] {
		req.w.Header().Add("Set-Cookie", cookie)
	}
	switch {
	case answer.tooLong:
		return fmt.Errorf("%s %s: the answer has more than %d bytes", ask.method, ask.path, maxAnswer)
	case answer.status >= http.StatusBadRequest:
		return answer.apiError()
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(answer.body.Bytes(), into); err != nil {
		return fmt.Errorf("reading the answer to %s %s: %w", ask.method, ask.path, err)
	}
	return nil
}

// request returns a request to the API with the browser's context, cookie, address and origin.
func (req *pageRequest) request(ask apiRequest) (*http.Request, error) {
	var body io.Reader = http.NoBody
	switch raw, encoded := ask.body.(json.RawMessage); {
	case encoded:
		body = bytes.NewReader(raw)
	case ask.body != nil:
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // a document full of tags would otherwise grow sixfold, beyond the API's bound
		if err := encoder.Encode(ask.body); err != nil {
			return nil, fmt.Errorf("encoding the body of %s %s: %w", ask.method, ask.path, err)
		}
		body = &text
	}
	path := ask.path
	if len(ask.query) > 0 {
		path += "?" + ask.query.Encode()
	}
	r, err := http.NewRequestWithContext(req.r.Context(), ask.method, path, body)
	if err != nil {
		return nil, fmt.Errorf("asking the API: %w", err)
	}
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = req.r.Host, req.r.RemoteAddr, req.r.TLS, path
	r.Proto, r.ProtoMajor, r.ProtoMinor = req.r.Proto, req.r.ProtoMajor, req.r.ProtoMinor
	for _, name := range []string{"Cookie", "Origin", "Sec-Fetch-Site", "User-Agent"} {
		if values := req.r.Header[name]; values != nil {
			r.Header[name] = values
		}
	}
	if ask.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if ask.accept != "" {
		r.Header.Set("Accept", ask.accept)
	}
	if ask.key != "" {
		r.Header.Set("Idempotency-Key", ask.key)
	}
	return r, nil
}

func segment(text string) string { return url.PathEscape(text) }

// recorder keeps an answer of the API, up to [maxAnswer] bytes.
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

func (a *recorder) apiError() error {
	var document struct {
		Error apiError `json:"error"`
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

// Codes that the dashboard itself writes or looks for.
const (
	codeUnauthenticated = string(errcode.Unauthenticated)
	codeSuspended       = string(errcode.OrganizationSuspended)
	codeForbidden       = string(errcode.Forbidden)
	codeNotFound        = string(errcode.NotFound)
	codeInvalidRequest  = string(errcode.InvalidRequest)
	codeConflict        = string(errcode.Conflict)
	codeInternal        = string(errcode.InternalError)
)

// errAnswered is returned by show and do when they have written the response themselves.
var errAnswered = errors.New("the answer is written")

// apiError is an error body of the API (docs/contract.md#error-body).
type apiError struct {
	Status     int    `json:"-"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	Field      string `json:"field,omitempty"`
	DocsURL    string `json:"docsUrl,omitempty"`
	RequestID  string `json:"requestId"`
	RetryAfter int64  `json:"retryAfter,omitempty"`
}

func (f *apiError) Error() string {
	return fmt.Sprintf("the API answered %d %s: %s (%s)", f.Status, f.Code, f.Message, f.RequestID)
}

// refuseField returns an error of a field that the API never sees.
func refuseField(name, message string) *apiError {
	return &apiError{Status: http.StatusBadRequest, Code: codeInvalidRequest, Field: name, Message: message}
}

// apiErrorOf returns the apiError in err; the text of any other error stays in the log.
func (d *Dashboard) apiErrorOf(err error) *apiError {
	if f, ok := errors.AsType[*apiError](err); ok {
		return f
	}
	d.config.Logger.Error("the dashboard failed", "error", err)
	return &apiError{
		Status: http.StatusInternalServerError, Code: codeInternal,
		Message: "The service failed to handle the request. Try again. If it fails again, tell the operator.",
	}
}
