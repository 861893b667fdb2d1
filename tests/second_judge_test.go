package tests

import (
	"bytes"
	"fmt"
	"io"
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

// startJudge starts aimock, a vendor of all dialects that somebody else wrote, and returns its address.
func startJudge(t *testing.T, faults ...string) string {
	t.Helper()
	installNPM(t)
	fixtures := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(fixtures, "answers.json"), fmt.Appendf(nil, `{"fixtures":[{"match":{"userMessage":"judge"},"response":{
		"content":"Trời hôm nay đẹp, \"nắng\" nhẹ.\nMang theo ô nhé 👋.","usage":{"input_tokens":%[1]d,"output_tokens":%[2]d,"prompt_tokens":%[1]d,
		"completion_tokens":%[2]d,"total_tokens":%[3]d,"promptTokenCount":%[1]d,"candidatesTokenCount":%[2]d,"totalTokenCount":%[3]d}}}]}`,
		judgePrompt, judgeCompletion, judgePrompt+judgeCompletion), 0o600))
	judge := &process{t: t, what: "judge"}
	arguments := append([]string{"node_modules/@copilotkit/aimock/dist/cli.js", "-p", "0", "-f", fixtures, "--journal-max", "0"}, faults...)
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

// TestSecondJudge lets clients ask a vendor that we didn't write, in each dialect and with its own faults: what the clients were
// told that their answers cost is what the wallet paid, nothing was asked twice, and each answer was the vendor's.
func TestSecondJudge(t *testing.T) {
	t.Parallel()
	judge := startJudge(t, "--chaos-drop", "0.08", "--chaos-malformed", "0.08", "--chaos-disconnect", "0.08", "--chaos-ratelimit", "0.08")
	d := deploy(t, store.SQLite, startUpstream(t))
	dialects := []struct{ name, base string }{{"openai", "/v1"}}
	for _, dialect := range dialects {
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
				ask.model = "judge-" + dialects[(client+round)%len(dialects)].name + "/m"
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
	require.EqualValues(t, (3*judgePrompt+7*judgeCompletion)*whole, told)
	c.awaitNothingHeld(t)
	require.Equal(t, purse-told, c.wallet(t).BalanceMicros)
	p.svc(t, "doctor")

	response, err := http.Get(judge + "/__aimock/journal?limit=1")
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	require.Equal(t, fmt.Sprint(clients*rounds), response.Header.Get("X-Total-Count"), "one request of a client is one request of the vendor")
}
