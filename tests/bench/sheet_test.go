package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page has the median and the spread of the runs, and the plot is an image.
func TestSheet(t *testing.T) {
	t.Parallel()
	s := new(sheet)
	for _, value := range []float64{1.4, 0.9, 1.2} {
		require.Contains(t, s.judge("answer <C=1>", paid, "CPU", value, bar{1.3, 1}, true), "must 1.30")
		s.judge("answer <C=1>", paid, "answers/s", value, bar{}, false)
	}
	require.Contains(t, s.judge("slow", free, "answers/s", 0, bar{1, 2}, false), "MISSED")
	require.Contains(t, s.judge("quick", free, "answers/s", 2, bar{1, 2}, false), "goal")
	folder := filepath.Join(t.TempDir(), "benchmarks")
	require.NoError(t, s.write(folder, []string{"-only", "answer"}))
	page, err := os.ReadFile(filepath.Join(folder, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| answer <C=1> | strict money | CPU | 1.20 (0.90–1.40) | 1.30 | 1.00 | held |\n")
	require.Contains(t, string(page), "| answer <C=1> | strict money | answers/s | 1.20 (0.90–1.40) |  |  |  |\n")
	require.Contains(t, string(page), "`scripts/bench.sh -only answer`")
	plot, err := os.Open(filepath.Join(folder, "ratios.svg"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plot.Close()) })
	decoder, bars, texts := xml.NewDecoder(plot), 0, ""
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "rect" {
				bars++
			}
		case xml.CharData:
			texts += string(token)
		}
	}
	require.Equal(t, 3, bars, "a figure without a bar to hold isn't drawn")
	require.Contains(t, texts, "answer <C=1>, strict money: CPU")
}
