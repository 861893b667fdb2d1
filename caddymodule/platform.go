package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Platforms are the blocks of the messaging platforms, by name. Each is a module of the namespace `svc.platforms`, which
// declares its options ([platforms.Description]). A platform without a block is reached at its own address; its webhooks
// can be served only if it requires no option.
type Platforms map[string]*PlatformBlock

// PlatformBlock are the options of one platform: the options of its module, and `header`, `api_base` and `ack`, which all
// platforms have.
//
// header is the name of the header that carries the webhook's signature or secret; default: the platform's own. api_base is
// the address that the paths of the platform's interface are appended to; default: the platform's own. ack is the
// response to an accepted webhook: `empty` for a 200 without a body, for platforms that parse it; default: `{"ok":true,"queued":1}`.
type PlatformBlock struct {
	values map[string]string
	tables map[string]map[string]string
}

// AckEmpty as a platform's ack makes responses to accepted webhooks empty.
const AckEmpty = "empty"

// The options that all platforms have.
const (
	optionHeader  = "header"
	optionAPIBase = "api_base"
	optionAck     = "ack"
)

// MarshalJSON writes the options as they were given: texts, and objects of texts.
func (b *PlatformBlock) MarshalJSON() ([]byte, error) {
	members := make(map[string]any, len(b.values)+len(b.tables))
	for name, value := range b.values {
		members[name] = value
	}
	for name, table := range b.tables {
		members[name] = table
	}
	return json.Marshal(members)
}

// UnmarshalJSON reads what MarshalJSON writes. The options' names are checked with the faults. The error quotes no value.
func (b *PlatformBlock) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return errors.New("the options of a platform must be an object")
	}
	*b = PlatformBlock{values: map[string]string{}, tables: map[string]map[string]string{}}
	for name, raw := range members {
		var value string
		var table map[string]string
		switch {
		case json.Unmarshal(raw, &value) == nil:
			if value != "" {
				b.values[name] = value
			}
		case json.Unmarshal(raw, &table) == nil:
			b.tables[name] = table
		default:
			return fmt.Errorf("%s must be a text or an object of texts", config.Quoted(name))
		}
	}
	return nil
}

// configured reports whether webhooks of the platform can be served: it has a block, or requires no option.
func (p Platforms) configured(d *platforms.Description) bool {
	return p[d.Name] != nil || !slices.ContainsFunc(d.Options, func(o option.Option) bool { return o.Required })
}

func platformPath(name string) string { return config.Element("platform", name) }

func (p Platforms) faults(fs *config.Faults) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if fault := messagingPlatforms.missing(name); fault != "" {
			fs.Addf(platformPath(name), "%s", fault)
		} else if p[name] != nil {
			p[name].faults(fs, messagingPlatforms.named(name))
		}
	}
}

func (b *PlatformBlock) faults(fs *config.Faults, driver platforms.Driver) {
	d := driver.Describe()
	path := platformPath(d.Name)
	if header := b.values[optionHeader]; header != "" && !headerName.MatchString(header) {
		fs.Addf(path+"."+optionHeader, "%s is no name of a header", config.Quoted(header))
	}
	if address := b.values[optionAPIBase]; address != "" {
		addressFaults(fs, path+"."+optionAPIBase, address, "takes no user and no password, "+exampleAPI, exampleAPI)
	}
	if ack := b.values[optionAck]; ack != "" && ack != AckEmpty {
		fs.Addf(path+"."+optionAck, "%s is not known; allowed: %s", config.Quoted(ack), AckEmpty)
	}
	for i := range d.Options {
		o := &d.Options[i]
		if o.Keys == nil {
			optionFaults(fs, path+"."+o.Name, o, b.values[o.Name])
		}
		for _, key := range o.Keys {
			if value := b.tables[o.Table][key]; value != "" {
				checkFaults(fs, path+"."+o.Name+"["+key+"]", o, value)
			}
		}
	}
	if checker, ok := driver.(option.Checker); ok {
		problemFaults(fs, path, checker.CheckOptions(b.options(d)))
	}
	unknownFaults(fs, path, b.values, append([]string{optionHeader, optionAPIBase, optionAck}, optionNames(d.Options)...))
	b.unknownKeyFaults(fs, path, d)
}

// unknownKeyFaults adds the tables and keys that the platform doesn't have. Only JSON can contain them.
func (b *PlatformBlock) unknownKeyFaults(fs *config.Faults, path string, d *platforms.Description) {
	tables := map[string][]string{}
	for i := range d.Options {
		if o := &d.Options[i]; o.Keys != nil {
			tables[o.Table] = o.Keys
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.tables)) {
		for _, key := range slices.Sorted(maps.Keys(b.tables[name])) {
			if !slices.Contains(tables[name], key) {
				fs.Addf(path, "%s.%s is not an option here", config.Quoted(name), config.Quoted(key))
			}
		}
	}
}

// options returns the values by the names of [platforms.Config]. The name of a value in a table is like "object[page]".
func (b *PlatformBlock) options(d *platforms.Description) map[string]string {
	options := map[string]string{}
	maps.Copy(options, b.values)
	delete(options, optionAck)
	for i := range d.Options {
		o := &d.Options[i]
		for key, value := range b.tables[o.Table] {
			if o.Keys != nil && value != "" {
				options[o.Name+"["+key+"]"] = value
			}
		}
	}
	return options
}

