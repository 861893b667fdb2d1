package widget

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
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

// ChannelPath is the channel in a widget's address. It is exported as [endpoint.PathID] is.
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
	described := func(id, method, part, summary string) endpoint.Operation {
		route := handlers.Route{Method: method, Path: "/widget/{channelId}/" + part, Public: true, Summary: summary}
		return endpoint.Operation{ID: id, Check: checkVisit, Status: http.StatusOK, Route: route}
	}
	endpoint.Register(server, described("beginVisit", http.MethodPost, "session",
		"Begin, or go on with, a visitor's session; only for pages of the channel's origins"), beginVisit)
	write := described("writeAsVisitor", http.MethodPost, "messages",
		"Write as a visitor; the answer is a stream in the form of /v1/chat/completions, or 202 when nobody answers at once")
	write.MaxBody, write.Stream = maxVisitorBody, true
	write.Responses = func(schemas huma.Registry) map[string]*huma.Response {
		receipt := &huma.MediaType{Schema: schemas.Schema(reflect.TypeFor[visitReceipt](), true, "")}
		return map[string]*huma.Response{"202": {
			Description: "Nobody answers at once: a human has the conversation, or something has to be mended first",
			Content:     map[string]*huma.MediaType{"application/json": receipt},
		}}
	}
	endpoint.Register(server, write, writeAsVisitor)
	endpoint.Register(server, described("listVisit", http.MethodGet, "messages",
		"List the last 100 messages of a visitor's conversation, oldest first"), listVisit)
}

func beginVisit(ctx context.Context, _ *identity.Principal, in *visitInput) (*endpoint.JSON[visitObject], error) {
	v := visitFrom(ctx)
	if err := v.admit(ctx, "sessions "+v.address, sessionsPerMinute); err != nil {
		return nil, err
	}
	now := v.Now()
	begun := visit{Visitor: store.NewID("vis"), Origin: v.origin, Ends: now.Add(visitLife).Unix()}
	earlier, err := openVisit(v.Ring, v.channel, in.Body.Token)
	if err == nil && now.Before(time.Unix(earlier.Ends, 0).Add(visitReturn)) {
		begun.Visitor = earlier.Visitor
	}
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
	seconds := handlers.WholeSeconds(d.ResetIn)
	return endpoint.RateLimited(max(d.ResetIn, time.Millisecond), nil, "Too many requests. Retry after %d seconds.", seconds)
}

const (
	// visitLife is how long a visitor's token opens the conversation.
	visitLife = 12 * time.Hour
	// visitReturn is how long after its end a page of an allowed origin can still exchange it for a new one, so that the
	// visitor finds the conversation again. It then opens nothing by itself.
	visitReturn = 30 * 24 * time.Hour
	// maxVisitToken bounds a token's text.
	maxVisitToken = 2048
)

var errNoVisit = errors.New("the token is none of this widget's")

// visit is the content of a visitor's token. The token is the visit, sealed for its channel under the master key: it can't be
// read or changed, every node opens it, and nothing of it is stored.
type visit struct {
	Visitor string `json:"v"`
	// Origin is the page's origin. When the channel no longer allows it, its tokens are useless.
	Origin string `json:"o"`
	// Ends is in Unix seconds.
	Ends int64 `json:"e"`
}

func (v visit) token(ring *vault.Ring, widget *store.Widget) string {
	sealed := ring.Seal(handlers.Marshal(v), vault.WidgetVisit(widget.OrgID, widget.ChannelID))
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// openVisit reads a token of the widget, whether or not it has ended; else errNoVisit.
func openVisit(ring *vault.Ring, widget *store.Widget, token string) (visit, error) {
	if len(token) > maxVisitToken {
		return visit{}, errNoVisit
	}
	var v visit
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err == nil {
		sealed, err = ring.Open(sealed, vault.WidgetVisit(widget.OrgID, widget.ChannelID))
	}
	if err == nil {
		err = json.Unmarshal(sealed, &v)
	}
	if err != nil || v.Visitor == "" { // another channel's, an old key's, or made up
		return visit{}, errNoVisit
	}
	return v, nil
}
