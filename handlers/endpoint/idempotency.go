package endpoint

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// KeyHeader is the Idempotency-Key of an operation's request. It is exported for the framework, see [PathID].
type KeyHeader struct {
	Key string `header:"Idempotency-Key" doc:"Makes it safe to send the request again after a network failure: the same key with the same content does it once, within 24 hours. 1 to 255 visible ASCII characters."` //nolint:lll // a struct tag can't be broken

	header http.Header
}

// Resolve implements huma.Resolver: it keeps the header as it was sent.
func (k *KeyHeader) Resolve(ctx huma.Context) []error {
	k.header = http.Header{}
	ctx.EachHeader(func(name, value string) { k.header.Add(name, value) })
	return nil
}

// IdempotencyKey returns the key, as [handlers.IdempotencyKey] reads it.
func (k *KeyHeader) IdempotencyKey() (string, error) {
	if k.header == nil && k.Key != "" { // the operation runs as a function
		return handlers.IdempotencyKey(http.Header{handlers.HeaderIdempotencyKey: {k.Key}})
	}
	return handlers.IdempotencyKey(k.header)
}

// Replayable is an answer with a body that may have been given before.
type Replayable[T any] struct {
	Replayed string `header:"Idempotent-Replayed" doc:"true: it was done before, for a request with the same Idempotency-Key"`
	Body     T
}

func (r *Replayable[T]) content() any { return &r.Body }

// Replay returns the answer with the body.
func Replay[T any](body T, replayed bool) *Replayable[T] {
	answer := &Replayable[T]{Body: body}
	if replayed {
		answer.Replayed = "true"
	}
	return answer
}

var _ huma.Resolver = (*KeyHeader)(nil)
