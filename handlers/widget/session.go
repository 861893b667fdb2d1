package widget

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

const (
	// sessionsPerMinute is how many sessions of a channel one address may begin; a page needs one.
	sessionsPerMinute = 30
	// messagesPerMinute is how many messages one address, or one visitor, may write to a channel, more than a person can type.
	messagesPerMinute = 20
	// readsPerMinute is how often one address, or one visitor, may read conversations of a channel: an open page reads 20 times, and an office
	// may have one address.
	readsPerMinute = 600
)

// ChannelPath is the channel in a widget's address. It is exported because the framework passes over what isn't.
type ChannelPath struct {
	ChannelID string `path:"channelId"`
}

// visitCreation is the body of POST /widget/{channelId}/session.
type visitCreation struct {
	Token string `json:"token,omitempty" maxLength:"2048" doc:"An earlier token, also an expired one: the visitor finds the conversation again"` //nolint:lll // a struct tag can't be broken
}

// visitObject is a visitor's session.
type visitObject struct {
	Token     string `json:"token"     doc:"For the header Authorization: Bearer"`
	ExpiresAt string `json:"expiresAt" format:"date-time"`
}

type visitInput struct {
	ChannelPath

	Body visitCreation
}

// Register adds the operations of visitors to the server. They work after [New] was called with the same server.
func Register(server *endpoint.Server) {
	const session, messages = "/widget/{channelId}/session", "/widget/{channelId}/messages"
	endpoint.Register(server, endpoint.Operation{ID: "beginVisit", Check: checkVisit, Status: http.StatusOK, Route: handlers.Route{
		Method: http.MethodPost, Path: session, Public: true,
		Summary: "Begin, or go on with, a visitor's session; only for pages of the channel's origins",
	}}, beginVisit)
	endpoint.Register(server, endpoint.Operation{
		ID: "writeAsVisitor", Check: checkVisit, Status: http.StatusOK, MaxBody: maxVisitorBody, Stream: true, Route: handlers.Route{
			Method: http.MethodPost, Path: messages, Public: true,
			Summary: "Write as a visitor; the answer is a stream in the form of /v1/chat/completions, or 202 when nobody answers at once",
		},
	}, writeAsVisitor)
	endpoint.Register(server, endpoint.Operation{ID: "listVisit", Check: checkVisit, Route: handlers.Route{
		Method: http.MethodGet, Path: messages, Public: true, Summary: "List the last 100 messages of a visitor's conversation, oldest first",
	}}, listVisit)
	description := server.Description()
	description.Paths[messages].Post.Responses["202"] = &huma.Response{
		Description: "Nobody answers at once: a human has the conversation, or something has to be mended first",
		Content: map[string]*huma.MediaType{"application/json": {
			Schema: description.Components.Schemas.Schema(reflect.TypeFor[visitReceipt](), true, ""),
		}},
	}
}

func beginVisit(ctx context.Context, _ *identity.Principal, in *visitInput) (*endpoint.JSON[visitObject], error) {
	v := visitFrom(ctx)
	if err := v.admit(ctx, "sessions "+v.address, sessionsPerMinute); err != nil {
		return nil, err
	}
	now := v.Now()
	var earlier *visit
	if opened, err := openVisit(v.Ring, v.channel, in.Body.Token); err == nil && opened.returnable(now) {
		earlier = &opened
	}
	begun := newVisit(v.origin, earlier, now)
	return endpoint.Answer(visitObject{
		Token: begun.token(v.Ring, v.channel), ExpiresAt: endpoint.Timestamp(time.Unix(begun.Ends, 0).UnixMilli()),
	}), nil
}

// admitSource counts a request of the visitor and of their address. Each may make perMinute, because a token can be used from many
// addresses, and an address gets many tokens.
func (v *visitRequest) admitSource(ctx context.Context, what string, perMinute int64) error {
	if err := v.admit(ctx, what+" "+v.visit.Visitor, perMinute); err != nil {
		return err
	}
	return v.admit(ctx, what+" "+v.address, perMinute)
}

// admit counts one request against a bound of this channel.
func (v *visitRequest) admit(ctx context.Context, what string, perMinute int64) error {
	d, err := v.Limiter.Take(ctx, "widget "+v.channel.ChannelID+" "+what, perMinute)
	if err != nil {
		return handlers.Internal(fmt.Errorf("counting a visitor's request: %w", err))
	}
	if d.Allowed {
		return nil
	}
	return &handlers.Error{
		Code: errcode.RateLimited, RetryAfter: max(d.ResetIn, time.Millisecond),
		Message: fmt.Sprintf("Too many requests. Retry after %d seconds.", handlers.WholeSeconds(d.ResetIn)),
	}
}
