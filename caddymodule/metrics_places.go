package caddymodule

import "github.com/prometheus/client_golang/prometheus"

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
