package caddymodule

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// FuzzCaddyfile holds two promises for every text that Caddy's lexer accepts: reading never panics, and what it accepts
// is a configuration that the JSON entrance reads back without a fault.
func FuzzCaddyfile(f *testing.F) {
	files, err := filepath.Glob(goldenFiles)
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		seed, _, _ := strings.Cut(string(text), divider)
		f.Add(seed)
		// The block alone, as the reader gets it.
		if _, block, found := strings.Cut(seed, "{\n\tsvc"); found {
			f.Add("svc" + strings.TrimSuffix(strings.TrimSpace(block), "}"))
		}
	}
	for _, seed := range []string{
		"svc", "svc {\n}", "svc {\nplan\n}", "svc {\nplan a {\n", "svc {\nplan a {\n}", "svc {\nprovider p {\ntransport http {\n",
		"svc {\nprovider p {\ntransport\n}\n}", "svc {\nstore\n}", "svc {\nmodel /\n}", "svc {\nmodel \"\" {\n}\n}",
		"svc {\n\"{\" x\n}", "svc {\nplan a }\n}", "svc {\nlimits {\nbuffered_bytes 99999999999999999999EiB\n}\n}",
		"svc {\ntiming {\nhold_ttl 99999999999999d\n}\n}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		blocks, err := caddyfile.Parse("Caddyfile", []byte("{\n"+text+"\n}"))
		if err != nil {
			return
		}
		for _, block := range blocks {
			for _, segment := range block.Segments {
				readBack(t, segment)
			}
		}
	})
}

// readBack reads a segment as a svc block and, if it is accepted, its JSON form.
func readBack(t *testing.T, segment caddyfile.Segment) {
	t.Helper()
	app := new(App)
	if app.UnmarshalCaddyfile(caddyfile.NewDispenser(segment)) != nil {
		return
	}
	raw, err := json.Marshal(app)
	if err != nil {
		t.Fatalf("accepted, but has no JSON form: %v", err)
	}
	again := new(App)
	if err := caddy.StrictUnmarshalJSON(raw, again); err != nil {
		t.Fatalf("the JSON form can't be read back: %v\n%s", err, raw)
	}
	if err := again.faults().Err(); err != nil {
		t.Fatalf("accepted as a Caddyfile, refused as JSON: %v\n%s", err, raw)
	}
}
