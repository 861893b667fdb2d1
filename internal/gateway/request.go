package gateway

import (
	"context"
	"errors"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Request is a validated call. Its maker has checked the key, the limits and the fields.
type Request struct {
	// RequestID is the id of the HTTP request or turn, for logs.
	RequestID string
	OrgID     string
	KeyID     string
	// Env decides which of the organization's wallets pays.
	Env store.Env

	// AllModels: the organization has no exceptions from the catalog, so they need not be read.
	AllModels bool

	// Model is the public id.
	Model       string
	Messages    []providers.Message
	Temperature *float64
	TopP        *float64
	// MaxTokens is the requested limit. 0 means the model's own.
	MaxTokens int64
	Stop      []string
	Stream    bool
	// BYOK: call with the organization's own provider key and charge nothing.
	BYOK bool
	// IdempotencyKey makes a repeated request get the first one's answer and charge; empty for none.
	IdempotencyKey string
	// Turn is the turn of a conversation that the call is for, in place of an IdempotencyKey. Nil means none.
	Turn *Turn
	// Sent, if not nil, is called once or more, from any goroutine, when the vendor has the prompt and the call refers to
	// Messages no more: a stream goes on for minutes without them. The call removes Messages from the Request for that. It
	// isn't called when the call ends before.
	Sent func()
	// Room, if not nil, reserves memory for the answer until the client has it, at least bytes in all, and reports whether there is room. It is
	// called before anything is held, for an answer in one piece with the bytes of its tokens, and before a kept answer is read. Without room the
	// outcome is [OutcomeTooManyCalls].
	Room func(bytes int64) bool
}

// ErrInterrupted is the cause with which a turn's worker ends the context of a call after a person has made its answer unnecessary.
var ErrInterrupted = errors.New("a person has taken the conversation or written in it")

// Turn lets a worker's turn begin and end in the transactions of its call's hold and settlement. So the call is paid exactly if its answer is
// stored, or is no longer wanted. Any other call without a whole answer costs nothing, because the turn is asked again.
type Turn struct {
	// Begin begins the turn, or its next call, with the hold. It is called before the vendor is, and again when the hold is tried again with
	// a smaller amount. Its error ends the call.
	Begin func(ctx context.Context, callID string, commit Commit) error
	// End stores what becomes of the answer, with the settlement. text is the whole answer of a call without a sink. An error before commit
	// has succeeded leaves the hold to the turn's next call, or until it expires.
	End func(text string, commit Commit) error
	// Cut ends the turn of a call that broke off for [ErrInterrupted] after the vendor had begun, with the settlement of the text so far. Its
	// error is as for End.
	Cut func(commit Commit) error
}

// Commit writes a step of a turn and the hold or settlement of its call in one transaction. It may be repeated after an error, and returns the
// error of [billing.Companion.Ruling] or a wrapped error of the store. It is nil if the call costs nothing.
type Commit func(ctx context.Context, step billing.Companion) error

// Head has the values that every chunk of a stream repeats.
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

// Sink receives a streamed answer as it arrives. Its methods are never called at the same time, nor after Call has returned;
// all calls but an early Flush come from Call's goroutine. An error means that the client is gone.
type Sink interface {
	// Begin is called once, before the vendor is called. It should write nothing to the network: until the first Flush a
	// failure has a status of its own.
	Begin(head Head) error
	// Text receives a piece of the answer, never empty.
	Text(piece string) error
	// Flush sends all written text to the client. It is called when the next piece hasn't arrived yet, and, from another goroutine, when the first
	// one is slow ([Config.EarlyStatus]).
	Flush() error
}

// QuotedSink is a [Sink] that writes JSON.
type QuotedSink interface {
	Sink
	// Quoted may be called in place of Text for a piece that is passed on as it came ([providers.Event]): piece is the literal
	// that [providers.AppendQuoted] writes. It is valid until Quoted returns.
	Quoted(piece providers.JSONString) error
}

// Result is a complete and settled answer.
type Result struct {
	// ID is the completion's id, "chatcmpl-…".
	ID string
	// Created is in Unix seconds.
	Created int64
	// Model is the public id.
	Model string
	// Text is the whole answer of a call without a stream.
	Text         string
	FinishReason string
	Usage        billing.Usage
	// ChargedMicros is the amount that left the wallet.
	ChargedMicros int64
	BYOK          bool
	// Replayed: the answer is that of an earlier request with the same Idempotency-Key.
	Replayed bool
}
