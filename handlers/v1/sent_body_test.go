package v1

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// sendingGateway is a gateway whose vendor answers long after it has received the request.
type sendingGateway struct {
	budget      *handlers.ByteBudget
	held, after int64
}

func (g *sendingGateway) Call(_ context.Context, req *gateway.Request, _ gateway.Sink) (*gateway.Result, error) {
	g.held = g.budget.Used()
	req.Sent()
	g.after = g.budget.Used()
	req.Sent()
	return &gateway.Result{ID: "chatcmpl-1", FinishReason: "stop"}, nil
}

// A stream lasts for minutes; its prompt is held in memory only until the vendor has received it.
func TestChatGivesTheBodyBackWhenItIsSent(t *testing.T) {
	t.Parallel()
	budget := handlers.NewByteBudget(1 << 20)
	g := &sendingGateway{budget: budget}
	chat := &Chat{Gateway: g, Bodies: budget, Streams: new(Streams)}
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"`+strings.Repeat("a", 10_000)+`"}]}`))
	require.NoError(t, chat.Serve(httptest.NewRecorder(), handlertest.Of(r, "org_1", "")))
	require.Greater(t, g.held, int64(10_000))
	require.Zero(t, g.after)
	require.Zero(t, budget.Used())
}
