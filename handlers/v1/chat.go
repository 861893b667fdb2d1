// Package v1 serves the OpenAI-compatible endpoints: the chat completions, whole and streamed, and the models.
//
// Invariants:
//   - A chat request is validated whole before the gateway is called; decoding is linear in the body, and the contents
//     of the messages stay slices of it.
//   - A stream that fails before there was text for the client is an ordinary error with its own status; a later failure is one
//     error event, without anything that would make the answer look complete.
//
// It does not call vendors, count money or keep idempotency keys: [Gateway] does.
package v1

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Routes lists the routes of this package. Their handlers are [Models] and [Chat].
func Routes() []handlers.Route {
	return []handlers.Route{
		{
			Method: http.MethodGet, Path: "/v1/models", Scope: identity.ModelsRead, TestKeys: true,
			Summary: "List the models that are enabled for the organization",
		},
		{Method: http.MethodGet, Path: "/v1/models/{id}", Scope: identity.ModelsRead, TestKeys: true, Summary: "Get one model"},
		{Method: http.MethodPost, Path: "/v1/chat/completions", Scope: identity.ChatWrite, TestKeys: true, Summary: "Ask a model"},
	}
}

// headerUseBYOK requests a call with the organization's own provider key.
const headerUseBYOK = "X-Svc-Use-Byok"

// Gateway runs model calls; in production it is *gateway.Gateway.
type Gateway interface {
	Call(ctx context.Context, req *gateway.Request, sink gateway.Sink) (*gateway.Result, error)
}

// Chat serves POST /v1/chat/completions in both response forms. It needs the principal that [handlers.Auth] puts into the request's context.
type Chat struct {
	Gateway Gateway
	// Bodies is the budget that all request bodies and answers in memory share.
	Bodies *handlers.ByteBudget
	// Streams counts the concurrent streams of the organizations, each of which may have StreamLimit (0: any number).
	Streams     *Streams
	StreamLimit int
	// Logger gets failures of streams that have begun, which no longer have a status of their own.
	Logger *slog.Logger
}

// Serve serves one request after [handlers.Auth] has checked its key: the body is read and decoded, and [Chat.Answer] runs the call and writes its
// answer. An error before the client gets text, or a byte of a stream, is returned. A later one is an event of the stream.
func (h *Chat) Serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return handlers.RouteNotFound(r)
	}
	principal, err := handlers.RequirePrincipal(r)
	if err != nil {
		return err
	}
	account := handlers.Account{Share: handlers.ShareOrganizations, Owner: principal.OrgID}
	body, release, err := handlers.ReadBody(w, r, handlers.MaxChatBody, h.Bodies, account)
	if err != nil {
		return err
	}
	// Sent releases the body earlier, once the vendor has it: a stream may go on for minutes after that.
	defer release()
	chat, err := decodeInTurn(r.Context(), h.Bodies, body)
	if err != nil {
		return err
	}
	key, err := handlers.IdempotencyKey(r.Header)
	if err != nil {
		return err
	}
	err = h.Answer(w, r, &gateway.Request{
		RequestID: handlers.RequestIDFrom(r.Context()), OrgID: principal.OrgID, KeyID: principal.KeyID, Env: principal.Env,
		KeyModels: principal.KeyModels, KeyConcurrent: principal.KeyConcurrent,
		AllModels: !principal.HasOrgModels, BudgetVersion: principal.BudgetVersion,
		Model: chat.Model, Messages: chat.Messages, Temperature: chat.Temperature, TopP: chat.TopP,
		MaxTokens: chat.MaxTokens, Stop: chat.Stop, Stream: chat.Stream,
		BYOK: strings.EqualFold(r.Header.Get(headerUseBYOK), "true"), IdempotencyKey: key, Sent: release,
	})
	if !chat.Stream { // whose body is let go of early, by Sent
		handlers.Recycle(body)
	}
	return err
}

