package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	parrotKey = "parrot-key-0123456789"
	pagerKey  = "pager-signing-key-0123456789"
	pagerName = "pager-token-0123456789"
	tillKey   = "till-signing-key-0123456789"
)

// startParrotVendor plays the vendor of tests/guest/parrot: it repeats what it heard last.
func startParrotVendor(t *testing.T) *httptest.Server {
	t.Helper()
	parrot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Bird      string
			Heard     []struct{ By, Says string }
			Piecewise bool
		}
		switch err := json.NewDecoder(r.Body).Decode(&asked); {
		case err != nil || r.URL.Path != "/talk" || asked.Bird != "polly-1":
			w.WriteHeader(http.StatusBadRequest)
		case r.Header.Get("X-Parrot-Key") != parrotKey || r.Header.Get("X-Parrot-Cage") != "7":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			says := quoted("Re: " + asked.Heard[len(asked.Heard)-1].Says)
			const rest = `"why":"stop","cost":{"heard":11,"said":7}}`
			if asked.Piecewise {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = fmt.Fprintf(w, "data: {\"says\":%s}\n\ndata: {\"says\":\"!\"}\n\ndata: {%s\n\n", says, rest)
				return
			}
			_, _ = fmt.Fprintf(w, `{"says":%s,%s`, says, rest)
		}
	}))
	t.Cleanup(parrot.Close)
	return parrot
}

// pagerTexts are what the pager has delivered.
type pagerTexts struct {
	mu  sync.Mutex
	all []string
}

func (p *pagerTexts) delivered() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.all...)
}

