package widget

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// crowdHold is the hold for the answer to one message of a crowd, in micros.
const crowdHold = 128

// TestDailySpendByDefault: without a bound of its own a widget spends a tenth of the wallet in a day, whatever else is
// paid from that.
func TestDailySpendByDefault(t *testing.T) {
	t.Parallel()
	storetest.Each(t, siteKinds, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		wallet := billing.WalletID{OrgID: "org_1", Env: store.Live}
		token := s.begin(t, `{}`)
		wholeStream(t, s.write(token, "m-1", "one"))
		s.exec(t, storetest.Unguard(db.Engine(), "calls"))
		s.exec(t, `UPDATE calls SET charged_micros = 99990, reserved_micros = 99990`) // what many answers have cost
		_, err := s.book.Adjust(t.Context(), "test", wallet, -800_000, "other calls", "r", "")
		require.NoError(t, err)
		wholeStream(t, s.write(token, "m-2", "two"))
		require.Equal(t, string(errcode.PlanLimitExceeded), handlertest.Checked(t, s.write(token, "m-3", "three")).Code())
		_, err = s.book.Credit(t.Context(), "test", wallet, 2_000_000, "more")
		require.NoError(t, err)
		wholeStream(t, s.write(token, "m-3", "three"))

		s.configure(t, store.WidgetSettings{RequestsPerMinute: 1000, DailySpendMicros: sql.NullInt64{Int64: 100_000, Valid: true}})
		require.Equal(t, string(errcode.PlanLimitExceeded), handlertest.Checked(t, s.write(token, "m-4", "four")).Code(), "what the organization says counts")
		s.configure(t, store.WidgetSettings{RequestsPerMinute: 1000, DailySpendMicros: sql.NullInt64{Int64: 1e15, Valid: true}})
		wholeStream(t, s.write(token, "m-4", "four"))
	})
}

// TestEmptyWalletIsShown: an empty wallet doesn't stop a widget that has spent nothing. The conversation shows that credits are
// missing, and answers with the organization's own provider key are free.
func TestEmptyWalletIsShown(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	_, err := s.book.Adjust(t.Context(), "test", billing.WalletID{OrgID: "org_1", Env: store.Live}, -1_000_000, "test", "r", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, s.write(s.begin(t, `{}`), "m-1", "alo?").Code)
	require.Equal(t, "insufficient_credits", s.conversation(t).Attention)
}

// TestAnswersBeingMadeCount: visitors who write at the same time don't go beyond the day's spend together.
func TestAnswersBeingMadeCount(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.configure(t, store.WidgetSettings{RequestsPerMinute: 1000, DailySpendMicros: sql.NullInt64{Int64: 3 * chatCost, Valid: true}})
	wholeStream(t, s.write(s.begin(t, `{}`), "m-1", "one"))
	s.speaker.next = make(chan struct{})
	answers := make(chan *httptest.ResponseRecorder, 2)
	for range 2 {
		token := s.begin(t, `{}`)
		go func() { answers <- s.write(token, "m-1", "two") }()
	}
	require.Eventually(t, func() bool {
		day, err := s.db.Widgets.Spend(t.Context(), "org_1", "chn_1", time.UnixMilli(0))
		return err == nil && day.Asking == 2
	}, time.Minute, time.Millisecond)
	token := s.begin(t, `{}`)
	require.Equal(t, string(errcode.RateLimited), handlertest.Checked(t, s.write(token, "m-1", "three")).Code())
	// Another process counts the turns alone.
	elsewhere := *s.Widget
	elsewhere.Streams, elsewhere.answers = new(v1.Streams), new(answerPlaces)
	r := visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", token, `{"id":"m-1","text":"three"}`)
	require.Equal(t, string(errcode.RateLimited), handlertest.Checked(t, handlertest.Served(elsewhere.Serve, r)).Code())
	close(s.speaker.next)
	for range 2 {
		wholeStream(t, <-answers)
	}
	require.EqualValues(t, 3*chatCost, s.spent(t))
	require.Equal(t, string(errcode.PlanLimitExceeded), handlertest.Checked(t, s.write(token, "m-1", "three")).Code())
}

// crowd is visitors who write a first message each, from an address of their own, and whose answers the test delays.
type crowd struct {
	*site

	visitors int
	answers  chan *httptest.ResponseRecorder
}

// crowd lets n visitors write. None is answered before answer is called.
func (s *site) crowd(t *testing.T, n int) *crowd {
	t.Helper()
	s.speaker.next = make(chan struct{})
	c := &crowd{site: s, answers: make(chan *httptest.ResponseRecorder)}
	for range n {
		c.come(t)
	}
	return c
}

