package caddymodule

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

func (a *App) readPlan(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		plan := &Plan{Name: o.Args[0].Text}
		r.Block(path, o, []caddyfile.Rule{
			{Word: "requests_per_minute", Read: r.Integer(&plan.RequestsPerMinute)},
			{Word: "channels", Read: r.Integer(&plan.Channels)},
			{Word: "knowledge_bytes", Read: r.Size(&plan.KnowledgeBytes)},
		})
		caddyfile.Set(r, path, o, &a.Plans, append(a.Plans, plan))
	}
}

func (a *App) readProvider(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		p := &Provider{Name: o.Args[0].Text}
		r.Block(path, o, []caddyfile.Rule{
			{Word: "protocol", Read: r.Text(&p.Protocol, ProtocolOpenAI+" or "+ProtocolEcho)},
			{Word: "base_url", Read: r.Text(&p.BaseURL, "an address, e.g. https://api.openai.com/v1")},
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

func (a *App) readModel(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		m := &Model{Name: o.Args[0].Text}
		r.Block(path, o, []caddyfile.Rule{
			{Word: "upstream_model", Read: r.Text(&m.UpstreamModel, "the vendor's name of the model")},
			{Word: "display_name", Read: r.Text(&m.DisplayName, "a name")},
			{Word: "friendly_name", Read: r.Text(&m.FriendlyName, "a name")},
			{Word: "tier", Read: r.Text(&m.Tier, "a class, e.g. "+DefaultTier)},
			{Word: "owned_by", Read: r.Text(&m.OwnedBy, "a name")},
			{Word: "vn_hosted", Read: r.Bool(&m.VNHosted)},
			{Word: "created", Read: r.Integer(&m.Created)},
			{Word: "context_window", Read: r.Integer(&m.ContextWindow)},
			{Word: "max_output_tokens", Read: r.Integer(&m.MaxOutputTokens)},
			{Word: "max_tokens_field", Read: r.Text(&m.MaxTokensField, config.Listed(maxTokensFields))},
			{Word: "price_input", Read: r.Price(&m.PriceInput)},
			{Word: "price_output", Read: r.Price(&m.PriceOutput)},
			{Word: "price_cached_input", Read: r.Price(&m.PriceCachedInput)},
		})
		caddyfile.Set(r, path, o, &a.Models, append(a.Models, m))
	}
}

func (a *App) readTiming(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		timing := new(Timing)
		r.NoArguments(path, o)
		r.Block(path, o, []caddyfile.Rule{
			{Word: "hold_ttl", Read: r.Duration(&timing.HoldTTL)},
			{Word: "sweep_interval", Read: r.Duration(&timing.SweepInterval)},
			{Word: "lease", Read: r.Duration(&timing.Lease)},
			{Word: "early_status", Read: r.Duration(&timing.EarlyStatus)},
		})
		caddyfile.Set(r, path, o, &a.Timing, timing)
	}
}

func (a *App) readLimits(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		limits := new(Limits)
		r.NoArguments(path, o)
		r.Block(path, o, []caddyfile.Rule{
			{Word: "buffered_bytes", Read: r.Size(&limits.BufferedBytes)},
			{Word: "body_grace", Read: r.Duration(&limits.BodyGrace)},
			{Word: "body_grace_with_key", Read: r.Duration(&limits.BodyGraceWithKey)},
			{Word: "body_rate", Read: r.Size(&limits.BodyRate)},
			{Word: "streams", Read: r.Integer(&limits.Streams)},
			{Word: "calls", Read: r.Integer(&limits.Calls)},
		})
		caddyfile.Set(r, path, o, &a.Limits, limits)
	}
}
