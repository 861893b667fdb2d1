package gateway

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/providers"
)

// maxContent is the longest content that the contract allows, in characters.
const maxContent = 200_000

// shapes are texts that have cost tokenizers more than a linear time, each repeated to the longest legal message, and
// some that people write.
var shapes = []struct{ name, part string }{
	{"english", "hello there "},
	{"vietnamese", "Xin chào các bạn, "},
	{"thai", "สวัสดี"},
	{"chinese", "汉"},
	{"spaces", " "},
	{"newlines", "\n"},
	{"newlines and spaces", "\n "},
	{"indented lines", "   \nx"},
	{"one word", "a"},
	{"one capital word", "A"},
	{"mixed case", "aB"},
	{"digits", "1"},
	{"hexadecimal", "0f3a9b"},
	{"punctuation", "!"},
	{"apostrophes", "'s"},
	{"emoji", "👩‍👩‍👧"},
	{"combining marks", "e\u0301\u0301"},
}

func long(part string, characters int) []providers.Message {
	text := string([]rune(strings.Repeat(part, characters))[:characters])
	return []providers.Message{{Role: "user", Content: providers.Quote(text)}}
}

// BenchmarkCount has a row for each shape: MB/s must be of one magnitude for all of them, and for both sizes.
func BenchmarkCount(b *testing.B) {
	counter := newTokenCounter(nil)
	for _, shape := range shapes {
		for _, size := range []int{maxContent / 20, maxContent} {
			messages := long(shape.part, size)
			b.Run(shape.name+map[bool]string{true: "/200k", false: "/10k"}[size == maxContent], func(b *testing.B) {
				b.SetBytes(int64(messages[0].Content.ByteLen()))
				for b.Loop() {
					_, err := counter.prompt(b.Context(), "org", messages, math.MaxInt64)
					require.NoError(b, err)
				}
			})
		}
	}
}

// TestCountStopsAtItsLimit: what is above the limit isn't looked at.
func TestCountStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	counter := newTokenCounter(nil)
	n, err := counter.prompt(t.Context(), "org", long("hello there ", maxContent), 1000)
	require.NoError(t, err)
	require.Greater(t, n, int64(1000))
	require.LessOrEqual(t, n, int64(1001))
	many := make([]providers.Message, 100_000)
	for i := range many {
		many[i] = providers.Message{Role: "user", Content: providers.Quote("x")}
	}
	n, err = counter.prompt(t.Context(), "org", many, 1000)
	require.NoError(t, err)
	require.LessOrEqual(t, n, int64(1000+overheadPerMessage+1))
}

// TestCountEndsWithItsRequest: a count whose client has left gives its place to the next.
func TestCountEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	counter := newTokenCounter(nil)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, err := counter.prompt(ctx, "org", long("汉", maxContent), math.MaxInt64)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, newTokenCounter(nil).line, counter.line, "every place is free again")
}

// TestCountWaitsOnlySoLong: a prompt whose turn doesn't come goes without a count.
func TestCountWaitsOnlySoLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counter := newTokenCounter(nil)
		for range max(1, runtime.GOMAXPROCS(0)/2) {
			require.NoError(t, counter.line.Enter(t.Context(), "greedy"))
		}
		_, err := counter.prompt(t.Context(), "org", long("x", 1000), math.MaxInt64)
		require.ErrorIs(t, err, errCountSlow)
		counter.line.Leave("greedy")
		_, err = counter.prompt(t.Context(), "org", long("x", 1000), math.MaxInt64)
		require.NoError(t, err, "the count that gave up has left the line")
	})
}

// TestCountsOfAnOrganizationAreBounded guarantees that exactly maxOrgCounts of an organization's counts wait in line. A call beyond them goes
// on without a count, and another organization's counts wait beside them.
func TestCountsOfAnOrganizationAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counter := newTokenCounter(nil)
		for range max(1, runtime.GOMAXPROCS(0)/2) {
			require.NoError(t, counter.line.Enter(t.Context(), "holder"))
		}
		ended := make(chan error, maxOrgCounts+1)
		wait := func(org string) {
			go func() {
				_, err := counter.prompt(t.Context(), org, long("x", 1000), math.MaxInt64)
				ended <- err
			}()
			synctest.Wait()
		}
		for range maxOrgCounts {
			wait("greedy")
		}
		require.Empty(t, ended, "all of them wait")
		wait("greedy")
		require.ErrorIs(t, <-ended, dispatch.ErrBusy)
		wait("modest")
		require.Empty(t, ended)
		for range max(1, runtime.GOMAXPROCS(0)/2) {
			counter.line.Leave("holder")
		}
		for range maxOrgCounts + 1 {
			require.NoError(t, <-ended)
		}
	})
}

// TestCountsShareProcessors: a count makes way after each share for other work that keeps a processor, and waits for it no
// longer than for its turn.
func TestCountsShareProcessors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		processors := semaphore.NewWeighted(1)
		counter := newTokenCounter(processors)
		require.NoError(t, processors.Acquire(t.Context(), 1))
		_, err := counter.prompt(t.Context(), "org", long("x", 1000), math.MaxInt64)
		require.ErrorIs(t, err, errCountSlow)
		require.Equal(t, newTokenCounter(nil).line, counter.line, "its place is free again")

		ended := make(chan error, 1)
		go func() {
			_, err := counter.prompt(t.Context(), "org", long("hello there ", 4*countShare), math.MaxInt64)
			ended <- err
		}()
		synctest.Wait()
		hashing := make(chan error)
		go func() { hashing <- processors.Acquire(t.Context(), 1) }()
		synctest.Wait()
		processors.Release(1)
		require.NoError(t, <-hashing)
		synctest.Wait()
		require.Empty(t, ended, "the count goes on later")
		processors.Release(1)
		require.NoError(t, <-ended)
		require.True(t, processors.TryAcquire(1), "the processor is free again")
	})
}
