package v1

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// BenchmarkChat measures a call with everything but its gateway, in both forms of the answer.
func BenchmarkChat(b *testing.B) {
	for name, body := range map[string]string{"whole": plain, "streamed": stream} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			chat := &Chat{
				Gateway: &handlertest.ScriptedCall{Result: handlertest.Completed(), Pieces: []string{"one", "two"}},
				Bodies:  handlers.NewByteBudget(1 << 20), Streams: new(Streams), Logger: slog.New(slog.DiscardHandler),
			}
			ctx := handlers.WithPrincipal(b.Context(), identity.Principal{OrgID: "org_1", KeyID: "key_1", Env: store.Test})
			for b.Loop() {
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
				if err := chat.Serve(httptest.NewRecorder(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
