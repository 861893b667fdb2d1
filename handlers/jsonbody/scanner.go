// Package jsonbody reads the JSON bodies of requests: it adds the bounds and the error texts of the HTTP contract to
// [jsonscan.Scanner]. It does not interpret members: its callers do, by callbacks.
package jsonbody

import (
	"bytes"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

// MaxDepth is the depth to which arrays and objects of a body may be nested.
const MaxDepth = 64

// Scanner reads one body by the rules of [jsonscan.Strict].
type Scanner struct {
	jsonscan.Scanner
	body []byte
	// field is the field of the request that a repeated name belongs to.
	field string
}

// New returns a Scanner of body.
func New(body []byte) Scanner {
	return Scanner{Scanner: jsonscan.Strict(body, MaxDepth), body: body}
}

// Document reads the whole body, which must be one object; member and field are as in [Scanner.Object]. It returns nil if
// the body is valid.
func (s *Scanner) Document(member func(name jsonscan.Literal) bool, field func(name jsonscan.Literal) string) *handlers.Error {
	switch {
	case len(bytes.TrimLeft(s.body, " \t\r\n")) == 0:
		return handlers.InvalidRequest("", "The request body is empty. It must be a JSON object.")
	case s.Peek() == '{':
		s.Object(member, field)
	case s.Skip() && s.End():
		return handlers.InvalidRequest("", "The request body must be a JSON object.")
	}
	if s.End() {
		return nil
	}
	what, at := s.Fault()
	return handlers.InvalidRequest(s.field, "The request body is not valid JSON: %s at byte %d.", what, at)
}

// Object reads an object like [jsonscan.Scanner.Object]. If field isn't nil, it returns the field of the request that a
// repeated name belongs to.
func (s *Scanner) Object(member func(name jsonscan.Literal) bool, field func(name jsonscan.Literal) string) bool {
	if field == nil {
		return s.Scanner.Object(member, nil)
	}
	return s.Scanner.Object(member, func(name jsonscan.Literal) { s.field = field(name) })
}
