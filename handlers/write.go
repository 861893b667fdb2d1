package handlers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// maxRetryAfterMS stays below the 60,000 from which on the ai-sdk ignores retry-after-ms.
const maxRetryAfterMS = 59_999

// ErrorBody is the member error of the error body, in the order in which it is written.
type ErrorBody struct {
	Code       errcode.Code `json:"code"`
	Message    string       `json:"message"`
	Field      string       `json:"field,omitempty"`
	DocsURL    string       `json:"docsUrl,omitempty"`
	RetryAfter int64        `json:"retryAfter,omitzero"`
	RequestID  string       `json:"requestId"`
}

// ErrorDocument is the body of every error.
type ErrorDocument struct {
	Error ErrorBody `json:"error"`
}

// WriteError answers with err as the error body of docs/contract.md. An *[Error] anywhere in the chain is written as it stands; any
// other error is internal_error, and nothing of its text leaves. docsBase is the address of the documentation page,
// empty when it isn't served: then there is no docsUrl.
//
// It must be called before anything was written to w. Headers that an earlier handler set for its own body are removed.
func WriteError(w http.ResponseWriter, r *http.Request, err error, docsBase string) {
	e := AsError(err)
	_, id := EnsureRequestID(w, r)
	body := ErrorBody{Code: e.Code, Message: e.message(), Field: e.Field, RequestID: id}
	if docsBase != "" {
		body.DocsURL = docsBase + "#" + string(e.Code)
	}
	status := e.Code.Status()
	h := w.Header()
	for _, stale := range [...]string{
		"Content-Encoding", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified", "Trailer",
		"Retry-After", "Retry-After-Ms", "X-Should-Retry",
	} {
		h.Del(stale)
	}
	if wait := retryAfter(e); wait > 0 {
		seconds := roundUp(wait, time.Second)
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			body.RetryAfter = seconds
		}
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(min(roundUp(wait, time.Millisecond), maxRetryAfterMS), 10))
	}
	if e.NoRetry || e.Code.Final() {
		h.Set("X-Should-Retry", "false")
	}
	WriteJSON(w, status, Marshal(ErrorDocument{body}))
}

// AppendErrorEvent appends the event that ends a stream after its first byte:
// one data line with code, message and request id, and a blank line. Nothing may follow it.
func AppendErrorEvent(dst []byte, err error, requestID string) []byte {
	e := AsError(err)
	dst = append(dst, "data: "...)
	dst = append(dst, Marshal(ErrorDocument{ErrorBody{Code: e.Code, Message: e.message(), RequestID: requestID}})...)
	return append(dst, "\n\n"...)
}

// Marshal encodes a value of the service's own types, which can't fail: bytes that aren't UTF-8 are replaced.
func Marshal(v any) []byte {
	text, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("handlers: encoding an answer: " + err.Error())
	}
	return text
}
