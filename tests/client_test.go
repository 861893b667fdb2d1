package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// client calls the service with one key over one kind of connection.
type client struct {
	http *http.Client
	base string
	key  string
}

// as is a client of the customer over HTTP/1.1.
func (p *product) as(c *customer) *client { return &client{http: p.clear, base: p.BaseURL, key: c.Key} }

// withKey is a client with any key; an empty one is not sent.
func (p *product) withKey(key string) *client {
	return &client{http: p.clear, base: p.BaseURL, key: key}
}

// asOverTLS is a client of the customer over TLS and HTTP/2.
func (p *product) asOverTLS(c *customer) *client {
	return &client{http: p.overTLS(), base: p.TLSURL, key: c.Key}
}

// answer is a whole response.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
	// Broken is why the body could not be read to its end.
	Broken error
}

// request builds a request with the key as bearer; headers are name, value, ….
func (c *client) request(ctx context.Context, method, path string, body io.Reader, headers ...string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r, nil
}

// try sends a request and reads the whole answer; it may be called from any goroutine. An answer that isn't what the
// interface description says is an error.
func (c *client) try(ctx context.Context, method, path string, body io.Reader, headers ...string) (answer, error) {
	r, err := c.request(ctx, method, path, body, headers...)
	if err != nil {
		return answer{}, err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return asDescribed(r, answer{Status: response.StatusCode, Header: response.Header, Body: text, Broken: err})
}

// send is try for the test's own goroutine.
func (c *client) send(t testing.TB, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	a, err := c.try(t.Context(), method, path, body, headers...)
	require.NoError(t, err)
	require.NoError(t, a.Broken)
	return a
}

func (c *client) get(t testing.TB, path string, headers ...string) answer {
	t.Helper()
	return c.send(t, http.MethodGet, path, http.NoBody, headers...)
}

const chatPath = "/v1/chat/completions"

// chat posts a body to the chat endpoint.
func (c *client) chat(t testing.TB, body string, headers ...string) answer {
	t.Helper()
	return c.send(t, http.MethodPost, chatPath, strings.NewReader(body), append([]string{"Content-Type", "application/json"}, headers...)...)
}

// tryChat is chat for any goroutine.
func (c *client) tryChat(body string, headers ...string) (answer, error) {
	headers = append([]string{"Content-Type", "application/json"}, headers...)
	return c.try(context.Background(), http.MethodPost, chatPath, strings.NewReader(body), headers...)
}

// prompt is the body of a call with one user message; more are further members, like `"max_tokens":5`.
func prompt(model, content string, stream bool, more ...string) string {
	body := fmt.Sprintf(`{"model":%s,"messages":[{"role":"user","content":%s}],"stream":%t`, quoted(model), quoted(content), stream)
	for _, member := range more {
		body += "," + member
	}
	return body + "}"
}

func readAll(response *http.Response) ([]byte, error) { return io.ReadAll(response.Body) }

// statusOf is the complete set of docs/contract.md#codes.
var statusOf = map[string]int{
	"invalid_request": 400, "unsupported_model": 400, "context_too_long": 400, "unauthenticated": 401, "invalid_api_key": 401,
	"api_key_revoked": 401, "insufficient_credits": 402, "organization_suspended": 402, "plan_limit_exceeded": 402,
	"insufficient_scope": 403, "forbidden": 403, "not_found": 404, "conflict": 409, "idempotency_key_reused": 409,
	"channel_needs_reauth": 422, "service_window_expired": 422, "template_required": 422, "rate_limited": 429,
	"internal_error": 500, "provider_error": 502, "provider_overloaded": 503, "provider_timeout": 504,
}

// apiError is the member error of docs/contract.md#error-body.
type apiError struct {
	Code, Message, Field, DocsURL, RequestID string
	RetryAfter                               int
}

// parseError reads an error body and requires the shape of docs/contract.md#error-body, member by member.
func parseError(t testing.TB, text []byte) apiError {
	t.Helper()
	var body map[string]map[string]any
	require.NoError(t, json.Unmarshal(text, &body), "an error body: %.300s", text)
	require.Len(t, body, 1, "%s", text)
	e, ok := body["error"]
	require.True(t, ok, "%s", text)
	var out apiError
	for name, value := range e {
		s, isText := value.(string)
		number, isNumber := value.(float64)
		switch name {
		case "code":
			out.Code = s
		case "message":
			out.Message = s
		case "field":
			out.Field = s
			require.NotEmpty(t, s, "%s", text)
		case "docsUrl":
			out.DocsURL = s
		case "requestId":
			out.RequestID = s
		case "retryAfter":
			require.True(t, isNumber && number == float64(int(number)), "%s", text)
			out.RetryAfter = int(number)
			continue
		default:
			t.Fatalf("an error has the member %q: %s", name, text)
		}
		require.True(t, isText, "%s is not a string: %s", name, text)
	}
	require.Contains(t, statusOf, out.Code, "%s", text)
	require.NotEmpty(t, out.Message, "%s", text)
	require.Regexp(t, `^req_[0-9a-z]{20,}$`, out.RequestID)
	return out
}

// requireError requires an answer with this code and the whole contract of docs/contract.md#error-body around it.
func requireError(t testing.TB, a answer, code string) apiError {
	t.Helper()
	e := parseError(t, a.Body)
	require.Equal(t, code, e.Code, "%d %s", a.Status, a.Body)
	require.Equal(t, statusOf[code], a.Status, "%s", a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.Equal(t, []string{e.RequestID}, a.Header.Values("X-Request-Id"))
	if a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable {
		require.Equal(t, strconv.Itoa(e.RetryAfter), a.Header.Get("Retry-After"))
		require.True(t, e.RetryAfter >= 1 && e.RetryAfter <= 60, "retryAfter %d", e.RetryAfter)
	} else {
		require.Zero(t, e.RetryAfter, "%s", a.Body)
	}
	return e
}

// usageAndCharge are the members usage and svc of docs/contract.md#chat-answer.
type usageAndCharge struct {
	Usage struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
	}
	SVC struct {
		ChargedMicros string `json:"charged_micros"`
		BYOK          bool
	}
}

// charged is the charge that the answer reported.
func (u usageAndCharge) charged(t testing.TB) int64 {
	t.Helper()
	require.Regexp(t, `^[0-9]+$`, u.SVC.ChargedMicros)
	micros, err := strconv.ParseInt(u.SVC.ChargedMicros, 10, 64)
	require.NoError(t, err)
	require.Equal(t, u.Usage.Prompt+u.Usage.Completion, u.Usage.Total)
	return micros
}

// completed is a whole answer, streamed or not.
type completed struct {
	usageAndCharge
	ID, Text, Finish string
	Created          int64
	RequestID        string
}

// requireCompletion requires the answer of docs/contract.md#chat-answer, with those members and no others.
func requireCompletion(t testing.TB, a answer, model string) completed {
	t.Helper()
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	requireMembers(t, a.Body, "id", "object", "created", "model", "choices", "usage", "svc")
	var body struct {
		usageAndCharge
		ID, Object, Model string
		Created           int64
		Choices           []struct {
			Index   int
			Message struct{ Role, Content *string }
			Finish  string `json:"finish_reason"`
		}
	}
	require.NoError(t, json.Unmarshal(a.Body, &body))
	require.True(t, strings.HasPrefix(body.ID, "chatcmpl-"), body.ID)
	require.Equal(t, "chat.completion", body.Object)
	require.Equal(t, model, body.Model)
	require.Len(t, body.Choices, 1)
	choice := body.Choices[0]
	require.NotNil(t, choice.Message.Role)
	require.Equal(t, "assistant", *choice.Message.Role)
	require.NotNil(t, choice.Message.Content)
	require.NotEmpty(t, choice.Finish)
	body.charged(t)
	return completed{
		usageAndCharge: body.usageAndCharge, ID: body.ID, Text: *choice.Message.Content, Finish: choice.Finish,
		Created: body.Created, RequestID: a.Header.Get("X-Request-Id"),
	}
}

// requireMembers requires an object with exactly these members.
func requireMembers(t testing.TB, text []byte, want ...string) {
	t.Helper()
	var object map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &object), "%.300s", text)
	var got []string
	for name := range object {
		got = append(got, name)
	}
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, want, got, "%.500s", text)
}

