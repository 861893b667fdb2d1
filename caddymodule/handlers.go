package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/docs"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/openapi"
	"github.com/caddy-svc/caddy-svc/internal/console"
	"github.com/caddy-svc/caddy-svc/internal/dashboard"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

// Models serves `GET /v1/models`, the models that are enabled for the organization, and `GET /v1/models/{id}`, one of them.
// It needs svc_auth before it. Other requests end with 404 `not_found`.
//
// Syntax:
//
//	svc_models [<matcher>]
type Models struct{ keyed }

// CaddyModule returns the Caddy module information.
func (*Models) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_models", New: func() caddy.Module { return new(Models) }}
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Models) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.models.Serve(w, r)
	})
}

// Chat serves `POST /v1/chat/completions`, as one JSON body or as a stream of events, and charges the wallet of the
// organization. It needs svc_auth before it. An error after the first byte of a stream is an event of the stream.
//
// Syntax:
//
//	svc_chat [<matcher>]
type Chat struct{ keyed }

// CaddyModule returns the Caddy module information.
func (*Chat) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_chat", New: func() caddy.Module { return new(Chat) }}
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Chat) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	err := h.handle(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.chat.Serve(w, r)
	})
	if err != nil { // else the body was read, with a deadline of its own
		handlers.BoundUnread(w, r, h.app.bodyGrace())
	}
	return err
}

// API serves `/api-keys`, `/provider-keys`, `/agents`, `/knowledge-bases`, `/channels`, `/conversations`, `/wallet` and
// `/event-endpoints`, and for people `/session`, `/members`, `/organization` and `/audit-log`. It needs no svc_auth before it: it checks the key or
// the login session itself, because every endpoint has its own scope and role. Unknown paths and methods end with 404
// `not_found`.
//
// Failed logins are counted against Caddy's `{client_ip}`: behind a proxy name it in the server's `trusted_proxies`.
//
// Syntax:
//
//	svc_api [<matcher>]
type API struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*API) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_api", New: func() caddy.Module { return new(API) }}
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *API) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.api().Serve(w, withClientAddress(r))
	})
}

// Docs serves the interface description at `/docs`: OpenAPI 3.1 as JSON, or a page for browsers. It is generated from the
// routes of the service. `/docs/openapi.json` and `/docs/openapi.yaml` have one form, whatever the client accepts.
//
// A configuration with it adds `docsUrl` to every error: the address of the code's entry on the page, under base_url.
//
// Syntax:
//
//	svc_docs [<matcher>]
type Docs struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*Docs) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_docs", New: func() caddy.Module { return new(Docs) }}
}

// Provision finds the app and makes its errors link to the page.
func (h *Docs) Provision(ctx caddy.Context) error {
	if err := h.noOptions.Provision(ctx); err != nil {
		return err
	}
	h.app.docsMounted.Store(true)
	return nil
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Docs) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		docs, err := rt.docs()
		if err != nil {
			return err
		}
		return docs.Serve(w, r)
	})
}

// newDocs returns the description of the interface, or of the operator's. It only fails for a route that was forgotten in it, which is the
// program's fault.
func (a *App) newDocs(api *endpoint.Server, catalog *messaging.Catalog, operator bool) (*openapi.Docs, error) {
	headers := map[string]string{} // that the operator chose for signatures, by the name of the platform
	for name, block := range a.Platforms {
		if block != nil {
			headers[name] = block.values[optionHeader]
		}
	}
	described, err := openapi.New(api, openapi.Config{
		Operator: operator, BaseURL: a.BaseURL, SignatureHeaders: headers, Catalog: catalog, FailureModes: docs.FailureModes, Version: Version(),
	})
	if err != nil {
		return nil, fmt.Errorf("describing the interface: %w", err)
	}
	return described, nil
}

// Dashboard serves the pages for people at `/dashboard`: keys, assistants, channels, conversations, the wallet and members. It
// runs the operations of svc_api inside this process, so it doesn't need svc_api beside it. It sets its own security headers,
// such as a strict Content-Security-Policy.
//
// People sign in over https, or over plain http on this machine (http://localhost). `caddy svc user invite` makes their first
// one-time link. Failed logins are counted per client, by Caddy's `{client_ip}`: behind a proxy, set the server's
// `trusted_proxies`. The path must be `/dashboard`, because one-time links lead there.
//
// Syntax:
//
//	svc_dashboard [<matcher>]
type Dashboard struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*Dashboard) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_dashboard", New: func() caddy.Module { return new(Dashboard) }}
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		r, _ = handlers.EnsureRequestID(w, withClientAddress(r))
		rt.dashboard().ServeHTTP(w, r)
		return nil
	})
}

