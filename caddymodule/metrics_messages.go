package caddymodule

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/worker"
)

// The collectors of customer messages, on their way in and out; see metrics.go.
var (
	webhooksTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "webhooks_total",
		Help: "Deliveries of platforms, by platform and outcome: accepted, or the code of the error body.",
	}, []string{"platform", "outcome"})
	turnsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "turns_total",
		Help: "Passes of the worker over an answer, by how they ended.",
	}, []string{"outcome"})
	sendsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "sends_total",
		Help: "Tries to send a message to a customer, by channel type and outcome.",
	}, []string{"type", "outcome"})
	conversationsLeasedTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "conversations_leased_total",
		Help: "Conversations that this process's worker took up.",
	})
	leasesLostTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "leases_lost_total",
		Help: "Conversations whose lease ran out while this process's worker had them.",
	})
)

// countWebhook counts a delivery by its outcome.
func countWebhook(platform string, err error) {
	outcome := "accepted"
	if err != nil {
		outcome = string(errcode.InternalError)
		if answer, ok := errors.AsType[*handlers.Error](err); ok {
			outcome = string(answer.Code)
		}
	}
	webhooksTotal.WithLabelValues(platform, outcome).Inc()
}

// workerMetrics implements [worker.Observer].
type workerMetrics struct{}

var _ worker.Observer = workerMetrics{}

func (workerMetrics) Leased(n int)             { conversationsLeasedTotal.Add(float64(n)) }
func (workerMetrics) LeaseLost()               { leasesLostTotal.Inc() }
func (workerMetrics) TurnEnded(outcome string) { turnsTotal.WithLabelValues(outcome).Inc() }
func (workerMetrics) Sent(channelType, outcome string) {
	sendsTotal.WithLabelValues(channelType, outcome).Inc()
}

// queueDepthWait bounds how long a scrape of the queue may wait for the store.
const queueDepthWait = time.Second

// queueGauges reads the whole queue's depth at each scrape, once for all gauges; -1 says that it can't be read.
type queueGauges struct {
	depth func(context.Context) (inbox.Depth, error)

	due, leased, dead, attention, oldest *prometheus.Desc
}

func newQueueGauges(a *App) *queueGauges {
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "queue", name), help+" in the whole store; -1 if it can't be read.", nil, nil)
	}
	return &queueGauges{
		depth:     a.queueDepth,
		due:       gauge("due_conversations", "Conversations that wait for a worker,"),
		leased:    gauge("leased_conversations", "Conversations that a worker has,"),
		dead:      gauge("dead_turns", "Answers that were given up,"),
		attention: gauge("attention_turns", "Answers that wait for somebody to act,"),
		oldest:    gauge("oldest_due_seconds", "How long the conversation that waits longest for a worker has been due,"),
	}
}

var _ prometheus.Collector = (*queueGauges)(nil)

// Describe implements prometheus.Collector.
func (g *queueGauges) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{g.due, g.leased, g.dead, g.attention, g.oldest} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (g *queueGauges) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queueDepthWait)
	defer cancel()
	depth, err := g.depth(ctx)
	oldest := depth.OldestDue.Seconds()
	if err != nil {
		depth, oldest = inbox.Depth{Due: -1, Leased: -1, Dead: -1, Attention: -1}, -1
	}
	for _, gauge := range []struct {
		desc  *prometheus.Desc
		value float64
	}{
		{g.due, float64(depth.Due)},
		{g.leased, float64(depth.Leased)},
		{g.dead, float64(depth.Dead)},
		{g.attention, float64(depth.Attention)},
		{g.oldest, oldest},
	} {
		metrics <- prometheus.MustNewConstMetric(gauge.desc, prometheus.GaugeValue, gauge.value)
	}
}

// queueDepth reads the queue, if the store is ready.
func (a *App) queueDepth(ctx context.Context) (inbox.Depth, error) {
	select {
	case <-a.ready:
		return a.runtime.queue.Depth(ctx)
	default:
		return inbox.Depth{}, errNotReady
	}
}
