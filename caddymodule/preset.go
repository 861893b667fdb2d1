package caddymodule

import (
	"cmp"
	"maps"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/providers"
)

// preset returns the preset that the provider names and its protocol, or nil if there is none.
func (p *Provider) preset() (preset *providers.Preset, protocol string) {
	for _, driver := range protocols.all() {
		d := driver.Describe()
		for i := range d.Presets {
			if d.Presets[i].Name == p.Preset {
				return &d.Presets[i], d.Name
			}
		}
	}
	return nil, ""
}

// fillPreset sets the values of the preset that weren't given.
func (p *Provider) fillPreset() {
	preset, protocol := p.preset()
	if preset == nil {
		return
	}
	p.Protocol = cmp.Or(p.Protocol, protocol)
	if !preset.Incomplete() {
		p.BaseURL = cmp.Or(p.BaseURL, preset.BaseURL)
	}
	if options := maps.Clone(preset.Options); options != nil {
		maps.Copy(options, p.Options)
		p.Options = options
	}
}

// presetFaults adds the faults of the preset, and reports whether its values can be checked.
func (p *Provider) presetFaults(fs *config.Faults, path string) bool {
	if p.Preset == "" {
		return true
	}
	preset, protocol := p.preset()
	switch {
	case preset == nil:
		var names []string
		for _, driver := range protocols.all() {
			for _, preset := range driver.Describe().Presets {
				names = append(names, preset.Name)
			}
		}
		fs.Addf(path+".preset", "%s is not known; allowed: %s", config.Quoted(p.Preset), config.Listed(names))
		return false
	case p.Protocol != "" && p.Protocol != protocol:
		fs.Addf(path+".protocol", "the preset %s speaks %s; leave one of them out", p.Preset, protocol)
		return false
	case preset.Incomplete() && (p.BaseURL == "" || p.BaseURL == preset.BaseURL):
		fs.Addf(path+".base_url", "missing; the address of %s is your own, e.g. %s", preset.Label, preset.BaseURL)
		return false
	}
	return true
}

// unknownProtocol adds the fault of a protocol that this build doesn't have.
func unknownProtocol(fs *config.Faults, path, protocol string) {
	allowed := "allowed: " + config.Listed(protocols.names())
	if protocol == "" {
		fs.Addf(path, "missing; %s", allowed)
		return
	}
	if preset, speaks := (&Provider{Preset: protocol}).preset(); preset != nil {
		fs.Addf(path, "%s speaks the protocol %s; use `preset %s`", preset.Label, speaks, protocol)
		return
	}
	fs.Addf(path, "%s is not known; %s", config.Quoted(protocol), allowed)
}
