package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const namespace = "svc"

// These collectors live as long as the process, so that counters survive a reload. Every configuration registers them on
// its own registry. No label names a key or an organization, because there may be any number of them; svc_queue_lag_seconds names
// [mostLags] organizations.
var (
	requestsTotal = counters("requests_total",
		"Requests that reached a handler; one request can pass several.", "handler")
	failuresTotal = counters("failures_total",
		"Requests that ended with an error body. Any internal_error is a fault of the service.", "code")

	callsTotal = counters("calls_total",
		"Model calls. provider_busy is a call beyond max_calls, too_many_calls one beyond `limits calls`, replayed a resend without cost.",
		"model", "outcome", "stream", "byok")
	tokensTotal = counters("tokens_total",
		"Tokens of settled calls; cached ones are part of prompt. The source is estimated if the report is incomplete or the client left.",
		"model", "kind", "source")
	chargedMicrosTotal   = counters("charged_micros_total", "Micros taken from wallets.", "model")
	shortfallMicrosTotal = counters("shortfall_micros_total",
		"Cost that no wallet carried: the operator's loss. Above 0, look for a model whose vendor counts other tokens than we do.", "model")
	settleLateTotal = counter("settle_late_total",
		"Calls whose hold or end the store didn't confirm in time. They are void, except settlements with an Idempotency-Key.")
	providerSeconds = histograms("provider_seconds",
		"Duration of the call to the provider, to the end of the answer.",
		[]float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640}, "provider")
	firstTextSeconds = histograms("first_text_seconds",
		"From the start of the call to the provider to the first text.",
		[]float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80}, "provider")
	outputSpeed = histograms("output_tokens_per_second",
		"Output tokens of a whole answer, reasoning included, by the duration of its call.",
		[]float64{1, 2, 5, 10, 20, 35, 50, 75, 100, 150, 200, 300, 500, 1000, 2000}, "provider")

	genAITokens = genAI("token_usage",
		"Tokens by the provider's count, cached ones and reasoning included.",
		prometheus.ExponentialBuckets(1, 4, 14), "gen_ai_token_type")
	genAISeconds = genAI("operation_duration_seconds",
		"Duration of the call to the provider; error_type is the outcome if it isn't completed.",
		genAISecondsBuckets, "error_type")
	genAIFirstChunk = genAI("operation_time_to_first_chunk_seconds",
		"From the start of a streamed call to the first text.", genAISecondsBuckets)

	writerOps = histogram("writer_batch_operations",
		"Operations of one transaction; they grow before transactions get slow.", prometheus.ExponentialBuckets(1, 2, 9))
	writerFailed = counter("writer_failed_operations_total",
		"Writes that failed in the store; a refusal, like a call without credits, is none.")
	writerRefused = counter("writer_refused_operations_total",
		"Writes that were refused because too much waits: the store is too slow for the load.")
	writerExpectedSeconds = ofProcess(prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "writer_expected_seconds",
		Help: "Expected duration of the next transaction. A write that can't begin within 1.5 times that (2 to 4 s) is refused.",
	}))
	writerTurnSeconds = histogram("writer_turn_seconds",
		"Wait for the turn among processes that write one SQLite file; 0 with PostgreSQL.", prometheus.ExponentialBuckets(.0001, 2, 16))
	writerSeconds = histogram("writer_transaction_seconds",
		"Duration of the writer's transactions.", prometheus.ExponentialBuckets(.0001, 2, 16))

	webhooksTotal = counters("webhooks_total",
		"Deliveries of platforms and providers of payments: accepted, or the code of the error. unauthenticated: the secrets differ.",
		"platform", "outcome")
	queueWaitSeconds = histograms("queue_wait_seconds",
		"From the first text of each answer until a worker begins the answer, quiet window included.",
		replyBuckets, "type")
	answerSeconds = histograms("answer_seconds",
		"From the first text of each answer until the platform has accepted the first part of the answer.",
		replyBuckets, "type")
	turnsTotal               = counters("turns_total", "Passes of the worker over an answer.", "outcome")
	sendsTotal               = counters("sends_total", "Tries to send a message to a customer.", "type", "outcome")
	refreshesTotal           = counters("token_refreshes_total", "Tries to refresh a channel's access token.", "type", "outcome")
	conversationsLeasedTotal = counter("conversations_leased_total", "Conversations that this process's worker took up.")
	leasesLostTotal          = counter("leases_lost_total",
		"Conversations whose lease ran out in this worker: it or its store stood still.")
	eventTriesTotal = counters("event_deliveries_total",
		"Tries to deliver an event. `GET /event-endpoints/{id}/deliveries` says which fail.", "outcome")
	fileFetchesTotal = counters("file_fetches_total",
		"Tries to fetch a customer's file: stored, retried, or the code of the failure.", "outcome")

	// Without `redis` these stay at 0.
	redisSeconds = histogram("redis_seconds",
		"Duration of the pipelines to Redis, including failed ones; above 0.1 s they fail.", prometheus.ExponentialBuckets(.0001, 2, 12))
	redisRequests = histogram("redis_pipeline_requests",
		"Requests that shared one pipeline to Redis.", prometheus.ExponentialBuckets(1, 2, 9))
	redisFailedTotal = counter("redis_failed_pipelines_total", "Pipelines to Redis that failed or came too late.")
	redisLocalTotal  = counters("redis_local_requests_total",
		"Requests counted here instead of in Redis: open (Redis is given up), late, failed, busy, key (another program's key).",
		"reason")
)

