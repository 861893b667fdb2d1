package tests

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

// traceReceiver is an OTLP receiver of traces.
type traceReceiver struct {
	*httptest.Server

	mu    sync.Mutex
	spans []*tracepb.Span
	// services are the names and versions of the services whose spans came.
	services []string
}

func startTraceReceiver(t testing.TB) *traceReceiver {
	t.Helper()
	receiver := &traceReceiver{}
	receiver.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var traces tracepb.TracesData // a request to export has the same form
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &traces) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		receiver.mu.Lock()
		defer receiver.mu.Unlock()
		for _, resource := range traces.GetResourceSpans() {
			about := map[string]string{}
			for _, kv := range resource.GetResource().GetAttributes() {
				about[kv.GetKey()] = kv.GetValue().GetStringValue()
			}
			receiver.services = append(receiver.services, about["service.name"]+" "+about["service.version"])
			for _, scope := range resource.GetScopeSpans() {
				receiver.spans = append(receiver.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(receiver.Close)
	return receiver
}

// awaitSpan waits for a span with a name that wanted accepts.
func (r *traceReceiver) awaitSpan(p *process, name string, wanted func(*tracepb.Span) bool) (span *tracepb.Span) {
	p.t.Helper()
	p.await("the span "+name, patience, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		at := slices.IndexFunc(r.spans, func(s *tracepb.Span) bool { return s.GetName() == name && wanted(s) })
		if at >= 0 {
			span = r.spans[at]
		}
		return at >= 0
	})
	return span
}

// seen are the services whose spans came, each once.
func (r *traceReceiver) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	services := slices.Clone(r.services)
	slices.Sort(services)
	return slices.Compact(services)
}

// attributesOf are the attributes of a span that are texts or numbers.
func attributesOf(span *tracepb.Span) map[string]any {
	attributes := map[string]any{}
	for _, kv := range span.GetAttributes() {
		if text := kv.GetValue().GetStringValue(); text != "" {
			attributes[kv.GetKey()] = text
		} else {
			attributes[kv.GetKey()] = kv.GetValue().GetIntValue()
		}
	}
	return attributes
}

// TestTracesOfCalls: a call below Caddy's tracing is a span of the client's trace, under the name and version of this service, with the figures of the books and nothing that was
// said, and the vendor gets its context where the configuration says so.
func TestTracesOfCalls(t *testing.T) {
	t.Parallel()
	receiver, up := startTraceReceiver(t), startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.Traces = receiver.URL
	p := startProduct(t, d)
	c := p.operator().customer(t, 1_000_000)
	script := up.script(replying)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	as := &client{http: p.clear, base: p.BaseURL, key: c.Key}
	requireCompletion(t, as.chat(t, prompt(modelStd, script.Mark+"a secret", false), "Traceparent", "00-"+trace+"-b7ad6b7169203331-01"), modelStd)

	span := receiver.awaitSpan(&p.process, "chat acme-standard-1", func(*tracepb.Span) bool { return true })
	request := receiver.awaitSpan(&p.process, "handler", func(s *tracepb.Span) bool { return slices.Equal(s.GetSpanId(), span.GetParentSpanId()) })
	require.Equal(t, trace, hex.EncodeToString(span.GetTraceId()))
	require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(request.GetParentSpanId()))
	require.Equal(t, tracepb.Span_SPAN_KIND_CLIENT, span.GetKind())
	require.NotContains(t, span.String(), "secret")
	attributes := attributesOf(span)
	require.Equal(t, "chat", attributes["gen_ai.operation.name"])
	require.Equal(t, modelStd, attributes["svc.model"])
	require.Equal(t, "acme-standard-1", attributes["gen_ai.response.model"])
	require.EqualValues(t, 11, attributes["gen_ai.usage.input_tokens"])
	require.EqualValues(t, 7, attributes["gen_ai.usage.output_tokens"])
	require.Equal(t, []string{"caddy-svc devel"}, receiver.seen())
	require.Equal(t, "00-"+trace+"-"+hex.EncodeToString(span.GetSpanId())+"-01", script.only(t).Header.Get("Traceparent"))
}

// TestTracesOfAnswers: the span of a webhook links to the span under which a worker, in another process, answers its text: with the
// call of the model and the sending below it. A text that is answered together with an earlier one leads there, too.
func TestTracesOfAnswers(t *testing.T) {
	t.Parallel()
	receiver := startTraceReceiver(t)
	c := prepareConnectedWith(t, store.SQLite, func(d *deployment) { d.Traces = receiver.URL })
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	lan := b.line(t, bot.Type).from(1)
	for _, text := range []string{"a secret", "another secret"} {
		requireQueued(t, c.deliver(t, lan.says(text)), 1)
	}
	c.worker = c.startWorker()
	c.awaitSent(lan, 1)

	every := func(*tracepb.Span) bool { return true }
	answer := receiver.awaitSpan(&c.worker.process, "answer bot", every)
	below := func(s *tracepb.Span) bool {
		return bytes.Equal(s.GetTraceId(), answer.GetTraceId()) && bytes.Equal(s.GetParentSpanId(), answer.GetSpanId())
	}
	receiver.awaitSpan(&c.worker.process, "chat acme-standard-1", below)
	receiver.awaitSpan(&c.worker.process, "send bot", below)
	require.Empty(t, answer.GetParentSpanId())
	require.Equal(t, "answered", attributesOf(answer)["svc.outcome"])
	require.EqualValues(t, 2, attributesOf(answer)["svc.texts"])

	linksTo := func(to *tracepb.Span) func(*tracepb.Span) bool {
		return func(s *tracepb.Span) bool {
			return slices.ContainsFunc(s.GetLinks(), func(link *tracepb.Span_Link) bool {
				return bytes.Equal(link.GetTraceId(), to.GetTraceId()) && bytes.Equal(link.GetSpanId(), to.GetSpanId())
			})
		}
	}
	first := receiver.awaitSpan(&c.process, "handler", linksTo(answer))
	joined := receiver.awaitSpan(&c.worker.process, "join bot", linksTo(answer))
	second := receiver.awaitSpan(&c.process, "handler", linksTo(joined))
	require.NotEqual(t, first.GetTraceId(), second.GetTraceId())
	require.Equal(t, []string{"caddy-svc devel", "caddy-svc-worker devel"}, receiver.seen())
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	for _, span := range receiver.spans {
		require.NotContains(t, span.String(), "secret")
	}
}
