package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/caddy-svc/caddy-svc/providers"
)

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
