package gateway

import (
	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/providers"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Request is a validated call (spec §4.2). Whoever builds it has checked the key, the limits and the fields.
type Request struct {
	// RequestID is the id of the HTTP request or turn, for logs.
	RequestID string
	OrgID     string
	KeyID     string
	// Env decides which of the organization's wallets pays.
	Env store.Env

	// AllModels: the organization is known to have no exceptions from the catalog, so they need not be read.
	AllModels bool

	// Model is the public id.
	Model       string
	Messages    []providers.Message
	Temperature *float64
	TopP        *float64
	// MaxTokens is what the caller asked for, 0 for the model's own bound.
	MaxTokens int64
	Stop      []string
	Stream    bool
	// BYOK: call with the organization's own provider key and charge nothing.
	BYOK bool
	// IdempotencyKey makes a repeated request get the first one's answer and charge (spec §4.2); empty for none.
	IdempotencyKey string
	// TurnID is what the worker sets in place of an IdempotencyKey: the turn that the call answers. The same turn gets the
	// same answer and one charge, for [TurnLife], and its ids are no client's keys. Who calls for a turn has the lease of
	// its conversation, so that a call of the same turn which still runs counts as lost: it can't be charged any more.
	TurnID string
	// Sent, if not nil, is called once or more, from any goroutine, when the vendor has the prompt and the call refers to
	// Messages no more: a stream goes on for minutes without them. The call takes Messages out of the Request for that. It
	// isn't called when the call ends before.
	Sent func()
}

// Head is what every chunk of a stream repeats.
type Head struct {
	// ID is the completion's id, "chatcmpl-…".
	ID string
	// Created is in Unix seconds.
	Created int64
	// Model is the public id.
	Model string
	// Replayed: the answer is that of an earlier request with the same Idempotency-Key.
	Replayed bool
}

// Sink receives a streamed answer while it is made. Its methods are never called at the same time, nor after Call has returned;
// all calls but an early Flush come from Call's goroutine. An error means that the client is gone.
type Sink interface {
	// Begin is called once, before the vendor is. It should write nothing to the network yet: until the first Flush a
	// failure has a status of its own.
	Begin(head Head) error
	// Text takes a piece of the answer, never empty.
	Text(piece string) error
	// Flush sends all that was written to the client. It is called when the next piece isn't there yet, and, from another
	// goroutine, when the first one takes long ([Config.EarlyStatus]).
	Flush() error
}

// Result is a complete and settled answer.
type Result struct {
	// ID is the completion's id, "chatcmpl-…".
	ID string
	// Created is in Unix seconds.
	Created int64
	// Model is the public id.
	Model string
	// Text is the whole answer of a call without a stream; a stream's text went to the sink.
	Text         string
	FinishReason string
	Usage        billing.Usage
	// ChargedMicros is what left the wallet.
	ChargedMicros int64
	BYOK          bool
	// Replayed: the answer is that of an earlier request with the same Idempotency-Key.
	Replayed bool
}
