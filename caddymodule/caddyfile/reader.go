// Package caddyfile describes options and reads them. A block of the configuration is a table of [Rule]: reading the block in a
// Caddyfile, the faults of its values in JSON, its defaults and its syntax come from that table. Unlike Caddy's own parsers the
// [Reader] doesn't stop at the first fault: all are reported together, each with file and line.
//
// The reader checks the text form: words, counts of arguments, repetitions and formats of numbers. Values are
// checked by the rules' Faults, which [Reader.Err] joins with the faults of the text.
package caddyfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// root is the path of the svc block. Its named options have paths like svc.plan[free].
const root = "svc"

// Option is one line of a block with its arguments, and the block it may open.
type Option struct {
	Args []caddyfile.Token

	word    caddyfile.Token
	segment caddyfile.Segment
	// order counts the options in the order of the text, which is the order of the faults.
	order int
}

// newOption reads the first line of a segment.
func newOption(segment caddyfile.Segment) Option {
	d := caddyfile.NewDispenser(segment)
	d.Next()
	return Option{word: d.Token(), Args: d.RemainingArgsAsTokens(), segment: segment}
}

// Word returns the token that the option begins with.
func (o Option) Word() caddyfile.Token { return o.word }

// Texts returns the arguments from index first on.
func (o Option) Texts(first int) []string {
	var texts []string
	for i := first; i < len(o.Args); i++ {
		texts = append(texts, o.Args[i].Text)
	}
	return texts
}

// Dispenser returns the first argument and all that follows, for a module of Caddy's that parses them itself.
func (o Option) Dispenser() *caddyfile.Dispenser { return caddyfile.NewDispenser(o.segment[1:]) }

// Lines returns the lines of the block that a directive opens, none if it has no block.
func Lines(directive caddyfile.Segment) []caddyfile.Segment {
	var lines []caddyfile.Segment
	d := caddyfile.NewDispenser(directive)
	d.Next()
	d.RemainingArgs()
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		lines = append(lines, d.NextSegment())
	}
	return lines
}

// Read reads an option at path and adds its faults to the reader.
type Read func(r *Reader, path string, o Option)

// Rule describes an option of a block: everything that the configuration says about it, except its documentation, which is the comment
// of its field. The option's path is the block's path and the word.
type Rule struct {
	Word string
	// Syntax describes the arguments, e.g. <duration>.
	Syntax string
	// Named options have a name as their first argument, may be repeated, and have the path svc.word[name].
	Named bool
	// Once means that no name may be repeated.
	Once bool
	// Valued means that one value follows the name.
	Valued bool
	// HasBlock means that the option may open a block.
	HasBlock bool
	// Block returns the rules of the option's block, for its syntax. It is nil if the option has no block.
	Block func() []Rule
	Read  Read
	// Faults adds the faults of the value, whether it comes from a Caddyfile or JSON. It is nil if every value is right.
	Faults func(fs *config.Faults, path string)
	// Fill sets the default of a value that wasn't given. It is nil if the option has no default.
	Fill func()

	number *number
}

// Also adds faults to the rule's own.
func (rule Rule) Also(faults func(fs *config.Faults, path string)) Rule {
	before := rule.Faults
	rule.Faults = func(fs *config.Faults, path string) {
		if before != nil {
			before(fs, path)
		}
		faults(fs, path)
	}
	return rule
}

// Refuse adds a fault to the rule's own if the value is wrong. That is decided when the rule is made, so the rules of a block are made anew
// after its values were read.
func (rule Rule) Refuse(wrong bool, format string, args ...any) Rule {
	if !wrong {
		return rule
	}
	return rule.Also(func(fs *config.Faults, path string) { fs.Addf(path, format, args...) })
}

// Filled returns the rule with another Fill.
func (rule Rule) Filled(fill func()) Rule {
	rule.Fill = fill
	return rule
}

// As returns the rule with another Syntax.
func (rule Rule) As(syntax string) Rule {
	rule.Syntax = syntax
	return rule
}

// Faults adds the faults of a block's values at path, in the order of the rules.
func Faults(rules []Rule, fs *config.Faults, path string) {
	for _, rule := range rules {
		if rule.Faults != nil {
			rule.Faults(fs, path+"."+rule.Word)
		}
	}
}

// Fill sets the defaults of a block's values that weren't given, in the order of the rules.
func Fill(rules []Rule) {
	for _, rule := range rules {
		if rule.Fill != nil {
			rule.Fill()
		}
	}
}

// Reader turns the tokens of a block into values and collects every fault.
type Reader struct {
	// options are the options by path; of repeated ones the first.
	options map[string]Option
	// names counts the options of each path that may be repeated.
	names map[string]int
	found []located
	count int
}

// located is a fault with the option it is about.
type located struct {
	config.Fault

	option Option
	// unread: the fault kept a value from being read, so faults of the value at its path say nothing.
	unread bool
	// placed: the text has file and line already.
	placed bool
}

