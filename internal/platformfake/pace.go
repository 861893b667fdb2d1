package platformfake

import (
	"time"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// published is how many messages a platform takes: within any time per on one channel, and to one customer so many in a row and one
// more each customerEvery. 0 is any number.
type published struct {
	messages      int
	per           time.Duration
	inARow        int
	customerEvery time.Duration
}

// rates are those of docs/conversations.md, "How fast messages are sent".
var rates = map[platforms.Type]published{
	bot.Type:         {messages: 30, per: time.Second, inARow: 5, customerEvery: time.Second},
	social.Messenger: {messages: 300, per: time.Second},
	social.PhotoDM:   {messages: 300, per: time.Second},
	social.ChatApp:   {messages: 80, per: time.Second, inARow: 45, customerEvery: 6 * time.Second},
	localchat.Type:   {messages: 4000, per: time.Minute},
}

// underWay is how old a 429 is at most whose sender may have sent other messages before it has dealt with the answer.
const underWay = time.Second

// stall is for how long a server that listens may not get to a message that has come, because the machine is busy. Then it sees several at
// once that were sent one after the other. So it allows for that time more of them, at the same rate.
const stall = time.Second

// Verdict counts what a server judges of all requests to send so far.
type Verdict struct {
	// TooFast are messages above the rate that their platform publishes, for a channel or a customer.
	TooFast int
	// TooSoon are messages to a channel or customer before the end of the pause that a 429 had asked for, later than 1 s after it.
	TooSoon int
}

// judge watches how fast messages come.
type judge struct {
	stall   time.Duration
	verdict Verdict
	senders map[string]*watched
}

// watched is what a channel, or a customer of one, has sent.
type watched struct {
	recent             []time.Time
	busyUntil          time.Time
	pausedAt, pausedTo time.Time
}

func (j *judge) of(key string) *watched {
	if j.senders == nil {
		j.senders = map[string]*watched{}
	}
	if j.senders[key] == nil {
		j.senders[key] = &watched{}
	}
	return j.senders[key]
}

// keys names a message's channel, and the customer.
func keys(m *Sent) (channel, customer string) {
	channel = string(m.Type) + " " + m.ExternalID + " " + m.Token
	return channel, channel + " " + m.Address
}

// sees judges a message that arrives.
func (j *judge) sees(m *Sent, at time.Time) {
	rate := rates[m.Type]
	key, customerKey := keys(m)
	channel, customer := j.of(key), j.of(customerKey)
	if channel.paused(at) || customer.paused(at) {
		j.verdict.TooSoon++
	}
	if channel.above(rate, at, j.stall) || customer.inARow(rate, at, j.stall) {
		j.verdict.TooFast++
	}
}

// pauses notes that a 429 asks for a pause.
func (j *judge) pauses(m *Sent, fault Fault, at time.Time) {
	channel, customer := keys(m)
	w := j.of(channel)
	if fault.kind == tooManyForOne {
		w = j.of(customer)
	}
	if !w.paused(at) {
		w.pausedAt = at
	}
	w.pausedTo = at.Add(fault.pause)
}

func (w *watched) paused(at time.Time) bool {
	return at.After(w.pausedAt.Add(underWay)) && at.Before(w.pausedTo)
}

// above notes a message and reports whether the last ones are too many.
func (w *watched) above(rate published, at time.Time, stall time.Duration) bool {
	if rate.messages == 0 {
		return false
	}
	w.recent = append(w.recent, at)
	for at.Sub(w.recent[0]) >= rate.per+stall {
		w.recent = w.recent[1:]
	}
	return len(w.recent) > rate.messages*int(rate.per+stall)/int(rate.per)
}

// inARow notes a message to a customer and reports whether it is one too many.
func (w *watched) inARow(rate published, at time.Time, stall time.Duration) bool {
	if rate.inARow == 0 {
		return false
	}
	if w.busyUntil.Before(at) {
		w.busyUntil = at
	}
	w.busyUntil = w.busyUntil.Add(rate.customerEvery)
	return w.busyUntil.Sub(at) > time.Duration(rate.inARow)*rate.customerEvery+stall
}

// Verdict returns how fast messages came so far.
func (s *Server) Verdict() Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judge.verdict
}
