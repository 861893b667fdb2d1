package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	memoryRowName = "memory of 1,000 slow streams"
	slowStreams   = 1000
	memoryRounds  = 3
	// slowPrompt asks the upstream to stop in the middle; slowMark is the last text that it sends before.
	slowPrompt = "Take your time."
	slowMark   = "word9"
)

// memoryBar is a stream's memory to that of one through reverse_proxy.
var memoryBar = bar{must: 0.8, goal: 0.6}

// runMemory measures what a stream takes that waits for its provider: the growth of a fresh product's resident memory
// with a thousand of them open. PostgreSQL doesn't matter for it, since nothing of the store stays open meanwhile.
func (b *bench) runMemory(ctx context.Context) error {
	variants := []variant{proxied, free, paid}
	kibs := map[variant][]float64{}
	for range memoryRounds {
		for _, v := range variants {
			kib, err := loadMemory(ctx, b.binary, v)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", memoryRowName, v, err)
			}
			kibs[v] = append(kibs[v], kib)
		}
	}
	fmt.Printf("\n%s\n  %-18s %14s   ratio to reverse_proxy\n", memoryRowName, "variant", "KiB per stream")
	for _, v := range variants {
		fmt.Printf("  %-18s %14.0f", v, median(kibs[v]))
		if v == proxied {
			fmt.Println()
			continue
		}
		fmt.Printf("   %s\n", b.sheet.judge(memoryRowName, v, "memory", median(kibs[v])/median(kibs[proxied]), memoryBar, true))
	}
	return nil
}

// loadMemory opens the streams on a product of their own, and lets them end once it has measured.
func loadMemory(ctx context.Context, binary string, v variant) (kib float64, err error) {
	p, err := house{engine: store.SQLite}.open(ctx, binary)
	if err != nil {
		return 0, err
	}
	defer func() { err = p.end(err) }()
	start, err := p.balance(ctx)
	if err != nil {
		return 0, err
	}
	served := &books{startMicros: start}
	// What the first requests allocate once and for all doesn't count.
	warm, err := load(ctx, p, new(servers), row{connections: 32, stream: true}, v, 500*time.Millisecond)
	if err != nil {
		return 0, err
	}
	served.add(v, warm)
	before, err := p.resident()
	if err != nil {
		return 0, err
	}
	streams := make([]*client, slowStreams)
	for i := range streams {
		if streams[i], err = p.begin(v); err != nil {
			return 0, err
		}
		defer streams[i].conn.Close() //nolint:revive // all of them are needed until the end
	}
	after, err := p.resident()
	if err != nil {
		return 0, err
	}
	close(p.upstream.gate)
	ended, err := endAll(streams, v)
	if err != nil {
		return 0, err
	}
	served.add(v, ended)
	return float64(after-before) / slowStreams, served.check(ctx, p)
}

// begin opens a stream and reads it as far as the upstream has sent it.
func (p *product) begin(v variant) (*client, error) {
	path := "/v1/chat/completions"
	if v == proxied {
		path = "/proxied"
	}
	c, err := dial(p.address, request(p.address, path, p.key, slowPrompt, v, true))
	if err != nil {
		return nil, err
	}
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return nil, fmt.Errorf("sending: %w", err)
	}
	if c.response, err = http.ReadResponse(c.reader, nil); err != nil {
		return nil, fmt.Errorf("reading the head: %w", err)
	}
	piece := make([]byte, 4096)
	for !bytes.Contains(c.body.Bytes(), []byte(slowMark)) {
		n, err := c.response.Body.Read(piece)
		c.body.Write(piece[:n])
		if err != nil {
			return nil, fmt.Errorf("reading the beginning: %w: %.200s", err, c.body.Bytes())
		}
	}
	return c, nil
}

// endAll reads the streams to their ends.
func endAll(streams []*client, v variant) (total figures, err error) {
	all, faults := make([]reported, len(streams)), make([]error, len(streams))
	var group sync.WaitGroup
	for i, c := range streams {
		group.Go(func() {
			_, err := io.Copy(&c.body, c.response.Body)
			if err == nil && !bytes.HasSuffix(c.body.Bytes(), []byte("data: [DONE]\n\n")) {
				err = errors.New("the stream has no end")
			}
			if err == nil {
				all[i], err = c.read(v)
			}
			faults[i] = err
		})
	}
	group.Wait()
	for _, said := range all {
		total.answers++
		total.charged += said.chargedMicros
		total.tokens += said.tokens
	}
	return total, errors.Join(faults...)
}

// resident is the product's memory in KiB.
func (p *product) resident() (int64, error) { return memoryOf(p.server.Process.Pid, "VmRSS") }

// memoryOf is a figure of a process's memory in KiB, from /proc: VmRSS is what it has, VmHWM the most that it had.
func memoryOf(pid int, figure string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, figure+":"); ok {
			return strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		}
	}
	return 0, errors.New("the process has no memory")
}
