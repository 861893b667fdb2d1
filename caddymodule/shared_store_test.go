package caddymodule

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

func sqliteCaddyfile(t *testing.T, path, rest string) string {
	t.Helper()
	return `{
	svc {
		base_url http://localhost:8080
		store sqlite ` + path + `
		master_key ` + string(secretFile(t, testMasterKey)) + `
		` + rest + `
	}
}
:8080 {
	svc_health
}
`
}

// admits reports whether the budget has room for a body of n bytes.
func admits(budget *handlers.ByteBudget, n int) bool {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", n)))
	_, release, err := handlers.ReadBody(httptest.NewRecorder(), r, handlers.MaxChatBody, budget, handlers.AccountOf(r))
	release()
	return err == nil
}

// TestNewestConfigurationDecides guarantees that what a configuration wants of the shared store holds from its start on,
// and that one that goes early, because the reload failed in another app, gives the one before its own back.
func TestNewestConfigurationDecides(t *testing.T) {
	location, err := store.ParseLocation(store.SQLite, filepath.Join(storeFolder(t), "svc.db"))
	require.NoError(t, err)
	var oldLog, newLog bytes.Buffer
	plain := func(to *bytes.Buffer) *slog.Logger {
		return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	shared, err := openStore(t.Context(), location, plain(&oldLog))
	require.NoError(t, err)
	defer func() { require.NoError(t, closeStore(location)) }()
	require.NoError(t, shared.migrate(t.Context()))

	ring, err := vault.ParseRing(testMasterKey)
	require.NoError(t, err)
	configuration := func(bufferedBytes int64, sweep time.Duration, log *bytes.Buffer) *App {
		app := &App{Limits: &Limits{BufferedBytes: &bufferedBytes}, Timing: &Timing{SweepInterval: caddy.Duration(sweep)}, settings: settings{ring: ring}}
		app.fill()
		app.log = plain(log)
		app.attached.Store(true)
		return app
	}
	first, next := configuration(1000, time.Hour, &oldLog), configuration(10, 2*time.Hour, &newLog)
	requireHolds := func(w *App, log *bytes.Buffer) {
		t.Helper()
		require.Equal(t, w.SweepInterval(), shared.sweeping)
		// One address may hold half of a quarter.
		require.True(t, admits(shared.bodies, int(*w.Limits.BufferedBytes)/8))
		require.False(t, admits(shared.bodies, int(*w.Limits.BufferedBytes)/8+1))
		oldLog.Reset()
		newLog.Reset()
		shared.log.With("a", 1).WithGroup("g").Info("line", "b", 2)
		require.Contains(t, log.String(), "a=1 g.b=2")
		require.True(t, shared.log.Enabled(context.Background(), slog.LevelInfo))
		require.False(t, shared.log.Enabled(context.Background(), slog.LevelDebug))
		require.Equal(t, log.Len(), oldLog.Len()+newLog.Len(), "one log has the line")
	}
	leaveFirst := shared.use(t.Context(), first)
	requireHolds(first, &oldLog)
	sweeper := shared.sweeper

	leaveFailed := shared.use(t.Context(), next)
	requireHolds(next, &newLog)
	leaveFailed()
	requireHolds(first, &oldLog)

	leaveNext := shared.use(t.Context(), next)
	leaveFirst()
	requireHolds(next, &newLog)
	require.NotSame(t, sweeper, shared.sweeper)

	sweeper = shared.sweeper
	onlyReads := configuration(10, 3*time.Hour, &newLog)
	onlyReads.attached.Store(false)
	shared.use(t.Context(), onlyReads)()
	require.Same(t, sweeper, shared.sweeper, "holds are swept as long as the store is open")
	leaveNext()
}

// TestReloadChangesWhatIsShared guarantees the same of whole configurations: a reload changes sweep_interval and the
// budget of body bytes, and one that fails leaves them.
func TestReloadChangesWhatIsShared(t *testing.T) {
	path := filepath.Join(storeFolder(t), "svc.db")
	old := provision(t, sqliteCaddyfile(t, path, "limits {\n buffered_bytes 1000\n }\n timing {\n sweep_interval 1h\n }"))
	old.start(t)
	shared := old.app.runtime.shared
	failed := provision(t, sqliteCaddyfile(t, path, "limits {\n buffered_bytes 10\n }\n timing {\n sweep_interval 2h\n }"))
	require.NoError(t, failed.app.Start())
	require.Same(t, shared, failed.app.runtime.shared)
	require.Equal(t, 2*time.Hour, shared.sweeping)
	require.False(t, admits(shared.bodies, 2))
	require.NoError(t, failed.app.Cleanup())
	require.Equal(t, time.Hour, shared.sweeping)
	require.True(t, admits(shared.bodies, 125))
}

// TestStartThatFails guarantees that a start which fails, wherever it does, and a configuration that never starts leave
// nothing open behind their Cleanup.
func TestStartThatFails(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	db, err := sql.Open("sqlite", foreign)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE organizations (nothing_of_ours TEXT)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for name, path := range map[string]string{
		"opening the store":   t.TempDir(),
		"migrating the store": foreign,
	} {
		run := provision(t, sqliteCaddyfile(t, path, ""))
		require.ErrorContains(t, run.app.Start(), name)
		require.NoError(t, run.app.Cleanup())
		require.NoError(t, run.app.Cleanup(), "twice does nothing")
		requireNotShared(t, run)
	}
	path := filepath.Join(storeFolder(t), "svc.db")
	run := provision(t, sqliteCaddyfile(t, path, ""))
	require.NoError(t, run.app.Cleanup())
	requireNotShared(t, run)
	require.NoFileExists(t, path)
}

func requireNotShared(t *testing.T, run *instance) {
	t.Helper()
	_, open := stores.References(run.app.settings.location)
	require.False(t, open, "the store is still referred to")
	_, open = windows.References(run.app.settings.location)
	require.False(t, open, "the windows are still referred to")
}
