package handlertest

import (
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
)

const (
	// mostMemory is how many bytes a decoder may allocate for each byte of a body.
	mostMemory = 8
	// mostFixed is how many bytes it may allocate for every body.
	mostFixed = 96 << 10
	// mostRuns bounds how often a body is decoded until one run allocates no more than allowed. Runs that had to allocate pooled
	// buffers don't count: the race detector drops a quarter of them.
	mostRuns = 30
)

// hostileSize returns the size of hostile bodies. With the race detector, decoding needs a microsecond for each byte.
func hostileSize() int {
	if os.Getenv("SVC_SOAK") != "" {
		return 512 << 10
	}
	return 32 << 10
}

// requireFrugal requires that decode allocates no more than its share for a body of n bytes, beside what every request allocates.
func requireFrugal(t *testing.T, name string, n int, decode func()) {
	t.Helper()
	least := uint64(math.MaxUint64)
	for range mostRuns {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decode()
		runtime.ReadMemStats(&after)
		if least = min(least, after.TotalAlloc-before.TotalAlloc); least <= uint64(mostMemory*n+mostFixed) {
			return
		}
	}
	t.Errorf("%s: %d bytes take %d, %.1f times", name, n, least, float64(least)/float64(n))
}

// Times returns about n bytes of a repeated piece, with a separator.
func Times(piece, separator string, n int) string {
	return strings.TrimSuffix(strings.Repeat(piece+separator, n/(len(piece)+len(separator))), separator)
}

// Names returns about n bytes of members with distinct short names.
func Names(n int, value string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for rest := i; ; rest /= len(letters) {
			b.WriteByte(letters[rest%len(letters)])
			if rest < len(letters) {
				break
			}
		}
		b.WriteString(`":` + value)
	}
	return b.String()
}

// hostile returns values that a parser into trees makes many times as large.
func hostile(n int) map[string]string {
	return map[string]string{
		"empty arrays":  `[` + Times(`[]`, `,`, n) + `]`,
		"empty objects": `[` + Times(`{}`, `,`, n) + `]`,
		"small objects": `[` + Times(`{"a":{}}`, `,`, n) + `]`,
		"numbers":       `[` + Times(`1`, `,`, n) + `]`,
		"large numbers": `[` + Times(`1e17`, `,`, n) + `]`,
		"texts":         `[` + Times(`""`, `,`, n) + `]`,
		"short texts":   `[` + Times(`"ab"`, `,`, n) + `]`,
		"deep":          `[` + Times(strings.Repeat(`[`, 50)+strings.Repeat(`]`, 50), `,`, n) + `]`,
		"names":         `{` + Names(min(n, 600_000), `1`) + `}`,
		"some names":    `[` + Times(`{`+Names(700, `1`)+`}`, `,`, n) + `]`,
		"objects":       `{` + Names(min(n, 600_000), `{}`) + `}`,
		"one text":      `"` + strings.Repeat("a", n) + `"`,
		"escapes":       `"` + strings.Repeat(`\u00e0`, n/6) + `"`,
		"white space":   strings.Repeat(" ", n) + "1",
	}
}

// ForeignDecoder is a decoder of bytes from outside the service.
type ForeignDecoder struct {
	Name string
	// Most is the largest body that it is given, in bytes.
	Most int
	// Bodies are hostile ones of about n bytes.
	Bodies func(n int) map[string]string
	Decode func(t *testing.T, body string)
}

// Within puts each hostile value in place of % in each frame.
func Within(frames ...string) func(n int) map[string]string {
	return func(n int) map[string]string {
		bodies := map[string]string{}
		for name, value := range hostile(n) {
			for _, frame := range frames {
				bodies[name+" in "+frame[:min(len(frame), 60)]] = strings.Replace(frame, "%", value, 1)
			}
		}
		return bodies
	}
}

// RequireFrugalDecoders feeds every decoder with hostile values. The test must not run in parallel with others, because it measures
// the allocations of the process.
func RequireFrugalDecoders(t *testing.T, all []ForeignDecoder) {
	t.Helper()
	for i := range all {
		d := &all[i]
		t.Run(d.Name, func(t *testing.T) { //nolint:paralleltest // as above
			for shape, body := range d.Bodies(min(hostileSize(), d.Most)) {
				if len(body) <= d.Most {
					requireFrugal(t, shape, len(body), func() { d.Decode(t, body) })
				}
			}
		})
	}
}
