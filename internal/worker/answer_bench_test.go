package worker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/store/writer"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// BenchmarkAnswer has a worker answer as many customers as the benchmark has operations. Its model is the fixture's; its platform is
// another process, so that the processor time is the worker's own.
func BenchmarkAnswer(b *testing.B) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		for _, organizations := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/%d organizations", engine, organizations), func(b *testing.B) {
				var commits counted
				h := build(b, storetest.OpenAt(b, storetest.Location(b, engine), store.Options{Kinds: kinds, Observer: &commits}))
				platforms, err := messaging.New(messaging.Config{
					Drivers: builtin.Platforms(), Options: map[string]map[string]string{"bot": {"api_base": startBotPlatform(b)}},
				})
				require.NoError(b, err)
				b.Cleanup(platforms.Close)
				h.client = platforms
				h.crowd(b, organizations, b.N)
				worked := newSendings(b.N)
				w := h.worker(func(c *Config) { c.Observer, c.Queue = worked, h.queue })
				ctx, stop := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				b.ReportAllocs()
				b.ResetTimer()
				before, committed := processorTime(b), commits.Load()
				go func() { ended <- w.Run(ctx, patience) }()
				<-worked.all
				b.StopTimer()
				b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
				b.ReportMetric(float64(commits.Load()-committed)/float64(b.N), "commits/op")
				stop()
				require.NoError(b, <-ended)
			})
		}
	}
}

// crowd lets customers of several organizations write once each.
func (h *fixture) crowd(b *testing.B, organizations, customers int) {
	b.Helper()
	routes := make([]store.Route, organizations)
	for i := range routes {
		number := strconv.Itoa(i + 1)
		org, agent, channel := store.NewID("org"), store.NewID("agt"), store.NewID("chn")
		h.organization(b, org, credits)
		h.agent(b, org, agent)
		require.NoError(b, h.db.Channels.Create(b.Context(), "test", store.Channel{
			ID: channel, OrgID: org, Type: "bot", Name: "bot", ExternalID: number, AgentID: agent, State: store.ChannelActive,
			Credentials: h.ring.Seal([]byte(`{"botToken":"`+number+`:x","secretToken":"x"}`), vault.ChannelCredentials(org, channel)),
		}, 0))
		route, _, err := h.db.Routes.ByID(b.Context(), channel)
		require.NoError(b, err)
		routes[i] = route
	}
	for first := 0; first < customers; first += 250 {
		var arrivals []inbox.Arrival
		for i := first; i < min(first+250, customers); i++ {
			customer := strconv.Itoa(i + 1)
			arrivals = append(arrivals, inbox.Arrival{Route: routes[i%organizations], Items: []inbox.Item{{
				Kind: platforms.Text, CustomerRef: customer, Address: customer, MessageID: customer,
				Text: "Hello, do you have this in size M? I would take two of them.",
			}}})
		}
		require.NoError(b, h.queue.Enqueue(b.Context(), arrivals))
	}
}

// sendings closes all when so many messages have been sent.
type sendings struct {
	unobserved

	left atomic.Int64
	all  chan struct{}
}

func newSendings(n int) *sendings {
	s := &sendings{all: make(chan struct{})}
	s.left.Store(int64(n))
	return s
}

func (s *sendings) Sent(_, outcome string) {
	if outcome == endedSent && s.left.Add(-1) == 0 {
		close(s.all)
	}
}

// counted counts transactions.
type counted struct{ atomic.Int64 }

func (c *counted) ObserveBatch(writer.Batch) { c.Add(1) }

// botPlatformListener is set in the process that plays the platform of bots: the file of its listener.
const botPlatformListener = "SVC_TEST_BOT_PLATFORM"

// startBotPlatform returns the address of a process that takes every message.
func startBotPlatform(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	file, err := listener.(*net.TCPListener).File()
	require.NoError(b, err)
	platform := exec.Command(os.Args[0])
	platform.Env, platform.ExtraFiles = append(os.Environ(), botPlatformListener+"=3"), []*os.File{file}
	platform.Stderr = os.Stderr
	require.NoError(b, platform.Start())
	require.NoError(b, file.Close())
	require.NoError(b, listener.Close())
	b.Cleanup(func() {
		_ = platform.Process.Kill()
		_ = platform.Wait()
	})
	return "http://" + listener.Addr().String()
}

// playBotPlatform takes every message, until the process is killed.
func playBotPlatform() error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err == nil {
		err = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"ok":true,"result":{"message_id":1,"chat":{"id":1}}}`)
		}))
	}
	return err
}
