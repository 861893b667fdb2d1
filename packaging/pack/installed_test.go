package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait for a process; the race detector makes programs slow.
const patience = 90 * time.Second

// installation is a root file system with the product, and how its processes run there: as root's child in that root and with
// another user's rights; otherwise with the paths of that root.
type installation struct {
	t    *testing.T
	root string
	// program is the product's path in the root, dir the folder that its processes start in, user theirs.
	program, dir string
	user         int
	env          []string
	// port and probe are the ports of the service and of its probes, worker that of the worker's.
	port, probe, worker string
}

// prepare gives the Caddyfile free ports and a master key, and a program that isn't static the libraries of this machine.
func (i *installation) prepare(masterKey []byte) {
	i.t.Helper()
	i.port, i.probe, i.worker = freePort(i.t), freePort(i.t), freePort(i.t)
	path := filepath.Join(i.root, "etc/caddy-svc/Caddyfile")
	text, err := os.ReadFile(path)
	require.NoError(i.t, err)
	changed := strings.NewReplacer("\n:8080 {", "\n:"+i.port+" {\n\tbind 127.0.0.1", "8080", i.port, "8081", i.probe, "8082", i.worker).Replace(string(text))
	require.NoError(i.t, os.WriteFile(path, []byte(changed), 0o644)) //nolint:gosec // it has no secret

	secrets := filepath.Join(i.root, "run/secrets")
	require.NoError(i.t, os.MkdirAll(secrets, 0o755))
	require.NoError(i.t, os.WriteFile(filepath.Join(secrets, "master.key"), masterKey, 0o600))
	for _, owned := range []string{filepath.Join(secrets, "master.key"), i.root + i.dir, i.root + i.dir + "/data"} {
		if os.Getuid() == 0 {
			require.NoError(i.t, os.Chown(owned, i.user, i.user))
		}
	}
	if os.Getuid() == 0 {
		i.lendLibraries()
	}
}

// lendLibraries copies the shared libraries of the program into its root. A release's program has none; one with the race
// detector has.
func (i *installation) lendLibraries() {
	i.t.Helper()
	output, _ := exec.CommandContext(i.t.Context(), "ldd", i.root+i.program).CombinedOutput() // it fails if there are none
	for _, library := range regexp.MustCompile(`(/\S+) \(0x`).FindAllSubmatch(output, -1) {
		text, err := os.ReadFile(string(library[1]))
		require.NoError(i.t, err)
		target := filepath.Join(i.root, string(library[1]))
		require.NoError(i.t, os.MkdirAll(filepath.Dir(target), 0o755))
		require.NoError(i.t, os.WriteFile(target, text, 0o755)) //nolint:gosec // it is a program
	}
}

// command is a command in the root. Its first argument is a path there.
func (i *installation) command(args ...string) *exec.Cmd {
	env := i.env
	attributes := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	dir := i.dir
	if os.Getuid() == 0 {
		attributes.Chroot = i.root
		attributes.Credential = &syscall.Credential{Uid: uint32(i.user), Gid: uint32(i.user)} //nolint:gosec // it is no negative number
	} else {
		dir = i.root + dir
		within := func(path string) string {
			if strings.HasPrefix(path, "/") {
				return i.root + path
			}
			return path
		}
		args, env = append([]string(nil), args...), append([]string(nil), env...)
		for n := range args {
			args[n] = within(args[n])
		}
		for n, setting := range env {
			name, value, _ := strings.Cut(setting, "=")
			env[n] = name + "=" + within(value)
		}
	}
	cmd := exec.CommandContext(i.t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, env, attributes
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, patience
	return cmd
}

// svc runs a command of `caddy svc` in the root and returns the object that it prints.
func (i *installation) svc(args ...string) map[string]any {
	i.t.Helper()
	cmd := i.command(append([]string{i.program, "svc"}, append(args, "--json", "--config", "/etc/caddy-svc/Caddyfile")...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(i.t, err, "%v: %s", args, &errs)
	var object map[string]any
	require.NoError(i.t, json.Unmarshal(out, &object), "%s", out)
	return object
}

// start starts a process that ends in order with the returned function.
func (i *installation) start(args ...string) (stop func()) {
	i.t.Helper()
	cmd := i.command(args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(i.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := false
	stop = func() {
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		require.NoError(i.t, <-ended, "%v ended: %s", args, &log)
		require.NotContains(i.t, log.String(), "DATA RACE")
	}
	i.t.Cleanup(func() { // after a failure
		if !stopped {
			_ = cmd.Process.Kill()
			i.t.Logf("%v ended, %v: %s", args, <-ended, &log)
		}
	})
	return stop
}

// awaitHealthy runs a health check until it succeeds.
func (i *installation) awaitHealthy(check ...string) {
	i.t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(100 * time.Millisecond) {
		output, err := i.command(check...).CombinedOutput()
		if err == nil {
			return
		}
		require.True(i.t, time.Now().Before(deadline), "%v: %v: %s", check, err, output)
	}
}

// requireServes runs the server and the worker, has a call answered and charged, and ends both in order.
func (i *installation) requireServes(server, worker, check []string) {
	i.t.Helper()
	unhealthy := i.command(append(check, "http://127.0.0.1:"+i.probe+"/health/ready")...)
	require.Error(i.t, unhealthy.Run(), "nothing listens yet")
	stopServer := i.start(server...)
	i.awaitHealthy(append(check, "http://127.0.0.1:"+i.probe+"/health/ready")...)
	stopWorker := i.start(worker...)
	i.awaitHealthy(append(check, "http://127.0.0.1:"+i.worker+"/health/ready")...)

	org := i.svc("org", "create", "--name", "tea house")["id"].(string)
	i.svc("wallet", "credit", "--org", org, "--micros", "1000000", "--ref", "first")
	key := i.svc("key", "create", "--org", org, "--name", "first")["key"].(string)
	status, body := i.ask(key, `{"model":"echo/echo-1","messages":[{"role":"user","content":"green tea?"}]}`)
	require.Equal(i.t, http.StatusOK, status, "%s", body)
	require.Contains(i.t, string(body), "green tea?")
	require.NotEqual(i.t, "1000000", i.svc("wallet", "show", "--org", org)["balanceMicros"], "the call was charged")
	require.Equal(i.t, true, i.svc("doctor")["ok"])
	stopWorker()
	stopServer()
}

// ask makes one model call.
func (i *installation) ask(key, body string) (status int, answer []byte) {
	i.t.Helper()
	r, err := http.NewRequestWithContext(i.t.Context(), http.MethodPost, "http://127.0.0.1:"+i.port+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(i.t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(i.t, err)
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	require.NoError(i.t, err)
	return response.StatusCode, answer
}

// freePort finds a port below the range that outgoing connections use.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+port)
		if err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// unit is what a systemd unit says, by the names of its settings.
type unit map[string]string

func readUnit(t *testing.T, path string) unit {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	settings := unit{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, found := strings.Cut(lines.Text(), "="); found && !strings.HasPrefix(name, "#") {
			settings[name] = value
		}
	}
	return settings
}

// userOf returns the number of a user of a root file system.
func userOf(t *testing.T, root, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	require.NoError(t, err)
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^%s:[^:]*:(\d+):(\d+):`, name)).FindSubmatch(text)
	require.NotNil(t, line, "%s has no user %s", text, name)
	number, err := strconv.Atoi(string(line[1]))
	require.NoError(t, err)
	return number
}
