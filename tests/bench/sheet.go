package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// sheet keeps what was measured, for a page and a plot of it.
type sheet struct{ lines []*line }

// line is one figure, with its value in each run.
type line struct {
	row     string
	variant variant
	measure string
	bar     bar
	low     bool // less is better
	values  []float64
}

// judge notes a figure and returns it beside its bar, if it has one.
func (s *sheet) judge(row string, v variant, measure string, value float64, b bar, low bool) string {
	i := slices.IndexFunc(s.lines, func(l *line) bool { return l.row == row && l.variant == v && l.measure == measure })
	if i < 0 {
		i = len(s.lines)
		s.lines = append(s.lines, &line{row: row, variant: v, measure: measure, bar: b, low: low})
	}
	l := s.lines[i]
	l.values = append(l.values, value)
	if b == (bar{}) {
		return fmt.Sprintf("%.2f", value)
	}
	return fmt.Sprintf("%.2f (must %.2f, goal %.2f: %s)", value, b.must, b.goal, l.verdict(value))
}

func (l *line) verdict(value float64) string {
	switch {
	case l.bar == (bar{}):
		return ""
	case l.low && value <= l.bar.goal, !l.low && value >= l.bar.goal:
		return "goal"
	case l.low && value <= l.bar.must, !l.low && value >= l.bar.must:
		return "held"
	default:
		return "MISSED"
	}
}

// profileSeconds is how long a row is profiled, after it was measured.
const profileSeconds = 3

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// profile writes where the product's processor time goes while work is done again and again.
func (b *bench) profile(ctx context.Context, p *product, row string, v variant, work func() error) error {
	if !b.profiles {
		return nil
	}
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(row+" "+string(v)), "-"), "-")
	folder := filepath.Join(b.out, "profiles")
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // it is published
		return fmt.Errorf("making a folder: %w", err)
	}
	raw := filepath.Join(p.dir, name+".pb.gz")
	done := make(chan error, 1)
	go func() { done <- p.cpuProfile(ctx, raw) }()
	for {
		if err := work(); err != nil {
			return fmt.Errorf("profiling %s: %w", row, err)
		}
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			return writeProfile(ctx, raw, filepath.Join(folder, name+".txt"))
		default:
		}
	}
}

// writeProfile writes a profile as text: the functions that take the most with what they call, then the most by themselves.
func writeProfile(ctx context.Context, raw, file string) error {
	var text strings.Builder
	for _, sorted := range [][]string{{"-cum", "-nodecount=100"}, {"-flat", "-nodecount=30"}} {
		args := append([]string{"tool", "pprof", "-top"}, append(sorted, raw)...)
		top, err := exec.CommandContext(ctx, "go", args...).Output() //nolint:gosec // our own file
		if err != nil {
			return fmt.Errorf("reading a profile: %w", err)
		}
		_, table, _ := strings.Cut(string(top), "\nShowing") // the lines before it name the machine
		text.WriteString("Showing" + table + "\n")
	}
	return os.WriteFile(file, []byte(text.String()), 0o644) //nolint:gosec // it is published
}

// cpuProfile asks the product's admin socket.
func (p *product) cpuProfile(ctx context.Context, file string) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.adminSocket())
		},
	}}
	address := fmt.Sprintf("http://127.0.0.1/debug/pprof/profile?seconds=%d", profileSeconds)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking for a profile: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking for a profile: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", response.StatusCode, body)
	}
	if err != nil {
		return fmt.Errorf("reading a profile: %w", err)
	}
	return os.WriteFile(file, body, 0o600)
}

// write makes the page and the plot of all figures in a folder. The arguments are those of the command.
func (s *sheet) write(folder string, args []string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // it is published
		return fmt.Errorf("making a folder: %w", err)
	}
	const plot = "ratios.svg"
	page := s.page(strings.Join(args, " "), plot)
	if err := os.WriteFile(filepath.Join(folder, "README.md"), []byte(page), 0o644); err != nil { //nolint:gosec // it is published
		return fmt.Errorf("writing the page: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, plot), []byte(s.plot()), 0o644); err != nil { //nolint:gosec // it is published
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

func (s *sheet) page(args, plot string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks\n\nMeasured on %s: %s, %d processors, %s, `scripts/bench.sh %s`.\n", time.Now().UTC().Format(time.DateOnly), processor(),
		runtime.NumCPU(), runtime.Version(), args)
	b.WriteString("Ratios are to the `reverse_proxy` of stock Caddy in a process of its own (webhooks: to `respond` in ours) in the same interleaved\n" +
		"run, with `gc_floor " + gcFloor() + "`; in brackets stand the least and the most of all runs. What each row spends its time on is in [profiles](profiles).\n\n")
	fmt.Fprintf(&b, "![all ratios to what they must hold](%s)\n\n| row | variant | figure | median (spread) | must | goal | |\n|---|---|---|---|---|---|---|\n", plot)
	for _, l := range s.lines {
		must, goal := "", ""
		if l.bar != (bar{}) {
			must, goal = fmt.Sprintf("%.2f", l.bar.must), fmt.Sprintf("%.2f", l.bar.goal)
		}
		middle := median(slices.Clone(l.values))
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f (%.2f–%.2f) | %s | %s | %s |\n", l.row, l.variant, l.measure, middle,
			slices.Min(l.values), slices.Max(l.values), must, goal, l.verdict(middle))
	}
	return b.String()
}

// processor is the model that the kernel names.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it the page says less
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// plot draws each figure that has a bar as a part of what it must hold, so that all have one scale: to the left of the line
// is better.
func (s *sheet) plot() string {
	const height, left, unit, widest = 20, 470, 220, 2.0
	judged := slices.DeleteFunc(slices.Clone(s.lines), func(l *line) bool { return l.bar == (bar{}) })
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		left+int(widest*unit)+60, height*(len(judged)+2))
	at := func(share float64) int { return left + int(math.Min(share, widest)*unit) }
	for i, l := range judged {
		share := func(value float64) float64 {
			if l.low {
				return value / l.bar.must
			}
			return l.bar.must / math.Max(value, 0.001)
		}
		middle, y := median(slices.Clone(l.values)), height*(i+1)
		fill := map[string]string{"goal": "#2a9d5c", "held": "#3b78c4", "MISSED": "#c8442f"}[l.verdict(middle)]
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+14, escaped(l.row+", "+string(l.variant)+": "+l.measure))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, left, y+4, at(share(middle))-left, height-8, fill)
		low, high := share(slices.Min(l.values)), share(slices.Max(l.values))
		fmt.Fprintf(&b, `<path d="M%d %dH%d" stroke="#222" stroke-width="2"/>`, at(math.Min(low, high)), y+height/2, at(math.Max(low, high)))
		fmt.Fprintf(&b, `<text x="%d" y="%d">%.2f</text>`+"\n", at(math.Max(share(middle), math.Max(low, high)))+6, y+14, middle)
	}
	fmt.Fprintf(&b, `<path d="M%d 10V%d" stroke="#222" stroke-dasharray="4 3"/><text x="%d" y="12">must</text>`+"\n</svg>\n",
		at(1), height*(len(judged)+1), at(1)+4)
	return b.String()
}

// escaped is text in XML.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}
