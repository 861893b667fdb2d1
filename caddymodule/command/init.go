package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// firstCredits are the credits of the first organization, in micros.
	firstCredits = 10_000_000
	// defaultPort is the port of a service without a domain. The private listener has the next port, and the worker's probe the
	// port after that.
	defaultPort = 8080
	lastPort    = 65533
)

// initOptions are the answers to init's questions, from flags, variables or a terminal.
type initOptions struct {
	vendor, domain, postgres, redis, organization, email string
	// baseURL, modelName and keyFile replace the values of the vendor's file and variable. Empty keeps the vendor's own value.
	baseURL, modelName, keyFile string
	// port is the port of a service without a domain. Zero means the default.
	port uint16
}

// initAnswer is what init made. The key and the link are shown only once.
type initAnswer struct {
	Files         []string `json:"files"`
	OrgID         string   `json:"orgId"`
	BaseURL       string   `json:"baseUrl"`
	Key           string   `json:"key"`
	Link          string   `json:"link,omitempty"`
	Model         string   `json:"model"`
	Reply         string   `json:"reply"`
	ChargedMicros string   `json:"chargedMicros"`

	config, envFile, email string
	// note names the figures of the Caddyfile that the operator should check. Empty means none.
	note   string
	called bool
}

// flags returns the flags with which commands find the new gateway.
func (a *initAnswer) flags() string {
	return fmt.Sprintf("--config %s --envfile %s", a.config, a.envFile)
}

func (a *initAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "Written: %s\n", strings.Join(a.Files, ", "))
	fmt.Fprintf(w, "Made the organization %s with %s micros of credits, and its first API key:\n\n  %s\n\n", a.OrgID,
		billing.FormatMicros(firstCredits), a.Key)
	if a.called {
		fmt.Fprintf(w, "Tried %s: it replied %q, which cost %s micros.\n\n", a.Model, a.Reply, a.ChargedMicros)
	}
	if a.note != "" {
		fmt.Fprintf(w, "%s\n\n", a.note)
	}
	fmt.Fprintf(w, "Keep the key now: it is not stored. Keep master.key with your backups: secrets in the store are sealed with it.\n\n")
	fmt.Fprintf(w, "Next: run the server, and beside it the worker if customers write on messaging platforms:\n\n")
	flags := a.flags()
	caddy := os.Args[0] // as it was typed: another caddy on the path lacks our modules
	fmt.Fprintf(w, "  %s run %s\n  %s svc-worker %s\n\n", caddy, flags, caddy, flags)
	fmt.Fprintf(w, "Ask the model:\n\n  curl %s/v1/chat/completions -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d '%s'\n\n",
		a.BaseURL, a.Key, `{"model":"`+a.Model+`","messages":[{"role":"user","content":"`+trialQuestion+`"}]}`)
	if a.Link != "" {
		fmt.Fprintf(w, "Set the password of %s in the dashboard, with this link, once:\n\n  %s\n\n", a.email, a.Link)
	}
	fmt.Fprintf(w, "See how it goes: %s svc status %s\n", caddy, flags)
}

