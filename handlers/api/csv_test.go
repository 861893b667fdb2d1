package api

import (
	"encoding/csv"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestTextsInCSV(t *testing.T) {
	t.Parallel()
	require.Empty(t, csvText(nil))
	for text, want := range map[string]string{
		"": "", "a": "a", "a=b": "a=b", "1-2": "1-2", "'a": "'a", "Hà Nội": "Hà Nội", " a": " a",
		"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "\t1": "'\t1", "\r1": "'\r1", "\n=1": "'\n=1",
		" =1": "' =1", "\u00a0=1": "'\u00a0=1", "\u200b=1": "'\u200b=1", "\x00=1": "'\x00=1", "\ufeff=1": "'\ufeff=1", "＝1": "'＝1", "＠x": "'＠x",
	} {
		require.Equal(t, want, csvText(&text))
	}
}

// With any texts the table keeps its rows and columns, and no cell begins like a formula.
func FuzzCSVFile(f *testing.F) {
	for _, seed := range []string{"", "a,b", "=1", "\"", "\"\"=1", "a\r\n=1", "\r", "'=1", ",=1", "\xff=1", "\u2028+1", "\ufeff"} {
		f.Add(seed, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		w := httptest.NewRecorder()
		file := newCSVFile(w, "x")
		for range 2 {
			file.row([]string{csvText(&a), "id", csvText(&b)})
		}
		require.True(t, file.flush())
		rows, err := csv.NewReader(strings.NewReader(w.Body.String())).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2)
		for _, row := range rows {
			require.Len(t, row, 3)
			require.Equal(t, "id", row[1])
			for _, cell := range row {
				first, _ := utf8.DecodeRuneInString(strings.TrimSpace(cell))
				require.NotContains(t, []rune("=+-@\t\r\n＝＋－＠"), first)
			}
		}
	})
}
