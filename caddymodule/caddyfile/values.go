package caddyfile

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/dustin/go-humanize"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// One returns the only argument of o, or adds a fault if there isn't exactly one. what describes it in the message.
func (r *Reader) One(path string, o Option, what string) (string, bool) {
	if len(o.Args) != 1 {
		r.Unreadf(path, o, "takes one value: %s", what)
		return "", false
	}
	return o.Args[0].Text, true
}

// parsed reads the only argument, which what describes in messages. parse returns the problem of a text that is no value.
func parsed[T any](to *T, what string, parse func(text string) (value T, problem string)) Read {
	return func(r *Reader, path string, o Option) {
		text, ok := r.One(path, o, what)
		if !ok {
			return
		}
		value, problem := parse(text)
		if problem != "" {
			r.Unreadf(path, o, "%s", problem)
			return
		}
		Set(r, path, o, to, value)
	}
}

// Text is any text but an empty one, which would mean that none was given. what describes it in messages.
func Text(word string, to *string, syntax, what string) Rule {
	return Rule{Word: word, Syntax: syntax, Read: parsed(to, what, func(text string) (string, string) {
		if text == "" {
			return "", "is empty; give " + what
		}
		return text, ""
	})}
}

// OneOf is one of some words, the first of which is the default.
func OneOf(word string, to *string, allowed ...string) Rule {
	rule := Text(word, to, strings.Join(allowed, " | "), config.Listed(allowed))
	rule.Faults = func(fs *config.Faults, path string) {
		if *to != "" && !slices.Contains(allowed, *to) {
			fs.Addf(path, "%q is not known; allowed: %s", *to, config.Listed(allowed))
		}
	}
	return rule.Filled(func() { *to = cmp.Or(*to, allowed[0]) })
}

// SecretSyntax is the Syntax of a reference to a secret.
const SecretSyntax = "<{env.NAME} or {file.PATH}>"

// Secret is the reference to a secret, or one of the words that are allowed in its place. No message quotes it.
func Secret(word string, to *config.Secret, words ...config.Secret) Rule {
	syntax, or := SecretSyntax, ""
	for _, word := range words {
		syntax, or = syntax+" | "+string(word), or+", or "+string(word)
	}
	rule := Unquoted(word, to, syntax, config.ReferenceForms+or)
	rule.Faults = func(fs *config.Faults, path string) {
		if *to != "" && !slices.Contains(words, *to) {
			to.Check(fs, path, or)
		}
	}
	return rule
}

// Identifier is an id or the reference to one. No message quotes it.
func Identifier(word string, to *config.Identifier) Rule {
	rule := Unquoted(word, to, "<name>", config.IdentifierForms)
	rule.Faults = func(fs *config.Faults, path string) {
		if *to != "" {
			to.Check(fs, path)
		}
	}
	return rule
}

// Unquoted is any text but an empty one. No message quotes it. what names the allowed forms.
func Unquoted[T ~string](word string, to *T, syntax, what string) Rule {
	return Rule{Word: word, Syntax: syntax, Read: func(r *Reader, path string, o Option) {
		if len(o.Args) != 1 || o.Args[0].Text == "" {
			r.Unreadf(path, o, "takes one value: %s", what)
			return
		}
		Set(r, path, o, to, T(o.Args[0].Text))
	}}
}

// number is a number with its bounds.
type number struct {
	to              **int64
	lowest, highest int64
	required        bool
}

func (n *number) faults(fs *config.Faults, path string) {
	if *n.to != nil {
		fs.Between(path, **n.to, n.lowest, n.highest)
	} else if n.required {
		fs.Addf(path, "missing; give an integer from %d to %d", n.lowest, n.highest)
	}
}

func numberRule(word string, to **int64, lowest, highest int64, syntax string, read Read) Rule {
	n := &number{to: to, lowest: lowest, highest: highest}
	return Rule{Word: word, Syntax: syntax, Read: read, Faults: n.faults, number: n}
}

// Required makes the rule's number mandatory. 0 may be given.
func (rule Rule) Required() Rule {
	rule.number.required = true
	return rule
}

// Or sets the default of the rule's number.
func (rule Rule) Or(otherwise int64) Rule {
	to := rule.number.to
	return rule.Filled(func() {
		if *to == nil {
			*to = &otherwise
		}
	})
}

// Integer is a whole number from lowest to highest.
func Integer(word string, to **int64, lowest, highest int64) Rule {
	return numberRule(word, to, lowest, highest, "<n>", readInteger(to, ""))
}

// Price is a price in micros from 0 to highest. Its message explains the unit, because a decimal fraction is the likeliest mistake.
func Price(word string, to **int64, highest int64) Rule {
	return numberRule(word, to, 0, highest, "<micros per million tokens>",
		readInteger(to, "; prices are micros per million tokens, e.g. 150000 for 0.15"))
}

