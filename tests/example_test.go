package tests

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestExample guarantees that Caddyfile.example works as it stands: it adapts without a warning, validates, and runs with
// the echo provider from an empty folder, as `make run` does. Only its ports and the folder are changed.
func TestExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Caddyfile.example")
	require.NoError(t, err)
	p := prepareProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	data := filepath.Join(p.Dir, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	p.masterKey = base64.StdEncoding.EncodeToString(key)
	require.NoError(t, os.WriteFile(filepath.Join(data, "master.key"), []byte(p.masterKey+"\n"), 0o600))
	p.writeCaddyfile(string(text))
	out, err := p.caddy("adapt", "--config", p.configFile(), "--validate")
	require.NoError(t, err)
	require.Contains(t, out, `"svc"`)
	formatted, err := p.caddy("fmt", p.configFile())
	require.NoError(t, err, "caddy fmt would change it")
	require.Equal(t, string(text), formatted)

	p.writeCaddyfile(onPortsOf(p, string(text)))
	p.location, err = store.ParseLocation(store.SQLite, filepath.Join(data, "svc.db"))
	require.NoError(t, err)
	p.svc(t, "migrate")
	org := p.svc(t, "org", "create", "--name", "demo")["id"].(string)
	p.svc(t, "wallet", "credit", "--org", org, "--micros", "10000000", "--ref", "first-start")
	made := p.svc(t, "key", "create", "--org", org, "--name", "demo", "--scopes", "models:read,chat:write,wallet:read")
	p.start()
	p.await("the example to be ready", startWait, func() bool {
		response, err := p.clear.Get(p.SideURL + "/health/ready") //nolint:noctx // it is local
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	as := p.withKey(made["key"].(string))
	const model = "echo/echo-1"
	require.Contains(t, p.awaitModels(as), `"`+model+`"`) // its listener may come after that of the probes
	for _, stream := range []bool{false, true} {
		done := requireAnswered(t, as.chat(t, prompt(model, "Hello!", stream)), model, stream)
		require.Contains(t, done.Text, "Hello!")
		require.Positive(t, done.charged(t))
	}
	require.Equal(t, http.StatusOK, as.get(t, "/wallet").Status)
	requireError(t, as.get(t, "/"), "not_found")
	require.Contains(t, p.metrics(t), "svc_calls_total")
	live, err := p.clear.Get(p.SideURL + "/health/live") //nolint:noctx // it is local
	require.NoError(t, err)
	require.NoError(t, live.Body.Close())
	require.Equal(t, http.StatusOK, live.StatusCode)
	refused, err := p.clear.Get(p.SideURL + "/operator/organizations") //nolint:noctx // it is local
	require.NoError(t, err)
	body, err := io.ReadAll(refused.Body)
	require.NoError(t, errors.Join(err, refused.Body.Close()))
	require.Equal(t, http.StatusUnauthorized, refused.StatusCode)
	require.Contains(t, string(body), `"requestId"`, "the private site has the contract's errors, too")
	p.svc(t, "doctor")
	info, err := os.Stat(filepath.Join(data, "access.log"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

var fenced = regexp.MustCompile("(?s)```caddyfile\n(.*?)```")

// TestREADMECaddyfiles guarantees that what the README and the documentation show can be copied: every whole Caddyfile
// adapts, and every fragment adapts when it stands in the svc block of the first one.
func TestREADMECaddyfiles(t *testing.T) {
	t.Parallel()
	d := deploy(t, store.SQLite, startUpstream(t))
	var err error
	d.Binary, err = guestBinary() // docs/extending.md configures them
	require.NoError(t, err)
	p := prepareProduct(t, d)
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	blocks := fenced.FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)
	// Its only site has no braces, without which no other can follow, and another name than those of the pages.
	whole := strings.Replace(blocks[0][1], "\nai.example.com\nsvc_server\n", "\nwhole.example.com {\n\tsvc_server\n}\n", 1)
	require.NotEqual(t, blocks[0][1], whole)
	for _, page := range append([]string{"../README.md"}, pages...) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for i, block := range fenced.FindAllStringSubmatch(string(text), -1) {
			t.Run(fmt.Sprintf("%s %d", filepath.Base(page), i+1), func(t *testing.T) {
				p.writeCaddyfile(inContext(whole, block[1]))
				_, err := p.caddy("adapt", "--config", p.configFile())
				require.NoError(t, err)
			})
		}
	}
}

// inContext puts a fragment where it belongs: parts of the svc block into the whole Caddyfile's, global options and
// sites stay as they are, directives go into a site. The first … of a block stands for the settings of the whole
// Caddyfile, the others for what doesn't matter.
func inContext(whole, block string) string {
	if body := regexp.MustCompile(`(?s)\n\tsvc \{\n(.*?\n)\t\}\n`).FindStringSubmatch(whole); strings.Contains(block, "…") {
		settings := body[1]
		for _, given := range []string{"base_url", "store"} {
			if strings.Contains(block, "\n\t\t"+given+" ") {
				settings = regexp.MustCompile(`(?m)^\t\t`+given+` .*\n`).ReplaceAllString(settings, "")
			}
		}
		block = strings.Replace(block, "…\n", settings, 1)
		block = strings.ReplaceAll(block, "…", "")
	}
	first := strings.TrimSpace(strings.SplitN(strings.TrimSpace(block), "\n", 2)[0])
	word := strings.Fields(first)[0]
	switch {
	case regexp.MustCompile(`(?m)^\tsvc \{`).MatchString(block):
		return block
	case slices.Contains([]string{"plan", "provider", "model", "platform", "payments", "payment_rate", "transfer", "worker", "timing", "limits", "memory", "store", "master_key", "base_url"}, word):
		if word == "store" || word == "master_key" || word == "base_url" || word == "timing" || word == "limits" {
			whole = regexp.MustCompile(`(?m)^\t\t`+word+` .*\n`).ReplaceAllString(whole, "")
		}
		return strings.Replace(whole, "\tsvc {\n", "\tsvc {\n"+block+"\n", 1)
	case strings.HasSuffix(first, "{") && (strings.ContainsAny(word, ".:/") || strings.HasPrefix(word, "(")):
		return whole + "\n" + block
	default:
		return whole + "\nhttp://fragment.example {\n" + block + "\n}\n"
	}
}
