package caddymodule

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// leastBufferedBytes is the buffered_bytes below which a unit was most likely forgotten.
const leastBufferedBytes = 1 << 20

// oddities returns a warning for each value of the configuration that can be intended, but is most likely a mistake.
func (a *App) oddities() (warnings []string) {
	if len(a.Models) == 0 {
		warnings = append(warnings, "svc.model: there is no model, so every call ends with unsupported_model")
	}
	if bytes := *a.Limits.BufferedBytes; bytes < leastBufferedBytes {
		warnings = append(warnings, fmt.Sprintf("svc.limits.buffered_bytes: %d bytes hold hardly a request; give a unit, e.g. 256MiB", bytes))
	}
	for _, p := range a.Providers {
		if p.APIKey != "" && p.APIKey != NoKey && publicHTTP(p.BaseURL) {
			warnings = append(warnings, config.Element("provider", p.Name)+
				".base_url: the key and all prompts go to a public host without TLS; use https")
		}
	}
	return warnings
}

// publicHTTP reports whether an address is plain http to a host that is neither this machine's nor of a private network. A name without
// a dot, and one below local, internal or localhost, is private.
func publicHTTP(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast()
	}
	dot := strings.LastIndexByte(host, '.')
	return dot >= 0 && !slices.Contains([]string{"local", "internal", "localhost"}, host[dot+1:])
}
