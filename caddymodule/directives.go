package caddymodule

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// init registers the handlers and their directives with their places in Caddy's order of directives. Several at one place are
// ordered as registered here. A site with a route block has its own order. The calls of RegisterModule are literal, because Caddy's
// module directory reads them from the source.
func init() {
	caddy.RegisterModule(new(Auth))
	caddy.RegisterModule(new(RateLimit))
	caddy.RegisterModule(new(Health))
	caddy.RegisterModule(new(Operator))
	caddy.RegisterModule(new(Console))
	caddy.RegisterModule(new(Models))
	caddy.RegisterModule(new(Chat))
	caddy.RegisterModule(new(API))
	caddy.RegisterModule(new(Docs))
	caddy.RegisterModule(new(Dashboard))
	caddy.RegisterModule(new(Widget))
	caddy.RegisterModule(new(Webhook))
	caddy.RegisterModule(new(Payments))
	caddy.RegisterModule(new(Error))

	directive[Auth](httpcaddyfile.Before, "basic_auth")
	directive[RateLimit](httpcaddyfile.After, "forward_auth")
	directive[Health](httpcaddyfile.Before, "respond")
	directive[Operator](httpcaddyfile.Before, "reverse_proxy")
	directive[Console](httpcaddyfile.Before, "reverse_proxy")
	directive[Models](httpcaddyfile.Before, "reverse_proxy")
	directive[Chat](httpcaddyfile.Before, "reverse_proxy")
	directive[API](httpcaddyfile.Before, "reverse_proxy")
	directive[Docs](httpcaddyfile.Before, "reverse_proxy")
	directive[Dashboard](httpcaddyfile.Before, "reverse_proxy")
	directive[Widget](httpcaddyfile.Before, "reverse_proxy")
	directive[Webhook](httpcaddyfile.Before, "reverse_proxy")
	directive[Payments](httpcaddyfile.Before, "reverse_proxy")
	directive[Error](httpcaddyfile.After, "acme_server")
}

type handlerModule[T any] interface {
	*T
	caddy.Module
	caddy.Provisioner
	caddyhttp.MiddlewareHandler
	caddyfile.Unmarshaler

	// needsApp reports whether the handler works only with the svc block.
	needsApp() bool
	// misplaced returns the reason why the directive can't work in its place in a Caddyfile, nil if it can.
	misplaced(at placement) error
}

// placement is a directive's place in a Caddyfile. A handler that doesn't need the app has none.
type placement struct {
	httpcaddyfile.Helper

	site site
	// word is the token that the directive begins with.
	word caddyfile.Token
	app  *App
}

// directive registers the directive that configures the handler T, and the directive's place.
func directive[T any, H handlerModule[T]](position httpcaddyfile.Positional, anchor string) {
	name := H(new(T)).CaddyModule().ID.Name()
	httpcaddyfile.RegisterHandlerDirective(name, func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		handler := H(new(T))
		h.Next()
		at := placement{Helper: h, site: siteOf(h), word: h.Token()}
		h.Reset()
		if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
			return nil, err
		}
		if !handler.needsApp() {
			return handler, nil
		}
		var err error
		if at.app, err = adaptedApp(h); err != nil {
			return nil, h.Errf("%s: %w", name, err)
		}
		if fault := at.site.sharedWithWorker(h, at.app); fault != "" {
			return nil, errors.New(fault)
		}
		if err := handler.misplaced(at); err != nil {
			return nil, h.Errf("%s: %w", name, err)
		}
		return handler, nil
	})
	httpcaddyfile.RegisterDirectiveOrder(name, position, anchor)
}

// adaptedApp returns the app of the svc block as the adapter has read it.
func adaptedApp(h httpcaddyfile.Helper) (*App, error) {
	block, given := h.Option(appName).(httpcaddyfile.App)
	if !given {
		return nil, fmt.Errorf("there is no %s block in the global options; it configures the store and the models", appName)
	}
	app := new(App)
	if err := caddy.StrictUnmarshalJSON(block.Value, app); err != nil {
		return nil, fmt.Errorf("reading the %s block: %w", appName, err)
	}
	return app, nil
}