// newDashboard builds the dashboard over the operations of server. Their errors are counted and logged as by svc_error.
func (a *App) newDashboard(
	server *endpoint.Server, catalog *messaging.Catalog, sessions *handlers.Sessions, bodies *handlers.ByteBudget,
) *dashboard.Dashboard {
	return dashboard.New(dashboard.Config{
		Person: func(r *http.Request) (*identity.Principal, error) {
			person, err := server.Person(r)
			if err != nil {
				return nil, a.failedPage(r, err)
			}
			return person, nil
		},
		Ask: func(
			w http.ResponseWriter, r *http.Request, person *identity.Principal, o api.Operation, in endpoint.Values,
		) (answer any, err error) {
			if answer, err = server.Ask(w, r, person, o.Spec().ID, in); err != nil {
				return nil, a.failedPage(r, err)
			}
			return answer, nil
		},
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := server.Serve(w, r); err != nil {
				handlers.WriteError(w, r, a.failedPage(r, err), "")
			}
		}),
		BaseURL: a.BaseURL, ChannelTypes: catalog.Declared(),
		Providers: a.ProviderNames(), Currency: a.Currency,
		SignInRefusal: func(r *http.Request) string {
			if refusal, ok := errors.AsType[*handlers.Error](sessions.Allowed(r)); ok {
				return refusal.Message
			}
			return ""
		},
		Bodies: bodies,
		Logger: a.log,
	})
}

// failedPage counts and logs an error of an operation that a page runs, as svc_error does.
func (a *App) failedPage(r *http.Request, err error) *handlers.Error {
	answer := publicError(err)
	reportFailure(a.log, r, answer, answer.Caller)
	return answer
}

// Widget serves the web widget of channels of type `widget` at `/widget/{channelId}`: the script that a site embeds, the
// chat in its frame, and the requests of both. It needs no key and accepts the origins that the channel allows. Answers are
// streamed, and charged to the channel's organization. The path must be `/widget`.
//
// Requests are counted per client as well, by Caddy's `{client_ip}`: behind a proxy, set the server's `trusted_proxies`.
//
// Syntax:
//
//	svc_widget [<matcher>]
type Widget struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (*Widget) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_widget", New: func() caddy.Module { return new(Widget) }}
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Widget) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.widget().Serve(w, withClientAddress(r))
	})
}

// Operator serves the interface of the operator at `/operator`: organizations, their keys, wallets and channels, the queue, and the state of the
// service, for programs with an operator's key (`caddy svc operator key create`). `/operator/docs` describes it. No other key is accepted, and
// operators' keys are accepted nowhere else.
//
// It belongs on a private listener. On a listener that other machines may reach it is refused, unless the block says `confirm public`. Its
// description needs a key there. A listener is private if it is a Unix socket, or an address of this machine alone (`bind 127.0.0.1`) or of a
// private network.
//
// Syntax:
//
//	svc_operator [<matcher>] {
//	    confirm public
//	}
type Operator struct{ private }

// CaddyModule returns the Caddy module information.
func (*Operator) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_operator", New: func() caddy.Module { return new(Operator) }}
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Operator) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		r = withClientAddress(r)
		if !openapi.IsOperatorDocs(r.URL.Path) {
			return rt.operator().Serve(w, r)
		}
		if h.public {
			if err := rt.operator().Known(w, r); err != nil {
				return err
			}
		}
		docs, err := rt.operatorDocs()
		if err != nil {
			return err
		}
		return docs.Serve(w, r)
	})
}

// Webhook receives the customer messages that a platform delivers. It checks the signature over the raw bytes, puts the
// messages on the queue and responds with 200 and `{"ok":true,"queued":n}`. A wrong signature ends with 401
// `unauthenticated`. A worker replies to the customers later.
//
// The request must reach it as the platform sent it: under `/webhooks/…`, with no handler before it that reads or rewrites
// the body.
//
// Syntax:
//
//	svc_webhook [<matcher>] <platform>
type Webhook struct {
	// The platform, by the name of its module in the namespace `svc.platforms`. Platforms with required options must be
	// configured in the app. Required.
	Platform string `json:"platform,omitempty"`

	inApp

	// rewritten: it was logged that deliveries come with another path.
	rewritten sync.Once
}

// CaddyModule returns the Caddy module information.
func (*Webhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_webhook", New: func() caddy.Module { return new(Webhook) }}
}

// UnmarshalCaddyfile reads the directive.
func (h *Webhook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		h.Platform = d.Val()
	}
	if err := h.platformFault(); err != nil {
		return d.WrapErr(err)
	}
	if d.NextArg() {
		return d.Errf("svc_webhook takes one platform, found %s, too", config.Quoted(d.Val()))
	}
	return noBlock(d, "svc_webhook", "; options of a platform stand in the "+appName+" block")
}

