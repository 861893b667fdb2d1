//go:build !race

package v1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The cost of a request must not grow with its text, nor with its messages beyond their slice.
func TestDecodeChatAllocations(t *testing.T) {
	message := `{"role":"user","content":"` + strings.Repeat("text ệ ", 1000) + `","name":"n"},`
	body := func(n int) []byte {
		return []byte(`{"model":"m/x","messages":[` + strings.TrimSuffix(strings.Repeat(message, n), ",") + `],"stream":true,"user":"u","metadata":{"a":1,"b":[1,2,{"c":null}]}}`)
	}
	allocations := func(n int) float64 {
		text := body(n)
		return testing.AllocsPerRun(20, func() {
			if _, err := DecodeChat(text); err != nil {
				t.Error(err)
			}
		})
	}
	one, many := allocations(1), allocations(64)
	require.LessOrEqual(t, one, 5.0)
	require.LessOrEqual(t, many-one, 6.0, "only the slice of messages may grow")
}
