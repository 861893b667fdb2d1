package command_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// person sits at a terminal with init.
type person struct {
	*exec.Cmd

	t        *testing.T
	terminal *os.File
	screen   bytes.Buffer
	stdout   bytes.Buffer
}

// sitDown starts init on a pseudo-terminal of its own, with its files in dir.
func sitDown(t *testing.T, dir string, args ...string) *person {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, master.Close()) })
	connection, err := master.SyscallConn()
	require.NoError(t, err)
	var number int
	require.NoError(t, connection.Control(func(fd uintptr) {
		require.NoError(t, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	}))
	require.NoError(t, err)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, slave.Close()) })
	require.NoError(t, master.SetReadDeadline(time.Now().Add(time.Minute)))

	p := &person{t: t, terminal: master, Cmd: exec.CommandContext(t.Context(), os.Args[0], append([]string{"svc", "init", "--config", filepath.Join(dir, "Caddyfile")}, args...)...)}
	p.Env = []string{"HOME=" + t.TempDir(), programVariable + "=1"}
	p.Stdin, p.Stdout, p.Stderr = slave, &p.stdout, slave
	require.NoError(t, p.Start())
	return p
}

// reads waits for a text on the screen, after what was read before.
func (p *person) reads(text string) {
	p.t.Helper()
	buffer := make([]byte, 1024)
	from := p.screen.Len()
	for !strings.Contains(p.screen.String()[from:], text) {
		n, err := p.terminal.Read(buffer)
		p.screen.Write(buffer[:n])
		require.NoError(p.t, err, "%q is not on the screen: %s", text, p.screen.String())
	}
}

func (p *person) types(keys string) {
	p.t.Helper()
	_, err := p.terminal.WriteString(keys)
	require.NoError(p.t, err)
}

// answers reads each question, types its answer and a return.
func (p *person) answers(dialogue ...[2]string) {
	p.t.Helper()
	for _, line := range dialogue {
		p.reads(line[0])
		p.types(line[1] + "\r")
	}
}

// requireUsable: the terminal shows what is typed, line by line, as before.
func (p *person) requireUsable() {
	p.t.Helper()
	connection, err := p.terminal.SyscallConn()
	require.NoError(p.t, err)
	var settings *unix.Termios
	require.NoError(p.t, connection.Control(func(fd uintptr) { settings, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) }))
	require.NoError(p.t, err)
	require.Equal(p.t, uint32(unix.ECHO|unix.ICANON|unix.ISIG), settings.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG))
}

