package inbox

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A customer gets one notice in a closed period and waits until the business opens. Then one answer covers everything that they wrote
// meanwhile.
func TestSayClosed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		now, err := q.db.Now(ctx)
		require.NoError(t, err)
		opening := time.UnixMilli(now + 3_600_000)
		say := func(parts ...string) []Outbound {
			t.Helper()
			lease := q.take(t)
			said, err := q.SayClosed(ctx, lease, parts, opening)
			require.NoError(t, err)
			for i := range said {
				require.NoError(t, q.Sending(ctx, lease, said[i].ID))
				require.NoError(t, q.Sent(ctx, lease, said[i].ID, said[i].ID, ""))
			}
			require.NoError(t, q.Postpone(ctx, lease, time.Hour))
			q.healthy(t)
			return said
		}
		q.arrive(t, textOf("ann", "1", "one"))
		require.Empty(t, say(), "without a notice nothing is said")
		require.Equal(t, strconv.FormatInt(opening.UnixMilli(), 10), q.value(t, `SELECT unanswered_since FROM conversations`))
		q.arrive(t, textOf("ann", "2", "two"))
		require.Len(t, say("We are", "closed."), 2)
		q.arrive(t, textOf("ann", "3", "three"))
		require.Empty(t, say("We are", "closed."), "once")
		q.idle(t)

		q.exec(t, `UPDATE conversations SET run_at = 1, closed_until = 1`)
		lease := q.take(t)
		work := q.open(t, lease)
		require.Equal(t, []string{"one", "two", "three"}, textsOf(work.Waiting))
		require.Equal(t, "We are", work.History[0].Text)
		require.Equal(t, AuthorAssistant, work.History[0].Author)
		require.NoError(t, q.Postpone(ctx, lease, time.Millisecond))
		q.exec(t, `UPDATE conversations SET run_at = 1`)
		require.Len(t, say("We are", "closed."), 2, "another night")

		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
		q.exec(t, `UPDATE conversations SET run_at = 1`)
		_, err = q.SayClosed(ctx, q.take(t), []string{"x"}, opening)
		require.ErrorIs(t, err, ErrHandedOver)
	})
}