func (f *commandFlags) initCommand() *cobra.Command {
	wanted := initOptions{postgres: os.Getenv("SVC_POSTGRES"), redis: os.Getenv("SVC_REDIS")}
	command := &cobra.Command{
		Use:   "init [flags]",
		Short: "Sets up a new gateway: Caddyfile, secrets, the first organization with a key, and a first call",
		Long: `Sets up a new gateway in the folder of --config: writes a Caddyfile, svc.env with the secrets and data/master.key, makes the
first organization with credits and an API key, and a user if --email is given, tries one call of the vendor's model, and
prints what to do next. It overwrites nothing: when one of the files exists, it ends before it changes anything.

On a terminal it asks for what no flag gives. The vendor's key is read from --key-file or the vendor's own variable, such as
OPENAI_API_KEY, or asked for without showing it. Addresses with a password are best given as the variables SVC_POSTGRES and SVC_REDIS: other
users of the machine see command lines.`,
		Example: `  $ caddy svc init
  $ OPENAI_API_KEY=… caddy svc init --vendor openai --domain ai.example.com --email ops@example.com
  $ caddy svc init --vendor ollama --base-url http://10.0.0.5:11434/v1 --model qwen3:8b --port 9000`,
		Args: noArguments,
	}
	flags := command.Flags()
	flags.StringVar(&wanted.vendor, "vendor", "",
		"the `vendor`: "+strings.Join(vendorNames(), ", ")+" (default: one whose variable is set, or echo)")
	flags.StringVar(&wanted.baseURL, "base-url", "", "the `URL` of the vendor's interface (default: the vendor's own)")
	flags.StringVar(&wanted.modelName, "model", "", "the vendor's `name` of the model (default: one of the vendor's)")
	flags.StringVar(&wanted.keyFile, "key-file", "", "the `file` with the vendor's key (default: the vendor's variable)")
	flags.Uint16Var(&wanted.port, "port", 0, "the `port` of a service without a domain (default: 8080)")
	flags.StringVar(&wanted.domain, "domain", "", "the `domain` of the service, whose certificate Caddy gets (default: http://localhost:8080)")
	flags.StringVar(&wanted.postgres, "postgres", wanted.postgres, "the `URL` of a PostgreSQL (default: SVC_POSTGRES, or SQLite)")
	flags.StringVar(&wanted.redis, "redis", wanted.redis, "the `URL` of a Redis for the rate limits of several nodes (default: SVC_REDIS, or none)")
	flags.StringVar(&wanted.organization, "organization", "", "the first organization's `name` (default: first)")
	flags.StringVar(&wanted.email, "email", "", "the e-mail `address` of the organization's first user, and for certificates")
	// The text of the defaults must not show a password.
	flags.Lookup("postgres").DefValue, flags.Lookup("redis").DefValue = "", ""
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		setup, err := f.plan(cmd, wanted)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop)
		made, err := setup.run(ctx, cmd)
		if made == nil {
			return err
		}
		return errors.Join(f.write(cmd.OutOrStdout(), made), err)
	}
	return command
}

// vendorNames are the vendors of init, sorted.
func vendorNames() []string {
	files, err := fs.Glob(vendorFiles, "vendors/*.caddyfile")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".caddyfile")
	}
	return files
}

// setup is what init is going to write and make.
type setup struct {
	initOptions

	flags *commandFlags
	// dir is the absolute folder of the Caddyfile.
	dir string
	// block is the vendor's provider and model, as the Caddyfile has them. model is the public id of that model.
	block, model string
	// note is [initAnswer.note].
	note string
	// secrets are the variables of the environment file, with their names, in order.
	secrets [][2]string
}

