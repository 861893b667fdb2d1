package v1

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
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
	// Bodies is the budget that all request bodies and answers in memory share.
	Bodies *handlers.ByteBudget
	// Streams counts the concurrent streams of the organizations, each of which may have StreamLimit (0: any number).
	Streams     *Streams
	StreamLimit int
	// Logger gets failures of streams that have begun, which have no status of their own any more.
	Logger *slog.Logger
}

// Serve answers one request: its key was checked by [handlers.Auth]; the body is read and decoded; [Chat.Answer] runs the call
// and writes its answer. An error before there is text for the client, or a byte
// of a stream was sent, is returned; a later one is an event of the stream.
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
		AllModels: !principal.HasOrgModels,
		Model:     chat.Model, Messages: chat.Messages, Temperature: chat.Temperature, TopP: chat.TopP,
		MaxTokens: chat.MaxTokens, Stop: chat.Stop, Stream: chat.Stream,
		BYOK: strings.EqualFold(r.Header.Get(headerUseBYOK), "true"), IdempotencyKey: key, Sent: release,
	})
	if !chat.Stream { // whose body is let go of early, by Sent
		handlers.Recycle(body)
	}
	return err
}

// Answer runs a call, which is settled when it returns, and writes its answer in the form that req asks for.
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
