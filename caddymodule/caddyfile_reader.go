package caddymodule

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// option is one line of a block with its arguments, and the block it may open.
type option struct {
	word    caddyfile.Token
	args    []caddyfile.Token
	segment caddyfile.Segment
	// order counts the options in the order of reading, for telling faults in the order of the text.
	order int
}

// rule says how an option of a block is read. The option's path is made of the block's path and the rule's word.
type rule struct {
	word string
	// named options have a name as their first argument, may be repeated, and get the path svc.word[name].
	named bool
	// once: no name may be repeated.
	once bool
	// valued: one value stands behind the name.
	valued bool
	// holds is true if the option may open a block.
	holds bool
	read  func(path string, o option)
}

// located is a fault with the place in the text that it is about.
type located struct {
	fault
	option option
	// unread is true if the fault kept a value from being read, so that there is nothing to judge at its path.
	unread bool
	// placed is true if the text tells file and line already.
	placed bool
}

// reader turns the tokens of the svc block into values, and collects every fault on the way instead of stopping at the
// first. It judges only what the text form adds: words, counts of arguments, repetitions and number formats; values are
// judged by [App.faults].
type reader struct {
	// places says where each path was given, the first time.
	places map[string]option
	// names counts how often the path of a named option came.
	names map[string]int
	found []located
	count int
}

func newReader() *reader {
	return &reader{places: make(map[string]option), names: make(map[string]int)}
}

// faultf notes what kept the value of an option from being read.
func (r *reader) faultf(path string, o option, format string, args ...any) {
	r.found = append(r.found, located{fault: fault{path, fmt.Sprintf(format, args...)}, option: o, unread: true})
}

// notef notes what else is wrong with an option.
func (r *reader) notef(path string, o option, format string, args ...any) {
	r.found = append(r.found, located{fault: fault{path, fmt.Sprintf(format, args...)}, option: o})
}

// newOption reads the first line of a segment.
func newOption(segment caddyfile.Segment) option {
	d := caddyfile.NewDispenser(segment)
	d.Next()
	return option{word: d.Token(), args: d.RemainingArgsAsTokens(), segment: segment}
}

// opens reports whether o opens a block.
func (o option) opens() bool { return len(o.segment) > 1+len(o.args) }

// options reads the lines of the block that o opens; there are none if it opens none.
func (o option) options() []option {
	var lines []option
	d := caddyfile.NewDispenser(o.segment)
	d.Next()
	d.RemainingArgs()
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		lines = append(lines, newOption(d.NextSegment()))
	}
	return lines
}

// block reads the block of o by the rules.
func (r *reader) block(path string, o option, rules []rule) {
	for _, line := range o.options() {
		r.count++
		line.order = r.count
		i := slices.IndexFunc(rules, func(rule rule) bool { return rule.word == line.word.Text })
		if i < 0 {
			words := make([]string, len(rules))
			for i, rule := range rules {
				words[i] = rule.word
			}
			r.notef(path, line, "%s is not an option here; allowed: %s", quoted(line.word.Text), listed(words))
			continue
		}
		r.line(path, line, rules[i])
	}
}

func (r *reader) line(path string, line option, rule rule) {
	linePath := path + "." + rule.word
	if rule.named {
		if rule.valued && len(line.args) != 2 {
			r.faultf(linePath, line, "takes exactly one name and its value")
			return
		}
		if !rule.valued && len(line.args) != 1 {
			r.faultf(linePath, line, "takes exactly one name")
			return
		}
		linePath = element(strings.TrimPrefix(linePath, appName+"."), line.args[0].Text)
		if !rule.once {
			r.names[linePath]++
			linePath = repeated(linePath, r.names[linePath])
		}
	}
	if line.opens() && !rule.holds {
		r.notef(linePath, line, "takes no block")
	}
	if first, twice := r.places[linePath]; twice {
		r.notef(linePath, line, "given twice; first at %s", place(first.word))
		// The repetition is read for its own faults only; its value is dropped by set.
		rule.read(linePath+"#2", line)
		return
	}
	r.places[linePath] = line
	rule.read(linePath, line)
}

// one returns the only argument of o, or notes that there isn't exactly one.
func (r *reader) one(path string, o option, what string) (string, bool) {
	if len(o.args) != 1 {
		r.faultf(path, o, "takes one value: %s", what)
		return "", false
	}
	return o.args[0].Text, true
}

// text reads a value as it stands. An empty one is a fault, because it would mean "not given".
func (r *reader) text(to *string, what string) func(string, option) {
	return func(path string, o option) {
		value, ok := r.one(path, o, what)
		if !ok {
			return
		}
		if value == "" {
			r.faultf(path, o, "is empty; give %s", what)
			return
		}
		set(r, path, o, to, value)
	}
}

