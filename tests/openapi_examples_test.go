package tests

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/openapi"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// updateExamples records the answers anew; the difference is to be read before it is committed.
var updateExamples = flag.Bool("update-examples", false, "rewrite the answers in handlers/openapi/examples.json")

const examplesFile = "../handlers/openapi/examples.json"

// pages are the operations without an example: this description itself, and what a browser loads.
var pages = map[string]bool{
	"getDocs": true, "getDescription": true, "getDescriptionAsYAML": true, "getWidgetPage": true, "getWidgetScript": true,
}

// visitedOrigin is whose page the examples' visitor looks at.
const visitedOrigin = "https://shop.example"

// shopper sends the examples of the description in their order.
type shopper struct {
	*product
	contract *contract
	key      string
	cookie   string
	visitor  string // the token of the widget's visitor
	// known has the last id of each kind that an answer had: an id in an example stands for it.
	known map[string]string
	// real is what other words of the examples stand for.
	real *strings.Replacer
}

// TestDocumentedExamples guarantees that every operation of the description but pages has an example, and that a server answers each
// as the description says: the same but for ids, moments and secrets.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	platform := platformfake.Start(t)
	d := deploy(t, store.SQLite, startUpstream(t)).describing().receiving(t, platform)
	d.PublicURL = "https://svc.example"
	p := startProduct(t, d)
	c := p.operator().customer(t, 1_000_000_000)
	scopes := make([]string, 0, len(identity.AllScopes()))
	for _, scope := range identity.AllScopes() {
		scopes = append(scopes, string(scope))
	}
	description, err := described()
	require.NoError(t, err)
	s := &shopper{product: p, contract: description, known: map[string]string{}}
	_, s.key = c.newKey(t, identity.KeyRequest{Scopes: scopes})
	link := p.svc(t, "user", "invite", "--org", c.OrgID, "--email", "lan@example.com", "--role", "owner")["link"].(string)
	bot := platform.Account(bot.Type, "947000001")
	number := platform.Account(social.ChatApp, "947000002")
	platform.SetTemplates("947000002", readyTemplates()...)
	s.real = strings.NewReplacer(
		"TOKEN-OF-THE-NUMBER", number[platforms.AccessToken],
		"TOKEN-OF-THE-LINK", link[strings.LastIndex(link, "#")+1:], "SECRET-OF-THE-WEBHOOK", bot["secretToken"],
		"TOKEN-OF-THE-BOT", bot["botToken"], "VERIFY-TOKEN", socialVerifyToken, "APP-ID", localchatAppID,
	)

	examples, err := openapi.Examples()
	require.NoError(t, err)
	shown := map[string]bool{}
	for i := range examples {
		example := &examples[i]
		shown[example.Operation] = true
		if example.Operation == "getWallet" {
			c.awaitNothingHeld(t)
		}
		got := s.try(t, example)
		if *updateExamples {
			example.Response = got
			continue
		}
		require.Equal(t, asJSON(t, example.Response), asJSON(t, got), "the answer of %s %s is another one: see -update-examples", example.Operation, example.Name)
	}
	for _, o := range description.operations {
		id := o.operation["operationId"].(string)
		require.True(t, shown[id] || pages[id], "%s has no example", id)
	}
	if *updateExamples {
		require.NoError(t, os.WriteFile(examplesFile, append([]byte(asJSON(t, examples)), '\n'), 0o600))
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	require.NoError(t, encoder.Encode(value))
	return strings.TrimSuffix(text.String(), "\n")
}

