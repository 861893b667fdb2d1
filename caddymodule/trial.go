package caddymodule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"

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
		RequestID: store.NewID("req"), OrgID: orgID, Env: store.Live, Model: model, MaxTokens: max(trialTokens, app.leastMaxTokens(model)),
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

// explainTrial returns an error with the cause of a failed call in an operator's words. Other errors stay as they are.
func (a *App) explainTrial(err error, model string) error {
	failed := new(providers.Error)
	if !errors.As(err, &failed) {
		return err
	}
	name, _, _ := strings.Cut(model, "/")
	at := slices.IndexFunc(a.Providers, func(p *Provider) bool { return p.Name == name })
	if at < 0 {
		return err
	}
	said := ""
	if failed.Detail != "" {
		said = fmt.Sprintf(" The vendor said: %q", failed.Detail)
	}
	return errors.New(vendorFault(failed, a.Providers[at], a.upstreamModel(model)) + said)
}

// leastMaxTokens returns the smallest max_tokens of a model.
func (a *App) leastMaxTokens(id string) int64 {
	for _, model := range a.Models {
		if model.Name == id {
			return *model.LeastMaxTokens
		}
	}
	return 0
}

// upstreamModel returns the vendor's name of a model.
func (a *App) upstreamModel(id string) string {
	_, name, _ := strings.Cut(id, "/")
	for _, model := range a.Models {
		if model.Name == id {
			return cmp.Or(model.UpstreamModel, name)
		}
	}
	return name
}

// vendorFault returns a sentence with the cause of a vendor's failure and the remedy.
func vendorFault(failed *providers.Error, provider *Provider, model string) string {
	address := provider.BaseURL
	if parsed, err := url.Parse(provider.BaseURL); err == nil {
		address = parsed.Host
	}
	cause := ""
	if failed.Cause != nil {
		cause = failed.Cause.Error() // Caddy's transport hides what its errors wrap
	}
	switch {
	case strings.HasSuffix(cause, syscall.ECONNREFUSED.Error()):
		return fmt.Sprintf("nobody listens at %s. Start the server there, or correct base_url of the provider %s.", address, provider.Name)
	case strings.HasSuffix(cause, "no such host"):
		return fmt.Sprintf("the host %s isn't known. Correct base_url of the provider %s, or this machine's DNS.", address, provider.Name)
	case failed.Status == http.StatusUnauthorized || failed.Status == http.StatusForbidden:
		if provider.APIKey == NoKey {
			return fmt.Sprintf("%s wants a key (%d), and api_key of the provider %s is none.", address, failed.Status, provider.Name)
		}
		return fmt.Sprintf("%s refused the key (%d). Correct %s, which api_key of the provider %s names.", address, failed.Status,
			string(provider.APIKey), provider.Name)
	case failed.Status == http.StatusNotFound:
		return fmt.Sprintf("%s has no model %q, or base_url %s is wrong (404).", address, model, provider.BaseURL)
	case failed.Status == http.StatusPaymentRequired, failed.Status == http.StatusTooManyRequests && failed.Permanent:
		return fmt.Sprintf("the account at %s has no credits or quota left (%d).", address, failed.Status)
	case failed.Failure == providers.FailureTimeout:
		return fmt.Sprintf("%s didn't answer in time. Try again, or raise the timeouts of the provider %s.", address, provider.Name)
	case failed.Failure == providers.FailureOverloaded:
		return fmt.Sprintf("%s is overloaded or limits its calls (%d). Try again in a minute.", address, failed.Status)
	case failed.Status >= http.StatusMultipleChoices:
		return fmt.Sprintf("%s answered with status %d.", address, failed.Status)
	case cause != "":
		return fmt.Sprintf("%s can't be asked: %s.", address, cause)
	default:
		return address + " gave an answer that isn't one of the provider's protocol. Is base_url right?"
	}
}
