package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

// patience bounds every wait of a process test.
const patience = time.Minute

// vendor is a model that answers when it is let.
type vendor struct {
	*httptest.Server

	asked chan struct{} // has an element for each request
	gone  chan struct{} // has an element for each request whose client left
	let   chan struct{}
}

func newVendor(t *testing.T) *vendor {
	t.Helper()
	v := &vendor{asked: make(chan struct{}, 16), gone: make(chan struct{}, 16), let: make(chan struct{}, 16)}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client leaves
		v.asked <- struct{}{}
		select {
		case <-v.let:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",`+
				`"content":"We do."},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`)
		case <-r.Context().Done():
			v.gone <- struct{}{}
		}
	}))
	t.Cleanup(v.Close)
	return v
}

func await(t *testing.T, what string, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(patience):
		require.Fail(t, "waited in vain for "+what)
	}
}

// workplace is a command line whose organization has a channel, a vendor and a scripted platform.
type workplace struct {
	*commandLine

	vendor           *vendor
	platform         *platformfake.Server
	orgID, channelID string
	socket, logFile  string
	command          *exec.Cmd
	ended            chan struct{}
	output           lockedBuffer
}

// lockedBuffer is read while a process writes to it.
type lockedBuffer struct {
	mu      sync.Mutex
	written bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.written.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.written.String()
}

func newWorkplace(t *testing.T) *workplace {
	t.Helper()
	w := &workplace{commandLine: newCommandLine(t), vendor: newVendor(t), platform: platformfake.Start(t)}
	sockets, err := os.MkdirTemp("", "svc") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(sockets)) })
	w.socket, w.logFile = filepath.Join(sockets, "worker"), w.path("server.log")
	w.write("Caddyfile", fmt.Sprintf(`{
	grace_period 50s
	log {
		output file %[1]s/server.log
	}
	svc {
		base_url http://localhost:8080
		store sqlite %[1]s/svc.db
		master_key {file.%[1]s/master.key}
		provider vendor {
			protocol openai
			base_url %[2]s/v1
			api_key none
		}
		model vendor/model {
			context_window 8000
			max_output_tokens 100
			price_input 1000
			price_output 1000
		}
		platform bot {
			api_base %[3]s
		}
		worker {
			listen unix/%[4]s
		}
	}
}
:8080 {
	handle /webhooks/bot/* {
		svc_webhook bot
	}
}
`, w.dir, w.vendor.URL, w.platform.URL(bot.Type), w.socket))
	w.orgID = w.newOrg("Acme")
	w.json("wallet", "credit", "--org", w.orgID, "--micros", "1000000", "--ref", "a")
	agent := strOf(t, w.json("agent", "create", "--org", w.orgID, "--name", "Mai", "--model", "vendor/model"), "id")
	credentials, err := json.Marshal(w.platform.Account(bot.Type, "4711"))
	require.NoError(t, err)
	done := w.run(string(credentials), "--json", "channel", "create", "--org", w.orgID, "--type", "bot", "--name", "Tea", "--agent", agent, "--credentials-file", "-")
	require.NoError(t, done.err)
	w.channelID = strOf(t, object(t, done.stdout), "id")
	return w
}

// customerWrites puts a message onto the queue.
func (w *workplace) customerWrites(customer string) {
	w.t.Helper()
	db := w.db()
	route, found, err := db.Routes.ByID(w.t.Context(), w.channelID)
	require.NoError(w.t, err)
	require.True(w.t, found)
	require.NoError(w.t, inbox.New(db, w.ring()).Enqueue(w.t.Context(), []inbox.Arrival{{Route: route, Items: []inbox.Item{{
		Kind: platforms.Text, CustomerRef: customer, Address: customer, MessageID: customer + ":1", Text: "Green tea?",
	}}}}))
}

// start runs a worker in a process of its own: this test binary.
func (w *workplace) start() {
	w.t.Helper()
	w.command = exec.Command(os.Args[0], "--config", w.path("Caddyfile")) //nolint:noctx,gosec // the test ends it
	w.command.Env = append(os.Environ(), "SVC_TEST_WORKER=1")
	w.command.Stdout, w.command.Stderr = &w.output, &w.output
	w.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(w.t, w.command.Start())
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		_ = w.command.Wait()
	}()
	w.t.Cleanup(func() {
		_ = w.command.Process.Kill()
		<-w.ended
		if w.t.Failed() {
			w.t.Log(w.output.text())
		}
	})
}

func (w *workplace) signal() {
	w.t.Helper()
	if err := w.command.Process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(w.t, err)
	}
}

