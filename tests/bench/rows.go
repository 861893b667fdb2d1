package main

import (
	"strings"
	"time"
)

// variant is one way of serving the same work.
type variant string

const (
	proxied variant = "reverse_proxy"
	free    variant = "no money (BYOK)"
	paid    variant = "strict money"
)

// row is one line of the figures: the same load on each variant.
type row struct {
	name        string
	connections int
	stream      bool
	variants    []variant
	// cpu is the figure to hold: CPU of a variant to CPU of reverse_proxy (design §10).
	cpu map[variant]bar
	// rate is the same for requests per second.
	rate map[variant]bar
}

// bar is what a ratio must hold and what it should reach.
type bar struct{ must, goal float64 }

func rows(only string) []row {
	all := []row{
		{
			name: "answer, C=1", connections: 1, variants: []variant{proxied, free, paid},
			cpu: map[variant]bar{free: {1.0, 0.8}, paid: {3.5, 2.2}},
		},
		{
			name: "answer, C=32", connections: 32, variants: []variant{proxied, free, paid},
			cpu:  map[variant]bar{free: {0.9, 0.70}, paid: {1.7, 1.15}},
			rate: map[variant]bar{paid: {0.6, 0.95}},
		},
		{
			name: "50-chunk stream, C=64", connections: 64, stream: true, variants: []variant{proxied, free, paid},
			cpu: map[variant]bar{free: {1.1, 0.9}, paid: {1.6, 1.2}},
		},
	}
	var chosen []row
	for _, r := range all {
		if strings.Contains(r.name, only) {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// figures are what one slice of one variant showed.
type figures struct {
	answers  int
	elapsed  time.Duration
	cpu      time.Duration
	latency  []time.Duration
	charged  int64
	tokens   int64
	failures []string
}

func (f figures) cpuPerAnswer() float64 {
	return float64(f.cpu.Microseconds()) / float64(max(1, f.answers))
}

func (f figures) rate() float64 { return float64(f.answers) / f.elapsed.Seconds() }
