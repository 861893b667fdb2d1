package caddymodule

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

func (a *App) readProvider(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		p := &Provider{Name: o.Args[0].Text}
		r.Block(path, o, []caddyfile.Rule{
			{Word: "protocol", HasBlock: true, Read: p.readProtocol(r)},
			{Word: "base_url", Read: r.Text(&p.BaseURL, "an address, e.g. https://api.example.com/v1")},
			{Word: "api_key", Read: r.Secret(&p.APIKey, config.ReferenceForms+", or none")},
			{Word: "connect_timeout", Read: r.Duration(&p.ConnectTimeout)},
			{Word: "first_byte_timeout", Read: r.Duration(&p.FirstByteTimeout)},
			{Word: "idle_timeout", Read: r.Duration(&p.IdleTimeout)},
			{Word: "response_timeout", Read: r.Duration(&p.ResponseTimeout)},
			{Word: "max_duration", Read: r.Duration(&p.MaxDuration)},
			{Word: "max_calls", Read: r.Integer(&p.MaxCalls)},
			{Word: "transport", HasBlock: true, Read: readTransport(r, &p.TransportRaw)},
		})
		caddyfile.Set(r, path, o, &a.Providers, append(a.Providers, p))
	}
}

// readTransport hands `http { … }` to Caddy's own transport, which stops at its first fault.
func readTransport(r *caddyfile.Reader, to *json.RawMessage) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		protocol, ok := r.One(path, o, httpTransportProtocol)
		if !ok {
			return
		}
		if protocol != httpTransportProtocol {
			r.Unreadf(path, o, "transport %s is refused; allowed: %s", config.Quoted(protocol), httpTransportProtocol)
			return
		}
		transport := new(reverseproxy.HTTPTransport)
		if err := transport.UnmarshalCaddyfile(o.Dispenser()); err != nil {
			r.UnreadBecause(path, o, err)
			return
		}
		raw := caddyconfig.JSONModuleObject(transport, "protocol", httpTransportProtocol, nil)
		caddyfile.Set(r, path, o, to, raw)
	}
}