// come lets one more visitor write.
func (c *crowd) come(t *testing.T) {
	t.Helper()
	require.Less(t, c.visitors, 255)
	r := visitorRequest(http.MethodPost, "/widget/chn_1/session", shop, "", `{}`)
	address := "192.0.2." + strconv.Itoa(c.visitors)
	c.visitors++
	var session struct{ Token string }
	require.NoError(t, json.Unmarshal(handlertest.Served(c.Serve, handlers.WithClientAddress(r, address)).Body.Bytes(), &session))
	go func() { c.answers <- c.writeFrom(address, session.Token, "m-1") }()
}

func (c *crowd) answer() { close(c.speaker.next) }

// requireRoom requires that all visitors are refused, to come back in a second, but those for whom there is room.
func (c *crowd) requireRoom(t *testing.T, room int, before int64) {
	t.Helper()
	for refused, visitors := 0, c.visitors; ; {
		asked := int(c.speaker.calls.Load() - before)
		require.LessOrEqual(t, asked, room)
		if asked == room && refused >= visitors-room {
			return
		}
		select {
		case w := <-c.answers:
			answer := handlertest.Checked(t, w)
			require.Equal(t, string(errcode.RateLimited), answer.Code())
			require.EqualValues(t, 1, answer.Fields["retryAfter"])
			if refused++; refused > visitors-room {
				c.come(t) // a slow machine let a visitor wait in vain for another one's hold
			}
		case <-time.After(time.Millisecond):
		}
	}
}

// TestCrowdStaysWithinTheSpend: of many visitors who write at the same moment as many are answered as the day's spend
// has room for: by what is held before any answer of the day has ended, by what answers cost afterwards.
func TestCrowdStaysWithinTheSpend(t *testing.T) {
	t.Parallel()
	const visitors = 20
	for name, answeredBefore := range map[string]bool{"first answers": false, "later answers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Each(t, siteKinds, func(t *testing.T, db *store.DB) {
				s := newSite(t, db)
				room, most := 3, int64(3*crowdHold)
				if answeredBefore {
					wholeStream(t, s.write(s.begin(t, `{}`), "m-1", "alo?"))
					most = 4 * chatCost
				}
				s.configure(t, store.WidgetSettings{RequestsPerMinute: 1000, DailySpendMicros: sql.NullInt64{Int64: most, Valid: true}})
				before, asked := s.spent(t), s.speaker.calls.Load()
				c := s.crowd(t, visitors)
				c.requireRoom(t, room, asked)
				if !answeredBefore {
					held, err := s.book.Wallet(t.Context(), billing.WalletID{OrgID: "org_1", Env: store.Live})
					require.NoError(t, err)
					require.EqualValues(t, room*crowdHold, held.HeldMicros)
				}
				c.answer()
				for range room {
					wholeStream(t, <-c.answers)
				}
				require.Equal(t, before+int64(room*chatCost), s.spent(t))
				require.Empty(t, s.answers.channels)
			})
		})
	}
}

