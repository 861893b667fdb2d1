package tests

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestEveryErrorHasTheContract guarantees that whatever can reach Caddy's error routes, on any path, host or method, has
// the body of docs/contract.md#error-body, the status of docs/contract.md#codes and the request id as a header. What net/http
// answers by itself is listed in
// docs/failure-modes.md.
func TestEveryErrorHasTheContract(t *testing.T) {
	t.Parallel()
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	c := p.operator().customer(t, 1_000_000)
	as := p.as(c)

	for _, path := range []string{"/", "/v1", "/v1/", "/v2/models", "/nothing?x=1", "/v1/responses", "/v1/embeddings", "/v1/completions", "/%ff%fe", "/v1/../etc/passwd", "//v1//models", "/v1/chat/completions/"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete} {
			if path == "//v1//models" && method == http.MethodGet {
				continue // Caddy merges slashes when it matches
			}
			e := requireError(t, as.send(t, method, path, http.NoBody), "not_found")
			if path == "/v1/responses" {
				require.Contains(t, e.Message, chatPath)
			}
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete, http.MethodPatch, "BREW"} {
		requireError(t, as.send(t, method, "/v1/models", http.NoBody), "not_found")
	}
	for _, method := range []string{http.MethodGet, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete, http.MethodPatch, "BREW"} {
		requireError(t, as.send(t, method, chatPath, http.NoBody), "not_found")
		requireError(t, as.send(t, method, "/wallet/nothing", http.NoBody), "not_found")
	}
	head := as.send(t, http.MethodHead, "/nothing", http.NoBody)
	require.Equal(t, http.StatusNotFound, head.Status)
	require.Regexp(t, `^req_`, head.Header.Get("X-Request-Id"))

	raw := map[string]struct{ request, code string }{
		"unknown host":      {"GET /v1/models HTTP/1.1\r\nHost: somewhere.example\r\nConnection: close\r\n\r\n", "unauthenticated"},
		"HTTP/1.0, no host": {"GET /nothing HTTP/1.0\r\n\r\n", "not_found"},
		"absolute address":  {"GET http://other.example/nothing HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n", "not_found"},
		"bad UTF-8 path":    {"GET /v1/\xff\xfe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "not_found"},
		"broken chunks": {
			"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + c.Key +
				"\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n", "invalid_request",
		},
		"chunks without end": {
			"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + c.Key +
				"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nx\r\n\r\n", "invalid_request",
		},
	}
	for name, request := range raw {
		t.Run(name, func(t *testing.T) {
			requireError(t, rawExchange(t, p, request.request), request.code)
		})
	}
}

// rawExchange writes bytes to the service and reads one answer.
func rawExchange(t testing.TB, p *product, request string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.BaseURL, "http://")) //nolint:noctx // it is local
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Write([]byte(request))
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	a := answer{Status: response.StatusCode, Header: response.Header}
	a.Body, err = readAll(response)
	require.NoError(t, err)
	return a
}

// TestRequestID guarantees that every answer, good or bad, has an id of ours, that no two share one, and that an inbound
// one is ignored.
func TestRequestID(t *testing.T) {
	t.Parallel()
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	as := p.as(p.operator().customer(t, 1_000_000))
	seen := map[string]bool{}
	for _, a := range []answer{
		as.get(t, "/v1/models", "X-Request-Id", "req_mine"),
		as.get(t, "/nothing", "X-Request-Id", "req_mine"),
		as.chat(t, prompt(modelStd, "hi", false), "X-Request-Id", "req_mine"),
		as.chat(t, prompt(modelStd, "hi", true), "X-Request-Id", "req_mine"),
		as.chat(t, "{", "X-Request-Id", "req_mine"),
		as.get(t, "/wallet", "X-Request-Id", "req_mine"),
	} {
		ids := a.Header.Values("X-Request-Id")
		require.Len(t, ids, 1)
		require.Regexp(t, `^req_[0-9a-z]{20,}$`, ids[0])
		require.False(t, seen[ids[0]])
		seen[ids[0]] = true
	}
}

