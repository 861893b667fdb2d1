// Package pager is an adapter to a made-up messaging platform, the pager. It is the example of docs/extending.md.
package pager

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/verify"
)

// Type is the channel type of a pager account.
const Type platforms.Type = "pager"

const signatureHeader = "X-Pager-Signature"

// Driver is the [platforms.Driver] of the pager.
type Driver struct{}

// Describe implements [platforms.Driver].
func (Driver) Describe() *platforms.Description {
	return &platforms.Description{
		Name: "pager", Deliveries: "Pages of the pager", SignatureHeader: signatureHeader,
		SignatureHelp: "sha256= and the HMAC-SHA256 of the raw body in hex, with the signing key as its key.",
		Options: []option.Option{
			{Name: "signing_key", Kind: option.Secret, Required: true, Help: "The key that signs webhooks."},
		},
		Channels: []platforms.ChannelType{{
			Type: Type, Label: "Pager", ExternalID: "Account number", ExternalIDHint: "It is printed on the back of the pager.",
			Credentials: []platforms.CredentialField{platforms.AccessTokenField("The pager's website shows it once.")},
			Limit:       platforms.Limit{Most: 160},
			Before:      []string{"Buy a pager and note its token."},
			After:       []string{"On the pager's website enter the webhook address %u"},
			WindowHelp:  "Pages can be sent at any time.",
		}},
	}
}

// New implements [platforms.Driver].
func (Driver) New(config *platforms.Config) (platforms.Platform, error) {
	base, err := config.Base("https://api.pager.example", "api_base")
	if err != nil {
		return nil, fmt.Errorf("api_base: %w", err)
	}
	return &pager{*config, base}, nil
}

type pager struct {
	config platforms.Config
	base   *url.URL
}

// Verify implements [platforms.SignedDeliveries].
func (p *pager) Verify(d *platforms.Delivery) error {
	return verify.HMAC(d.Header, cmp.Or(p.config.Options["header"], signatureHeader), "sha256=", p.config.Options["signing_key"], d.Body)
}

// Extract reads {"pages":[{"account":…,"from":…,"id":…,"text":…}]}.
func (p *pager) Extract(body []byte) ([]platforms.Inbound, error) {
	delivery, err := platforms.ParseObject(body)
	if err != nil {
		return nil, err
	}
	found := platforms.Collect(len(body))
	for pages := delivery.Member("pages").Elements(); pages.Next(); {
		page := pages.Value
		in := platforms.Inbound{
			Type: Type, ExternalID: page.Member("account").ID(), MessageID: page.Member("id").ID(),
			Conversation: page.Member("from").ID(), Address: page.Member("from").ID(),
		}
		found.Add(in.WithContent(page.Member("text").Text(platforms.MaxText), ""))
	}
	return found.All(), nil
}

// Send implements [platforms.Platform].
func (p *pager) Send(ctx context.Context, out *platforms.Outgoing) (string, error) {
	return p.call(ctx, out.Credentials, "/pages", map[string]string{"to": out.Address, "text": out.Text})
}

// Identify implements [platforms.Platform].
func (p *pager) Identify(ctx context.Context, channel *platforms.Channel) ([]string, error) {
	account, err := p.call(ctx, channel.Credentials, "/whoami", map[string]string{})
	if err != nil {
		return nil, err
	}
	return []string{account}, nil
}

// call returns the id of an answer {"id":…}. Failures are {"error":…}.
func (p *pager) call(ctx context.Context, credentials platforms.Credentials, path string, body any) (string, error) {
	token := credentials[platforms.AccessToken]
	if problem := platforms.CheckToken(token); problem != "" {
		return "", platforms.Unauthorized(false, &platforms.FieldError{Field: platforms.AccessToken, Problem: problem})
	}
	r, failure := p.config.Client.Do(ctx, &platforms.Request{
		Name: "pager", Base: p.base, Method: http.MethodPost, Path: path, JSON: body,
		Header: map[string]string{"Authorization": "Bearer " + token},
	})
	if failure != nil {
		return "", failure
	}
	var answer struct {
		ID    platforms.Word `json:"id"`
		Error platforms.Word `json:"error"`
	}
	if !r.Decode(&answer) || answer.ID == "" && answer.Error == "" {
		return "", r.Unreadable(false)
	}
	cause := r.Error(string(answer.Error), "")
	switch answer.Error {
	case "":
		return string(answer.ID), nil
	case "switched_off":
		return "", platforms.Fail(platforms.CustomerBlocked, cause)
	}
	return "", r.Unlisted(false, cause)
}

// Interface guards.
var (
	_ platforms.Driver           = Driver{}
	_ platforms.SignedDeliveries = (*pager)(nil)
)
