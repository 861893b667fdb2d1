package tests

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// newcomer is a product without a Caddyfile or an environment, on SQLite: what a newcomer has after the build.
func newcomer(t *testing.T, up *upstream) *product {
	t.Helper()
	p := prepareProduct(t, deploy(t, store.SQLite, up))
	p.env = nil
	require.NoError(t, os.Remove(p.configFile()))
	var err error
	p.location, err = store.ParseLocation(store.SQLite, filepath.Join(p.Dir, "data", "svc.db"))
	require.NoError(t, err)
	return p
}

// onPortsOf gives a Caddyfile for localhost:8080 the ports of p.
func onPortsOf(p *product, caddyfile string) string {
	return strings.NewReplacer(
		"localhost:8080", fmt.Sprintf("localhost:%d", p.Port), "\n:8080 {", fmt.Sprintf("\n:%d {\n\tbind 127.0.0.1", p.Port),
		"http://:8081", fmt.Sprintf("http://:%d", p.SidePort), "listen 127.0.0.1:8082", "listen unix/"+filepath.Join(p.Dir, "worker.sock"),
	).Replace(caddyfile)
}

// awaitModels waits until a key is accepted, and returns the models.
func (p *product) awaitModels(as *client) (models string) {
	p.t.Helper()
	p.await("the models to be listed", startWait, func() bool {
		response, err := p.clear.Get(p.BaseURL + "/v1/models") //nolint:noctx // it is local
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusUnauthorized
	})
	return string(as.get(p.t, "/v1/models").Body)
}

// TestBuiltFromOneModuleGraph guarantees that ./xcaddy.sh builds the product from this module's own go.mod: a module around it
// would be tidied, which downloads what the tests of all dependencies need, and would have our packages compiled once more.
func TestBuiltFromOneModuleGraph(t *testing.T) {
	t.Parallel()
	worker, err := workerBinary()
	require.NoError(t, err)
	for _, program := range []string{caddyBinary, worker} {
		built, err := buildinfo.ReadFile(program)
		require.NoError(t, err)
		require.Equal(t, "github.com/caddy-svc/caddy-svc", built.Main.Path)
	}
}

// TestInitServes guarantees that what `caddy svc init` prints can be done as it stands: server and worker run with the commands
// that it names, its key pays for a call, and `caddy svc status` finds nothing wrong. Only the port is changed.
func TestInitServes(t *testing.T) {
	t.Parallel()
	p := newcomer(t, startUpstream(t))
	printed, err := p.caddy("svc", "init", "--config", p.configFile(), "--vendor", "echo", "--email", "lan@example.com")
	require.NoError(t, err)
	command := func(word string) []string {
		line := regexp.MustCompile(`(?m)^\s*(?:See how it goes: )?` + regexp.QuoteMeta(p.program()+" "+word) + ` .*$`).FindString(printed)
		require.NotEmpty(t, line, "%s in: %s", word, printed)
		return strings.Fields(line[strings.Index(line, p.program())+len(p.program()):])
	}
	caddyfile, err := os.ReadFile(p.configFile())
	require.NoError(t, err)
	p.writeCaddyfile(onPortsOf(p, string(caddyfile)))
	masterKey, err := os.ReadFile(filepath.Join(p.Dir, "data", "master.key"))
	require.NoError(t, err)
	p.masterKey = strings.TrimSpace(string(masterKey))

	p.run(p.Dir, p.environment(), p.stop, p.program(), command("run")...)
	key := regexp.MustCompile(`ck_live_\w+`).FindString(printed)
	as := p.withKey(key)
	require.Contains(t, p.awaitModels(as), `"echo/echo-1"`)
	done := requireAnswered(t, as.chat(t, prompt("echo/echo-1", "Hello!", false)), "echo/echo-1", false)
	require.Positive(t, done.charged(t))
	worker := p.prepareWorker()
	worker.run(p.Dir, p.environment(), worker.stop, p.program(), command("svc-worker")...)
	worker.awaitLog()
	status, err := p.caddy(command("svc status")...)
	require.NoError(t, err)
	require.Contains(t, status, "CONDITIONS\n  none")
	page := p.withKey("").get(t, "/dashboard/welcome")
	require.Equal(t, http.StatusOK, page.Status, "%s", page.Body)
}