// replyBuckets are the bounds, in seconds, of the time that a customer waits for an answer: 25 ms to an hour.
var replyBuckets = []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 900, 3600}

// genAISecondsBuckets are the bounds that the conventions recommend.
var genAISecondsBuckets = prometheus.ExponentialBuckets(.01, 2, 14)

// genAI is a histogram of OpenTelemetry's conventions for generative AI (semantic-conventions v1.41), by its name in Prometheus and
// with each attribute that has a number of values bounded by the configuration. Published dashboards find the series by these
// names.
func genAI(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
	labels := append([]string{"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"}, more...)
	return ofProcess(prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gen_ai_client_" + name, Help: help, Buckets: buckets}, labels))
}

// An alert on an increase of a counter misses the first one if the series begins with it.
func init() {
	for _, code := range errcode.All() {
		failuresTotal.WithLabelValues(string(code))
	}
}

// processCollectors are the collectors above.
var processCollectors []prometheus.Collector

func ofProcess[C prometheus.Collector](c C) C {
	processCollectors = append(processCollectors, c)
	return c
}

func counter(name, help string) prometheus.Counter {
	return ofProcess(prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}))
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return ofProcess(prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return ofProcess(prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}))
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	options := prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
	return ofProcess(prometheus.NewHistogramVec(options, labels))
}

