package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// trialTokens bounds the answer of a trial call, with room for a model that thinks before it answers.
const trialTokens = 512

// TrialCall sends a model one prompt for an organization, with the svc block of a configuration in Caddy's JSON form. It listens
// nowhere. The call is charged like any other. The error is that of the configuration or the store, or says why the vendor failed
// and what to do. Errors call the configuration name. It may be called once per process, which is expected to end after it.
func TrialCall(ctx context.Context, configuration []byte, name, orgID, model, question string) (result *gateway.Result, err error) {
	app, err := provisionTrial(configuration, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		beginExit()
		err = errors.Join(err, app.Stop(), app.Cleanup())
		endExit()
	}()
	if err := app.Start(); err != nil {
		return nil, fmt.Errorf("starting the service: %w", err)
	}
	result, err = app.runtime.calls.Call(ctx, &gateway.Request{
		RequestID: store.NewID("req"), OrgID: orgID, Env: store.Live, Model: model, MaxTokens: trialTokens,
		Messages: []providers.Message{{Role: "user", Content: providers.Quote(question)}},
	}, nil)
	return result, app.explainTrial(err, model)
}

// provisionTrial returns the app of a configuration.
func provisionTrial(configuration []byte, name string) (*App, error) {
	var read struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(caddy.RemoveMetaFields(configuration), &read); err != nil {
		return nil, fmt.Errorf("%s is no Caddy configuration: %w", name, err)
	}
	if _, err := readApp(read.Apps, name); err != nil {
		return nil, err
	}
	off := false
	ctx, err := caddy.ProvisionContext(&caddy.Config{
		Admin:   &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: &off}},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "FATAL"}}}},
		AppsRaw: caddy.ModuleMap{appName: read.Apps[appName]},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	found, err := ctx.AppIfConfigured(appName)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	app, ok := found.(*App)
	if !ok {
		return nil, fmt.Errorf("%s: the app is a %T", name, found)
	}
	return app, nil
}