// TestDeletedConversationsCount: what a deleted conversation has cost stays in the day's sum, and what its answer that is
// being made will cost comes to it.
func TestDeletedConversationsCount(t *testing.T) {
	t.Parallel()
	storetest.Each(t, siteKinds, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		s.configure(t, store.WidgetSettings{RequestsPerMinute: 1000, DailySpendMicros: sql.NullInt64{Int64: 2 * chatCost, Valid: true}})
		token := s.begin(t, `{}`)
		wholeStream(t, s.write(token, "m-1", "one"))
		require.NoError(t, s.queue.DeleteConversation(t.Context(), "test", "org_1", s.conversation(t).ID))
		c := s.crowd(t, 1)
		require.Eventually(t, func() bool {
			day, err := s.db.Widgets.Spend(t.Context(), "org_1", "chn_1", time.UnixMilli(0))
			return err == nil && day.Asking == 1
		}, time.Minute, time.Millisecond)
		require.NoError(t, s.queue.DeleteConversation(t.Context(), "test", "org_1", s.conversation(t).ID))
		c.answer()
		<-c.answers
		require.EqualValues(t, 2*chatCost, s.spent(t))
		require.Equal(t, string(errcode.PlanLimitExceeded), handlertest.Checked(t, s.write(s.begin(t, `{}`), "m-2", "two")).Code())
		require.Equal(t, string(errcode.PlanLimitExceeded), handlertest.Checked(t, s.write(token, "m-2", "two")).Code())

		s.exec(t, `UPDATE deleted_turns SET created_at = created_at - 2 * 86400000 - 1`)
		_, err := inbox.SweepRetention(t.Context(), s.db)
		require.NoError(t, err)
		turns := 0
		require.NoError(t, s.db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM deleted_turns`).Scan(&turns))
		require.Zero(t, turns)
	})
}

// TestDeletedFirstAnswerIsHeld: what is held for a day's first answer counts when its conversation was deleted.
func TestDeletedFirstAnswerIsHeld(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.configure(t, store.WidgetSettings{RequestsPerMinute: 1000, DailySpendMicros: sql.NullInt64{Int64: 1, Valid: true}})
	c := s.crowd(t, 1)
	require.Eventually(t, func() bool {
		w, err := s.book.Wallet(t.Context(), billing.WalletID{OrgID: "org_1", Env: store.Live})
		return err == nil && w.HeldMicros > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, s.queue.DeleteConversation(t.Context(), "test", "org_1", s.conversation(t).ID))
	require.Equal(t, string(errcode.RateLimited), handlertest.Checked(t, s.write(s.begin(t, `{}`), "m-2", "two")).Code())
	c.answer()
	<-c.answers
	require.Equal(t, string(errcode.PlanLimitExceeded), handlertest.Checked(t, s.write(s.begin(t, `{}`), "m-2", "two")).Code())
}

// TestPlaceOfAPanic: an answer whose check panics gives its place back, or no first answer could be made any more.
func TestPlaceOfAPanic(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	broken := *s.Widget
	asked := 0
	broken.Now = func() time.Time {
		if asked++; asked == 2 { // the first looks at the token
			panic("no clock")
		}
		return s.Now()
	}
	r := visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", s.begin(t, `{}`), `{"id":"m-1","text":"one"}`)
	require.PanicsWithValue(t, "no clock", func() { handlertest.Served(broken.Serve, r) })
	require.Empty(t, s.answers.channels)
}

// leaver ends a visitor's request when their message is stored.
type leaver struct {
	LiveAnswers

	leave context.CancelFunc
}

func (l *leaver) AnswerNow(ctx context.Context, orgID, channelID, messageID string, sink gateway.Sink) (inbox.Reply, error) {
	l.leave()
	return l.LiveAnswers.AnswerNow(ctx, orgID, channelID, messageID, sink)
}

// TestVisitorsWhoLeaveCount: a message is answered, and counts, although its visitor leaves as soon as it is stored. Else
// any number of them could be stored that way while nothing is spent, and be answered afterwards.
func TestVisitorsWhoLeaveCount(t *testing.T) {
	t.Parallel()
	s := openSite(t)
	s.configure(t, store.WidgetSettings{RequestsPerMinute: 1000, DailySpendMicros: sql.NullInt64{Int64: 1, Valid: true}})
	ctx, leave := context.WithCancel(t.Context())
	left := *s.Widget
	left.Live = &leaver{s.Live, leave}
	r := visitorRequest(http.MethodPost, "/widget/chn_1/messages", "", s.begin(t, `{}`), `{"id":"m-1","text":"one"}`)
	handlertest.Served(left.Serve, r.WithContext(ctx))
	require.EqualValues(t, chatCost, s.spent(t))
	require.Equal(t, string(errcode.PlanLimitExceeded), handlertest.Checked(t, s.write(s.begin(t, `{}`), "m-1", "two")).Code())
}

// TestDailySpend: over the cap a new message is refused and not stored; one that was stored before is answered again, and
// the next day is another one.
func TestDailySpend(t *testing.T) {
	t.Parallel()
	storetest.Each(t, siteKinds, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		settings := store.WidgetSettings{Origins: []string{shop}, RequestsPerMinute: 1000, DailySpendMicros: sql.NullInt64{Int64: chatCost + 1, Valid: true}}
		require.NoError(t, db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
		token := s.begin(t, `{}`)
		wholeStream(t, s.write(token, "m-1", "one"))
		wholeStream(t, s.write(token, "m-2", "two"))
		refused := handlertest.Checked(t, s.write(token, "m-3", "three"))
		require.Equal(t, string(errcode.PlanLimitExceeded), refused.Code())
		require.Equal(t, "This chat has answered as much as it may today. Please come back tomorrow.", refused.Fields["message"], "no amounts")
		require.Equal(t, "Xin chào.", wholeStream(t, s.write(token, "m-2", "two")))
		require.Len(t, s.seen(t, token), 4)
		require.EqualValues(t, 2*chatCost, s.spent(t))

		s.ahead.Add(int64(48 * time.Hour)) // beyond the store's day, whenever the test runs
		require.Equal(t, "Xin chào.", wholeStream(t, s.write(s.begin(t, `{"token":"`+token+`"}`), "m-3", "three")))

		settings.DailySpendMicros.Int64 = 0
		require.NoError(t, db.Channels.Update(t.Context(), "test", "org_1", "chn_1", store.ChannelChange{Widget: &settings}))
		require.Equal(t, string(errcode.PlanLimitExceeded), handlertest.Checked(t, s.write(s.begin(t, `{}`), "m-4", "four")).Code())
	})
}
