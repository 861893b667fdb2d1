package week

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// plan is how much happens.
type plan struct {
	days, tenants  int
	biggest, burst int // messages of the biggest tenant in a day, and of each of three at noon
}

func planned() plan {
	if os.Getenv("SVC_SOAK") != "" {
		return plan{days: 7, tenants: 50, biggest: 1500, burst: 600}
	}
	return plan{days: 1, tenants: 8, biggest: 120, burst: 60}
}

// TestWeek guarantees that whatever a week brings, each question that was accepted ends with one answer, with a person, or with a reason
// that people were told; that no platform got a message too fast or too soon; that the books are in order; and that the smallest
// tenant waits at most three times as long for answers as it would if it were alone: for half of them, and, where there are many, for nine
// in ten. The others fall into outages, after which the next try comes at a random time.
func TestWeek(t *testing.T) {
	t.Parallel()
	p := planned()
	const seed = 17
	together := simulate(t, seed, p, func(int) bool { return true })
	alone := simulate(t, seed, p, func(number int) bool { return number == p.tenants-1 })
	t.Logf("%d days, %d tenants: %s", p.days, p.tenants, together)
	t.Logf("the smallest alone: %s", alone)
	require.NotEmpty(t, alone.waits)
	require.LessOrEqual(t, share(together.waits, 0.5), 3*share(alone.waits, 0.5), "the smallest tenant waits longer than three times alone")
	if len(alone.waits) >= 50 {
		require.LessOrEqual(t, share(together.waits, 0.9), 3*share(alone.waits, 0.9), "the smallest tenant waits longer than three times alone")
	}
}

// result is what came of the accepted questions.
type result struct {
	accepted, answered, withPeople int
	standing                       map[string]int  // by reason
	waits                          []time.Duration // of the smallest tenant, until the answer was sent
}

func (r result) String() string {
	return fmt.Sprintf("%d accepted, %d answered, %d with people, standing %v; waits of the smallest: half up to %s, nine in ten up to %s of %d",
		r.accepted, r.answered, r.withPeople, r.standing, share(r.waits, 0.5), share(r.waits, 0.9), len(r.waits))
}

// share returns how long a part of the waits is at most.
func share(waits []time.Duration, part float64) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(waits))
	return sorted[int(part*float64(len(sorted)-1))]
}

func simulate(t *testing.T, seed uint64, p plan, chosen func(number int) bool) (r result) {
	t.Helper()
	location := storetest.Migrated(t, store.SQLite)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, location, seed, p, chosen)
		w.run(p)
		r = w.judge(p)
		w.close()
	})
	return r
}

// judge requires a good end of every question.
func (w *world) judge(p plan) result {
	t := w.t
	require.Equal(t, platformfake.Verdict{}, w.fake.Verdict())
	report, err := billing.Check(t.Context(), w.db)
	require.NoError(t, err)
	require.True(t, report.OK(), "%v", report)
	findings, err := inbox.CheckSince(t.Context(), w.db, 0)
	require.NoError(t, err)
	require.Empty(t, findings)

	times := w.answers()
	r := result{accepted: len(w.accepted), standing: map[string]int{}}
	var lost []string
	for _, m := range w.accepted {
		if at := times[m.text]; len(at) > 0 {
			if len(at) > 1 {
				require.Fail(t, m.text+" was answered twice", "%v\n%s", at, w.transcript(m))
			}
			r.answered++
			if m.tenant.number == p.tenants-1 {
				r.waits = append(r.waits, at[0].Sub(m.acceptedAt))
			}
			continue
		}
		switch end := w.endOf(m); {
		case end.handled && end.handoverReason != "", end.state == inbox.StateHuman, w.looked[end.turnID]:
			r.withPeople++
		case end.attention != "" && end.events > 0:
			r.standing[string(m.tenant.kind)+" "+end.attention]++
		default:
			lost = append(lost, fmt.Sprintf("%s on %s: %+v", m.text, m.tenant.kind, end))
		}
	}
	require.Empty(t, lost, "%d of %d were accepted, and ended neither with an answer nor with a person or a reason", len(lost), len(w.accepted))
	return r
}

// answers are the times at which an answer to each question reached its customer.
func (w *world) answers() map[string][]time.Time {
	times := map[string][]time.Time{}
	for _, sent := range w.fake.Sent() {
		for _, text := range question.FindAllString(sent.Text, -1) {
			times[text] = append(times[text], sent.At)
		}
	}
	return times
}

// end is what the store says of a question without an answer.
type end struct {
	handled                          bool
	turnID, turn, code, parts        string
	state, attention, handoverReason string
	events                           int // that people were told of the conversation
}

func (w *world) endOf(m *message) (e end) {
	reply, err := w.queue.Reply(w.t.Context(), m.tenant.org, m.tenant.channel, m.text)
	require.NoError(w.t, err)
	require.NoError(w.t, w.db.Reader().QueryRowContext(w.t.Context(), `SELECT m.handled, coalesce(t.id, ''), coalesce(t.state, ''), coalesce(t.code, ''),
		coalesce((SELECT group_concat(o.state || ' ' || o.code) FROM outbound_messages o WHERE o.turn_id = m.turn_id), ''),
		c.state, c.attention, c.handover_reason
		FROM messages m JOIN conversations c ON c.id = m.conversation_id LEFT JOIN turns t ON t.id = m.turn_id
		WHERE m.id = $1`, reply.MessageID,
	).Scan(&e.handled, &e.turnID, &e.turn, &e.code, &e.parts, &e.state, &e.attention, &e.handoverReason))
	require.NoError(w.t, w.db.Reader().QueryRowContext(w.t.Context(),
		`SELECT count(*) FROM event_deliveries WHERE org_id = $1 AND payload LIKE $2`, m.tenant.org, "%"+reply.ConversationID+"%").Scan(&e.events))
	return e
}

// transcript is what the store has of a question's conversation, for a person who looks for a fault.
func (w *world) transcript(m *message) string {
	reply, err := w.queue.Reply(w.t.Context(), m.tenant.org, m.tenant.channel, m.text)
	require.NoError(w.t, err)
	rows, err := store.ReadRows(w.t.Context(), w.db, "read a conversation", store.ScanValue[string], `
		SELECT strftime('%m-%d %H:%M:%f ', at / 1000.0, 'unixepoch') || what FROM (
			SELECT received_at AS at, id, author || ' ' || id || ' of turn ' || coalesce(turn_id, 'none') AS what, conversation_id
			FROM messages UNION ALL
			SELECT created_at, id, author || ', ' || state || ' ' || code || ' of turn ' || coalesce(turn_id, 'none'), conversation_id
			FROM outbound_messages)
		WHERE conversation_id = $1 ORDER BY at, id`, reply.ConversationID)
	require.NoError(w.t, err)
	return strings.Join(rows, "\n")
}
