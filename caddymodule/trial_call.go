package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// TrialCall makes one chat completion as a client with an API key would, through the handlers of svc_auth and svc_chat and a
// configuration in Caddy's JSON form, of which it uses the svc block. It listens nowhere. The call is charged like any other.
// The returned answer is the response's status and whole body; the error is that of the configuration or the store. Errors
// call the configuration name. It may be called once per process, which is expected to end after it.
func TrialCall(ctx context.Context, configuration []byte, name, key string, body []byte) (status int, answer []byte, err error) {
	app, site, err := provisionTrial(configuration, name)
	if err != nil {
		return 0, nil, err
	}
	defer func() {
		beginExit()
		err = errors.Join(err, app.Stop(), app.Cleanup())
		endExit()
	}()
	if err := app.Start(); err != nil {
		return 0, nil, fmt.Errorf("starting the service: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("making the request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	r.RequestURI, r.RemoteAddr = r.URL.Path, "127.0.0.1:1"
	w := &keptResponse{header: http.Header{}}
	site.ServeHTTP(w, r)
	return w.status, w.body.Bytes(), nil
}

// provisionTrial returns the app of a configuration and a server with its chat completions.
func provisionTrial(configuration []byte, name string) (*App, *caddyhttp.Server, error) {
	var read struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(caddy.RemoveMetaFields(configuration), &read); err != nil {
		return nil, nil, fmt.Errorf("%s is no Caddy configuration: %w", name, err)
	}
	if _, err := readApp(read.Apps, name); err != nil {
		return nil, nil, err
	}
	off := false
	ctx, err := caddy.ProvisionContext(&caddy.Config{
		Admin:   &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: &off}},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "FATAL"}}}},
		AppsRaw: caddy.ModuleMap{
			appName: read.Apps[appName],
			"http": json.RawMessage(`{"servers": {"trial": {"listen": ["127.0.0.1:0"], "automatic_https": {"disable": true}, "protocols": ["h1"],
				"routes": [{"handle": [{"handler": "svc_auth", "scopes": ["chat:write"]}, {"handler": "svc_chat"}]}],
				"errors": {"routes": [{"handle": [{"handler": "svc_error"}]}]}}}}`),
			// The certificates in the storage are the server's to look after.
			"tls": json.RawMessage(`{"disable_storage_clean": true}`),
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	found, err := ctx.AppIfConfigured(appName)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	site, err := ctx.AppIfConfigured("http")
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	app, isApp := found.(*App)
	sites, isHTTP := site.(*caddyhttp.App)
	if !isApp || !isHTTP {
		return nil, nil, fmt.Errorf("%s: the apps are a %T and a %T", name, found, site)
	}
	return app, sites.Servers["trial"], nil
}

// keptResponse is a response that is kept in memory.
type keptResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *keptResponse) Header() http.Header { return k.header }

func (k *keptResponse) WriteHeader(status int) {
	if k.status == 0 {
		k.status = status
	}
}

func (k *keptResponse) Write(p []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	return k.body.Write(p)
}

func (*keptResponse) Flush() {}