// get asks the worker's own listener.
func (w *workplace) get(path string) (int, string) {
	w.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", w.socket)
		},
	}}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://worker"+path, nil)
	require.NoError(w.t, err)
	resp, err := client.Do(req)
	require.NoError(w.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	require.NoError(w.t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

func (w *workplace) depth() inbox.Depth {
	w.t.Helper()
	depth, err := inbox.New(w.db(), nil).Depth(w.t.Context())
	require.NoError(w.t, err)
	return depth
}

// TestWorkerProcess guarantees that a worker answers what is on the queue, has its own probes and metrics, and on a
// signal finishes what it has begun and nothing else, with status 0.
func TestWorkerProcess(t *testing.T) {
	t.Parallel()
	w := newWorkplace(t)
	w.customerWrites("5")
	w.start()
	await(t, "the first call", w.vendor.asked)
	status, body := w.get("/health/ready")
	require.Equal(t, http.StatusOK, status, body)
	status, body = w.get("/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "svc_queue_leased_conversations 1")
	status, body = w.get("/anything")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, `"not_found"`)
	w.vendor.let <- struct{}{}
	require.Equal(t, "We do.", w.platform.WaitSent(t, 1)[0].Text)

	w.customerWrites("6")
	await(t, "the second call", w.vendor.asked)
	w.signal()
	require.Eventually(t, func() bool { return strings.Contains(w.output.text(), "stopping") }, patience, 10*time.Millisecond)
	w.customerWrites("7")
	w.vendor.let <- struct{}{}
	await(t, "the end of the worker", w.ended)
	require.Zero(t, w.command.ProcessState.ExitCode(), w.output.text())
	sent := w.platform.Sent()
	require.Len(t, sent, 2)
	require.Equal(t, "6", sent[1].Address)
	require.Equal(t, inbox.Depth{Due: 1}, inbox.Depth{Due: w.depth().Due, Leased: w.depth().Leased}, "for another worker")
	require.Empty(t, w.vendor.asked)
	require.NoFileExists(t, w.logFile, "two processes don't roll one file")
	require.NotContains(t, w.output.text(), "Green tea")
	require.Equal(t, true, w.json("doctor")["ok"])
}

// TestWorkerProcessEndsAtOnce guarantees that a second signal waits for nothing, and that the next worker takes up what
// was left, without asking for the money again.
func TestWorkerProcessEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorkplace(t)
	text, err := os.ReadFile(w.path("Caddyfile"))
	require.NoError(t, err)
	w.write("Caddyfile", strings.Replace(string(text), "worker {", "timing {\nlease 1s\n}\nworker {", 1))
	w.customerWrites("5")
	w.start()
	await(t, "the call", w.vendor.asked)
	w.signal()
	again := time.NewTicker(20 * time.Millisecond) // a signal too soon after the first counts as the first
	defer again.Stop()
	late := time.After(patience)
	for ended := false; !ended; {
		select {
		case <-w.ended:
			ended = true
		case <-again.C:
			w.signal()
		case <-late:
			require.Fail(t, "the worker did not end")
		}
	}
	status, ok := w.command.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled(), "%v", w.command.ProcessState)
	await(t, "the cut of the call", w.vendor.gone)

	w.start()
	await(t, "the next worker's call", w.vendor.asked)
	w.vendor.let <- struct{}{}
	require.Len(t, w.platform.WaitSent(t, 1), 1)
	w.signal()
	await(t, "the end of the worker", w.ended)
	require.Zero(t, w.command.ProcessState.ExitCode())
	require.Equal(t, "0", w.json("wallet", "show", "--org", w.orgID)["heldMicros"])
	require.Equal(t, true, w.json("doctor")["ok"])
}

// TestWorkerProcessRefuses guarantees that a worker which can't work says why and ends with another status than 0.
func TestWorkerProcessRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ caddyfile, want string }{
		{":8080 {\n\trespond ok\n}\n", "has no svc block"},
		{"{\n\tsvc {\n\t\tfrobnicate\n\t}\n}\n", "frobnicate"},
		{"{\n\tsvc {\n\t\tbase_url http://localhost\n\t\tstore sqlite DIR\n\t\tmaster_key {file.DIR/master.key}\n\t}\n}\n", "opening the store"},
		{"{\n\tsvc {\n\t\tbase_url http://localhost\n\t\tstore sqlite DIR/svc.db\n\t\tmaster_key {env.SVC_TEST_NEVER_SET}\n\t}\n}\n", "is not set"},
	} {
		w := &workplace{commandLine: newCommandLine(t)}
		w.write("Caddyfile", strings.ReplaceAll(test.caddyfile, "DIR", w.dir))
		w.start()
		await(t, "the end of the worker", w.ended)
		require.Equal(t, 1, w.command.ProcessState.ExitCode())
		require.Contains(t, w.output.text(), test.want)
	}
}
