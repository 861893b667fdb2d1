package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// KnowledgeLimit implements PlanLimits: the fixture's plan has no limit.
func (o *fixture) KnowledgeLimit(string) int64 { return -1 }

// knowledgeLimit is a plan with a limit of documents in bytes.
type knowledgeLimit struct {
	PlanLimits

	bytes int64
}

func (n knowledgeLimit) KnowledgeLimit(string) int64 { return n.bytes }

// base creates a knowledge base and returns its path.
func (o *fixture) base(t *testing.T, key, name string) (path, id string) {
	t.Helper()
	id = o.ask(t, http.StatusCreated, http.MethodPost, "/knowledge-bases", key, `{"name":"`+name+`"}`)["id"].(string)
	return "/knowledge-bases/" + id, id
}

func documentBody(name, mediaType, content string) string {
	return `{"name":` + strconv.Quote(name) + `,"mediaType":` + strconv.Quote(mediaType) + `,"content":` + strconv.Quote(content) + `}`
}

func TestKnowledgeBase(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	created := o.ask(t, http.StatusCreated, http.MethodPost, "/knowledge-bases", "owner", `{"name":" Shop ","description":"All we sell"}`)
	id := created["id"].(string)
	require.Regexp(t, `^kb_[0-9a-v]{26}$`, id)
	require.Equal(t, map[string]any{
		"id": id, "name": "Shop", "description": "All we sell", "documents": 0.0, "bytes": 0.0,
		"createdAt": "2026-11-21T10:00:00.000Z", "updatedAt": "2026-11-21T10:00:00.000Z",
	}, created)
	path := "/knowledge-bases/" + id
	require.Equal(t, created, o.ask(t, http.StatusOK, http.MethodGet, path, "owner", ""))

	changed := o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"description":"","name":null}`)
	require.Equal(t, "Shop", changed["name"])
	require.Empty(t, changed["description"])
	o.base(t, "owner", "Other")
	o.refused(t, errcode.Conflict, "", http.MethodPatch, path, "owner", `{"name":"Other"}`)
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/knowledge-bases", "owner", `{"name":"Shop"}`)
	o.base(t, "stranger", "Shop")

	list := o.ask(t, http.StatusOK, http.MethodGet, "/knowledge-bases?limit=1", "owner", "")
	require.Len(t, list["data"], 1)
	next := o.ask(t, http.StatusOK, http.MethodGet, "/knowledge-bases?limit=1&cursor="+list["nextCursor"].(string), "owner", "")
	require.Equal(t, "Other", next["data"].([]any)[0].(map[string]any)["name"])
	require.Nil(t, next["nextCursor"])

	o.ask(t, http.StatusCreated, http.MethodPost, path+"/documents", "owner", documentBody("a", "text/plain", "some text"))
	o.ask(t, http.StatusNoContent, http.MethodDelete, path, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, path, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodDelete, path, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, path+"/documents", "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodPost, path+"/documents", "owner", documentBody("a", "text/plain", "some text"))
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	path, id := o.base(t, "owner", "Shop")
	const content = "<h1>Giờ mở cửa</h1><script>alert(1)</script><p>8 giờ ở Hà Nội</p>"
	created := o.ask(t, http.StatusCreated, http.MethodPost, path+"/documents", "owner", documentBody(" Opening hours ", "text/html", content))
	docID := created["id"].(string)
	require.Regexp(t, `^doc_[0-9a-v]{26}$`, docID)
	require.Equal(t, "Opening hours", created["name"])
	require.Equal(t, "ready", created["state"])
	require.Equal(t, id, created["knowledgeBaseId"])
	require.EqualValues(t, len(content), created["bytes"])
	require.EqualValues(t, 1, created["chunksTotal"])
	require.EqualValues(t, 1, created["chunksDone"])
	require.Nil(t, created["reason"])
	require.Equal(t, created, o.ask(t, http.StatusOK, http.MethodGet, path+"/documents/"+docID, "owner", ""))
	require.Equal(t, []any{created}, o.ask(t, http.StatusOK, http.MethodGet, path+"/documents", "owner", "")["data"])
	require.EqualValues(t, len(content), o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["bytes"])

	found := o.ask(t, http.StatusOK, http.MethodGet, path+"/search?q="+url.QueryEscape(`"ha noi" OR`), "owner", "")["data"].([]any)
	require.Len(t, found, 1)
	require.Equal(t, "# Giờ mở cửa\n\n8 giờ ở Hà Nội", found[0].(map[string]any)["text"])
	require.Equal(t, "Opening hours", found[0].(map[string]any)["document"])
	require.Equal(t, docID, found[0].(map[string]any)["documentId"])

	o.refused(t, errcode.Conflict, "", http.MethodPost, path+"/documents", "owner", documentBody("Opening hours", "text/plain", "x"))
	for _, query := range []string{"", "?q=alert%00", "?q=%ff"} {
		o.refused(t, errcode.InvalidRequest, "q", http.MethodGet, path+"/search"+query, "owner", "")
	}
	o.refused(t, errcode.InvalidRequest, "q", http.MethodGet, path+"/search?q="+strings.Repeat("a", 2001), "owner", "")
	o.refused(t, errcode.InvalidRequest, "limit", http.MethodGet, path+"/search?q=a&limit=51", "owner", "")
	o.refused(t, errcode.InvalidRequest, "content", http.MethodPost, path+"/documents", "owner", documentBody("b", "text/html", "<p>!</p>"))
	o.refused(t, errcode.InvalidRequest, "content", http.MethodPost, path+"/documents", "owner", `{"name":"b","mediaType":"text/html","content":"a\u0000"}`)
	o.refused(t, errcode.InvalidRequest, "mediaType", http.MethodPost, path+"/documents", "owner", documentBody("b", "application/pdf", "x"))

	other, _ := o.base(t, "owner", "Other")
	theirs, _ := o.base(t, "stranger", "Theirs")
	o.refused(t, errcode.NotFound, "", http.MethodGet, other+"/documents/"+docID, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodDelete, other+"/documents/"+docID, "owner", "")
	o.refused(t, errcode.Forbidden, "", http.MethodGet, path+"/documents/"+docID, "stranger", "")
	o.refused(t, errcode.Forbidden, "", http.MethodDelete, theirs+"/documents/"+docID, "stranger", "")
	o.refused(t, errcode.Forbidden, "", http.MethodPost, path+"/documents", "stranger", documentBody("b", "text/plain", "x"))
	o.refused(t, errcode.Forbidden, "", http.MethodGet, path+"/search?q=a", "stranger", "")
	for _, id := range []string{"%00", "x", "'", strings.Repeat("a", 100)} {
		o.refused(t, errcode.NotFound, "", http.MethodGet, path+"/documents/"+id, "owner", "")
		o.refused(t, errcode.NotFound, "", http.MethodDelete, path+"/documents/"+id, "owner", "")
	}
	o.ask(t, http.StatusNoContent, http.MethodDelete, path+"/documents/"+docID, "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, path+"/documents/"+docID, "owner", "")
	require.Empty(t, o.ask(t, http.StatusOK, http.MethodGet, path+"/search?q=noi", "owner", "")["data"])
}

// A large document is accepted, listed while it is ingested, and found afterwards; a larger one is refused.
func TestLargeDocument(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	path, _ := o.base(t, "owner", "Shop")
	text := strings.Repeat("Giá giày là 100. ", 100_000)
	created := o.ask(t, http.StatusCreated, http.MethodPost, path+"/documents", "owner", documentBody("large", "text/plain", text))
	require.Equal(t, "ingesting", created["state"])
	require.Less(t, created["chunksDone"], created["chunksTotal"])
	o.ask(t, http.StatusNoContent, http.MethodDelete, path+"/documents/"+created["id"].(string), "owner", "")

	o.refused(t, errcode.InvalidRequest, "content", http.MethodPost, path+"/documents", "owner",
		documentBody("too large", "text/plain", strings.Repeat("a", knowledge.MaxDocumentBytes+1)))
	o.refused(t, errcode.InvalidRequest, "", http.MethodPost, path+"/documents", "owner",
		documentBody("far too large", "text/plain", strings.Repeat("a", MaxDocumentBody)))
	o.refused(t, errcode.InvalidRequest, "", http.MethodPost, "/knowledge-bases", "owner",
		`{"name":"b","description":"`+strings.Repeat("a", endpoint.MaxAPIBody)+`"}`)
	require.NoError(t, o.Knowledge.Close(t.Context()))
	o.refused(t, errcode.InternalError, "", http.MethodPost, path+"/documents", "owner", documentBody("late", "text/plain", text))
}

func TestKnowledgePlanLimit(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	path, _ := o.base(t, "owner", "Shop")
	o.Plans = knowledgeLimit{o, 10}
	o.ask(t, http.StatusCreated, http.MethodPost, path+"/documents", "owner", documentBody("a", "text/plain", "12345"))
	answer := handlertest.RefusedWith(t, errcode.PlanLimitExceeded, o.Serve,
		request(http.MethodPost, path+"/documents", "owner", documentBody("b", "text/plain", "123456")))
	require.Equal(t, http.StatusPaymentRequired, errcode.PlanLimitExceeded.Status(), answer.Text)
	o.ask(t, http.StatusCreated, http.MethodPost, path+"/documents", "owner", documentBody("c", "text/plain", "12345"))
	theirs, _ := o.base(t, "stranger", "Shop")
	o.ask(t, http.StatusCreated, http.MethodPost, theirs+"/documents", "stranger", documentBody("a", "text/plain", "12345"))
}

// An agent can use knowledge bases of its own organization only.
func TestAgentKnowledge(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	_, one := o.base(t, "owner", "One")
	twoPath, two := o.base(t, "owner", "Two")
	_, theirs := o.base(t, "stranger", "Theirs")
	ids := func(ids ...string) string { return `"knowledgeBaseIds":["` + strings.Join(ids, `","`) + `"]` }
	agent := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a",`+ids(two, one, two)+`}`)
	require.Equal(t, []any{one, two}, agent["knowledgeBaseIds"])
	path := "/agents/" + agent["id"].(string)
	require.Equal(t, agent, o.ask(t, http.StatusOK, http.MethodGet, path, "owner", ""))
	delete(agent, "instructions")
	require.Equal(t, []any{agent}, o.ask(t, http.StatusOK, http.MethodGet, "/agents", "owner", "")["data"])

	for _, body := range []string{ids(theirs), ids(one, theirs)} {
		o.refused(t, errcode.Forbidden, "", http.MethodPatch, path, "owner", `{`+body+`}`)
		o.refused(t, errcode.Forbidden, "", http.MethodPost, "/agents", "owner", `{"name":"Mai","model":"echo/a",`+body+`}`)
	}
	for _, body := range []string{ids("kb_none"), ids("\\u0000"), ids("'"), ids(""), `"knowledgeBaseIds":"` + one + `"`, `"knowledgeBaseIds":[7]`, ids(make([]string, 21)...)} {
		a := handlertest.RefusedWith(t, errcode.InvalidRequest, o.Serve, request(http.MethodPatch, path, "owner", `{`+body+`}`))
		require.Contains(t, a.Text, `"field":"knowledgeBaseIds`)
	}
	require.Equal(t, []any{one, two}, o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"name":"Mai"}`)["knowledgeBaseIds"])
	o.ask(t, http.StatusNoContent, http.MethodDelete, twoPath, "owner", "")
	require.Equal(t, []any{one}, o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["knowledgeBaseIds"])
	require.Equal(t, []any{}, o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{"knowledgeBaseIds":[]}`)["knowledgeBaseIds"])
	o.ask(t, http.StatusOK, http.MethodPatch, path, "owner", `{`+ids(one)+`}`)
	o.ask(t, http.StatusNoContent, http.MethodDelete, path, "owner", "")
}

