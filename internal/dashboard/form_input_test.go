package dashboard

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// room is a bound on bodies as the service's.
type room struct {
	limit      int64
	full       bool // of bodies that are decoded
	used, most atomic.Int64
	owners     []string
}

func (r *room) Meter(_ http.ResponseWriter, q *http.Request, orgID string) (io.ReadCloser, func()) {
	r.owners = append(r.owners, orgID)
	m := &meter{ReadCloser: q.Body, room: r}
	return m, func() { r.used.Add(-m.held) }
}

func (r *room) Decoding(context.Context, int) (func(), error) {
	if r.full {
		return func() {}, errNoRoom
	}
	return func() {}, nil
}

func (*room) Page(*http.Request, string, int64) (send SendPage, release func(), err error) {
	return func(w http.ResponseWriter, status int, _ string, text []byte) {
		w.WriteHeader(status)
		_, _ = w.Write(text)
	}, func() {}, nil
}

// meter is a body that counts.
type meter struct {
	io.ReadCloser

	room *room
	held int64
}

func (m *meter) Read(into []byte) (int, error) {
	n, err := m.ReadCloser.Read(into)
	m.held += int64(n)
	now := m.room.used.Add(int64(n))
	m.room.most.Store(max(now, m.room.most.Load()))
	if now > m.room.limit {
		return 0, errNoRoom
	}
	return n, err
}

var errNoRoom = &handlers.Error{Code: errcode.RateLimited, Message: "Retry shortly.", RetryAfter: time.Second}

