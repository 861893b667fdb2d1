package caddymodule

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// weakSecretLength is the number of bytes below which a secret could be guessed: 16 random characters have 80 bits or more.
const weakSecretLength = 16

// otherReaders is the permission by which any account of the machine reads a file.
const otherReaders = 0o004

// namedSecret is a reference of the configuration and its path.
type namedSecret struct {
	path      string
	reference config.Secret
	// location: it is an address with a password, so its length says nothing.
	location bool
}

// secrets returns all references to secrets in the configuration, even empty ones.
func (a *App) secrets() []namedSecret {
	all := []namedSecret{{path: "svc.master_key", reference: a.MasterKey}}
	if a.Store != nil {
		all = append(all, namedSecret{"svc.store.dsn", a.Store.DSN, true}, namedSecret{"svc.store.direct", a.Store.Direct, true})
	}
	if a.Redis != nil {
		all = append(all, namedSecret{"svc.redis.url", a.Redis.URL, true}, namedSecret{path: "svc.redis.password", reference: a.Redis.Password},
			namedSecret{path: "svc.redis.sentinel_password", reference: a.Redis.SentinelPassword})
	}
	for _, provider := range a.Providers {
		all = append(all, provider.secrets()...)
	}
	return append(all, a.Platforms.secrets()...)
}

// secretWarnings returns a warning for each secret that is easy to find out: it is short, or is in a file that every account
// of the machine can read. It never quotes a secret. A secret that can't be read is a fault, not a warning.
func (a *App) secretWarnings(repl *caddy.Replacer) (warnings []string) {
	for _, secret := range a.secrets() {
		if secret.reference == "" {
			continue
		}
		value, err := secret.reference.Resolve(repl)
		if err != nil {
			continue
		}
		if len(value) < weakSecretLength && !secret.location {
			warnings = append(warnings, fmt.Sprintf("%s: what %s holds is shorter than %d characters and could be guessed",
				secret.path, string(secret.reference), weakSecretLength))
		}
		path, isFile := strings.CutPrefix(strings.TrimSuffix(string(secret.reference), "}"), "{file.")
		if !isFile || goruntime.GOOS == "windows" { // where permissions say nothing
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&otherReaders != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: every account of this machine can read the file behind %s; chmod it to 0600",
				secret.path, string(secret.reference)))
		}
	}
	return warnings
}

// MissingSecrets returns a sentence for each secret that repl can't read, without which a server doesn't start.
func (a *App) MissingSecrets(repl *caddy.Replacer) (missing []string) {
	for _, secret := range a.secrets() {
		if !secret.reference.IsReference() { // none, or no secret at all
			continue
		}
		if _, err := secret.reference.Resolve(repl); err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", secret.path, err))
		}
	}
	return missing
}

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
		if p.APIKey != "" && p.APIKey != NoKey && PublicHTTP(p.BaseURL) {
			warnings = append(warnings, config.Element("provider", p.Name)+
				".base_url: the key and all prompts go to a public host without TLS; use https")
		}
	}
	return warnings
}

const (
	// shutdownWarning and shutdownError are the times before the end of a model from which a start logs a warning and an error.
	shutdownWarning = 90 * 24 * time.Hour
	shutdownError   = 7 * 24 * time.Hour
)

// endingModels returns a sentence for each model that its vendor ends soon, as an error from shutdownError before its end.
func (a *App) endingModels(now time.Time) (warnings, faults []string) {
	for _, m := range a.Models {
		day, err := m.shutdown()
		if err != nil || day.IsZero() || day.Sub(now) > shutdownWarning {
			continue
		}
		ends := config.Element("model", m.Name) + ".shutdown_date: the vendor ends the model on " + m.ShutdownDate + "; offer another one"
		if day.Sub(now) > shutdownError {
			warnings = append(warnings, ends)
		} else {
			faults = append(faults, ends)
		}
	}
	return warnings, faults
}

// PublicHTTP reports whether an address is plain http to a host that is neither this machine's nor of a private network. A name without
// a dot, and one below local, internal or localhost, is private.
func PublicHTTP(address string) bool {
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