// NewReader returns a reader and the block that d is at. Arguments of the block are a fault. The block's path is its
// word.
func NewReader(d *caddyfile.Dispenser) (*Reader, Option) {
	d.Next()
	block := newOption(d.NextSegment())
	path := block.word.Text
	r := &Reader{options: map[string]Option{path: block}, names: make(map[string]int)}
	r.NoArguments(path, block)
	return r, block
}

// Unreadf adds a fault because of which the value of o can't be read.
func (r *Reader) Unreadf(path string, o Option, format string, args ...any) {
	r.found = append(r.found, located{Fault: config.Fault{Path: path, Text: fmt.Sprintf(format, args...)}, option: o, unread: true})
}

// Faultf adds any other fault of o.
func (r *Reader) Faultf(path string, o Option, format string, args ...any) {
	r.found = append(r.found, located{Fault: config.Fault{Path: path, Text: fmt.Sprintf(format, args...)}, option: o})
}

// UnreadBecause is [Reader.Unreadf] for an error of a Caddy parser, which has file and line.
func (r *Reader) UnreadBecause(path string, o Option, err error) {
	r.found = append(r.found, located{Fault: config.Fault{Path: path, Text: err.Error()}, option: o, unread: true, placed: true})
}

// NoArguments adds a fault if an option that may have only a block has arguments.
func (r *Reader) NoArguments(path string, o Option) {
	if len(o.Args) > 0 {
		r.Faultf(path, o, "takes no arguments, only a block")
	}
}

// Block reads the block of o by rules. path is the path of o.
func (r *Reader) Block(path string, o Option, rules []Rule) {
	for _, segment := range Lines(o.segment) {
		line := newOption(segment)
		r.count++
		line.order = r.count
		i := slices.IndexFunc(rules, func(rule Rule) bool { return rule.Word == line.word.Text })
		if i < 0 {
			words := make([]string, len(rules))
			for i, rule := range rules {
				words[i] = rule.Word
			}
			r.Faultf(path, line, "%s is not an option here; allowed: %s", config.Quoted(line.word.Text), config.Listed(words))
			continue
		}
		r.line(path, line, rules[i])
	}
}

// line reads one option of the block at path by its rule.
func (r *Reader) line(path string, line Option, rule Rule) {
	path, ok := r.linePath(path+"."+rule.Word, line, rule)
	if !ok {
		return
	}
	if len(line.segment) > 1+len(line.Args) && !rule.HasBlock {
		r.Faultf(path, line, "takes no block")
	}
	if first, twice := r.options[path]; twice {
		r.Faultf(path, line, "given twice; first at %s:%d", first.word.File, first.word.Line)
		rule.Read(r, path+"#2", line) // for its own faults; Set drops the value
		return
	}
	r.options[path] = line
	rule.Read(r, path, line)
}

// linePath returns the path of an option, which for a named one has its name. It reports whether the name is there.
func (r *Reader) linePath(path string, line Option, rule Rule) (string, bool) {
	switch {
	case !rule.Named:
		return path, true
	case rule.Valued && len(line.Args) != 2:
		r.Unreadf(path, line, "takes exactly one name and its value")
		return "", false
	case !rule.Valued && len(line.Args) != 1:
		r.Unreadf(path, line, "takes exactly one name")
		return "", false
	}
	path = config.Element(strings.TrimPrefix(path, root+"."), line.Args[0].Text)
	if !rule.Once {
		r.names[path]++
		path = config.Repeated(path, r.names[path])
	}
	return path, true
}

// Set stores the value of o at path, unless the option was given before.
func Set[T any](r *Reader, path string, o Option, to *T, value T) {
	if r.options[path].order == o.order {
		*to = value
	}
}

// Err returns the faults of the text and the faults of the values, invalid, as one error in the order of the text, each
// with its file and line. Faults of a value that could not be read are left out. The error is nil if there are none.
func (r *Reader) Err(invalid *config.Faults, block Option) error {
	all := slices.Clone(r.found)
	for _, f := range *invalid {
		if slices.ContainsFunc(r.found, func(l located) bool { return l.unread && l.Path == f.Path }) {
			continue
		}
		all = append(all, located{Fault: f, option: r.nearest(f.Path, block)})
	}
	slices.SortStableFunc(all, func(a, b located) int { return a.option.order - b.option.order })
	lines := make([]string, len(all))
	for i, l := range all {
		lines[i] = l.text()
	}
	return config.JoinLines(lines)
}

// nearest returns the option at path, or the innermost one around it that was given.
func (r *Reader) nearest(path string, block Option) Option {
	for {
		if o, ok := r.options[path]; ok {
			return o
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return block
		}
		path = path[:i]
	}
}

// text is the fault with file, line and import chain in Caddy's own form.
func (l located) text() string {
	if l.placed {
		return l.String()
	}
	d := caddyfile.NewDispenser([]caddyfile.Token{l.option.word})
	d.Next()
	return d.WrapErr(errors.New(l.String())).Error()
}
