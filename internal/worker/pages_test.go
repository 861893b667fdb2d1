package worker

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestPagesOfAnAnswer: from its delivery to that of its answer a customer's message writes 36 pages into SQLite's log at most, beside those
// of a long prompt, which are written once.
func TestPagesOfAnAnswer(t *testing.T) {
	t.Parallel()
	const customers, answers = 20, 40
	for instructions, most := range map[int]int{100: 36, 6000: 36 + 2} {
		t.Run(fmt.Sprint(instructions), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "svc.db")
			location, err := store.ParseLocation(store.SQLite, path)
			require.NoError(t, err)
			h := build(t, storetest.OpenAt(t, location, store.Options{Kinds: kinds}))
			h.changeAgent(t, func(agent *store.Agent) { agent.Instructions = strings.Repeat(".", instructions) })
			w := h.worker()
			var pages, measured int
			for i := 0; measured < answers; i++ {
				before := logged(t, path)
				h.say(t, bot, fmt.Sprint(i%customers), "Hello, do you have this in size M? I would take two of them.")
				between := logged(t, path)
				require.Equal(t, 1, h.drain(t, w))
				after := logged(t, path)
				if i >= customers && before < between && between < after { // else the log began anew
					measured, pages = measured+1, pages+after-before
				}
			}
			require.LessOrEqual(t, pages, answers*most, "%.1f pages", float64(pages)/answers)
		})
	}
}

// logged returns how many pages the log of a database has.
func logged(t *testing.T, path string) int {
	t.Helper()
	index, err := os.ReadFile(path + "-shm")
	require.NoError(t, err)
	return int(binary.NativeEndian.Uint32(index[16:])) // mxFrame of the index's header
}