// plan prompts for each value that no flag gives, and checks everything that can be checked before a file is written.
func (f *commandFlags) plan(cmd *cobra.Command, wanted initOptions) (*setup, error) {
	dir, err := filepath.Abs(filepath.Dir(f.config))
	if err != nil {
		return nil, fmt.Errorf("finding the folder of %s: %w", f.config, err)
	}
	if strings.ContainsFunc(dir, func(r rune) bool { return r < ' ' || strings.ContainsRune("\"`{}", r) }) {
		return nil, fmt.Errorf("the folder %q can't be named in a Caddyfile; choose another for --config", dir)
	}
	s := &setup{flags: f, initOptions: wanted, dir: dir}
	if taken := s.taken(); len(taken) > 0 {
		return nil, fmt.Errorf("%s exists already, and init overwrites nothing; name another folder with --config, or remove it",
			strings.Join(taken, ", "))
	}
	switch {
	case s.domain != "" && s.port != 0:
		return nil, errors.New("--domain and --port exclude each other: a domain is served on ports 443 and 80")
	case s.port > lastPort:
		return nil, fmt.Errorf("--port must be at most %d: the two ports after it are for the operator", lastPort)
	}
	q, done, err := askOn(cmd)
	if err != nil {
		return nil, err
	}
	defer done()
	names := vendorNames()
	half := len(names) / 2 // two lines are shorter than a terminal's 80 columns
	s.vendor = q.ask("Vendor: "+strings.Join(names[:half], ", ")+",\n  "+strings.Join(names[half:], ", "), s.vendor, defaultVendor(), checkVendor)
	if q.failed != nil {
		return nil, q.failed
	}
	if err := checkURL("http", "https")(s.baseURL); err != nil {
		return nil, fmt.Errorf("--base-url: %w", err)
	}
	variable, err := s.readVendor()
	if err != nil {
		return nil, err
	}
	if err := s.readKey(q, variable); err != nil {
		return nil, err
	}
	if s.port == 0 {
		s.domain = q.ask("Domain (empty for http://localhost:8080)", s.domain, "", checkDomain)
	}
	s.postgres = q.ask("URL of a PostgreSQL (empty for SQLite)", s.postgres, "", checkURL("postgres", "postgresql"))
	s.redis = q.ask("URL of a Redis (empty for none)", s.redis, "", checkURL("redis", "rediss"))
	s.organization = q.ask("Name of the first organization", s.organization, "first", checkOrganization)
	s.email = q.ask("E-mail address of its first user (empty for none)", s.email, "", checkEmail)
	if s.postgres != "" {
		s.secrets = append(s.secrets, [2]string{"SVC_POSTGRES", s.postgres})
	}
	if s.redis != "" {
		s.secrets = append(s.secrets, [2]string{"SVC_REDIS", s.redis})
	}
	return s, q.failed
}

// readKey adds the vendor's key to the secrets, from its file, its variable or the terminal.
func (s *setup) readKey(q *questions, variable string) error {
	switch {
	case variable == "" && s.keyFile != "":
		return fmt.Errorf("%s takes no key; leave --key-file out", s.vendor)
	case variable == "":
		return nil
	}
	key := os.Getenv(variable)
	if s.keyFile != "" {
		text, err := os.ReadFile(s.keyFile)
		if err != nil {
			return fmt.Errorf("reading --key-file: %w", err)
		}
		key = strings.TrimSpace(string(text))
	}
	if key == "" && q.terminal == nil {
		return fmt.Errorf("the key of %s is missing: set %s, name a --key-file, or choose another --vendor", s.vendor, variable)
	}
	key = q.askSecret("API key of "+s.vendor, key, checkKey)
	s.secrets = append(s.secrets, [2]string{variable, key})
	return q.failed
}

// The files that init writes; a SQLite store writes the last.
func (s *setup) config() string    { return filepath.Join(s.dir, filepath.Base(s.flags.config)) }
func (s *setup) envFile() string   { return filepath.Join(s.dir, "svc.env") }
func (s *setup) masterKey() string { return filepath.Join(s.dir, "data", "master.key") }
func (s *setup) database() string  { return filepath.Join(s.dir, "data", "svc.db") }

// taken are the files that init would write and that exist, and a database of another gateway.
func (s *setup) taken() (taken []string) {
	for _, path := range []string{s.config(), s.envFile(), s.masterKey(), s.database()} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			taken = append(taken, path)
		}
	}
	return taken
}

// run writes the files and makes everything. The answer is nil if nothing was made; then no file is left, either.
func (s *setup) run(ctx context.Context, cmd *cobra.Command) (*initAnswer, error) {
	before := s.databaseFiles()
	files, err := s.write()
	if err != nil {
		return nil, errors.Join(err, remove(files))
	}
	s.flags.config, s.flags.adapter, s.flags.envFiles = s.config(), "caddyfile", []string{s.envFile()}
	for _, secret := range s.secrets { // an empty variable would count as set
		if err := os.Setenv(secret[0], secret[1]); err != nil {
			return nil, errors.Join(fmt.Errorf("setting %s: %w", secret[0], err), remove(files))
		}
	}
	undo := func() error {
		made := slices.DeleteFunc(s.databaseFiles(), func(path string) bool { return slices.Contains(before, path) })
		return remove(append(files, made...))
	}
	e, err := s.flags.openEnv(ctx, cmd, nil, openOrCreate)
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	made, err := s.make(ctx, e)
	if closeErr := e.close(); closeErr != nil {
		err = errors.Join(err, closeErr)
	}
	if made == nil {
		return nil, errors.Join(err, undo())
	}
	made.Files = files
	if err != nil {
		return made, err
	}
	return made, s.try(ctx, made)
}

