package caddymodule

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func (a *App) readPlan(r *reader) func(string, option) {
	return func(path string, o option) {
		plan := &Plan{Name: o.args[0].Text}
		r.block(path, o, []rule{
			{word: "requests_per_minute", read: r.integer(&plan.RequestsPerMinute)},
			{word: "channels", read: r.integer(&plan.Channels)},
			{word: "knowledge_bytes", read: r.size(&plan.KnowledgeBytes)},
		})
		set(r, path, o, &a.Plans, append(a.Plans, plan))
	}
}

func (a *App) readProvider(r *reader) func(string, option) {
	return func(path string, o option) {
		p := &Provider{Name: o.args[0].Text}
		r.block(path, o, []rule{
			{word: "protocol", read: r.text(&p.Protocol, ProtocolOpenAI+" or "+ProtocolEcho)},
			{word: "base_url", read: r.text(&p.BaseURL, "an address, e.g. https://api.openai.com/v1")},
			{word: "api_key", read: r.secret(&p.APIKey, referenceForms+", or none")},
			{word: "connect_timeout", read: r.duration(&p.ConnectTimeout)},
			{word: "first_byte_timeout", read: r.duration(&p.FirstByteTimeout)},
			{word: "idle_timeout", read: r.duration(&p.IdleTimeout)},
			{word: "response_timeout", read: r.duration(&p.ResponseTimeout)},
			{word: "max_duration", read: r.duration(&p.MaxDuration)},
			{word: "max_calls", read: r.integer(&p.MaxCalls)},
			{word: "transport", holds: true, read: readTransport(r, &p.TransportRaw)},
		})
		set(r, path, o, &a.Providers, append(a.Providers, p))
	}
}

// readTransport hands `http { … }` to Caddy's own transport, which stops at its first fault.
func readTransport(r *reader, to *json.RawMessage) func(string, option) {
	return func(path string, o option) {
		protocol, ok := r.one(path, o, httpTransportProtocol)
		if !ok {
			return
		}
		if protocol != httpTransportProtocol {
			r.faultf(path, o, "transport %s is refused; allowed: %s", quoted(protocol), httpTransportProtocol)
			return
		}
		// Without its first token the segment begins with the transport's name, as Caddy's parser wants it.
		transport := new(reverseproxy.HTTPTransport)
		if err := transport.UnmarshalCaddyfile(caddyfile.NewDispenser(o.segment[1:])); err != nil {
			// Caddy's error tells file and line.
			r.found = append(r.found, located{fault: fault{path, err.Error()}, option: o, unread: true, placed: true})
			return
		}
		raw := caddyconfig.JSONModuleObject(transport, "protocol", httpTransportProtocol, nil)
		set(r, path, o, to, raw)
	}
}

func (a *App) readModel(r *reader) func(string, option) {
	return func(path string, o option) {
		m := &Model{Name: o.args[0].Text}
		r.block(path, o, []rule{
			{word: "upstream_model", read: r.text(&m.UpstreamModel, "the vendor's name of the model")},
			{word: "display_name", read: r.text(&m.DisplayName, "a name")},
			{word: "friendly_name", read: r.text(&m.FriendlyName, "a name")},
			{word: "tier", read: r.text(&m.Tier, "a class, e.g. "+DefaultTier)},
			{word: "owned_by", read: r.text(&m.OwnedBy, "a name")},
			{word: "vn_hosted", read: r.flag(&m.VNHosted)},
			{word: "created", read: r.integer(&m.Created)},
			{word: "context_window", read: r.integer(&m.ContextWindow)},
			{word: "max_output_tokens", read: r.integer(&m.MaxOutputTokens)},
			{word: "max_tokens_field", read: r.text(&m.MaxTokensField, listed(maxTokensFields))},
			{word: "price_input", read: r.price(&m.PriceInput)},
			{word: "price_output", read: r.price(&m.PriceOutput)},
			{word: "price_cached_input", read: r.price(&m.PriceCachedInput)},
		})
		set(r, path, o, &a.Models, append(a.Models, m))
	}
}

func (a *App) readTiming(r *reader) func(string, option) {
	return func(path string, o option) {
		timing := new(Timing)
		r.noArguments(path, o)
		r.block(path, o, []rule{
			{word: "hold_ttl", read: r.duration(&timing.HoldTTL)},
			{word: "sweep_interval", read: r.duration(&timing.SweepInterval)},
			{word: "lease", read: r.duration(&timing.Lease)},
			{word: "early_status", read: r.duration(&timing.EarlyStatus)},
		})
		set(r, path, o, &a.Timing, timing)
	}
}

func (a *App) readLimits(r *reader) func(string, option) {
	return func(path string, o option) {
		limits := new(Limits)
		r.noArguments(path, o)
		r.block(path, o, []rule{
			{word: "buffered_bytes", read: r.size(&limits.BufferedBytes)},
			{word: "body_grace", read: r.duration(&limits.BodyGrace)},
			{word: "body_grace_with_key", read: r.duration(&limits.BodyGraceWithKey)},
			{word: "body_rate", read: r.size(&limits.BodyRate)},
			{word: "streams", read: r.integer(&limits.Streams)},
			{word: "calls", read: r.integer(&limits.Calls)},
		})
		set(r, path, o, &a.Limits, limits)
	}
}
