package caddymodule

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestPanicIsAnswered: a handler that panics gets its client the error body of the contract, or, when the answer has begun,
// the end of the connection; and it leaves nothing running.
func TestPanicIsAnswered(t *testing.T) {
	t.Parallel()
	calls := gateway.NewInFlight()
	app := filled(&App{lifecycle: lifecycle{
		log: slog.New(slog.DiscardHandler), ready: make(chan struct{}), runtime: &runtime{shared: &sharedStore{calls: calls}},
	}})
	close(app.ready)
	serve := func(h func(w http.ResponseWriter)) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		return (&inApp{app: app, name: "test"}).serve(httptest.NewRecorder(), r, func(_ *runtime, w http.ResponseWriter, _ *http.Request) error {
			h(w)
			return nil
		})
	}

	err := serve(func(http.ResponseWriter) { panic("planted") })
	var answer *handlers.Error
	require.ErrorAs(t, err, &answer)
	require.Equal(t, errcode.InternalError, answer.Code)
	require.NotContains(t, answer.Message, "planted")
	var routed caddyhttp.HandlerError
	require.ErrorAs(t, err, &routed)
	require.Equal(t, http.StatusInternalServerError, routed.StatusCode)

	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		_ = serve(func(w http.ResponseWriter) {
			_, _ = w.Write([]byte("half an answer"))
			panic("planted")
		})
	})
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		_ = serve(func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
	})
	require.Zero(t, calls.Running())
}

// TestBodyOfAnotherHandler: behind svc_auth another module's handler reads the body at its own pace, and a body that doesn't
// come is bounded all the same where svc_auth refuses.
func TestBodyOfAnotherHandler(t *testing.T) {
	const grace = 20 * time.Millisecond
	run := provision(t, sqliteCaddyfile(t, filepath.Join(storeFolder(t), "svc.db"), ""))
	require.NoError(t, run.app.Start())
	t.Cleanup(func() { require.NoError(t, run.app.Cleanup()) })
	shared := run.app.runtime.shared
	run.app.Limits.BodyGrace = caddy.Duration(grace)
	refusal := &Error{noOptions: noOptions{inApp{app: run.app}}, log: slog.New(slog.DiscardHandler)}
	require.NoError(t, shared.db.Organizations.Create(t.Context(), "test", store.Organization{ID: "org_1", Name: "Tea", Plan: "free"}))
	key, err := identity.CreateAPIKey(t.Context(), shared.db, "test", identity.KeyRequest{OrgID: "org_1"})
	require.NoError(t, err)

	auth := &Auth{Scopes: []identity.Scope{identity.ModelsRead}, inApp: inApp{app: run.app}}
	begun, read := make(chan struct{}, 1), make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := auth.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
			begun <- struct{}{}
			_, err := io.ReadAll(r.Body)
			read <- err
			return nil
		}))
		if err != nil {
			_ = refusal.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), caddyhttp.ErrorCtxKey, err)), nil)
		}
	}))
	t.Cleanup(server.Close)
	send := func(key string) net.Conn {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+key+"\r\nContent-Length: 2\r\n\r\n{")
		require.NoError(t, err)
		return conn
	}

	slow := send(key.Raw)
	<-begun
	<-time.After(3 * grace) // a deadline of the grace would be over
	_, err = io.WriteString(slow, "}")
	require.NoError(t, err)
	require.NoError(t, <-read)

	answer, err := http.ReadResponse(bufio.NewReader(send("none")), nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
}

// A call that is refused before its body is read is answered although the body never comes, also where no svc_error writes the error.
func TestUnreadBodyOfCall(t *testing.T) {
	run := provision(t, sqliteCaddyfile(t, filepath.Join(storeFolder(t), "svc.db"), ""))
	require.NoError(t, run.app.Start())
	t.Cleanup(func() { require.NoError(t, run.app.Cleanup()) })
	run.app.Limits.BodyGrace = caddy.Duration(20 * time.Millisecond)
	chat := &Chat{keyed{noOptions{inApp{app: run.app}}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if chat.ServeHTTP(w, r, nil) != nil {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	for _, head := range []string{"GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = io.WriteString(conn, head+"Host: x\r\nContent-Length: 2\r\n\r\n{")
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, head)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusTeapot, answer.StatusCode)
	}
}
