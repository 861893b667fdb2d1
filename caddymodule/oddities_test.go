package caddymodule

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOddities guarantees that what is most likely a mistake gives a warning, and a usual configuration none.
func TestOddities(t *testing.T) {
	t.Parallel()
	app := goodApp(t)
	app.fill()
	require.Empty(t, app.oddities())
	bytes := int64(256)
	app.Models, app.Limits = nil, &Limits{BufferedBytes: &bytes}
	app.Providers[1].BaseURL = "http://vendor.example.com/v1"
	require.Equal(t, []string{
		"svc.model: there is no model, so every call ends with unsupported_model",
		"svc.limits.buffered_bytes: 256 bytes hold hardly a request; give a unit, e.g. 256MiB",
		"svc.provider[vendor].base_url: the key and all prompts go to a public host without TLS; use https",
	}, app.oddities())
	bytes = leastBufferedBytes
	app.Providers[1].APIKey = NoKey
	require.Len(t, app.oddities(), 1)

	for address, public := range map[string]bool{
		"http://api.example.com/v1": true, "http://203.0.113.7": true, "http://[2001:db8::1]:8000": true,
		"https://api.example.com/v1": false, "http://localhost:11434/v1": false, "http://ollama:11434/v1": false, "http://127.0.0.1": false,
		"http://10.1.2.3": false, "http://[::1]:8000": false, "http://models.internal/v1": false, "http://box.local./v1": false,
	} {
		require.Equal(t, public, publicHTTP(address), address)
	}
}
