package v1

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/providers"
)

// headerUseBYOK asks for a call with the organization's own provider key.
const headerUseBYOK = "X-Svc-Use-Byok"

// Gateway runs model calls; in production it is *gateway.Gateway.
type Gateway interface {
	Call(ctx context.Context, req *gateway.Request, sink gateway.Sink) (*gateway.Result, error)
}

// Chat answers POST /v1/chat/completions in both response forms. It needs the principal that [handlers.Auth] puts
// into the request's context.
type Chat struct {
	Gateway Gateway
	// Bodies is the budget that all buffered request bodies share.
	Bodies *handlers.ByteBudget
	// Streams counts the concurrent streams of the organizations, each of which may have StreamLimit (0: any number).
	Streams     *Streams
	StreamLimit int
	// Logger gets failures that happen after a stream has begun, where no status can tell them any more.
	Logger *slog.Logger
}

// Serve reads, validates and runs one call. Errors before the first byte of the answer are returned, for the
// contract's body; later ones are told in the stream.
func (h *Chat) Serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return handlers.RouteNotFound(r)
	}
	principal, err := handlers.RequirePrincipal(r)
	if err != nil {
		return err
	}
	body, release, err := handlers.ReadBody(w, r, handlers.MaxChatBody, h.Bodies)
	if err != nil {
		return err
	}
	// The body is part of the request until the vendor has it; a stream may go on for minutes after that.
	defer release()
	req, err := h.decode(r, &principal, body)
	if err != nil {
		return err
	}
	req.Sent = release
	if req.IdempotencyKey, err = idempotencyKey(r.Header); err != nil {
		return err
	}
	if req.Stream {
		return h.Stream(w, r, req)
	}
	result, err := h.Gateway.Call(r.Context(), req, nil)
	if err != nil {
		return chatError(w, err)
	}
	return writeCompletion(w, result)
}

// decode returns the call that the body asks for.
func (h *Chat) decode(r *http.Request, principal *identity.Principal, body []byte) (*gateway.Request, error) {
	done, err := h.Bodies.Decoding(r.Context(), len(body))
	if err != nil {
		return nil, err
	}
	defer done()
	chat, err := DecodeChat(body)
	if err != nil {
		return nil, err
	}
	return chatCall(r, principal, chat), nil
}

// chatCall is the call that the validated body asks for.
func chatCall(r *http.Request, principal *identity.Principal, chat *ChatRequest) *gateway.Request {
	return &gateway.Request{
		RequestID: handlers.RequestIDFrom(r.Context()), OrgID: principal.OrgID, KeyID: principal.KeyID, Env: principal.Env,
		AllModels: !principal.HasOrgModels,
		Model:     chat.Model, Messages: chat.Messages, Temperature: chat.Temperature, TopP: chat.TopP,
		MaxTokens: chat.MaxTokens, Stop: chat.Stop, Stream: chat.Stream,
		BYOK: strings.EqualFold(r.Header.Get(headerUseBYOK), "true"),
	}
}

// Stream runs a call whose answer is written as it is made.
func (h *Chat) Stream(w http.ResponseWriter, r *http.Request, req *gateway.Request) error {
	leave, err := h.Streams.Open(req.OrgID, h.StreamLimit)
	if err != nil {
		return err
	}
	defer leave()
	answer := NewChunkWriter(w, r)
	defer answer.Free()
	result, err := h.Gateway.Call(r.Context(), req, answer)
	if err == nil {
		err = answer.Finish(result)
		if err != nil {
			h.Logger.Debug("the client left before the end of a settled stream", "request_id", req.RequestID, "error", err)
		}
		return nil
	}
	failure := chatError(w, err)
	if !answer.sent && !answer.Begun {
		return failure
	}
	h.logBroken(r, req, failure)
	answer.Fail(failure, req.RequestID)
	return nil
}

// logBroken logs a failure that the client was told inside its stream; one that left needs no attention.
func (h *Chat) logBroken(r *http.Request, req *gateway.Request, failure *handlers.Error) {
	level := slog.LevelError
	if r.Context().Err() != nil {
		level = slog.LevelDebug
	}
	h.Logger.Log(r.Context(), level, "stream broke",
		"request_id", req.RequestID, "code", failure.Code, "model", req.Model, "error", failure)
}

// writeCompletion writes the answer that isn't streamed.
func writeCompletion(w http.ResponseWriter, result *gateway.Result) error {
	buf := takeBuffer()
	defer giveBuffer(buf)
	b := append((*buf)[:0], `{"id":"`...)
	b = append(b, result.ID...)
	b = append(b, `","object":"chat.completion","created":`...)
	b = strconv.AppendInt(b, result.Created, 10)
	b = append(b, `,"model":`...)
	b = providers.AppendQuoted(b, result.Model)
	b = append(b, `,"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	b = providers.AppendQuoted(b, result.Text)
	b = append(b, `},"finish_reason":`...)
	b = providers.AppendQuoted(b, result.FinishReason)
	b = append(b, `}],`...)
	b = appendUsageAndCharge(b, result)
	b = append(b, "}\n"...)
	*buf = b

	header := w.Header()
	if result.Replayed {
		markReplayed(header)
	}
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(b)))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	// The answer is settled: a client that is gone by now has paid for it, and there is nobody left to tell.
	_, _ = w.Write(b)
	return nil
}

// appendUsageAndCharge appends the members usage and svc.
func appendUsageAndCharge(b []byte, result *gateway.Result) []byte {
	b = append(b, `"usage":{"prompt_tokens":`...)
	b = strconv.AppendInt(b, result.Usage.PromptTokens, 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, result.Usage.CompletionTokens, 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, result.Usage.PromptTokens+result.Usage.CompletionTokens, 10)
	b = append(b, `},"svc":{"charged_micros":"`...)
	b = strconv.AppendInt(b, result.ChargedMicros, 10)
	b = append(b, `","byok":`...)
	b = strconv.AppendBool(b, result.BYOK)
	return append(b, '}')
}
