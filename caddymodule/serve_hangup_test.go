package caddymodule

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// An HTTP/2 connection can be ended from its requests; with HTTP/1 deadlines do it.
func TestHangUp(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	for _, version := range []int{1, 2} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		require.Nil(t, (&responseWriter{r: r}).HangUp(), "without a connection")
		r = r.WithContext(context.WithValue(r.Context(), connKey{}, server))
		r.ProtoMajor = version
		hangUp := (&responseWriter{r: r}).HangUp()
		if version == 1 {
			require.Nil(t, hangUp)
			continue
		}
		hangUp()
		_, err := client.Read(make([]byte, 1))
		require.Error(t, err)
	}
}