// The bytes of a large body are charged, too.
func TestDocumentBodiesAreCharged(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	path, _ := o.base(t, "owner", "Shop")
	o.Bodies = handlers.NewByteBudget(2 << 20)
	o.Server = serve(o.Deps)
	body := documentBody("a", "text/plain", strings.Repeat("a", 3<<20))
	w := httptest.NewRecorder()
	err := o.Serve(w, request(http.MethodPost, path+"/documents", "owner", body))
	require.Equal(t, errcode.RateLimited, handlers.AsError(err).Code)
	require.NotZero(t, handlers.AsError(err).RetryAfter)
	require.Zero(t, o.Bodies.Used())
	documents, err := o.DB.Documents.List(t.Context(), "org_1", strings.TrimPrefix(path, "/knowledge-bases/"), store.Page{})
	require.NoError(t, err)
	require.Empty(t, documents)
}

// TestBusyKnowledge guarantees that work which finds no place is refused as the organization's own load, and that it may be repeated.
func TestBusyKnowledge(t *testing.T) {
	t.Parallel()
	busy := fmt.Errorf("doing something: %w", knowledge.ErrBusy)
	for _, err := range []error{documentRefusal(busy, nil), searchRefusal(busy)} {
		refusal := handlers.AsError(err)
		require.Equal(t, errcode.RateLimited, refusal.Code)
		require.Equal(t, 5*time.Second, refusal.RetryAfter)
	}
	slow := handlers.AsError(documentRefusal(fmt.Errorf("doing something: %w", knowledge.ErrSlow), nil))
	require.Equal(t, errcode.InvalidRequest, slow.Code)
	require.Equal(t, "content", slow.Field)
	require.Equal(t, errcode.InternalError, handlers.AsError(searchRefusal(errors.New("the disk is full"))).Code)
}
