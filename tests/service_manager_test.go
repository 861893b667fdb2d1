package tests

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// manager is the end of a service manager to which services notify what they do.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	path string
}

func startManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "svc") // short: the path of a socket has at most 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &manager{t: t, path: filepath.Join(dir, "notify")}
	m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.conn.Close() })
	return m
}

// requireTold requires that the next thing a service says is this.
func (m *manager) requireTold(what string) {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(startWait)))
	message := make([]byte, 4096)
	n, err := m.conn.Read(message)
	require.NoError(m.t, err, "waiting for %s", what)
	require.Equal(m.t, what, string(message[:n]))
}

// TestServiceManager guarantees what the units in packaging/systemd rely on: both programs tell that they are ready,
// the server also that it reloads and stops (Type=notify), and a secret may come from the folder of LoadCredential,
// which is another one for each of them.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	m := startManager(t)
	d := deploy(t, store.SQLite, startUpstream(t))
	credentials := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(credentials, "master.key"), []byte(d.masterKey+"\n"), 0o400))
	d.env = append(d.env, "NOTIFY_SOCKET="+m.path, "CREDENTIALS_DIRECTORY="+credentials)
	p := prepareProduct(t, d)
	text := strings.Replace(p.caddyfile(t), "{env.SVC_MASTER_KEY}", "{file.{$CREDENTIALS_DIRECTORY}/master.key}", 1)
	p.writeCaddyfile(text)

	p.start()
	m.requireTold("RELOADING=1") // Caddy's first configuration is a reload to it
	m.requireTold("READY=1")
	p.requireProbe(t, "/ready", 200)
	require.NoError(t, p.reload(text))
	m.requireTold("RELOADING=1")
	m.requireTold("READY=1")

	w := p.prepareWorker()
	w.start()
	m.requireTold("RELOADING=1")
	m.requireTold("READY=1")
	w.stop()

	p.terminate()
	m.requireTold("STOPPING=1")
	p.wait()
}