// readInteger reads a whole number; the message about anything else ends with hint.
func readInteger(to **int64, hint string) Read {
	return parsed(to, "an integer", func(text string) (*int64, string) {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, config.Quoted(text) + " is not an integer" + hint
		}
		return &number, ""
	})
}

// Size is a number of bytes from lowest to highest, in a Caddyfile with a unit or without.
func Size(word string, to **int64, lowest, highest int64) Rule {
	return numberRule(word, to, lowest, highest, "<size>", parsed(to, "a size, e.g. 10MiB", func(text string) (*int64, string) {
		bytes, err := humanize.ParseBytes(text)
		if err != nil || bytes > math.MaxInt64 || strings.HasPrefix(text, "-") {
			return nil, config.Quoted(text) + " is not a size; write for example 10MiB, 512KiB or 1048576"
		}
		return new(int64(bytes)), ""
	}))
}

// Duration is a duration up to [config.LongestDuration], with its default. It must be above 0, because 0 means that no duration
// was given.
func Duration(word string, to *caddy.Duration, otherwise time.Duration) Rule {
	return Rule{
		Word: word, Syntax: "<duration>",
		Read: parsed(to, "a duration, e.g. 5s", func(text string) (caddy.Duration, string) {
			d, err := caddy.ParseDuration(text)
			if err != nil {
				return 0, config.Quoted(text) + " is not a duration; write for example 500ms, 5s or 2m30s"
			}
			if d <= 0 {
				return 0, "must be more than 0"
			}
			return caddy.Duration(d), ""
		}),
		Faults: func(fs *config.Faults, path string) { fs.Duration(path, *to) },
		Fill:   func() { *to = cmp.Or(*to, caddy.Duration(otherwise)) },
	}
}

// Bool is true or false; in a Caddyfile the word alone is true. The default is false.
func Bool(word string, to *bool) Rule {
	return boolRule(word, to, func(given bool) bool { return given })
}

// Override is a [Bool] that differs between false and not given.
func Override(word string, to **bool) Rule {
	return boolRule(word, to, func(given bool) *bool { return &given }).Filled(func() { *to = cmp.Or(*to, new(false)) })
}

// boolRule is true or false, which of returns as a value.
func boolRule[T any](word string, to *T, of func(given bool) T) Rule {
	read := parsed(to, "true or false", func(text string) (T, string) {
		if text != "true" && text != "false" {
			return of(false), config.Quoted(text) + " is neither true nor false"
		}
		return of(text == "true"), ""
	})
	return Rule{Word: word, Syntax: "[true|false]", Read: func(r *Reader, path string, o Option) {
		if len(o.Args) == 0 {
			Set(r, path, o, to, of(true))
			return
		}
		read(r, path, o)
	}}
}

// block is a type with options in a block of its own.
type block[T any] interface {
	*T
	// Rules are the rules of the options.
	Rules() []Rule
}

// Block is a block without arguments. A block that wasn't given has the defaults of all its options.
func Block[T any, B block[T]](word string, to **T) Rule {
	return Rule{
		Word: word, HasBlock: true, Block: B(new(T)).Rules,
		Read: func(r *Reader, path string, o Option) {
			read := new(T)
			r.NoArguments(path, o)
			r.Block(path, o, B(read).Rules())
			Set(r, path, o, to, read)
		},
		Faults: func(fs *config.Faults, path string) {
			if *to != nil {
				Faults(B(*to).Rules(), fs, path)
			}
		},
		Fill: func() {
			if *to == nil {
				*to = new(T)
			}
			Fill(B(*to).Rules())
		},
	}
}

// element is a block with a name, of which there may be several.
type element[T any] interface {
	block[T]
	// Named returns the place of the name.
	Named() *string
}

// List is a list of blocks with different names. faults adds those faults of an element that no rule finds; they come first.
func List[T any, E element[T]](word string, to *[]*T, faults func(of *T, fs *config.Faults, path string)) Rule {
	return Rule{
		Word: word, Syntax: "<name>", Named: true, HasBlock: true, Block: E(new(T)).Rules,
		Read: func(r *Reader, path string, o Option) {
			read := new(T)
			*E(read).Named() = o.Args[0].Text
			r.Block(path, o, E(read).Rules())
			Set(r, path, o, to, append(*to, read))
		},
		Faults: func(fs *config.Faults, path string) {
			list := strings.TrimPrefix(path, root+".")
			times := map[string]int{}
			for i, of := range *to {
				if of == nil || *E(of).Named() == "" {
					fs.Addf(path+"[#"+strconv.Itoa(i)+"]", "the name is missing") // null, or an element without a name
					continue
				}
				name := *E(of).Named()
				times[name]++
				path := config.Repeated(config.Element(list, name), times[name])
				if times[name] > 1 {
					fs.Addf(path, "the name is taken by an earlier %s; names are unique", word)
				}
				faults(of, fs, path)
				Faults(E(of).Rules(), fs, path)
			}
		},
		Fill: func() {
			for _, of := range *to {
				Fill(E(of).Rules())
			}
		},
	}
}
