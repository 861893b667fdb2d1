package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// judgePrompt and judgeCompletion are the tokens that the second judge reports for each answer.
const judgePrompt, judgeCompletion = 37, 23

var judgeAddress = regexp.MustCompile(`listening on (http://127\.0\.0\.1:[0-9]+)`)

// judgeAnswer returns a fixture of aimock: the answer to messages with a mark, changed by more.
func judgeAnswer(mark string, more map[string]any) map[string]any {
	fixture := map[string]any{"match": map[string]any{"userMessage": mark}, "response": map[string]any{
		"content": "Trời hôm nay đẹp, \"nắng\" nhẹ.\nMang theo ô nhé 👋.",
		"usage": map[string]any{
			"prompt_tokens": judgePrompt, "completion_tokens": judgeCompletion, "total_tokens": judgePrompt + judgeCompletion,
			"input_tokens": judgePrompt, "output_tokens": judgeCompletion,
			"promptTokenCount": judgePrompt, "candidatesTokenCount": judgeCompletion, "totalTokenCount": judgePrompt + judgeCompletion,
		},
	}}
	maps.Copy(fixture, more)
	return fixture
}

// judgeError returns the fixture of an error.
func judgeError(mark string, status int, kind, message string) map[string]any {
	return judgeAnswer(mark, map[string]any{"response": map[string]any{
		"error": map[string]any{"message": message, "type": kind}, "status": status, "retryAfter": 1,
	}})
}

// startJudge starts aimock, a vendor of all dialects that somebody else wrote, and returns its address.
func startJudge(t *testing.T, fixtures []map[string]any, faults ...string) string {
	t.Helper()
	installNPM(t)
	folder := t.TempDir()
	text, err := json.Marshal(map[string]any{"fixtures": fixtures})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "answers.json"), text, 0o600))
	judge := &process{t: t, what: "judge"}
	arguments := append([]string{"node_modules/@copilotkit/aimock/dist/cli.js", "-p", "0", "-f", folder, "--journal-max", "0"}, faults...)
	judge.run("clients", os.Environ(), func() {
		judge.killed = true
		judge.kill()
	}, "node", arguments...)
	var address string
	judge.await("an address", 30*time.Second, func() bool {
		if found := judgeAddress.FindStringSubmatch(judge.log.String()); found != nil {
			address = found[1]
		}
		return address != ""
	})
	return address
}

// judgeDialects are the dialects that the second judge speaks, with the end of its address and the vendor's words for a prompt
// that is too long.
var judgeDialects = []struct{ name, base, tooLong string }{
	{"openai", "/v1", "This model's maximum context length is 128000 tokens."},
	{"anthropic", "", "prompt is too long: 250000 tokens > 200000 maximum"},
	{"gemini", "/v1beta", "The input token count (250000) exceeds the maximum number of tokens allowed (200000)."},
}

// judged adds a provider and a model of each dialect to a deployment.
func judged(d *deployment, judge string) {
	for _, dialect := range judgeDialects {
		d.App += fmt.Sprintf(`
			provider judge-%[1]s {
				protocol %[1]s
				base_url %[2]s%[3]s
				api_key {env.ACME_KEY}
			}
			model judge-%[1]s/m {
				context_window 10000
				max_output_tokens 1000
				price_input 3000000
				price_output 7000000
			}`, dialect.name, judge, dialect.base)
	}
}

// TestClientsInEachDialect guarantees that the official clients don't notice which dialect a vendor speaks.
func TestClientsInEachDialect(t *testing.T) {
	t.Parallel()
	fixtures := []map[string]any{
		judgeError("refused", 401, "authentication_error", "wrong key"),
		judgeError("failing", 500, "api_error", "internal"),
		judgeError("overloaded", 503, "overloaded_error", "overloaded"),
		judgeAnswer("broken", map[string]any{"truncateAfterChunks": 4, "chunkSize": 5, "latency": 20}),
		judgeAnswer("slow", map[string]any{"latency": 100, "chunkSize": 2}),
	}
	for _, dialect := range judgeDialects {
		fixtures = append(fixtures, judgeError("too-long-"+dialect.name, 400, "invalid_request_error", dialect.tooLong))
		mark := "once-" + dialect.name
		for call := range 6 { // each script asks twice
			fixture := judgeAnswer(mark, nil)
			if call%2 == 0 {
				fixture = judgeError(mark, 503, "overloaded_error", "overloaded")
			}
			fixture["match"] = map[string]any{"userMessage": mark, "sequenceIndex": call}
			fixtures = append(fixtures, fixture)
		}
	}
	judge := startJudge(t, append(fixtures, judgeAnswer("answer", nil)))
	d := deploy(t, store.SQLite, startUpstream(t))
	d.App = "plan single {\n requests_per_minute 1\n }"
	judged(d, judge)
	p := startProduct(t, d)
	for _, dialect := range judgeDialects[1:] { // TestNPMClients asks the first
		t.Run(dialect.name, func(t *testing.T) {
			t.Parallel()
			scenarios := fmt.Sprintf(`{"answer":"answer","refused":"refused","failing":"failing","overloaded":"overloaded",
				"overloadedOnce":"once-%[1]s","tooLong":"too-long-%[1]s","broken":"broken","slow":"slow"}`, dialect.name)
			runClients(t, p, "judge-"+dialect.name+"/m", scenarios)
		})
	}
}

// TestSecondJudge lets clients ask a vendor that we didn't write, in each dialect and with its own faults: what the clients were
// told that their answers cost is what the wallet paid, nothing was asked twice, and each answer was the vendor's.
func TestSecondJudge(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, []map[string]any{judgeAnswer("judge", nil)}, "--chaos-drop", "0.08", "--chaos-malformed", "0.08", "--chaos-disconnect", "0.08", "--chaos-ratelimit", "0.08")
	d := deploy(t, store.SQLite, startUpstream(t))
	judged(d, judge)
	p := startProduct(t, d)
	const purse, clients, rounds = int64(100_000_000), 8, 12
	c := p.operator().customer(t, purse)
	var work sync.WaitGroup
	type asked struct {
		answer
		err    error
		model  string
		stream bool
	}
	all := make([]asked, clients*rounds)
	for client := range clients {
		work.Go(func() {
			for round := range rounds {
				ask := &all[client*rounds+round]
				ask.model = "judge-" + judgeDialects[(client+round)%len(judgeDialects)].name + "/m"
				ask.stream = round%2 == 0
				ask.answer, ask.err = p.as(c).tryChat(prompt(ask.model, "judge this", ask.stream))
			}
		})
	}
	work.Wait()
	var told, whole int64
	broken := 0
	for _, ask := range all {
		require.NoError(t, ask.err)
		if ask.Status != http.StatusOK || ask.stream && !bytes.HasSuffix(ask.Body, []byte("data: [DONE]\n\n")) {
			broken++
			continue
		}
		whole++
		told += requireAnswered(t, ask.answer, ask.model, ask.stream).charged(t)
	}
	require.Positive(t, broken, "the judge has faults")
	require.Equal(t, (3*judgePrompt+7*judgeCompletion)*whole, told)
	c.awaitNothingHeld(t)
	require.Equal(t, purse-told, c.wallet(t).BalanceMicros)
	p.svc(t, "doctor")

	response, err := http.Get(judge + "/__aimock/journal?limit=1")
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	require.Equal(t, fmt.Sprint(clients*rounds), response.Header.Get("X-Total-Count"), "one request of a client is one request of the vendor")
}