// startPager plays the platform of tests/guest/pager, with the one account 77.
func startPager(t *testing.T) (*httptest.Server, *pagerTexts) {
	t.Helper()
	kept := &pagerTexts{}
	pager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var page struct{ To, Text string }
		switch err := json.NewDecoder(r.Body).Decode(&page); {
		case err != nil || r.Header.Get("Authorization") != "Bearer "+pagerName:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"token"}`)
		case r.URL.Path == "/whoami":
			_, _ = io.WriteString(w, `{"id":"77"}`)
		default:
			kept.mu.Lock()
			kept.all = append(kept.all, page.To+": "+page.Text)
			kept.mu.Unlock()
			_, _ = io.WriteString(w, `{"id":"9001"}`)
		}
	}))
	t.Cleanup(pager.Close)
	return pager, kept
}

// startGuests starts the product with the guests built in, without the check of answers against the description of a product
// that has none.
func startGuests(t *testing.T, pager, parrot *httptest.Server) *product {
	t.Helper()
	binary, err := guestBinary()
	require.NoError(t, err)
	d := deploy(t, store.SQLite, startUpstream(t)).describing()
	d.Binary = binary
	d.env = append(d.env, "PARROT_KEY="+parrotKey, "PAGER_KEY="+pagerKey, "TILL_KEY="+tillKey)
	d.App += `provider polly {
		protocol parrot {
			cage 7
		}
		base_url ` + parrot.URL + `
		api_key {env.PARROT_KEY}
	}
	model polly/std {
		upstream_model polly-1
		context_window 10000
		max_output_tokens 1000
		price_input 1000000
		price_output 2000000
	}
	platform pager {
		signing_key {env.PAGER_KEY}
		api_base ` + pager.URL + `
	}
	payments till {
		signing_key {env.TILL_KEY}
	}
	payment_rate USD {
		micros 10000
	}
	`
	return startProduct(t, d)
}

// plainly makes a request and returns its status and its answer. The client of other tests knows only the product's own interface.
func (p *product) plainly(t testing.TB, method, path, body string, headers ...string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.BaseURL+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := p.clear.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := readAll(response)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// TestGuests guarantees that a platform and a vendor's dialect of another module (tests/guest), built in with xcaddy, work as
// those of this one do: the vendor answers /v1 in one piece and streamed, and is charged for; a channel of the platform is
// created by the API, its fields are in the dashboard's form and its webhook in the description; what a customer writes is
// answered through the platform by the worker of the same binary. The companion binary, which has no guests, says so.
func TestGuests(t *testing.T) {
	t.Parallel()
	pager, delivered := startPager(t)
	p := startGuests(t, pager, startParrotVendor(t))
	b := p.business(t, 1_000_000, &script{}, assistantSettings{"model": "polly/std"})
	key := []string{"Authorization", "Bearer " + b.Key}

	status, answer := p.plainly(t, http.MethodPost, "/v1/chat/completions", `{"model":"polly/std","messages":[{"role":"user","content":"hé"}]}`, key...)
	require.Equal(t, http.StatusOK, status, answer)
	require.Contains(t, answer, `"content":"Re: hé"`)
	require.Contains(t, answer, `"finish_reason":"stop"`)
	status, answer = p.plainly(t, http.MethodPost, "/v1/chat/completions", `{"model":"polly/std","stream":true,"messages":[{"role":"user","content":"hé"}]}`, key...)
	require.Equal(t, http.StatusOK, status, answer)
	require.Contains(t, answer, `"content":"Re: hé`)
	require.True(t, strings.HasSuffix(answer, "data: [DONE]\n\n"), answer)
	for _, call := range b.awaitCalls(t, 2) {
		require.EqualValues(t, usualCharge, call.Charged)
	}

	status, answer = p.plainly(t, http.MethodPost, "/channels",
		fmt.Sprintf(`{"type":"pager","name":"Shop","agentId":%q,"credentials":{}}`, b.AgentID), key...)
	require.Equal(t, http.StatusBadRequest, status, answer)
	status, answer = p.plainly(t, http.MethodPost, "/channels",
		fmt.Sprintf(`{"type":"pager","name":"Shop","externalId":"77","agentId":%q,"credentials":{"accessToken":%q}}`, b.AgentID, pagerName), key...)
	require.Equal(t, http.StatusCreated, status, answer)
	require.Contains(t, answer, `"state":"active"`)
	require.Contains(t, answer, p.BaseURL+"/webhooks/pager")
	require.NotContains(t, answer, pagerName)
	_, answer = p.plainly(t, http.MethodGet, "/docs/openapi.json", "")
	require.Contains(t, answer, `"/webhooks/pager"`)

	page := `{"pages":[{"account":"77","from":"5","id":"1","text":"hello"}]}`
	status, answer = p.plainly(t, http.MethodPost, "/webhooks/pager", page, "X-Pager-Signature", "sha256="+hmacHex("another key", page))
	require.Equal(t, http.StatusUnauthorized, status, answer)
	for range 2 { // a repeated delivery is the same message
		status, answer = p.plainly(t, http.MethodPost, "/webhooks/pager", page, "X-Pager-Signature", "sha256="+hmacHex(pagerKey, page))
		require.Equal(t, http.StatusOK, status, answer)
		require.JSONEq(t, `{"ok":true,"queued":1}`, answer)
	}
	receipt, stamp := `{"receipt":1,"cents":5,"note":"rent","at":"2026-11-24T14:15:40Z"}`, strconv.FormatInt(time.Now().Unix(), 10)
	for key, want := range map[string]int{"another key": http.StatusUnauthorized, tillKey: http.StatusOK} {
		status, answer = p.plainly(t, http.MethodPost, "/payments/till", receipt, "X-Till-Signature", stamp+":"+hmacHex(key, stamp+receipt))
		require.Equal(t, want, status, answer)
	}
	w := p.prepareWorker()
	w.startInCaddy()
	p.await("the answer on the pager", patience, func() bool { return len(delivered.delivered()) > 0 })
	b.awaitCalls(t, 3)
	require.Equal(t, []string{"5: Re: hello"}, delivered.delivered())

	alone, err := workerBinary()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), alone, "--config", p.configFile())
	var said bytes.Buffer
	command.Dir, command.Env, command.Stderr = p.Dir, p.environment(), &said
	require.Error(t, command.Run())
	require.Contains(t, said.String(), `there is no platform "pager"; allowed: bot, `)
	require.Contains(t, said.String(), `"parrot" is not known; allowed: openai, anthropic, gemini, echo`)

	person := b.person(t, "administrator")
	person.open("/dashboard/channels")
	person.follow(`#channel-types a[href*="type=pager"]`)
	form := person.text("form#channel-create")
	for _, word := range []string{"Account number", "It is printed on the back of the pager.", "Access token", "The pager's website shows it once."} {
		require.Contains(t, form, word)
	}
	person.fill("#channel-create-name", "Second shop")
	person.fill(`[name="externalId"]`, "78")
	person.fill(`[name="credentials.accessToken"]`, pagerName)
	person.submit("form#channel-create")
	require.Equal(t, p.BaseURL+"/webhooks/pager", person.text("#webhook-url"))
}
