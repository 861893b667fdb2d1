package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const defaultConfig = "./Caddyfile"

// commandFlags are the flags that all commands share.
type commandFlags struct {
	config, adapter string
	envFiles        []string
	json            bool
	// server is the address of another machine's operator's interface. Empty means this machine.
	server, serverKeyFile string
}

// configFlags adds the flags that name the configuration to a command and those below it.
func (f *commandFlags) configFlags(command *cobra.Command) {
	flags := command.PersistentFlags()
	flags.StringVarP(&f.config, "config", "c", defaultConfig, "configuration `file` of the server")
	flags.StringVarP(&f.adapter, "adapter", "a", "", "config adapter `name`, if it doesn't follow from the file's name")
	flags.StringSliceVar(&f.envFiles, "envfile", nil, "environment `file`(s) to load; variables that are set already keep their values")
}

// read loads the environment files and returns the whole configuration in Caddy's JSON form.
func (f *commandFlags) read() ([]byte, error) {
	for _, file := range f.envFiles {
		if err := loadEnvFile(file); err != nil {
			return nil, err
		}
	}
	return f.adapt()
}

// adapt returns the configuration file in Caddy's JSON form. The adapter's warnings are left to the server.
func (f *commandFlags) adapt() ([]byte, error) {
	text, err := os.ReadFile(f.config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no configuration %s; name it with --config", f.config)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	name, base := f.adapter, strings.ToLower(filepath.Base(f.config))
	if name == "" && !strings.HasSuffix(base, ".json") && (strings.HasPrefix(base, "caddyfile") || strings.HasSuffix(base, ".caddyfile")) {
		name = "caddyfile" // as `caddy run` does
	}
	if name == "" {
		if !json.Valid(text) {
			return nil, fmt.Errorf("%s is not valid JSON; if it is in another format, name its --adapter, e.g. caddyfile", f.config)
		}
		return text, nil
	}
	adapter := caddyconfig.GetAdapter(name)
	if adapter == nil {
		return nil, fmt.Errorf("there is no config adapter %q in this build", name)
	}
	adapted, _, err := adapter.Adapt(text, map[string]any{"filename": f.config})
	if err != nil {
		return nil, fmt.Errorf("adapting %s: %w", f.config, err)
	}
	return adapted, nil
}

// loadEnvFile sets the variables of an environment file, as `caddy run --envfile` does: lines of KEY=VALUE, an
// optional `export ` before, values optionally in quotes and then over several lines, `#` comments. A variable that is set
// already keeps its value. Errors name the line and never show a value.
func loadEnvFile(path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("reading the environment file: %w", err)
	}
	variables, err := parseEnvFile(string(text))
	if err != nil {
		return fmt.Errorf("environment file %s: %w", path, err)
	}
	for name, value := range variables {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("environment file %s: setting %s: %w", path, name, err)
		}
	}
	return nil
}

func parseEnvFile(text string) (map[string]string, error) {
	variables := map[string]string{}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name = strings.TrimPrefix(name, "export ")
		switch {
		case !found:
			return nil, fmt.Errorf("line %d is not KEY=VALUE", i+1)
		case name == "" || strings.ContainsAny(name, " \t"):
			return nil, fmt.Errorf("line %d: the name is empty or has a space", i+1)
		case strings.HasPrefix(value, " ") || strings.HasPrefix(value, "\t"):
			return nil, fmt.Errorf("line %d: there is a space before the value", i+1)
		}
		// Caddy ends a value at the first #, even inside quotes. The server must read the same value.
		if before, _, comment := strings.Cut(value, "#"); comment {
			value = strings.TrimRight(before, " \t")
		}
		if value != "" && (value[0] == '"' || value[0] == '\'') {
			value, i = quotedValue(value, lines, i)
		}
		variables[name] = value
	}
	return variables, nil
}

