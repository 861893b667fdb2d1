package v1

import (
	"strconv"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

// float reads a number from 0 to most.
func (d *chatDecoder) float(field int, name string, most int, into **float64) bool {
	rule := func() string { return "must be a number from 0 to " + strconv.Itoa(most) }
	switch c := d.Peek(); {
	case c == 'n':
		return d.Skip()
	case !jsonscan.IsNumber(c):
		return d.wrong(field, name, rule())
	}
	number := d.Number()
	if number == nil {
		return false
	}
	// The only error left is a number beyond float64, and its value is infinite then.
	value, _ := strconv.ParseFloat(string(number), 64)
	if value < 0 || value > float64(most) {
		d.note(field, name, rule())
		return true
	}
	if value == 0 {
		value = 0 // a -0 becomes 0, so that equal requests are encoded equally
	}
	*into = &value
	return true
}

// tokens reads the next value as a number of tokens; valid is false when it is none from 1 to 200,000.
func (d *chatDecoder) tokens() (n int64, valid, ok bool) {
	if !jsonscan.IsNumber(d.Peek()) {
		return 0, false, d.Skip()
	}
	number := d.Number()
	if number == nil {
		return 0, false, false
	}
	n, whole := jsonscan.Integer(number)
	return n, whole && n >= 1 && n <= MaxTokensLimit, true
}

func (d *chatDecoder) maxTokens() bool {
	if d.Peek() == 'n' {
		return d.Skip()
	}
	n, valid, ok := d.tokens()
	switch {
	case !ok:
		return false
	case !valid:
		d.note(fieldMaxTokens, "max_tokens", "must be an integer from 1 to "+strconv.Itoa(MaxTokensLimit))
	default:
		d.req.MaxTokens = n
	}
	return true
}

// maxCompletionTokens reads the modern name of max_tokens. An invalid value is ignored like an unknown field.
func (d *chatDecoder) maxCompletionTokens() bool {
	n, valid, ok := d.tokens()
	if valid {
		d.completionLimit = n
	}
	return ok
}
