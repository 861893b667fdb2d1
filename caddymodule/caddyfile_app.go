package caddymodule

import (
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

func init() { httpcaddyfile.RegisterGlobalOption(appName, parseGlobalOption) }

// parseGlobalOption reads the global option svc into the JSON form of the app. There is one such block; a second one
// is refused.
func parseGlobalOption(d *caddyfile.Dispenser, previous any) (any, error) {
	if previous != nil {
		d.Next()
		return nil, d.Err("svc: there is one svc block; a second one is refused. To spread it over files, use import inside it")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: appName, Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile reads the global option. Syntax:
//
//	svc {
//	    base_url   <scheme://host[:port]>
//	    store      sqlite <path> | postgres <{env.NAME} or {file.PATH}> {
//	        direct <{env.NAME} or {file.PATH}>             # postgres
//	    }
//	    redis      <{env.NAME} or {file.PATH}> | sentinel <master> <host:port...> | cluster <host:port...> {
//	        nodes             <n>
//	        username          <name>                       # sentinel, cluster
//	        password          <{env.NAME} or {file.PATH}>  # sentinel, cluster
//	        sentinel_password <{env.NAME} or {file.PATH}>  # sentinel
//	        tls               [<PEM file of an authority>]
//	    }
//	    master_key <{env.NAME} or {file.PATH}>
//
//	    plan <name> {
//	        requests_per_minute <n>
//	        channels            <n>
//	        knowledge_bytes     <size>
//	    }
//	    provider <name> {
//	        protocol           openai | echo
//	        base_url           <url>
//	        api_key            <{env.NAME} or {file.PATH}> | none
//	        connect_timeout    <duration>
//	        first_byte_timeout <duration>
//	        idle_timeout       <duration>
//	        response_timeout   <duration>
//	        max_duration       <duration>
//	        max_calls          <n>
//	        transport http {
//	            <options of reverse_proxy's http transport>
//	        }
//	    }
//	    model <provider>/<model> {
//	        upstream_model     <name>
//	        display_name       <text>
//	        friendly_name      <text>
//	        tier               <name>
//	        owned_by           <text>
//	        vn_hosted          [true|false]
//	        created            <unix seconds>
//	        context_window     <tokens>
//	        max_output_tokens  <tokens>
//	        max_tokens_field   max_tokens | max_completion_tokens
//	        price_input        <micros per million tokens>
//	        price_output       <micros per million tokens>
//	        price_cached_input <micros per million tokens>
//	    }
//	    platform bot | social | localchat | market_a | market_b {
//	        header       <name>
//	        api_base     <url>
//	        auth_base    <url>                             # localchat, market_b
//	        ack          empty
//	        app_id       <id>                              # localchat
//	        app_key      <id>                              # market_b
//	        app_secret   <{env.NAME} or {file.PATH}>       # social, localchat, market_b
//	        verify_token <{env.NAME} or {file.PATH}>       # social
//	        object       page | photo_dm | chat_app <value> # social
//	        partner_id   <id>                              # market_a
//	        partner_key  <{env.NAME} or {file.PATH}>       # market_a
//	    }
//	    worker {
//	        concurrency <n>
//	        listen      <address>
//	    }
//	    timing {
//	        hold_ttl       <duration>
//	        sweep_interval <duration>
//	        lease          <duration>
//	        early_status   <duration>
//	    }
//	    limits {
//	        buffered_bytes      <size>
//	        body_grace          <duration>
//	        body_grace_with_key <duration>
//	        body_rate           <size>
//	        streams             <n>
//	        calls               <n>
//	    }
//	}
//
// plan, provider, model and platform may be repeated under other names; the order of the plans counts (the first is the default),
// no other order does. The error tells every fault of the block at once, each with file and line and what is allowed.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	r := newReader()
	d.Next()
	block := newOption(d.NextSegment())
	r.places[appName] = block
	if len(block.args) > 0 {
		r.notef(appName, block, "takes no arguments, only a block")
	}
	r.block(appName, block, []rule{
		{word: "base_url", read: r.text(&a.BaseURL, "scheme://host[:port]")},
		{word: "store", holds: true, read: a.readStore(r)},
		{word: "redis", holds: true, read: a.readRedis(r)},
		{word: "master_key", read: r.secret(&a.MasterKey, referenceForms)},
		{word: "plan", named: true, holds: true, read: a.readPlan(r)},
		{word: "provider", named: true, holds: true, read: a.readProvider(r)},
		{word: "model", named: true, holds: true, read: a.readModel(r)},
		{word: "platform", named: true, once: true, holds: true, read: a.readPlatform(r)},
		{word: "worker", holds: true, read: a.readWorker(r)},
		{word: "timing", holds: true, read: a.readTiming(r)},
		{word: "limits", holds: true, read: a.readLimits(r)},
	})
	a.Providers = sortedBy(a.Providers, func(p *Provider) string { return p.Name })
	a.Models = sortedBy(a.Models, func(m *Model) string { return m.Name })
	return r.err(a.faults(), block)
}

func (a *App) readStore(r *reader) func(string, option) {
	return func(path string, o option) {
		const forms = "give `sqlite PATH` or `postgres {env.NAME}`"
		if len(o.args) != 2 {
			r.faultf(path, o, "takes exactly an engine and its address; %s", forms)
			return
		}
		engine, address := o.args[0].Text, o.args[1].Text
		read := &Store{Engine: engine}
		if store.Engine(engine) == store.Postgres {
			read.DSN = Secret(address)
		} else {
			read.Path = address
		}
		r.block(path, o, []rule{{word: "direct", read: r.secret(&read.Direct, referenceForms)}})
		set(r, path, o, &a.Store, read)
	}
}

// noArguments notes arguments of an option that takes only a block.
func (r *reader) noArguments(path string, o option) {
	if len(o.args) > 0 {
		r.notef(path, o, "takes no arguments, only a block")
	}
}

// Interface guards.
var _ caddyfile.Unmarshaler = (*App)(nil)
