package caddymodule

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/providers"
)

// settings are the values that Provision read from a configuration's references, once for its lifetime. They are
// unexported, so that no dump of the configuration shows them.
type settings struct {
	// location is the store's canonical address.
	location store.Location
	// redis is nil if there is none.
	redis *redisSettings
	// ring holds the keys behind master_key.
	ring *vault.Ring
	// vendors has an entry for each provider, by name.
	vendors map[string]vendor
	// platforms are the options of the platforms that are configured, by name, with references resolved.
	platforms map[string]map[string]string
}

// vendor is a provider with its references resolved.
type vendor struct {
	// apiKey is the operator's key, empty if there is none or none is sent.
	apiKey string
	// provider is the adapter; local, whether its protocol needs no network.
	provider providers.Provider
	local    bool
}

// Provision checks the configuration, reads its secrets and builds the providers' transports. Its error has all faults of
// the configuration or, if there are none, all secrets that are missing or unusable. It opens no store and makes no
// connection. It implements caddy.Provisioner.
func (a *App) Provision(ctx caddy.Context) error {
	nameService()
	if err := a.faults().Err(); err != nil {
		return err
	}
	a.fill()
	read, err := a.readSettings(ctx)
	if err != nil {
		return err
	}
	a.settings = read
	for _, warning := range append(a.secretWarnings(caddy.NewReplacer()), a.oddities()...) {
		ctx.Logger().Warn(warning)
	}
	return a.provision(ctx, a)
}

// readSettings resolves all references. The error has every one that failed, by path.
func (a *App) readSettings(ctx caddy.Context) (settings, error) {
	var fs config.Faults
	repl := caddy.NewReplacer()
	read := settings{vendors: make(map[string]vendor, len(a.Providers))}

	read.location = a.Store.read(repl, &fs)

	read.redis = a.Redis.read(repl, &fs)

	ring, err := a.Ring(repl)
	if err != nil {
		fs.Addf("svc.master_key", "%v", err)
	}
	read.ring = ring

	for _, p := range a.Providers {
		read.vendors[p.Name] = p.read(ctx, repl, &fs)
	}
	read.platforms = a.Platforms.read(repl, &fs)
	return read, fs.Err()
}

// Ring reads the keys behind master_key with repl. The error never holds a key.
func (a *App) Ring(repl *caddy.Replacer) (*vault.Ring, error) {
	text, err := a.MasterKey.Resolve(repl)
	if err != nil {
		return nil, err
	}
	ring, err := vault.ParseRing(text)
	if err != nil {
		return nil, fmt.Errorf("what %s holds is no master key: %w", string(a.MasterKey), err)
	}
	return ring, nil
}

func (p *Provider) read(ctx caddy.Context, repl *caddy.Replacer, fs *config.Faults) vendor {
	path := config.Element("provider", p.Name)
	var read vendor
	if p.APIKey != "" && p.APIKey != NoKey {
		key, err := p.APIKey.Resolve(repl)
		switch {
		case err != nil:
			fs.Addf(path+".api_key", "%v", err)
		case !config.VisibleASCII(key):
			fs.Addf(path+".api_key", "what %s holds can't be sent in a header; allowed: visible ASCII characters", string(p.APIKey))
		}
		read.apiKey = key
	}
	driver := protocols.named(p.Protocol)
	read.local = driver.Describe().Local
	made := &providers.Config{
		BaseURL: p.BaseURL, Options: p.readOptions(repl, fs, path+".protocol", driver), Timeouts: p.timeouts(), Logger: plainLogger(ctx),
	}
	if !read.local {
		transport, err := loadTransport(ctx, p.TransportRaw, made.Timeouts.Connect)
		if err != nil {
			fs.Addf(path+".transport", "%v", err)
			return read
		}
		made.Transport = transport
	}
	provider, err := newProvider(driver, made)
	if err != nil {
		fs.Addf(path+".protocol", "%v", err)
	}
	read.provider = provider
	return read
}
