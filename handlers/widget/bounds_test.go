package widget

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
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
// elsewhere are answered, and refused messages take nothing of the channel's rate.
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
			other := s.begin(t, `{}`)
			for n := range 2 {
				wholeStream(t, s.writeFrom(test.other, other, "o-"+strconv.Itoa(n)))
			}
			require.Equal(t, string(errcode.RateLimited), handlertest.Checked(t, s.writeFrom(test.other, other, "o-3")).Code(), "the channel's own rate")
		})
	}
}

// TestOneVisitorLeavesStreams: one address can't keep all streams of a channel open.
func TestOneVisitorLeavesStreams(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.speaker.next = make(chan struct{})
	answers := make(chan *httptest.ResponseRecorder, streamsPerSource)
	for range streamsPerSource {
		token := s.begin(t, `{}`)
		go func() { answers <- s.writeFrom("192.0.2.1", token, "m-1") }()
	}
	require.Eventually(t, func() bool { return s.Streams.Count() == streamsPerSource }, time.Minute, time.Millisecond)
	token := s.begin(t, `{}`)
	refused := handlertest.Checked(t, s.writeFrom("192.0.2.1", token, "m-1"))
	require.Equal(t, string(errcode.RateLimited), refused.Code())
	require.EqualValues(t, 1, refused.Fields["retryAfter"])
	require.Empty(t, s.seen(t, token), "what is refused isn't stored")
	go func() { answers <- s.writeFrom("192.0.2.2", token, "m-1") }()
	close(s.speaker.next)
	for range streamsPerSource + 1 {
		wholeStream(t, <-answers)
	}
	require.Zero(t, s.Streams.Count())
	wholeStream(t, s.writeFrom("192.0.2.1", s.begin(t, `{}`), "m-1"))
}

