package caddyfile

import (
	"math"
	"strconv"
	"strings"

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

// Text reads any text but an empty one, which would mean that none was given.
func (r *Reader) Text(to *string, what string) Read {
	return func(path string, o Option) {
		value, ok := r.One(path, o, what)
		if !ok {
			return
		}
		if value == "" {
			r.Unreadf(path, o, "is empty; give %s", what)
			return
		}
		Set(r, path, o, to, value)
	}
}

// Secret reads the reference to a secret. No message quotes it. what names the allowed forms.
func (r *Reader) Secret(to *config.Secret, what string) Read { return unquoted(r, to, what) }

// Unquoted reads any text but an empty one. No message quotes it. what names the allowed forms.
func (r *Reader) Unquoted(to *string, what string) Read { return unquoted(r, to, what) }

// Identifier reads an id or the reference to one. No message quotes it.
func (r *Reader) Identifier(to *config.Identifier) Read {
	return unquoted(r, to, config.IdentifierForms)
}

func unquoted[T ~string](r *Reader, to *T, what string) Read {
	return func(path string, o Option) {
		if len(o.Args) != 1 || o.Args[0].Text == "" {
			r.Unreadf(path, o, "takes one value: %s", what)
			return
		}
		Set(r, path, o, to, T(o.Args[0].Text))
	}
}

// Integer reads a whole number.
func (r *Reader) Integer(to **int64) Read { return r.integer(to, "") }

// Price reads a price in micros. Its message explains the unit, because a decimal fraction is the likeliest mistake.
func (r *Reader) Price(to **int64) Read {
	return r.integer(to, "; prices are micros per million tokens, e.g. 150000 for 0.15")
}

// integer reads a whole number; the message about anything else ends with hint.
func (r *Reader) integer(to **int64, hint string) Read {
	return func(path string, o Option) {
		value, ok := r.One(path, o, "an integer")
		if !ok {
			return
		}
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			r.Unreadf(path, o, "%s is not an integer%s", config.Quoted(value), hint)
			return
		}
		Set(r, path, o, to, &number)
	}
}

// Size reads a number of bytes, with a unit or without.
func (r *Reader) Size(to **int64) Read {
	return func(path string, o Option) {
		value, ok := r.One(path, o, "a size, e.g. 10MiB")
		if !ok {
			return
		}
		bytes, err := humanize.ParseBytes(value)
		if err != nil || bytes > math.MaxInt64 || strings.HasPrefix(value, "-") {
			r.Unreadf(path, o, "%s is not a size; write for example 10MiB, 512KiB or 1048576", config.Quoted(value))
			return
		}
		number := int64(bytes)
		Set(r, path, o, to, &number)
	}
}

// Duration reads a duration above 0, which would mean that none was given.
func (r *Reader) Duration(to *caddy.Duration) Read {
	return func(path string, o Option) {
		value, ok := r.One(path, o, "a duration, e.g. 5s")
		if !ok {
			return
		}
		d, err := caddy.ParseDuration(value)
		if err != nil {
			r.Unreadf(path, o, "%s is not a duration; write for example 500ms, 5s or 2m30s", config.Quoted(value))
			return
		}
		if d <= 0 {
			r.Unreadf(path, o, "must be more than 0")
			return
		}
		Set(r, path, o, to, caddy.Duration(d))
	}
}

// Bool reads true or false; without an argument it is true.
func (r *Reader) Bool(to *bool) Read {
	return func(path string, o Option) {
		if len(o.Args) == 0 {
			Set(r, path, o, to, true)
			return
		}
		value, ok := r.One(path, o, "true or false")
		if !ok {
			return
		}
		if value != "true" && value != "false" {
			r.Unreadf(path, o, "%s is neither true nor false", config.Quoted(value))
			return
		}
		Set(r, path, o, to, value == "true")
	}
}
