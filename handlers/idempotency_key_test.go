package handlers_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// TestIdempotencyKeyHeader: 1 to 255 visible ASCII characters, once; quotes around it don't count.
func TestIdempotencyKeyHeader(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		values []string
		want   string
		bad    bool
	}{
		{name: "absent"},
		{name: "plain", values: []string{"order-1"}, want: "order-1"},
		{name: "quoted", values: []string{`"order-1"`}, want: "order-1"},
		{name: "one pair of quotes only", values: []string{`""order-1""`}, want: `"order-1"`},
		{name: "a single quote is a key", values: []string{`"`}, want: `"`},
		{name: "longest", values: []string{strings.Repeat("k", 255)}, want: strings.Repeat("k", 255)},
		{name: "longest quoted", values: []string{`"` + strings.Repeat("k", 255) + `"`}, want: strings.Repeat("k", 255)},
		{name: "too long", values: []string{strings.Repeat("k", 256)}, bad: true},
		{name: "empty", values: []string{""}, bad: true},
		{name: "empty quoted", values: []string{`""`}, bad: true},
		{name: "blank inside", values: []string{"a b"}, bad: true},
		{name: "control", values: []string{"a\x7f"}, bad: true},
		{name: "not ASCII", values: []string{"é"}, bad: true},
		{name: "twice", values: []string{"a", "a"}, bad: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			key, err := handlers.IdempotencyKey(http.Header{handlers.HeaderIdempotencyKey: test.values})
			if !test.bad {
				require.NoError(t, err)
				require.Equal(t, test.want, key)
				return
			}
			answer, ok := errors.AsType[*handlers.Error](err)
			require.True(t, ok)
			require.Equal(t, errcode.InvalidRequest, answer.Code)
			require.Equal(t, "Idempotency-Key", answer.Field)
		})
	}
}