// databaseFiles are the SQLite store's files, and others with such names, such as a database that was put aside.
func (s *setup) databaseFiles() []string {
	dir, name := filepath.Split(s.database())
	found, _ := fs.Glob(os.DirFS(dir), name+"*") // it fails for a wrong pattern only
	return store.Column(found, func(name string) string { return filepath.Join(dir, name) })
}

// remove removes the files that a failed run wrote.
func remove(files []string) error {
	var all error
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, fmt.Errorf("removing what was written: %w", err))
		}
	}
	return all
}

// make makes the organization, its credits, key and user in a new store. The answer is nil if there is no organization.
func (s *setup) make(ctx context.Context, e *commandEnv) (*initAnswer, error) {
	if fault := e.masterKeyFault(ctx); fault != "" {
		return nil, fmt.Errorf("the store %s belongs to another gateway, with a master key of its own (%s); choose another store",
			e.location.Redacted(), fault)
	}
	organization, err := identity.CreateOrganization(ctx, e.db, e.actor, s.organization, e.app.DefaultPlan(), "")
	if errors.Is(err, store.ErrConflict) {
		return nil, fmt.Errorf("the store has an organization with the name %q; choose another --organization", s.organization)
	}
	if err != nil {
		return nil, err
	}
	made := &initAnswer{
		OrgID: organization.ID, BaseURL: e.app.BaseURL, Model: s.model, config: s.config(), envFile: s.envFile(), email: s.email,
		note: s.note,
	}
	wallet := billing.WalletID{OrgID: organization.ID, Env: store.Live}
	if _, err := e.book().Credit(ctx, e.actor, wallet, firstCredits, "init"); err != nil {
		return made, err
	}
	key, err := identity.CreateAPIKey(ctx, e.db, e.actor, identity.KeyRequest{OrgID: organization.ID, Env: store.Live, Name: "first"})
	if err != nil {
		return made, err
	}
	made.Key = key.Raw
	if s.email == "" {
		return made, nil
	}
	_, link, err := identity.NewUsers(e.db).Invite(ctx, identity.CommandLine(e.actor).Authority(), organization.ID, s.email, identity.Owner)
	if err != nil {
		return made, fmt.Errorf("inviting %s: %w", s.email, err)
	}
	made.Link = handlers.WelcomeURL(e.app.BaseURL, link.Token)
	return made, nil
}

// try makes one call for the new organization. After an error the files and the organization stay.
func (s *setup) try(ctx context.Context, made *initAnswer) error {
	tried, err := s.flags.try(ctx, made.OrgID, s.model)
	if err != nil {
		return fmt.Errorf("everything is made, but %w\nTry again with: %s svc try %s --org %s %s", err, os.Args[0], s.model, made.OrgID, made.flags())
	}
	made.Reply, made.ChargedMicros, made.called = tried.Reply, tried.ChargedMicros, true
	return nil
}

// vendorFiles has a file for each vendor of init, and of `make run`: a provider and its model for the svc block.
//
//go:embed vendors/*.caddyfile
var vendorFiles embed.FS

// longestSocket is the longest path of a Unix socket that every system accepts.
const longestSocket = 100