// Answer runs a call, which is settled when it returns, and writes its answer in the form that req names.
func (h *Chat) Answer(w http.ResponseWriter, r *http.Request, req *gateway.Request) error {
	var stream *ChunkWriter
	var sink gateway.Sink
	if req.Stream {
		closeStream, err := h.Streams.Open(req.OrgID, h.StreamLimit)
		if err != nil {
			return err
		}
		defer closeStream()
		stream = NewChunkWriter(w, r)
		defer stream.Free()
		sink = stream
	}
	room := handlers.NewRoom(h.Bodies, handlers.Account{Share: handlers.ShareOrganizations, Owner: req.OrgID})
	defer room.Close()
	req.Room = room.Grow
	result, err := h.Gateway.Call(r.Context(), req, sink)
	switch {
	case err != nil:
		failure := chatError(w, err)
		if stream == nil || !stream.sent && !stream.Begun {
			return failure
		}
		level := slog.LevelError
		if r.Context().Err() != nil { // a client that left needs no attention
			level = slog.LevelDebug
		}
		h.Logger.Log(r.Context(), level, "stream broke",
			"request_id", req.RequestID, "code", failure.Code, "model", req.Model, "error", failure)
		stream.Fail(failure, req.RequestID)
	case stream == nil:
		writeCompletion(w, room, result)
	default:
		if err := stream.Finish(result); err != nil {
			h.Logger.Debug("the client left before the end of a settled stream", "request_id", req.RequestID, "error", err)
		}
	}
	return nil
}

// writeCompletion writes the answer that isn't streamed, and drops the result's text.
func writeCompletion(w http.ResponseWriter, room *handlers.Room, result *gateway.Result) {
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
	result.Text = "" // a client may read slowly
	b = append(b, `},"finish_reason":`...)
	b = providers.AppendQuoted(b, result.FinishReason)
	b = append(b, `}],`...)
	b = appendUsageAndCharge(b, result)
	b = append(b, "}\n"...)
	*buf = b

	if result.Replayed {
		handlers.MarkReplayed(w.Header())
	}
	room.Send(w, http.StatusOK, "application/json", b)
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

// outcomeCodes has the public codes of outcomes that aren't codes themselves. A client that left gets no answer; its code is for the log only.
var outcomeCodes = map[gateway.Outcome]errcode.Code{
	gateway.OutcomeTooManyCalls:    errcode.RateLimited,
	gateway.OutcomeProviderBusy:    errcode.ProviderOverloaded,
	gateway.OutcomeKeyReused:       errcode.IdempotencyKeyReused,
	gateway.OutcomeInFlight:        errcode.Conflict,
	gateway.OutcomeNotKept:         errcode.Conflict,
	gateway.OutcomeRequestTooLarge: errcode.InvalidRequest,
	gateway.OutcomeClientGone:      errcode.InternalError,
	gateway.OutcomeExiting:         errcode.InternalError,
}

// chatError returns the public form of an error of [gateway.Gateway.Call], and marks a replayed one in w's headers.
func chatError(w http.ResponseWriter, err error) *handlers.Error {
	f, ok := errors.AsType[*gateway.Failure](err)
	if !ok {
		return handlers.Internal(err)
	}
	if f.Replayed {
		handlers.MarkReplayed(w.Header())
	}
	code := cmp.Or(outcomeCodes[f.Outcome], errcode.Code(f.Outcome))
	if code.Status() == 0 {
		return handlers.Internal(err)
	}
	return &handlers.Error{
		Code: code, Message: f.Message, Field: f.Field, RetryAfter: f.RetryAfter, NoRetry: f.NoRetry, Cause: f.Cause,
	}
}

// Streams counts the open streams of each organization in this process. The zero value is ready, and safe for concurrent use.
type Streams struct {
	mu   sync.Mutex
	open map[string]int
}

// Open counts one more stream until closeStream is called, which may be more than once. If the organization has limit open streams already, the
// error is rate_limited with a Retry-After of a second. A limit of 0 means unlimited.
func (s *Streams) Open(orgID string, limit int) (closeStream func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit > 0 && s.open[orgID] >= limit {
		return nil, &handlers.Error{
			Code: errcode.RateLimited, RetryAfter: time.Second,
			Message: "Too many streams of the organization are open at once. Retry when one has ended.",
		}
	}
	if s.open == nil {
		s.open = make(map[string]int)
	}
	s.open[orgID]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[orgID]--; s.open[orgID] == 0 {
			delete(s.open, orgID)
		}
	}), nil
}

// Count returns the number of open streams of all organizations.
func (s *Streams) Count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.open {
		n += open
	}
	return n
}