// TestREADMECaddyfileServes guarantees that the README's Caddyfile for a vendor works as it stands, with the commands below it:
// only the addresses of the site and of the vendor are changed.
func TestREADMECaddyfileServes(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := newcomer(t, up)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	caddyfile := fenced.FindStringSubmatch(string(readme))[1]
	changed := strings.NewReplacer(
		"https://ai.example.com", p.BaseURL, "\nai.example.com\n", "\n"+strings.Replace(p.BaseURL, "127.0.0.1", "", 1)+"\n",
		"\t\t\tpreset openai\n", "\t\t\tpreset openai\n\t\t\tbase_url "+up.URL+"/v1\n", "\n\tsvc {", "\n\tadmin off\n\tpersist_config off\n\tsvc {",
	).Replace(caddyfile)
	require.NotEqual(t, caddyfile, changed)
	vendor, err := os.ReadFile("../caddymodule/command/vendors/openai.caddyfile")
	require.NoError(t, err)
	_, block, _ := strings.Cut(caddyfile, "\t\tprovider openai {\n")
	block, _, _ = strings.Cut(block, "\n\t}\n")
	require.Contains(t, block, "model openai/gpt-6-luna")
	for line := range strings.Lines(block) {
		require.Contains(t, string(vendor), strings.TrimSpace(line), "init and README have one provider and model")
	}
	for _, named := range regexp.MustCompile(`openai/gpt[\w.-]*`).FindAllString(string(readme), -1) {
		require.Equal(t, "openai/gpt-6-luna", named)
	}
	p.writeCaddyfile(changed)
	require.NoError(t, os.Mkdir(filepath.Join(p.Dir, "data"), 0o700))
	p.env = []string{"SVC_MASTER_KEY=" + p.masterKey, "OPENAI_API_KEY=" + operatorKey}
	p.svc(t, "migrate")
	org := p.svc(t, "org", "create", "--name", "acme")["id"].(string)
	p.svc(t, "wallet", "credit", "--org", org, "--micros", "5000000", "--ref", "invoice-1")
	key := p.svc(t, "key", "create", "--org", org, "--name", "website")["key"].(string)
	p.start()
	as := p.withKey(key)
	const model = "openai/gpt-6-luna" // that of init
	require.Contains(t, p.awaitModels(as), `"`+model+`"`)
	script := up.script(replying)
	require.Positive(t, requireAnswered(t, as.chat(t, prompt(model, script.Mark, true)), model, true).charged(t))
	require.Equal(t, "Bearer "+operatorKey, script.only(t).Header.Get("Authorization"))
}

// TestRunServesVendors guarantees that `make run` serves the models of each vendor whose key is in the environment beside the
// example's, and without a key only those.
func TestRunServesVendors(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../caddymodule/command/vendors/*.caddyfile")
	require.NoError(t, err)
	variables, models := []string{}, []string{`"echo/echo-1"`}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if variable := regexp.MustCompile(`\{env\.(\w+)\}`).FindSubmatch(text); variable != nil {
			variables = append(variables, string(variable[1])+"=sk-planted")
			models = append(models, `"`+string(regexp.MustCompile(`(?m)^model (\S+)`).FindSubmatch(text)[1])+`"`)
		}
	}
	require.Len(t, variables, 8)
	p := newcomer(t, startUpstream(t))
	written := func(environment ...string) string {
		cmd := exec.CommandContext(t.Context(), "../scripts/vendors.sh", "../Caddyfile.example")
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environment...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		require.NoError(t, err, "%s", &stderr)
		return string(text)
	}
	example, err := os.ReadFile("../Caddyfile.example")
	require.NoError(t, err)
	require.Equal(t, string(example), written())
	require.Equal(t, string(example), written("OPENAI_API_KEY="), "an empty key is none")

	caddyfile := written(variables...)
	require.NotContains(t, caddyfile, "sk-planted")
	p.env = variables
	p.writeCaddyfile(onPortsOf(p, caddyfile))
	require.NoError(t, os.Mkdir(filepath.Join(p.Dir, "data"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(p.Dir, "data", "master.key"), []byte(p.masterKey+"\n"), 0o600))
	p.svc(t, "migrate")
	org := p.svc(t, "org", "create", "--name", "demo")["id"].(string)
	key := p.svc(t, "key", "create", "--org", org)["key"].(string)
	p.start()
	listed := p.awaitModels(p.withKey(key))
	for _, model := range models {
		require.Contains(t, listed, model)
	}
}
