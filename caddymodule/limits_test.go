package caddymodule

import (
	"bytes"
	"log/slog"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// Names have a longest length, which isn't a part of the expressions that they are checked with.
func TestLongestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 160)
	require.True(t, isBlockName(long[:64]))
	require.False(t, isBlockName(long[:65]))
	require.False(t, isBlockName(""))
	for _, test := range []struct {
		model, tier string
		faults      int
	}{
		{"p/" + long[:128], long[:64], 0},
		{"p/" + long[:129], long[:64], 1},
		{"p/" + long[:128], long[:65], 1},
		{"p/", "", 1},
		{long[:65] + "/m", "", 1},
	} {
		var faults config.Faults
		model := &Model{Name: test.model, Tier: test.tier}
		one := int64(1)
		model.ContextWindow, model.MaxOutputTokens, model.PriceInput, model.PriceOutput = &one, &one, &one, &one
		model.faults(&faults, "m", []string{"p"})
		caddyfile.Faults(model.Rules(), &faults, "m")
		require.Len(t, faults, test.faults, "%s %s", test.model, test.tier)
	}
	require.Equal(t, "svc.plan["+long+"]", config.Element("plan", long))
	require.Contains(t, config.Element("plan", long+"n"), "…")
}

// A plan of no bytes is a limit; a plan without the word has the default, as of channels.
func TestPlanLimits(t *testing.T) {
	t.Parallel()
	none, some := int64(0), int64(10<<20)
	app := &App{Plans: []*Plan{{Name: "free", KnowledgeBytes: &none}, {Name: "pro", KnowledgeBytes: &some}, {Name: "max"}}}
	app.fill()
	require.Zero(t, app.KnowledgeLimit("free"))
	require.Equal(t, some, app.KnowledgeLimit("pro"))
	require.EqualValues(t, 1<<30, app.KnowledgeLimit("max"))
	require.EqualValues(t, 1000, app.ChannelLimit("max"))
	require.Zero(t, app.KnowledgeLimit("gone from the file"), "the first plan is the default")
	require.EqualValues(t, 1<<30, new(App).KnowledgeLimit("any"))
	require.EqualValues(t, 1000, new(App).ChannelLimit("any"))
}

// Without `memory` the heap has the default floor. Where there is no room for it, only a floor that somebody chose is worth a warning.
func TestDefaultFloor(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	release := (*Memory)(nil).useFloor(logger)
	defer release()
	require.Eventually(t, func() bool {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.NextGC >= DefaultGCFloor-2<<20
	}, time.Minute, time.Millisecond)

	limit := debug.SetMemoryLimit(255 << 20)
	defer debug.SetMemoryLimit(limit)
	new(Memory).useFloor(logger)()
	require.Empty(t, log.String())
	chosen := int64(DefaultGCFloor)
	(&Memory{GCFloor: &chosen}).useFloor(logger)()
	require.Contains(t, log.String(), "gc_floor is ignored")
}
