package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const namespace = "svc"

// These collectors live as long as the process, so that counters survive a reload. Every configuration registers them on
// its own registry. No label names a key or an organization, because there may be any number of them.
var (
	requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "requests_total",
		Help: "Requests that reached a svc handler, by handler; one request can pass several.",
	}, []string{"handler"})
	failuresTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "failures_total",
		Help: "Requests that ended with an error body, by its code.",
	}, []string{"code"})
	callsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "calls_total",
		Help: "Model calls by model, outcome, response form and whose provider key paid.",
	}, []string{"model", "outcome", "stream", "byok"})
	tokensTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "tokens_total",
		Help: "Tokens of settled calls by model, kind (prompt, cached, completion; cached is part of prompt) and source.",
	}, []string{"model", "kind", "source"})
	chargedMicrosTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "charged_micros_total",
		Help: "Micros taken from wallets, by model.",
	}, []string{"model"})
	shortfallMicrosTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "shortfall_micros_total",
		Help: "Micros of cost that no wallet carried: the operator's loss.",
	}, []string{"model"})
	settleLateTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "settle_late_total",
		Help: "Calls whose end, or hold, was not confirmed by the store in time. They are void but for settlements with an Idempotency-Key.",
	})
	providerSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "provider_seconds",
		Help:    "Duration of the call to the model provider, from its start to the end of the answer.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640},
	}, []string{"provider"})
	firstTextSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "first_text_seconds",
		Help:    "Time from the start of the call to the provider to the first text of its answer.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80},
	}, []string{"provider"})
	writerOps = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "writer_batch_operations",
		Help:    "Operations that shared one transaction.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 9),
	})
	writerFailed = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "writer_failed_operations_total",
		Help: "Operations that the store could not carry out.",
	})
	writerRefused = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "writer_refused_operations_total",
		Help: "Writes that were refused at once because they would have had to wait too long for the writer.",
	})
	writerExpectedSeconds = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "writer_expected_seconds",
		Help: "How long the writer expects its next transaction to take, by the last ones; decides what is refused.",
	})
	writerTurnSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "writer_turn_seconds",
		Help:    "Wait for the turn among the processes that write one SQLite file; 0 with PostgreSQL.",
		Buckets: prometheus.ExponentialBuckets(.0001, 2, 16),
	})
	writerSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "writer_transaction_seconds",
		Help:    "Duration of the writer's transactions.",
		Buckets: prometheus.ExponentialBuckets(.0001, 2, 16),
	})
)

// registerMetrics registers the process's collectors and the gauges of a's store on a configuration's registry.
func registerMetrics(registry *prometheus.Registry, a *App) error {
	collectors := []prometheus.Collector{
		requestsTotal, failuresTotal, callsTotal, tokensTotal, chargedMicrosTotal, shortfallMicrosTotal, settleLateTotal,
		providerSeconds, firstTextSeconds, writerOps, writerFailed, writerRefused, writerExpectedSeconds, writerTurnSeconds, writerSeconds,
		webhooksTotal, turnsTotal, sendsTotal, conversationsLeasedTotal, leasesLostTotal, newQueueGauges(a),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "calls_running",
			Help: "Requests and calls that live on the configured store in this process.",
		}, gauge(a, func(rt *runtime) int { return rt.shared.calls.Running() })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "open_holds",
			Help: "Holds that are neither settled nor voided nor expired, in the whole store; -1 if it can't be read.",
		}, a.openHolds),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "wal_bytes",
			Help: "Size of the SQLite write-ahead log; 0 with PostgreSQL.",
		}, gauge(a, func(rt *runtime) int64 { return rt.shared.db.WALBytes() })),
	}
	collectors = append(collectors, limitCollectors(a)...)
	collectors = append(collectors, callLimitCollectors(a)...)
	var errs []error
	for _, c := range collectors {
		err := registry.Register(c)
		if _, already := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !already {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// callMetrics implements [gateway.Observer].
type callMetrics struct{}

var _ gateway.Observer = callMetrics{}

func (callMetrics) CallEnded(e gateway.Ended) {
	callsTotal.WithLabelValues(e.Model, string(e.Outcome), strconv.FormatBool(e.Stream), strconv.FormatBool(e.BYOK)).Inc()
	if e.Upstream > 0 {
		providerSeconds.WithLabelValues(e.Provider).Observe(e.Upstream.Seconds())
	}
	if e.FirstText > 0 {
		firstTextSeconds.WithLabelValues(e.Provider).Observe(e.FirstText.Seconds())
	}
	if e.Usage.PromptTokens+e.Usage.CompletionTokens == 0 {
		return
	}
	source := string(e.UsageSource)
	tokensTotal.WithLabelValues(e.Model, "prompt", source).Add(float64(e.Usage.PromptTokens))
	tokensTotal.WithLabelValues(e.Model, "cached", source).Add(float64(e.Usage.CachedPromptTokens))
	tokensTotal.WithLabelValues(e.Model, "completion", source).Add(float64(e.Usage.CompletionTokens))
	chargedMicrosTotal.WithLabelValues(e.Model).Add(float64(e.Settled.ChargedMicros))
	shortfallMicrosTotal.WithLabelValues(e.Model).Add(float64(e.Settled.ShortfallMicros))
}

func (callMetrics) SettleLate() { settleLateTotal.Inc() }

// writerMetrics implements [store.WriterObserver].
type writerMetrics struct{}

var _ store.WriterObserver = writerMetrics{}

func (writerMetrics) ObserveBatch(batch store.Batch) {
	writerOps.Observe(float64(batch.Operations))
	writerFailed.Add(float64(batch.Failed))
	writerRefused.Add(float64(batch.Refused))
	writerExpectedSeconds.Set(batch.Expected.Seconds())
	writerTurnSeconds.Observe(batch.Turn.Seconds())
	writerSeconds.Observe(batch.Transaction.Seconds())
}

// countFailure counts a request that ended with an error body.
func countFailure(answer *handlers.Error) { failuresTotal.WithLabelValues(string(answer.Code)).Inc() }

// gauge returns a function that reads a number from a's runtime, 0 before the store is ready.
func gauge[N int | int64](a *App, read func(*runtime) N) func() float64 {
	return func() float64 {
		select {
		case <-a.ready:
			return float64(read(a.runtime))
		default:
			return 0
		}
	}
}

// openHoldsWait bounds how long a scrape of the metrics may wait for the store.
const openHoldsWait = time.Second

// openHolds returns the number of holds in the store, -1 if it can't be read.
func (a *App) openHolds() float64 {
	select {
	case <-a.ready:
	default:
		return -1
	}
	ctx, cancel := context.WithTimeout(context.Background(), openHoldsWait)
	defer cancel()
	n, err := a.runtime.shared.book.OpenHolds(ctx)
	if err != nil {
		return -1
	}
	return float64(n)
}
