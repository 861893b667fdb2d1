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

// limitCollectors are the collectors for limited resources, the memory of bodies and the rate: those of the process, and the
// gauge of a's Redis if it has one.
func limitCollectors(a *App) []prometheus.Collector {
	collectors := []prometheus.Collector{redisSeconds, redisRequests, redisFailedTotal, redisLocalTotal}
	for _, share := range handlers.Shares() {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "buffered_bytes", ConstLabels: prometheus.Labels{"share": share.String()},
			Help: "Bytes of request bodies in memory in this process, by share of `limits buffered_bytes`.",
		}, func() float64 { return a.bufferedBytes(share) }))
	}
	if a.Redis == nil {
		return collectors
	}
	return append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "redis", Name: "up",
		Help: "1 if requests are counted in Redis, 0 if it was given up for now and they are counted in this process.",
	}, a.redisUp))
}

// bufferedBytes is the gauge of a share of the bodies in memory.
func (a *App) bufferedBytes(share handlers.Share) float64 {
	select {
	case <-a.ready:
		return float64(a.runtime.shared.bodies.UsedBy(share))
	default:
		return 0
	}
}

// redisUp is the gauge of Redis.
func (a *App) redisUp() float64 {
	select {
	case <-a.ready:
		if redis, ok := a.runtime.limiter.(*limit.Redis); ok && redis.Answers() {
			return 1
		}
	default:
	}
	return 0
}

// placeCollectors are the gauges of the bounded places that calls take, of a's configuration.
func placeCollectors(a *App) []prometheus.Collector {
	collectors := []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "detached_calls",
		Help: "Calls that go on without their client, for its Idempotency-Key or until their provider begins to answer.",
	}, a.gauge(func(rt *runtime) int { return rt.calls.Detached() }))}
	for _, p := range a.Providers {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "provider_calls_running", ConstLabels: prometheus.Labels{"provider": p.Name},
			Help: "Calls to the provider that run in this process; max_calls bounds them.",
		}, a.gauge(func(rt *runtime) int { return rt.shared.calls.CallsAt(p.Name) })))
	}
	return collectors
}

// gauge reads a number, 0 before the store is ready.
func (a *App) gauge(read func(*runtime) int) func() float64 {
	return func() float64 {
		select {
		case <-a.ready:
			return float64(read(a.runtime))
		default:
			return 0
		}
	}
}
