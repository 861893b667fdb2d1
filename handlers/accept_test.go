package handlers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// acceptOfABrowser is what a browser sends.
const acceptOfABrowser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"

func TestPrefersCSV(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "text/*": true, "application/json": false, "text/csv": true, "TEXT/CSV; charset=utf-8": true,
		"text/csv, */*": true, "text/csv, application/json": false, "application/json, text/csv;q=0.9": false,
		"text/csv;q=0.5, application/json;q=0.4": true, "text/csv;q=0": false, "text/csv;q=x": false, "text/csvx": false, ",;,": false,
	} {
		require.Equal(t, want, handlers.Prefers(accept, "text/csv"), accept)
	}
}

func TestPrefersHTML(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "*/*": false, acceptOfABrowser: true, "text/html": true, "TEXT/HTML": true, "text/*": true, "text/html;q=0": false,
		"application/json;q=0.9, text/html": true, "application/json, text/html;q=0.9": false, "application/*, text/html;q=0.5": false,
		"text/html;q=0.5, */*;q=0.1": true, "text/html;q=nan": false, "text/html;q=2": false, "text/html; level=1; q=0.4, application/json;q=0.3": true,
		"*/*, application/json;q=0.1": true, "text/plain": false, ",;,": false,
	} {
		require.Equal(t, want, handlers.Prefers(accept, "text/html"), accept)
	}
}

func FuzzPrefersHTML(f *testing.F) {
	f.Add(acceptOfABrowser)
	f.Add("text/html;q=0.5;q=1, ,;=,application/json")
	f.Fuzz(func(t *testing.T, accept string) {
		if handlers.Prefers(accept, "text/html") {
			require.Regexp(t, `(?i)(text/|\*/\*)`, accept)
		}
	})
}
