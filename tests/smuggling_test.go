package tests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// raw sends the bytes of a request to the product and returns its answer. Requests end their connection.
func (p *product) raw(t *testing.T, request string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port))) //nolint:noctx // it is local
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answer{Status: response.StatusCode, Header: response.Header, Body: body}
}

// TestSmuggledRequests guarantees that a request whose framing could be read in two ways is refused, or is read in one way
// and rebuilt for the provider: no header of the client reaches it, and no byte behind the body. What net/http refuses
// before our handlers has no body of the contract, as docs/failure-modes.md says.
func TestSmuggledRequests(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 100_000_000)
	s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	body := prompt(modelStd, s.Mark, false)
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	const smuggled = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
	request := func(version, headers, body string) string {
		return "POST " + chatPath + " HTTP/" + version + "\r\nHost: localhost\r\nConnection: close, X-Smuggled\r\nX-Smuggled: yes\r\n" +
			"Authorization: Bearer " + c.Key + "\r\n" + headers + "\r\n" + body
	}
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	const encoded = "Transfer-Encoding: chunked\r\n"
	for name, tc := range map[string]struct {
		request string
		status  int
		code    string // of the error's body; empty for a completion, and for an answer of net/http itself
	}{
		"as usual":                        {request("1.1", length(len(body)), body), 200, ""},
		"chunked":                         {request("1.1", encoded, chunked), 200, ""},
		"a request behind the body":       {request("1.1", length(len(body)), body+smuggled), 200, ""},
		"a request behind the last chunk": {request("1.1", encoded, chunked+smuggled), 200, ""},
		"a length beside chunks":          {request("1.1", length(len(chunked)+len(smuggled))+encoded, chunked+smuggled), 200, ""},
		"a short length beside chunks":    {request("1.1", length(4)+encoded, chunked), 200, ""},
		"a header in a trailer":           {request("1.1", encoded+"Trailer: X-Api-Key\r\n", strings.TrimSuffix(chunked, "\r\n")+"X-Api-Key: ck_live_x\r\n\r\n"), 200, ""},
		"the same length twice":           {request("1.1", length(len(body))+length(len(body)), body), 200, ""},
		"two lengths":                     {request("1.1", length(len(body))+length(4), body), 400, ""},
		"a list of lengths":               {request("1.1", fmt.Sprintf("Content-Length: %d, 4\r\n", len(body)), body), 400, ""},
		"a length with a sign":            {request("1.1", fmt.Sprintf("Content-Length: +%d\r\n", len(body)), body), 400, ""},
		"a negative length":               {request("1.1", "Content-Length: -1\r\n", body), 400, ""},
		"a length in hex":                 {request("1.1", fmt.Sprintf("Content-Length: 0x%x\r\n", len(body)), body), 400, ""},
		"a blank before the colon":        {request("1.1", fmt.Sprintf("Content-Length : %d\r\n", len(body)), body), 400, ""},
		"chunked and identity":            {request("1.1", "Transfer-Encoding: chunked, identity\r\n", chunked), 501, ""},
		"chunked twice":                   {request("1.1", encoded+encoded, chunked), 501, ""},
		"a coding that looks like it":     {request("1.1", "Transfer-Encoding: \x0bchunked\r\n", chunked), 400, ""},
		"another coding":                  {request("1.1", "Transfer-Encoding: gzip\r\n", chunked), 501, ""},
		"chunks that end with a bare LF":  {request("1.1", encoded, strings.ReplaceAll(chunked, "\r\n", "\n")), 400, "invalid_request"},
		"a chunk of a bad size":           {request("1.1", encoded, "x\r\n"+body+"\r\n0\r\n\r\n"), 400, "invalid_request"},
		"a chunk longer than its size":    {request("1.1", encoded, fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body)-1, body)), 400, "invalid_request"},
		"chunks of HTTP/1.0":              {request("1.0", encoded, chunked), 400, "invalid_request"},
		"two hosts":                       {request("1.1", "Host: elsewhere\r\n"+length(len(body)), body), 400, ""},
		"NUL in a header":                 {request("1.1", "X-Nul: a\x00b\r\n"+length(len(body)), body), 400, ""},
		"headers without end":             {request("1.1", "X-Long: "+strings.Repeat("a", 1<<20)+"\r\n"+length(len(body)), body), 431, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(s.Calls())
			a := p.raw(t, tc.request)
			require.Equal(t, tc.status, a.Status, "%s", a.Body)
			calls := s.Calls()[before:]
			switch {
			case tc.code != "":
				requireError(t, a, tc.code)
				require.Empty(t, calls, "the provider was called")
			case tc.status != http.StatusOK:
				require.Empty(t, calls, "the provider was called")
			default:
				requireCompletion(t, a, modelStd)
				require.Len(t, calls, 1)
				require.NotContains(t, calls[0].Raw, "HTTP/1.1")
				for header := range calls[0].Header {
					require.Contains(t, []string{"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent"}, header)
				}
				require.Equal(t, "Bearer "+operatorKey, calls[0].Header.Get("Authorization"))
			}
		})
	}
}

// TestOddPaths guarantees that no spelling of a path gets around a route's credential: without one every spelling of a
// protected path is refused, or is a path that doesn't exist, and nothing reaches the provider.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 100_000_000)
	s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	body := prompt(modelStd, s.Mark, false)
	for _, target := range []string{
		"/v1/chat/completions", "//v1/chat/completions", "/v1//chat/completions", "/v1/./chat/completions", "/v1/x/../chat/completions",
		"/v1/%2e%2e/v1/chat/completions", "/v1/chat%2fcompletions", "/v1%2fchat%2fcompletions", "/%76%31/chat/completions", "/v1/chat/completions/",
		"/v1/chat/completions/.", "/v1/chat/completions/..", "/v1/chat/completions%00", "/v1/chat/completions;x=1", "/v1/chat/completions?x=/health",
		"/V1/Chat/Completions", "/v1\\chat\\completions", "/webhooks/../v1/chat/completions", "/webhooks/%2e%2e/v1/chat/completions",
		"//v1/%2e%2e/webhooks%2fbot", "/health/../v1/models", "/docs/../v1/models", "/docs%2f..%2fv1/models", "/v1/models", "/v1/models/", "/v1/models%2f",
		"/v1/models/acme%2fstd", "/v1/models/..%2f..%2fwallet", "/wallet", "//wallet", "/wallet/.", "/wallet/%2e%2e/api-keys", "/api-keys", "/API-KEYS",
		"/api-keys/../wallet", "/session/../wallet", "/session%2f..%2fwallet", "http://localhost/v1/models", "http://elsewhere/wallet", "/conversations/%2e%2e/wallet",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, key := range []string{"", "Authorization: Bearer " + unknownKey() + "\r\n"} {
				a := p.raw(t, method+" "+target+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"+key+
					fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
				switch a.Status {
				case http.StatusUnauthorized, http.StatusNotFound:
					require.NotEmpty(t, parseError(t, a.Body).Code, "%s %s", method, target)
				case http.StatusBadRequest: // net/http refuses the request line
				default:
					t.Errorf("%s %s without a credential: %d %s", method, target, a.Status, a.Body)
				}
			}
		}
	}
	require.Empty(t, s.Calls(), "the provider was called")
	a := p.raw(t, "POST //v1//chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "+c.Key+
		fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, a.Status, "with a credential it is the route or no path")
}
