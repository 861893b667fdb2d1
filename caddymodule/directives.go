package caddymodule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// init registers the directives with their modules and their places in Caddy's order of directives. Several at one place are
// ordered as registered here. A site with a route block has its own order.
func init() {
	directive[Auth]("svc_auth", httpcaddyfile.Before, "basic_auth")
	directive[RateLimit]("svc_rate_limit", httpcaddyfile.After, "forward_auth")
	directive[Health]("svc_health", httpcaddyfile.Before, "respond")
	directive[Models]("svc_models", httpcaddyfile.Before, "reverse_proxy")
	directive[Chat]("svc_chat", httpcaddyfile.Before, "reverse_proxy")
	directive[API]("svc_api", httpcaddyfile.Before, "reverse_proxy")
	directive[Docs]("svc_docs", httpcaddyfile.Before, "reverse_proxy")
	directive[Dashboard]("svc_dashboard", httpcaddyfile.Before, "reverse_proxy")
	directive[Widget]("svc_widget", httpcaddyfile.Before, "reverse_proxy")
	directive[Webhook]("svc_webhook", httpcaddyfile.Before, "reverse_proxy")
	directive[Error]("svc_error", httpcaddyfile.After, "acme_server")
}

// behindAuthOnly are the directives that need svc_auth before them.
var behindAuthOnly = []string{"svc_rate_limit", "svc_models", "svc_chat"}

type handlerModule[T any] interface {
	*T
	caddy.Module
	caddyhttp.MiddlewareHandler
	caddyfile.Unmarshaler
}

// appChecker is implemented by handlers whose options refer to the svc block, such as the name of a platform.
type appChecker interface {
	// checkApp fails if app doesn't have what the handler refers to.
	checkApp(app *App) error
}

// directive registers the handler T, the directive that configures it, and the directive's place.
func directive[T any, H handlerModule[T]](name string, position httpcaddyfile.Positional, anchor string) {
	caddy.RegisterModule(H(new(T)))
	httpcaddyfile.RegisterHandlerDirective(name, func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		handler := H(new(T))
		h.Next()
		word := h.Token()
		h.Reset()
		if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
			return nil, err
		}
		if name == "svc_error" {
			return handler, nil
		}
		app, err := adaptedApp(h)
		if err != nil {
			return nil, h.Errf("%s: %w", name, err)
		}
		site := siteOf(h)
		if fault := site.sharedWithWorker(h, app); fault != "" {
			return nil, errors.New(fault)
		}
		if slices.Contains(behindAuthOnly, name) && !site.behindAuth(word) {
			return nil, h.Errf("%s: needs svc_auth before it, or every request ends with internal_error; e.g. `svc_auth %s`",
				name, identity.ChatWrite)
		}
		if webhook, ok := any(handler).(*Webhook); ok {
			if fault := site.strips(word, webhook.path()); fault != "" {
				return nil, h.Errf("%s: %s", name, fault)
			}
		}
		if checker, ok := any(handler).(appChecker); ok {
			if err := checker.checkApp(app); err != nil {
				return nil, h.WrapErr(err)
			}
		}
		return handler, nil
	})
	httpcaddyfile.RegisterDirectiveOrder(name, position, anchor)
}

// adaptedApp returns the app of the svc block as the adapter has read it.
func adaptedApp(h httpcaddyfile.Helper) (*App, error) {
	switch block := h.Option(appName).(type) {
	case nil:
		return nil, fmt.Errorf("there is no %s block in the global options; it configures the store and the models", appName)
	case httpcaddyfile.App:
		app := new(App)
		if err := caddy.StrictUnmarshalJSON(block.Value, app); err != nil {
			return nil, fmt.Errorf("reading the %s block: %w", appName, err)
		}
		return app, nil
	default:
		return nil, fmt.Errorf("the %s block was read as a %T", appName, block)
	}
}

func moduleInfo[T any, H handlerModule[T]](name string) caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  caddy.ModuleID("http.handlers." + name),
		New: func() caddy.Module { return H(new(T)) },
	}
}

// configuredApp returns the app for the handler called name, and marks it as used. Unlike caddy.Context.App it doesn't create
// an empty app, whose error would only list the missing options.
func configuredApp(ctx caddy.Context, name string) (*App, error) {
	configured, err := ctx.AppIfConfigured(appName)
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil, fmt.Errorf("%s needs the app %s, which is not configured", name, appName)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	app, ok := configured.(*App)
	if !ok {
		return nil, fmt.Errorf("%s: the app %s is a %T", name, appName, configured)
	}
	app.attach()
	rememberConn(ctx)
	return app, app.requireFree(ctx)
}

// noOptions is embedded in handlers without options. Syntax of their directives:
//
//	svc_<name> [<matcher>]
type noOptions struct{ app *App }

// UnmarshalCaddyfile refuses arguments and blocks. It implements caddyfile.Unmarshaler.
func (*noOptions) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	name := d.Val()
	if d.NextArg() {
		return d.Errf("%s takes no arguments, found %s", name, config.Quoted(d.Val()))
	}
	for d.NextBlock(0) {
		return d.Errf("%s takes no block, found %s", name, config.Quoted(d.Val()))
	}
	return nil
}

// Provision finds the app. It implements caddy.Provisioner.
func (n *noOptions) Provision(ctx caddy.Context) (err error) {
	n.app, err = configuredApp(ctx, ctx.Module().CaddyModule().ID.Name())
	return err
}

var _ caddy.Provisioner = (*noOptions)(nil)
