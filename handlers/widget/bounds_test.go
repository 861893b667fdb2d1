package widget

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// writeFrom writes as a visitor from an address.
func (s *site) writeFrom(address, token, id string) *httptest.ResponseRecorder {
	r := visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", token, `{"id":"`+id+`","text":"alo?"}`)
	return handlertest.Served(s.Serve, handlers.WithClientAddress(r, address))
}

func (s *site) configure(t *testing.T, settings store.WidgetSettings) {
	t.Helper()
	settings.Origins = []string{shop}
	require.NoError(t, s.db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
}

// TestOneVisitorLeavesRoom: whatever one address does, and whichever addresses of its IPv6 network it uses, visitors from
// elsewhere are answered, and what it was refused takes nothing of the channel's rate.
func TestOneVisitorLeavesRoom(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		greedy func(n int) string
		other  string
	}{
		"IPv4":               {func(int) string { return "192.0.2.1" }, "192.0.2.2"},
		"an IPv6 network":    {func(n int) string { return "2001:db8:0:" + strconv.FormatInt(int64(n), 16) + "::1" }, "2001:db8:0:100::1"},
		"IPv4 through IPv6":  {func(int) string { return "::ffff:192.0.2.1" }, "192.0.2.2"},
		"an unknown address": {func(int) string { return "@" }, "192.0.2.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openSite(t)
			s.Limiter = limit.NewMemory(func() time.Time { return time.Unix(1_800_000_030, 0) })
			s.configure(t, store.WidgetSettings{RequestsPerMinute: 6})
			token := s.begin(t, `{}`)
			answered := 0
			for n := range 60 {
				if w := s.writeFrom(test.greedy(n), token, "m-"+strconv.Itoa(n)); w.Code == http.StatusOK {
					answered++
				} else {
					require.Equal(t, string(errcode.RateLimited), handlertest.Checked(t, w).Code())
				}
			}
			require.Equal(t, 4, answered, "two thirds")
			for n := range 2 {
				wholeStream(t, s.writeFrom(test.other, token, "o-"+strconv.Itoa(n)))
			}
			require.Equal(t, string(errcode.RateLimited), handlertest.Checked(t, s.writeFrom(test.other, token, "o-3")).Code(), "the channel's own rate")
		})
	}
}

// TestOneVisitorLeavesStreams: one address can't keep all streams of a channel open.
func TestOneVisitorLeavesStreams(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.speaker.next = make(chan struct{})
	answers := make(chan *httptest.ResponseRecorder, streamsPerAddress)
	for range streamsPerAddress {
		token := s.begin(t, `{}`)
		go func() { answers <- s.writeFrom("192.0.2.1", token, "m-1") }()
	}
	require.Eventually(t, func() bool { return s.Streams.Count() == streamsPerAddress }, time.Minute, time.Millisecond)
	token := s.begin(t, `{}`)
	refused := handlertest.Checked(t, s.writeFrom("192.0.2.1", token, "m-1"))
	require.Equal(t, string(errcode.RateLimited), refused.Code())
	require.EqualValues(t, 1, refused.Fields["retryAfter"])
	require.Empty(t, s.seen(t, token), "what is refused isn't stored")
	go func() { answers <- s.writeFrom("192.0.2.2", token, "m-1") }()
	close(s.speaker.next)
	for range streamsPerAddress + 1 {
		wholeStream(t, <-answers)
	}
	require.Zero(t, s.Streams.Count())
	wholeStream(t, s.writeFrom("192.0.2.1", s.begin(t, `{}`), "m-1"))
}