// registerMetrics registers the process's collectors, and the gauges of a configuration, on the configuration's registry.
func registerMetrics(registry *prometheus.Registry, a *App) error {
	var errs []error
	for _, c := range append(a.gauges(), processCollectors...) {
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

// gauges returns the gauges that are read from a configuration's runtime at each scrape.
func (a *App) gauges() []prometheus.Collector {
	gauges := []prometheus.Collector{
		a.queueGauges(), a.conditionGauge(), a.endpointGauges(),
		gauge("build_info", "1, with the program's version as its label.", prometheus.Labels{"version": Version()},
			func() float64 { return 1 }),
		gauge("calls_running", "Requests and calls that live on the configured store in this process.", nil,
			a.reading(func(rt *runtime) int64 { return int64(rt.shared.calls.Running()) })),
		gauge("detached_calls", "Calls that continue without their client; at most 256.", nil,
			a.reading(func(rt *runtime) int64 { return int64(rt.calls.Detached()) })),
		gauge("open_holds", "Holds of calls that run or weren't settled, in the whole store; -1 if it can't be read.", nil,
			func() float64 {
				n, err := atScrape(a, func(ctx context.Context, rt *runtime) (int64, error) { return rt.shared.book.OpenHolds(ctx) })
				if err != nil {
					return -1
				}
				return float64(n)
			}),
		gauge("tranche_calls", "Calls of this process that are held from a tranche of their wallet.", nil,
			a.reading(func(rt *runtime) int64 { return int64(rt.shared.tranches.Calls()) })),
		gauge("wal_bytes", "Size of SQLite's write-ahead log. Above some 100 MiB a reader keeps it from being folded in.", nil,
			a.reading(func(rt *runtime) int64 { return rt.shared.db.WALBytes() })),
	}
	for _, share := range handlers.Shares() {
		gauges = append(gauges, gauge("buffered_bytes",
			"Bytes of request bodies and unread answers, by share of `limits buffered_bytes`; a full one refuses its own senders.",
			prometheus.Labels{"share": share.String()},
			a.reading(func(rt *runtime) int64 { return rt.shared.bodies.UsedBy(share) })))
	}
	for _, p := range a.Providers {
		gauges = append(gauges, gauge("provider_calls_running",
			"Calls to the provider that run in this process, up to max_calls when it hangs.", prometheus.Labels{"provider": p.Name},
			a.reading(func(rt *runtime) int64 { return int64(rt.shared.calls.CallsAt(p.Name)) })))
	}
	for _, m := range a.Models {
		if day, err := m.shutdown(); err == nil && !day.IsZero() {
			gauges = append(gauges, gauge("model_shutdown_timestamp_seconds",
				"When the vendor ends the model, by its shutdown_date. Alert 90 days before.", prometheus.Labels{"model": m.Name},
				func() float64 { return float64(day.Unix()) }))
		}
	}
	if a.Redis != nil {
		gauges = append(gauges, gauge("redis_up",
			"0 while Redis is given up and this process counts requests. Alert on minutes of 0.", nil, a.reading(redisUp)))
	}
	return gauges
}

func gauge(name, help string, labels prometheus.Labels, read func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}, read)
}

// reading returns a function that reads a number from a's runtime. The function returns 0 until the store is ready.
func (a *App) reading(read func(*runtime) int64) func() float64 {
	return func() float64 {
		if !a.isReady() {
			return 0
		}
		return float64(read(a.runtime))
	}
}

// scrapeWait bounds how long a scrape of the metrics may wait for each read of the store.
const scrapeWait = time.Second

// atScrape reads something of a's runtime. It returns an error until the store is ready.
func atScrape[T any](a *App, read func(context.Context, *runtime) (T, error)) (found T, err error) {
	if !a.isReady() {
		return found, errNotReady
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWait)
	defer cancel()
	return read(ctx, a.runtime)
}

// scraped reads several series at each scrape.
type scraped struct {
	descs   []*prometheus.Desc
	collect func(add func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string))
}

func (s *scraped) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range s.descs {
		descs <- desc
	}
}

func (s *scraped) Collect(metrics chan<- prometheus.Metric) {
	s.collect(func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	})
}

// describe adds a series.
func (s *scraped) describe(subsystem, name, help string, labels ...string) *prometheus.Desc {
	desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, labels, nil)
	s.descs = append(s.descs, desc)
	return desc
}

// mostLags is how many organizations svc_queue_lag_seconds names.
const mostLags = 10