// TestWidgetRates: each bound answers rate_limited with retryAfter, and nothing of a refused message is stored.
func TestWidgetRates(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	settings := store.WidgetSettings{Origins: []string{shop}, RequestsPerMinute: 1}
	require.NoError(t, s.db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
	s.Limiter = limit.NewMemory(func() time.Time { return time.Unix(1_800_000_030, 0) })
	token := s.begin(t, `{}`)
	wholeStream(t, s.write(token, "m-1", "one"))
	refused := handlertest.Checked(t, s.write(token, "m-2", "two"))
	require.Equal(t, string(errcode.RateLimited), refused.Code())
	require.EqualValues(t, 30, refused.Fields["retryAfter"])
	require.Len(t, s.seen(t, token), 2)

	settings.RequestsPerMinute = 1000
	require.NoError(t, s.db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
	for range messagesPerMinute - 1 { // refused messages aren't counted
		wholeStream(t, s.write(token, "m-1", "one"))
	}
	require.Equal(t, string(errcode.RateLimited), handlertest.Checked(t, s.write(token, "m-1", "one")).Code())
	another := s.begin(t, `{}`)
	fromElsewhere := visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", another, `{"id":"m-1","text":"one"}`)
	fromElsewhere.RemoteAddr = "198.51.100.7:1234"
	wholeStream(t, handlertest.Served(s.Serve, fromElsewhere))

	for range sessionsPerMinute - 2 {
		s.begin(t, `{}`)
	}
	again := visitorRequest(http.MethodPost, "/widget/chn_1/session", shop, "", `{}`)
	require.Equal(t, string(errcode.RateLimited), handlertest.RefusedWith(t, errcode.RateLimited, s.Serve, again).Code())

	for range streamsPerChannel {
		closeStream, err := s.Streams.Open("chn_1", streamsPerChannel)
		require.NoError(t, err)
		defer closeStream()
	}
	fromElsewhere = visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", another, `{"id":"m-9","text":"nine"}`)
	fromElsewhere.RemoteAddr = "198.51.100.7:1234"
	refused = handlertest.RefusedWith(t, errcode.RateLimited, s.Serve, fromElsewhere)
	require.EqualValues(t, 1, refused.Fields["retryAfter"])
	require.Len(t, s.seen(t, another), 2, "what is refused isn't stored")
	require.Equal(t, streamsPerChannel, s.Streams.Count())
	_, err := s.Streams.Open("chn_1", streamsPerChannel)
	require.Error(t, err, "all streams are the channel's: the organization's own are not counted here")
}

// TestWidgetReadRate: each address has a rate of reads of its own.
func TestWidgetReadRate(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.Limiter = limit.NewMemory(func() time.Time { return time.Unix(1_800_000_030, 0) })
	token := s.begin(t, `{}`)
	for range readsPerMinute {
		require.Empty(t, s.seen(t, token))
	}
	again := visitorRequest(http.MethodGet, "/widget/chn_1/messages", "", token, "")
	require.EqualValues(t, 30, handlertest.RefusedWith(t, errcode.RateLimited, s.Serve, again).Fields["retryAfter"])
	another := visitorRequest(http.MethodGet, "/widget/chn_1/messages", "", s.begin(t, `{}`), "")
	handlertest.RefusedWith(t, errcode.RateLimited, s.Serve, another)
	for _, r := range []*http.Request{again, another} {
		r.RemoteAddr = "198.51.100.7:1234"
	}
	handlertest.RefusedWith(t, errcode.RateLimited, s.Serve, again)
	require.Equal(t, http.StatusOK, handlertest.Served(s.Serve, another).Code)
}

// Visitors of one address have the rate of one visitor together, and one of another address its own.
func TestManyVisitorsOfOneAddress(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.Limiter = limit.NewMemory(func() time.Time { return time.Unix(1_800_000_030, 0) })
	s.configure(t, store.WidgetSettings{RequestsPerMinute: 100})
	for n := range messagesPerMinute {
		wholeStream(t, s.writeFrom("192.0.2.1", s.begin(t, `{}`), "m-"+strconv.Itoa(n)))
	}
	another := s.begin(t, `{}`)
	require.Equal(t, string(errcode.RateLimited), handlertest.Checked(t, s.writeFrom("192.0.2.1", another, "m-one-more")).Code())
	wholeStream(t, s.writeFrom("192.0.2.2", another, "m-one-more"))
}

// TestOneVisitorFromManyAddresses guarantees that a visitor has no more messages and streams because they write from many addresses, and
// that others have theirs.
func TestOneVisitorFromManyAddresses(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.Limiter = limit.NewMemory(func() time.Time { return time.Unix(1_800_000_030, 0) })
	s.configure(t, store.WidgetSettings{RequestsPerMinute: 100})
	token := s.begin(t, `{}`)
	address := func(n int) string { return "192.0.2." + strconv.Itoa(n%10) }
	for n := range messagesPerMinute {
		wholeStream(t, s.writeFrom(address(n), token, "m-"+strconv.Itoa(n)))
	}
	refused := handlertest.Checked(t, s.writeFrom("198.51.100.7", token, "m-one-more"))
	require.Equal(t, string(errcode.RateLimited), refused.Code())
	require.EqualValues(t, 30, refused.Fields["retryAfter"])
	wholeStream(t, s.writeFrom("192.0.2.1", s.begin(t, `{}`), "m-1"))

	token = s.begin(t, `{}`) // the first visitor has had as many answers as an assistant gives at once
	s.Limiter = limit.NewMemory(nil)
	s.speaker.next = make(chan struct{})
	answers := make(chan *httptest.ResponseRecorder, streamsPerSource)
	for n := range streamsPerSource {
		go func() { answers <- s.writeFrom(address(n), token, "open-"+strconv.Itoa(n)) }()
	}
	require.Eventually(t, func() bool { return s.Streams.Count() == streamsPerSource }, time.Minute, time.Millisecond)
	refused = handlertest.Checked(t, s.writeFrom("198.51.100.7", token, "open-one-more"))
	require.Equal(t, string(errcode.RateLimited), refused.Code())
	require.EqualValues(t, 1, refused.Fields["retryAfter"])
	close(s.speaker.next)
	for range streamsPerSource {
		<-answers
	}
	require.Zero(t, s.Streams.Count())
}

// TestDecodersAreFrugal bounds what a decoder of foreign bytes allocates for each byte.
func TestDecodersAreFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	handlertest.RequireFrugalDecoders(t, visitorDecoders(t))
}

func visitorDecoders(t *testing.T) []handlertest.ForeignDecoder {
	s := openSite(t)
	token := s.begin(t, `{}`)
	serve := func(path, origin, token string) func(t *testing.T, body string) {
		return func(t *testing.T, body string) {
			w := handlertest.Served(s.Serve, visitorRequest(http.MethodPost, path, origin, token, body))
			require.NotContains(t, []int{http.StatusForbidden, http.StatusNotFound}, w.Code, w.Body.String())
		}
	}
	return []handlertest.ForeignDecoder{
		{Name: "a visitor's session", Most: endpoint.MaxPublicBody, Bodies: handlertest.Within(`{"token":%}`, `{"x":%}`), Decode: serve("/widget/chn_1/session", shop, "")},
		{Name: "a visitor's message", Most: maxVisitorBody, Bodies: handlertest.Within(`{"id":%}`, `{"text":%}`, `{"id":"m","x":%}`), Decode: serve("/widget/chn_1/messages", "", token)},
	}
}

// TestVisitorsReadInTurn guarantees that visitors of one organization read one conversation at a time, so that many with long ones keep
// neither the processors nor the memory from others; one whose turn doesn't come within two seconds is told to come again.
func TestVisitorsReadInTurn(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	bounds := listBounds()
	bounds.Places = 4 // on a machine with more processors
	s.lists = dispatch.NewTurns(bounds)
	token := s.begin(t, `{}`)
	require.NoError(t, s.lists.Enter(t.Context(), "org_1"))
	refused := handlertest.Checked(t, handlertest.Served(s.Serve, visitorRequest(http.MethodGet, "/widget/chn_1/messages", "", token, "")))
	require.Equal(t, string(errcode.RateLimited), refused.Code())
	require.EqualValues(t, 1, refused.Fields["retryAfter"])

	s.Bodies = handlers.NewByteBudget(8*longList - 1) // a quarter is strangers', of which one address has half
	s.lists.Leave("org_1")
	unread := handlertest.Checked(t, handlertest.Served(s.Serve, visitorRequest(http.MethodGet, "/widget/chn_1/messages", "", token, "")))
	require.Equal(t, string(errcode.RateLimited), unread.Code(), "there is no room for a long one")
	s.Bodies = handlers.NewByteBudget(8 * longList)

	require.NoError(t, s.lists.Enter(t.Context(), "org_1"))
	const many = 4
	waiting := make(chan *httptest.ResponseRecorder)
	for range many {
		go func() {
			waiting <- handlertest.Served(s.Serve, visitorRequest(http.MethodGet, "/widget/chn_1/messages", "", token, ""))
		}()
	}
	s.lists.Leave("org_1")
	for range many {
		require.Equal(t, http.StatusOK, (<-waiting).Code)
	}
}
