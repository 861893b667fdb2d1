package caddymodule

// The options that drivers declare are read, checked and resolved here, so that the faults and secrets of a guest follow the
// same rules as all others.

import (
	"errors"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/option"
)

// optionRule reads an option into values.
func optionRule(o *option.Option, values map[string]string) caddyfile.Rule {
	return valueRule(o.Name, values, func(to *string) caddyfile.Rule {
		switch o.Kind {
		case option.Secret:
			return caddyfile.Unquoted(o.Name, to, caddyfile.SecretSyntax, config.ReferenceForms)
		case option.Identifier:
			return caddyfile.Unquoted(o.Name, to, "<name>", config.IdentifierForms)
		case option.Address:
			return caddyfile.Text(o.Name, to, "<url>", "an address")
		case option.Text:
		}
		return caddyfile.Text(o.Name, to, "<text>", "a text")
	})
}

// readOptions reads a block of options.
func readOptions(r *caddyfile.Reader, path string, o caddyfile.Option, options []option.Option) map[string]string {
	values := map[string]string{}
	var rules []caddyfile.Rule
	for i := range options {
		rules = append(rules, optionRule(&options[i], values))
	}
	r.Block(path, o, rules)
	return values
}

// driverFaults adds the faults of the values of a driver's options at path, each at its own name below it.
func driverFaults(fs *config.Faults, path string, driver any, options []option.Option, values map[string]string) {
	for i := range options {
		o := &options[i]
		optionFaults(fs, path+"."+o.Name, o, values[o.Name])
	}
	unknownFaults(fs, path, values, optionNames(options))
	if checker, ok := driver.(option.Checker); ok {
		problemFaults(fs, path, checker.CheckOptions(maps.Clone(values)))
	}
}

// textRule reads a text into values; what describes it in messages.
func textRule(word, syntax, what string, values map[string]string) caddyfile.Rule {
	return valueRule(word, values, func(to *string) caddyfile.Rule { return caddyfile.Text(word, to, syntax, what) })
}

// valueRule reads the value of word into values with the rule that returns one for a variable.
func valueRule(word string, values map[string]string, of func(to *string) caddyfile.Rule) caddyfile.Rule {
	rule := of(new(string))
	rule.Read = func(r *caddyfile.Reader, path string, o caddyfile.Option) {
		var value string
		if of(&value).Read(r, path, o); value != "" {
			values[word] = value
		}
	}
	return rule
}

// optionFaults adds the faults of an option's value at path. It quotes no value that may be a secret.
func optionFaults(fs *config.Faults, path string, o *option.Option, value string) {
	switch {
	case value == "" && !o.Required:
	case o.Kind == option.Secret:
		config.Secret(value).CheckRequired(fs, path)
	case o.Kind == option.Identifier:
		config.Identifier(value).Check(fs, path)
		if config.IsIdentifier(value) && !config.Secret(value).IsReference() {
			checkFaults(fs, path, o, value)
		}
	case value == "" && o.Help != "":
		fs.Addf(path, "missing; %s", o.Help)
	case value == "":
		fs.Addf(path, "missing")
	case o.Kind == option.Address:
		addressFaults(fs, path, value, "takes no user and no password, "+exampleAPI, exampleAPI)
	default:
		checkFaults(fs, path, o, value)
	}
}

// checkFaults adds the fault that the driver's own check finds in a value.
func checkFaults(fs *config.Faults, path string, o *option.Option, value string) {
	if o.Check == nil {
		return
	}
	if problem := o.Check(value); problem != "" {
		fs.Addf(path, "%s", problem)
	}
}

// resolveOption returns a given value with its reference resolved.
func resolveOption(repl *caddy.Replacer, o *option.Option, given string) (value string, err error) {
	switch o.Kind {
	case option.Secret:
		value, err = config.Secret(given).Resolve(repl)
	case option.Identifier:
		value, err = config.Identifier(given).Resolve(repl)
	case option.Text, option.Address:
		value = given
	}
	if err == nil && o.Check != nil {
		if problem := o.Check(value); problem != "" {
			err = errors.New(problem)
		}
	}
	return value, err
}

// resolveOptions returns the values of the options with their references resolved. It adds a fault for each value that can't be resolved, and
// leaves it out, as it does empty values.
func resolveOptions(repl *caddy.Replacer, fs *config.Faults, path string, options []option.Option, given map[string]string) map[string]string {
	values := map[string]string{}
	maps.Copy(values, given)
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	for i := range options {
		o := &options[i]
		if values[o.Name] == "" {
			continue
		}
		value, err := resolveOption(repl, o, values[o.Name])
		if err != nil {
			fs.Addf(path+"."+o.Name, "%v", err)
			delete(values, o.Name)
			continue
		}
		values[o.Name] = value
	}
	return values
}

// secretOptions returns the references of the options that are secrets.
func secretOptions(path string, options []option.Option, values map[string]string) []namedSecret {
	var all []namedSecret
	for _, o := range options {
		if o.Kind == option.Secret {
			all = append(all, namedSecret{path: path + "." + o.Name, reference: config.Secret(values[o.Name])})
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

// optionNames returns the names of the options that aren't tables.
func optionNames(options []option.Option) []string {
	var names []string
	for _, o := range options {
		if o.Keys == nil {
			names = append(names, o.Name)
		}
	}
	return names
}
