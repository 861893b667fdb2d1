package providers

import (
	"math"
	"strconv"
)

// Body writes the body of a request, for [Dialect.Body]. The contents of messages are not copied.
type Body struct {
	json  []byte
	start int // of the bytes of json that aren't in parts
	parts [][]byte
}

// NewBody returns an empty body with room for the request.
func NewBody(req *Request) Body {
	return Body{json: make([]byte, 0, 512), parts: make([][]byte, 0, 2*len(req.Messages)+1)}
}

// Add adds JSON.
func (b *Body) Add(json string) { b.json = append(b.json, json...) }

// Quote adds a text as a JSON string.
func (b *Body) Quote(text string) { b.json = AppendQuoted(b.json, text) }

// Int adds a number.
func (b *Body) Int(n int64) { b.json = strconv.AppendInt(b.json, n, 10) }

// Float adds the JSON before a number, and the number. It adds nothing for a number that JSON can't have.
func (b *Body) Float(before string, number *float64) {
	if number != nil && !math.IsNaN(*number) && !math.IsInf(*number, 0) {
		b.json = strconv.AppendFloat(append(b.json, before...), *number, 'g', -1, 64)
	}
}

// List adds a list of strings after the JSON before it, which ends with the bracket. It adds nothing if the list is empty.
func (b *Body) List(before string, list []string) {
	if len(list) == 0 {
		return
	}
	for i, text := range list {
		if i > 0 {
			before = ","
		}
		b.Add(before)
		b.Quote(text)
	}
	b.Add("]")
}

// Slice adds JSON that isn't copied.
func (b *Body) Slice(json []byte) {
	// Earlier slices of json stay valid when it moves to a larger array.
	b.parts = append(b.parts, b.json[b.start:len(b.json):len(b.json)], json)
	b.start = len(b.json)
}

// Slices returns the body.
func (b *Body) Slices() [][]byte { return append(b.parts, b.json[b.start:]) }