// quotedValue returns the value that begins with a quote on line i, and the line on which it ends.
func quotedValue(value string, lines []string, i int) (string, int) {
	quote := value[:1]
	ends := func(line string) bool { return strings.HasSuffix(line, quote) && !strings.HasSuffix(line, `\`+quote) }
	last := i
	if !ends(strings.TrimSpace(lines[i])) && (len(value) == 1 || !ends(value)) {
		for last+1 < len(lines) {
			last++
			if ends(lines[last]) {
				break
			}
		}
	}
	value = strings.Join(append([]string{value}, lines[i+1:last+1]...), "\n")
	value = strings.TrimSuffix(strings.TrimPrefix(value, quote), quote)
	return strings.ReplaceAll(value, `\`+quote, quote), last
}

// opening is whether a command may create and migrate the store.
type opening int

const (
	// openExisting refuses a store that isn't of this program's version, and a SQLite file that doesn't exist or is empty: most likely the
	// command runs in the wrong working directory.
	openExisting opening = iota
	openOrCreate
)

const closeWait = 5 * time.Second

// commandEnv is the environment of a run of a command: the configuration, the open store, and the actor for the audit log.
type commandEnv struct {
	configuration []byte // the whole, in Caddy's JSON form
	app           *caddymodule.App
	repl          *caddy.Replacer
	location      store.Location
	db            *store.DB
	actor         string
	args          []string
	stdin         io.Reader
	stdout        io.Writer
	stderr        io.Writer
	// remote runs operations elsewhere. Nil means here; otherwise there is no configuration and no store.
	remote *remote
}

// openEnv reads the configuration and opens the store as the server does. Only commands that may create a store migrate it.
func (f *commandFlags) openEnv(ctx context.Context, cmd *cobra.Command, args []string, opens opening) (*commandEnv, error) {
	if f.server != "" {
		elsewhere, err := f.remote()
		return &commandEnv{remote: elsewhere, args: args, stdin: cmd.InOrStdin(), stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}, err
	}
	adapted, err := f.read()
	if err != nil {
		return nil, err
	}
	app, err := caddymodule.ReadApp(adapted, f.config)
	if err != nil {
		return nil, err
	}
	e := &commandEnv{
		configuration: adapted, app: app, repl: caddy.NewReplacer(), actor: operator(),
		args: args, stdin: cmd.InOrStdin(), stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(),
	}
	if e.location, err = app.Store.Location(e.repl); err != nil {
		return nil, err
	}
	if opens == openExisting && e.location.Engine == store.SQLite {
		if info, err := os.Stat(e.location.DSN); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
			return nil, fmt.Errorf("there is no store %s yet; is this the server's working directory? `caddy svc migrate` makes a new one",
				e.location.DSN)
		}
	}
	log := slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if e.db, err = store.Open(ctx, e.location, store.Options{Kinds: caddymodule.StoreKinds(), Logger: log}); err != nil {
		return nil, fmt.Errorf("opening the store %s: %w", e.location.Redacted(), err)
	}
	if opens == openExisting {
		err = e.db.Check(ctx)
	} else {
		err = e.db.Migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("using the store %s: %w", e.location.Redacted(), err), e.close())
	}
	return e, nil
}

// close closes the store. It has a context of its own, because the command's may have been interrupted.
func (e *commandEnv) close() error {
	if e.remote != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := e.db.Close(ctx); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// operator returns the name of the system's user for the audit log.
func operator() string {
	if current, err := user.Current(); err == nil && current.Username != "" {
		return "cli:" + current.Username
	}
	return fmt.Sprintf("cli:uid %d", os.Getuid())
}

func (e *commandEnv) book() *billing.Book { return billing.NewBook(e.db) }

// ring resolves the master key, which most commands don't need.
func (e *commandEnv) ring() (*vault.Ring, error) {
	ring, err := e.app.Ring(e.repl)
	if err != nil {
		return nil, fmt.Errorf("svc.master_key: %w", err)
	}
	return ring, nil
}

// checkOrganization returns an error if there is no organization with an id.
func (e *commandEnv) checkOrganization(ctx context.Context, id string) error {
	if e.remote != nil {
		return nil // the server does
	}
	_, err := e.db.Organizations.ByID(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("there is no organization %q; `caddy svc org list` shows them", id)
	}
	return err
}

// readInput reads a file or, for "-", standard input. Errors name the input by the text in what. It reads up to one byte
// more than most, so that the caller can refuse longer input without reading all of it.
func (e *commandEnv) readInput(file, what string, most int64) ([]byte, error) {
	source := e.stdin
	if file == "-" {
		if terminal(source) {
			_, _ = fmt.Fprintf(e.stderr, "Enter the %s, then end with Ctrl-D:\n", what)
		}
	} else {
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("reading the %s: %w", what, err)
		}
		defer opened.Close() //nolint:errcheck // it was only read
		source = opened
	}
	text, err := io.ReadAll(io.LimitReader(source, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	return text, nil
}

// terminal reports whether source is a terminal, where a person types.
func terminal(source io.Reader) bool {
	file, ok := source.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// operatorKeyVariable has the operator's key for --server.
const operatorKeyVariable = "SVC_OPERATOR_KEY"

// overServer marks commands that --server can run.
const overServer = "over-server"

const (
	remoteWait   = time.Minute
	remoteAnswer = 64 << 20 // bytes
)

// remote runs operations at the operator's interface of another machine.
type remote struct {
	url, key, actor string
	client          http.Client
}

// serverFlags adds the flags of --server, which refuse commands about the machine.
func (f *commandFlags) serverFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.server, "server", "",
		"the `URL` of the operator's interface on another machine, where the command runs with the operator's key in "+operatorKeyVariable)
	flags.StringVar(&f.serverKeyFile, "server-key-file", "", "the `file` with the operator's key for --server")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if f.server != "" && cmd.Annotations[overServer] == "" {
			return fmt.Errorf("%s is not in the operator's interface; run it on the server's machine, without --server", cmd.CommandPath())
		}
		return nil
	}
}

// remote returns the interface that --server names.
func (f *commandFlags) remote() (*remote, error) {
	address, err := url.Parse(f.server)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" || strings.Trim(address.Path, "/") != "" {
		return nil, errors.New("--server must be a URL such as https://svc-admin.example.com or http://10.0.0.5:8081")
	}
	if caddymodule.PublicHTTP(f.server) {
		return nil, errors.New("--server: the operator's key would go to a public host without TLS; use https")
	}
	key := os.Getenv(operatorKeyVariable)
	if f.serverKeyFile != "" {
		text, err := os.ReadFile(f.serverKeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading --server-key-file: %w", err)
		}
		key = string(text)
	}
	if key = strings.TrimSpace(key); key == "" {
		return nil, fmt.Errorf("--server needs an operator's key in %s or --server-key-file; "+
			"`caddy svc operator key create` makes one on the machine", operatorKeyVariable)
	}
	return &remote{url: address.Scheme + "://" + address.Host, key: key, actor: operator(), client: http.Client{
		Timeout: remoteWait, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// run runs an operation and returns the body of its answer, nil if it has none.
func (r *remote) run(ctx context.Context, o api.Operation, orgID string, values endpoint.Values) (any, error) {
	route, ok := api.OperatorRoute(o)
	if !ok {
		return nil, errors.New("this is not in the operator's interface; run it on the server's machine, without --server")
	}
	path, query, members := strings.ReplaceAll(route.Path, "{orgId}", url.PathEscape(orgID)), url.Values{}, map[string]any{}
	for _, field := range o.Fields() {
		value, given := values[field.Name]
		switch {
		case !given:
		case field.In == "path":
			path = strings.ReplaceAll(path, "{"+field.Name+"}", url.PathEscape(fmt.Sprint(value)))
		case field.In == "body":
			members[field.Name] = value
		default:
			query.Set(field.Name, fmt.Sprint(value))
		}
	}
	body := io.Reader(http.NoBody)
	if route.Method != http.MethodGet && route.Method != http.MethodDelete {
		body = bytes.NewReader(handlers.Marshal(members))
	}
	request, err := http.NewRequestWithContext(ctx, route.Method, r.url+path+"?"+query.Encode(), body)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", r.url, err)
	}
	request.Header.Set("Authorization", "Bearer "+r.key)
	request.Header.Set("X-Actor", r.actor)
	client := r.client
	if slices.ContainsFunc(o.Fields(), func(f endpoint.Field) bool { return f.Name == "format" }) {
		client.Timeout = 0 // a file may be long
	}
	return r.send(&client, request)
}

func (r *remote) send(client *http.Client, request *http.Request) (any, error) {
	response, err := client.Do(request) //nolint:bodyclose // a file closes it when it was written
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", r.url, errors.Unwrap(err)) // without the path, which has ids
	}
	if kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";"); response.StatusCode == http.StatusOK && kind != "application/json" {
		return endpoint.File(func(w http.ResponseWriter, _ *http.Request) {
			defer response.Body.Close() //nolint:errcheck // it was only read
			if _, err := io.Copy(w, response.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
		}), nil
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(response.Body, remoteAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer of %s: %w", r.url, err)
	case response.StatusCode == http.StatusNoContent:
		return nil, nil
	case response.StatusCode < http.StatusMultipleChoices && json.Valid(text):
		return json.RawMessage(text), nil
	}
	var refused handlers.ErrorDocument
	if json.Unmarshal(text, &refused) != nil || refused.Error.Code == "" {
		return nil, fmt.Errorf("%s has no operator's interface (status %d): is it the address of svc_operator?", r.url, response.StatusCode)
	}
	return nil, &handlers.Error{Code: refused.Error.Code, Message: refused.Error.Message, Field: refused.Error.Field}
}
