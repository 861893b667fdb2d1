package caddymodule

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

const serverDirective = "svc_server"

// The groups of paths under /v1, which have directives of their own.
const (
	groupModels = "models"
	groupChat   = "chat"
)

// apiGroups are the groups of paths that svc_api serves, by the first part of the path.
var apiGroups = []string{
	"api-keys", "provider-keys", "agents", "knowledge-bases", "channels", "conversations", "wallet", "event-endpoints",
	"session", "members", "organization", "audit-log",
}

// init registers svc_server with a place behind all other directives but svc_error: it responds to every request that reaches
// it.
func init() {
	httpcaddyfile.RegisterDirective(serverDirective, parseServer)
	httpcaddyfile.RegisterDirectiveOrder(serverDirective, httpcaddyfile.After, "acme_server")
}

// parseServer reads the directive svc_server, which serves the whole interface on a site. Syntax:
//
//	svc_server {
//	    except    <group...>
//	    docs      off
//	    dashboard off
//	    widget    off
//	    webhooks  <platform...>
//	}
//
// All options may be left out, and so may the block. A group is models or chat, under /v1, or the first part of the paths of
// an endpoint group, such as wallet or api-keys; a group after except is not served. Without webhooks there is a webhook for
// every platform that is configured or needs no configuration. The handle of /payments/* is there with `payments` in the svc block.
//
// The directive is short for a handle block for each path below, in the order in which Caddy matches them, and for the error
// route of the site:
//
//	handle_errors {
//	    svc_error
//	}
//	handle /v1/models* {
//	    svc_auth models:read
//	    svc_rate_limit
//	    svc_models
//	}
//	handle /v1/chat/completions {
//	    svc_auth chat:write
//	    svc_rate_limit
//	    svc_chat
//	}
//	@groups path /api-keys* /provider-keys* /agents* /knowledge-bases* /channels* /conversations* /wallet* /event-endpoints* \
//	    /session* /members* /organization* /audit-log*
//	handle @groups {
//	    svc_api
//	}
//	handle /dashboard* {
//	    svc_dashboard
//	}
//	handle /docs* {
//	    svc_docs
//	}
//	handle /widget/* {
//	    svc_widget
//	}
//	handle /webhooks/<platform>[/*] {
//	    svc_webhook <platform>
//	}
//	handle /payments/* {
//	    svc_payments
//	}
//	@browser {
//	    path /
//	    method GET HEAD
//	    header Accept *text/html*
//	}
//	handle @browser {
//	    redir * /dashboard
//	}
//	handle {
//	    svc_error
//	}
//
// Every other path gets 404 not_found, so give it a site with its own name or port. Other directives of the site run first and
// answer the requests that they match: give each a path. A handle_errors of the site must stand above svc_server; it runs
// before the error route. Probes and metrics are for the operator and aren't included: see svc_health.
//
// It stands directly in a site, not inside another block, because no other place has an error route.
func parseServer(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	r, block := caddyfile.NewReader(h.Dispenser)
	app, err := adaptedApp(h)
	if err != nil {
		r.Faultf(serverDirective, block, "%v", err)
		return nil, r.Err(new(config.Faults), block)
	}
	site := siteOf(h)
	if h.IsNamedRoute() || len(site.segments) > 0 && site.index(block.Word()) < 0 {
		r.Faultf(serverDirective, block, "belongs directly into a site, because it also responds to the site's errors; "+
			"inside other blocks use svc_chat, svc_api and the others")
	}
	for _, fault := range site.besideServer(h, block.Word()) {
		r.Faultf(serverDirective, block, "%s", fault)
	}
	if fault := site.sharedWithWorker(h, app); fault != "" {
		return nil, errors.New(fault)
	}
	s := server{platforms: app.platformsWithWebhooks(), payments: len(app.Payments) > 0}
	r.Block(serverDirective, block, []caddyfile.Rule{
		{Word: "except", Read: readNames(&s.except, "groups", func(name string) string {
			groups := append([]string{groupModels, groupChat}, apiGroups...)
			if slices.Contains(groups, name) {
				return ""
			}
			return "there is no group " + config.Quoted(name) + "; allowed: " + config.Listed(groups)
		})},
		{Word: "docs", Read: readOff(&s.docsOff)},
		{Word: "dashboard", Read: readOff(&s.dashboardOff)},
		{Word: "widget", Read: readOff(&s.widgetOff)},
		{Word: "webhooks", Read: readNames(&s.platforms, "platforms", func(name string) string {
			if fault := messagingPlatforms.missing(name); fault != "" {
				return fault
			}
			return app.unconfiguredPlatform(name)
		})},
	})
	if err := r.Err(new(config.Faults), block); err != nil {
		return nil, err
	}
	return s.routes(h), nil
}

