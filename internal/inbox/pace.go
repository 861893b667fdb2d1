package inbox

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Pace is how fast parts are marked as sending: Burst in a row after a rest, and one more each Every. The zero value holds nothing up.
type Pace struct {
	Every time.Duration
	Burst int
}

// Paces are the paces for a leased conversation: of its channel, with all its customers, and of its own customer. They hold over all
// processes.
type Paces struct {
	Channel, Customer Pace
	// Slot is [PacedError.Slot] of the part that is marked next, or 0.
	Slot int64
}

// PacedError means that a part was not marked as sending, because it is too early for its platform. The part stays pending.
type PacedError struct {
	// Wait is how long to wait until another try. After [PatientFor] or less the caller may wait with the lease and try again, after
	// more it should give the conversation back with [Queue.Postpone].
	Wait time.Duration
	// Slot, unless 0, is a place among the channel's messages that is reserved for the part, for callers that wait with the lease. It
	// goes into [Paces.Slot].
	Slot int64
}

// Error describes the refusal for logs.
func (e *PacedError) Error() string {
	return "inbox: too early for the platform, by " + e.Wait.String()
}

const (
	// PatientFor is the longest wait that is worth a lease. It also bounds the places that a channel reserves ahead.
	PatientFor = time.Second
	// reopenEvery is the least time between the tries of conversations that wait for a channel of a platform without a pace.
	reopenEvery = 20 * time.Millisecond
	// slotEarly is how early a reserved place may be used: milliseconds are rounded, and clocks differ in speed.
	slotEarly = 10
)

func (p Pace) every() int64 { return p.Every.Milliseconds() }

// depth is the duration of a whole burst at the pace.
func (p Pace) depth() int64 { return max(0, int64(p.Burst-1)) * p.every() }

// free returns from when on the next message is in time, while those before keep the pace until until.
func (p Pace) free(until int64) int64 { return until - p.depth() }

// next returns until when messages keep the pace with another one at a time.
func (p Pace) next(until, at int64) int64 { return max(until, at) + p.every() }

// closed returns until when messages keep the pace of a platform that accepts none before end, and no burst after it.
func (p Pace) closed(until, end int64) int64 { return max(until, end+p.depth()) }

// paceKey is the key of a channel's pace.
type paceKey struct{ orgID, channelID string }

func (k paceKey) compare(other paceKey) int {
	return cmp.Or(cmp.Compare(k.orgID, other.orgID), cmp.Compare(k.channelID, other.channelID))
}

// channelPace is the pace of a channel, locked, as operations leave it. Times are epoch milliseconds.
type channelPace struct {
	paceKey
	// pacedUntil is until when its messages keep the pace; queuedUntil is when the last conversation is tried again that was sent away;
	// closedUntil is when the platform accepts messages again.
	pacedUntil, queuedUntil, closedUntil int64
	changed                              bool
}

// take reserves a place among the channel's messages now, or returns when to try again. first is set for a part that hasn't waited: it goes
// behind parts that do.
func (c *channelPace) take(paces Paces, now int64, first bool) *PacedError {
	if slot := paces.Slot; slot > 0 && slot >= c.closedUntil && slot <= now+slotEarly {
		return nil
	}
	pace := paces.Channel
	at := max(pace.free(c.pacedUntil), c.closedUntil)
	behind := first && c.queuedUntil > now
	switch {
	case at <= now && !behind:
		c.place(pace, now)
		return nil
	case at-now <= PatientFor.Milliseconds() && !behind:
		c.place(pace, at)
		return &PacedError{Wait: milliseconds(at - now), Slot: at}
	}
	c.queuedUntil = max(c.queuedUntil, at) + max(pace.every(), reopenEvery.Milliseconds())
	c.changed = true
	return &PacedError{Wait: milliseconds(c.queuedUntil - now)}
}

// place counts a message at a time.
func (c *channelPace) place(pace Pace, at int64) {
	if pace.Every > 0 {
		c.pacedUntil, c.changed = pace.next(c.pacedUntil, at), true
	}
}