// requireStream requires the stream of docs/contract.md#stream, event by event.
func requireStream(t testing.TB, a answer, model string) completed {
	t.Helper()
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	require.NoError(t, a.Broken)
	require.Regexp(t, `^text/event-stream`, a.Header.Get("Content-Type"))
	events := events(t, a.Body)
	require.GreaterOrEqual(t, len(events), 4, "%s", a.Body)
	require.Equal(t, "[DONE]", events[len(events)-1], "%s", a.Body)
	events = events[:len(events)-1]
	out := completed{RequestID: a.Header.Get("X-Request-Id")}
	for i, event := range events {
		last, closing := i == len(events)-1, i == len(events)-2
		chunk := parseChunk(t, event, last)
		if i == 0 {
			out.ID, out.Created = chunk.ID, chunk.Created
		}
		require.Equal(t, out.ID, chunk.ID)
		require.Equal(t, out.Created, chunk.Created)
		require.Equal(t, model, chunk.Model)
		if last {
			require.JSONEq(t, `[]`, string(chunk.Choices))
			out.usageAndCharge = chunk.usageAndCharge
			continue
		}
		var choices []struct {
			Index  int
			Delta  map[string]string
			Finish *string `json:"finish_reason"`
		}
		require.NoError(t, json.Unmarshal(chunk.Choices, &choices), event)
		require.Len(t, choices, 1)
		require.Zero(t, choices[0].Index)
		switch {
		case i == 0:
			require.Equal(t, map[string]string{"role": "assistant", "content": ""}, choices[0].Delta)
			require.Nil(t, choices[0].Finish)
		case closing:
			require.Empty(t, choices[0].Delta)
			require.NotNil(t, choices[0].Finish)
			out.Finish = *choices[0].Finish
		default:
			require.Len(t, choices[0].Delta, 1, event)
			require.Nil(t, choices[0].Finish)
			out.Text += choices[0].Delta["content"]
		}
	}
	out.charged(t)
	return out
}