// readNames reads one or more different names. fault returns the text of a name's fault, empty if the name is right.
func readNames(to *[]string, what string, fault func(name string) string) caddyfile.Read {
	return func(r *caddyfile.Reader, path string, o caddyfile.Option) {
		names := o.Texts(0)
		if len(names) == 0 {
			r.Faultf(path, o, "takes the names of %s", what)
		}
		for i, name := range names {
			if text := fault(name); text != "" {
				r.Faultf(path, o, "%s", text)
			} else if slices.Contains(names[:i], name) {
				r.Faultf(path, o, "%s is given twice", config.Quoted(name))
			}
		}
		caddyfile.Set(r, path, o, to, names)
	}
}

// readOff reads the word off.
func readOff(to *bool) caddyfile.Read {
	return func(r *caddyfile.Reader, path string, o caddyfile.Option) {
		if value, ok := r.One(path, o, "off"); ok && value != "off" {
			r.Faultf(path, o, "%s is not a value here; allowed: off", config.Quoted(value))
		}
		caddyfile.Set(r, path, o, to, true)
	}
}

// platformsWithWebhooks are the platforms that are configured or need no configuration, and have a webhook.
func (a *App) platformsWithWebhooks() []string {
	var names []string
	for _, driver := range messagingPlatforms.all() {
		if d := driver.Describe(); a.Platforms.configured(d) {
			names = append(names, d.Name)
		}
	}
	return names
}

// server has the options of svc_server.
type server struct {
	except    []string
	platforms []string

	docsOff, dashboardOff, widgetOff, payments bool
}

// routes returns the routes of the site and its error route.
func (s *server) routes(h httpcaddyfile.Helper) []httpcaddyfile.ConfigValue {
	var routes []httpcaddyfile.ConfigValue
	mount := func(paths caddyhttp.MatchPath, chain ...caddyhttp.MiddlewareHandler) {
		var matcher caddy.ModuleMap
		if paths != nil {
			matcher = caddy.ModuleMap{"path": h.JSON(paths)}
		}
		if slices.Equal(paths, caddyhttp.MatchPath{"/"}) { // a browser's
			matcher["method"] = h.JSON(caddyhttp.MatchMethod{http.MethodGet, http.MethodHead})
			matcher["header"] = h.JSON(caddyhttp.MatchHeader{"Accept": {"*text/html*"}})
		}
		routes = append(routes, h.NewRoute(matcher, subroute(chain...))...)
	}
	if !slices.Contains(s.except, groupModels) {
		mount(caddyhttp.MatchPath{"/v1/models*"}, &Auth{Scopes: []identity.Scope{identity.ModelsRead}}, new(RateLimit), new(Models))
	}
	if !slices.Contains(s.except, groupChat) {
		mount(caddyhttp.MatchPath{"/v1/chat/completions"}, &Auth{Scopes: []identity.Scope{identity.ChatWrite}}, new(RateLimit), new(Chat))
	}
	var groups caddyhttp.MatchPath
	for _, group := range apiGroups {
		if !slices.Contains(s.except, group) {
			groups = append(groups, "/"+group+"*")
		}
	}
	if groups != nil {
		mount(groups, new(API))
	}
	if !s.dashboardOff {
		mount(caddyhttp.MatchPath{"/dashboard*"}, new(Dashboard))
	}
	if !s.docsOff {
		mount(caddyhttp.MatchPath{"/docs*"}, new(Docs))
	}
	if !s.widgetOff {
		mount(caddyhttp.MatchPath{"/widget/*"}, new(Widget))
	}
	for _, name := range s.platforms {
		d := messagingPlatforms.named(name).Describe()
		webhooks := messaging.WebhookPath(d)
		if d.ChannelWebhooks {
			webhooks += "*"
		}
		mount(caddyhttp.MatchPath{webhooks}, &Webhook{Platform: name})
	}
	if s.payments {
		mount(caddyhttp.MatchPath{webhook.PaymentsPath + "*"}, new(Payments))
	}
	if !s.dashboardOff {
		mount(caddyhttp.MatchPath{"/"}, &caddyhttp.StaticResponse{
			StatusCode: "302", Headers: http.Header{"Location": {"/dashboard"}},
		})
	}
	mount(nil, new(Error))
	h.GroupRoutes(routes)
	return append(routes, httpcaddyfile.ConfigValue{Class: "error_route", Value: subroute(subroute(new(Error)))})
}

// subroute returns one route with a chain of handlers.
func subroute(chain ...caddyhttp.MiddlewareHandler) *caddyhttp.Subroute {
	var raw []json.RawMessage
	for _, handler := range chain {
		id := caddy.ModuleID(caddy.GetModuleID(handler))
		raw = append(raw, caddyconfig.JSONModuleObject(handler, "handler", id.Name(), nil))
	}
	return &caddyhttp.Subroute{Routes: caddyhttp.RouteList{{HandlersRaw: raw}}}
}
