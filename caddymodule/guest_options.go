package caddymodule

import (
	"errors"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/providers"
)

// The options of a protocol are declared by its driver ([providers.Option]). They are read, judged and resolved here, so that
// a guest's faults and secrets follow the same rules as all others.

// readProtocol reads `protocol NAME { … }`.
func (p *Provider) readProtocol(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		var name string
		r.Text(&name, "a protocol: "+config.Listed(protocolNames()))(path, o)
		driver := providerDriver(name)
		if driver == nil { // the value's own fault
			caddyfile.Set(r, path, o, &p.Protocol, name)
			return
		}
		options := map[string]string{}
		var rules []caddyfile.Rule
		for _, declared := range driver.Describe().Options {
			rules = append(rules, optionRule(r, declared, options))
		}
		r.Block(path, o, rules)
		caddyfile.Set(r, path, o, &p.Protocol, name)
		if len(options) > 0 {
			caddyfile.Set(r, path, o, &p.Options, options)
		}
	}
}

// optionRule reads one option into options. What may be a secret is never quoted.
func optionRule(r *caddyfile.Reader, declared providers.Option, options map[string]string) caddyfile.Rule {
	return caddyfile.Rule{Word: declared.Name, Read: func(path string, o caddyfile.Option) {
		var value string
		switch declared.Kind {
		case providers.SecretOption:
			r.Secret((*config.Secret)(&value), config.ReferenceForms)(path, o)
		case providers.IdentifierOption:
			r.Identifier((*config.Identifier)(&value))(path, o)
		case providers.AddressOption:
			r.Text(&value, "an address")(path, o)
		case providers.TextOption:
			r.Text(&value, "a text")(path, o)
		}
		if value != "" {
			options[declared.Name] = value
		}
	}}
}

// optionFaults judges the options at path, each at its own name below it.
func (p *Provider) optionFaults(fs *config.Faults, path string, driver providers.Driver) {
	declared := driver.Describe().Options
	names := make([]string, len(declared))
	for i, o := range declared {
		names[i] = o.Name
		optionFault(fs, path+"."+o.Name, o, p.Options[o.Name])
	}
	for _, name := range slices.Sorted(maps.Keys(p.Options)) {
		if !slices.Contains(names, name) { // only JSON can bring it here
			fs.Addf(path, "%s is not an option here; allowed: %s", config.Quoted(name), config.Listed(names))
		}
	}
	if checker, ok := driver.(providers.OptionChecker); ok {
		problems := checker.CheckOptions(maps.Clone(p.Options))
		for _, name := range slices.Sorted(maps.Keys(problems)) {
			fs.Addf(path+"."+name, "%s", problems[name])
		}
	}
}

func optionFault(fs *config.Faults, path string, o providers.Option, value string) {
	switch {
	case value == "" && !o.Required:
	case o.Kind == providers.SecretOption:
		config.Secret(value).CheckRequired(fs, path)
	case o.Kind == providers.IdentifierOption:
		config.Identifier(value).Check(fs, path)
		if problem := optionProblem(o, value); problem != "" && config.IsIdentifier(value) && !config.Secret(value).IsReference() {
			fs.Addf(path, "%s", problem)
		}
	case value == "":
		fs.Addf(path, "missing; %s", o.Help)
	case o.Kind == providers.AddressOption:
		platformURLFaults(fs, path, value)
	default:
		if problem := optionProblem(o, value); problem != "" {
			fs.Addf(path, "%s", problem)
		}
	}
}

func optionProblem(o providers.Option, value string) string {
	if o.Check == nil {
		return ""
	}
	return o.Check(value)
}

// readOptions returns the options with their references resolved, and notes what can't be.
func (p *Provider) readOptions(repl *caddy.Replacer, fs *config.Faults, path string, driver providers.Driver) map[string]string {
	read := map[string]string{}
	for _, o := range driver.Describe().Options {
		value, err := p.Options[o.Name], error(nil)
		switch {
		case value == "":
			continue
		case o.Kind == providers.SecretOption:
			value, err = config.Secret(value).Resolve(repl)
		case o.Kind == providers.IdentifierOption:
			value, err = config.Identifier(value).Resolve(repl)
		}
		if err == nil {
			if problem := optionProblem(o, value); problem != "" {
				err = errors.New(problem)
			}
		}
		if err != nil {
			fs.Addf(path+"."+o.Name, "%v", err)
			continue
		}
		read[o.Name] = value
	}
	return read
}

// secrets are the references of the provider's secrets.
func (p *Provider) secrets() []namedSecret {
	path := config.Element("provider", p.Name)
	var all []namedSecret
	if p.APIKey != NoKey {
		all = append(all, namedSecret{path: path + ".api_key", reference: p.APIKey})
	}
	if driver := providerDriver(p.Protocol); driver != nil {
		for _, o := range driver.Describe().Options {
			if o.Kind == providers.SecretOption {
				all = append(all, namedSecret{path: path + ".protocol." + o.Name, reference: config.Secret(p.Options[o.Name])})
			}
		}
	}
	return all
}
