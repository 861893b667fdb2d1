package caddymodule

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	caddytokens "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

func init() { httpcaddyfile.RegisterGlobalOption(appName, parseGlobalOption) }

// parseGlobalOption reads the global option svc into the JSON form of the app. A second block is refused.
func parseGlobalOption(d *caddytokens.Dispenser, previous any) (any, error) {
	if previous != nil {
		d.Next()
		return nil, d.Err("svc: there is one svc block; a second one is refused. To spread it over files, use import inside it")
	}
	nameService()
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
//	        protocol           <name> {
//	            <options of the module svc.providers.name>
//	        }
//	        base_url           <url>
//	        api_key            <{env.NAME} or {file.PATH}> | none
//	        connect_timeout    <duration>
//	        first_byte_timeout <duration>
//	        idle_timeout       <duration>
//	        response_timeout   <duration>
//	        max_duration       <duration>
//	        max_calls          <n>
//	        send_traceparent   [true|false]
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
//	        reasoning          [true|false]
//	        reserve_max_output [true|false]
//	        live_only          [true|false]
//	        price_input        <micros per million tokens>
//	        price_output       <micros per million tokens>
//	        price_cached_input <micros per million tokens>
//	    }
//	    platform <name> {
//	        header   <name>
//	        api_base <url>
//	        ack      empty
//	        <options of the module svc.platforms.<name>>
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
//	        kept_answers        <size>
//	    }
//	    tranches on | off
//	    event_endpoints public | any
//	    customer_files  public | any
//	    memory {
//	        gc_floor <size>
//	    }
//	}
//
// plan, provider, model and platform may be repeated with other names. The first plan is the default one; no other order
// counts. The error has all faults of the block, each with file, line and what is allowed.
func (a *App) UnmarshalCaddyfile(d *caddytokens.Dispenser) error {
	r, block := caddyfile.NewReader(d)
	r.Block(appName, block, []caddyfile.Rule{
		{Word: "base_url", Read: r.Text(&a.BaseURL, "scheme://host[:port]")},
		{Word: "store", HasBlock: true, Read: a.readStore(r)},
		{Word: "redis", HasBlock: true, Read: a.readRedis(r)},
		{Word: "master_key", Read: r.Secret(&a.MasterKey, config.ReferenceForms)},
		{Word: "plan", Named: true, HasBlock: true, Read: a.readPlan(r)},
		{Word: "provider", Named: true, HasBlock: true, Read: a.readProvider(r)},
		{Word: "model", Named: true, HasBlock: true, Read: a.readModel(r)},
		{Word: "platform", Named: true, Once: true, HasBlock: true, Read: a.readPlatform(r)},
		{Word: "worker", HasBlock: true, Read: a.readWorker(r)},
		{Word: "timing", HasBlock: true, Read: a.readTiming(r)},
		{Word: "limits", HasBlock: true, Read: a.readLimits(r)},
		{Word: "tranches", Read: r.Text(&a.Tranches, config.Listed(onOff))},
		{Word: "event_endpoints", Read: r.Text(&a.EventEndpoints, config.Listed(targets))},
		{Word: "customer_files", Read: r.Text(&a.CustomerFiles, config.Listed(targets))},
		{Word: "memory", HasBlock: true, Read: a.readMemory(r)},
	})
	slices.SortStableFunc(a.Providers, func(a, b *Provider) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(a.Models, func(a, b *Model) int { return strings.Compare(a.Name, b.Name) })
	return r.Err(a.faults(), block)
}

// Interface guard.
var _ caddytokens.Unmarshaler = (*App)(nil)
