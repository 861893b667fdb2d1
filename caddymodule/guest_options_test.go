package caddymodule

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	caddyfiletext "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/providers"
)

// guest is a driver outside this repository, with every kind of option.
type guest struct{ panics bool }

func (guest) Describe() *providers.Description {
	return &providers.Description{Name: "guest", Label: "Guest", Options: []option.Option{
		{Name: "region", Required: true, Help: "The vendor's region.", Check: func(value string) string {
			if strings.ToLower(value) != value {
				return "must be in lower case"
			}
			return ""
		}},
		{Name: "auth_url", Kind: option.Address, Help: "Where tokens come from."},
		{Name: "account", Kind: option.Identifier, Help: "The account."},
		{Name: "signing_key", Kind: option.Secret, Help: "The key of signatures."},
	}}
}

func (g guest) New(*providers.Config) (providers.Provider, error) {
	if g.panics {
		panic(planted)
	}
	return nil, nil //nolint:nilnil // nothing is called
}

// CheckOptions implements [option.Checker].
func (guest) CheckOptions(values map[string]string) map[string]string {
	if (values["account"] == "") != (values["signing_key"] == "") {
		return map[string]string{"account": "goes with signing_key"}
	}
	return nil
}

func TestOptionsOfAProtocol(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options map[string]string
		want    []string
	}{
		{map[string]string{"region": "asia", "auth_url": "https://x", "account": "{env.A}", "signing_key": "{env.B}"}, nil},
		{map[string]string{"region": "asia", "account": "a b", "signing_key": planted, "auth_url": "https://me:" + planted + "@x"}, []string{
			"p.auth_url: takes no user and no password, e.g. https://api.example.com",
			"p.account: must be 1 to 128 visible ASCII characters, or exactly one {env.NAME} or {file.PATH}",
			"p.signing_key: must be exactly one {env.NAME} or {file.PATH}; the secret itself must not be in the configuration",
		}},
		{map[string]string{"account": "a", "other": planted}, []string{
			"p.region: missing; The vendor's region.",
			`p: "other" is not an option here; allowed: region, auth_url, account, signing_key`,
			"p.account: goes with signing_key",
		}},
		{map[string]string{"region": "Asia"}, []string{"p.region: must be in lower case"}},
	} {
		var fs config.Faults
		(&Provider{Options: test.options}).optionFaults(&fs, "p", guest{})
		var found []string
		for _, f := range fs {
			found = append(found, f.String())
		}
		require.Equal(t, test.want, found)
	}
}

func TestOptionsOfAProtocolAreResolved(t *testing.T) {
	t.Parallel()
	p := &Provider{Options: map[string]string{
		"region": "asia", "account": "acc", "signing_key": string(secretFile(t, planted+"\n")),
	}}
	var fs config.Faults
	read := p.readOptions(caddy.NewReplacer(), &fs, "p", guest{})
	require.Empty(t, fs)
	require.Equal(t, map[string]string{"region": "asia", "account": "acc", "signing_key": planted}, read)

	p.Options["signing_key"] = "{env.SVC_TEST_NO_SUCH_KEY}"
	require.NotContains(t, p.readOptions(caddy.NewReplacer(), &fs, "p", guest{}), "signing_key")
	require.EqualError(t, fs.Err(), "p.signing_key: {env.SVC_TEST_NO_SUCH_KEY} is not set")
}

func TestOptionsOfAProtocolInACaddyfile(t *testing.T) {
	t.Parallel()
	tokens, err := caddyfiletext.Tokenize([]byte("svc {\nregion asia\nregion twice\naccount {env.A}\nsigning_key "+planted+" "+planted+
		"\nauth_url \"\"\nseats 4\n}"), "Caddyfile")
	require.NoError(t, err)
	r, block := caddyfile.NewReader(caddyfiletext.NewDispenser(tokens))
	options := map[string]string{}
	var rules []caddyfile.Rule
	for _, declared := range (guest{}).Describe().Options {
		rules = append(rules, optionRule(&declared, options))
	}
	r.Block("svc", block, rules)
	require.Equal(t, map[string]string{"region": "asia", "account": "{env.A}"}, options)
	err = r.Err(new(config.Faults), block)
	require.NotContains(t, err.Error(), planted)
	for _, want := range []string{
		"svc.region: given twice; first at Caddyfile:2, at Caddyfile:3",
		"svc.signing_key: takes one value: exactly one {env.NAME} or {file.PATH}, at Caddyfile:5",
		"svc.auth_url: is empty; give an address, at Caddyfile:6",
		`svc: "seats" is not an option here; allowed: region, auth_url, account, signing_key, at Caddyfile:7`,
	} {
		require.ErrorContains(t, err, want)
	}
}

// A guest that panics while it is made is a fault of the configuration, and what it panics with may be a secret.
func TestAModuleThatPanicsIsAFault(t *testing.T) {
	t.Parallel()
	_, err := newProvider(guest{panics: true}, &providers.Config{})
	require.EqualError(t, err, "the module panicked: string")
	_, err = newProvider(guest{}, &providers.Config{})
	require.EqualError(t, err, "the module made no provider")
}
