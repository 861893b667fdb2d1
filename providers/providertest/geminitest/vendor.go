// Package geminitest is a scripted vendor for tests: an [http.Handler] that speaks the Gemini API. It refuses every request that
// the API refuses, and answers the others with the script that the prompt names as "script:NAME", or with a usual answer.
package geminitest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Script is an answer.
type Script struct {
	// Status is an error status, for which Body is sent. 0 means 200.
	Status int
	Body   string
	// Responses are the GenerateContentResponses of a stream, in order. Whole is that of generateContent, by default the last of them.
	Responses []string
	Whole     string
	// Raw is sent after the events of a stream as it is.
	Raw string
}

const usualWhole = `{"candidates":[{"content":{"parts":[{"text":"Hmm","thought":true},{"text":"Hello from upstream."}],"role":"model"},"finishReason":"STOP","index":0}],` +
	`"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":5,"thoughtsTokenCount":2,"totalTokenCount":18},"modelVersion":"gemini-9-flash-001"}`

// Usual is the usual answer: a prompt of 11 tokens, and 7 tokens of which 2 are thoughts.
var Usual = Script{Whole: usualWhole, Responses: []string{
	`{"candidates":[{"content":{"parts":[{"text":"Hmm","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":11,"thoughtsTokenCount":2,"totalTokenCount":13}}`,
	`{"candidates":[{"content":{"parts":[{"text":"Hello from"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":2,"thoughtsTokenCount":2,"totalTokenCount":15}}`,
	`{"candidates":[{"content":{"parts":[{"text":" upstream."}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":5,"thoughtsTokenCount":2,"totalTokenCount":18},"modelVersion":"gemini-9-flash-001"}`,
}}

// Request is a request that the vendor accepted.
type Request struct {
	// URI is the request line's.
	URI    string
	Header http.Header
	Body   string
}

// Vendor is the vendor. It is safe for concurrent use.
type Vendor struct {
	// Scripts are the scripts by their names.
	Scripts map[string]Script

	mu       sync.Mutex
	requests []Request
}

// Start serves a vendor on a free port of the loopback interface until the test ends, and returns the base URL for a provider's
// configuration.
func Start(t testing.TB, scripts map[string]Script) (v *Vendor, baseURL string) {
	t.Helper()
	v = &Vendor{Scripts: scripts}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	return v, server.URL + "/v1beta"
}

// Requests returns all accepted requests so far, the oldest first.
func (v *Vendor) Requests() []Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]Request(nil), v.requests...)
}

var (
	address    = regexp.MustCompile(`^/v1beta/models/[^/]+:(generateContent|streamGenerateContent)$`)
	scriptName = regexp.MustCompile(`script:([a-z0-9-]+)`)
)

// ServeHTTP implements [http.Handler].
func (v *Vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	status, complaint := refusal(r, body)
	if complaint != "" {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"status":"INVALID_ARGUMENT"}}`, status, complaint)
		return
	}
	v.mu.Lock()
	v.requests = append(v.requests, Request{URI: r.URL.RequestURI(), Header: r.Header.Clone(), Body: string(body)})
	v.mu.Unlock()
	script := Usual
	if name := scriptName.FindSubmatch(body); name != nil {
		script = v.Scripts[string(name[1])]
	}
	if script.Status != 0 {
		w.WriteHeader(script.Status)
		_, _ = io.WriteString(w, script.Body)
		return
	}
	switch {
	case r.URL.Query().Get("alt") == "sse":
		w.Header().Set("Content-Type", "text/event-stream")
		for _, response := range script.Responses {
			_, _ = io.WriteString(w, "data: "+response+"\r\n\r\n")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, script.Raw)
	case strings.HasSuffix(r.URL.Path, ":streamGenerateContent"):
		_, _ = io.WriteString(w, "["+strings.Join(script.Responses, "\n,\r\n")+script.Raw+"]\n")
	default:
		_, _ = io.WriteString(w, cmp.Or(script.Whole, script.Responses[len(script.Responses)-1]))
	}
}

// content is a turn, or the system instruction.
type content struct {
	Role  string
	Parts []struct{ Text string }
}

// refusal returns the status and the message with which the API refuses a request, or "".
func refusal(r *http.Request, body []byte) (status int, message string) {
	switch {
	case r.Method != http.MethodPost || !address.MatchString(r.URL.EscapedPath()):
		return http.StatusNotFound, "not found"
	case r.URL.Query().Has("key"):
		return http.StatusBadRequest, "the key is in the address"
	case r.Header.Get("X-Goog-Api-Key") == "":
		return http.StatusForbidden, "Method doesn't allow unregistered callers."
	}
	var request struct {
		SystemInstruction *content
		Contents          []content
		GenerationConfig  struct {
			Temperature, TopP float64
			MaxOutputTokens   int
			StopSequences     *[]string
			ThinkingConfig    struct {
				ThinkingBudget *int
				ThinkingLevel  *string
			}
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		return http.StatusBadRequest, "Invalid JSON payload received. " + err.Error()
	}
	config := request.GenerationConfig
	switch stops := config.StopSequences; {
	case len(request.Contents) == 0:
		return http.StatusBadRequest, "contents is not specified"
	case stops != nil && (len(*stops) == 0 || len(*stops) > 5):
		return http.StatusBadRequest, "The number of stop sequences must be from 1 (inclusive) to 6 (exclusive)."
	case config.ThinkingConfig.ThinkingBudget != nil && config.ThinkingConfig.ThinkingLevel != nil:
		return http.StatusBadRequest, "You can only set only one of thinking budget and thinking level."
	}
	all := request.Contents
	if request.SystemInstruction != nil {
		all = append([]content{*request.SystemInstruction}, all...)
	}
	for i, c := range all {
		if len(c.Parts) == 0 {
			return http.StatusBadRequest, "contents.parts must not be empty."
		}
		for _, part := range c.Parts {
			if part.Text == "" {
				return http.StatusBadRequest, "Unable to submit request because it must have a text parameter."
			}
		}
		if i > 0 && c.Role == all[i-1].Role {
			return http.StatusBadRequest, "Please ensure that multiturn requests alternate between user and model."
		}
		if c.Role != "user" && c.Role != "model" && (i > 0 || request.SystemInstruction == nil) {
			return http.StatusBadRequest, "Please use a valid role: user, model."
		}
	}
	return 0, ""
}
