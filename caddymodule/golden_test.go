package caddymodule

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/stretchr/testify/require"
)

// update rewrites the expected halves of the golden files; the difference is to be read before it is committed.
var update = flag.Bool("update", false, "rewrite the expected halves of tests/caddyfile/*.caddyfiletest, and the metrics of docs/operating.md")

const (
	goldenFiles = "../tests/caddyfile/*.caddyfiletest"
	divider     = "\n----------\n"
)

// adapt turns a Caddyfile into indented JSON with the one adapter that operators use.
func adapt(caddyfile string) (string, error) {
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return "", err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, adapted, "", "\t"); err != nil {
		return "", err
	}
	return indented.String(), nil
}

// TestGolden adapts each golden Caddyfile and compares the outcome with what stands behind the divider: the JSON
// form, or the whole text of the error.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(goldenFiles)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			caddyfile, expected, found := strings.Cut(string(text), divider)
			require.True(t, found, "no divider in %s", file)
			outcome, err := adapt(caddyfile)
			if err != nil {
				outcome = err.Error()
			}
			outcome += "\n"
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(caddyfile+divider+outcome), 0o600))
				return
			}
			require.Equal(t, expected, outcome)
			require.Equal(t, err != nil, strings.HasPrefix(filepath.Base(file), "bad_"),
				"files of refused Caddyfiles begin with bad_, others don't")
		})
	}
}

// goldenApp returns the svc app of a golden file's adapted form.
func goldenApp(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(goldenFiles), name+".caddyfiletest"))
	require.NoError(t, err)
	_, adapted, found := strings.Cut(string(text), divider)
	require.True(t, found)
	var config struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	require.NoError(t, json.Unmarshal([]byte(adapted), &config))
	return string(config.Apps[appName])
}

// TestOrderOfBlocksDoesNotCount compares two files that differ in the order of their blocks and options only.
func TestOrderOfBlocksDoesNotCount(t *testing.T) {
	t.Parallel()
	require.JSONEq(t, goldenApp(t, "svc_full"), goldenApp(t, "svc_full_shuffled"))
	require.Equal(t, goldenApp(t, "svc_full"), goldenApp(t, "svc_full_shuffled"))
}
