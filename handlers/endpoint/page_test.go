package endpoint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listTexts shows rows of the given sizes in JSON as a page, and returns how many it has and the row after which the next one begins.
func listTexts(t *testing.T, limit int, sizes ...int) (shown int, next string) {
	t.Helper()
	rows := make([]string, len(sizes))
	for i, size := range sizes {
		rows[i] = string(rune('a'+i)) + strings.Repeat("x", size-3)
	}
	list := Listed(PageQuery{Limit: limit}, rows, func(row *string) string { return (*row)[:1] }, func(row *string) string { return *row })
	if list.NextCursor == nil {
		return len(list.Data), ""
	}
	page, err := PageQuery{Cursor: *list.NextCursor}.Page()
	require.NoError(t, err)
	return len(list.Data), page.After
}

// A page ends at 1 MiB, and the next one begins where it has ended.
func TestPagesEndAtTheirBytes(t *testing.T) {
	t.Parallel()
	const half = maxPageBytes / 2
	for name, c := range map[string]struct {
		limit int
		sizes []int
		shown int
		next  string
	}{
		"exactly":             {100, []int{half, half}, 2, ""},
		"one byte more":       {100, []int{half, half + 1}, 1, "a"},
		"the third":           {100, []int{half, half, 3}, 2, "b"},
		"one larger than all": {100, []int{3 * half, 3}, 1, "a"},
		"alone":               {100, []int{3 * half}, 1, ""},
		"the limit":           {2, []int{10, 10, 10}, 2, "b"},
		"both":                {2, []int{half, half, half}, 2, "b"},
	} {
		shown, next := listTexts(t, c.limit, c.sizes...)
		require.Equal(t, c.shown, shown, name)
		require.Equal(t, c.next, next, name)
	}
}
