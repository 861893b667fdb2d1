package caddymodule

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/limit"
)

// The collectors of the rate limit in Redis; see metrics.go. Without `redis` they stay at 0.
var (
	redisSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: "redis", Name: "seconds",
		Help:    "Duration of the pipelines to Redis, failed ones too.",
		Buckets: prometheus.ExponentialBuckets(.0001, 2, 12),
	})
	redisRequests = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: "redis", Name: "pipeline_requests",
		Help:    "Requests that shared one pipeline to Redis.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 9),
	})
	redisFailedTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: "redis", Name: "failed_pipelines_total",
		Help: "Pipelines to Redis that failed or came too late.",
	})
	redisLocalTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: "redis", Name: "local_requests_total",
		Help: "Requests counted in this process instead of Redis, by reason: open (Redis is given up for now), late, failed, busy, key.",
	}, []string{"reason"})
)

// redisMetrics implements [limit.RedisObserver].
type redisMetrics struct{}

var _ limit.RedisObserver = redisMetrics{}

func (redisMetrics) Pipelined(requests int, took time.Duration, failed bool) {
	redisRequests.Observe(float64(requests))
	redisSeconds.Observe(took.Seconds())
	if failed {
		redisFailedTotal.Inc()
	}
}

func (redisMetrics) Local(reason limit.LocalReason) {
	redisLocalTotal.WithLabelValues(string(reason)).Inc()
}

// limitCollectors returns the collectors of the rate limit in Redis and of the memory for bodies.
func limitCollectors(a *App) []prometheus.Collector {
	collectors := []prometheus.Collector{redisSeconds, redisRequests, redisFailedTotal, redisLocalTotal}
	for _, share := range handlers.Shares() {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "buffered_bytes", ConstLabels: prometheus.Labels{"share": share.String()},
			Help: "Bytes of request bodies in memory in this process, by share of `limits buffered_bytes`.",
		}, gauge(a, func(rt *runtime) int64 { return rt.shared.bodies.UsedBy(share) })))
	}
	if a.Redis == nil {
		return collectors
	}
	return append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "redis", Name: "up",
		Help: "1 if requests are counted in Redis, 0 if it was given up for now and they are counted in this process.",
	}, gauge(a, redisUp)))
}

// redisUp returns 1 if Redis counts the requests.
func redisUp(rt *runtime) int {
	if redis, ok := rt.limiter.(*limit.Redis); ok && redis.Answers() {
		return 1
	}
	return 0
}

// callLimitCollectors returns the gauges of calls whose number is limited.
func callLimitCollectors(a *App) []prometheus.Collector {
	collectors := []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "detached_calls",
		Help: "Calls that go on without their client, for its Idempotency-Key or until their provider begins to answer.",
	}, gauge(a, func(rt *runtime) int { return rt.calls.Detached() }))}
	for _, p := range a.Providers {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "provider_calls_running", ConstLabels: prometheus.Labels{"provider": p.Name},
			Help: "Calls to the provider that run in this process; max_calls bounds them.",
		}, gauge(a, func(rt *runtime) int { return rt.shared.calls.CallsAt(p.Name) })))
	}
	return collectors
}