// read resolves the references of the platforms that are configured, and notes by path what fails.
func (p Platforms) read(repl *caddy.Replacer, fs *config.Faults) map[string]map[string]string {
	read := map[string]map[string]string{}
	for name, block := range p {
		if block != nil {
			d := messagingPlatforms.named(name).Describe()
			read[name] = resolveOptions(repl, fs, platformPath(name), d.Options, block.options(d))
		}
	}
	return read
}

// secrets lists the references of the platforms' secrets.
func (p Platforms) secrets() []namedSecret {
	var all []namedSecret
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if p[name] != nil {
			all = append(all, secretOptions(platformPath(name), messagingPlatforms.named(name).Describe().Options, p[name].values)...)
		}
	}
	return all
}

// platformRule is the option platform.
func (a *App) platformRule() caddyfile.Rule {
	return caddyfile.Rule{
		Word: "platform", Syntax: "<name>", Named: true, Once: true, HasBlock: true,
		Block: func() []caddyfile.Rule {
			return append(new(PlatformBlock).rules(new(platforms.Description)), placeholder("<options of the module svc.platforms.<name>>")()...)
		},
		Read: func(r *caddyfile.Reader, path string, o caddyfile.Option) {
			name := o.Args[0].Text
			if fault := messagingPlatforms.missing(name); fault != "" {
				r.Faultf(path, o, "%s", fault)
				return
			}
			block := &PlatformBlock{values: map[string]string{}, tables: map[string]map[string]string{}}
			r.Block(path, o, block.rules(messagingPlatforms.named(name).Describe()))
			read := Platforms{name: block}
			maps.Copy(read, a.Platforms)
			caddyfile.Set(r, path, o, &a.Platforms, read)
		},
		Faults: func(fs *config.Faults, _ string) { a.Platforms.faults(fs) },
	}
}

// rules returns the rules of the options that every platform has and of the options that d declares.
func (b *PlatformBlock) rules(d *platforms.Description) []caddyfile.Rule {
	rules := []caddyfile.Rule{
		textRule(optionHeader, "<name>", "the name of a header", b.values),
		textRule(optionAPIBase, "<url>", "an address", b.values),
		textRule(optionAck, AckEmpty, AckEmpty, b.values),
	}
	for i := range d.Options {
		if o := &d.Options[i]; o.Keys != nil {
			rules = append(rules, caddyfile.Rule{
				Word: o.Name, Syntax: "<key> <value>", Named: true, Once: true, Valued: true,
				Read: func(r *caddyfile.Reader, path string, line caddyfile.Option) { b.readTable(r, o, path, line) },
			})
		} else {
			rules = append(rules, optionRule(o, b.values))
		}
	}
	return rules
}

// readTable reads `NAME KEY VALUE`, one entry of an option with keys.
func (b *PlatformBlock) readTable(r *caddyfile.Reader, table *option.Option, path string, o caddyfile.Option) {
	key, value := o.Args[0].Text, o.Args[1].Text
	switch {
	case !slices.Contains(table.Keys, key):
		r.Faultf(path, o, "there is no %s %s; allowed: %s", table.Name, config.Quoted(key), config.Listed(table.Keys))
		return
	case value == "":
		r.Faultf(path, o, "is empty; give the value of the webhooks' field `%s`", table.Name)
		return
	}
	if b.tables[table.Table] == nil {
		b.tables[table.Table] = map[string]string{}
	}
	read := b.tables[table.Table][key]
	caddyfile.Set(r, path, o, &read, value)
	b.tables[table.Table][key] = read
}

// headerName matches the names of headers (RFC 9110 §5.1).
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")

// exampleAPI is the address of a platform's interface in messages.
const exampleAPI = "e.g. https://api.example.com"

// addressFaults never quotes the address: a user part or a token in it would be a secret. It returns the address if it has no fault. withUser is
// the text for an address with a user part.
func addressFaults(fs *config.Faults, path, address, withUser, example string) *url.URL {
	u, err := url.Parse(address)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", !validHost(u):
		fs.Addf(path, "must be an http or https address with a host and no placeholders, %s", example)
	case u.User != nil:
		fs.Addf(path, "%s", withUser)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		fs.Addf(path, "takes no query and no fragment, %s", example)
	default:
		return u
	}
	return nil
}

// PlatformCatalog returns the declarations of the platforms of this build.
func PlatformCatalog() (*messaging.Catalog, error) {
	return messaging.NewCatalog(messagingPlatforms.all())
}

// newPlatforms makes the platforms of the configuration.
func (a *App) newPlatforms() (*messaging.Set, error) {
	return messaging.New(messaging.Config{
		Drivers: messagingPlatforms.all(), Options: a.settings.platforms, Logger: a.log,
	})
}

// webhooks are the receivers of all platforms, by the platform's name.
func (a *App) webhooks(set *messaging.Set, shared *sharedStore, queue *inbox.Queue) map[string]func(http.ResponseWriter, *http.Request) error {
	ackEmpty := map[string]bool{}
	for name, block := range a.Platforms {
		ackEmpty[name] = block != nil && block.values[optionAck] == AckEmpty
	}
	received := webhook.New(webhook.Config{BaseURL: a.BaseURL, Platforms: set, AckEmpty: ackEmpty},
		shared.db.Routes, queue, shared.ring, shared.bodies, a.log)
	receivers := map[string]func(http.ResponseWriter, *http.Request) error{}
	for _, d := range set.Platforms() {
		receivers[d.Name] = received.Receiver(d.Name)
	}
	return receivers
}