// configured returns the app with the name, or nil if it isn't configured.
func configured[A any](ctx caddy.Context, name string) (*A, error) {
	found, err := ctx.AppIfConfigured(name)
	if errors.Is(err, caddy.ErrNotConfigured) {
		err = nil
	}
	app, _ := found.(*A)
	return app, err
}

// configuredApp returns the app for the handler called name, and marks it as used. Unlike caddy.Context.App it doesn't create
// an empty app, because the error of an empty app would only list the missing options.
func configuredApp(ctx caddy.Context, name string) (*App, error) {
	app, err := configured[App](ctx, appName)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if app == nil {
		return nil, fmt.Errorf("%s needs the app %s, which is not configured", name, appName)
	}
	app.attached.Store(true)
	rememberConn(ctx)
	return app, app.requireFree(ctx)
}

// inApp is embedded in handlers that need the app.
type inApp struct {
	app *App
	// name is the name of the directive.
	name string
}

// Provision finds the app. It implements caddy.Provisioner.
func (h *inApp) Provision(ctx caddy.Context) (err error) {
	h.name = ctx.Module().CaddyModule().ID.Name()
	h.app, err = configuredApp(ctx, h.name)
	return err
}

func (*inApp) needsApp() bool { return true }

func (*inApp) misplaced(placement) error { return nil }

// noOptions is embedded in handlers without options. Syntax of their directives:
//
//	svc_<name> [<matcher>]
type noOptions struct{ inApp }

// UnmarshalCaddyfile refuses arguments and blocks. It implements caddyfile.Unmarshaler.
func (*noOptions) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	name := d.Val()
	if d.NextArg() {
		return d.Errf("%s takes no arguments, found %s", name, config.Quoted(d.Val()))
	}
	return noBlock(d, name, "")
}

// noBlock refuses a block of the directive called name. The error ends with hint.
func noBlock(d *caddyfile.Dispenser, name, hint string) error {
	if d.NextBlock(0) {
		return d.Errf("%s takes no block, found %s%s", name, config.Quoted(d.Val()), hint)
	}
	return nil
}

// keyed is embedded in handlers without options that need svc_auth before them.
type keyed struct{ noOptions }

func (*keyed) misplaced(at placement) error {
	if at.site.behindAuth(at.word) {
		return nil
	}
	return fmt.Errorf("needs svc_auth before it, or every request ends with internal_error; e.g. `svc_auth %s`", identity.ChatWrite)
}

// private is embedded in handlers that belong on a private listener. The listener is private if it is a Unix socket, or an address of this machine
// alone (`bind 127.0.0.1`) or of a private network.
type private struct {
	// Serve it also on a listener that isn't private.
	ConfirmPublic bool `json:"confirm_public,omitempty"`

	inApp

	public bool
}

// UnmarshalCaddyfile reads the directive.
func (h *private) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	name := d.Val()
	if d.NextArg() {
		return d.Errf("%s takes no arguments, found %s", name, config.Quoted(d.Val()))
	}
	for d.NextBlock(0) {
		line := append([]string{d.Val()}, d.RemainingArgs()...)
		if !slices.Equal(line, []string{"confirm", "public"}) {
			return d.Errf("%s: %s is not an option; allowed: confirm public", name, config.Quoted(strings.Join(line, " ")))
		}
		h.ConfirmPublic = true
	}
	return nil
}

// Provision finds the app and refuses a public listener.
func (h *private) Provision(ctx caddy.Context) error {
	address := publicListener(ctx)
	if h.public = address != ""; h.public && !h.ConfirmPublic {
		return fmt.Errorf("other machines may reach %s. Give the site `bind 127.0.0.1` or an address of a private network, or write "+
			"`confirm public` into the directive's block", address)
	}
	return h.inApp.Provision(ctx)
}