// chunk is one event of a stream.
type chunk struct {
	usageAndCharge
	ID, Object, Model string
	Created           int64
	Choices           json.RawMessage
}

func parseChunk(t testing.TB, event string, last bool) chunk {
	t.Helper()
	members := []string{"id", "object", "created", "model", "choices"}
	if last {
		members = append(members, "usage", "svc")
	}
	requireMembers(t, []byte(event), members...)
	var c chunk
	require.NoError(t, json.Unmarshal([]byte(event), &c))
	require.True(t, strings.HasPrefix(c.ID, "chatcmpl-"), c.ID)
	require.Equal(t, "chat.completion.chunk", c.Object)
	return c
}

// events splits a stream; each event is one data line and a blank line, nothing else.
func events(t testing.TB, body []byte) []string {
	t.Helper()
	require.True(t, bytes.HasSuffix(body, []byte("\n\n")), "%q", body[max(0, len(body)-200):])
	require.NotContains(t, string(body), "\r")
	var out []string
	for event := range strings.SplitSeq(strings.TrimSuffix(string(body), "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		require.True(t, ok && !strings.Contains(data, "\n"), "%q", event)
		out = append(out, data)
	}
	return out
}

// requireAnswered is requireStream or requireCompletion.
func requireAnswered(t testing.TB, a answer, model string, stream bool) completed {
	t.Helper()
	if stream {
		return requireStream(t, a, model)
	}
	return requireCompletion(t, a, model)
}

// requireBroken requires a stream that began and then failed as docs/contract.md#stream says: an error event at the end, and
// nothing that would make it look whole.
func requireBroken(t testing.TB, a answer, code string) {
	t.Helper()
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	events := events(t, a.Body)
	last := events[len(events)-1]
	e := parseError(t, []byte(last))
	require.Equal(t, code, e.Code, last)
	require.Equal(t, a.Header.Get("X-Request-Id"), e.RequestID)
	for _, event := range events[:len(events)-1] {
		chunk := parseChunk(t, event, false)
		require.Contains(t, string(chunk.Choices), `"finish_reason":null`)
	}
}
