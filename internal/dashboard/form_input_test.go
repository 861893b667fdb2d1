package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// The bounds of package site.
const (
	maxForm       = 2 << 20
	maxFields     = 1000
	maxParts      = 20
	maxPartHeader = 2 << 10
)

// bodiesOf are requests with a body of the given size, of a person and of a stranger.
func bodiesOf(t *testing.T, text string) map[string]*http.Request {
	form := func(path string, typed url.Values) *http.Request {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(typed.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	}
	file, mediaType := fileForm(t, "prices.txt", text, nil)
	upload := httptest.NewRequest(http.MethodPost, "/dashboard/knowledge/kb_1/documents", file)
	upload.Header.Set("Content-Type", mediaType)
	return map[string]*http.Request{
		"a form": form("/dashboard/agents", url.Values{"name": {"Lan"}, "model": {"echo/a"}, "instructions": {text}}),
		"a file": upload,
		"a script": httptest.NewRequest(http.MethodPost, "/dashboard/agents/agt_1/playground/stream",
			strings.NewReader(`{"messages":[{"role":"user","content":"`+text+`"}]}`)),
		"a form without a session": form("/dashboard/login", url.Values{"email": {"lan@shop.example"}, "password": {text}}),
	}
}

func newFixtureOfBodies(t *testing.T, budget *handlers.ByteBudget) *fixture {
	r := newBareFixture(t)
	r.answer("POST /agents", http.StatusCreated, agentJSON)
	r.answer("POST /knowledge-bases/kb_1/documents", http.StatusCreated, `{"id":"doc_2"}`)
	r.answer("POST /agents/agt_1/playground", http.StatusOK, "data: [DONE]\n\n")
	r.answer("POST /session", http.StatusCreated, "{}")
	r.dashboard.Bodies = budget
	return r
}

// Forms and what scripts send count against the memory of all requests, and are refused, and not half done, when there is no room.
func TestBodiesHaveABound(t *testing.T) {
	t.Parallel()
	const (
		large = 100_000
		small = 10_000 // what is read of a stranger
	)
	for name, size := range map[string]int{"a form": large, "a file": large, "a script": large, "a form without a session": small} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, share := strings.Repeat("a", size), handlers.ShareOrganizations
			roomy, tight := handlers.NewByteBudget(8<<20), handlers.NewByteBudget(480_000) // for a page and a body of 120,000 bytes together
			if size == small {
				share, tight = handlers.ShareStrangers, handlers.NewByteBudget(560_000) // 70,000 bytes together
			}
			r := newFixtureOfBodies(t, roomy)
			held := int64(0)
			r.dashboard.config.Ask = func(ask askFunction) askFunction {
				return func(w http.ResponseWriter, q *http.Request, by *identity.Principal, o api.Operation, in endpoint.Values) (any, error) {
					held = max(held, roomy.UsedBy(share))
					return ask(w, q, by, o, in)
				}
			}(r.dashboard.config.Ask)
			serve := r.dashboard.config.API
			r.dashboard.config.API = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				held = max(held, roomy.UsedBy(share))
				serve.ServeHTTP(w, q)
			})
			w := r.serve(t, bodiesOf(t, text)[name])
			require.Less(t, w.Code, 400, w.Body.String())
			require.GreaterOrEqual(t, held, int64(size))
			require.Zero(t, roomy.Used(), "given back")

			r = newFixtureOfBodies(t, tight)
			w = r.serve(t, bodiesOf(t, text)[name])
			require.Zero(t, r.count(http.MethodPost), "nothing was asked for")
			require.Equal(t, "1", w.Header().Get("Retry-After"))
			require.Zero(t, tight.Used(), "given back")
			if size == small {
				require.Equal(t, http.StatusInternalServerError, w.Code)
				require.Contains(t, w.Body.String(), "The service is busy.")
				return
			}
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			require.Contains(t, w.Body.String(), "Retry shortly.")
		})
	}
}

type askFunction = func(http.ResponseWriter, *http.Request, *identity.Principal, api.Operation, endpoint.Values) (any, error)

// Each form waits for its turn among all bodies before it is decoded.
func TestBodiesWaitForADecoder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget := handlers.NewByteBudget(8 << 20)
		handlertest.FillSlots(t, budget)
		for name, sent := range bodiesOf(t, "text") {
			r := newFixtureOfBodies(t, budget)
			w := r.serve(t, handlertest.Impatient(t, sent))
			require.Equal(t, http.StatusInternalServerError, w.Code, name)
			require.Contains(t, w.Body.String(), "The service is busy.")
			require.Zero(t, r.count(http.MethodPost), "nothing was asked for")
			require.Zero(t, budget.Used(), "given back")
		}
	})
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
