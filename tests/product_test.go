package tests

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// startWait bounds the start of a product, which shares the machine with the other tests.
	startWait = 2 * time.Minute
	// stopWait bounds its end, grace period included.
	stopWait = 60 * time.Second
	// bookWait bounds what reads all books, a command or the test itself: the race detector makes SQLite fifty times slower.
	bookWait = 5 * time.Minute
	// patience bounds every wait for something that should happen at once.
	patience = time.Minute
)

// product is one running server.
type product struct {
	*deployment
	process
	operatorStore *sharedOperatorStore

	// BaseURL is where its service listens in the clear, TLSURL over TLS, SideURL for metrics and health.
	BaseURL, TLSURL, SideURL string

	// cut: calls may have been left to the sweeper.
	cut bool

	clear, secure *http.Client
}

// startProduct runs d in a folder of its own and waits until it is ready. At the test's end it is stopped, must not
// have raced or panicked, and must leave its books in order.
func startProduct(t testing.TB, d *deployment) *product {
	t.Helper()
	p := prepareProduct(t, d)
	p.start()
	p.awaitReady()
	return p
}

// prepareProduct lays out the folder of a product that start may run.
func prepareProduct(t testing.TB, d *deployment) *product {
	t.Helper()
	dir, err := os.MkdirTemp("", "svc") // short: the path of a socket has at most 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d.Dir, d.Port, d.SidePort = dir, freePort(t), freePort(t)
	if d.TLS {
		d.TLSPort = freePort(t)
	}
	p := &product{
		deployment: d, process: process{t: t, what: "product"}, operatorStore: new(sharedOperatorStore),
		BaseURL: fmt.Sprintf("http://127.0.0.1:%d", d.Port),
		TLSURL:  fmt.Sprintf("https://localhost:%d", d.TLSPort),
		SideURL: fmt.Sprintf("http://127.0.0.1:%d", d.SidePort),
	}
	p.clear = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}}
	t.Cleanup(p.clear.CloseIdleConnections)
	t.Cleanup(func() { p.closeOperatorStore(t) })
	p.writeCaddyfile(d.caddyfile(t))
	return p
}

func (p *product) configFile() string { return filepath.Join(p.Dir, "Caddyfile") }

func (p *product) writeCaddyfile(text string) {
	require.NoError(p.t, os.WriteFile(p.configFile(), []byte(text), 0o600))
}

// raceOptions are the race detector's in the product, whose log the tests read for its reports. A process that ends would sleep
// a second for what its last threads may report; ours have ended theirs by then.
const raceOptions = "halt_on_error=0 exitcode=0 atexit_sleep_ms=50"

func (p *product) environment() []string {
	kept := make([]string, 0, 16)
	for _, name := range []string{"PATH", "TMPDIR", "LANG"} {
		if value, ok := os.LookupEnv(name); ok {
			kept = append(kept, name+"="+value)
		}
	}
	kept = append(kept, "HOME="+p.Dir, "XDG_DATA_HOME="+p.Dir, "XDG_CONFIG_HOME="+p.Dir, "GORACE="+raceOptions)
	if p.Redis != "" {
		kept = append(kept, "SVC_REDIS="+p.Redis)
	}
	if p.Traces != "" {
		kept = append(kept, "OTEL_EXPORTER_OTLP_ENDPOINT="+p.Traces, "OTEL_BSP_SCHEDULE_DELAY=50")
	}
	return append(kept, p.env...)
}

// start runs the server without waiting for it.
func (p *product) start() {
	p.t.Helper()
	p.startBinary(p.program())
}

// program is the build that the deployment runs.
func (p *product) program() string { return cmp.Or(p.Binary, caddyBinary) }

// startBinary is start with another build of the server, and more environment.
func (p *product) startBinary(binary string, environment ...string) {
	p.t.Helper()
	p.cut = false
	p.run(p.Dir, append(p.environment(), environment...), p.stop, binary, "run", "--config", p.configFile())
}

// awaitReady polls the readiness of the product, which includes its store, until its service listens, too: Caddy starts its servers
// one after the other.
func (p *product) awaitReady() {
	p.t.Helper()
	p.await("the product to be ready", startWait, func() bool {
		response, err := p.clear.Get(p.SideURL + "/ready") //nolint:noctx // the client is local
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK && listens(p, time.Second)
	})
}

// stop ends the product and checks what it leaves behind.
func (p *product) stop() {
	p.t.Helper()
	if !p.killed {
		p.terminate()
	}
	p.wait()
	if p.killed || p.cut {
		return
	}
	p.operator().requireBooksInOrder(p.t)
}

// reload loads a Caddyfile as an operator does, through `caddy reload`.
func (p *product) reload(text string) error {
	p.writeCaddyfile(text)
	_, err := p.caddy("reload", "--force", "--config", p.configFile(), "--address", "unix/"+p.Dir+"/admin.sock")
	return err
}

