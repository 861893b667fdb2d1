package openai

import (
	"math"
	"strconv"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Body implements [providers.Dialect]. Only the contract's fields go upstream, always in the same order, which keeps the
// vendor's prompt cache warm. Message contents are not copied.
func (d *dialect) Body(req *providers.Request) (parts [][]byte) {
	// Slices of b that were handed out stay valid when b moves on to a larger array.
	b := make([]byte, 0, 512)
	parts = make([][]byte, 0, 2*len(req.Messages)+1)
	start := 0
	b = append(b, `{"model":`...)
	b = providers.AppendQuoted(b, req.Model)
	b = append(b, `,"messages":[`...)
	for i, m := range req.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"role":`...)
		b = providers.AppendQuoted(b, m.Role)
		b = append(b, `,"content":`...)
		parts = append(parts, b[start:len(b):len(b)], m.Content)
		start = len(b)
		b = append(b, '}')
	}
	b = append(b, ']')
	b = appendParameters(b, req)
	b = append(b, '}')
	return append(parts, b[start:])
}

func appendParameters(b []byte, req *providers.Request) []byte {
	b = appendFloat(b, `,"temperature":`, req.Temperature)
	b = appendFloat(b, `,"top_p":`, req.TopP)
	if req.MaxTokens > 0 {
		field := req.MaxTokensField
		if field == "" {
			field = "max_tokens"
		}
		b = append(b, ',')
		b = providers.AppendQuoted(b, field)
		b = append(b, ':')
		b = strconv.AppendInt(b, req.MaxTokens, 10)
	}
	for i, stop := range req.Stop {
		if i == 0 {
			b = append(b, `,"stop":[`...)
		} else {
			b = append(b, ',')
		}
		b = providers.AppendQuoted(b, stop)
	}
	if len(req.Stop) > 0 {
		b = append(b, ']')
	}
	if req.Stream {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	return b
}

func appendFloat(b []byte, name string, f *float64) []byte {
	if f == nil || math.IsNaN(*f) || math.IsInf(*f, 0) {
		return b
	}
	return strconv.AppendFloat(append(b, name...), *f, 'g', -1, 64)
}