// TestInitAsks guarantees that init asks on a terminal for everything that production needs, shows no key, and makes a gateway on
// PostgreSQL of the answers; and that another gateway doesn't get into its store, where it could open no secret.
func TestInitAsks(t *testing.T) {
	t.Parallel()
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sk-planted" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"choices":[{"finish_reason":"stop","message":{"content":"Hello to you there."}}],"usage":{"prompt_tokens":9,"completion_tokens":6}}`)
	}))
	t.Cleanup(vendor.Close)
	location := storetest.Location(t, store.Postgres)
	server, err := pgx.ParseConfig(location.DSN)
	require.NoError(t, err)
	address := url.URL{
		Scheme: "postgres", User: url.UserPassword(server.User, server.Password), Path: server.Database, RawQuery: "sslmode=disable",
		Host: net.JoinHostPort(server.Host, strconv.Itoa(int(server.Port))),
	}
	dialogue := func(organization string) [][2]string {
		return [][2]string{
			{"xai [echo]: ", "mistral"},
			{"API key of mistral (not shown): ", "sk-planted"},
			{"Domain (empty for http://localhost:8080): ", "ai.example.com"},
			{"URL of a PostgreSQL (empty for SQLite): ", address.String()},
			{"URL of a Redis (empty for none): ", ""},
			{"Name of the first organization [first]: ", organization},
			{"E-mail address of its first user (empty for none): ", "ops@example.com"},
		}
	}
	dir := t.TempDir()
	p := sitDown(t, dir, "--base-url", vendor.URL)
	p.answers(dialogue("Acme")...)
	require.NoError(t, p.Wait(), "%s", &p.screen)
	p.requireUsable()
	require.NotContains(t, p.screen.String()+p.stdout.String(), "sk-planted")
	require.Contains(t, p.stdout.String(), `it replied "Hello to you there."`)
	require.Contains(t, p.stdout.String(), "https://ai.example.com/dashboard/welcome")
	require.Contains(t, p.stdout.String(), "\n  "+os.Args[0]+" run --config "+filepath.Join(dir, "Caddyfile")+" --envfile "+filepath.Join(dir, "svc.env")+"\n")
	require.NoFileExists(t, filepath.Join(dir, "data", "svc.db"))
	for file, part := range map[string]string{
		"Caddyfile": "\nai.example.com {\n\tsvc_server\n}\n", "svc.env": "\nMISTRAL_API_KEY=sk-planted\nSVC_POSTGRES=" + address.String() + "\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		require.Contains(t, string(text), part)
	}

	c := newCommandLine(t)
	c.postgres = location
	c.write("dsn", location.DSN)
	c.write("Caddyfile", c.caddyfile())
	key, err := os.ReadFile(filepath.Join(dir, "data", "master.key"))
	require.NoError(t, err)
	c.write("master.key", string(key))
	require.Equal(t, true, c.json("doctor")["ok"])
	require.Equal(t, "Acme", c.json("org", "list")["data"].([]any)[0].(map[string]any)["name"])
	org := strOf(t, c.json("org", "list")["data"].([]any)[0].(map[string]any), "id")
	require.NotEqual(t, "10000000", c.json("wallet", "show", "--org", org)["balanceMicros"], "the call was charged")
	require.NoError(t, c.run(vendorKey, "provider-key", "set", "--org", org, "--provider", "openai").err)

	elsewhere := t.TempDir()
	p = sitDown(t, elsewhere, "--base-url", vendor.URL)
	p.answers(dialogue("Other")...)
	p.reads("belongs to another gateway")
	require.Error(t, p.Wait())
	require.NoFileExists(t, filepath.Join(elsewhere, "Caddyfile"))
	require.Len(t, c.json("org", "list")["data"], 1)
}

// TestInitAsksAgain guarantees that an answer which can't be right is asked for again, with the reason, and that no earlier answer is lost.
func TestInitAsksAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := sitDown(t, dir)
	p.answers([][2]string{
		{"[echo]: ", "acme"},
		{`there is no vendor "acme"`, "echo"},
		{"Domain", "https://ai.example.com"},
		{"is not a host name such as ai.example.com", "ai.example.com"},
		{"PostgreSQL", "localhost"},
		{"doesn't begin with postgres://", ""},
		{"Redis", "localhost"},
		{"doesn't begin with redis://", ""},
		{"first organization [first]: ", ""},
		{"E-mail", "ops"},
		{"is not an e-mail address such as name@example.com", "ops@example.com"},
	}...)
	require.NoError(t, p.Wait(), "%s", &p.screen)
	require.Contains(t, p.stdout.String(), "https://ai.example.com/v1/chat/completions")
}

// TestInitIsLeft guarantees that Ctrl-C or the end of the input at any question ends init before it writes anything, and leaves
// the terminal as it was.
func TestInitIsLeft(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"\x03", "\x04"} {
		for _, dialogue := range [][][2]string{{{"[echo]: "}}, {{"[echo]: ", "openai"}, {"(not shown): "}}, {{"[echo]: ", ""}, {"Domain"}}} {
			dir := t.TempDir()
			p := sitDown(t, dir)
			last := len(dialogue) - 1
			p.answers(dialogue[:last]...)
			p.reads(dialogue[last][0])
			p.types(key)
			p.reads("nothing was written")
			require.Error(t, p.Wait())
			p.requireUsable()
			require.Empty(t, p.stdout.String())
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, files)
		}
	}
}
