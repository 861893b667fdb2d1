package caddymodule

import (
	"errors"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/providers"
)

// guestOption is an option with one value that a driver declares: a [platforms.Option] or a [providers.Option]. Options are
// read, checked and resolved here, so that the faults and secrets of a guest follow the same rules as all others.
type guestOption struct {
	name     string
	kind     platforms.OptionKind
	required bool
	check    func(value string) (problem string)
	help     string
}

// The kinds of options are the same in both contracts.
var _ = [1]struct{}{}[int(providers.SecretOption)-int(platforms.SecretOption)]

// platformOptions returns the options of a platform that aren't tables.
func platformOptions(d *platforms.Description) []guestOption {
	var all []guestOption
	for i := range d.Options {
		if o := &d.Options[i]; o.Keys == nil {
			all = append(all, platformOption(o))
		}
	}
	return all
}

func platformOption(o *platforms.Option) guestOption {
	return guestOption{name: o.Name, kind: o.Kind, required: o.Required, check: o.Check}
}

func protocolOptions(driver providers.Driver) []guestOption {
	declared := driver.Describe().Options
	all := make([]guestOption, len(declared))
	for i, o := range declared {
		all[i] = guestOption{name: o.Name, kind: platforms.OptionKind(o.Kind), required: o.Required, check: o.Check, help: o.Help}
	}
	return all
}

// rule reads the option into values.
func (o guestOption) rule(r *caddyfile.Reader, values map[string]string) caddyfile.Rule {
	switch o.kind {
	case platforms.SecretOption:
		return valueRule(o.name, r.Unquoted, config.ReferenceForms, values)
	case platforms.IdentifierOption:
		return valueRule(o.name, r.Unquoted, config.IdentifierForms, values)
	case platforms.AddressOption:
		return valueRule(o.name, r.Text, "an address", values)
	case platforms.TextOption:
	}
	return valueRule(o.name, r.Text, "a text", values)
}

// valueRule reads the value of word into values; what describes it in messages.
func valueRule(word string, read func(to *string, what string) caddyfile.Read, what string, values map[string]string) caddyfile.Rule {
	return caddyfile.Rule{Word: word, Read: func(path string, o caddyfile.Option) {
		var value string
		if read(&value, what)(path, o); value != "" {
			values[word] = value
		}
	}}
}

// faults adds the faults of a value at path. It quotes no value that may be a secret.
func (o guestOption) faults(fs *config.Faults, path, value string) {
	switch {
	case value == "" && !o.required:
	case o.kind == platforms.SecretOption:
		config.Secret(value).CheckRequired(fs, path)
	case o.kind == platforms.IdentifierOption:
		config.Identifier(value).Check(fs, path)
		if config.IsIdentifier(value) && !config.Secret(value).IsReference() {
			o.checkFaults(fs, path, value)
		}
	case value == "" && o.help != "":
		fs.Addf(path, "missing; %s", o.help)
	case value == "":
		fs.Addf(path, "missing")
	case o.kind == platforms.AddressOption:
		addressFaults(fs, path, value)
	default:
		o.checkFaults(fs, path, value)
	}
}

// checkFaults adds what the driver's own check finds wrong with a value.
func (o guestOption) checkFaults(fs *config.Faults, path, value string) {
	if o.check == nil {
		return
	}
	if problem := o.check(value); problem != "" {
		fs.Addf(path, "%s", problem)
	}
}

// resolve returns a given value with its reference resolved.
func (o guestOption) resolve(repl *caddy.Replacer, given string) (value string, err error) {
	switch o.kind {
	case platforms.SecretOption:
		value, err = config.Secret(given).Resolve(repl)
	case platforms.IdentifierOption:
		value, err = config.Identifier(given).Resolve(repl)
	case platforms.TextOption, platforms.AddressOption:
		value = given
	}
	if err == nil && o.check != nil {
		if problem := o.check(value); problem != "" {
			err = errors.New(problem)
		}
	}
	return value, err //nolint:wrapcheck // the caller names the option
}

// resolveOptions resolves the references among the given values of the options, and adds the faults of those that can't be
// resolved, which it removes.
func resolveOptions(repl *caddy.Replacer, fs *config.Faults, path string, options []guestOption, values map[string]string) {
	for _, o := range options {
		given := values[o.name]
		if given == "" {
			continue
		}
		value, err := o.resolve(repl, given)
		if err != nil {
			fs.Addf(path+"."+o.name, "%v", err)
			delete(values, o.name)
			continue
		}
		values[o.name] = value
	}
}

// secretOptions returns the references of the options that are secrets.
func secretOptions(path string, options []guestOption, values map[string]string) []namedSecret {
	var all []namedSecret
	for _, o := range options {
		if o.kind == platforms.SecretOption {
			all = append(all, namedSecret{path: path + "." + o.name, reference: config.Secret(values[o.name])})
		}
	}
	return all
}

// unknownFaults adds the values that aren't options. Only JSON can contain them.
func unknownFaults(fs *config.Faults, path string, values map[string]string, allowed []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(allowed, name) {
			fs.Addf(path, "%s is not an option here; allowed: %s", config.Quoted(name), config.Listed(allowed))
		}
	}
}

// problemFaults adds the problems that a driver found in its options together, by their names.
func problemFaults(fs *config.Faults, path string, problems map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		fs.Addf(path+"."+name, "%s", problems[name])
	}
}

func optionNames(options []guestOption) []string {
	names := make([]string, len(options))
	for i, o := range options {
		names[i] = o.name
	}
	return names
}