// close lets nothing be sent before end.
func (c *channelPace) close(pace Pace, end int64) {
	c.closedUntil = max(c.closedUntil, end)
	c.pacedUntil = pace.closed(c.pacedUntil, c.closedUntil)
	c.changed = true
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// pace returns the channel of an operation that may mark a part as sending, or close the channel; otherwise the zero key.
func (l *Lease) pace(paced bool) paceKey {
	if paced {
		return paceKey{l.OrgID, l.ChannelID}
	}
	return paceKey{}
}

// pace returns the pace of the conversation's channel. It was locked before the operations ran.
func (s *session) pace(c *conversationRow) *channelPace {
	key := paceKey{c.orgID, c.key.channelID}
	pace := s.paces[key]
	if pace == nil {
		pace = &channelPace{paceKey: key}
		s.paces[key] = pace
	}
	return pace
}

// takePlace reserves places for a message to the customer now, or returns when to try again.
func (s *session) takePlace(c *conversationRow, paces Paces, first bool) *PacedError {
	if wait := paces.Customer.free(c.pacedUntil) - s.now; wait > 0 {
		return &PacedError{Wait: milliseconds(wait)}
	}
	if early := s.pace(c).take(paces, s.now, first); early != nil {
		return early
	}
	if paces.Customer.Every > 0 {
		c.pacedUntil, c.changed = paces.Customer.next(c.pacedUntil, s.now), true
	}
	return nil
}

// hold closes the channel or the customer for as long as the platform has asked for.
func (s *session) hold(c *conversationRow, paces Paces, o SendFailure) {
	if o.HoldChannel > 0 {
		s.pace(c).close(paces.Channel, s.now+o.HoldChannel.Milliseconds())
	}
	if o.HoldCustomer > 0 {
		c.pacedUntil = paces.Customer.closed(c.pacedUntil, s.now+o.HoldCustomer.Milliseconds())
		c.changed = true
	}
}

var (
	lockPaces = listSizes.Statement(`SELECT org_id, channel_id, paced_until, queued_until, closed_until FROM channel_paces
		WHERE (org_id, channel_id) IN ({list}) ORDER BY org_id, channel_id`, 2, 0)
	setPaces = listSizes.Statement(`INSERT INTO channel_paces (org_id, channel_id, paced_until, queued_until, closed_until)
		{list} ON CONFLICT (org_id, channel_id) DO UPDATE SET paced_until = excluded.paced_until, queued_until = excluded.queued_until,
			closed_until = excluded.closed_until`, 5, 0)
)

// queuePaces reads and locks the paces of the channels that operations send on, after the conversations: every transaction locks in this
// order. A channel that never sent has no row to lock; the first places of two processes may be the same.
func (s *session) queuePaces(ops []*operation) {
	var channels []paceKey
	for _, op := range ops {
		if op.pace != (paceKey{}) {
			channels = append(channels, op.pace)
		}
	}
	slices.SortFunc(channels, paceKey.compare)
	store.QueueListed(s.tx, listSizes, lockPaces, s.tx.LockRows(), slices.Compact(channels), func(values []any, key paceKey) []any {
		return append(values, key.orgID, key.channelID)
	}, func(row store.Row) error {
		c := &channelPace{}
		err := row.Scan(&c.orgID, &c.channelID, &c.pacedUntil, &c.queuedUntil, &c.closedUntil)
		s.paces[c.paceKey] = c
		return err
	})
}

// writePaces writes the paces that changed.
func (s *session) writePaces() {
	var changed []*channelPace
	for _, pace := range s.paces {
		if pace.changed {
			changed = append(changed, pace)
		}
	}
	slices.SortFunc(changed, func(a, b *channelPace) int { return a.compare(b.paceKey) })
	store.QueueList(s.tx, listSizes, setPaces, false, changed, func(values []any, c *channelPace) []any {
		return append(values, c.orgID, c.channelID, c.pacedUntil, c.queuedUntil, c.closedUntil)
	})
}

// Unanswered counts the messages of the leased conversation that the platform has certainly taken since its customer's last message
// arrived. A message of unknown delivery doesn't count, nor an older message: a platform that counts more refuses by itself. The times
// compared are our own, because platforms' times are coarse and of another clock. The error is one of the store.
func (q *Queue) Unanswered(ctx context.Context, lease Lease) (sent int, err error) {
	return store.ReadRow(ctx, q.db, "count unanswered messages", store.ScanValue[int], selectUnanswered, lease.ConversationID, lease.OrgID)
}

const selectUnanswered = `SELECT count(*) FROM outbound_messages WHERE conversation_id = $1 AND org_id = $2 AND state = 'sent'
	AND created_at > COALESCE((SELECT received_at FROM messages WHERE conversation_id = $1 AND author = 'customer'
		ORDER BY received_at DESC, id DESC LIMIT 1), 0)`