// secret reads the reference to a secret. What stands there is never quoted.
func (r *reader) secret(to *Secret, what string) func(string, option) {
	return func(path string, o option) {
		if len(o.args) != 1 || o.args[0].Text == "" {
			r.faultf(path, o, "takes one value: %s", what)
			return
		}
		set(r, path, o, to, Secret(o.args[0].Text))
	}
}

// identifier reads an id or the reference to one. What stands there is never quoted.
func (r *reader) identifier(to *Identifier) func(string, option) {
	return func(path string, o option) {
		if len(o.args) != 1 || o.args[0].Text == "" {
			r.faultf(path, o, "takes one value: %s", identifierForm)
			return
		}
		set(r, path, o, to, Identifier(o.args[0].Text))
	}
}

// integer reads a whole number.
func (r *reader) integer(to **int64) func(string, option) { return r.whole(to, "") }

// price reads a price, of which a decimal fraction is the likeliest mistake.
func (r *reader) price(to **int64) func(string, option) {
	return r.whole(to, "; prices are micros per million tokens, e.g. 150000 for 0.15")
}

// whole reads a whole number; hint ends the fault of one that isn't.
func (r *reader) whole(to **int64, hint string) func(string, option) {
	return func(path string, o option) {
		value, ok := r.one(path, o, "an integer")
		if !ok {
			return
		}
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			r.faultf(path, o, "%s is not an integer%s", quoted(value), hint)
			return
		}
		set(r, path, o, to, &number)
	}
}

// size reads a number of bytes, with a unit or without.
func (r *reader) size(to **int64) func(string, option) {
	return func(path string, o option) {
		value, ok := r.one(path, o, "a size, e.g. 10MiB")
		if !ok {
			return
		}
		bytes, err := humanize.ParseBytes(value)
		if err != nil || bytes > math.MaxInt64 || strings.HasPrefix(value, "-") {
			r.faultf(path, o, "%s is not a size; write for example 10MiB, 512KiB or 1048576", quoted(value))
			return
		}
		number := int64(bytes)
		set(r, path, o, to, &number)
	}
}

// duration reads a span of time. 0 is a fault, because it would mean "not given".
func (r *reader) duration(to *caddy.Duration) func(string, option) {
	return func(path string, o option) {
		value, ok := r.one(path, o, "a duration, e.g. 5s")
		if !ok {
			return
		}
		d, err := caddy.ParseDuration(value)
		if err != nil {
			r.faultf(path, o, "%s is not a duration; write for example 500ms, 5s or 2m30s", quoted(value))
			return
		}
		if d <= 0 {
			r.faultf(path, o, "must be more than 0")
			return
		}
		set(r, path, o, to, caddy.Duration(d))
	}
}

// flag reads true or false; the word alone means true.
func (r *reader) flag(to *bool) func(string, option) {
	return func(path string, o option) {
		if len(o.args) == 0 {
			set(r, path, o, to, true)
			return
		}
		value, ok := r.one(path, o, "true or false")
		if !ok {
			return
		}
		if value != "true" && value != "false" {
			r.faultf(path, o, "%s is neither true nor false", quoted(value))
			return
		}
		set(r, path, o, to, value == "true")
	}
}

// set stores a value, but not that of a repetition.
func set[T any](r *reader, path string, o option, to *T, value T) {
	if r.places[path].order == o.order {
		*to = value
	}
}

// err joins what reading found with what judging found into one error, in the order of the text, each with its file
// and line. A value that could not be read is not judged.
func (r *reader) err(judged *faults, block option) error {
	all := slices.Clone(r.found)
	for _, f := range *judged {
		if slices.ContainsFunc(r.found, func(l located) bool { return l.unread && l.path == f.path }) {
			continue
		}
		all = append(all, located{fault: f, option: r.nearest(f.path, block)})
	}
	slices.SortStableFunc(all, func(a, b located) int { return a.option.order - b.option.order })
	lines := make([]string, len(all))
	for i, l := range all {
		lines[i] = l.String()
		if !l.placed {
			lines[i] = atPlace(l.fault, l.option.word).Error()
		}
	}
	return joinLines(lines)
}

// nearest is the option that a path is about, or the innermost one around it that was given.
func (r *reader) nearest(path string, block option) option {
	for {
		if o, ok := r.places[path]; ok {
			return o
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return block
		}
		path = path[:i]
	}
}

// atPlace adds file, line and import chain to a fault, in Caddy's own words.
func atPlace(f fault, token caddyfile.Token) error {
	d := caddyfile.NewDispenser([]caddyfile.Token{token})
	d.Next()
	return d.WrapErr(errors.New(f.String()))
}

func place(token caddyfile.Token) string { return token.File + ":" + strconv.Itoa(token.Line) }

// quoted renders what stood in the text for a message: in quotes, without control characters, cut.
func quoted(text string) string {
	const most = 64
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strconv.Quote(text)
}