// TestBadRequests guarantees the first half of the list of bad input: each body that the contract forbids is
// refused with its field, for whole answers and for streams alike, before the provider is asked and without a micro held
// or taken; and what the contract allows at its limits is served.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	const funds = 100_000_000
	c := p.operator().customer(t, funds)
	as := p.as(c)
	asked := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })

	with := func(members string) string {
		return `{"model":"acme/std","messages":[{"role":"user","content":"` + asked.Mark + `"}],` + members + `}`
	}
	message := func(message string) string { return `{"model":"acme/std","messages":[` + message + `]}` }
	bad := map[string]struct{ body, field string }{
		"empty":                 {``, ""},
		"no JSON":               {`{oops`, ""},
		"cut":                   {strings.TrimSuffix(with(`"stream":false`), "}"), ""},
		"trailing data":         {with(`"stream":false`) + `{}`, ""},
		"not an object":         {`[1]`, ""},
		"a string":              {`"hi"`, ""},
		"invalid UTF-8":         {message("{\"role\":\"user\",\"content\":\"\xff\xfe\"}"), ""},
		"duplicate key":         {with(`"stream":false,"stream":true`), "stream"},
		"depth bomb":            {with(`"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), ""},
		"depth 65":              {with(`"x":` + strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64)), ""},
		"unclosed depth bomb":   {with(`"x":` + strings.Repeat("[", 5_000_000)), ""},
		"no model":              {`{"messages":[{"role":"user","content":"x"}]}`, "model"},
		"model null":            {`{"model":null,"messages":[{"role":"user","content":"x"}]}`, "model"},
		"model number":          {`{"model":5,"messages":[{"role":"user","content":"x"}]}`, "model"},
		"no messages":           {`{"model":"acme/std"}`, "messages"},
		"messages empty":        {message(``), "messages"},
		"messages null":         {`{"model":"acme/std","messages":null}`, "messages"},
		"messages object":       {`{"model":"acme/std","messages":{}}`, "messages"},
		"message string":        {message(`"hi"`), "messages[0]"},
		"no role":               {message(`{"content":"x"}`), "messages[0].role"},
		"role developer":        {message(`{"role":"developer","content":"x"}`), "messages[0].role"},
		"role number":           {message(`{"role":1,"content":"x"}`), "messages[0].role"},
		"second message":        {message(`{"role":"user","content":"x"},{"role":"user","content":7}`), "messages[1].content"},
		"content parts":         {message(`{"role":"user","content":[{"type":"text","text":"x"}]}`), "messages[0].content"},
		"content null":          {message(`{"role":"user","content":null}`), "messages[0].content"},
		"content missing":       {message(`{"role":"user"}`), "messages[0].content"},
		"200,001 ASCII":         {message(`{"role":"user","content":"` + strings.Repeat("a", 200_001) + `"}`), "messages[0].content"},
		"200,001 Vietnamese":    {message(`{"role":"user","content":"` + strings.Repeat("ế", 200_001) + `"}`), "messages[0].content"},
		"200,001 emoji":         {message(`{"role":"user","content":"` + strings.Repeat("👋", 200_001) + `"}`), "messages[0].content"},
		"200,001 escaped emoji": {message(`{"role":"user","content":"` + strings.Repeat(`\ud83d\udc4b`, 200_001) + `"}`), "messages[0].content"},
		"temperature -0.1":      {with(`"temperature":-0.1`), "temperature"},
		"temperature 2.01":      {with(`"temperature":2.01`), "temperature"},
		"temperature string":    {with(`"temperature":"1"`), "temperature"},
		"temperature huge":      {with(`"temperature":1e999`), "temperature"},
		"top_p 1.01":            {with(`"top_p":1.01`), "top_p"},
		"top_p true":            {with(`"top_p":true`), "top_p"},
		"max_tokens 0":          {with(`"max_tokens":0`), "max_tokens"},
		"max_tokens -1":         {with(`"max_tokens":-1`), "max_tokens"},
		"max_tokens 200001":     {with(`"max_tokens":200001`), "max_tokens"},
		"max_tokens 1.5":        {with(`"max_tokens":1.5`), "max_tokens"},
		"max_tokens string":     {with(`"max_tokens":"10"`), "max_tokens"},
		"max_tokens 1e400":      {with(`"max_tokens":1e400`), "max_tokens"},
		"stop number":           {with(`"stop":5`), "stop"},
		"stop of numbers":       {with(`"stop":["a",5]`), "stop[1]"},
		"stream string":         {with(`"stream":"true"`), "stream"},
	}
	for name, request := range bad {
		t.Run(name, func(t *testing.T) {
			eachForm(t, func(t *testing.T, stream bool) {
				body := request.body
				if stream && strings.HasPrefix(body, `{"model"`) && !strings.Contains(body, `"stream"`) {
					body = `{"stream":true,` + body[1:]
				}
				e := requireError(t, as.chat(t, body), "invalid_request")
				require.Equal(t, request.field, e.Field, e.Message)
			})
		})
	}
	t.Run("a gzip body", func(t *testing.T) {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write([]byte(with(`"stream":false`)))
		require.NoError(t, z.Close())
		requireError(t, as.send(t, http.MethodPost, chatPath, &packed, "Content-Encoding", "gzip"), "invalid_request")
	})
	t.Run("33 MiB, length declared and in chunks", func(t *testing.T) {
		big := []byte(message(`{"role":"user","content":"` + strings.Repeat("a", 33<<20) + `"}`))
		requireError(t, as.send(t, http.MethodPost, chatPath, bytes.NewReader(big)), "invalid_request")
		requireError(t, as.send(t, http.MethodPost, chatPath, struct{ *bytes.Buffer }{bytes.NewBuffer(big)}), "invalid_request")
	})
	for _, model := range []string{"no/pe", "acme", "ACME/STD", "acme/std ", "", "../../etc"} {
		eachForm(t, func(t *testing.T, stream bool) {
			requireError(t, as.chat(t, prompt(model, asked.Mark, stream)), "unsupported_model")
		})
	}
	require.Empty(t, asked.Calls(), "the provider was asked")
	require.EqualValues(t, funds, c.wallet(t).BalanceMicros)
	require.Zero(t, c.wallet(t).HeldMicros)

	good := map[string]string{
		"unknown fields":        with(`"n":3,"tools":[{"a":1}],"response_format":{"type":"json_object"},"Temperature":"wrong case"`),
		"nulls":                 with(`"temperature":null,"top_p":null,"max_tokens":null,"stop":null,"stream":null`),
		"limits":                with(`"temperature":2,"top_p":0,"max_tokens":200000,"stop":[]`),
		"an integer as 10.0":    with(`"max_tokens":10.0`),
		"stop as a string":      with(`"stop":"END"`),
		"200,000 ASCII":         message(`{"role":"user","content":"` + strings.Repeat("a b ", 50_000) + `"}`),
		"200,000 with escapes":  message(`{"role":"user","content":"` + strings.Repeat(`\ud83d\udc4b a `, 200_000/9) + `"}`),
		"every role":            message(`{"role":"system","content":"s"},{"role":"assistant","content":""},{"role":"tool","content":"t"},{"role":"user","content":"u"}`),
		"max_completion_tokens": with(`"max_completion_tokens":7`),
		"odd completion tokens": with(`"max_completion_tokens":"many"`),
	}
	for name, body := range good {
		t.Run("fine: "+name, func(t *testing.T) {
			a := as.chat(t, body, "Content-Type", "text/plain")
			require.Equal(t, http.StatusOK, a.Status, "%.300s", a.Body)
		})
	}
	require.Equal(t, int64(7), lastMaxTokens(asked, `"max_tokens":7,`), "max_completion_tokens bounds the answer")
}

// lastMaxTokens is the max_tokens of the call whose body has a text.
func lastMaxTokens(s *script, text string) int64 {
	for _, call := range s.Calls() {
		if strings.Contains(call.Raw, strings.TrimSuffix(text, ",")) {
			return call.Body.MaxTokens
		}
	}
	return -1
}

// TestOnlyTheContractGoesUpstream guarantees that the provider sees the validated fields of the
// contract in a fixed order and nothing else, the operator's key and no header of the client.
func TestOnlyTheContractGoesUpstream(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 1_000_000)
	asked := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	content := asked.Mark + " spaces \n\t\u2028 \u0000 \" \\ </script> 👩‍👩‍👧‍👦"

	eachForm(t, func(t *testing.T, stream bool) {
		before := len(asked.Calls())
		body := fmt.Sprintf(`{"n":2,"stop":["A","B"],"top_p":0.5,"user":"me","max_tokens":9,"temperature":0.25,
			"messages":[{"content":"be brief","role":"system","name":"x"},{"role":"user","content":%s}],
			"model":"acme/std","stream":%t,"stream_options":{"include_usage":false},"tools":[]}`, quoted(content), stream)
		a := p.as(c).chat(t, body, "Cookie", "a=b", "X-Svc-Use-Byok", "false", "Openai-Organization", "org-1",
			"X-Forwarded-For", "1.2.3.4", "Idempotency-Key", fmt.Sprint("k-", stream), "X-Stainless-Lang", "js", "Accept-Encoding", "gzip")
		requireAnswered(t, a, modelStd, stream)
		call := asked.Calls()[before]
		want := `{"model":"acme-standard-1","messages":[{"role":"system","content":"be brief"},{"role":"user","content":` + quoted(content) +
			`}],"temperature":0.25,"max_tokens":9,"top_p":0.5,"stop":["A","B"]`
		if stream {
			want += `,"stream":true,"stream_options":{"include_usage":true}`
		}
		require.JSONEq(t, want+"}", withoutFalseStream(call.Raw))
		require.Equal(t, content, call.Body.Messages[1].Content)
		require.Equal(t, "/v1/chat/completions", call.Path)
		require.Equal(t, "Bearer "+operatorKey, call.Header.Get("Authorization"))
		for name := range call.Header {
			require.Contains(t, []string{"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent"}, name)
		}
		require.NotContains(t, fmt.Sprint(call.Header), c.Key)
	})
}

// withoutFalseStream drops `"stream":false`, which says the same as nothing.
func withoutFalseStream(body string) string { return strings.Replace(body, `,"stream":false`, "", 1) }

// TestByteBudget guarantees that the memory of bodies is divided: an organization whose bodies are arriving and take its
// part is refused with that reason, another one isn't, and the part is whole again when the vendor has the prompt, not when it
// has answered.
func TestByteBudget(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.App = "limits {\n buffered_bytes 1000000\n }"
	p := startProduct(t, d)
	greedy, other := p.operator().customer(t, 1_000_000), p.operator().customer(t, 1_000_000)
	hold := newGate(t)
	held := up.script(func(call *upstreamCall) {
		if hold.pass(call) {
			call.answer(usualText, usualUsage)
		}
	})
	padding := `"x":"` + strings.Repeat("a", 130_000) + `"`
	first := make(chan answer, 1)
	go func() {
		a, err := p.as(greedy).tryChat(prompt(modelStd, held.Mark, false, padding))
		failOn(t, err)
		first <- a
	}()
	p.await("the first call to reach the provider", patience, func() bool { return hold.waiting.Load() == 1 })
	requireCompletion(t, p.as(greedy).chat(t, prompt(modelStd, "hi", false, padding)), modelStd)

	stop := p.stall(t, greedy, 120_000)
	p.await("the body to arrive", patience, func() bool {
		return p.metric(t, `svc_buffered_bytes{share="organizations"}`) >= 120_000
	})
	a := p.as(greedy).chat(t, prompt(modelStd, "hi", false, padding))
	requireError(t, a, "rate_limited")
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	requireCompletion(t, p.as(other).chat(t, prompt(modelStd, "hi", false)), modelStd)
	stop()
	p.await("the memory to be given back", patience, func() bool {
		return p.metric(t, `svc_buffered_bytes{share="organizations"}`) < 120_000 // the running call has room for its answer
	})
	requireCompletion(t, p.as(greedy).chat(t, prompt(modelStd, "hi", false, padding)), modelStd)
	hold.open()
	requireCompletion(t, <-first, modelStd)
}