// try sends one example and returns the answer as an example shows it.
func (s *shopper) try(t *testing.T, example *openapi.Example) any {
	t.Helper()
	var o *documented
	for i := range s.contract.operations {
		if s.contract.operations[i].operation["operationId"] == example.Operation {
			o = &s.contract.operations[i]
		}
	}
	require.NotNil(t, o, "there is no operation %s", example.Operation)
	r := s.build(t, o, example)
	response, err := s.clear.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := readAll(response)
	require.NoError(t, err)
	a := answer{Status: response.StatusCode, Header: response.Header, Body: text}
	require.Equal(t, example.Status, a.Status, "%s: %s", example.Operation, text)
	require.NoError(t, s.contract.judge(r, a), "%s: %s", example.Operation, text)
	for _, cookie := range response.Cookies() {
		if strings.HasSuffix(cookie.Name, "svc_session") {
			s.cookie = cookie.Name + "=" + cookie.Value
		}
	}
	if token := visitorToken.FindSubmatch(text); token != nil {
		s.visitor = string(token[1])
	}
	for _, id := range anyID.FindAllString(authors.ReplaceAllString(string(text), ""), -1) {
		kind, _, _ := strings.Cut(id, "_")
		s.known[kind] = id
	}
	if len(text) == 0 {
		return nil
	}
	settled := settle(string(text))
	if !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
		return settled
	}
	var value any
	require.NoError(t, json.Unmarshal([]byte(settled), &value), settled)
	return value
}

// build makes the request of an example, signed as its operation says.
func (s *shopper) build(t *testing.T, o *documented, example *openapi.Example) *http.Request {
	t.Helper()
	var body []byte
	if example.Request != nil {
		body = []byte(s.meant(asJSON(t, example.Request)))
	}
	path, query, header := o.Path, url.Values{}, http.Header{}
	parameters, _ := o.operation["parameters"].([]any)
	for _, parameter := range parameters {
		parameter := parameter.(map[string]any)
		name := parameter["name"].(string)
		value, given := example.Parameters[name]
		if name == "month" {
			value = time.Now().UTC().Format("2006-01")
		}
		switch value = s.meant(value); {
		case !given:
		case parameter["in"] == "path":
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
		case parameter["in"] == "query":
			query.Set(name, value)
		default:
			header.Set(name, value)
		}
	}
	require.NotContains(t, path, "{", "a parameter of %s is missing", example.Operation)
	r, err := http.NewRequestWithContext(t.Context(), o.Method, s.BaseURL+path+"?"+query.Encode(), bytes.NewReader(body))
	require.NoError(t, err)
	r.Header = header
	if strings.HasPrefix(o.Path, "/widget/") {
		r.Header.Set("Origin", visitedOrigin)
	}
	ways, _ := o.operation["security"].([]any)
	s.sign(r, ways, body)
	return r
}

// sign adds credentials to the request, in the first of the ways that the description names; every request has the cookie, as in
// a browser.
func (s *shopper) sign(r *http.Request, ways []any, body []byte) {
	if len(ways) == 0 {
		ways = []any{map[string]any{"session": nil}}
	}
	for scheme := range ways[0].(map[string]any) {
		switch scheme {
		case "bearer":
			r.Header.Set("Authorization", "Bearer "+s.key)
		case "visitor":
			r.Header.Set("Authorization", "Bearer "+s.visitor)
		case "session":
			r.Header.Set("Cookie", s.cookie)
		case "botSecret":
			r.Header.Set(botHeader, s.real.Replace("SECRET-OF-THE-WEBHOOK"))
		case "socialSignature":
			r.Header.Set(socialHeader, signSocial(body))
		case "localchatSignature":
			var stamped struct{ Timestamp string }
			_ = json.Unmarshal(body, &stamped)
			r.Header.Set(localchatHeader, signLocalchat(body, stamped.Timestamp))
		case "marketASignature":
			r.Header.Set(marketHeader, signMarketA(s.PublicURL, body))
		case "marketBSignature":
			r.Header.Set(marketHeader, signMarketB(body))
		}
	}
}