// queueGauges reads the whole queue's depth at each scrape, once for all gauges. If it can't be read, gauges without labels are -1 and
// gauges with labels are absent.
func (a *App) queueGauges() prometheus.Collector {
	s, figures := new(scraped), map[*prometheus.Desc]func(inbox.Depth) float64{}
	figure := func(name, help string, read func(inbox.Depth) float64) {
		figures[s.describe("queue", name, help+", in the whole store; -1 if it can't be read.")] = read
	}
	figure("due_conversations", "Conversations that wait for a worker", func(d inbox.Depth) float64 { return float64(d.Due) })
	figure("leased_conversations", "Conversations that a worker has", func(d inbox.Depth) float64 { return float64(d.Leased) })
	figure("dead_turns", "Answers that were given up", func(d inbox.Depth) float64 { return float64(d.Dead) })
	figure("attention_turns", "Answers that wait for a person to act", func(d inbox.Depth) float64 { return float64(d.Attention) })
	figure("oldest_due_seconds", "How long the longest-waiting conversation has been due",
		func(d inbox.Depth) float64 { return d.OldestDue.Seconds() })
	standing := s.describe("queue", "standing_turns",
		"Answers that stand still or were given up, in the whole store.", "code")
	lags := s.describe("queue", "lag_seconds",
		"How long an organization's longest-waiting conversation has been due; the ten longest.", "organization")
	s.collect = func(add func(*prometheus.Desc, prometheus.ValueType, float64, ...string)) {
		depth, err := atScrape(a, func(ctx context.Context, rt *runtime) (inbox.Depth, error) { return rt.queue.Depth(ctx) })
		for desc, read := range figures {
			value := -1.0
			if err == nil {
				value = read(depth)
			}
			add(desc, prometheus.GaugeValue, value)
		}
		turns, err := atScrape(a, func(ctx context.Context, rt *runtime) (map[string]int64, error) { return rt.queue.StandingByCode(ctx) })
		if err == nil {
			for code, n := range turns {
				add(standing, prometheus.GaugeValue, float64(n), code)
			}
		}
		longest, _ := atScrape(a, func(ctx context.Context, rt *runtime) ([]inbox.Lag, error) { return rt.queue.Lags(ctx, mostLags) })
		for _, lag := range longest {
			add(lags, prometheus.GaugeValue, lag.Due.Seconds(), lag.OrgID)
		}
	}
	return s
}

// conditionGauge counts the conditions that hold at each scrape. It is absent if they can't be read.
func (a *App) conditionGauge() prometheus.Collector {
	s := new(scraped)
	held := s.describe("", "condition", "Conditions that need the operator, in the whole store. `caddy svc status` has their texts.", "kind")
	s.collect = func(add func(*prometheus.Desc, prometheus.ValueType, float64, ...string)) {
		all, err := atScrape(a, func(ctx context.Context, rt *runtime) ([]conditions.Condition, error) {
			return conditions.List(ctx, rt.shared.db)
		})
		if err != nil {
			return
		}
		subjects := map[conditions.Kind]map[string]bool{}
		for i := range all {
			if subjects[all[i].Kind] == nil {
				subjects[all[i].Kind] = map[string]bool{}
			}
			subjects[all[i].Kind][all[i].Subject] = true
		}
		for _, kind := range conditions.Kinds() {
			add(held, prometheus.GaugeValue, float64(len(subjects[kind])), string(kind))
		}
	}
	return s
}

// callKind is everything by which the series of calls differ. The configuration bounds it, as it bounds the labels.
type callKind struct {
	model, provider, vendorModel string
	outcome                      gateway.Outcome
	source                       billing.UsageSource
	stream, byok                 bool
	reached, text, tokens        bool // the provider was called, there was text, there was usage
}

// callSeries are the series of the calls of one kind. If the kind has no tokens, all counters except calls are nil. An observer of a
// figure that the kind doesn't have ignores its values.
type callSeries struct {
	calls, prompt, cached, completion             prometheus.Counter
	seconds, firstText, speed                     prometheus.Observer
	genSeconds, genFirst, genPrompt, genCompleted prometheus.Observer
}

// keptSeries are the series of all kinds of calls so far, because a lookup by labels costs three times as much as counting a call.
var keptSeries = struct {
	sync.RWMutex

	of map[callKind]*callSeries
}{of: map[callKind]*callSeries{}}

func seriesOf(k callKind) *callSeries {
	keptSeries.RLock()
	s := keptSeries.of[k]
	keptSeries.RUnlock()
	if s == nil {
		s = newCallSeries(k)
		keptSeries.Lock()
		keptSeries.of[k] = s
		keptSeries.Unlock()
	}
	return s
}