var caddyfileOfInit = template.Must(template.New("Caddyfile").Parse(`{
	# The admin interface can read and replace the configuration: a socket that only this user can open.
	admin {{.Admin}}
	persist_config off
	# How long a stop or a reload waits for running answers.
	grace_period 60s
	log {
		# No headers and no query, in which clients send keys, and no part of a path that is as long as a key.
		format filter {
			request>headers delete
			resp_headers delete
			request>uri regexp "[\w.~-]{41,}" REDACTED
			request>uri regexp "(?s)^([\w./~-]{0,200}).*" $1
		}
	}
{{- if .Email}}
	# For the certificate authority.
	email {{.Email}}
{{- end}}

	svc {
		# Where clients reach the service from outside.
		base_url {{.BaseURL}}
		store {{.Store}}
{{- if .Redis}}
		redis {env.SVC_REDIS}
{{- end}}
		master_key "{file.{{.MasterKey}}}"

		plan standard {
			requests_per_minute 60
		}

		worker {
			# The worker's probes and metrics.
			listen {{.Probe}}
		}

{{.Vendor}}
	}
}

{{.Site}} {
	svc_server
}

# For the operator only. An address like http://127.0.0.1:8081 would listen on all interfaces; bind doesn't.
http://:{{.Private}} {
	bind 127.0.0.1
	handle /metrics {
		metrics
	}
	handle /health/* {
		svc_health
	}
	# The interface of the operator. caddy svc operator key create makes a key.
	handle /operator* {
		svc_operator
	}
	handle {
		svc_error
	}
	handle_errors {
		svc_error
	}
}
`))

// caddyfile returns the text of the Caddyfile.
func (s *setup) caddyfile() (string, error) {
	port := int(cmp.Or(s.port, defaultPort))
	values := struct{ Admin, Email, BaseURL, Store, Redis, MasterKey, Vendor, Site, Private, Probe string }{
		Admin: "off", BaseURL: fmt.Sprintf("http://localhost:%d", port), Store: `sqlite "` + s.database() + `"`, Redis: s.redis,
		MasterKey: s.masterKey(), Site: fmt.Sprintf(":%d", port), Private: strconv.Itoa(port + 1),
		Probe: fmt.Sprintf("127.0.0.1:%d", port+2), Vendor: "\t\t" + strings.Join(slices.Collect(strings.Lines(s.block)), "\t\t"),
	}
	if socket := filepath.Join(s.dir, "data", "admin.sock"); len(socket) <= longestSocket {
		values.Admin = `"unix/` + socket + `"`
	}
	if s.domain != "" {
		values.BaseURL, values.Site, values.Email = "https://"+s.domain, s.domain, s.email
	}
	if s.postgres != "" {
		values.Store = "postgres {env.SVC_POSTGRES}"
	}
	var text strings.Builder
	if err := caddyfileOfInit.Execute(&text, values); err != nil {
		return "", fmt.Errorf("making the Caddyfile: %w", err)
	}
	return text.String(), nil
}

// write writes the files. It returns the written files, also with an error. An existing file is an error.
func (s *setup) write() (written []string, err error) {
	caddyfile, err := s.caddyfile()
	if err != nil {
		return nil, err
	}
	var env strings.Builder
	env.WriteString("# The secrets of the Caddyfile beside it, for --envfile. Keep this file to yourself.\n")
	for _, secret := range s.secrets {
		env.WriteString(secret[0] + "=" + secret[1] + "\n")
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	if err := os.MkdirAll(filepath.Join(s.dir, "data"), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the data: %w", err)
	}
	for _, file := range []struct {
		path, text string
		mode       os.FileMode
	}{
		{s.config(), caddyfile, 0o644},
		{s.envFile(), env.String(), 0o600},
		{s.masterKey(), base64.StdEncoding.EncodeToString(key) + "\n", 0o600},
	} {
		err := createFile(file.path, "writing", file.mode, func(w io.Writer) error {
			_, err := io.WriteString(w, file.text)
			return err
		})
		if err != nil {
			return written, err
		}
		written = append(written, file.path)
	}
	return written, nil
}
