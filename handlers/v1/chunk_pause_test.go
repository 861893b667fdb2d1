package v1

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// pipes is a listener whose connections are made by dial.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error { close(p); return nil }

func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// A model may think for minutes, before its first text and between two. No write deadline may be set meanwhile: on HTTP/2 it ends
// even an idle stream.
func TestStreamOutlivesThePausesOfItsModel(t *testing.T) {
	t.Parallel()
	for version := 1; version <= 2; version++ {
		t.Run("HTTP/"+strconv.Itoa(version), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				protocols := new(http.Protocols)
				protocols.SetHTTP1(version == 1)
				protocols.SetUnencryptedHTTP2(version == 2)
				listener := make(pipes)
				server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					stream := NewChunkWriter(w, r)
					defer stream.Free()
					err := stream.Begin(gateway.Head{ID: "chatcmpl-1", Model: "m"})
					for range 3 {
						if err == nil {
							err = stream.Flush()
						}
						time.Sleep(3 * writeTimeout) //nolint:forbidigo // the fake clock
						if err == nil {
							err = stream.Text("thought")
						}
					}
					if err == nil {
						err = stream.Finish(&gateway.Result{FinishReason: "stop"})
					}
					if err != nil {
						t.Errorf("the server's side: %v", err)
					}
				})}
				go server.Serve(listener) //nolint:errcheck // it ends with the listener
				defer server.Close()      //nolint:errcheck // as above
				transport := &http.Transport{Protocols: protocols, DialContext: listener.dial}
				defer transport.CloseIdleConnections()

				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", http.NoBody)
				require.NoError(t, err)
				answer, err := transport.RoundTrip(r)
				require.NoError(t, err)
				defer answer.Body.Close()
				require.Equal(t, version, answer.ProtoMajor)
				text, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.Equal(t, 3, strings.Count(string(text), "thought"))
				require.Contains(t, string(text), "[DONE]")
			})
		})
	}
}