func newCallSeries(k callKind) *callSeries {
	none := prometheus.ObserverFunc(func(float64) {})
	s := &callSeries{
		calls:   callsTotal.WithLabelValues(k.model, string(k.outcome), strconv.FormatBool(k.stream), strconv.FormatBool(k.byok)),
		seconds: none, firstText: none, speed: none, genSeconds: none, genFirst: none, genPrompt: none, genCompleted: none,
	}
	if k.text {
		s.firstText = firstTextSeconds.WithLabelValues(k.provider)
	}
	if k.tokens {
		s.prompt = tokensTotal.WithLabelValues(k.model, "prompt", string(k.source))
		s.cached = tokensTotal.WithLabelValues(k.model, "cached", string(k.source))
		s.completion = tokensTotal.WithLabelValues(k.model, "completion", string(k.source))
	}
	if !k.reached {
		return s
	}
	s.seconds = providerSeconds.WithLabelValues(k.provider)
	provider, failed := gateway.WellKnownProvider(k.provider), ""
	if k.outcome != gateway.OutcomeCompleted {
		failed = string(k.outcome)
	}
	s.genSeconds = genAISeconds.WithLabelValues(gateway.ChatOperation, provider, k.vendorModel, failed)
	if k.stream && k.text {
		s.genFirst = genAIFirstChunk.WithLabelValues(gateway.ChatOperation, provider, k.vendorModel)
	}
	if k.source == billing.UsageProvider {
		s.genPrompt = genAITokens.WithLabelValues(gateway.ChatOperation, provider, k.vendorModel, "input")
		s.genCompleted = genAITokens.WithLabelValues(gateway.ChatOperation, provider, k.vendorModel, "output")
		if k.outcome == gateway.OutcomeCompleted {
			s.speed = outputSpeed.WithLabelValues(k.provider)
		}
	}
	return s
}

// callMetrics implements [gateway.Observer].
type callMetrics struct{}

func (callMetrics) CallEnded(e gateway.Ended) {
	prompt, completion := float64(e.Usage.PromptTokens), float64(e.Usage.CompletionTokens)
	s := seriesOf(callKind{
		e.Model, e.Provider, e.VendorModel, e.Outcome, e.UsageSource, e.Stream, e.BYOK, e.Upstream > 0, e.FirstText > 0, prompt+completion > 0,
	})
	s.calls.Inc()
	s.seconds.Observe(e.Upstream.Seconds())
	s.firstText.Observe(e.FirstText.Seconds())
	s.genSeconds.Observe(e.Upstream.Seconds())
	s.genFirst.Observe(e.FirstText.Seconds())
	s.genPrompt.Observe(prompt)
	s.genCompleted.Observe(completion)
	if completion > 0 {
		s.speed.Observe(completion / e.Upstream.Seconds())
	}
	if s.prompt != nil {
		s.prompt.Add(prompt)
		s.cached.Add(float64(e.Usage.CachedPromptTokens))
		s.completion.Add(completion)
		observeSettled(e.Model, e.Settled)
	}
}

func observeSettled(model string, settled billing.Settled) {
	chargedMicrosTotal.WithLabelValues(model).Add(float64(settled.ChargedMicros))
	shortfallMicrosTotal.WithLabelValues(model).Add(float64(settled.ShortfallMicros))
}

func (callMetrics) SettleLate() { settleLateTotal.Inc() }

// SettledLate implements [gateway.Observer].
func (callMetrics) SettledLate(model string, settled billing.Settled) { observeSettled(model, settled) }

// writerExpected is the expected duration of the next transaction of this process, in nanoseconds.
var writerExpected atomic.Int64

// writerMetrics implements [store.WriterObserver].
type writerMetrics struct{}

func (writerMetrics) ObserveBatch(batch store.Batch) {
	writerOps.Observe(float64(batch.Operations))
	writerFailed.Add(float64(batch.Failed))
	writerRefused.Add(float64(batch.Refused))
	writerExpectedSeconds.Set(batch.Expected.Seconds())
	writerExpected.Store(int64(batch.Expected))
	writerTurnSeconds.Observe(batch.Turn.Seconds())
	writerSeconds.Observe(batch.Transaction.Seconds())
}
