package caddymodule

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/docs"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/openapi"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
)

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
func (*Docs) CaddyModule() caddy.ModuleInfo { return moduleInfo[Docs]("svc_docs") }

// Provision finds the app and makes its errors link to the page.
func (h *Docs) Provision(ctx caddy.Context) error {
	if err := h.noOptions.Provision(ctx); err != nil {
		return err
	}
	h.app.docsMounted.Store(true)
	return nil
}

// ServeHTTP answers the request; no handler after it runs.
func (h *Docs) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return h.app.serve("svc_docs", w, r, func(rt *runtime, w http.ResponseWriter, r *http.Request) error {
		docs, err := rt.docs()
		if err != nil {
			return err
		}
		return docs.Serve(w, r)
	})
}

// docsURL is the address of the page that explains errors, empty without svc_docs; the app may be nil.
func (a *App) docsURL() string {
	if a == nil || !a.docsMounted.Load() {
		return ""
	}
	return openapi.URL(a.BaseURL)
}

// newDocs returns the description of the interface. It only fails for a route that was forgotten in it, which is the program's fault.
func (a *App) newDocs(api *endpoint.Server, catalog *messaging.Catalog) (*openapi.Docs, error) {
	described, err := openapi.New(api, openapi.Config{
		BaseURL: a.BaseURL, SignatureHeaders: a.signatureHeaders(), Catalog: catalog, FailureModes: docs.FailureModes, Version: Version(),
	})
	if err != nil {
		return nil, fmt.Errorf("describing the interface: %w", err)
	}
	return described, nil
}