func (h *Webhook) platformFault() error {
	if h.Platform == "" {
		return fmt.Errorf("svc_webhook needs a platform; allowed: %s", config.Listed(messagingPlatforms.names()))
	}
	if fault := messagingPlatforms.missing(h.Platform); fault != "" {
		return fmt.Errorf("svc_webhook: %s", fault)
	}
	return nil
}

// misplaced checks that no handler before this one changes the path of deliveries, and that the platform is configured.
func (h *Webhook) misplaced(at placement) error {
	if fault := cmp.Or(at.site.strips(at.word, h.path()), at.app.unconfiguredPlatform(h.Platform)); fault != "" {
		return errors.New(fault)
	}
	return nil
}

// unconfiguredPlatform returns the text of a fault if the platform of that name needs a block and has none, else an
// empty text.
func (a *App) unconfiguredPlatform(name string) string {
	if a.Platforms.configured(messagingPlatforms.named(name).Describe()) {
		return ""
	}
	return fmt.Sprintf("the %s block has no `platform %s`, which holds what its webhooks are checked with", appName, name)
}

// Provision finds the app.
func (h *Webhook) Provision(ctx caddy.Context) error {
	if err := h.platformFault(); err != nil {
		return err
	}
	if err := h.inApp.Provision(ctx); err != nil {
		return err
	}
	if fault := h.app.unconfiguredPlatform(h.Platform); fault != "" {
		return fmt.Errorf("svc_webhook: %s", fault)
	}
	return nil
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if h.isRewritten(r) {
		h.rewritten.Do(func() {
			h.app.log.Error("a rewrite or uri before svc_webhook changes the path of deliveries, which all end with not_found; "+
				"exclude the webhooks from it", "platform", h.Platform, "path", loggedPath(r.URL.Path))
		})
	}
	err := h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		return rt.webhooks[h.Platform](w, r)
	})
	countWebhook(h.Platform, err)
	return err
}

// path returns the path of the platform's webhook; a channel's id follows if it ends with a slash.
func (h *Webhook) path() string {
	return messaging.WebhookPath(messagingPlatforms.named(h.Platform).Describe())
}

// isRewritten reports whether a handler before this one has replaced the webhook's path of a request, so that it ends with
// not_found. No platform would report that to the operator.
func (h *Webhook) isRewritten(r *http.Request) bool {
	came, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	if !ok || came.URL.Path == r.URL.Path {
		return false
	}
	path := h.path()
	ours := func(requested string) bool {
		return requested == path || strings.HasSuffix(path, "/") && strings.HasPrefix(requested, path)
	}
	return ours(came.URL.Path) && !ours(r.URL.Path)
}

// countWebhook counts a delivery by its outcome.
func countWebhook(platform string, err error) {
	outcome := "accepted"
	if err != nil {
		outcome = string(publicError(err).Code)
	}
	webhooksTotal.WithLabelValues(platform, outcome).Inc()
}

// Console serves the pages of the service's operators at `/console`: organizations and their wallets, keys, models, people and channels, the
// queue, vendors and the audit log. It runs the operations of svc_operator inside this process, so it doesn't need svc_operator beside it.
//
// Operators sign in with accounts that `caddy svc operator add` makes, over https or on this machine (http://localhost), with a second factor.
// Like svc_operator it belongs on a private listener, and is refused elsewhere unless its block says `confirm public`. The path must be
// `/console`.
//
// Syntax:
//
//	svc_console [<matcher>] {
//	    confirm public
//	}
type Console struct{ private }

// CaddyModule returns the Caddy module information.
func (*Console) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_console", New: func() caddy.Module { return new(Console) }}
}

// ServeHTTP responds to the request. No handler after it runs.
func (h *Console) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.serve(w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		r, _ = handlers.EnsureRequestID(w, withClientAddress(r))
		rt.console().ServeHTTP(w, r)
		return nil
	})
}

// newConsole builds the console over the operations of server. Their errors are counted and logged as by svc_error.
func (a *App) newConsole(
	server *endpoint.Server, deps *api.Deps, operators *handlers.OperatorSessions, bodies *handlers.ByteBudget,
) *console.Console {
	deps.Complete()
	return console.New(console.Config{
		Operators: operators,
		Ask: func(
			w http.ResponseWriter, r *http.Request, by *identity.Principal, orgID string, o api.Operation, in endpoint.Values,
		) (answer any, err error) {
			by, err = deps.Operator(r.Context(), *by, orgID)
			if err == nil {
				answer, err = server.Ask(w, r, by, o.Spec().ID, in)
			}
			if err != nil {
				return nil, a.failedPage(r, err)
			}
			return answer, nil
		},
		Currency: a.Currency, Bodies: bodies, Logger: a.log,
	})
}