var (
	// anyID is an id of ours anywhere.
	anyID = regexp.MustCompile(`\b(org|key|usr|agt|kb|doc|chn|cnv|msg|txn|call|req|trn|aud|evep|evt|bud|rise|pay)_[0-9a-z]{20,}\b`)
	// authors are ids of users and keys that made a resource: no later example refers to them.
	authors = regexp.MustCompile(`"createdBy":"[^"]*"`)
	// visitorToken is the token of a widget's session.
	visitorToken = regexp.MustCompile(`"token":"([0-9A-Za-z_-]{30,})"`)
	// What differs from one run to the next, and what stands for it in the description.
	settling = []struct {
		found *regexp.Regexp
		with  string
	}{
		{anyID, "${1}_00000000000000000000000001"},
		{regexp.MustCompile(`whsec_[0-9A-Za-z+/=]+`), "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA="},
		{regexp.MustCompile(`"chatcmpl-[^"]*"`), `"chatcmpl-0000000000000001"`},
		{regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*Z"`), `"2026-01-02T03:04:05.678Z"`},
		{regexp.MustCompile(`"\d{4}-\d\d-\d\d"`), `"2026-01-02"`},
		{regexp.MustCompile(`"\d{4}-\d\d"`), `"2026-01"`},
		{regexp.MustCompile(`(\\?"created\\?"):\d{10}`), `$1:1767323045`},
		{regexp.MustCompile(`"durationMs":\d+`), `"durationMs":840`},
		{regexp.MustCompile(`"Customer \d+"`), `"Example Shop"`},
		{regexp.MustCompile(`"(ck_(?:live|test)_)[^"]{30,}"`), `"${1}the-key-is-shown-this-once"`},
		{regexp.MustCompile(`"(ck_(?:live|test)_)[0-9A-Za-z]{1,12}[^"]{0,3}"`), `"${1}0123"`},
		{visitorToken, `"token":"token-of-the-visitor"`},
		{regexp.MustCompile(`#[0-9A-Za-z_-]{30,}"`), `#token-of-the-link"`},
		{regexp.MustCompile(`"(nextCursor)":"[^"]*"`), `"$1":"cursor-of-the-next-page"`},
		{regexp.MustCompile(`(secret"?[:=]"?)[A-Z2-7]{32}`), `${1}JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP`},
		{regexp.MustCompile(`"score":-?[0-9.e-]+`), `"score":1`},
	}
)

// settle makes two runs look the same.
func settle(text string) string {
	for _, s := range settling {
		text = s.found.ReplaceAllString(text, s.with)
	}
	return text
}

// meant is what an example's text stands for on this server.
func (s *shopper) meant(text string) string {
	text = anyID.ReplaceAllStringFunc(text, func(id string) string {
		kind, _, _ := strings.Cut(id, "_")
		if known, ok := s.known[kind]; ok {
			return known
		}
		return id
	})
	return s.real.Replace(text)
}

// TestServedDescription guarantees that the product serves the description of this code, in every form, that its errors
// point at the page where it is mounted and only there, and that what is described is mounted.
func TestServedDescription(t *testing.T) {
	t.Parallel()
	platform := platformfake.Start(t)
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)).describing().receiving(t, platform))
	anyone := p.withKey("")
	served := anyone.get(t, "/docs")
	require.Equal(t, served.Body, anyone.get(t, "/docs/openapi.json").Body)
	mine, err := described()
	require.NoError(t, err)
	theirs, err := parseContract(served.Body)
	require.NoError(t, err)
	require.Equal(t, mine.document["paths"], theirs.document["paths"], "the binary is not of this code")
	require.Equal(t, []any{map[string]any{"url": p.BaseURL}}, theirs.document["servers"])
	require.Contains(t, string(anyone.get(t, "/docs/openapi.yaml").Body), "openapi: 3.1.0")

	page := anyone.get(t, "/docs", "Accept", "text/html,*/*;q=0.8")
	require.Contains(t, page.Header.Get("Content-Security-Policy"), "default-src 'none'")
	for code := range statusOf {
		require.Contains(t, string(page.Body), fmt.Sprintf(`id="%s"`, code))
	}
	for _, address := range []string{"/v1/models", "/agents", "/nothing", "/docs/nothing"} {
		e := parseError(t, anyone.get(t, address).Body)
		require.Equal(t, p.BaseURL+"/docs#"+e.Code, e.DocsURL, address)
	}
	const unknown = "x"
	for _, o := range theirs.operations {
		if strings.HasPrefix(o.Path, "/widget/") { // every unknown channel is not_found
			continue
		}
		path := variable.ReplaceAllString(o.Path, unknown)
		a := anyone.send(t, o.Method, path, strings.NewReader("{}"))
		require.NotEqual(t, http.StatusNotFound, a.Status, "%s %s is described and not mounted: %s", o.Method, path, a.Body)
	}

	bare := startProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	require.Empty(t, parseError(t, bare.withKey("").get(t, "/v1/models").Body).DocsURL)
	requireError(t, bare.withKey("").get(t, "/docs"), "not_found")
}