// caddy runs the product's binary to its end.
func (p *product) caddy(args ...string) (stdout string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), bookWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program(), args...)
	cmd.Dir, cmd.Env = p.Dir, p.environment()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if len(races(errs.String())) > 0 || strings.Contains(errs.String(), "panic: ") {
		p.t.Errorf("caddy %s raced or panicked:\n%s", strings.Join(args, " "), errs.String())
	}
	if err != nil {
		err = fmt.Errorf("caddy %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), err
}

// svc runs the command line, in a process of its own, and returns the object that it prints.
func (p *product) svc(t testing.TB, args ...string) map[string]any {
	t.Helper()
	out, err := p.caddy(append(append([]string{"svc"}, args...), "--config", p.configFile(), "--json")...)
	require.NoError(t, err, "stdout: %s", out)
	decoder := json.NewDecoder(strings.NewReader(out))
	var object map[string]any
	require.NoError(t, decoder.Decode(&object), "stdout: %s", out)
	require.ErrorIs(t, decoder.Decode(new(any)), io.EOF, "exactly one object on stdout: %s", out)
	return object
}

// sharedOperatorStore is the operatorStore that a product shares with its copies for subtests, which run side by side.
type sharedOperatorStore struct {
	mu   sync.Mutex
	open *operatorStore // nil before its first use, and after it was closed
}

// operator returns the product's store, opened by this process. It is open until the product has ended.
func (p *product) operator() *operatorStore {
	p.t.Helper()
	p.operatorStore.mu.Lock()
	defer p.operatorStore.mu.Unlock()
	if p.operatorStore.open == nil {
		p.operatorStore.open = openOperatorStore(p.t, p.location, p.masterKey)
	}
	return p.operatorStore.open
}

// closeOperatorStore closes the operator's store, if it is open; the next use opens it again.
func (p *product) closeOperatorStore(t testing.TB) {
	t.Helper()
	p.operatorStore.mu.Lock()
	defer p.operatorStore.mu.Unlock()
	if p.operatorStore.open != nil {
		p.operatorStore.open.close(t)
		p.operatorStore.open = nil
	}
}

// overTLS is a client that trusts the product's own authority and speaks HTTP/2.
func (p *product) overTLS() *http.Client {
	p.t.Helper()
	if p.secure != nil {
		return p.secure
	}
	require.True(p.t, p.TLS, "the deployment has no TLS site")
	root := filepath.Join(p.Dir, "caddy", "pki", "authorities", "local", "root.crt")
	var certificate []byte
	p.await("the certificate of tls internal", startWait, func() bool {
		var err error
		certificate, err = os.ReadFile(root)
		return err == nil
	})
	pool := x509.NewCertPool()
	require.True(p.t, pool.AppendCertsFromPEM(certificate))
	dialer := &net.Dialer{}
	p.secure = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return dialer.DialContext(ctx, "tcp", "127.0.0.1:"+port)
		},
	}}
	p.t.Cleanup(p.secure.CloseIdleConnections)
	// The certificate itself is made a little later than the authority.
	p.await("TLS to work", startWait, func() bool {
		response, err := p.secure.Get(p.TLSURL + "/v1/models") //nolint:noctx // the client is local
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return true
	})
	return p.secure
}

// adminGet reads from the admin interface over its socket.
func (p *product) adminGet(t testing.TB, path string) string {
	t.Helper()
	dialer := &net.Dialer{}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", filepath.Join(p.Dir, "admin.sock"))
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("http://127.0.0.1" + path) //nolint:noctx // it is local
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", text)
	return string(text)
}

// metrics is the whole text of the product's metrics.
func (p *product) metrics(t testing.TB) string {
	t.Helper()
	response, err := p.clear.Get(p.SideURL + "/metrics") //nolint:noctx // it is local
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	return string(text)
}

const raceReport = "WARNING: DATA RACE"

// requireCleanLog fails the test when the log shows a panic, or a data race of ours. Caddy's own tls app has one between
// its Start and the events of certificates, which is none of our code.
func requireCleanLog(t testing.TB, log *recorder) {
	t.Helper()
	text := log.String()
	for _, sign := range []string{"panic: ", "fatal error: ", "goroutine 1 ["} {
		if at := strings.Index(text, sign); at >= 0 {
			t.Errorf("the product's log has %q:\n%s", sign, text[max(0, at-500):min(len(text), at+6000)])
		}
	}
	for _, report := range races(text) {
		t.Errorf("the product raced:\n%s", report)
	}
}

var ourCode = regexp.MustCompile(`github\.com/caddy-svc/caddy-svc[./](caddymodule|handlers|billing|verify|internal)`)

// races are the race detector's reports in a log in which our code has a part.
func races(log string) (reports []string) {
	parts := strings.Split(log, raceReport)
	for _, part := range parts[1:] {
		report, _, _ := strings.Cut(part, "==================")
		if ourCode.MatchString(report) {
			reports = append(reports, report)
		}
	}
	return reports
}

// recorder keeps everything a process writes.
type recorder struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// faults are the last lines that are worth a look, and before them the last errors, which others may have pushed out.
func (r *recorder) faults(bytes int) string {
	var lines, failed []string
	for line := range strings.Lines(r.String()) {
		if strings.Contains(line, `"level":"error"`) {
			failed = append(failed, line)
		} else if !strings.Contains(line, `"level":"info"`) && (!strings.Contains(line, `"level":"debug"`) || strings.Contains(line, `"logger":"svc`)) {
			lines = append(lines, line)
		}
	}
	last := func(lines []string) string {
		text := strings.Join(lines, "")
		return text[max(0, len(text)-bytes/2):]
	}
	return last(failed) + last(lines)
}

func (r *recorder) tail(bytes int) string {
	text := r.String()
	return text[max(0, len(text)-bytes):]
}

// takenPorts are the ports that tests of this process have been given.
var takenPorts sync.Map

// freePort finds a port below the range that outgoing connections use. Two products must not share one by accident:
// Caddy would let them, with SO_REUSEPORT.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 11_000 + rand.IntN(19_000) // browsers and Node refuse to call 10080
		if _, taken := takenPorts.LoadOrStore(port, true); taken {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		return port
	}
	t.Fatal("no port is free")
	return 0
}