// Forms and what scripts send count against the memory of all requests, and are refused, and not
// half done, when there is no room, or no slot for decoding them.
func TestBodiesHaveABound(t *testing.T) {
	t.Parallel()
	const (
		large = 100_000
		small = 10_000 // what is kept of a stranger
	)
	text := strings.Repeat("a", large)
	for name, send := range map[string]func(*testing.T, *fixture) *httptest.ResponseRecorder{
		"a form": func(t *testing.T, r *fixture) *httptest.ResponseRecorder {
			return r.submit(t, "/dashboard/agents", url.Values{"name": {"Lan"}, "model": {"echo/a"}, "instructions": {text}})
		},
		"a file": func(t *testing.T, r *fixture) *httptest.ResponseRecorder {
			return r.upload(t, "prices.txt", text, nil)
		},
		"a script": func(t *testing.T, r *fixture) *httptest.ResponseRecorder {
			return r.serve(t, httptest.NewRequest(http.MethodPost, "/dashboard/agents/agt_1/playground/stream",
				strings.NewReader(`{"messages":[{"role":"user","content":"`+text+`"}]}`)))
		},
		"a form without a session": func(t *testing.T, r *fixture) *httptest.ResponseRecorder {
			r.refuse("GET /session", http.StatusUnauthorized, "unauthenticated", "", "No.")
			return r.submit(t, "/dashboard/agents", url.Values{"instructions": {text[:small]}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			size := int64(large)
			if name == "a form without a session" {
				size = small
			}
			for _, all := range []*room{{limit: 10 * size}, {limit: size - 1}, {limit: 10 * size, full: true}} {
				r := newBareFixture(t)
				r.answer("POST /agents", http.StatusCreated, agentJSON)
				r.answer("POST /knowledge-bases/kb_1/documents", http.StatusCreated, `{"id":"doc_2"}`)
				r.answer("POST /agents/agt_1/playground", http.StatusOK, "data: [DONE]\n\n")
				r.dashboard.config.Bodies = all
				w := send(t, r)
				require.Zero(t, all.used.Load(), "given back")
				if name == "a form without a session" {
					require.Equal(t, []string{""}, all.owners, "a stranger's")
				} else {
					require.Equal(t, []string{"org_1"}, all.owners)
				}
				if all.limit > size && !all.full {
					require.Less(t, w.Code, 500, w.Body.String())
					require.Greater(t, all.most.Load(), size)
					continue
				}
				require.Zero(t, r.count(http.MethodPost), "nothing was asked for")
				if name == "a form without a session" { // keeps nothing of it
					require.Equal(t, http.StatusUnauthorized, w.Code)
					require.NotContains(t, w.Body.String(), text[:small])
					continue
				}
				require.Equal(t, http.StatusTooManyRequests, w.Code)
				require.Equal(t, "1", w.Header().Get("Retry-After"))
				require.Contains(t, w.Body.String(), "Retry shortly.")
			}
		})
	}
}

// A field takes many times its size in memory, and the sign-in form can be sent without a session.
func TestFormsHaveFewFields(t *testing.T) {
	t.Parallel()
	for _, fields := range []int{maxFields, maxFields + 1} {
		r := newBareFixture(t)
		r.answer("POST /session", http.StatusCreated, "{}")
		form := httptest.NewRequest(http.MethodPost, "/dashboard/login", strings.NewReader(strings.TrimSuffix(strings.Repeat("a&", fields), "&")))
		form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := r.serve(t, form)
		if fields <= maxFields {
			require.Equal(t, 1, r.count(http.MethodPost), w.Body.String())
			continue
		}
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Zero(t, r.count(http.MethodPost))
	}
}

// A form with files is what a browser sends for ours: few parts, each with a short header.
func TestFormsWithFiles(t *testing.T) {
	t.Parallel()
	part := func(header, content string) string { return "--x\r\n" + header + "\r\n\r\n" + content + "\r\n" }
	name := part(`Content-Disposition: form-data; name="name"`, "Tea")
	file := part("content-type: text/plain\r\ncontent-disposition: form-data; name=\"file\"; filename=\"../gi\u00e1.md\"", "3 --x\r\n--y\r\n")
	none := part("Content-Disposition: form-data; name=\"file\"; filename=\"\"\r\nContent-Type: application/octet-stream", "")
	for sent, want := range map[string]map[string]any{
		name + file + "--x--\r\n": {"name": "Tea", "mediaType": "text/markdown", "content": "3 --x\r\n--y\r\n"},
		file + "--x--":            {"name": "gi\u00e1.md", "mediaType": "text/markdown", "content": "3 --x\r\n--y\r\n"},
		strings.Repeat(none, maxParts-2) + name + file + "--x--\r\n": {"name": "Tea", "mediaType": "text/markdown", "content": "3 --x\r\n--y\r\n"},
		name + none + "--x--\r\n":                                    nil, // no file was chosen
		strings.Repeat(none, maxParts) + name + file + "--x--\r\n":   nil,
		part(strings.Repeat("a:b\r\n", maxPartHeader/4), "") + file:  nil,
		name + file: nil,
		name + "--x\r\nContent-Disposition: form-data; name=\"file\"": nil,
		part("Content-Disposition: ;", "") + "--x--":                  nil,
		part("Content-Type: text/plain", "") + "--x--":                nil,
		"":        nil,
		"no form": nil,
		strings.ReplaceAll(name+file+"--x--\r\n", "--x", "--another"): nil,
	} {
		r := newBareFixture(t)
		r.answer("POST /knowledge-bases/kb_1/documents", http.StatusCreated, `{"id":"doc_2"}`)
		form := httptest.NewRequest(http.MethodPost, "/dashboard/knowledge/kb_1/documents", strings.NewReader(sent))
		form.Header.Set("Content-Type", "multipart/form-data; boundary=x")
		w := r.serve(t, form)
		if want != nil {
			require.Equal(t, http.StatusSeeOther, w.Code, "%.200s", sent)
			require.Equal(t, want, r.last(t, http.MethodPost).body)
			continue
		}
		require.Equal(t, http.StatusBadRequest, w.Code, "%.200s", sent)
		require.Zero(t, r.count(http.MethodPost), "%.200s", sent)
	}
}
